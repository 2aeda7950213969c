"""Tables partitioned by time, and into thousands of partitions: paths, readers, Spark SQL, memory, open files."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from coordination.errors import ConfigError, TableError
from sink.audit.audit import audit
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table, TableOutcome
from sink.layout.partition_times import PRESETS, PartitionTime
from sink.write.files.slice_files import METAFILE
from sink.write.rows.row_spec import table_schema
from tests.integration.landing_kit import Landing
from tests.integration.sinktable import make_settings, produce, stats_of, tasks_of
from tests.integration.table_kit import SINK, allow, checkpoint, connected
from tests.processes import peak_megabytes, python_workers
from tests.reports import case_kit

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = "id bigint, kind string, note string, at timestamp, day_of date, ms bigint"
ZONE = "America/New_York"


def event(number: int) -> dict[str, Any]:
    """Returns an event. Events are five hours apart from the end of summer time on; every tenth has no time."""
    second = 1_730_595_600 + number * 18_000 - 100_000_000 * (number % 7 == 3)
    moment = datetime.fromtimestamp(second, timezone.utc)
    if number % 10 == 9:
        return {"id": number, "kind": "none"}
    return {
        "id": number,
        "kind": ("buy", "view", None)[number % 3],
        "at": f"{moment:%Y-%m-%dT%H:%M:%S}.123456Z",
        "day_of": f"{moment:%Y-%m-%d}",
        "ms": second * 1000 - 1,
    }


MakeLanding = Callable[..., Landing]


@pytest.fixture
def make_landing(spark: SparkSession, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[MakeLanding]:
    with connected(zookeeper.address) as client:

        def make(directory: str = "one", ddl: str = DDL, **more: str) -> Landing:
            (tmp_path / directory).mkdir()
            # Column statistics take Hudi 0.1 s for every partition of a commit, and these tests do not use them.
            more = {"hoodie__metadata__index__column__stats__enable": "false", **more}
            more = {"zookeeper__connect": zookeeper.address, **more}
            return Landing(spark, make_settings(tmp_path / directory, kafka.address, name, ddl, **more), client)

        make.topic = name = topic()  # type: ignore[attr-defined]
        yield make


def hudis_generator(spark: SparkSession, **options: str) -> Callable[[int], str]:
    """Returns Hudi's own function from milliseconds since 1970 to a partition path."""
    hudi = spark.sparkContext._jvm.org.apache.hudi
    properties = hudi.common.config.TypedProperties()
    properties.setProperty("hoodie.datasource.write.recordkey.field", "id")
    properties.setProperty("hoodie.datasource.write.partitionpath.field", "ms")
    properties.setProperty("hoodie.keygen.timebased.timestamp.type", "EPOCHMILLISECONDS")
    for key, value in options.items():
        properties.setProperty(f"hoodie.keygen.timebased.{key.replace('__', '.')}", value)
    generator = hudi.keygen.TimestampBasedAvroKeyGenerator(properties)
    return lambda ms: str(generator.getPartitionPath(ms))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", ZONE, "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize("pattern", [PRESETS["hourly"][1], "yyyy/MM/dd", "'year'=YYYY/'month'=MM"])
def test_texts_are_those_of_hudis_generator_for_times(spark: SparkSession, zone: str, pattern: str) -> None:
    rng = random.Random(pattern + zone)
    values = [0, -1, -3_600_000, 1_711_846_799_999, 1_711_846_800_000, 1_729_994_400_000, -1_700_000_000_000]
    values += [rng.randrange(-62_000_000_000_000, 200_000_000_000_000) for _ in range(150)]
    values += [rng.randrange(-2_000_000_000_000, 2_000_000_000_000) for _ in range(150)]
    values += [1_729_994_400_000 + step * 600_000 for step in range(-12, 12)]
    by_hudi = hudis_generator(spark, output__dateformat=pattern, timezone=zone)
    texts = PartitionTime("ms", pattern, zone, unit="ms").texts(pa.array(values)).to_pylist()
    assert texts == [by_hudi(value) for value in values]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", ZONE, "Africa/Casablanca", "America/Sao_Paulo"])
def test_texts_are_those_of_sparks_date_format_in_that_zone(spark: SparkSession, zone: str) -> None:
    frame = spark.range(20_000).withColumn("us", F.expr("cast((rand(7) - 0.25) * 5e15 as bigint)"))
    in_zone = F.from_utc_timestamp(F.expr("timestamp_micros(us)"), zone)
    rows = frame.withColumn("text", F.date_format(in_zone, "yyyy-MM-dd-HH")).toPandas()
    texts = PartitionTime("us", "hourly", zone, unit="us").texts(pa.array(rows["us"].to_numpy()))
    assert texts.to_pylist() == rows["text"].tolist()


