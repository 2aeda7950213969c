"""The librdkafka consumer of a Spark Python worker: made once, kept from one transaction to the next.

Guarantee: a consumer belongs to one process (it is made after the fork) and to one task at a time; it never joins a
group, never commits an offset, and never resets a position by itself: an offset that the log does not have is an error.
What a consumer holds is bounded in bytes, whatever the number of partitions. Imports nothing that an executor need not
have. Raises ConfigError for settings that librdkafka refuses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from coordination.errors import ConfigError

DEFAULTS: Mapping[str, str] = {
    # A fetch is sent again after 5 ms, not after a second, once the queue has room: a second stalls every reader.
    "fetch.queue.backoff.ms": "5",
    "fetch.wait.max.ms": "20",
    "fetch.max.bytes": str(16 << 20),
    # As many as are taken at a time, twice: more would be read beyond the end of a slice, for nothing.
    "queued.min.messages": "16384",
    # A broker sends a record batch whole, however small the fetch: nothing that a topic may hold is refused here.
    "receive.message.max.bytes": str((1 << 31) - 1),
    "reconnect.backoff.ms": "250",
    "reconnect.backoff.max.ms": "2000",
}
"""Settings that a user's `kafka.*` may change."""
_REQUIRED: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
_KEPT = 4
"""Consumers that a process keeps: one for each cluster, each size of queue and of fetches in use."""
_RECORD_BYTES = 32
"""Bytes of a record in a compressed batch: few, for a fetch that is too small is followed by another."""
_FETCH_BYTES = (64 << 10, 1 << 20)
"""Bytes that a fetch may bring of one partition: least, and most."""


def fetch_bytes(records: int) -> int:
    """Bytes that one fetch should bring of a partition of which `records` are wanted, as a power of two.

    librdkafka decodes all that a fetch brings, also what is beyond the last record that is wanted."""
    least, most = _FETCH_BYTES
    return min(most, max(least, 1 << (records * _RECORD_BYTES - 1).bit_length()))


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """librdkafka's settings without those that have to hold. `repr` shows no value: some are secrets."""

    native: Mapping[str, str] = field(repr=False)
    group: str
    """`group.id`; librdkafka wants one, though nothing is ever committed under it."""

    def for_reading(self, queue_bytes: int, records: int) -> dict[str, Any]:
        """Settings of a consumer that holds `queue_bytes` and reads some `records` of each partition."""
        sizes = {
            "queued.max.messages.kbytes": str(max(1, queue_bytes >> 10)),
            "fetch.message.max.bytes": str(fetch_bytes(records)),
        }
        return {**DEFAULTS, **sizes, "group.id": self.group, **self.native, **_REQUIRED}


class KeptConsumer:
    """A consumer, the last thing that it said of its connections, and whether it lacks memory or threads for them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.trouble = ""
        self.is_exhausted = False
        try:
            self.client = Consumer({**settings, "error_cb": self._hear}, logger=_NoLog())
        except KafkaException as error:
            raise ConfigError(f"kafka.*: {error.args[0].str()}. Correct or remove the setting.") from error

    def _hear(self, error: KafkaError) -> None:
        """librdkafka tells here why a connection fails; a fetch itself never ends for that."""
        self.is_exhausted |= error.code() == KafkaError._CRIT_SYS_RESOURCE
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.trouble:
            self.trouble = error.str()


_kept: OrderedDict[tuple[tuple[str, str], ...], KeptConsumer] = OrderedDict()


def kept_consumer(settings: Mapping[str, Any]) -> KeptConsumer:
    """This process's consumer by these settings."""
    key = _key(settings)
    consumer = _kept.pop(key, None) or KeptConsumer(settings)
    _kept[key] = consumer
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)[1].client.close()
    return consumer


def drop_consumer(settings: Mapping[str, Any]) -> None:
    """After an error: the next task gets a consumer of its own."""
    consumer = _kept.pop(_key(settings), None)
    if consumer is not None:
        consumer.client.close()


def _key(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in settings.items()))


class _NoLog:
    """Takes librdkafka's own log lines, which would go to stderr: what matters of them is in `trouble`."""

    log: Callable[..., None] = staticmethod(lambda *_arguments: None)
