"""A table of every type, filled from every format, holds the values that the official serializers write."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from sinktable import OpenInstant, make_settings, rows_of, tasks_of

from coordination.errors import BadRecord, Unavailable
from coordination.planning.schema_identity import conflict
from sink.decode.protobuf.files import descriptor_set_of_file
from sink.operations.validation import _registry
from sink.write.engines.engine import ArrowEngine
from sink.write.rows.row_spec import table_schema
from tests.registry_kit import RegistryRequest, RegistryResponse, StubRegistry, forward

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("registry")]

DDL = (
    "flag BOOLEAN, small INT, big BIGINT, ratio FLOAT, exact DOUBLE, amount DECIMAL(20,4), name STRING, raw BINARY,"
    " day DATE, millis TIMESTAMP, micros TIMESTAMP, clock INT, ident STRING, color STRING, tags ARRAY<STRING>,"
    " counts MAP<STRING, BIGINT>, place STRUCT<city: STRING, lat: DOUBLE>, note STRING"
)
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123000, timezone.utc)
FULL: dict[str, Any] = {
    "flag": True,
    "small": -(1 << 31),
    "big": (1 << 63) - 1,
    "ratio": 0.5,
    "exact": -1e300,
    "amount": Decimal("-1234567890123456.7891"),
    "name": "Zürich €",
    "raw": b"\x00\xff",
    "day": date(1969, 7, 20),
    "millis": MOMENT,
    "micros": MOMENT.replace(microsecond=123456),
    "clock": 86_399_999,
    "ident": "6f0e6a3c-6f0d-4d0b-9c55-0a3a1e0b7c11",
    "color": "GREEN",
    "tags": ["a", "", "c"],
    "counts": {"x": 1, "y": -1},
    "place": {"city": "Bern", "lat": 46.9},
    "note": "n",
}
PLAIN: dict[str, Any] = {
    "flag": False,
    "small": 0,
    "big": 0,
    "ratio": 0.0,
    "exact": 0.0,
    "amount": Decimal("0.0000"),
    "name": "",
    "raw": b"",
    "day": date(9999, 12, 31),
    "millis": datetime(1, 1, 1, tzinfo=timezone.utc),
    "micros": datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc),
    "clock": 0,
    "ident": "",
    "color": "RED",
    "tags": [],
    "counts": {},
    "place": {"city": "", "lat": 0.0},
    "note": None,
}
ROWS = [FULL, PLAIN] * 20


def field(name: str, kind: Any, **logical: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, **logical} if logical else kind}


AVRO = {
    "type": "record",
    "name": "Every",
    "fields": [
        # Another order than the table's, and a field that the table has not.
        field("note", ["null", "string"]),
        field("ignored", {"type": "array", "items": {"type": "map", "values": ["null", "double"]}}),
        field("flag", "boolean"),
        field("small", "int"),
        field("big", "long"),
        field("ratio", "float"),
        field("exact", "double"),
        field("amount", "bytes", logicalType="decimal", precision=20, scale=4),
        field("name", "string"),
        field("raw", "bytes"),
        field("day", "int", logicalType="date"),
        field("millis", "long", logicalType="timestamp-millis"),
        field("micros", "long", logicalType="timestamp-micros"),
        field("clock", "int", logicalType="time-millis"),
        field("ident", "string"),
        field("color", {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}),
        field("tags", {"type": "array", "items": "string"}),
        field("counts", {"type": "map", "values": "long"}),
        field(
            "place",
            {"type": "record", "name": "Place", "fields": [field("city", "string"), field("lat", "double")]},
        ),
    ],
}
DRAFT = "http://json-schema.org/draft-07/schema#"
PROTO = """
syntax = "proto3";
package every;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "confluent/type/decimal.proto";
message Other { string nothing = 1; }
message Every {
  enum Color { RED = 0; GREEN = 1; }
  message Place { string city = 1; double lat = 2; }
  repeated double ignored = 99;
  google.protobuf.StringValue note = 18;
  bool flag = 1; int32 small = 2; int64 big = 3; float ratio = 4; double exact = 5;
  confluent.type.Decimal amount = 6;
  string name = 7; bytes raw = 8; google.type.Date day = 9;
  google.protobuf.Timestamp millis = 10; google.protobuf.Timestamp micros = 11;
  int32 clock = 12; string ident = 13; Color color = 14;
  repeated string tags = 15; map<string, int64> counts = 16; Place place = 17;
}
"""


def json_of(row: dict[str, Any]) -> dict[str, Any]:
    def text(moment: datetime) -> str:
        return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")

    return {
        **row,
        "amount": float(row["amount"]) if row is PLAIN else str(row["amount"]),
        "raw": base64.b64encode(row["raw"]).decode(),
        "day": row["day"].isoformat(),
        "millis": text(row["millis"]),
        "micros": text(row["micros"]),
    }


def avro_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row as fastavro takes it: the milliseconds of the day as a `time`."""
    clock = (datetime.min + timedelta(milliseconds=row["clock"])).time()
    return {**row, "clock": clock, "ignored": [{"k": 1.5, "n": None}]}