TIMES = [
    {"partition__time__field": "at", "partition__time__format": "hourly", "partition__time__zone": ZONE},
    {"partition__time__field": "at", "partition__time__format": "yyyy/MM/dd", "partition__hive__style": "false"},
    {"partition__time__field": "day_of", "partition__time__format": "monthly", "partition__field__name": "kind"},
    {
        "partition__time__field": "ms",
        "time__unit": "ms=ms",
        "partition__time__column": "when",
        "partition__hive__style": "false",
    },
    {"partition__time__field": "_kafka_timestamp", "partition__time__format": "yyyy/MM", "record__key__fields": "id"},
]


def expected_texts(landing: Landing, count: int) -> dict[int, str | None]:
    """Returns the partition text of each id, as Spark computes it from the declared columns."""
    field, pattern = landing.settings.partition_time_field, landing.settings.partition_time_format
    zone, pattern = landing.settings.partition_time_zone, PRESETS.get(pattern, ("", pattern))[1]
    value = {"ms": "timestamp_millis(ms)"}.get(field, field)
    moment = F.expr(value) if field == "day_of" else F.from_utc_timestamp(F.expr(value), zone)
    rows = landing.read().select("id", F.date_format(moment, pattern).alias("text")).collect()
    assert len(rows) == count
    return {row["id"]: row["text"] for row in rows}


READ, FIRST, ALL, KEPT = 12, 24, 32, 20
"""Counts: events that every reader reads; where rows are changed, events of the first transaction, of both, and first
rows that no DELETE removes. An event is a partition or two."""
THOROUGH = pytest.mark.thorough
CASES = [
    pytest.param("arrow", TIMES[0], id="arrow-hourly"),
    pytest.param("hudi", TIMES[1], id="hudi-days", marks=THOROUGH),
]
CASES += [pytest.param("arrow", TIMES[index], id=f"arrow-{index}", marks=THOROUGH) for index in (1, 2, 3, 4)]


@pytest.mark.parametrize(("engine", "more"), CASES)
def test_a_table_partitioned_by_time_is_read_and_pruned_like_any_other(
    make_landing, kafka, engine: str, more: dict[str, str]
) -> None:
    produce(kafka.address, make_landing.topic, [json.dumps(event(number)).encode() for number in range(READ)])
    landing = make_landing(write__engine=engine, **more)
    column = landing.schema.generated[0]
    landing.land(1, make_landing.topic, 0, READ)
    expected = expected_texts(landing, READ)
    events = {number: event(number) for number in range(READ)}
    for metadata in (True, False):
        rows = landing.read(metadata).collect()
        assert {row["id"]: row[column] for row in rows} == expected
        assert {row["id"]: row["ms"] for row in rows} == {id_: row.get("ms") for id_, row in events.items()}
        assert {row["id"]: None if row["day_of"] is None else str(row["day_of"]) for row in rows} == {
            id_: row.get("day_of") for id_, row in events.items()
        }
        for text in (expected[0], None) if metadata else ():
            is_text = F.col(column).isNull() if text is None else F.col(column) == text
            assert landing.read(metadata).where(is_text).count() == list(expected.values()).count(text)
        middle_text = sorted(filter(None, expected.values()))[READ // 2]
        later_count = sum(text is not None and text > middle_text for text in expected.values())
        assert landing.read(metadata).where(F.col(column) > middle_text).count() == later_count
        assert landing.read(metadata).where("at >= timestamp'2024-11-05 00:00:00'").count() == sum(
            row.get("at", "") >= "2024-11-05" for row in events.values()
        )
    rust_rows = pa.Table.from_batches(
        HudiTableBuilder.from_base_uri(Path(landing.settings.base_path).as_uri()).build().read()
    )
    assert dict(zip(rust_rows.column("id").to_pylist(), rust_rows.column(column).to_pylist(), strict=True)) == expected
    paths = {row["id"]: row["_hoodie_partition_path"] for row in landing.read().collect()}
    hive_prefix = f"{column}=" if landing.settings.hive_style else ""
    for id_, path in paths.items():
        assert path.endswith(hive_prefix + (expected[id_] or "__HIVE_DEFAULT_PARTITION__"))


@pytest.mark.parametrize("names", ["with", pytest.param("without", marks=pytest.mark.thorough)])
def test_a_partition_value_that_is_not_refused_is_the_same_to_every_reader(make_landing, kafka, names: str) -> None:
    case = case_kit.Case(case_kit.CASES / f"partition-values-{names}-names")
    expected = {row["id"]: row["p"] for row in case.expected["rows"]}
    good = [record["value"] for record in case.records() if json.loads(record["value"])["id"] in expected]
    landing = make_landing(
        names, "id int, p string", partition__field__name="p", partition__hive__style=str(names == "with").lower()
    )
    produce(kafka.address, make_landing.topic, [value.encode() for value in good])
    landing.land(1, make_landing.topic, 0, len(good))
    for metadata in (True, False):
        assert {row["id"]: row["p"] for row in landing.read(metadata).collect()} == expected
    for id_, value in expected.items() if names == "with" else ():
        is_value = F.col("p").isNull() if value is None else F.col("p") == value
        assert [row["id"] for row in landing.read().where(is_value).collect()] == [id_]
    rust_rows = HudiTableBuilder.from_base_uri(Path(landing.settings.base_path).as_uri()).build().read()
    assert {row["id"]: row["p"] for batch in rust_rows for row in batch.to_pylist()} == expected
    assert audit(landing.settings.base_path, SINK).rows == len(expected)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["arrow", "hudi"])
