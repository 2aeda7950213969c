"""Columns change while a table is filled: every reader reads the rows of before and of after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from coordination.errors import TableError
from sink.operations.validation import _schema as described
from tests.integration.conftest import MakeFleet
from tests.integration.landing_kit import Landing
from tests.integration.sinktable import make_settings, produce
from tests.integration.table_kit import connected

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.xdist_group("registry")]

BEFORE = (
    "id BIGINT NOT NULL, whole INT, tiny TINYINT, real FLOAT, number INT, price DECIMAL(9,2), sum DECIMAL(18,3),"
    " place STRUCT<city: STRING NOT NULL>, parts ARRAY<STRUCT<part: INT>>, by MAP<STRING, STRUCT<v: INT>>, kept STRING"
)
AFTER = (
    "added STRING, id BIGINT, whole BIGINT, tiny TINYINT, real DOUBLE, number DOUBLE, price DECIMAL(18,2),"
    " sum DECIMAL(38,3), place STRUCT<city: STRING, lat: DOUBLE>, parts ARRAY<STRUCT<part: INT, name: STRING>>,"
    " by MAP<STRING, STRUCT<v: INT, w: STRING>>, kept STRING, more STRUCT<a: INT>"
)
OLD = {
    "id": 1, "whole": 2**31 - 1, "tiny": 127, "real": 0.5, "number": 7, "price": "1234567.89", "sum": "1.125",
    "place": {"city": "Bern"}, "parts": [{"part": 1}], "by": {"k": {"v": 2}}, "kept": "old",
}  # fmt: skip
NEW = {
    "whole": 2**40, "tiny": -128, "real": 1e300, "number": 7.25, "price": "1234567890123456.78", "sum": "1" * 30,
    "place": {"lat": 46.9}, "parts": [{"part": 3, "name": "n"}], "by": {"k": {"w": "w"}}, "kept": "new", "added": "a",
    "more": {"a": 1},
}  # fmt: skip
EXPECTED = [
    {
        **OLD, "price": Decimal("1234567.89"), "sum": Decimal("1.125"), "number": 7.0, "added": None, "more": None,
        "place": {"city": "Bern", "lat": None}, "parts": [{"part": 1, "name": None}], "by": {"k": {"v": 2, "w": None}},
    },
    {
        **NEW, "id": None, "price": Decimal("1234567890123456.78"), "sum": Decimal("1" * 30 + ".000"),
        "place": {"city": None, "lat": 46.9}, "by": {"k": {"v": None, "w": "w"}},
    },
]  # fmt: skip


def spark_rows(landing: Landing, metadata: bool) -> list[dict[str, Any]]:
    rows = landing.read(metadata).orderBy("_kafka_offset").select(*EXPECTED[0]).collect()
    return [row.asDict(recursive=True) for row in rows]


def arrow_rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("_kafka_offset").select(list(EXPECTED[0])).to_pylist(maps_as_pydicts="strict")


@pytest.mark.parametrize("engine", ["arrow", pytest.param("hudi", marks=pytest.mark.thorough)])
def test_every_reader_reads_what_was_written_before_and_after(
    engine: str, spark: SparkSession, kafka: Any, zookeeper: Any, topic: Callable[[], str], tmp_path: Path
) -> None:
    name = topic()
    produce(kafka.address, name, [json.dumps(record) for record in (OLD, NEW, NEW)])
    with connected(zookeeper.address) as client:

        def opened(ddl: str, **more: str) -> Landing:
            common = {
                "zookeeper__connect": zookeeper.address,
                "write__engine": engine,
                "schema__widen__decimals": "true",
            }
            return Landing(spark, make_settings(tmp_path, kafka.address, name, ddl, **common, **more), client)

        opened(BEFORE).land(1, name, 0, 1)
        after = opened(AFTER)
        assert set(after.read().columns).isdisjoint(["added", "more"]), "only a commit changes the table"
        after.land(2, name, 1, 2)
        for metadata in (True, False):
            assert spark_rows(after, metadata) == EXPECTED
            frame = after.read(metadata)
            assert [
                frame.filter(condition).count() for condition in ("whole > 2147483647", "number = 7", "added IS NULL")
            ] == [1, 1, 1]
        base = f"file://{after.settings.base_path}".replace("file://file:", "file:")
        assert arrow_rows(pa.Table.from_batches(HudiTableBuilder.from_base_uri(base).build().read())) == EXPECTED
        files = f"{after.settings.base_path.removeprefix('file://')}/*.parquet"
        duckdb_rows = duckdb.read_parquet(files, union_by_name=True).arrow()
        assert (
            arrow_rows(duckdb_rows.read_all() if isinstance(duckdb_rows, pa.RecordBatchReader) else duckdb_rows)
            == EXPECTED
        )
        with pytest.raises(TableError, match=r"added string, .*more struct<a:int> are in the table, not in the schema"):
            opened(BEFORE)
        # A column that another writer adds while a transaction is open is there after it.
        spark.sql(f"CREATE TABLE evolved_{engine} USING hudi LOCATION '{after.settings.base_path}'")
        spark.sql(f"ALTER TABLE evolved_{engine} ADD COLUMNS (theirs STRING)")
        after.land(3, name, 2, 3)
        assert "theirs" in after.read().columns
        assert after.read().count() == 3
        spark.sql(f"DROP TABLE evolved_{engine}")


class Subject:
    """A topic whose producers register their schemas with the records."""

    def __init__(self, registry: str, kafka: str, topic: str) -> None:
        self.name = f"{topic}-value"
        self._client = SchemaRegistryClient({"url": registry, "timeout": 30})
        self._producer = Producer({"bootstrap.servers": kafka})
        self._topic = topic

    def produce(self, fields: dict[str, Any], *records: dict[str, Any]) -> None:
        """Registers a schema with the types in `fields` before it sends the first record."""
        avro_fields = [{"name": name, "type": kind} for name, kind in fields.items()]
        schema = json.dumps({"type": "record", "name": "Event", "fields": avro_fields})
        self._produce(AvroSerializer(self._client, schema), records)

    def produce_json(self, properties: dict[str, Any], *records: dict[str, Any]) -> None:
        schema = {"type": "object", "title": "Event", "properties": properties, "additionalProperties": False}
        self._produce(JSONSerializer(json.dumps(schema), self._client), records)

    def register_json(self, schema: dict[str, Any]) -> None:
        self._client.register_schema(self.name, Schema(json.dumps(schema), "JSON"))

    def _produce(self, serialize: Any, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            value = serialize(record, SerializationContext(self._topic, MessageField.VALUE))
            self._producer.produce(self._topic, value, partition=0)
        assert self._producer.flush(60) == 0


FIRST = {"id": "int", "kind": "string"}
SECOND = {"id": "long", "kind": "string", "amount": ["null", "double"]}
WITHOUT = {"id": "long", "amount": "double"}
SEVERAL = {"id": "long", "kind": "string", "amount": ["double", "bytes"]}
OTHER = {"id": "string", "kind": "string", "more": "int"}


def test_a_table_follows_its_subject_as_far_as_the_compatibility_lets_it(
    spark: SparkSession, registry_url: str, kafka: Any, zookeeper: Any, topic: Callable[[], str], tmp_path: Path
) -> None:
    name = topic()
    subject = Subject(registry_url, kafka.address, name)
    subject.produce(FIRST, {"id": 0, "kind": "a"})
    with connected(zookeeper.address) as client:

        def opened(compatibility: str) -> Landing:
            registry = {"value__format": "avro-confluent", "schema__registry__url": registry_url}
            sink_settings = {"zookeeper__connect": zookeeper.address, "schema__subject": subject.name, **registry}
            sink_settings["schema__compatibility"] = compatibility
            return Landing(spark, make_settings(tmp_path, kafka.address, name, "", **sink_settings), client)

        backward = opened("backward")
        backward.land(1, name, 0, 1)
        subject.produce(FIRST, {"id": 1, "kind": "b"})
        subject.produce(SECOND, {"id": 1 << 40, "kind": "c", "amount": 1.5})
        assert "id is INT in the table, BIGINT in the records" in opened("full").columns().schema_conflict.reason
        forward = opened("forward").columns().schema_conflict.reason
        assert "id is INT in the table, BIGINT in the records" in forward
        assert "amount" not in forward.splitlines()[0]
        kept = parse_columns(opened("none").columns().columns)
        assert kept == {"id": "bigint", "kind": "string", "amount": "double"}
        # Old and new records in one slice, each read by the schema it was written with.
        backward.land(2, name, 1, 3)
        subject.produce(WITHOUT, {"id": 3, "amount": 2.5})
        backward.land(3, name, 3, 4)
        rows = backward.read().orderBy("_kafka_offset").select("id", "kind", "amount").collect()
        assert [tuple(row) for row in rows] == [(0, "a", None), (1, "b", None), (1 << 40, "c", 1.5), (3, None, 2.5)]
        subject.produce(OTHER, {"id": "x", "kind": "d", "more": 1})
        log_view = backward.columns()
        assert log_view.columns == ""
        assert [line.split() for line in log_view.schema_conflict.reason.splitlines()[1:-1]] == [
            ["column", "in", "the", "table", "in", "the", "records"],
            ["!", "id", "BIGINT", "STRING"],
            ["kind", "STRING", "STRING"],
            ["!", "amount", "DOUBLE", "-"],
            ["!", "more", "-", "INT"],
        ]
        assert parse_columns(opened("none").columns().columns) == {**kept, "more": "int"}
        subject.produce(SEVERAL, {"id": 5, "kind": "e", "amount": b"much"})
        cannot = "the union [double, bytes] cannot be a column. One type beside null, numbers, or texts and numbers can"
        for mode in ("backward", "forward", "full"):
            log_view = opened(mode).columns()
            reason = f"amount is DOUBLE in the table, and no column in the records: {cannot}"
            assert log_view.columns == ""
            assert reason in log_view.schema_conflict.reason.splitlines()[0]
            assert f"! amount  DOUBLE        ({cannot}.)" in log_view.schema_conflict.reason
        assert parse_columns(opened("none").columns().columns) == kept


def test_a_table_follows_a_json_schema_and_what_its_columns_do_not_say_is_told(
    spark: SparkSession,
    registry_url: str,
    kafka: Any,
    zookeeper: Any,
    topic: Callable[[], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    subject = Subject(registry_url, kafka.address, name)
    kind = {"oneOf": [{"type": "null"}, {"type": "string"}]}
    first = {"id": {"type": "integer"}, "kind": kind}
    subject.produce_json(first, {"id": 0, "kind": "a"}, {"id": 1})
    second = {**first, "tags": {"type": "array", "items": {"type": "string"}}, "any": {"type": ["integer", "string"]}}
    with connected(zookeeper.address) as client:
        registry = {"value__format": "json-confluent", "schema__registry__url": registry_url}
        sink_settings = {"zookeeper__connect": zookeeper.address, "schema__subject": subject.name, **registry}
        landing = Landing(spark, make_settings(tmp_path, kafka.address, name, "", **sink_settings), client)
        landing.land(1, name, 0, 2)
        subject.produce_json(second, {"id": 2, "tags": ["x"], "any": 1}, {"id": 3, "any": "b"})
        kinds = {"id": "bigint", "kind": "string", "tags": "array<string>", "any": "string"}
        assert parse_columns(landing.columns().columns) == kinds
        warning = "any is STRING, the JSON of its values: it has several types: integer, string"
        assert f"schema.subject {subject.name}: {warning}" in caplog.text
        assert any(warning in finding.sentence for finding in described(landing.settings)[1])
        landing.land(2, name, 2, 4)
        rows = [tuple(row) for row in landing.read().orderBy("_kafka_offset").select(*kinds).collect()]
        assert rows == [(0, "a", None, None), (1, None, None, None), (2, None, ["x"], "1"), (3, None, None, "b")]
        subject.register_json({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"})
        assert (
            "its type is string. Only the properties of an object can be columns"
            in landing.columns().schema_conflict.reason
        )


def parse_columns(text: str) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in T.StructType.fromJson(json.loads(text)).fields}


@pytest.mark.thorough
def test_a_fleet_follows_a_subject_through_a_kill_and_halts_where_it_cannot(
    make_fleet: MakeFleet, registry_url: str, kafka: Any, topic: Any
) -> None:
    name = topic(partitions=1)
    subject = Subject(registry_url, kafka.address, name)
    subject.produce(FIRST, *({"id": n, "kind": "a"} for n in range(100)))
    fleet = make_fleet(
        name=name,
        **{
            "schema.ddl": None,
            "schema.subject": subject.name,
            "schema.registry.url": registry_url,
            "value.format": "avro-confluent",
        },
    )
    fleet.start("w1")
    fleet.start("w2")
    fleet.wait_landed({0: 100})
    subject.produce(SECOND, *({"id": n, "kind": "b", "amount": n / 4} for n in range(100, 200)))
    fleet.coordinator().kill()
    fleet.wait_landed({0: 200})
    subject.produce(OTHER, {"id": "x", "kind": "d", "more": 1})
    view = fleet.wait("it halts", lambda view: view.halt is not None)
    assert view.halt is not None
    assert "id is BIGINT in the table, STRING in the records" in view.halt.reason
    fleet.assert_exactly_once(200)
    rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(fleet.table.as_uri()).build().read())
    assert sorted(rows.column("id").to_pylist()) == list(range(200))
    assert sorted(rows.column("amount").drop_null().to_pylist()) == [n / 4 for n in range(100, 200)]