def proto_of(kind: type[Message], row: dict[str, Any]) -> Message:
    message: Any = kind()
    for name in ("flag", "small", "big", "ratio", "exact", "name", "raw", "clock", "ident"):
        setattr(message, name, row[name])
    unscaled = int(row["amount"].scaleb(4))
    message.amount.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    message.amount.precision, message.amount.scale = 20, 4
    message.day.year, message.day.month, message.day.day = row["day"].year, row["day"].month, row["day"].day
    message.millis.FromDatetime(row["millis"])
    message.micros.FromDatetime(row["micros"])
    message.color = message.Color.Value(row["color"])
    message.tags.extend(row["tags"])
    message.counts.update(row["counts"])
    message.place.city, message.place.lat = row["place"]["city"], row["place"]["lat"]
    if row["note"] is not None:
        message.note.value = row["note"]
    message.ignored.append(1.0)
    return message


@dataclass
class FormatWriter:
    """Settings of a format, and a function that writes its values."""

    settings: dict[str, str]
    write: Callable[[dict[str, Any]], bytes]


@pytest.fixture(scope="module")
def proto(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, type[Message]]:
    source = tmp_path_factory.mktemp("proto") / "every.proto"
    source.write_text(PROTO)
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptor_set_of_file(source)).file:
        pool.Add(file)
    return source, GetMessageClass(pool.FindMessageTypeByName("every.Every"))


@pytest.fixture
def make_writer(
    registry_url: str, proto: tuple[Path, type[Message]], tmp_path: Path
) -> Callable[[str, str], FormatWriter]:
    """Makes the writer of a format and a topic."""
    source, kind = proto
    client = SchemaRegistryClient({"url": registry_url, "timeout": 30})

    def plain_avro(row: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(AVRO))), avro_of(row))
        return stream.getvalue()

    def make(name: str, topic: str) -> FormatWriter:
        context = SerializationContext(topic, MessageField.VALUE)
        wire = {"schema__registry__url": registry_url}
        match name:
            case "json":
                return FormatWriter({}, lambda row: json.dumps(json_of(row)).encode())
            case "json-confluent":
                schema = json.dumps({"$schema": DRAFT, "title": "Every", "type": "object"})
                to_json = JSONSerializer(schema, client, lambda row, _: json_of(row))
                return FormatWriter(wire, lambda row: to_json(row, context))
            case "avro":
                (tmp_path / "every.avsc").write_text(json.dumps(AVRO))
                return FormatWriter({"value__schema__file": "every.avsc"}, plain_avro)
            case "avro-confluent":
                to_avro = AvroSerializer(client, json.dumps(AVRO), lambda row, _: avro_of(row))
                return FormatWriter(wire, lambda row: to_avro(row, context))
            case "protobuf":
                settings = {"value__schema__file": str(source), "value__message": "every.Every"}
                return FormatWriter(settings, lambda row: proto_of(kind, row).SerializeToString())
            case _:
                to_proto = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
                return FormatWriter(wire, lambda row: to_proto(proto_of(kind, row), context))

    return make


