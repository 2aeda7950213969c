"""Schema ids in record headers, as Confluent's own serializers write them, decode like ids before the values."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext

from sink.decode import formats
from sink.decode.formats import ValueFormat
from sink.decode.header_ids import wire_column
from sink.decode.records import Decoded
from sink.decode.registry.client import RegisteredSchema, RegistryAccess, UnknownSchema
from sink.schema.table_schema import TableSchema, parse_ddl
from sink.write.rows.changes import ChangeDecoder
from sink.write.rows.record_columns import separate_bad
from sink.write.rows.row_spec import spec_of, table_schema
from tests.unit.change_kit import settings_of
from tests.unit.protobuf_kit import Proto

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NAMED = {"type": "record", "name": "Order", "fields": [{"name": "name", "type": "string"}]}
ACCESS = RegistryAccess(("http://127.0.0.1:1",))
SCHEMA = parse_ddl("id bigint, name string")
GUID = "6f0e6a3c-6f0d-4d0b-9c55-0a3a1e0b7c11"
OTHER = "00000000-0000-0000-0000-000000000002"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Headers = list[tuple[str, Any]]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[int | str, RegisteredSchema]:
    schemas = {key: RegisteredSchema(key, "AVRO", json.dumps(ORDER)) for key in (1, GUID)}
    schemas[OTHER] = RegisteredSchema(OTHER, "AVRO", json.dumps(NAMED))

    class FakeRegistry:
        def schema(self, schema_id: int | str) -> RegisteredSchema:
            if schema_id not in schemas:
                raise UnknownSchema(f"schema {schema_id} is not known")
            return schemas[schema_id]

    monkeypatch.setattr(formats, "registry", lambda _: FakeRegistry())
    return schemas


def avro(schema: Any = ORDER, **record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return stream.getvalue()


def headed(payload: bytes, guid: str, field: str = MessageField.VALUE, **id_options: Any) -> tuple[bytes, Headers]:
    context = SerializationContext("t", field, [])
    return header_schema_id_serializer(payload, context, SchemaId("AVRO", 1, guid, **id_options)), context.headers


def prefixed(payload: bytes, schema_id: int = 1) -> tuple[bytes, Headers]:
    return prefix_schema_id_serializer(payload, None, SchemaId("AVRO", schema_id)), []


def batch_of(records: list[tuple[bytes | None, Headers]], name: str = "value") -> pa.RecordBatch:
    headers = [[{"key": key, "value": value} for key, value in pairs] or None for _, pairs in records]
    values = pa.array([value for value, _ in records], pa.binary())
    return pa.RecordBatch.from_pydict({name: values, "headers": pa.array(headers, HEADERS)})


def decoded(form: str, batch: pa.RecordBatch, schema: TableSchema = SCHEMA) -> Decoded:
    value_format = ValueFormat(form, access=ACCESS)
    return value_format.decoder(schema.value_struct).decode(wire_column(batch, "value", value_format))


def ids(result: Decoded) -> list[Any]:
    return [row["id"] for row in result.rows.to_pylist()]


def test_a_topic_may_have_guids_in_headers_and_ids_before_values(registered: Any) -> None:
    records = [headed(avro(id=0), GUID), prefixed(avro(id=1)), headed(avro(NAMED, name="x"), OTHER)]
    records += [headed(avro(id=3), GUID), prefixed(avro(id=4))]
    for start in range(3):
        result = decoded("avro-confluent", batch_of(records).slice(start))
        assert result.bad == ()
        assert ids(result) == [0, 1, None, 3, 4][start:]
    assert decoded("avro-confluent", batch_of(records)).rows.to_pylist()[2] == {"id": None, "name": "x"}


def test_a_header_may_have_a_number_and_the_first_one_counts(registered: Any) -> None:
    known_id, unknown_id = SchemaId("AVRO", 1).id_to_bytes(), SchemaId("AVRO", 99).id_to_bytes()
    name = "__value_schema_id"
    records: Any = [
        (avro(id=7), [("trace", b"x"), (name, known_id), (name, unknown_id)]),
        (prefixed(avro(id=8))[0], [(name, None), ("__key_schema_id", unknown_id)]),
    ]
    result = decoded("avro-confluent", batch_of(records))
    assert (ids(result), result.bad) == ([7, 8], ())


def test_a_null_value_with_a_header_is_a_tombstone(registered: Any) -> None:
    header = headed(b"", GUID)[1]
    [bad] = decoded("avro-confluent", batch_of([(None, header), headed(avro(id=1), GUID)])).bad
    assert bad.index == 0
    assert "tombstone" in bad.reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x02" + bytes(16), "its first byte is 2. A schema registry's header begins with 0 or 1"),
        (b"\x01" + bytes(16), "the schema with id 00000000-0000-0000-0000-000000000000 cannot be used"),
        (b"\x01" + bytes(7), "it ends in the middle of a field"),
    ],
)
def test_a_header_that_names_no_schema_makes_a_bad_record_of_its_own(
    registered: Any, content: bytes, reason: str
) -> None:
    records: Any = [headed(avro(id=1), GUID), (b"", [("__value_schema_id", content)]), prefixed(avro(id=2))]
    result = decoded("avro-confluent", batch_of(records))
    assert [bad.index for bad in result.bad] == [1]
    assert reason in result.bad[0].reason
    assert ids(result) == [1, 2]


def test_json_needs_no_schema_to_be_read() -> None:
    result = decoded("json-confluent", batch_of([headed(b'{"id": 1}', GUID), prefixed(b'{"id": 2}')]))
    assert (ids(result), result.bad) == ([1, 2], ())


def test_the_indexes_of_a_protobuf_message_are_in_the_header(registered: Any) -> None:
    proto = Proto().message("Other", "string name = 1").message("Order", "int64 id = 1")
    registered[GUID] = RegisteredSchema(GUID, "PROTOBUF", b64encode(proto.file.SerializeToString()).decode())
    records = [headed(b"\x08\x05", GUID, message_indexes=[1]), headed(b"\x0a\x01x", GUID, message_indexes=[0])]
    result = decoded("protobuf-confluent", batch_of(records))
    assert result.bad == ()
    assert result.rows.to_pylist() == [{"id": 5, "name": None}, {"id": None, "name": "x"}]


def test_other_formats_and_records_without_headers_stay_as_they_are() -> None:
    batch = batch_of([headed(b'{"id": 1}', GUID)])
    assert wire_column(batch, "value", ValueFormat("json")).equals(batch.column("value"))
    plain = batch.drop_columns(["headers"])
    assert wire_column(plain, "value", ValueFormat("json-confluent", access=ACCESS)).equals(batch.column("value"))


def test_a_tombstone_finds_its_row_by_a_key_whose_schema_is_in_the_header(registered: Any, tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        value__format="json",
        delete__key__format="avro-confluent",
        schema__registry__url="http://127.0.0.1:1",
    )
    key, headers = headed(avro(id=7), GUID, MessageField.KEY)
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key], pa.binary()),
            "value": pa.array([None], pa.binary()),
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "timestamp": pa.array([0], pa.timestamp("us", "UTC")),
            "headers": batch_of([(None, headers)]).column("headers"),
        }
    )
    table, records = settings.table, settings.records
    changes = ChangeDecoder(spec_of(table, records, table_schema(table, records)))
    _, rows, bad = separate_bad(batch, "t", changes.decode_batch)
    assert bad == ()
    assert rows is not None
    assert [(row["id"], row["_hoodie_is_deleted"]) for row in rows.to_pylist()] == [(7, True)]
