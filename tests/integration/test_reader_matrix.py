# ruff: noqa: E501 - long lines of test data read better whole
"""Every column type through every engine, read back by every reader, then changed by Spark SQL and read
again.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession
from sinktable import FIRST_TIMESTAMP, make_settings, produce, tasks_of

from coordination.state.model import Checkpoint, PartitionCheckpoint, TableView, TopicPartition
from sink.config import Settings
from sink.hudi.table import Table
from sink.schema.table_schema import TableSchema, parse_ddl
from sink.write.engines.engine import engine_of
from tests.unlocked import unlocked

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DDL = (
    "id bigint not null, part string, bo boolean, b tinyint, sh smallint, i int, f float, d double, dec decimal(10,2),"
    " big decimal(38,10), s string, bin binary, dt date, ts timestamp, a array<int>, st struct<x: int, y: struct<z: date>>,"
    " ss array<struct<k: string, v: decimal(5,1)>>, m map<string, double>"
)
COUNT = 24
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
EXTREMES: dict[str, list[Any]] = {
    "bo": [True, False, None],
    "b": [-128, 127, None, 0],
    "sh": [-32768, 32767, None],
    "i": [-(2**31), 2**31 - 1, None],
    "f": [0.5, -1.25, None, 16777216.0],
    "d": [1e308, 5e-324, None, -0.1],
    "dec": [Decimal("99999999.99"), Decimal("-0.01"), None],
    "big": [Decimal("1234567890123456789012345678.0123456789"), Decimal("0E-10"), None],
    "s": ["", 'ü😀\n"', None, "x" * 5000],
    "bin": [b"", b"\x00\xff", None],
    "dt": [date(1, 1, 1), date(1582, 10, 4), None, date(9999, 12, 31), date(2024, 2, 29)],
    "ts": [
        datetime(1900, 1, 1, tzinfo=timezone.utc),
        datetime(1500, 1, 1, 1, 2, 3, 4, tzinfo=timezone.utc),
        None,
        datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone.utc),
    ],
    "a": [[], [1, None, 3], None],
    "st": [{"x": 1, "y": {"z": date(2024, 1, 1)}}, {"x": None, "y": None}, None],
    "ss": [[{"k": "a", "v": Decimal("1.5")}, None], [], None],
    "m": [[("a", 1.5), ("b", None)], [], None],
}


def expected_rows() -> list[dict[str, Any]]:
    rows = []
    for number in range(COUNT):
        row = {name: values[number % len(values)] for name, values in EXTREMES.items()}
        rows.append({"id": number, "part": [None, "eins", "z w"][number % 3], **row})
    return rows


def as_json(row: dict[str, Any]) -> bytes:
    return _json({**row, "m": None if row["m"] is None else dict(row["m"])}).encode()


def _json(value: Any) -> str:
    """JSON with decimals as numbers to their last digit."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, datetime):
        return json.dumps(value.isoformat().replace("+00:00", "Z"))
    return json.dumps(value.isoformat() if isinstance(value, date) else value)


class Case:
    """One table, its engine, and the SQL name under which Spark changes it."""

    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self.spark = spark
        self.settings = settings
        self.schema = schema
        self.path = settings.base_path
        self.table = Table(spark, settings.table, schema, unlocked)
        self.engine = engine_of(spark, settings.table, settings.records, schema)
        self.names = schema.spark.names
        self.topic = self.sql = ""

    def commit(self, number: int, topic: str, start: int, end: int) -> None:
        instant = self.table.begin(number, 1)
        written = self.engine.write(instant, tasks_of(topic, (0, start, end)))
        assert sum(result.records for result in written.results) == end - start
        ends = {TopicPartition(topic, 0): PartitionCheckpoint(end, 0)}
        name = self.settings.name
        checkpoint = Checkpoint(name, "k", "c", 1, number, number - 1, "d", {topic: "id"}, ends, written.results)
        self.table.complete(instant, written.stats, checkpoint, _allow)

    def by_spark(self, directory: Path, metadata: bool) -> pa.Table:
        frame = self.spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower()).load(self.path)
        self.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self.spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
        frame.select(*self.names).write.mode("overwrite").parquet(str(directory / "read"))
        return self._canonical(pq.read_table(directory / "read"))

    def by_hudi_rs(self) -> pa.Table:
        batches = HudiTableBuilder.from_base_uri(Path(self.path).as_uri()).build().read()
        return self._canonical(pa.Table.from_batches(batches))

    def by_duckdb(self) -> pa.Table:
        rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(Path(self.path).as_uri()).build().read())
        with duckdb.connect() as connection:
            connection.execute("set timezone = 'UTC'")
            connection.register("rows", rows)
            columns = ", ".join(f'"{name}"' for name in self.names)
            return self._canonical(connection.sql(f"select {columns} from rows").to_arrow_table())

    def count(self, where: str = "true") -> list[int]:
        """Returns Spark's row counts with the metadata table and without it."""
        return [
            self.spark.read.format("hudi")
            .option("hoodie.metadata.enable", metadata)
            .load(self.path)
            .where(where)
            .count()
            for metadata in ("true", "false")
        ]

    def _canonical(self, rows: pa.Table) -> pa.Table:
        nullable = pa.schema([field.with_nullable(True) for field in self.schema.arrow])
        return rows.select(self.names).cast(nullable).sort_by("_kafka_offset").combine_chunks()


