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
from sink.hudi import Table, TableOutcome
from sink.hudi.lock import TableLocks
from sink.layout.partition_times import PRESETS, PartitionTime
from sink.write.row_spec import table_schema
from sink.write.slice_files import METAFILE
from tests.integration.landing_kit import Landing
from tests.integration.sinktable import make_settings, produce, stats_of, tasks_of
from tests.integration.table_kit import allow, checkpoint, connected
from tests.processes import peak_megabytes, python_workers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = "id bigint, kind string, note string, at timestamp, day_of date, ms bigint"
ZONE = "America/New_York"


def event(number: int) -> dict[str, Any]:
    """Five hours apart, from the night in which summer time ends; each tenth without a time."""
    second = 1_730_595_600 + number * 18_000 - 100_000_000 * (number % 7 == 3)
    at = datetime.fromtimestamp(second, timezone.utc)
    if number % 10 == 9:
        return {"id": number, "kind": "none"}
    return {
        "id": number,
        "kind": ("buy", "view", None)[number % 3],
        "at": f"{at:%Y-%m-%dT%H:%M:%S}.123456Z",
        "day_of": f"{at:%Y-%m-%d}",
        "ms": second * 1000 - 1,
    }


MakeLanding = Callable[..., Landing]


@pytest.fixture
def landing(spark: SparkSession, kafka, zookeeper, topic, tmp_path: Path) -> Iterator[MakeLanding]:
    with connected(zookeeper.address) as client:

        def make(place: str = "one", ddl: str = DDL, **more: str) -> Landing:
            (tmp_path / place).mkdir()
            # It takes Hudi a tenth of a second for every partition of a commit, and is not what these tests are about.
            more = {"hoodie__metadata__index__column__stats__enable": "false", **more}
            more = {"zookeeper__connect": zookeeper.address, **more}
            return Landing(spark, make_settings(tmp_path / place, kafka.address, name, ddl, **more), client)

        make.topic = name = topic()  # type: ignore[attr-defined]
        yield make


def hudis_generator(spark: SparkSession, **how: str) -> Callable[[int], str]:
    """Hudi's own text for milliseconds since 1970."""
    hudi = spark.sparkContext._jvm.org.apache.hudi
    properties = hudi.common.config.TypedProperties()
    properties.setProperty("hoodie.datasource.write.recordkey.field", "id")
    properties.setProperty("hoodie.datasource.write.partitionpath.field", "ms")
    properties.setProperty("hoodie.keygen.timebased.timestamp.type", "EPOCHMILLISECONDS")
    for key, value in how.items():
        properties.setProperty(f"hoodie.keygen.timebased.{key.replace('__', '.')}", value)
    generator = hudi.keygen.TimestampBasedAvroKeyGenerator(properties)
    return lambda ms: str(generator.getPartitionPath(ms))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", ZONE, "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize("pattern", [PRESETS["hourly"][1], "yyyy/MM/dd", "'year'=YYYY/'month'=MM"])
def test_texts_are_those_of_hudis_generator_for_times(spark: SparkSession, zone: str, pattern: str) -> None:
    chosen = random.Random(pattern + zone)
    values = [0, -1, -3_600_000, 1_711_846_799_999, 1_711_846_800_000, 1_729_994_400_000, -1_700_000_000_000]
    values += [chosen.randrange(-62_000_000_000_000, 200_000_000_000_000) for _ in range(150)]
    values += [chosen.randrange(-2_000_000_000_000, 2_000_000_000_000) for _ in range(150)]
    values += [1_729_994_400_000 + at * 600_000 for at in range(-12, 12)]
    by_hudi = hudis_generator(spark, output__dateformat=pattern, timezone=zone)
    found = PartitionTime("ms", pattern, zone).texts(pa.array(values)).to_pylist()
    assert found == [by_hudi(value) for value in values]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", ZONE, "Africa/Casablanca", "America/Sao_Paulo"])
def test_texts_are_those_of_sparks_date_format_in_that_zone(spark: SparkSession, zone: str) -> None:
    frame = spark.range(20_000).withColumn("us", F.expr("cast((rand(7) - 0.25) * 5e15 as bigint)"))
    in_zone = F.from_utc_timestamp(F.expr("timestamp_micros(us)"), zone)
    rows = frame.withColumn("text", F.date_format(in_zone, "yyyy-MM-dd-HH")).toPandas()
    found = PartitionTime("us", "hourly", zone, unit="us").texts(pa.array(rows["us"].to_numpy()))
    assert found.to_pylist() == rows["text"].tolist()


