"""A task reader takes its consumer's messages in orders that no broker delivers on demand."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message

from coordination.errors import DamagedLog, DataLoss, Unavailable
from coordination.state.model import Slice, WriteTask
from sink.librdkafka import LogConsumer
from sink.write.reading import kafka_reader
from sink.write.reading.anchors import LastMessage
from sink.write.reading.kafka_consumer import KeptConsumer
from sink.write.reading.kafka_reader import ReadLimits, TaskReader

MIB = 1 << 20
AMPLE = ReadLimits(32 * MIB, 32 * MIB, 32 * MIB)


class PreparedConsumer(KeptConsumer):
    """A kept consumer whose client returns prepared messages, a list at a time."""

    def __init__(self, *messages: Sequence[Message]) -> None:
        self.forget_errors()
        self.client = cast("LogConsumer", PreparedClient(messages))


class PreparedClient:
    def __init__(self, messages: Sequence[Sequence[Message]]) -> None:
        self._messages = deque(messages)

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        return list(self._messages.popleft())

    def read_from(self, _topic: str) -> tuple[str, str]:
        return "cluster", "id"

    def incremental_assign(self, _partitions: Any) -> None: ...

    def incremental_unassign(self, _partitions: Any) -> None: ...


def record(partition: int, offset: int, value: bytes = b"v") -> Message:
    return Message("orders", partition, offset, None, value, None, None, (TIMESTAMP_CREATE_TIME, 0))


def out_of_range(partition: int) -> Message:
    return Message("orders", partition, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))


def failure(code: int, partition: int, offset: int) -> Message:
    return Message("orders", partition, offset, error=KafkaError(code))


def slices(*ends: int) -> list[Slice]:
    return [Slice("orders", partition, 0, end, "id", 0) for partition, end in enumerate(ends)]


@pytest.fixture
def slow_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll takes 5 ms, and the reader's patience is 20 ms."""
    monkeypatch.setattr(kafka_reader, "SILENT_SECONDS", 0.02)
    prepared = PreparedClient.consume

    def consume(client: PreparedClient, count: int, timeout: float) -> list[Message]:
        time.sleep(0.005)
        return prepared(client, count, timeout)

    monkeypatch.setattr(PreparedClient, "consume", consume)


def task_reader(wanted_slices: Sequence[Slice], *messages: Sequence[Message], limits: ReadLimits = AMPLE) -> TaskReader:
    return TaskReader(PreparedConsumer(*messages), WriteTask(tuple(wanted_slices)), limits)


def test_a_slice_that_came_whole_is_not_lost_when_the_log_lost_what_is_behind_it() -> None:
    reader = task_reader(slices(3), [record(0, 0), record(0, 1), record(0, 2), out_of_range(0)])
    assert [batch.records.column("offset").to_pylist() for batch in reader] == [[0, 1, 2]]


def test_a_slice_of_which_a_part_came_is_lost() -> None:
    reader = task_reader(slices(3), [record(0, 0), out_of_range(0)])
    with pytest.raises(DataLoss, match="orders-0 offset 1"):
        list(reader)


@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED])
def test_a_batch_that_librdkafka_passes_over_ends_the_task_unless_it_is_behind_the_slice(code: int) -> None:
    with pytest.raises(DamagedLog, match=r"^Kafka: orders-0 offset 1: .* damaged there: "):
        list(task_reader(slices(4), [record(0, 0), failure(code, 0, 1), record(0, 3)]))
    reader = task_reader(slices(2), [record(0, 0), record(0, 1), failure(code, 0, 2)])
    assert [batch.records.num_rows for batch in reader] == [2]
    # The slice's last offset is a marker: no record of it comes.
    reader = task_reader(slices(2), [record(0, 0), failure(code, 0, 2)])
    assert [batch.records.num_rows for batch in reader] == [1]


