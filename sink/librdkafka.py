"""Consumers of Kafka, and the sentence for settings that librdkafka refuses: in one place for all rooms.

Guarantee: a consumer reads committed records unless it is told otherwise, checks the checksum of every batch, tells
where a partition ends, and stores no offset. Imports only what every executor has. Raises ConfigError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException

from coordination.errors import ConfigError

REQUIRED: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "check.crcs": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
"""Settings that no user changes."""
_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"


def make_consumer(settings: Mapping[str, Any], logger: Any, isolation: str = "read_committed") -> Consumer:
    try:
        return Consumer({**settings, **REQUIRED, "isolation.level": isolation}, logger=logger)
    except KafkaException as error:
        raise refusal(error) from error


def refusal(error: KafkaException) -> ConfigError:
    """Returns the error for settings with which librdkafka makes no client."""
    reason = error.args[0].str()
    if _NO_KERBEROS in reason:
        return ConfigError(
            "kafka.sasl.mechanism: GSSAPI (Kerberos) needs a confluent-kafka that was built with it, and this one was"
            " not. Build its wheel with packaging/kafka-kerberos, and install it here and on all hosts of executors."
        )
    return ConfigError(f"kafka.*: {reason}. Correct or remove the setting.")