def produce(kafka: str, topic: str, values: list[bytes | None], **message_arguments: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for value in values:
        producer.produce(topic, value=value, partition=0, **message_arguments)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("name", ["json", "json-confluent", "avro", "avro-confluent", "protobuf", "protobuf-confluent"])
def test_a_table_of_every_type_holds_what_was_written(
    name: str,
    make_writer: Callable[[str, str], FormatWriter],
    spark: SparkSession,
    kafka: Any,
    topic: Any,
    tmp_path: Path,
) -> None:
    source = topic()
    writer = make_writer(name, source)
    produce(kafka.address, source, [writer.write(row) for row in ROWS])
    settings = make_settings(tmp_path, kafka.address, source, DDL, value__format=name, **writer.settings)
    instant = OpenInstant(tmp_path / "table")
    engine = ArrowEngine(spark, settings.table, settings.records, table_schema(settings.table, settings.records))
    engine.check()
    written = engine.write(instant.name, tasks_of(source, (0, 0, len(ROWS))))
    assert [result.records for result in written.results] == [len(ROWS)]
    rows = rows_of(instant.data_files).sort_by("_kafka_offset")
    # A map has no order: Protobuf's serializer writes it in any. (Strict: a key that is there twice is an error.)
    assert rows.select(list(FULL)).to_pylist(maps_as_pydicts="strict") == ROWS


def test_a_task_reports_the_schemas_that_decoded_it_and_another_registrys_is_told_by_its_fingerprint(
    make_writer: Callable[[str, str], FormatWriter],
    registry_url: str,
    spark: SparkSession,
    kafka: Any,
    topic: Any,
    tmp_path: Path,
) -> None:
    source = topic()
    writer = make_writer("avro-confluent", source)
    produce(kafka.address, source, [writer.write(FULL), writer.write(PLAIN)])

    def schemas_by(url: str) -> tuple[tuple[str, str], ...]:
        more = {"value__format": "avro-confluent", "schema__registry__url": url}
        settings = make_settings(tmp_path, kafka.address, source, DDL, **more)
        engine, instant = (
            ArrowEngine(spark, settings.table, settings.records, table_schema(settings.table, settings.records)),
            OpenInstant(tmp_path / "table"),
        )
        return engine.write(instant.name, tasks_of(source, (0, 0, 2))).schemas

    def renamed(request: RegistryRequest) -> RegistryResponse:
        answer = forward(registry_url)(request)
        return RegistryResponse(answer.status, str(answer.body).replace("small", "Small"))

    [(schema_id, fingerprint)] = schemas_by(registry_url)
    assert schemas_by(registry_url) == ((schema_id, fingerprint),)
    with StubRegistry(renamed) as other:
        assert conflict({schema_id: fingerprint}, schemas_by(other.url)) is not None


@pytest.mark.parametrize("name", ["avro-confluent", "protobuf-confluent", "json-confluent"])
def test_a_value_without_a_header_is_named_by_its_coordinates(
    name: str,
    make_writer: Callable[[str, str], FormatWriter],
    spark: SparkSession,
    kafka: Any,
    topic: Any,
    tmp_path: Path,
) -> None:
    source = topic()
    writer = make_writer(name, source)
    produce(kafka.address, source, [writer.write(FULL), b'{"small": 1}', writer.write(PLAIN)])
    settings = make_settings(tmp_path, kafka.address, source, DDL, value__format=name, **writer.settings)
    engine = ArrowEngine(spark, settings.table, settings.records, table_schema(settings.table, settings.records))
    with pytest.raises(BadRecord, match=r"offset 1: .*its first byte is 123"):
        engine.write(OpenInstant(tmp_path / "table").name, tasks_of(source, (0, 0, 3)))


def test_keys_and_headers_are_columns_where_they_are_asked_for(
    spark: SparkSession, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    source = topic()
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"\xff"), ("trace", None)]
    produce(kafka.address, source, [b"one"], key="schlüssel".encode(), headers=headers)
    produce(kafka.address, source, [None])
    settings = make_settings(
        tmp_path,
        kafka.address,
        source,
        "text STRING",
        value__format="string",
        key__format="string",
        headers__column="true",
    )
    instant = OpenInstant(tmp_path / "table")
    ArrowEngine(spark, settings.table, settings.records, table_schema(settings.table, settings.records)).write(
        instant.name, tasks_of(source, (0, 0, 2))
    )
    rows = rows_of(instant.data_files).sort_by("_kafka_offset").select(["text", "_kafka_key", "_kafka_headers"])
    assert rows.to_pylist() == [
        {
            "text": "one",
            "_kafka_key": "schlüssel",
            "_kafka_headers": [{"key": "trace", "value": b"\xff"}, {"key": "trace", "value": None}],
        },
        {"text": None, "_kafka_key": None, "_kafka_headers": None},
    ]