TIMES = [
    {"partition__time__field": "at", "partition__time__format": "hourly", "partition__time__zone": ZONE},
    {"partition__time__field": "at", "partition__time__format": "yyyy/MM/dd", "partition__hive__style": "false"},
    {"partition__time__field": "day_of", "partition__time__format": "monthly", "partition__field__name": "kind"},
    {"partition__time__field": "ms", "partition__time__column": "when", "partition__hive__style": "false"},
    {"partition__time__field": "_kafka_timestamp", "partition__time__format": "yyyy/MM", "record__key__fields": "id"},
]


def expected_texts(landing: Landing, count: int) -> dict[int, str | None]:
    """By id, as Spark computes them from the columns that were declared."""
    field, pattern = landing.settings.partition_time_field, landing.settings.partition_time_format
    zone, pattern = landing.settings.partition_time_zone, PRESETS.get(pattern, ("", pattern))[1]
    value = {"ms": "timestamp_millis(ms)"}.get(field, field)
    when = F.expr(value) if field == "day_of" else F.from_utc_timestamp(F.expr(value), zone)
    found = landing.read().select("id", F.date_format(when, pattern).alias("text")).collect()
    assert len(found) == count
    return {row["id"]: row["text"] for row in found}


FIRST, ALL, KEPT = 24, 32, 20
"""Events of a first transaction and of both, and rows of the first that are not deleted. Each is a partition or two."""
MORE = pytest.mark.thorough
CASES = [pytest.param("arrow", TIMES[0], id="arrow-hourly"), pytest.param("hudi", TIMES[1], id="hudi-days", marks=MORE)]
CASES += [pytest.param("arrow", TIMES[at], id=f"arrow-{at}", marks=MORE) for at in (1, 2, 3, 4)]


@pytest.mark.parametrize(("engine", "more"), CASES)
def test_a_table_partitioned_by_time_is_read_and_pruned_like_any_other(
    landing, kafka, engine: str, more: dict[str, str]
) -> None:
    produce(kafka.address, landing.topic, [json.dumps(event(number)).encode() for number in range(ALL)])
    one = landing(write__engine=engine, **more)
    column = one.schema.generated[0]
    one.land(1, landing.topic, 0, FIRST)
    expected = expected_texts(one, FIRST)
    values = {number: event(number) for number in range(FIRST)}
    for metadata in (True, False):
        rows = one.read(metadata).collect()
        assert {row["id"]: row[column] for row in rows} == expected
        assert {row["id"]: row["ms"] for row in rows} == {id_: row.get("ms") for id_, row in values.items()}
        assert {row["id"]: None if row["day_of"] is None else str(row["day_of"]) for row in rows} == {
            id_: row.get("day_of") for id_, row in values.items()
        }
        for text in (expected[0], None) if metadata else ():
            same = F.col(column).isNull() if text is None else F.col(column) == text
            assert one.read(metadata).where(same).count() == list(expected.values()).count(text)
        middle = sorted(filter(None, expected.values()))[FIRST // 2]
        later = sum(text is not None and text > middle for text in expected.values())
        assert one.read(metadata).where(F.col(column) > middle).count() == later
        assert one.read(metadata).where("at >= timestamp'2024-11-05 00:00:00'").count() == sum(
            row.get("at", "") >= "2024-11-05" for row in values.values()
        )
    rust = pa.Table.from_batches(HudiTableBuilder.from_base_uri(Path(one.settings.base_path).as_uri()).build().read())
    assert dict(zip(rust.column("id").to_pylist(), rust.column(column).to_pylist(), strict=True)) == expected
    paths = {row["id"]: row["_hoodie_partition_path"] for row in one.read().collect()}
    hive = f"{column}=" if one.settings.hive_style else ""
    for id_, path in paths.items():
        assert path.endswith(hive + (expected[id_] or "__HIVE_DEFAULT_PARTITION__"))


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["arrow", "hudi"])
def test_a_table_partitioned_by_time_is_changed_by_spark_sql_like_any_other(landing, kafka, engine: str) -> None:
    produce(kafka.address, landing.topic, [json.dumps(event(number)).encode() for number in range(ALL)])
    one = landing(write__engine=engine, **(TIMES[0] if engine == "arrow" else TIMES[1]))
    one.land(1, landing.topic, 0, FIRST)
    spark, column, name = one.spark, one.schema.generated[0], f"times_{landing.topic}"
    spark.sql(f"create table {name} using hudi location '{one.settings.base_path}'")
    spark.sql(f"update {name} set note = 'new' where id < 5")
    spark.sql(f"delete from {name} where id >= {KEPT}")
    spark.sql(f"call run_clustering(path => '{one.settings.base_path}')").collect()
    one.land(2, landing.topic, FIRST, ALL)
    for metadata in (True, False):
        found = {row["id"]: row["note"] for row in one.read(metadata).select("id", "note").collect()}
        assert sorted(found) == [*range(KEPT), *range(FIRST, ALL)]
        assert {id_ for id_, note in found.items() if note == "new"} == set(range(5))
    assert {row["id"]: row[column] for row in one.read().collect()} == expected_texts(one, KEPT + ALL - FIRST)
    spark.sql(f"drop table {name}")


