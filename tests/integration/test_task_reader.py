"""Both readers keep one contract for a write task: the same records, results and digests, whatever the log holds."""

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
from sink.write.arrow_engine import ArrowEngine
from sink.write.engine import Written
from sink.write.row_spec import table_schema
from tests.integration.reader_kit import (
    EAGER_COMPACTION,
    Sent,
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

READERS = ("librdkafka", "spark")
AS_THEY_ARE = {"ddl": "", "value__format": "bytes", "key__format": "bytes", "headers__column": "true"}
"""Records of any kind are rows of such a table."""
DDL = "id bigint, kind string"


class Reading:
    """An engine, and the rows of the files that it wrote."""

    def __init__(self, spark: SparkSession, place: Path, kafka: str, topics: str, **more: str) -> None:
        place.mkdir()
        self.settings = make_settings(place, kafka, topics, **{**AS_THEY_ARE, **more})
        self.instant = OpenInstant(place / "table")
        self.engine = ArrowEngine(spark, self.settings, table_schema(self.settings))
        self.engine.check()

    def write(self, tasks: Sequence[WriteTask], attempt: int = 1) -> Written:
        return self.engine.write(self.instant.name, tasks, attempt=attempt)

    def rows(self, written: Written) -> pa.Table:
        table = rows_of([self.instant.base / stat["path"] for stat in stats_of(written)])
        return table.sort_by([(f"_kafka_{name}", "ascending") for name in ("topic", "partition", "offset")])


MakeReading = Callable[..., Reading]


@pytest.fixture
def reading(spark: SparkSession, kafka: Any, tmp_path: Path) -> MakeReading:
    def make(reader: str, topics: str, **more: str) -> Reading:
        place = tmp_path / f"{reader}{len(list(tmp_path.iterdir()))}"
        return Reading(spark, place, kafka.address, topics, kafka__reader=reader, **more)

    return make


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest, reading: MakeReading) -> Callable[..., Reading]:
    """The contract of each reader."""
    return lambda topics, **more: reading(request.param, topics, **more)


def counts(written: Written) -> list[tuple[Slice, int]]:
    return [(result.slice, result.records) for result in written.results]


def offsets(table: pa.Table) -> list[int]:
    return [int(offset) for offset in table.column("_kafka_offset").to_pylist()]


def test_slices_of_a_task_become_one_file_in_each_table_partition(read, kafka, topic) -> None:
    name = topic(3)
    for partition in range(3):
        values = [b'{"id":%d,"kind":"k%d"}' % (at, at % 4) for at in range(30)]
        send(kafka.address, name, [Sent(value) for value in values], partition)
    made = read(name, ddl=DDL, value__format="json", partition__field__name="kind")
    first = slices_of(name, (0, 0, 10), (0, 10, 30), (1, 0, 30))
    second = slices_of(name, (2, 5, 20), (2, 20, 30))
    written = made.write([*one_task(*first), *one_task(*second)])
    assert counts(written) == list(zip([*first, *second], [10, 20, 30, 15, 10], strict=True))
    files = [(stat["partitionPath"], stat["fileId"]) for stat in stats_of(written)]
    assert sorted(path for path, _ in files) == sorted([f"kind=k{at}" for at in range(4)] * 2)
    assert len({file_id for _, file_id in files}) == 8
    assert made.rows(written).num_rows == 85


def test_each_row_has_the_coordinates_and_the_key_of_its_own_record(read, kafka, topic) -> None:
    one, two = topic(3), topic(2)
    for name, partitions in ((one, 3), (two, 2)):
        for partition in range(partitions):
            send(kafka.address, name, numbered(name, partition, 40), partition)
    slices = [
        *slices_of(one, (2, 5, 20), (0, 0, 40)),
        *slices_of(two, (1, 0, 7)),
        *slices_of(one, (1, 39, 40)),
        *slices_of(two, (0, 10, 30), (1, 7, 40)),
    ]
    made = read(f"{one},{two}")
    written = made.write(one_task(*slices))
    assert counts(written) == [(piece, piece.size) for piece in slices]
    assert len(written.stats) == 1
    rows = made.rows(written).to_pylist()
    assert len(rows) == sum(piece.size for piece in slices)
    for row in rows:
        name, partition, at = (row[f"_kafka_{part}"] for part in ("topic", "partition", "offset"))
        assert row["value"] == f"{name} {partition} {at}".encode()
        assert row["_hoodie_record_key"] == f"_kafka_topic:{name},_kafka_partition:{partition},_kafka_offset:{at}"
    assert len({row["_hoodie_commit_seqno"] for row in rows}) == len(rows)
    found = {(row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) for row in rows}
    assert found == {(piece.topic, piece.partition, at) for piece in slices for at in range(piece.start, piece.end)}


