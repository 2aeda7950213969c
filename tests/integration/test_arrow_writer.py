"""The Arrow writer's files: names, keys, paths, rolls, markers, and the files of attempts that fail."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sinktable import OpenInstant, make_settings, produce, rows_of, slices_of, stats_of, tasks_for, tasks_of

from coordination.errors import BadRecord, ConfigError, DataLoss
from sink.schema.table_schema import parse_ddl
from sink.write.engines.engine import ArrowEngine

pytestmark = pytest.mark.integration

DDL = "id bigint, name string"


@pytest.fixture
def make_engine(spark: SparkSession, kafka: Any, tmp_path: Path):
    """Makes an engine and its settings: `make_engine(topic, ddl, partition__field__name="name")`."""

    def make(topic: str, ddl: str = DDL, **more: str) -> ArrowEngine:
        settings = make_settings(tmp_path, kafka.address, topic, ddl, **more)
        engine = ArrowEngine(spark, settings.table, settings.records, parse_ddl(ddl, settings.provenance))
        engine.check()
        return engine

    return make


@pytest.fixture
def instant(tmp_path: Path) -> OpenInstant:
    return OpenInstant(tmp_path / "table")


def records(count: int, names: int = 3) -> list[bytes]:
    return [b'{"id":%d,"name":"n%d"}' % (number, number % names) for number in range(count)]


def test_each_slice_gives_one_file_and_one_result_with_its_own_rows(make_engine, instant, kafka, topic):
    name = topic(partitions=2)
    produce(kafka.address, name, records(100), partition=0)
    produce(kafka.address, name, records(30), partition=1)
    slices = slices_of(name, (0, 0, 40), (0, 40, 100), (1, 10, 30))
    written = make_engine(name).write(instant.name, tasks_for(slices))
    assert [(result.slice, result.records) for result in written.results] == list(
        zip(slices, [40, 60, 20], strict=True)
    )
    assert sorted(stat["numWrites"] for stat in stats_of(written)) == [20, 40, 60]
    for stat in stats_of(written):
        file = instant.base / stat["path"]
        rows = pq.ParquetFile(file).read()
        offsets = rows.column("_kafka_offset").to_pylist()
        assert offsets == sorted(offsets)
        assert rows.column("id").to_pylist() == offsets
        assert stat["fileSizeInBytes"] == file.stat().st_size
        assert set(rows.column("_hoodie_file_name").to_pylist()) == {file.name}
        assert file.name.startswith(stat["fileId"])
        assert file.name.endswith(f"_{instant.name}.parquet")


def test_a_slice_without_records_has_a_result_and_no_file(make_engine, instant, kafka, topic):
    name = topic(config={"cleanup.policy": "compact"})
    produce_aborted(kafka.address, name, 20)
    produce(kafka.address, name, records(5))
    written = make_engine(name).write(instant.name, tasks_of(name, (0, 0, 10), (0, 10, 26)))
    assert [result.records for result in written.results] == [0, 5]
    assert [result.digest == 0 for result in written.results] == [True, False]
    assert len(written.stats) == 1


def produce_aborted(kafka: str, topic: str, count: int) -> None:
    """Sends `count` records in a transaction that it aborts: with the marker, `count + 1` offsets."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"aborts-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, value=b'{"id":-1}', key=b"k", partition=0)
    producer.flush()
    producer.abort_transaction(30)


def test_a_second_attempt_re_forms_the_same_rows_keys_ids_and_digest_in_other_files(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, records(500))
    engine, tasks = make_engine(name), tasks_of(name, (0, 0, 500))
    first, second = engine.write(instant.name, tasks), engine.write(instant.name, tasks)
    assert first.results == second.results
    assert first.results[0].digest > 0
    first_stat, second_stat = stats_of(first)[0], stats_of(second)[0]
    assert first_stat["fileId"] == second_stat["fileId"]
    assert first_stat["path"] != second_stat["path"]
    tables = [
        rows_of([instant.base / stat["path"]]).drop_columns(["_hoodie_file_name"]) for stat in (first_stat, second_stat)
    ]
    assert tables[0].equals(tables[1])


def test_generation_topic_id_and_start_change_the_file_id(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, records(20))
    engine = make_engine(name)
    attempts = [
        tasks_of(name, (0, 0, 20)),
        tasks_of(name, (0, 0, 20), generation=1),
        tasks_of(name, (0, 1, 20)),
    ]
    ids = {stats_of(engine.write(instant.name, attempt))[0]["fileId"] for attempt in attempts}
    assert len(ids) == 3


