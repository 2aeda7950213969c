"""The librdkafka consumer of a Spark Python worker, kept from one transaction to the next.

Guarantee: a consumer belongs to one process (it is made after the fork) and to one task at a time. It never joins a
group, never commits an offset and never resets a position: an offset that the log does not have is an error. Its
memory is bounded in bytes, whatever the number of partitions. Imports only what every executor has. Raises ConfigError
for settings that librdkafka refuses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from sink.librdkafka import LogConsumer

DEFAULTS: Mapping[str, str] = {
    # librdkafka fetches again 5 ms after its queue was full. Its default of a second stalls every reader.
    "fetch.queue.backoff.ms": "5",
    "fetch.wait.max.ms": "20",
    # Twice the records of one `consume`. More would only be read beyond the end of a slice.
    "queued.min.messages": "16384",
}
"""Defaults beside those of all clients, which a user's `kafka.*` may override."""
_KEPT = 4
"""Consumers that a process keeps: one for each cluster, queue size and fetch size in use."""
_RECORD_BYTES = 32
"""Assumed size of a record in a compressed batch. It is low, because after a small fetch librdkafka fetches again."""
_FETCH_BYTES = (64 << 10, 1 << 20)
"""The least and the most bytes of a fetch from one partition."""


def fetch_bytes(records: int) -> int:
    """Returns the fetch size for a partition from which the task reads `records`, as a power of two.

    librdkafka decodes everything that it fetches, also beyond the last record of the task."""
    least, most = _FETCH_BYTES
    return min(most, max(least, 1 << (records * _RECORD_BYTES - 1).bit_length()))


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """librdkafka's settings, without those of `sink.librdkafka`. `repr` shows no values, because some are secrets."""

    native: Mapping[str, str] = field(repr=False)
    group: str
    """`group.id`: librdkafka needs one, although the sink never commits offsets."""

    def for_reading(self, queue_bytes: int, records: int) -> dict[str, Any]:
        """Returns the settings of a consumer that buffers `queue_bytes` and reads about `records` of each partition."""
        sizes = {
            "queued.max.messages.kbytes": str(max(1, queue_bytes >> 10)),
            "fetch.message.max.bytes": str(fetch_bytes(records)),
        }
        return {**DEFAULTS, **sizes, "group.id": self.group, **self.native, "auto.offset.reset": "error"}


class KeptConsumer:
    """A consumer, its last connection error, and whether it lacks memory or threads for its connections."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.forget_errors()
        self.client = LogConsumer({**settings, "error_cb": self._note_error}, _NoLog())

    def forget_errors(self) -> None:
        self.trouble = ""
        self.is_exhausted = False

    def _note_error(self, error: KafkaError) -> None:
        """Notes why a connection fails. librdkafka only calls this; a fetch does not fail for that reason."""
        self.is_exhausted |= error.code() == KafkaError._CRIT_SYS_RESOURCE
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.trouble:
            self.trouble = error.str()


_kept: OrderedDict[tuple[tuple[str, str], ...], KeptConsumer] = OrderedDict()


def kept_consumer(settings: Mapping[str, Any], cluster: str, topic_ids: Mapping[str, str]) -> KeptConsumer:
    """Returns this process's consumer with these settings, bound to the cluster and the topics by their ids. One that
    knows others is closed: a topic was created again, or the brokers' names mean another cluster."""
    for kept in _kept.values():
        kept.client.serve()
    key = _key(settings)
    consumer = _kept.pop(key, None)
    if consumer is not None and not consumer.client.fits(cluster, topic_ids):
        consumer.client.close()
        consumer = None
    consumer = consumer or KeptConsumer(settings)
    consumer.client.expect(cluster, topic_ids)
    _kept[key] = consumer
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)[1].client.close()
    return consumer


def drop_consumer(settings: Mapping[str, Any]) -> None:
    """Closes the consumer after an error, so that the next task gets a new one."""
    consumer = _kept.pop(_key(settings), None)
    if consumer is not None:
        consumer.client.close()


def _key(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in settings.items()))


class _NoLog:
    """Drops librdkafka's log lines, which would go to stderr; `trouble` has the ones that matter."""

    def log(self, level: int, msg: str, /, *values: object) -> None: ...