def test_a_slice_is_complete_that_ends_in_aborted_records_or_markers_of_transactions(read, kafka, topic) -> None:
    """Offsets 0 to 4 and 12 to 14 can be seen; 5 to 9 were aborted, 10 and 15 are markers, 11 is plain."""
    name = topic()
    send(kafka.address, name, numbered(name, 0, 5))
    send(kafka.address, name, [Sent(b"aborted")] * 5, transaction="abort")
    send(kafka.address, name, numbered(name, 0, 1, first=11))
    send(kafka.address, name, numbered(name, 0, 3, first=12), transaction="commit")
    slices = slices_of(name, (0, 0, 8), (0, 8, 11), (0, 11, 12), (0, 12, 16))
    made = read(name)
    written = made.write(one_task(*slices))
    assert counts(written) == list(zip(slices, [5, 0, 1, 3], strict=True))
    assert offsets(made.rows(written)) == [0, 1, 2, 3, 4, 11, 12, 13, 14]
    again = made.write(tasks_for(slices))
    assert again.results == written.results


def test_a_slice_is_complete_whose_last_offsets_were_compacted(read, kafka, topic) -> None:
    name = topic(config=EAGER_COMPACTION)
    left = compact(kafka.address, name)
    gap = next(at for at in range(left[-1]) if at not in left)
    slices = slices_of(name, (0, 0, gap + 1), (0, gap + 1, left[-1] + 1))
    made = read(name)
    written = made.write(one_task(*slices))
    found = offsets(made.rows(written))
    assert set(found) <= set(left)
    assert found[-1] == left[-1]
    assert [result.slice for result in written.results] == slices
    assert sum(result.records for result in written.results) == len(found)


def test_records_of_an_open_transaction_behind_the_end_are_not_waited_for(read, kafka, topic) -> None:
    name = topic()
    send(kafka.address, name, numbered(name, 0, 10))
    producer = open_transaction(kafka.address, name, 5)
    try:
        made = read(name)
        written = made.write(one_task(*slices_of(name, (0, 0, 4), (0, 4, 10))))
        assert [result.records for result in written.results] == [4, 6]
        assert offsets(made.rows(written)) == list(range(10))
    finally:
        producer.abort_transaction(30)


def test_a_slice_whose_start_was_deleted_is_data_loss_named_by_its_coordinates(read, kafka, topic) -> None:
    name = topic(2)
    for partition in (0, 1):
        send(kafka.address, name, numbered(name, partition, 50), partition)
    delete_before(kafka.address, name, 1, 30)
    made = read(name)
    with pytest.raises(DataLoss, match=f"{name}-1 offset 10: the log .*See on.data.loss") as loss:
        made.write(one_task(*slices_of(name, (0, 0, 50), (1, 10, 50))))
    assert (loss.value.topic, loss.value.partition, loss.value.offset) == (name, 1, 10)
    assert not made.instant.data_files


def test_keys_values_headers_and_times_arrive_as_they_were_sent(read, kafka, topic) -> None:
    name = topic()
    records = [
        Sent(b"plain", b"key", [("a", b"1")], FIRST_TIMESTAMP),
        Sent(None, b"tombstone", None, FIRST_TIMESTAMP + 1),
        Sent(b"no key", None, [], FIRST_TIMESTAMP + 2),
        Sent(b"", b"", [("", b""), ("null", None)], FIRST_TIMESTAMP + 3),
        Sent(b"twice", b"\xff\x00", [("a", b"1"), ("b", None), ("a", b"\xff")], FIRST_TIMESTAMP + 4),
        Sent(None, None, None, FIRST_TIMESTAMP + 5),
        Sent(b"long ago", b"k", None, 1),
    ]
    send(kafka.address, name, records)
    made = read(name)
    rows = made.rows(made.write(one_task(*slices_of(name, (0, 0, 4), (0, 4, 7))))).to_pylist()
    for record, row in zip(records, rows, strict=True):
        headers = None if row["_kafka_headers"] is None else [(h["key"], h["value"]) for h in row["_kafka_headers"]]
        assert (row["value"], row["_kafka_key"]) == (record.value, record.key)
        assert headers == (list(record.headers) if record.headers else None)
        assert round(row["_kafka_timestamp"].timestamp() * 1000) == record.timestamp