def test_a_small_record_that_waits_holds_no_large_ones_that_came_with_it() -> None:
    """Records of partition 1 wait for records of partition 0."""
    count, large = 20, b"x" * MIB
    messages = ([record(0, at, large), record(1, at)] for at in range(count))
    reader = task_reader(slices(count, count), *messages, limits=ReadLimits(32 * MIB, 32 * MIB, MIB))
    batches = iter(reader)
    for _ in range(count // 2):
        next(batches)
    waiting = reader._window["orders", 1].batches
    assert len(waiting) >= count // 2
    assert sum(records.get_total_buffer_size() for records in waiting) < MIB
    *_, last = batches
    assert last.records.column("offset").to_pylist() == list(range(count))


def test_a_consumer_that_once_lacked_a_thread_does_not_fail_the_next_task() -> None:
    consumer = PreparedConsumer([], [record(0, 0)])
    consumer._note_error(KafkaError(KafkaError._CRIT_SYS_RESOURCE))
    assert [batch.records.num_rows for batch in TaskReader(consumer, WriteTask(tuple(slices(1))), AMPLE)] == [1]


def test_a_consumer_that_lacks_a_thread_in_this_task_fails_it_as_out_of_memory() -> None:
    consumer = PreparedConsumer([])
    reader = TaskReader(consumer, WriteTask(tuple(slices(1))), AMPLE)
    consumer._note_error(KafkaError(KafkaError._CRIT_SYS_RESOURCE))
    with pytest.raises(MemoryError):
        list(reader)


@pytest.mark.usefixtures("slow_polls")
def test_the_time_that_the_engine_takes_to_write_a_batch_is_no_silence_of_kafka() -> None:
    messages = ([record(0, 0)], [record(1, 0)], [], [record(2, 0)])
    reader = task_reader(slices(1, 1, 1), *messages, limits=ReadLimits(MIB, 1, 1))
    rows = 0
    for batch in reader:
        rows += batch.records.num_rows
        time.sleep(0.1)
    assert rows == 3


@pytest.mark.usefixtures("slow_polls")
def test_polls_without_records_are_silence_of_kafka() -> None:
    reader = task_reader(slices(2), [record(0, 0)], *[[]] * 20)
    with pytest.raises(Unavailable, match="no record of orders-0 from offset 1 on came"):
        list(reader)


def test_the_record_before_a_range_is_read_and_its_anchor_alone_is_kept() -> None:
    piece = Slice("orders", 0, 2, 4, "id", 0, anchor=0)
    large = record(0, 1, b"x" * MIB)
    reader = task_reader([piece], [record(0, 0), large], [record(0, 2), record(0, 3, b"last")])
    assert [batch.records.column("offset").to_pylist() for batch in reader] == [[2, 3]]
    (read,) = reader.reads
    assert (read.start, read.end) == (2, 4)
    assert read.before is not None
    assert read.last is not None
    assert (read.before.offset, read.last.offset) == (1, 3)
    assert read.before == LastMessage(large, None, has_headers=False).anchor()


def test_a_range_whose_anchor_the_log_has_no_more_is_read_from_its_start() -> None:
    piece = Slice("orders", 0, 2, 4, "id", 0, anchor=1)
    reader = task_reader([piece], [out_of_range(0)], [record(0, 2), record(0, 3)])
    assert [batch.records.column("offset").to_pylist() for batch in reader] == [[2, 3]]
    assert reader.reads[0].before is None
    lost = task_reader([piece], [out_of_range(0)], [out_of_range(0)])
    with pytest.raises(DataLoss, match="orders-0 offset 2"):
        list(lost)


@pytest.mark.parametrize("part", ["key", "value", "time", "headers"])
def test_a_digest_covers_key_value_timestamp_and_headers(part: str) -> None:
    def anchor(**other: Any) -> int:
        fields = {"key": b"k", "value": b"v", "time": 5, "headers": [("a", b"b")], **other}
        times = (TIMESTAMP_CREATE_TIME, fields["time"])
        message = Message("orders", 0, 7, fields["key"], fields["value"], fields["headers"], None, times)
        return LastMessage(message, None, has_headers=False).anchor().digest

    other: Any = {"key": None, "value": b"", "time": 6, "headers": [("ab", b"")]}[part]
    assert anchor() == anchor()
    assert anchor() != anchor(**{part: other})