def test_a_bad_record_is_named_by_its_coordinates_and_its_slice_keeps_no_file(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, [*records(70), b'{"id":"x"}', *records(10), b"", *records(5)])
    with pytest.raises(BadRecord) as refusal:
        make_engine(name).write(instant.name, tasks_of(name, (0, 0, 50), (0, 50, 87)))
    assert (refusal.value.topic, refusal.value.partition, refusal.value.offset) == (name, 0, 70)
    assert "'id'" in refusal.value.reason
    # The other slice's file may stay: it has its marker, and the rollback finds it.
    assert {str(path.relative_to(instant.base)) for path in instant.data_files} <= instant.marked
    assert all(0 in rows_of([path]).column("_kafka_offset").to_pylist() for path in instant.data_files)


def test_a_tombstone_is_a_bad_record(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, [*records(3), None])
    with pytest.raises(BadRecord, match=r"offset 3: .*tombstone"):
        make_engine(name).write(instant.name, tasks_of(name, (0, 0, 4)))


def test_a_truncated_log_is_data_loss_with_the_slice_it_concerns(make_engine, instant, kafka, topic):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = topic(partitions=2)
    produce(kafka.address, name, records(100), partition=1)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_records([TopicPartition(name, 1, 60)])[TopicPartition(name, 1, 60)].result(timeout=30)
    with pytest.raises(DataLoss) as loss:
        make_engine(name).write(instant.name, tasks_of(name, (1, 40, 100)))
    assert (loss.value.topic, loss.value.partition, loss.value.offset) == (name, 1, 40)


def test_files_are_written_by_table_partition_under_hudis_paths(make_engine, instant, kafka, topic):
    name = topic()
    odd_names = ["a b", "ü", "100%", None, "_", "x" * 200]
    values = [json.dumps({"id": at % 3, "name": odd_names[at % len(odd_names)]}).encode() for at in range(60)]
    produce(kafka.address, name, values)
    engine = make_engine(name, partition__field__name="name,id")
    paths = {stat["partitionPath"] for stat in stats_of(engine.write(instant.name, tasks_of(name, (0, 0, 60))))}
    nothing = "__HIVE_DEFAULT_PARTITION__"
    assert paths == {f"name={odd_names[at % 6] or nothing}/id={at % 3}" for at in range(60)}
    for path in instant.data_files:
        rows = pq.ParquetFile(path).read()
        assert set(rows.column("_hoodie_partition_path").to_pylist()) == {str(path.parent.relative_to(instant.base))}
        assert len(set(rows.column("name").to_pylist()) - {None}) <= 1


@pytest.mark.parametrize(
    "value", ["..", "../..", ".hoodie", "a//b", "x" * 300, "a\0b", "12:00", "k:v", "a\nb", "a\x7f"]
)
def test_a_value_that_would_leave_its_directory_is_a_bad_record(make_engine, instant, kafka, topic, value):
    name = topic()
    produce(kafka.address, name, [b'{"id":1,"name":"fine"}', json.dumps({"id": 2, "name": value}).encode()])
    engine = make_engine(name, partition__field__name="name", partition__hive__style="false")
    with pytest.raises(BadRecord, match=r"offset 1: partition path"):
        engine.write(instant.name, tasks_of(name, (0, 0, 2)))


def test_rows_keep_their_order_and_none_is_lost_when_files_close_to_make_room(instant):
    """Uses the files directly, with a buffer so small that three hundred rows are written at once."""
    import numpy as np
    import pyarrow as pa

    from sink.layout.partition_paths import PartitionPaths
    from sink.storage.files import open_storage
    from sink.write.files.base_file import Attempt
    from sink.write.files.slice_files import FileLimits, SliceFiles

    attempt = Attempt("sink", "table", instant.name, "0-0-0", tasks_of("t", (0, 0, 10**6))[0])
    limits = FileLimits(file_max_bytes=1 << 30, open_files_max=3, buffer_bytes=300 * 16)
    files = SliceFiles(open_storage(str(instant.base)), attempt, limits, "zstd", meta_fields=False)
    paths, random = PartitionPaths(("p",), True, False), np.random.default_rng(1)
    for start in range(0, 3000, 300):
        codes = pa.array(random.integers(0, 10, 300))
        rows = pa.RecordBatch.from_arrays([codes, pa.array(range(start, start + 300))], names=["p", "at"])
        files.add(rows, paths.group(rows))
    stats = [json.loads(stat) for stat in files.close()]
    assert len({stat["fileId"] for stat in stats}) == len(stats) > 10
    table = rows_of([instant.base / stat["path"] for stat in stats])
    assert sorted(table.column("at").to_pylist()) == list(range(3000))
    for value in range(10):
        in_order = table.filter(pc.equal(table.column("p"), value)).column("at").to_pylist()
        assert in_order == sorted(in_order)