def test_a_key_that_is_no_text_is_a_bad_record_unless_it_is_kept_as_bytes(
    spark: SparkSession, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    source = topic()
    produce(kafka.address, source, [b"a"], key=b"ok")
    produce(kafka.address, source, [b"b"], key=b"\xff")
    common = {"ddl": "", "value__format": "bytes"}
    as_text = make_settings(tmp_path, kafka.address, source, key__format="string", **common)
    with pytest.raises(BadRecord, match=r"offset 1: its key is not UTF-8"):
        ArrowEngine(spark, as_text.table, as_text.records, table_schema(as_text.table, as_text.records)).write(
            OpenInstant(tmp_path / "one").name, tasks_of(source, (0, 0, 2))
        )
    as_bytes = make_settings(tmp_path, kafka.address, source, key__format="bytes", **common)
    instant = OpenInstant(tmp_path / "table")
    ArrowEngine(spark, as_bytes.table, as_bytes.records, table_schema(as_bytes.table, as_bytes.records)).write(
        instant.name, tasks_of(source, (0, 0, 2))
    )
    rows = rows_of(instant.data_files).sort_by("_kafka_offset")
    assert rows.column("_kafka_key").to_pylist() == [b"ok", b"\xff"]
    assert rows.column("value").to_pylist() == [b"a", b"b"]


def test_validate_tells_whether_what_the_registry_has_fits_the_columns(
    make_writer: Callable[[str, str], FormatWriter], registry_url: str, kafka: Any, topic: Any, tmp_path: Path
) -> None:
    source, other = topic(), topic()
    make_writer("avro-confluent", source).write(FULL)

    def findings_of(ddl: str, url: str = registry_url) -> list[tuple[str, bool]]:
        more = {"value__format": "avro-confluent", "schema__registry__url": url, "zookeeper__connect": kafka.address}
        settings = make_settings(tmp_path, kafka.address, f"{source},{other}", ddl, **more)
        return [
            (finding.sentence, finding.wrong)
            for finding in _registry(settings, table_schema(settings.table, settings.records))
        ]

    answers, fits, silent = findings_of(DDL)
    assert f"{registry_url} answers" in answers[0]
    assert fits[0].startswith(f"{source}-value, schema id ")
    assert (fits[0].endswith("fits the columns"), fits[1]) == (True, False)
    assert silent[0].startswith(f"{other}-value is not a subject")
    schema_conflict = findings_of("small DATE")[1]
    assert "field 'small' is written as int, and the table's column is date. Set date.unit" in schema_conflict[0]
    assert schema_conflict[1]
    with pytest.raises(Unavailable, match="no answer for its subjects within 5 s"):
        findings_of(DDL, "http://127.0.0.1:9")
