"""A write task's records, results and digests, whatever the log holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from coordination.errors import BadRecord, DataLoss
from coordination.state.model import Slice, SliceResult, WriteTask
from sink.write.engines.engine import ArrowEngine, WriteResult
from sink.write.rows.row_spec import table_schema
from tests.integration.reader_kit import (
    EAGER_COMPACTION,
    SentRecord,
    compact,
    delete_before,
    numbered,
    open_transaction,
    send,
)
from tests.integration.sinktable import (
    FIRST_TIMESTAMP,
    OpenInstant,
    make_settings,
    one_task,
    rows_of,
    slices_of,
    stats_of,
    tasks_for,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RAW_RECORDS = {"ddl": "", "value__format": "bytes", "key__format": "bytes", "headers__column": "true"}
"""Settings of a table that has a row for a record of any kind."""
DDL = "id bigint, kind string"


class Reading:
    """An engine, and the rows of the files that it wrote."""

    def __init__(self, spark: SparkSession, directory: Path, kafka: str, topics: str, **more: str) -> None:
        directory.mkdir()
        self.settings = make_settings(directory, kafka, topics, **{**RAW_RECORDS, **more})
        self.instant = OpenInstant(directory / "table")
        self.engine = ArrowEngine(
            spark, self.settings.table, self.settings.records, table_schema(self.settings.table, self.settings.records)
        )
        self.engine.check()

    def write(self, tasks: Sequence[WriteTask], attempt: int = 1) -> WriteResult:
        return self.engine.write(self.instant.name, tasks, attempt=attempt)

    def rows(self, written: WriteResult) -> pa.Table:
        table = rows_of([self.instant.base / stat["path"] for stat in stats_of(written)])
        return table.sort_by([(f"_kafka_{name}", "ascending") for name in ("topic", "partition", "offset")])


MakeReading = Callable[..., Reading]


@pytest.fixture
def make_reading(spark: SparkSession, kafka: Any, tmp_path: Path) -> MakeReading:
    def make(topics: str, **more: str) -> Reading:
        directory = tmp_path / f"reading{len(list(tmp_path.iterdir()))}"
        return Reading(spark, directory, kafka.address, topics, **more)

    return make


def counts(written: WriteResult) -> list[tuple[Slice, int]]:
    return [(result.slice, result.records) for result in written.results]


def offsets(table: pa.Table) -> list[int]:
    return [int(offset) for offset in table.column("_kafka_offset").to_pylist()]


def test_slices_of_a_task_become_one_file_in_each_table_partition(make_reading, kafka, topic) -> None:
    name = topic(3)
    for partition in range(3):
        values = [b'{"id":%d,"kind":"k%d"}' % (number, number % 4) for number in range(30)]
        send(kafka.address, name, [SentRecord(value) for value in values], partition)
    reading = make_reading(name, ddl=DDL, value__format="json", partition__field__name="kind")
    first = slices_of(name, (0, 0, 10), (0, 10, 30), (1, 0, 30))
    second = slices_of(name, (2, 5, 20), (2, 20, 30))
    written = reading.write([*one_task(*first), *one_task(*second)])
    assert counts(written) == list(zip([*first, *second], [10, 20, 30, 15, 10], strict=True))
    files = [(stat["partitionPath"], stat["fileId"]) for stat in stats_of(written)]
    assert sorted(path for path, _ in files) == sorted([f"kind=k{number}" for number in range(4)] * 2)
    assert len({file_id for _, file_id in files}) == 8
    assert reading.rows(written).num_rows == 85


def test_each_row_has_the_coordinates_and_the_key_of_its_own_record(make_reading, kafka, topic) -> None:
    first_topic, second_topic = topic(3), topic(2)
    for name, partitions in ((first_topic, 3), (second_topic, 2)):
        for partition in range(partitions):
            send(kafka.address, name, numbered(name, partition, 40), partition)
    slices = [
        *slices_of(first_topic, (2, 5, 20), (0, 0, 40)),
        *slices_of(second_topic, (1, 0, 7)),
        *slices_of(first_topic, (1, 39, 40)),
        *slices_of(second_topic, (0, 10, 30), (1, 7, 40)),
    ]
    reading = make_reading(f"{first_topic},{second_topic}")
    written = reading.write(one_task(*slices))
    assert counts(written) == [(planned_slice, planned_slice.size) for planned_slice in slices]
    assert len(written.stats) == 1
    rows = reading.rows(written).to_pylist()
    assert len(rows) == sum(planned_slice.size for planned_slice in slices)
    for row in rows:
        name, partition, offset = (row[f"_kafka_{field}"] for field in ("topic", "partition", "offset"))
        assert row["value"] == f"{name} {partition} {offset}".encode()
        assert row["_hoodie_record_key"] == f"_kafka_topic:{name},_kafka_partition:{partition},_kafka_offset:{offset}"
    assert len({row["_hoodie_commit_seqno"] for row in rows}) == len(rows)
    coordinates = {(row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) for row in rows}
    assert coordinates == {
        (planned_slice.topic, planned_slice.partition, offset)
        for planned_slice in slices
        for offset in range(planned_slice.start, planned_slice.end)
    }


def test_a_slice_is_complete_that_ends_in_aborted_records_or_markers_of_transactions(
    make_reading, kafka, topic
) -> None:
    """Offsets 0 to 4 and 12 to 14 can be seen; 5 to 9 were aborted, 10 and 15 are markers, 11 is plain."""
    name = topic()
    send(kafka.address, name, numbered(name, 0, 5))
    send(kafka.address, name, [SentRecord(b"aborted")] * 5, transaction="abort")
    send(kafka.address, name, numbered(name, 0, 1, first=11))
    send(kafka.address, name, numbered(name, 0, 3, first=12), transaction="commit")
    slices = slices_of(name, (0, 0, 8), (0, 8, 11), (0, 11, 12), (0, 12, 16))
    reading = make_reading(name)
    written = reading.write(one_task(*slices))
    assert counts(written) == list(zip(slices, [5, 0, 1, 3], strict=True))
    assert offsets(reading.rows(written)) == [0, 1, 2, 3, 4, 11, 12, 13, 14]
    repeated = reading.write(tasks_for(slices))
    assert repeated.results == written.results


def test_a_slice_is_complete_whose_last_offsets_were_compacted(make_reading, kafka, topic) -> None:
    name = topic(config=EAGER_COMPACTION)
    kept_offsets = compact(kafka.address, name)
    gap = next(offset for offset in range(kept_offsets[-1]) if offset not in kept_offsets)
    slices = slices_of(name, (0, 0, gap + 1), (0, gap + 1, kept_offsets[-1] + 1))
    reading = make_reading(name)
    written = reading.write(one_task(*slices))
    read_offsets = offsets(reading.rows(written))
    assert set(read_offsets) <= set(kept_offsets)
    assert read_offsets[-1] == kept_offsets[-1]
    assert [result.slice for result in written.results] == slices
    assert sum(result.records for result in written.results) == len(read_offsets)


def test_records_of_an_open_transaction_behind_the_end_are_not_waited_for(make_reading, kafka, topic) -> None:
    name = topic()
    send(kafka.address, name, numbered(name, 0, 10))
    producer = open_transaction(kafka.address, name, 5)
    try:
        reading = make_reading(name)
        written = reading.write(one_task(*slices_of(name, (0, 0, 4), (0, 4, 10))))
        assert [result.records for result in written.results] == [4, 6]
        assert offsets(reading.rows(written)) == list(range(10))
    finally:
        producer.abort_transaction(30)


def test_a_slice_whose_start_was_deleted_is_data_loss_named_by_its_coordinates(make_reading, kafka, topic) -> None:
    name = topic(2)
    for partition in (0, 1):
        send(kafka.address, name, numbered(name, partition, 50), partition)
    delete_before(kafka.address, name, 1, 30)
    reading = make_reading(name)
    with pytest.raises(DataLoss, match=f"{name}-1 offset 10: the log .*See on.data.loss") as loss:
        reading.write(one_task(*slices_of(name, (0, 0, 50), (1, 10, 50))))
    assert (loss.value.topic, loss.value.partition, loss.value.offset) == (name, 1, 10)
    assert not reading.instant.data_files


def test_keys_values_headers_and_times_arrive_as_they_were_sent(make_reading, kafka, topic) -> None:
    name = topic()
    records = [
        SentRecord(b"plain", b"key", [("a", b"1")], FIRST_TIMESTAMP),
        SentRecord(None, b"tombstone", None, FIRST_TIMESTAMP + 1),
        SentRecord(b"no key", None, [], FIRST_TIMESTAMP + 2),
        SentRecord(b"", b"", [("", b""), ("null", None)], FIRST_TIMESTAMP + 3),
        SentRecord(b"twice", b"\xff\x00", [("a", b"1"), ("b", None), ("a", b"\xff")], FIRST_TIMESTAMP + 4),
        SentRecord(None, None, None, FIRST_TIMESTAMP + 5),
        SentRecord(b"long ago", b"k", None, 1),
    ]
    send(kafka.address, name, records)
    reading = make_reading(name)
    rows = reading.rows(reading.write(one_task(*slices_of(name, (0, 0, 4), (0, 4, 7))))).to_pylist()
    for record, row in zip(records, rows, strict=True):
        headers = (
            None
            if row["_kafka_headers"] is None
            else [(header["key"], header["value"]) for header in row["_kafka_headers"]]
        )
        assert (row["value"], row["_kafka_key"]) == (record.value, record.key)
        assert headers == (list(record.headers) if record.headers else None)
        assert round(row["_kafka_timestamp"].timestamp() * 1000) == record.timestamp


def test_the_time_of_the_brokers_log_is_taken_where_the_topic_has_it(make_reading, kafka, topic) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    send(kafka.address, name, [SentRecord(b"late", timestamp=1), SentRecord(b"later", timestamp=2)])
    reading = make_reading(name)
    rows = reading.rows(reading.write(one_task(*slices_of(name, (0, 0, 2))))).to_pylist()
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "none"})
    consumer.assign([TopicPartition(name, 0, 0)])
    broker_times = [message.timestamp() for message in consumer.consume(2, 30)]
    consumer.close()
    assert {kind for kind, _ in broker_times} == {TIMESTAMP_LOG_APPEND_TIME}
    assert [round(row["_kafka_timestamp"].timestamp() * 1000) for row in rows] == [time for _, time in broker_times]


def test_two_hundred_partitions_of_three_records_are_one_task_and_one_file(make_reading, kafka, topic) -> None:
    name = topic(200)
    for partition in range(200):
        send(kafka.address, name, numbered(name, partition, 3), partition)
    slices = slices_of(name, *((partition, 0, 3) for partition in range(200)))
    reading = make_reading(name)
    written = reading.write(one_task(*slices))
    assert counts(written) == [(planned_slice, 3) for planned_slice in slices]
    assert len(written.stats) == 1
    rows = reading.rows(written).to_pylist()
    assert [(row["_kafka_partition"], row["_kafka_offset"]) for row in rows] == [
        (partition, offset) for partition in range(200) for offset in range(3)
    ]


def test_a_bad_record_of_a_task_is_named_by_its_own_slice(make_reading, kafka, topic) -> None:
    """The record's text looks like an error of another task."""
    name = topic(2)
    for partition in (0, 1):
        send(kafka.address, name, [SentRecord(b'{"id":%d}' % number) for number in range(20)], partition)
    forged_value = json.dumps({"id": 'sink-task-error:["DataLoss", "other", 9, 9, "forged"]'})
    send(kafka.address, name, [SentRecord(forged_value.encode())], 1)
    reading = make_reading(name, ddl=DDL, value__format="json")
    with pytest.raises(BadRecord) as bad:
        reading.write(one_task(*slices_of(name, (0, 0, 20), (1, 0, 10), (1, 10, 21))))
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (name, 1, 20)
    assert not reading.instant.data_files