def test_files_roll_at_their_size_and_share_the_slice_between_them(make_engine, instant, kafka, topic):
    from random import Random

    name, random = topic(), Random(3)
    values = [b'{"id":%d,"name":"%s"}' % (at, random.randbytes(60).hex().encode()) for at in range(40_000)]
    produce(kafka.address, name, values)
    stats = stats_of(make_engine(name, file__max__bytes="1048576").write(instant.name, tasks_of(name, (0, 0, 40_000))))
    assert len(stats) >= 2
    assert len({stat["fileId"] for stat in stats}) == len(stats)
    assert max(stat["fileSizeInBytes"] for stat in stats) < 4 << 20
    offsets = rows_of([instant.base / stat["path"] for stat in stats]).column("_kafka_offset").to_pylist()
    assert offsets == list(range(40_000))


def test_a_slice_that_rolls_gives_the_same_files_whatever_the_batches(make_engine, instant, kafka, topic):
    from random import Random

    name, random = topic(), Random(3)
    values = [b'{"id":%d,"name":"%s"}' % (at, random.randbytes(60).hex().encode()) for at in range(40_000)]
    produce(kafka.address, name, values)
    engine, files_of_attempts = make_engine(name, file__max__bytes="1048576"), []
    for attempt in (1, 4, 9):
        stats = stats_of(engine.write(instant.name, tasks_of(name, (0, 0, 40_000)), attempt=attempt))
        files_of_attempts.append([(stat["fileId"], stat["numWrites"]) for stat in stats])
    assert len(files_of_attempts[0]) > 2
    assert files_of_attempts[1:] == files_of_attempts[:1] * 2


def test_every_file_has_its_marker(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, records(30))
    stats = stats_of(make_engine(name, partition__field__name="name").write(instant.name, tasks_of(name, (0, 0, 30))))
    marker_directory = instant.base / ".hoodie" / ".temp" / instant.name
    assert [str(path.relative_to(marker_directory)) for path in instant.markers] == sorted(
        f"{stat['path']}.marker.CREATE" for stat in stats
    )


def test_a_task_whose_instant_was_rolled_back_gives_up_and_keeps_nothing(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, records(10))
    instant.inflight.unlink()
    with pytest.raises(Exception, match="rolled back"):
        make_engine(name).write(instant.name, tasks_of(name, (0, 0, 10)))
    assert not instant.data_files


def test_a_task_whose_instant_was_completed_gives_up_and_keeps_nothing(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, records(10))
    instant.complete()
    with pytest.raises(Exception, match="already completed"):
        make_engine(name).write(instant.name, tasks_of(name, (0, 0, 10)))
    assert not instant.data_files


@pytest.mark.parametrize("gone", ["inflight", "marker"])
def test_a_file_closed_after_the_end_of_its_instant_is_not_reported(instant, gone):
    import pyarrow as pa

    from sink.storage.files import open_storage
    from sink.write.files.base_file import Abandoned, Attempt, BaseFile, InstantGuard
    from sink.write.files.parquet_layout import choose_layout

    storage = open_storage(str(instant.base))
    attempt = Attempt("sink", "table", instant.name, "0-0-0", tasks_of("t", (0, 0, 9))[0])
    file = BaseFile(storage, InstantGuard(storage, instant.name), attempt, "", 0)
    rows = pa.table({"id": [1, 2]})
    file.open(choose_layout(rows, (), ()), "zstd")
    file.write(rows)
    (instant.inflight if gone == "inflight" else instant.markers[0]).unlink()
    with pytest.raises(Abandoned):
        file.close()
    file.discard()
    assert not instant.data_files


def test_records_of_ten_megabytes_are_written(make_engine, instant, kafka, topic):
    name = topic(config={"max.message.bytes": "20000000"})
    long = "x" * 10_000_000
    produce(kafka.address, name, [json.dumps({"id": at, "name": long}).encode() for at in range(12)])
    written = make_engine(name).write(instant.name, tasks_of(name, (0, 0, 12)))
    assert written.results[0].records == 12
    names = rows_of(instant.data_files).column("name")
    assert pc.all(pc.equal(pc.binary_length(names), len(long))).as_py()