def test_both_engines_make_the_same_paths_and_keys(landing, kafka) -> None:
    produce(kafka.address, landing.topic, [json.dumps(event(number)).encode() for number in range(60)])
    more = {"partition__time__field": "at", "partition__field__name": "kind", "record__key__fields": "id"}
    made = ("id", "_hoodie_record_key", "_hoodie_partition_path", "day")
    found = []
    for engine in ("arrow", "hudi"):
        one = landing(engine, write__engine=engine, **more)
        one.land(1, landing.topic, 0, 60)
        found.append(sorted(map(tuple, one.read().select(*made).collect())))
    assert found[0] == found[1]
    assert len({path for _, _, path, _ in found[0]}) > 5


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
    since = "at >= timestamp'2023-11-17 05:00:00'"
    assert frame.where(since).count() == 32
    assert spark.read.format("hudi").load(str(tmp_path / "t")).where(since).count() < 32


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"partition__time__field": "kind"}, "partition.time.field: column 'kind' has type string"),
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
def test_a_time_that_cannot_partition_the_table_is_refused(landing, more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        landing(**more)
    assert said in str(refusal.value)


def test_a_table_that_is_not_partitioned_by_this_time_is_refused(landing, spark, tmp_path: Path) -> None:
    one = landing(partition__time__field="at")
    given = one.settings.model_copy(update={"partition_time_format": "hourly"})
    with pytest.raises(TableError, match=r"partition columns: day; the settings ask for hour"):
        Table(spark, given, table_schema(given), TableLocks(None, given)).ensure()  # type: ignore[arg-type]


MANY = 5_000
EACH = 20


class Watch:
    """The most data files of a table that any Python worker of Spark held open at once, looked at all the time."""

    def __init__(self, base: str) -> None:
        self.most = self.looks = 0
        self._base = base
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            for pid in python_workers():
                try:
                    held = psutil.Process(pid).open_files()
                except psutil.Error:
                    continue
                self.looks += 1
                self.most = max(self.most, sum(file.path.startswith(self._base) for file in held))


@pytest.mark.thorough
def test_a_slice_into_five_thousand_partitions_is_committed_with_few_open_files_and_bounded_memory(
    landing, kafka, spark: SparkSession
) -> None:
    assert spark.conf.get("spark.driver.memory") == "1g"
    chosen = random.Random(5)
    places = [number % MANY for number in range(MANY * EACH)]
    chosen.shuffle(places)
    values = [b'{"id":%d,"kind":"k%d"}' % (number, place) for number, place in enumerate(places)]
    produce(kafka.address, landing.topic, values)
    # As docs/how-to/partitioning.md has it for so many partitions.
    no_statistics = {"hoodie__metadata__index__column__stats__enable": "false"}
    one = landing(partition__field__name="kind", file__open__max="16", **no_statistics)
    instant, started = one.table.begin(1, 1), time.monotonic()
    with Watch(one.settings.base_path) as watch:
        written = one.engine.write(instant, tasks_of(landing.topic, (0, 0, len(values))))
    wrote, memory = time.monotonic(), max(map(peak_megabytes, python_workers()))
    # The tasks have written what Hudi knows partitions by: the coordinator would take minutes for it.
    metafiles = list(Path(one.settings.base_path).glob(f"*/{METAFILE}"))
    hudi = one.table._hudi
    kept = hudi.java.common.model.HoodiePartitionMetadata(hudi.storage(), hudi.path("kind=k4711"))
    kept.readFromFS()
    assert (len(metafiles), kept.getPartitionDepth()) == (MANY, 1)
    assert one.table.complete(instant, written.stats, checkpoint(1), allow) is TableOutcome.COMPLETED
    completed = time.monotonic()
    print(f"write {wrote - started:.1f} s, complete {completed - wrote:.1f} s, {memory} MB, {watch.most} files open")
    stats = stats_of(written)
    assert len(stats) == len({stat["fileId"] for stat in stats}) == MANY
    assert {stat["numWrites"] for stat in stats} == {EACH}
    assert 0 < watch.most <= 16 + 1
    assert memory < 500
    misplaced = F.count_if(F.col("_hoodie_partition_path") != F.concat(F.lit("kind="), "kind"))
    found = one.read().agg(F.count("id"), F.count_distinct("id"), F.sum("id"), misplaced).first()
    assert tuple(found) == (len(values), len(values), sum(range(len(values))), 0)
    for metadata in (True, False):
        assert one.read(metadata).where("kind = 'k4711'").count() == EACH
