"""Reads the committed records that the log still delivers.

Guarantee: a record is reported if and only if a read_committed consumer got it, from the log's start when the read
began to the end of the range. A record may expire during the read: the caller reads the log's start again afterwards,
and calls only later offsets missing. Needs DESCRIBE and READ on the topics; without DESCRIBE_CONFIGS the cleanup policy
is unknown. Raises `TryAgain` if the brokers cannot be reached or send nothing, `CannotAudit` for a
damaged batch in a range, and passes KafkaException for settings that librdkafka refuses.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from sink.audit.checkpoints import LogPartition
from sink.audit.consumer import TopicConsumer, as_kafka_prints, damage_of, make_admin
from sink.audit.failures import TryAgain
from sink.audit.log_records import LogRecords

REQUEST_SECONDS = 30.0
QUIET_SECONDS = 60.0
BATCH = 20_000
POLL_SECONDS = 0.1
"""A poll takes so long if fewer records than a batch are left, as in a small topic."""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """The brokers and the topics. `settings` are librdkafka's.

    `topics` are the topics of the sink, so that the audit does not overlook one that never landed.
    """

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()


class Cleanup(Enum):
    """A topic's present cleanup policy. Kafka does not tell earlier ones."""

    COMPACT = "compact"
    DELETE = "delete"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TopicState:
    """`topic_id` is None for a topic that does not exist."""

    topic_id: str | None
    partitions: frozenset[int]
    cleanup: Cleanup


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets `[start, end)`."""

    start: int
    end: int


Receiver = Callable[[LogPartition, LogRecords], None]


class LogReader:
    """One audit's view of the brokers."""

    def __init__(self, access: TopicAccess) -> None:
        self._bootstrap = access.bootstrap
        self._settings = {**access.settings, "bootstrap.servers": access.bootstrap}
        self._group = f"audit-{uuid.uuid4()}"
        self._admin = make_admin(self._settings)
        self._consumer = TopicConsumer(self._settings, self._group, "read_committed")
        self._topic_ids: dict[str, str] = {}
        """The ids by which the described topics are read."""

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def topics(self, names: Iterable[str]) -> dict[str, TopicState]:
        topic_names = sorted(set(names))
        states: dict[str, TopicState] = {}
        if not topic_names:
            return states
        described = self._admin.describe_topics(TopicCollection(topic_names), request_timeout=REQUEST_SECONDS)
        for name, future in described.items():
            try:
                topic = future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._unavailable(error) from error
                states[name] = TopicState(None, frozenset(), Cleanup.UNKNOWN)
                continue
            partitions = frozenset(partition.id for partition in topic.partitions)
            self._topic_ids[name] = as_kafka_prints(topic.topic_id)
            states[name] = TopicState(self._topic_ids[name], partitions, self._cleanup(name))
        return states

    def span(self, source: LogPartition) -> LogRange:
        """Returns the offsets that the log still has."""
        partition = KafkaPartition(source.topic, source.partition)
        try:
            return LogRange(*self._consumer.get_watermark_offsets(partition, timeout=REQUEST_SECONDS))
        except KafkaException as error:
            raise self._unavailable(error) from error

    def read(self, ranges: Mapping[LogPartition, LogRange], receive: Receiver) -> dict[LogPartition, int]:
        """Delivers the records of every range in pieces, rising. Returns the partitions whose log ends too early.
        Raises TryAgain if a topic is no longer the one that `topics` described."""
        return self._read(self._consumer, ranges, receive)

    def read_uncommitted(self, ranges: Mapping[LogPartition, LogRange], receive: Receiver) -> None:
        """Delivers the records of every range, also aborted ones."""
        if not ranges:
            return
        with closing(TopicConsumer(self._settings, self._group, "read_uncommitted")) as consumer:
            self._read(consumer, ranges, receive)

    def _read(
        self, consumer: TopicConsumer, ranges: Mapping[LogPartition, LogRange], receive: Receiver
    ) -> dict[LogPartition, int]:
        pending = {source: span for source, span in ranges.items() if span.start < span.end}
        short: dict[LogPartition, int] = {}
        if not pending:
            return short
        consumer.bind({source.topic: self._topic_ids[source.topic] for source in pending})
        partitions = [KafkaPartition(s.topic, s.partition, span.start) for s, span in pending.items()]
        consumer.assign(partitions)
        consumer.resume(partitions)  # an earlier read has paused what it had read to the end
        last_message_at = time.monotonic()
        try:
            while pending:
                messages = consumer.consume(BATCH, POLL_SECONDS)
                if messages:
                    last_message_at = time.monotonic()
                    short |= self._deliver(consumer, messages, pending, receive)
                elif time.monotonic() - last_message_at > QUIET_SECONDS:
                    names = ", ".join(map(str, sorted(pending)[:5]))
                    raise TryAgain(
                        f"Kafka at {self._bootstrap} sent nothing for {QUIET_SECONDS:.0f} s before the end of"
                        f" {names}: a transaction is open, or a broker is down. Try again."
                    )
        except KafkaException as error:
            raise self._unavailable(error) from error
        finally:
            consumer.unassign()
        return short

    def _deliver(
        self,
        consumer: TopicConsumer,
        messages: Sequence[Message],
        pending: dict[LogPartition, LogRange],
        receive: Receiver,
    ) -> dict[LogPartition, int]:
        short: dict[LogPartition, int] = {}
        delivered: dict[tuple[Any, Any], list[Message]] = defaultdict(list)
        ended: list[tuple[LogPartition, int]] = []
        outside: list[LogPartition] = []
        parts = (map(part, messages) for part in (Message.topic, Message.partition, Message.error))
        for message, topic, partition, error in zip(messages, *parts, strict=True):
            if error is None:
                delivered[topic, partition].append(message)
            elif (damage := damage_of(message)) is not None or error.code() == KafkaError._PARTITION_EOF:
                source = LogPartition(str(message.topic()), int(message.partition() or 0))
                offset = int(message.offset() or 0)
                if damage is not None and source in pending and offset < pending[source].end:
                    raise damage
                # Damage behind the range ends it, too: what the range has of records came before it.
                ended.append((source, offset))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                outside.append(LogPartition(str(topic), int(partition or 0)))
            elif not error.retriable():
                raise KafkaException(error)
        for (topic, partition), records in delivered.items():
            source = LogPartition(topic, partition)
            span = pending.get(source)
            if span is None:
                continue
            offsets: list[Any] = list(map(Message.offset, records))
            kept = bisect_left(offsets, span.end)
            receive(source, LogRecords(records[:kept], offsets[:kept]))
            if offsets[-1] + 1 >= span.end:
                _finish(consumer, source, pending)
        for source, position in (*ended, *self._passed_over(consumer, filter(pending.__contains__, outside), pending)):
            if source in pending:
                if position < pending[source].end:
                    short[source] = position
                _finish(consumer, source, pending)
        return short

    def _passed_over(
        self, consumer: TopicConsumer, outside: Iterable[LogPartition], pending: Mapping[LogPartition, LogRange]
    ) -> Iterator[tuple[LogPartition, int]]:
        """Goes on from the first offset that the log has, where what was to be read next has expired. Yields the
        partitions that have nothing more of their range, and where their log ends. Raises TryAgain for a log that has
        all of a range."""
        for source in outside:
            span, wanted = self.span(source), pending[source]
            if wanted.start < span.start < wanted.end:
                onward = [KafkaPartition(source.topic, source.partition, span.start)]
                consumer.incremental_unassign(onward)
                consumer.incremental_assign(onward)
            elif span.start >= wanted.end or span.end < wanted.end:
                yield source, max(span.start, span.end)
            else:
                raise TryAgain(
                    f"Kafka at {self._bootstrap} refused an offset of {source}, which its log has: another replica"
                    " leads, perhaps. Audit again."
                )

    def _cleanup(self, topic: str) -> Cleanup:
        """Reads the cleanup policy, UNKNOWN on failure: it only changes the text of a note."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        futures = self._admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)
        try:
            entry = futures[resource].result().get("cleanup.policy")
        except KafkaException:
            return Cleanup.UNKNOWN
        if entry is None or not entry.value:
            return Cleanup.UNKNOWN
        return Cleanup.COMPACT if "compact" in entry.value else Cleanup.DELETE

    def _unavailable(self, error: KafkaException) -> TryAgain:
        return TryAgain(f"Kafka at {self._bootstrap} cannot be read ({error.args[0]}). Check address and access.")


def _finish(consumer: TopicConsumer, source: LogPartition, pending: dict[LogPartition, LogRange]) -> None:
    del pending[source]
    consumer.pause([KafkaPartition(source.topic, source.partition)])