def test_without_meta_fields_and_provenance_only_the_values_are_there(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, records(5))
    engine = make_engine(
        name, provenance__columns="false", hoodie__populate__meta__fields="false", record__key__fields="id"
    )
    engine.write(instant.name, tasks_of(name, (0, 0, 5)))
    assert rows_of(instant.data_files).schema.names == ["id", "name"]


def test_few_values_get_a_dictionary_many_do_not_and_all_is_zstd(make_engine, instant, kafka, topic):
    name = topic()
    produce(kafka.address, name, [b'{"id":%d,"name":"n%d"}' % (at * 7919, at % 3) for at in range(3000)])
    make_engine(name).write(instant.name, tasks_of(name, (0, 0, 3000)))
    group = pq.ParquetFile(instant.data_files[0]).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    coded = {name for name, column in columns.items() if any("DICTIONARY" in encoding for encoding in column.encodings)}
    constant = {
        "_hoodie_commit_time",
        "_hoodie_partition_path",
        "_hoodie_file_name",
        "_kafka_topic",
        "_kafka_partition",
    }
    assert coded == constant | {"name"}
    assert {column.compression for column in columns.values()} == {"ZSTD"}


@pytest.mark.parametrize(
    ("setting", "value", "error_text"),
    [
        ("record__key__fields", "amount", "'amount' has type double"),
        ("record__key__fields", "nobody", "no column 'nobody'"),
        ("partition__field__name", "amount", "'amount' has type double"),
        ("target__base__path", "ftp://host/table", "write.engine=hudi"),
    ],
)
def test_settings_that_the_engine_cannot_serve_are_refused_in_one_sentence(
    make_engine, topic, setting, value, error_text
):
    with pytest.raises(ConfigError) as refusal:
        make_engine(topic(), "id bigint, amount double", **{setting: value})
    assert error_text in str(refusal.value)


@pytest.mark.parametrize("value", ['{"id":null,"name":"a"}', '{"name":"a"}', '{"id":1,"name":""}', '{"id":1}'])
def test_a_record_without_a_key_is_a_bad_record(make_engine, instant, kafka, topic, value):
    name = topic()
    produce(kafka.address, name, [*records(4), value.encode()])
    field = "name" if '"id":1' in value else "id"
    with pytest.raises(BadRecord, match=f"offset 4: record key column '{field}'"):
        make_engine(name, record__key__fields=field).write(instant.name, tasks_of(name, (0, 0, 5)))


def test_the_jobs_of_a_write_are_grouped_by_sink_and_instant(make_engine, instant, kafka, topic, spark):
    """Two tables of one process may have the same instant: cancelling by the instant alone would end both writes."""
    name = topic()
    produce(kafka.address, name, records(4))
    engine = make_engine(name)
    engine.write(instant.name, tasks_of(name, (0, 0, 4)))
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == f"{engine._table.sink}: {instant.name}"


def test_a_cancelled_write_ends_and_what_it_left_has_markers(make_engine, instant, kafka, topic):
    name = topic(partitions=2)
    for partition in range(2):
        produce(kafka.address, name, records(200_000), partition)
    engine, outcome = make_engine(name, partition__field__name="name"), []

    def write() -> None:
        try:
            outcome.append(engine.write(instant.name, tasks_of(name, (0, 0, 200_000), (1, 0, 200_000))))
        except Exception as error:  # noqa: BLE001 - the assertion below checks its type
            outcome.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    while writing.is_alive():
        engine.cancel(instant.name)
        writing.join(0.2)
    assert isinstance(outcome[0], (Py4JJavaError, PySparkException))
    assert (engine._inputs.memory.task_bytes(), engine._inputs.memory.tasks) == (32 << 20, 2)
    assert {str(path.relative_to(instant.base)) for path in instant.data_files} <= instant.marked


@pytest.mark.parametrize("directory_name", ["with blank", "ümläut", "per%20cent", "hash#mark", "a=b,c"])
def test_a_table_path_may_have_odd_characters(spark, kafka, topic, tmp_path, directory_name):
    name = topic()
    produce(kafka.address, name, records(3))
    base = tmp_path / directory_name
    base.mkdir()
    settings = make_settings(base, kafka.address, name, DDL)
    instant = OpenInstant(base / "table")
    ArrowEngine(spark, settings.table, settings.records, parse_ddl(DDL)).write(instant.name, tasks_of(name, (0, 0, 3)))
    assert len(rows_of(instant.data_files)) == 3
