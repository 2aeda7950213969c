"""Topics with everything that a log may hold, and the records sent to them, for the readers' tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from coordination.state.model import Slice, WriteTask
from sink.write.reading.kafka_consumer import ConsumerSettings, KeptConsumer
from sink.write.reading.kafka_reader import ReadLimits, TaskReader
from sink.write.reading.read_batches import ReadBatch
from tests.waiting import eventually

MIB = 1 << 20
AMPLE = ReadLimits(32 * MIB, 32 * MIB, 32 * MIB)
EAGER_COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}


@dataclass(frozen=True)
class SentRecord:
    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    timestamp: int = 0
    """Milliseconds; 0 for now."""


def send(kafka: str, topic: str, records: Iterable[SentRecord], partition: int = 0, transaction: str = "") -> None:
    """Sends the records. With `transaction` (`commit` or `abort`) they are in one, which takes one more offset."""
    producer = _producer(kafka, **{"transactional.id": uuid.uuid4().hex}) if transaction else kept_producer(kafka)
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for record in records:
        header_argument: dict[str, Any] = {} if record.headers is None else {"headers": list(record.headers)}
        producer.produce(topic, record.value, record.key, partition, timestamp=record.timestamp, **header_argument)
        producer.poll(0)
    assert producer.flush(60) == 0
    if transaction == "commit":
        producer.commit_transaction(30)
    elif transaction == "abort":
        producer.abort_transaction(30)
    if transaction:
        eventually("the marker of the transaction is in the log", lambda: _is_settled(kafka, topic, partition))


def _producer(kafka: str, **overrides: Any) -> Producer:
    settings = {"bootstrap.servers": kafka, "linger.ms": 20, "message.max.bytes": 20_000_000, "log_level": 0}
    return Producer({**settings, **overrides})


@cache
def kept_producer(kafka: str) -> Producer:
    """Idempotent, because a resent batch would change the order. Cached, because each asks for an id of its own."""
    return _producer(kafka, **{"enable.idempotence": True})


def _is_settled(kafka: str, topic: str, partition: int) -> bool:
    """Whether no transaction is open: the transaction coordinator answers before its marker is written."""
    admin, topic_partition = AdminClient({"bootstrap.servers": kafka}), TopicPartition(topic, partition)
    ends = {
        admin.list_offsets({topic_partition: OffsetSpec.latest()}, isolation_level=level)[topic_partition]
        .result(30)
        .offset
        for level in IsolationLevel
    }
    return len(ends) == 1


def open_transaction(kafka: str, topic: str, count: int) -> Producer:
    """Sends `count` records to partition 0 in a transaction that stays open until it is aborted."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"open %d" % number, partition=0)
    assert producer.flush(60) == 0
    return producer


def numbered(topic: str, partition: int, count: int, first: int = 0) -> list[SentRecord]:
    """Makes records whose values name their own coordinates."""
    return [SentRecord(b"%s %d %d" % (topic.encode(), partition, at), b"%d" % at) for at in range(first, first + count)]


def compact(kafka: str, topic: str) -> list[int]:
    """Fills partition 0 of a topic with `EAGER_COMPACTION` until its log has holes. Returns the offsets that are left.

    The last offset of the log is the one behind the last that it returns."""
    sent_count = 0

    def is_compacted() -> bool:
        nonlocal sent_count
        # Only the next record closes a segment, so that there has to be one.
        send(kafka, topic, [SentRecord(b"%d" % at, b"k") for at in range(sent_count, sent_count + 20)])
        sent_count += 20
        return len(readable_offsets(kafka, topic)) < sent_count

    eventually("the broker compacted", is_compacted, 120)
    return readable_offsets(kafka, topic)


def readable_offsets(kafka: str, topic: str) -> list[int]:
    """Returns the offsets of partition 0 that can be read."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        offsets.append(message.offset() or 0)
    consumer.close()
    return offsets


def delete_before(kafka: str, topic: str, partition: int, offset: int) -> None:
    topic_partition = TopicPartition(topic, partition, offset)
    admin = AdminClient({"bootstrap.servers": kafka})  # its futures are answered only while it lives
    admin.delete_records([topic_partition])[topic_partition].result(timeout=30)


def consumer_settings(kafka: str, **more: str) -> ConsumerSettings:
    overrides: Mapping[str, str] = {name.replace("__", "."): value for name, value in more.items()}
    return ConsumerSettings({"bootstrap.servers": kafka, **overrides}, "tests")


def task_reader(kafka: str, slices: Sequence[Slice], limits: ReadLimits = AMPLE, headers: bool = False) -> TaskReader:
    """A reader with a consumer of its own."""
    consumer = KeptConsumer(consumer_settings(kafka).for_reading(limits.queue_bytes, 100_000))
    consumer.client.expect("", {piece.topic: piece.topic_id for piece in slices})
    return TaskReader(consumer, WriteTask(tuple(slices)), limits, headers)


def rows_of(batches: Iterable[ReadBatch]) -> list[tuple[int, str, int, int, bytes | None]]:
    """Position of the slice, topic, partition, offset and value of each record, in the order of arrival."""
    rows = []
    for batch in batches:
        partitions, offsets, values = (
            batch.records.column(name).to_pylist() for name in ("partition", "offset", "value")
        )
        for part in batch.parts:
            rows += [
                (part.slice, batch.topic, partitions[at], offsets[at], values[at])
                for at in range(part.start, part.stop)
            ]
    return rows
