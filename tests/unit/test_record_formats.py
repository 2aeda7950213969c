"""Each format's decoder in a task: rows, bad values, and what travels to the executors."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from coordination.errors import ConfigError, SinkError, Unavailable
from sink.decode import formats
from sink.decode.formats import ValueFormat
from sink.decode.protobuf import files as proto_files
from sink.decode.protobuf.files import MissingCompiler
from sink.decode.records import Decoded
from sink.decode.registry.client import RegisteredSchema, RegistryAccess, RegistryUnavailable, UnknownSchema
from sink.schema.table_schema import parse_ddl
from tests.unit.protobuf_kit import Proto

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "note", "type": ["null", "string"]}, {"name": "id", "type": "long"}],
}
ACCESS = RegistryAccess(("http://127.0.0.1:1",))
SCHEMA = parse_ddl("id bigint, name string, note string")


class LocalRegistry:
    """A registry in this process: its answers are real, and access to one is tested elsewhere."""

    def __init__(self, **texts: Any) -> None:
        self.requested: list[int] = []
        self._texts = {int(name.removeprefix("n")): text for name, text in texts.items()}

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.requested.append(schema_id)
        answer = self._texts.get(schema_id)
        if answer is None:
            raise UnknownSchema(f"schema id {schema_id} is not known")
        if isinstance(answer, Exception):
            raise answer
        kind, text = answer
        return RegisteredSchema(schema_id, kind, text)


@pytest.fixture
def local_registry(monkeypatch: pytest.MonkeyPatch) -> LocalRegistry:
    schema_registry = LocalRegistry(
        n1=("AVRO", json.dumps(ORDER)),
        n2=("AVRO", json.dumps(WIDER)),
        n3=("JSON", "{}"),
        n4=("AVRO", json.dumps({**ORDER, "fields": [{"name": "id", "type": "string"}]})),
        n5=("AVRO", "{"),
        n6=RegistryUnavailable("schema registry: no answer"),
        n7=("PROTOBUF", 'syntax = "proto3"; message M { int64 id = 1; }'),
        n8=("PROTOBUF", 'syntax = "proto3"; message M { Missing it = 1; }'),
    )
    monkeypatch.setattr(formats, "registry", lambda _: schema_registry)
    return schema_registry


def avro(schema: Any, **record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return stream.getvalue()


def framed(schema_id: int, value: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + value


def decode(name: str, values: list[bytes | None], ddl: str = "", **options: Any) -> Decoded:
    schema = parse_ddl(ddl) if ddl else SCHEMA
    travelled = pickle.loads(pickle.dumps(ValueFormat(name, **options)))
    return travelled.decoder(schema.value_struct).decode(pa.array(values, pa.binary()))


def reasons(decoded: Decoded) -> dict[int, str]:
    return {bad.index: bad.reason for bad in decoded.bad}


def test_plain_avro_is_read_by_the_schema_of_the_settings() -> None:
    values = [avro(ORDER, id=1, name="a"), avro(ORDER, id=2, name="b")]
    decoded = decode("avro", values, writer=json.dumps(ORDER).encode())
    assert decoded.bad == ()
    assert decoded.rows.to_pylist() == [{"id": 1, "name": "a", "note": None}, {"id": 2, "name": "b", "note": None}]


def test_a_message_of_protobuf_whose_fields_have_their_defaults_is_no_bytes_and_a_row() -> None:
    file = Proto().message("M", "int64 id = 1", "string name = 2").bytes()
    decoded = decode("protobuf", [b"", None, b"\x08\x07"], ddl="id bigint, name string", writer=file, message="t.M")
    assert decoded.rows.to_pylist() == [{"id": 0, "name": ""}, {"id": 7, "name": ""}]
    assert list(reasons(decoded)) == [1]


def test_in_one_batch_each_value_is_read_by_the_schema_that_it_names(local_registry: LocalRegistry) -> None:
    values = [framed(1, avro(ORDER, id=1, name="a")), framed(2, avro(WIDER, note="n", id=1 << 40))] * 3
    decoded = decode("avro-confluent", values, access=ACCESS)
    assert decoded.bad == ()
    assert decoded.rows.to_pylist()[:2] == [
        {"id": 1, "name": "a", "note": None},
        {"id": 1 << 40, "name": None, "note": "n"},
    ]
    assert decoded.rows.num_rows == 6
    assert local_registry.requested == [1, 2]


def test_values_that_cannot_be_read_are_named_with_their_reasons_and_the_others_are_rows(
    local_registry: LocalRegistry,
) -> None:
    good = framed(1, avro(ORDER, id=7, name="x"))
    values = [
        None,
        b"",
        b"\0\0",
        b'{"id": 1}',
        framed(9, b"\0"),
        framed(3, b"{}"),
        framed(4, b"\0"),
        framed(5, b"\0"),
        framed(1, b"\x02"),
        good,
    ]
    decoded = decode("avro-confluent", values, access=ACCESS)
    assert decoded.rows.to_pylist() == [{"id": 7, "name": "x", "note": None}]
    reason_at = reasons(decoded)
    assert list(reason_at) == list(range(9))
    expected = ["tombstone", "the value is empty", "too short for a schema registry's header", "its first byte is 123"]
    expected += [
        "the schema with id 9",
        "its kind is JSON",
        "written as string",
        "is not valid",
        "in the middle of a field",
    ]
    for index, part in enumerate(expected):
        assert part in reason_at[index]


def test_a_registry_that_does_not_answer_is_nothing_that_a_value_is_blamed_for(local_registry: LocalRegistry) -> None:
    with pytest.raises(RegistryUnavailable):
        decode("avro-confluent", [framed(6, b"\0")], access=ACCESS)


def late_compiler(*_: Any, **__: Any) -> Any:
    raise subprocess.TimeoutExpired("protoc", 60)


def killed_compiler(command: list[str], **_: Any) -> Any:
    return subprocess.CompletedProcess(command, -9, "", "")


@pytest.mark.parametrize("compiler", [late_compiler, killed_compiler])
def test_a_compiler_that_gives_no_answer_is_nothing_that_a_value_is_blamed_for(
    local_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, compiler: Callable[..., Any]
) -> None:
    monkeypatch.setattr(proto_files.subprocess, "run", compiler)
    assert_the_task_fails(
        Unavailable, r"schema id 7: the Protobuf compiler (gave no answer within|was ended by signal 9)"
    )


def test_a_host_without_a_compiler_is_nothing_that_a_value_is_blamed_for(
    local_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proto_files, "COMPILER", "no_such_compiler")
    assert_the_task_fails(MissingCompiler, r"pip install grpcio-tools on every host")


def assert_the_task_fails(kind: type[SinkError], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        decode("protobuf-confluent", [framed(7, b"\0\x08\x05")], ddl="id bigint", access=ACCESS)


def test_a_value_is_blamed_for_a_schema_that_the_compiler_refuses(local_registry: LocalRegistry) -> None:
    values: list[bytes | None] = [framed(8, b"\0"), framed(7, b"\0\x08\x05")]
    decoded = decode("protobuf-confluent", values, ddl="id bigint", access=ACCESS)
    assert decoded.rows.to_pylist() == [{"id": 5}]
    assert "schema id 8 does not compile: schema-8.proto:1" in reasons(decoded)[0]


def test_a_schema_is_asked_for_once_by_a_decoder(local_registry: LocalRegistry) -> None:
    decoder = ValueFormat("avro-confluent", access=ACCESS).decoder(SCHEMA.value_struct)
    for _ in range(3):
        assert decoder.decode(pa.array([framed(1, avro(ORDER, id=1, name="a")), framed(9, b"\0")], pa.binary())).bad
    assert local_registry.requested == [1, 9]


def test_json_behind_a_header_is_json() -> None:
    good = [framed(1, b'{"id": 1, "name": "a"}'), framed(2, b'{"id": 2}')]
    values = [*good, b'{"id": 3}', framed(1, b""), framed(1, b"{")]
    decoded = decode("json-confluent", values, access=ACCESS)
    assert decoded.rows.to_pylist() == [{"id": 1, "name": "a", "note": None}, {"id": 2, "name": None, "note": None}]
    reason_at = reasons(decoded)
    assert list(reason_at) == [2, 3, 4]
    assert "its first byte is 123" in reason_at[2]
    assert "the value is empty" in reason_at[3]
    assert "not one JSON document" in reason_at[4]


@pytest.mark.parametrize(
    ("name", "ddl", "expected"), [("string", "value string", "é"), ("bytes", "v binary", "é".encode())]
)
def test_a_raw_value_is_the_only_column_and_a_null_is_a_null(name: str, ddl: str, expected: Any) -> None:
    decoded = decode(name, ["é".encode(), None, b""], ddl)
    assert decoded.bad == ()
    assert [next(iter(row.values())) for row in decoded.rows.to_pylist()] == [expected, None, expected[:0]]


def test_a_raw_text_has_to_be_utf_8_and_a_null_has_to_have_a_place() -> None:
    assert reasons(decode("string", [b"\xff", b"a"], "value string")) == {0: "a text that is not UTF-8"}
    assert "NOT NULL" in reasons(decode("bytes", [None, b"a"], "value binary not null"))[0]


@pytest.mark.parametrize("ddl", ["id bigint", "value string, id bigint", "value binary"])
def test_a_raw_text_needs_a_table_of_one_column_of_text(ddl: str) -> None:
    with pytest.raises(ConfigError, match="fills one column of type string"):
        decode("string", [], ddl)


def test_plain_avro_that_cannot_fill_the_columns_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"value\.schema\.file: field 'id' is written as int, and .* is date"):
        decode("avro", [], "id date", writer=json.dumps(ORDER).encode())