def test_every_slice_has_the_digest_of_sparks_hash_whatever_the_batches(
    make_reading: MakeReading, spark: SparkSession, kafka: Any, topic: Any
) -> None:
    first_topic, second_topic = topic(2), topic()
    records = [
        SentRecord(None if number % 7 == 0 else b"v" * (number % 90), None if number % 5 == 0 else b"%d" % number)
        for number in range(3_000)
    ]
    for name, partition in ((first_topic, 0), (first_topic, 1), (second_topic, 0)):
        send(kafka.address, name, records, partition)
    first_slices = slices_of(first_topic, (1, 0, 1_000), (0, 50, 3_000))
    last_slices = slices_of(first_topic, (1, 1_000, 3_000))
    slices = [*first_slices, *slices_of(second_topic, (0, 0, 2_999)), *last_slices]
    expected = [sparks_result(spark, planned_slice, records) for planned_slice in slices]
    reading = make_reading(f"{first_topic},{second_topic}")
    for attempt in (1, 3, 9):
        assert list(reading.write(one_task(*slices), attempt).results) == expected, attempt
    assert list(reading.write(tasks_for(slices)).results) == expected


def sparks_result(spark: SparkSession, planned_slice: Slice, records: Sequence[SentRecord]) -> SliceResult:
    """Returns the result by Spark's own hash function, from the records as they were sent."""
    columns = "topic string, partition int, offset long, key binary, value binary"
    rows = [
        (planned_slice.topic, planned_slice.partition, offset, records[offset].key, records[offset].value)
        for offset in range(planned_slice.start, planned_slice.end)
    ]
    hashes = spark.createDataFrame(rows, columns).select(F.xxhash64("topic", "partition", "offset", "key", "value"))
    return SliceResult(planned_slice, len(rows), sum(row[0] for row in hashes.collect()) % 2**64)