def _allow(_: TableView) -> None:
    """A guard that allows every commit."""


@pytest.fixture
def case(spark: SparkSession, kafka: Any, topic: Any, tmp_path: Path, request: pytest.FixtureRequest):
    engine, partitioned, meta_fields = request.param
    name = topic()
    produce(kafka.address, name, [as_json(row) for row in expected_rows()] * 2)
    more = {"partition__field__name": "part"} if partitioned else {}
    settings = make_settings(
        tmp_path,
        kafka.address,
        name,
        DDL,
        write__engine=engine,
        record__key__fields="id",
        hoodie__populate__meta__fields=str(meta_fields).lower(),
        **more,
    )
    table_case = Case(spark, settings, parse_ddl(DDL))
    table_case.table.ensure()
    table_case.commit(1, name, 0, COUNT)
    table_case.topic, table_case.sql = name, f"orders_{name}"
    # Without this setting Hudi's writer cannot write null in an array: UPDATE and DELETE then silently change nothing.
    spark._jsc.hadoopConfiguration().set("parquet.avro.write-old-list-structure", "false")
    spark.sql(f"create table {table_case.sql} using hudi location '{table_case.path}'")
    return table_case


def written_rows(case: Case) -> pa.Table:
    rows = [
        {
            **row,
            "_kafka_topic": case.topic,
            "_kafka_partition": 0,
            "_kafka_offset": row["id"],
            "_kafka_timestamp": EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + row["id"]),
        }
        for row in expected_rows()
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([field.with_nullable(True) for field in case.schema.arrow]))


CASES = [
    pytest.param(
        (engine, partitioned, meta),
        id=f"{engine}-{'parted' if partitioned else 'flat'}-{'meta' if meta else 'bare'}",
        # These two have every value of the three parameters.
        marks=() if (engine == "arrow") == partitioned == meta else pytest.mark.thorough,
    )
    for engine in ("arrow", "hudi")
    for partitioned in (False, True)
    for meta in (True, False)
]


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_every_reader_gives_back_what_was_written(case: Case, tmp_path: Path):
    expected = written_rows(case)
    assert case.by_spark(tmp_path, metadata=True).equals(expected)
    assert case.by_spark(tmp_path, metadata=False).equals(expected)
    assert case.by_hudi_rs().equals(expected)
    assert case.by_duckdb().equals(expected)
    rebuild_metadata(case)
    assert case.by_spark(tmp_path, metadata=True).equals(expected)


@pytest.fixture
def ancient_dates(spark: SparkSession):
    """Lets Spark read dates before 1582 in files that Hudi rewrote: their footers have no Spark version."""
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
    yield
    spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def rebuild_metadata(case: Case) -> None:
    case.spark.sql(f"call delete_metadata_table(table => '{case.sql}')").collect()
    case.spark.sql(f"call create_metadata_table(table => '{case.sql}')").collect()


@pytest.mark.usefixtures("ancient_dates")
@pytest.mark.parametrize("case", [("hudi", False, True), ("arrow", True, True)], ids=["flat", "parted"], indirect=True)
def test_spark_sql_changes_the_rows_and_the_counts_stay_right(case: Case):
    spark, table = case.spark, case.sql
    spark.sql(f"update {table} set s = 'new' where id < 5")
    assert case.count() == [COUNT] * 2
    assert case.count("s = 'new'") == [5, 5]
    spark.sql(f"delete from {table} where id >= 20")
    assert case.count() == [20, 20]
    if not case.settings.partition_fields:
        # Hudi matches by key and partition: a source of keys alone finds nothing in a partitioned table.
        spark.sql(
            f"merge into {table} t using (select id from values (7L), (8L) as changed(id)) u on t.id = u.id"
            " when matched then update set t.s = 'merged'"
        )
        assert case.count("s = 'merged'") == [2, 2]
    spark.sql(f"call run_clustering(path => '{case.path}')").collect()
    assert case.count() == [20, 20]
    case.commit(2, case.topic, COUNT, COUNT * 2)
    assert case.count() == [20 + COUNT] * 2
    spark.sql(f"call run_clean(table => '{table}', retain_commits => 1)").collect()
    assert case.count() == [20 + COUNT] * 2
    rebuild_metadata(case)
    assert case.count() == [20 + COUNT] * 2
    assert case.by_hudi_rs().num_rows == 20 + COUNT