def test_the_time_of_the_brokers_log_is_taken_where_the_topic_has_it(read, kafka, topic) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    send(kafka.address, name, [Sent(b"late", timestamp=1), Sent(b"later", timestamp=2)])
    made = read(name)
    rows = made.rows(made.write(one_task(*slices_of(name, (0, 0, 2))))).to_pylist()
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "none"})
    consumer.assign([TopicPartition(name, 0, 0)])
    told = [message.timestamp() for message in consumer.consume(2, 30)]
    consumer.close()
    assert {kind for kind, _ in told} == {TIMESTAMP_LOG_APPEND_TIME}
    assert [round(row["_kafka_timestamp"].timestamp() * 1000) for row in rows] == [time for _, time in told]


def test_two_hundred_partitions_of_three_records_are_one_task_and_one_file(read, kafka, topic) -> None:
    name = topic(200)
    for partition in range(200):
        send(kafka.address, name, numbered(name, partition, 3), partition)
    slices = slices_of(name, *((partition, 0, 3) for partition in range(200)))
    made = read(name)
    written = made.write(one_task(*slices))
    assert counts(written) == [(piece, 3) for piece in slices]
    assert len(written.stats) == 1
    rows = made.rows(written).to_pylist()
    assert [(row["_kafka_partition"], row["_kafka_offset"]) for row in rows] == [
        (partition, at) for partition in range(200) for at in range(3)
    ]


def test_a_bad_record_of_a_task_is_named_by_its_own_slice(read, kafka, topic) -> None:
    """Its text looks like an error of another task."""
    name = topic(2)
    for partition in (0, 1):
        send(kafka.address, name, [Sent(b'{"id":%d}' % at) for at in range(20)], partition)
    forged = json.dumps({"id": 'sink-task-error:["DataLoss", "other", 9, 9, "forged"]'})
    send(kafka.address, name, [Sent(forged.encode())], 1)
    made = read(name, ddl=DDL, value__format="json")
    with pytest.raises(BadRecord) as bad:
        made.write(one_task(*slices_of(name, (0, 0, 20), (1, 0, 10), (1, 10, 21))))
    assert (bad.value.topic, bad.value.partition, bad.value.offset) == (name, 1, 20)
    assert not made.instant.data_files


def test_every_slice_has_the_digest_of_sparks_hash_by_both_readers_whatever_the_batches(
    reading: MakeReading, spark: SparkSession, kafka: Any, topic: Any
) -> None:
    one, two = topic(2), topic()
    records = [
        Sent(None if at % 7 == 0 else b"v" * (at % 90), None if at % 5 == 0 else b"%d" % at) for at in range(3_000)
    ]
    for name, partition in ((one, 0), (one, 1), (two, 0)):
        send(kafka.address, name, records, partition)
    first, last = slices_of(one, (1, 0, 1_000), (0, 50, 3_000)), slices_of(one, (1, 1_000, 3_000))
    slices = [*first, *slices_of(two, (0, 0, 2_999)), *last]
    expected = [sparks_result(spark, piece, records) for piece in slices]
    for reader in READERS:
        made = reading(reader, f"{one},{two}")
        for attempt in (1, 3, 9):
            assert list(made.write(one_task(*slices), attempt).results) == expected, (reader, attempt)
        assert list(made.write(tasks_for(slices)).results) == expected, reader


def sparks_result(spark: SparkSession, piece: Slice, records: Sequence[Sent]) -> SliceResult:
    """By Spark's own function, from the records as they were sent."""
    kinds = "topic string, partition int, offset long, key binary, value binary"
    some = [
        (piece.topic, piece.partition, at, records[at].key, records[at].value) for at in range(piece.start, piece.end)
    ]
    hashed = spark.createDataFrame(some, kinds).select(F.xxhash64("topic", "partition", "offset", "key", "value"))
    return SliceResult(piece, len(some), sum(row[0] for row in hashed.collect()) % 2**64)
