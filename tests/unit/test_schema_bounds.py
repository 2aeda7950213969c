"""No schema unfolds to more than its bounds, and no Avro value takes more steps than its bytes are worth."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from pyspark.sql import types as T
from settings_kit import minimal_settings

from coordination.errors import ConfigError
from sink.decode.avro.columns import AvroReader
from sink.decode.column_records import UnusableSchema
from sink.decode.cursors import Cursors
from sink.decode.formats import ValueFormat
from sink.decode.protobuf.columns import ProtobufReader
from sink.decode.registry.client import RegisteredSchema, RegistryAccess
from sink.infer.json_schema import columns_of_json_schema
from sink.infer.protobuf import columns_of_message
from sink.infer.record_types import select_message
from sink.infer.registered import SchemaSelection, columns_of_avro, columns_of_registered
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace, SchemaTooLarge
from sink.schema.table_schema import parse_ddl
from tests.columns_kit import columns

BOUNDS = SchemaBounds()
SECONDS = 5.0
"""Processor time of a test. On a quiet machine a schema is refused within one second."""


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < SECONDS


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def unfolding(levels: int = 17, width: int = 10, leaf: Any = "int") -> dict[str, Any]:
    """Returns an Avro record whose fields are all of the next record, `levels` times: width ** levels columns."""
    inner = record(f"R{levels}", ("x", leaf))
    for level in range(levels - 1, -1, -1):
        inner = record(f"R{level}", ("f0", inner), *((f"f{n}", f"R{level + 1}") for n in range(1, width)))
    return inner


def nested(levels: int) -> str:
    inner: Any = "int"
    for level in range(levels):
        inner = record(f"R{level}", ("a", inner))
    return json.dumps(inner)


def wide(columns: int) -> str:
    return json.dumps(record("R", *((f"a{number}", ["null", "string"]) for number in range(columns))))


def json_columns(schema: Any, bounds: SchemaBounds = BOUNDS) -> T.StructType:
    return columns_of_json_schema(RegisteredSchema(7, "JSON", json.dumps(schema)), [], bounds)


def referring(levels: int, of_next: Callable[[dict[str, str]], Any]) -> dict[str, Any]:
    """Returns a JSON Schema with definitions that each refer to the next one."""
    definitions = {f"A{level}": of_next({"$ref": f"#/definitions/A{level + 1}"}) for level in range(levels)}
    definitions[f"A{levels}"] = {"type": "object", "properties": {"x": {"type": "string"}}}
    return {"definitions": definitions, "$ref": "#/definitions/A0"}


def messages(levels: int, width: int) -> bytes:
    files = FileDescriptorSet()
    file = files.file.add(name="a.proto", syntax="proto3")
    for level in range(levels + 1):
        message = file.message_type.add(name=f"M{level}")
        for number in range(1, width + 1):
            kind, name = (FieldDescriptorProto.TYPE_MESSAGE, f".M{level + 1}") if level < levels else (9, None)
            message.field.add(name=f"f{number}", number=number, type=kind, label=1, type_name=name)
    return files.SerializeToString()


MANY = {
    "avro": lambda: columns_of_avro(json.dumps(unfolding()), (), [], BOUNDS),
    "avro file": lambda: parse_ddl(json.dumps(unfolding()), bounds=BOUNDS),
    "json schema": lambda: json_columns(
        referring(17, lambda ref: {"type": "object", "properties": {f"p{n}": ref for n in range(10)}})
    ),
    "protobuf": lambda: columns_of_message(messages(17, 10), "M0", BOUNDS),
    "ddl": lambda: parse_ddl(", ".join(f"a{number} int" for number in range(5_001)), bounds=BOUNDS),
}


@pytest.mark.parametrize("kind", MANY)
def test_a_schema_that_unfolds_without_end_is_refused_with_its_place_and_the_setting(kind: str) -> None:
    with pytest.raises(
        ConfigError, match=r"more than 5,000 columns\. Register a smaller .* raise schema\.max\.columns"
    ):
        MANY[kind]()


def test_branches_of_a_json_schema_that_give_no_column_count_too() -> None:
    with pytest.raises(SchemaTooLarge, match=r"more than 50,000 references and branches.* schema\.max\.columns"):
        json_columns(referring(40, lambda ref: {"allOf": [ref, ref]}))


def test_branches_of_an_avro_union_that_all_fit_a_column_count_too() -> None:
    branches: list[Any] = [record(f"U0_{n}", ("a", "int")) for n in range(20)]
    for level in range(1, 6):
        names = [branch["name"] for branch in branches]
        branches = [record(f"U{level}_{n}", ("a", names if n else branches)) for n in range(20)]
    target = columns("s " + "struct<a:" * 6 + "int" + ">" * 6)
    with pytest.raises(SchemaTooLarge, match="more than 5,000 columns"):
        AvroReader(json.dumps(record("R", ("s", branches))), target, (), BOUNDS)


@pytest.mark.parametrize(
    ("fits", "too_much"),
    [(nested(64), nested(65)), (wide(5_000), wide(5_001))],
    ids=["levels", "columns"],
)
def test_a_schema_of_exactly_the_bound_is_taken(fits: str, too_much: str) -> None:
    assert columns_of_avro(fits, (), [], BOUNDS).fields
    with pytest.raises(SchemaTooLarge, match=r"schema\.max\.(levels|columns)"):
        columns_of_avro(too_much, (), [], BOUNDS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"type": ' * 100_000, "more than 64 deep"),
        (json.dumps({"doc": "x" * 3_000_001}), "has 3,000,012 characters, and 3,000,000 are allowed"),
        ('{"type": [' + "[]," * 60_000 + "[]]}", "more than 50,000 parts"),
        (json.dumps(record("R", ("x" * 1_001, "int"))), "has 1,001 characters, and 1,000 are allowed"),
        (json.dumps({**record("R", ("x", "int")), "namespace": "n" * 100_000}), "has 100,000 characters"),
    ],
    ids=["deep", "long", "parts", "name", "namespace"],
)
def test_a_text_is_checked_before_a_library_walks_through_it(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        columns_of_avro(text, (), [], BOUNDS)


def test_references_that_follow_each_other_end_without_a_stack_overflow() -> None:
    with pytest.raises(SchemaTooLarge, match="more than 64 deep"):
        json_columns(referring(3_000, lambda ref: ref))


def test_the_settings_move_the_bounds(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__max__columns="3", schema__max__levels="2")
    assert settings.schema_bounds == SchemaBounds(3, 2)
    assert minimal_settings(tmp_path).schema_bounds == BOUNDS
    most = {"schema__max__columns": LARGEST.columns, "schema__max__levels": LARGEST.levels}
    assert minimal_settings(tmp_path, **{name: str(value) for name, value in most.items()}).schema_bounds == LARGEST
    for name, value in most.items():
        with pytest.raises(ConfigError, match=f"is too large. The most is {value}"):
            minimal_settings(tmp_path, **{name: str(value + 1)})
    for text in (wide(4), nested(3)):
        with pytest.raises(ConfigError, match=r"schema\.max\."):
            columns_of_avro(text, (), [], settings.schema_bounds)


def test_records_of_a_schema_beyond_the_bounds_are_bad_and_its_columns_a_configuration_error() -> None:
    schema = RegisteredSchema(7, "AVRO", wide(11))
    narrow = SchemaBounds(columns=10)
    with pytest.raises(UnusableSchema, match="more than 10 columns"):
        ValueFormat("avro-confluent", bounds=narrow).reader(columns("a0 string"), schema, ())
    with pytest.raises(ConfigError, match=r"^schema id 7: the schema has more than 10 columns"):
        columns_of_registered(SchemaSelection(schema), "AVRO", [], narrow)


def test_a_protobuf_schema_beyond_the_bounds_is_named_by_its_id() -> None:
    file = FileDescriptorSet.FromString(messages(1, 40)).file[0]
    schema = RegisteredSchema(7, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode())
    with pytest.raises(ConfigError, match=r"^schema id 7: .*the schema has more than 10 columns"):
        columns_of_registered(SchemaSelection(schema), "PROTOBUF", [], SchemaBounds(columns=10))
    with pytest.raises(ConfigError, match=r"^schema id 7: the Protobuf descriptors have no valid message 'M9'"):
        columns_of_registered(SchemaSelection(schema, "M9"), "PROTOBUF", [])
    with pytest.raises(ConfigError, match=r"^schema id 7: its text has .* characters"):
        select_message(schema, None, (), SchemaBounds(columns=1))


def test_required_fields_without_a_column_count() -> None:
    files = FileDescriptorSet()
    message = files.file.add(name="a.proto").message_type.add(name="M")
    for number in range(1, 12):
        message.field.add(name=f"f{number}", number=number, type=9, label=2)
    with pytest.raises(SchemaTooLarge, match="more than 10 columns"):
        ProtobufReader(files.SerializeToString(), "M", columns("f1 string"), SchemaBounds(columns=10))


def test_a_walk_that_goes_on_after_a_refusal_is_refused_again() -> None:
    place = SchemaPlace.root(SchemaBounds(columns=1))
    place.field("a")
    for _ in range(2):
        with pytest.raises(SchemaTooLarge):
            place.field("b")


# Values


def zigzag(number: int) -> bytes:
    rest, content = (number << 1) ^ (number >> 63), b""
    while rest > 127:
        content += bytes([rest & 127 | 128])
        rest >>= 7
    return content + bytes([rest])


def reasons(kind: Any, values: list[bytes], ddl: str = "id int") -> dict[int, str]:
    """Reads records of an `id` and an `s` of this type, of which the table may have no column."""
    writer = json.dumps(record("W", ("id", "int"), ("s", kind)))
    cursors = Cursors(pa.array([zigzag(1) + value for value in values], pa.binary()))
    AvroReader(writer, columns(ddl), (), BOUNDS).read(cursors, np.arange(len(values)))
    return cursors.reasons


TREE = record("N", ("left", ["null", "N"]), ("right", ["null", "N"]))
ARRAY_COLUMN = "id int, s array<int>"


def test_a_value_that_is_skipped_takes_no_step_behind_its_end() -> None:
    ends = "it ends in the middle of a field"
    assert reasons(unfolding(30, 2), [b"\x01" * 100] * 2) == {0: ends, 1: ends}
    # The bytes of the next record say "and another node" to one that has ended.
    assert reasons(TREE, [zigzag(1), zigzag(1) * 3]) == {0: ends, 1: ends}


def test_types_without_bytes_are_skipped_at_once_however_many() -> None:
    assert reasons(unfolding(30, 2, "null"), [b"", b""]) == {}
    assert reasons(unfolding(30, 2, {"type": "fixed", "name": "F", "size": 0}), [b"", b""]) == {}


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sink.decode.cursors.MOST_STEPS", 5_000)


@pytest.mark.usefixtures("few_steps")
def test_a_tree_with_more_nodes_than_steps_is_a_bad_record_and_a_smaller_one_is_skipped() -> None:
    def tree(levels: int) -> bytes:
        return zigzag(0) * 2 if not levels else (zigzag(1) + tree(levels - 1)) * 2

    large, small = reasons(TREE, [tree(11)]), reasons(TREE, [tree(8)])
    assert "more than 100,000 items and fields" in large[0]
    assert small == {}


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("columns", ["id int", ARRAY_COLUMN])
@pytest.mark.parametrize(
    ("items", "value", "reason"),
    [
        ("null", zigzag(300) * 400 + b"\0", "more than 100,000 items"),
        ("int", zigzag(5_001) + zigzag(1) * 5_001 + b"\0", "more than 100,000 items"),
        ("int", zigzag(1 << 62) + b"\0" * 50, "more items than the record has bytes"),
        ("int", zigzag(-(1 << 62)) + zigzag(-5) + b"\0" * 50, "more items than the record has bytes"),
        ("int", zigzag(-(1 << 63)) + zigzag(1 << 62) + b"\0" * 50, "more items than the record has bytes"),
    ],
    ids=["no bytes", "many", "huge", "negative", "least"],
)
def test_blocks_of_an_array_claim_no_more_than_a_value_may_have(
    items: str, value: bytes, reason: str, columns: str
) -> None:
    bad = reasons({"type": "array", "items": items}, [value, b"\0"], columns)
    assert list(bad) == [0]
    assert reason in bad[0]


def test_a_fingerprint_is_taken_only_of_a_schema_within_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ((f"f{n}", {"type": "fixed", "name": f"F{n}", "size": 1}) for n in range(1_000))
    texts = {
        1: json.dumps({**record("R", *fields), "namespace": "n" * 100_000}),
        2: json.dumps(record("R", ("x", "int"))),
    }
    registered = SimpleNamespace(schema=lambda schema_id: RegisteredSchema(schema_id, "AVRO", texts[schema_id]))
    monkeypatch.setattr("sink.decode.formats.registry", lambda _access: registered)
    used: dict[str, str] = {}
    form = ValueFormat("avro-confluent", access=RegistryAccess(("http://registry",)), bounds=BOUNDS, used=used)
    x_column = columns("x int")
    with pytest.raises(UnusableSchema, match="has 100,000 characters"):
        form._registered(x_column, 1, ())
    form._registered(x_column, 2, ())
    assert [*used] == ["2"]