def test_a_table_partitioned_by_time_is_changed_by_spark_sql_like_any_other(make_landing, kafka, engine: str) -> None:
    produce(kafka.address, make_landing.topic, [json.dumps(event(number)).encode() for number in range(ALL)])
    landing = make_landing(write__engine=engine, **(TIMES[0] if engine == "arrow" else TIMES[1]))
    landing.land(1, make_landing.topic, 0, FIRST)
    spark, column, name = landing.spark, landing.schema.generated[0], f"times_{make_landing.topic}"
    spark.sql(f"create table {name} using hudi location '{landing.settings.base_path}'")
    spark.sql(f"update {name} set note = 'new' where id < 5")
    spark.sql(f"delete from {name} where id >= {KEPT}")
    spark.sql(f"call run_clustering(path => '{landing.settings.base_path}')").collect()
    landing.land(2, make_landing.topic, FIRST, ALL)
    for metadata in (True, False):
        notes = {row["id"]: row["note"] for row in landing.read(metadata).select("id", "note").collect()}
        assert sorted(notes) == [*range(KEPT), *range(FIRST, ALL)]
        assert {id_ for id_, note in notes.items() if note == "new"} == set(range(5))
    assert {row["id"]: row[column] for row in landing.read().collect()} == expected_texts(landing, KEPT + ALL - FIRST)
    spark.sql(f"drop table {name}")


def test_both_engines_make_the_same_paths_and_keys(make_landing, kafka) -> None:
    produce(kafka.address, make_landing.topic, [json.dumps(event(number)).encode() for number in range(60)])
    more = {"partition__time__field": "at", "partition__field__name": "kind", "record__key__fields": "id"}
    generated_columns = ("id", "_hoodie_record_key", "_hoodie_partition_path", "day")
    rows_by_engine = []
    for engine in ("arrow", "hudi"):
        landing = make_landing(engine, write__engine=engine, **more)
        landing.land(1, make_landing.topic, 0, 60)
        rows_by_engine.append(sorted(map(tuple, landing.read().select(*generated_columns).collect())))
    assert rows_by_engine[0] == rows_by_engine[1]
    assert len({path for _, _, path, _ in rows_by_engine[0]}) > 5


def test_hudis_own_partitions_by_time_make_spark_lose_rows_which_is_why_there_is_a_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 40, 1, 1).selectExpr("id", "timestamp_micros(1700000000123456 + id * 25200000000) at")
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "at:timestamp",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true",
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMICROSECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
        "hoodie.metadata.enable": "false",
    }
    frame.write.format("hudi").options(**options).save(str(tmp_path / "t"))
    condition = "at >= timestamp'2023-11-17 05:00:00'"
    assert frame.where(condition).count() == 32
    assert spark.read.format("hudi").load(str(tmp_path / "t")).where(condition).count() < 32


