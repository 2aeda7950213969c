"""The reader of a write task by itself: its window, the ends of partitions, brokers that go away and come back."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.errors import DamagedLog, DataLoss, Unavailable, WrongLog
from coordination.planning import log_continuity
from coordination.state.log_records import ReadRange
from coordination.state.model import NO_ANCHOR, PartitionState, Slice, TopicPartition, WriteTask
from sink.audit.checkpoints import LogPartition as AuditedPartition
from sink.audit.failures import CannotAudit
from sink.audit.log import LogRange, LogReader, TopicAccess
from sink.devtools.local.kafka import KafkaServer
from sink.write.engines.task_errors import TaskFailed, task_error
from sink.write.engines.task_input import KafkaSource
from sink.write.reading import kafka_consumer, kafka_reader
from sink.write.reading.kafka_reader import ReadLimits, TaskReader
from tests.integration.reader_kit import (
    AMPLE,
    MIB,
    SentRecord,
    consumer_settings,
    delete_before,
    numbered,
    rows_of,
    send,
    task_reader,
)
from tests.integration.sinktable import slices_of
from tests.kafka_log import lose_end
from tests.kafka_tools import note_topic_id, recreate, topic_id_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TINY = ReadLimits(queue_bytes=64 << 10, window_bytes=64 << 10, batch_bytes=16 << 10)
LONG = 5_000_000


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that a test may stop; it runs again afterwards."""
    with KafkaServer(tmp_path_factory.mktemp("kafka-own")) as server:
        yield server


class Window:
    """Measures the window of a reader each time that the reader has shrunk it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reader: TaskReader) -> None:
        self.most_bytes = self.most_partitions = self.given_back = 0
        shrink = reader._shrink

        def look() -> None:
            before = len(reader._window)
            shrink()
            runs = list(reader._window.values())
            self.given_back += before - len(runs)
            self.most_bytes = max(self.most_bytes, sum(run.bytes for run in runs[1:]))
            self.most_partitions = max(self.most_partitions, len(runs))

        monkeypatch.setattr(reader, "_shrink", look, raising=False)


def coordinates(rows: list[tuple[int, str, int, int, bytes | None]]) -> list[tuple[int, str, int, int]]:
    return [row[:4] for row in rows]


def test_partitions_that_turn_out_larger_than_the_window_are_given_back_and_read_again(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small records come first; the reader estimates the sizes of all others from them."""
    name = topic(20, config={"max.message.bytes": "20000000"})
    send(kafka.address, name, numbered(name, 0, 2_000))
    for partition in range(1, 20):
        large = [SentRecord(b"%d" % at + b"x" * 60_000, b"k") for at in range(6)]
        send(kafka.address, name, large, partition)
    slices = slices_of(name, (0, 0, 2_000), *((partition, 0, 6) for partition in range(1, 20)))
    reader = task_reader(kafka.address, slices, TINY)
    window = Window(monkeypatch, reader)
    rows = rows_of(reader)
    reader.close()
    expected = [
        (at, name, planned_slice.partition, offset)
        for at, planned_slice in enumerate(slices)
        for offset in range(planned_slice.end)
    ]
    assert coordinates(rows) == expected
    assert all(value is not None and value.startswith(b"%d" % offset) for *_, offset, value in rows[2_000:])
    assert window.given_back > 0
    assert window.most_bytes <= 2 * TINY.window_bytes


