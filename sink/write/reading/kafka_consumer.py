"""The librdkafka consumers that a Python worker of Spark keeps from one task to the next.

So a transaction does not wait for new connections and metadata. Guarantee: a consumer belongs to one process (Spark
forks its workers, and a consumer is made after the fork) and to one task at a time. It never joins a group, never
commits an offset and never resets a position: an offset that the log does not have is an error. The bytes of its queue
are bounded, whatever the number of partitions. Imports only what every executor has. Raises ConfigError for settings
that librdkafka refuses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from sink.librdkafka import LogConsumer

DEFAULTS: Mapping[str, str] = {
    # The wait before the next fetch after the queue was full. librdkafka's default of a second stalls every reader.
    "fetch.queue.backoff.ms": "5",
    # The longest wait of a broker that has too few bytes for an answer.
    "fetch.wait.max.ms": "20",
    # Messages of each partition that librdkafka tries to have in its queue: four times the most that `TaskReader` takes
    # at once. More would mostly be records beyond the end of a slice.
    "queued.min.messages": "16384",
}
"""Defaults beyond `sink.librdkafka.DEFAULTS`. A user's `kafka.*` overrides both."""
_MAX_KEPT = 4
"""Consumers that a process keeps: one for each combination of settings, queue size and fetch size."""
_RECORD_BYTES = 32
"""Assumed bytes of a record in a compressed batch. A low guess costs only another fetch."""
_FETCH_BYTES = (64 << 10, 1 << 20)
"""The least and the most bytes of a fetch from one partition."""


def fetch_bytes(records: int) -> int:
    """Returns the bytes of one fetch from a partition of which the task reads about `records`: a power of two, so that
    tasks of similar size share a consumer. librdkafka decodes all that it fetches, also beyond the task's last record.
    """
    least, most = _FETCH_BYTES
    return min(most, max(least, 1 << (records * _RECORD_BYTES - 1).bit_length()))


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The user's settings for reading, under librdkafka's names. `repr` omits them, because some are secrets."""

    native: Mapping[str, str] = field(repr=False)
    group: str
    """The `group.id` if the user sets none. librdkafka needs one, although the sink never commits offsets to it."""

    def for_reading(self, queue_bytes: int, records: int) -> dict[str, Any]:
        """Returns the settings of a consumer that buffers up to `queue_bytes` of all partitions together, and reads
        about `records` of each partition.
        """
        sizes = {
            "queued.max.messages.kbytes": str(max(1, queue_bytes >> 10)),
            "fetch.message.max.bytes": str(fetch_bytes(records)),
        }
        return {**DEFAULTS, **sizes, "group.id": self.group, **self.native, "auto.offset.reset": "error"}


class KeptConsumer:
    """A consumer and its connection errors. librdkafka reports them beside the fetches, which only get no answer."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.forget_errors()
        self.client = LogConsumer({**settings, "error_cb": self._note_error}, _NoLog())

    def forget_errors(self) -> None:
        self.last_error = ""
        self.is_exhausted = False

    def _note_error(self, error: KafkaError) -> None:
        # librdkafka lacks memory or threads for a connection.
        self.is_exhausted |= error.code() == KafkaError._CRIT_SYS_RESOURCE
        # "All brokers are down" follows the reason, and must not hide it.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last_error:
            self.last_error = error.str()


_kept: OrderedDict[tuple[tuple[str, str], ...], KeptConsumer] = OrderedDict()


def kept_consumer(settings: Mapping[str, Any], cluster: str, topic_ids: Mapping[str, str]) -> KeptConsumer:
    """Returns this process's consumer with these settings, bound to the cluster and to the topics by their ids. An
    empty `cluster` is any. Replaces a consumer that knows another cluster, or another id of one of the topics: the
    brokers' names mean another cluster now, or a topic was created again.
    """
    # All of them: one that is not used would collect librdkafka's log lines.
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
    while len(_kept) > _MAX_KEPT:
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
    """Drops librdkafka's log lines, which would go to stderr. `KeptConsumer` notes the errors among them."""

    def log(self, level: int, msg: str, /, *values: object) -> None: ...