@pytest.mark.parametrize(
    ("more", "error_text"),
    [
        ({"partition__time__field": "never"}, "partition.time.field: no column 'never'"),
        ({"partition__time__field": "day_of", "partition__time__format": "hourly"}, "column 'day_of' is date"),
        ({"partition__time__field": "at", "partition__time__column": "Kind"}, "'Kind' is the name of another column"),
        ({"partition__time__field": "at", "partition__time__format": "HH:mm"}, "has a colon in it"),
        (
            {
                "partition__time__field": "at",
                "partition__time__format": "yyyy/MM",
                "partition__field__name": "kind",
                "partition__hive__style": "false",
            },
            "has a slash",
        ),
    ],
)
def test_a_time_that_cannot_partition_the_table_is_refused(make_landing, more: dict[str, str], error_text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        make_landing(**more)
    assert error_text in str(refusal.value)


def test_a_table_that_is_not_partitioned_by_this_time_is_refused(make_landing, spark, zookeeper_client) -> None:
    landing = make_landing(partition__time__field="at")
    hourly = landing.settings.model_copy(update={"partition_time_format": "hourly"})
    with pytest.raises(TableError, match=r"partition columns: day. The settings ask for hour"):
        Table(
            spark,
            hourly.table,
            table_schema(hourly.table, hourly.records),
            TableLocks(zookeeper_client, hourly.table.lock),
        ).ensure()


PARTITION_COUNT = 5_000
ROWS_PER_PARTITION = 20


class OpenFilesWatch:
    """Samples Spark's Python workers: `most` is the most data files of a table that one held open at once."""

    def __init__(self, base_path: str) -> None:
        self.most = self.looks = 0
        self._base = base_path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> OpenFilesWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            for pid in python_workers():
                try:
                    open_files = psutil.Process(pid).open_files()
                except psutil.Error:
                    continue
                self.looks += 1
                self.most = max(self.most, sum(file.path.startswith(self._base) for file in open_files))


@pytest.mark.thorough
def test_a_slice_into_five_thousand_partitions_is_committed_with_few_open_files_and_bounded_memory(
    make_landing, kafka, spark: SparkSession
) -> None:
    assert spark.conf.get("spark.driver.memory") == "1g"
    rng = random.Random(5)
    partition_numbers = [number % PARTITION_COUNT for number in range(PARTITION_COUNT * ROWS_PER_PARTITION)]
    rng.shuffle(partition_numbers)
    values = [
        b'{"id":%d,"kind":"k%d"}' % (number, partition_number)
        for number, partition_number in enumerate(partition_numbers)
    ]
    produce(kafka.address, make_landing.topic, values)
    # docs/how-to/partitioning.md asks for this setting with so many partitions.
    no_statistics = {"hoodie__metadata__index__column__stats__enable": "false"}
    landing = make_landing(partition__field__name="kind", file__open__max="16", **no_statistics)
    instant, started_at = landing.table.begin(1, 1), time.monotonic()
    with OpenFilesWatch(landing.settings.base_path) as watch:
        written = landing.engine.write(instant, tasks_of(make_landing.topic, (0, 0, len(values))))
    written_at, memory = time.monotonic(), max(map(peak_megabytes, python_workers()))
    # The tasks have written Hudi's partition metafiles: the coordinator would take minutes for them.
    metafiles = list(Path(landing.settings.base_path).glob(f"*/{METAFILE}"))
    hudi = landing.table._hudi
    partition_metadata = hudi.java.common.model.HoodiePartitionMetadata(hudi.storage(), hudi.path("kind=k4711"))
    partition_metadata.readFromFS()
    assert (len(metafiles), partition_metadata.getPartitionDepth()) == (PARTITION_COUNT, 1)
    assert landing.table.complete(instant, written.stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    completed_at = time.monotonic()
    write_seconds, complete_seconds = written_at - started_at, completed_at - written_at
    print(f"write {write_seconds:.1f} s, complete {complete_seconds:.1f} s, {memory} MB, {watch.most} files open")
    stats = stats_of(written)
    assert len(stats) == len({stat["fileId"] for stat in stats}) == PARTITION_COUNT
    assert {stat["numWrites"] for stat in stats} == {ROWS_PER_PARTITION}
    assert 0 < watch.most <= 16 + 1
    assert memory < 500
    misplaced = F.count_if(F.col("_hoodie_partition_path") != F.concat(F.lit("kind="), "kind"))
    totals = landing.read().agg(F.count("id"), F.count_distinct("id"), F.sum("id"), misplaced).first()
    assert tuple(totals) == (len(values), len(values), sum(range(len(values))), 0)
    for metadata in (True, False):
        assert landing.read(metadata).where("kind = 'k4711'").count() == ROWS_PER_PARTITION
