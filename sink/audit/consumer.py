"""Clients of Kafka for the audit.

Guarantee: a `TopicConsumer` gives records only of the topics, by id, that it was told; librdkafka logs each id that a
topic's name stands for before it fetches by it, and the consumer reads these lines. It checks the checksum of every
batch, tells where a partition ends, and commits nothing. Void for brokers before 3.1, which are asked by name. It
shares no code with the sink's consumer, whose mistakes it must not share. Raises TryAgain if a topic is another one
than it was told, and passes KafkaException for settings that librdkafka refuses.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka.admin import AdminClient

from sink.audit.failures import CannotAudit, TryAgain

_DEFAULTS: Mapping[str, Any] = {"reconnect.backoff.ms": 250, "reconnect.backoff.max.ms": 2000}
_FIXED: Mapping[str, Any] = {
    "auto.offset.reset": "error",
    "check.crcs": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "fetch.max.bytes": 16 << 20,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 64 << 10,
    # A broker sends whole record batches, however small the fetch: accept every size.
    "receive.message.max.bytes": (1 << 31) - 1,
    # The lines that name topic ids are at the level of debugging.
    "log_level": 7,
    "debug": "metadata",
}
_NEW_ID = re.compile(r"Topic (?P<topic>\S+) changed id from \S+ to (?P<id>\S+)\Z")
_DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED})
# Without a logger librdkafka writes the texts of its exceptions to standard error, too.
_QUIET = logging.getLogger("sink.audit.librdkafka")
_QUIET.setLevel(logging.CRITICAL)


class _TopicIds:
    """Topics and the ids that librdkafka's lines gave them. It calls this within `consume`."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def log(self, _level: int, _text: str, *values: Any) -> None:
        if values and (match := _NEW_ID.search(str(values[-1]))) is not None:
            self.seen.add((match["topic"], as_kafka_prints(match["id"])))


class TopicConsumer(Consumer):
    """A consumer that is bound to topic ids, in URL-safe base64: `bind` before `assign`."""

    def __init__(self, settings: Mapping[str, Any], group: str, isolation: str) -> None:
        self._bound: Mapping[str, str] = {}
        self._topic_ids = _TopicIds()
        options = {**_DEFAULTS, **settings, **_FIXED, "group.id": group, "isolation.level": isolation}
        super().__init__(options, logger=self._topic_ids)

    def bind(self, topic_ids: Mapping[str, str]) -> None:
        self._bound = topic_ids

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Raises TryAgain if a topic is, or was for a moment, another one than it is bound to."""
        messages = super().consume(num_messages, timeout)
        for topic, topic_id in self._topic_ids.seen:
            if self._bound.get(topic, topic_id) != topic_id:
                raise TryAgain(
                    f"topic {topic}: the audit began with topic id {self._bound[topic]}, and the brokers gave"
                    f" {topic_id}: it was created again, or they belong to several clusters. Check"
                    " kafka.bootstrap.servers, and audit again."
                )
        return messages


class AuditAdmin(AdminClient):
    """An AdminClient that its owner closes: librdkafka aborts the process if its own thread destroys one."""

    def close(self) -> None:
        self.__exit__(None, None, None)


def make_admin(settings: Mapping[str, Any]) -> AuditAdmin:
    return AuditAdmin({**_DEFAULTS, **settings}, logger=_QUIET)


def damage_of(message: Message) -> CannotAudit | None:
    """Returns the error for a batch that cannot be read as it is in the broker's log; None for anything else.
    librdkafka goes on behind that batch: its records would be missing."""
    error = message.error()
    if error is None or error.code() not in _DAMAGED:
        return None
    return CannotAudit(
        f"Kafka: {message.topic()}-{message.partition()} offset {message.offset()}: {error.str()}. The broker's log is"
        " damaged there: let another replica lead the partition, or delete its records up to there (see on.data.loss)."
    )


def as_kafka_prints(topic_id: object) -> str:
    """Converts a topic id from confluent-kafka's base64 to the URL-safe base64 of Kafka's tools."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))