def test_records_of_five_megabytes_among_small_ones_are_read_within_the_window(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(12, config={"max.message.bytes": "20000000"})
    for partition in range(12):
        records = [SentRecord(b"%d" % at + b"y" * (LONG if at == 40 else 100)) for at in range(80)]
        send(kafka.address, name, records, partition)
    slices = slices_of(name, *((partition, 0, 80) for partition in range(12)))
    reader = task_reader(kafka.address, slices, ReadLimits(MIB, MIB, MIB))
    window = Window(monkeypatch, reader)
    rows, largest = [], 0
    for batch in reader:
        largest = max(largest, batch.records.nbytes)
        rows += [(row[2], row[3], len(row[4] or b"")) for row in rows_of([batch])]
    reader.close()
    sizes = [len(b"%d" % at) + (LONG if at == 40 else 100) for at in range(80)]
    assert rows == [(partition, at, sizes[at]) for partition in range(12) for at in range(80)]
    assert window.most_bytes <= 2 * MIB
    assert largest < 2 * LONG


def test_the_window_reaches_as_far_as_its_bytes_and_no_partition_before_it_is_assigned(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(60)
    for partition in range(60):
        send(kafka.address, name, [SentRecord(b"z" * 1_000) for _ in range(20)], partition)
    reader = task_reader(kafka.address, slices_of(name, *((partition, 0, 20) for partition in range(60))), TINY)
    window = Window(monkeypatch, reader)
    assert len(rows_of(reader)) == 1_200
    assert window.most_partitions < 20


def test_two_slices_of_a_partition_are_read_in_the_order_of_the_task(kafka: Any, topic: Any) -> None:
    name = topic(2)
    for partition in (0, 1):
        send(kafka.address, name, numbered(name, partition, 30), partition)
    slices = slices_of(name, (0, 20, 30), (1, 5, 15), (0, 0, 10), (1, 15, 30))
    rows = rows_of(task_reader(kafka.address, slices))
    expected = [
        (at, name, planned_slice.partition, offset)
        for at, planned_slice in enumerate(slices)
        for offset in range(planned_slice.start, planned_slice.end)
    ]
    assert coordinates(rows) == expected


def test_a_partition_that_ends_early_is_read_on_when_its_records_come(kafka: Any, topic: Any) -> None:
    name = topic(2)
    send(kafka.address, name, numbered(name, 0, 10))
    send(kafka.address, name, numbered(name, 1, 10), 1)
    reader = task_reader(kafka.address, slices_of(name, (0, 0, 20), (1, 0, 10)))
    waiting, at_end = threading.Event(), TaskReader._at_end

    class AnnouncingReader(TaskReader):
        def _at_end(self, run: Any, end: int) -> None:
            at_end(self, run, end)
            if run.partition == 0 and end == 10:
                waiting.set()

    reader.__class__ = AnnouncingReader
    rows: list[Any] = []
    reading = threading.Thread(target=lambda: rows.extend(rows_of(reader)))
    reading.start()
    assert waiting.wait(60)
    send(kafka.address, name, numbered(name, 0, 10, first=10))
    reading.join(60)
    assert [(row[2], row[3]) for row in rows] == [(0, at) for at in range(20)] + [(1, at) for at in range(10)]


@pytest.mark.parametrize("start", [20, 70])
def test_an_offset_that_the_log_does_not_have_is_data_loss(kafka: Any, topic: Any, start: int) -> None:
    """The offset was deleted, or is behind the end of the log."""
    name = topic(2)
    send(kafka.address, name, numbered(name, 1, 50), 1)
    delete_before(kafka.address, name, 1, 30)
    with pytest.raises(DataLoss, match=r"the log no longer has this offset of \[\d+, 80\)") as loss:
        rows_of(task_reader(kafka.address, slices_of(name, (1, start, 80))))
    assert (loss.value.topic, loss.value.partition, loss.value.offset) == (name, 1, start)


def test_data_loss_in_a_task_is_told_with_its_coordinates_and_the_consumer_is_not_kept(kafka: Any, topic: Any) -> None:
    name = topic()
    send(kafka.address, name, numbered(name, 0, 50))
    delete_before(kafka.address, name, 0, 30)
    source = KafkaSource(consumer_settings(kafka.address, client__id=name), AMPLE, False)
    with pytest.raises(TaskFailed) as failure:
        rows_of(source.batches(WriteTask(tuple(slices_of(name, (0, 10, 50)))), iter([]), []))
    error = task_error(failure.value)
    assert isinstance(error, DataLoss)
    assert (error.topic, error.partition, error.offset) == (name, 0, 10)
    assert kept_consumers(name) == []


def test_a_consumer_is_kept_from_one_task_to_the_next_and_reads_what_it_is_asked_for(kafka: Any, topic: Any) -> None:
    name = topic(3)
    for partition in range(3):
        send(kafka.address, name, numbered(name, partition, 100), partition)
    source = KafkaSource(consumer_settings(kafka.address, client__id=name), AMPLE, False)
    consumers = []
    # The same offsets twice, then others of the same partitions, and fewer than are there.
    for ranges in (((0, 0, 50), (1, 0, 50)), ((0, 0, 50), (1, 0, 50)), ((2, 10, 20), (0, 90, 95), (1, 50, 51))):
        slices = slices_of(name, *ranges)
        rows = rows_of(source.batches(WriteTask(tuple(slices)), iter([]), []))
        assert [(row[2], row[3], row[4]) for row in rows] == [
            (planned_slice.partition, at, b"%s %d %d" % (name.encode(), planned_slice.partition, at))
            for planned_slice in slices
            for at in range(planned_slice.start, planned_slice.end)
        ]
        consumers += kept_consumers(name)
    assert len(consumers) == 3
    assert len(set(map(id, consumers))) == 1


def test_a_reading_that_is_given_up_leaves_no_consumer_to_the_next_task(kafka: Any, topic: Any) -> None:
    name = topic()
    send(kafka.address, name, numbered(name, 0, 40_000))
    source = KafkaSource(consumer_settings(kafka.address, client__id=name), AMPLE, False)
    reading = source.batches(WriteTask(tuple(slices_of(name, (0, 0, 40_000)))), iter([]), [])
    next(reading)
    assert len(kept_consumers(name)) == 1
    reading.close()  # type: ignore[attr-defined]
    assert kept_consumers(name) == []


def kept_consumers(client_id: str) -> list[Any]:
    return [consumer for key, consumer in kafka_consumer._kept.items() if ("client.id", client_id) in key]


def topic_slices(server: KafkaServer, name: str, partitions: int = 1) -> list[Slice]:
    """Makes a topic with records in each partition, and returns their slices."""
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    note_topic_id(admin, name)
    for partition in range(partitions):
        send(server.address, name, [SentRecord(b"%d" % at + b"v" * 200) for at in range(10_000)], partition)
    return slices_of(name, *((partition, 0, 10_000) for partition in range(partitions)))


def test_a_reading_goes_on_after_a_restart_of_the_broker(own_kafka: KafkaServer) -> None:
    slices = topic_slices(own_kafka, "restarted", partitions=4)
    batches = iter(task_reader(own_kafka.address, slices, ReadLimits(256 << 10, 256 << 10, 64 << 10)))
    rows = rows_of([next(batches)])
    own_kafka.stop()
    own_kafka.start()
    rows += rows_of(batches)
    assert [(row[0], row[3]) for row in rows] == [(at, offset) for at in range(4) for offset in range(10_000)]


def test_a_broker_that_is_away_too_long_is_told_of_in_one_sentence(
    own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = topic_slices(own_kafka, "away")
    batches = iter(task_reader(own_kafka.address, slices, ReadLimits(64 << 10, 64 << 10, 64 << 10)))
    monkeypatch.setattr(kafka_reader, "SILENT_SECONDS", 3.0)
    next(batches)
    own_kafka.stop()
    try:
        with pytest.raises(Unavailable) as silence:
            rows_of(batches)
    finally:
        own_kafka.start()
    error_text = str(silence.value)
    assert error_text.startswith("Kafka: no record of away-0 from offset ")
    assert re.search(r"came for \d+ s: ", error_text)
    assert own_kafka.address in error_text
    assert error_text.endswith("The sink reads the slices again.")
    assert "\n" not in error_text


def test_a_byte_that_changed_in_a_brokers_segment_is_found_and_no_record_of_its_batch_lands(
    own_kafka: KafkaServer,
) -> None:
    """The second one of three batches is damaged."""
    admin = AdminClient({"bootstrap.servers": own_kafka.address})
    admin.create_topics([NewTopic("flipped", 1)])["flipped"].result(30)
    note_topic_id(admin, "flipped")
    for first in (0, 10, 20):
        send(
            own_kafka.address,
            "flipped",
            [SentRecord(b'{"amount":%d}' % (1000 + at)) for at in range(first, first + 10)],
        )
    (segment,) = (own_kafka.directory / "data" / "flipped-0").glob("*.log")
    with segment.open("r+b") as log:
        log.seek(log.read().index(b"1015"))
        log.write(b"9")
    for intact in ((0, 0, 10), (0, 20, 30)):
        assert len(rows_of(task_reader(own_kafka.address, slices_of("flipped", intact)))) == 10
    for damaged in ((0, 0, 30), (0, 15, 16), (0, 10, 20), (0, 3, 11)):
        with pytest.raises(DamagedLog, match=r"^Kafka: flipped-0 offset 10: .*CRC32C.* damaged there: ") as refusal:
            rows_of(task_reader(own_kafka.address, slices_of("flipped", damaged)))
        assert "\n" not in str(refusal.value)
    with closing(LogReader(TopicAccess(own_kafka.address))) as audit:
        audit.topics(["flipped"])
        with pytest.raises(CannotAudit, match=r"^Kafka: flipped-0 offset 10: .*CRC32C"):
            audit.read({AuditedPartition("flipped", 0): LogRange(0, 30)}, lambda *_: None)


def test_a_topic_that_is_created_again_in_mid_read_gives_no_record_of_the_new_one(own_kafka: KafkaServer) -> None:
    (old,) = topic_slices(own_kafka, "again")
    batches = iter(task_reader(own_kafka.address, [old], ReadLimits(64 << 10, 64 << 10, 64 << 10)))
    rows = rows_of([next(batches)])
    recreate(own_kafka.address, "again")
    new_id = topic_id_of("again")
    send(own_kafka.address, "again", [SentRecord(b"new" + b"v" * 200)] * 11_000)
    with pytest.raises(WrongLog) as refusal:
        rows += rows_of(batches)
    assert (refusal.value.planned[1], refusal.value.found[1]) == (old.topic_id, new_id)
    assert "sink reset --to earliest --topic again" in str(refusal.value)
    assert not [row for row in rows if row[4] is None or row[4].startswith(b"new")]


def test_a_log_that_lost_its_end_and_grew_again_is_told_by_the_record_before(own_kafka: KafkaServer) -> None:
    admin = AdminClient({"bootstrap.servers": own_kafka.address})
    admin.create_topics([NewTopic("rewritten", 1)])["rewritten"].result(30)
    topic_id = note_topic_id(admin, "rewritten")
    partition = TopicPartition("rewritten", 0)

    def read(start: int, end: int, anchor: int = NO_ANCHOR) -> ReadRange:
        reader = task_reader(own_kafka.address, [Slice("rewritten", 0, start, end, topic_id, 0, anchor)])
        assert [row[3] for row in rows_of(reader)] == list(range(start, end))
        (done,) = reader.reads
        assert done.topic_id == topic_id
        return done

    for first in range(0, 40, 10):
        send(own_kafka.address, "rewritten", [SentRecord(b"old %d" % at) for at in range(first, first + 10)])
    first_read = read(0, 30)
    assert first_read.before is None
    assert first_read.last is not None
    states = {partition: PartitionState(topic_id, 0, 30, 0, anchor=first_read.last)}
    next_read = read(30, 40, first_read.last.offset)
    assert next_read.before == first_read.last
    assert log_continuity.changed_log([next_read], states) is None
    assert log_continuity.evidence([next_read], states) == log_continuity.Evidence(1, 0)

    lose_end(own_kafka, "rewritten", 0, kept=0.4)
    # Not the producer of before, which knows what it has sent.
    producer = Producer({"bootstrap.servers": own_kafka.address})
    for at in range(40):
        producer.produce("rewritten", b"new %d" % at, partition=0)
    assert producer.flush(60) == 0
    failure = log_continuity.changed_log([read(30, 40, first_read.last.offset)], states)
    assert failure is not None
    assert (failure.topic, failure.partition, failure.offset) == ("rewritten", 0, 29)
    assert str(first_read.last) in failure.reason

    delete_before(own_kafka.address, "rewritten", 0, 30)
    expired = read(30, 40, first_read.last.offset)
    assert log_continuity.changed_log([expired], states) is None
    assert log_continuity.evidence([expired], states) == log_continuity.Evidence(0, 1)


def test_a_log_that_ends_before_its_slice_is_named_when_nothing_comes(
    kafka: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    send(kafka.address, name, numbered(name, 0, 10))
    monkeypatch.setattr(kafka_reader, "SILENT_SECONDS", 1.0)
    with pytest.raises(Unavailable, match=rf"\. The log of {name}-0 ends at 10, before 20"):
        rows_of(task_reader(kafka.address, slices_of(name, (0, 0, 20))))


def test_a_task_without_a_broker_fails_with_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "SILENT_SECONDS", 2.0)
    with pytest.raises(Unavailable, match=r"no record of t-0 from offset 0 on came for 2 s: .*127\.0\.0\.1:9"):
        rows_of(task_reader("127.0.0.1:9", slices_of("t", (0, 0, 1))))
