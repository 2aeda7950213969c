"""Avro read as columns, compared with fastavro, an independent reader of one record at a time."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.avro.columns import AvroReader
from sink.decode.cursors import Cursors
from sink.decode.fields import NO_RULES, Columns, ValueRules
from sink.decode.records import SchemaMismatch
from sink.schema.avro import struct_of_avro
from sink.schema.table_schema import parse_ddl
from tests.columns_kit import columns

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FIRST, LAST = datetime(1, 1, 2, tzinfo=timezone.utc), datetime(9999, 12, 30, tzinfo=timezone.utc)
MICROS = st.integers((FIRST - EPOCH) // timedelta(microseconds=1), (LAST - EPOCH) // timedelta(microseconds=1))
DAYS = st.integers((FIRST - EPOCH).days, (LAST - EPOCH).days)


def micros(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


# A type, its values as written without the logical type, and the function from a written value to a column's.
SIMPLE: list[tuple[Any, st.SearchStrategy[Any], Any]] = [
    ("boolean", st.booleans(), None),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1), None),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1), None),
    ("float", st.floats(width=32, allow_nan=False), None),
    ("double", st.floats(allow_nan=False), None),
    ("string", st.text(max_size=12), None),
    ("bytes", st.binary(max_size=12), None),
    ({"type": "fixed", "size": 5}, st.binary(min_size=5, max_size=5), None),
    ({"type": "enum", "symbols": ["RED", "GREEN", "BLUE"]}, st.sampled_from(["RED", "GREEN", "BLUE"]), None),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str), None),
    ({"type": "int", "logicalType": "date"}, DAYS, lambda day: date(1970, 1, 1) + timedelta(days=day)),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999), None),
    ({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_399_999_999), None),
    ({"type": "long", "logicalType": "timestamp-micros"}, MICROS, micros),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        MICROS.map(lambda value: value // 1000),
        lambda value: micros(value * 1000),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
        st.integers(-(10**20) + 1, 10**20 - 1),
        lambda value: Decimal(value).scaleb(-4),
    ),
    (
        {"type": "fixed", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 38},
        st.integers(-(10**38) + 1, 10**38 - 1),
        lambda value: Decimal(value) / Decimal(1) if value == 0 else Decimal(f"{value}E-38"),
    ),
]


class Namer:
    def __init__(self) -> None:
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"n{self.count}"


def bare_of(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    return schema


def as_bytes(number: int, schema: Any) -> bytes:
    size = schema.get("size") or number.bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


@st.composite
def types(draw: Any, namer: Namer, depth: int) -> tuple[Any, Any, Any, Any]:
    """Draws a schema, the same without logical types, and pairs of a written value and the one that a column shows."""
    kinds = ["simple"] * 4 + (["nullable", "array", "map", "record"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "simple":
            schema, values, show = draw(st.sampled_from(SIMPLE))
            if isinstance(schema, dict) and schema["type"] in ("fixed", "enum"):
                schema = {**schema, "name": namer.name()}
            decimal = isinstance(schema, dict) and schema.get("logicalType") == "decimal"
            if decimal:
                return schema, bare_of(schema), values.map(lambda n: (as_bytes(n, schema), show(n))), None
            return schema, bare_of(schema), values.map(lambda v: (v, show(v) if show else v)), None
        case "nullable":
            schema, bare, values, _ = draw(types(namer, 0))
            first = draw(st.booleans())
            nothing = st.just((None, None))
            wrap = (lambda inner: ["null", inner]) if first else (lambda inner: [inner, "null"])
            return wrap(schema), wrap(bare), st.one_of(nothing, values), None
        case "array":
            schema, bare, values, _ = draw(types(namer, depth - 1))
            items = st.lists(values, max_size=4).map(lambda pairs: ([a for a, _ in pairs], [b for _, b in pairs]))
            return {"type": "array", "items": schema}, {"type": "array", "items": bare}, items, None
        case "map":
            schema, bare, values, _ = draw(types(namer, depth - 1))
            items = st.dictionaries(st.text(max_size=3), values, max_size=4).map(
                lambda entries: ({k: a for k, (a, _) in entries.items()}, [(k, b) for k, (_, b) in entries.items()])
            )
            return {"type": "map", "values": schema}, {"type": "map", "values": bare}, items, None
        case _:
            return draw(records(namer, depth - 1))


@st.composite
def records(draw: Any, namer: Namer, depth: int) -> tuple[Any, Any, Any, Any]:
    fields = [draw(types(namer, depth)) for _ in range(draw(st.integers(1, 4)))]
    name = namer.name()
    head = {"type": "record", "name": name}
    schema = {**head, "fields": [{"name": f"f{i}", "type": field[0]} for i, field in enumerate(fields)]}
    bare = {**head, "fields": [{"name": f"f{i}", "type": field[1]} for i, field in enumerate(fields)]}
    values = st.tuples(*(field[2] for field in fields)).map(
        lambda pairs: (
            {f"f{i}": written for i, (written, _) in enumerate(pairs)},
            {f"f{i}": shown for i, (_, shown) in enumerate(pairs)},
        )
    )
    return schema, bare, values, None


@st.composite
def topics(draw: Any) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Draws a writer's schema and pairs of records: as written, and as the table shows them."""
    schema, bare, values, _ = draw(records(Namer(), 2))
    return schema, bare, draw(st.lists(values, min_size=1, max_size=12))


def encoded(bare: Any, records: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(bare)))
    values = []
    for record in records:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, record)
        values.append(stream.getvalue())
    return values


def read(schema: Any, values: list[bytes], target: Columns) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Returns the good rows, and the reasons of the bad ones by index."""
    cursors = Cursors(pa.array(values, pa.binary()))
    columns = AvroReader(json.dumps(schema), target).read(cursors, np.arange(len(values)))
    good = np.flatnonzero(~cursors.failed)
    assert [column.type for column in columns] == target.stored_arrow.types
    rows = pa.RecordBatch.from_arrays([column.take(pa.array(good)) for column in columns], schema=target.stored_arrow)
    rows.validate(full=True)
    return rows.to_pylist(), cursors.reasons


def struct(schema: Any) -> Columns:
    return Columns.of(struct_of_avro(json.dumps(schema)), NO_RULES)


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def read_one(schema: Any, value: bytes, target: str) -> Any:
    """Returns the value of column `f` for a record whose only field is `f`, or the reason of its refusal."""
    rows, reasons = read(schema, [value], columns(f"f {target}"))
    return reasons[0] if reasons else rows[0]["f"]


@given(topics())
def test_every_record_that_fastavro_writes_is_read_as_it_was(topic: tuple[Any, Any, list[tuple[Any, Any]]]) -> None:
    schema, bare, pairs = topic
    rows, reasons = read(schema, encoded(bare, [written for written, _ in pairs]), struct(schema))
    assert reasons == {}
    assert rows == [shown for _, shown in pairs]


@given(topics(), st.data())
def test_fields_that_the_table_has_not_are_stepped_over(
    topic: tuple[Any, Any, list[tuple[Any, Any]]], data: st.DataObject
) -> None:
    schema, bare, pairs = topic
    record_struct = struct_of_avro(json.dumps(schema))
    kept_fields = data.draw(
        st.lists(st.sampled_from(record_struct.fields), unique_by=lambda field: field.name, max_size=3)
    )
    target = Columns.of(T.StructType([*kept_fields, T.StructField("new", T.DateType())]), NO_RULES)
    rows, reasons = read(schema, encoded(bare, [written for written, _ in pairs]), target)
    assert reasons == {}
    assert rows == [{**{field.name: shown[field.name] for field in kept_fields}, "new": None} for _, shown in pairs]


@given(topics(), st.integers(1, 11))
def test_what_is_read_of_a_record_does_not_depend_on_where_batches_end(
    topic: tuple[Any, Any, list[tuple[Any, Any]]], split_at: int
) -> None:
    schema, bare, pairs = topic
    values = encoded(bare, [written for written, _ in pairs])
    rows_of_parts = [read(schema, part, struct(schema))[0] for part in (values[:split_at], values[split_at:]) if part]
    assert [row for rows in rows_of_parts for row in rows] == read(schema, values, struct(schema))[0]


@given(topics(), st.data())
def test_a_record_cut_short_or_with_bytes_behind_it_is_refused_and_harms_no_other(
    topic: tuple[Any, Any, list[tuple[Any, Any]]], data: st.DataObject
) -> None:
    schema, bare, pairs = topic
    values = encoded(bare, [written for written, _ in pairs])
    broken = data.draw(st.integers(0, len(values) - 1))
    size = len(values[broken])
    cut = data.draw(st.integers(0, size - 1)) if size else 0
    values[broken] = values[broken][:cut] if size and data.draw(st.booleans()) else values[broken] + b"\0"
    rows, reasons = read(schema, values, struct(schema))
    assert list(reasons) == [broken]
    assert rows == [shown for number, (_, shown) in enumerate(pairs) if number != broken]


@given(topics(), st.data())
def test_of_changed_bytes_only_what_fastavro_reads_alike_is_taken(
    topic: tuple[Any, Any, list[tuple[Any, Any]]], data: st.DataObject
) -> None:
    _, bare, pairs = topic
    values = encoded(bare, [written for written, _ in pairs])
    changed = [bytearray(value) for value in values]
    for value in changed:
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    # By the bare schema: its values are plain numbers, texts and bytes, which can be compared as they are.
    rows, reasons = read(bare, [bytes(value) for value in changed], struct(bare))
    parsed = fastavro.parse_schema(json.loads(json.dumps(bare)))
    accepted_rows = iter(rows)
    for number, value in enumerate(changed):
        if number not in reasons:
            stream = io.BytesIO(bytes(value))
            expected = fastavro.schemaless_reader(stream, parsed)
            assert comparable(next(accepted_rows)) == comparable(expected)
            assert stream.read() == b""


def comparable(value: Any) -> Any:
    """Makes dicts of the pairs that columns give for a map, and a text of NaN, which equals nothing."""
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: comparable(inner) for key, inner in value}
        return [comparable(item) for item in value] or {}
    return "NaN" if value != value else value


def test_a_column_of_no_values_has_its_type() -> None:
    schema = record(("f", {"type": "array", "items": {"type": "map", "values": ["null", "long"]}}))
    assert read(schema, [], struct(schema)) == ([], {})


@pytest.mark.parametrize(
    ("written_type", "ddl", "value", "shown"),
    [
        ("int", "bigint", b"\x53", -42),
        ("int", "double", b"\x53", -42.0),
        ("long", "float", b"\x04", 2.0),
        ("float", "double", b"\0\0\xc0\x3f", 1.5),
        ("string", "binary", b"\x02a", b"a"),
        ("bytes", "string", b"\x02a", "a"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "string", b"\x02", "B"),
        (["null", "int", "long"], "bigint", b"\x04\x09", -5),
        (["null", "int", "string"], "int", b"\x02\x06", 3),
        # A logical type that does not fit its type is ignored.
        ({"type": "string", "logicalType": "decimal", "precision": 9, "scale": 2}, "string", b"\x061.5", "1.5"),
        ({"type": "int", "logicalType": "decimal", "precision": 9, "scale": 2}, "int", b"\x06", 3),
        ({"type": "string", "logicalType": "varchar"}, "string", b"\x02a", "a"),
        ({"type": "int", "logicalType": "date"}, "int", b"\x04", 2),
        ("int", "tinyint", b"\xff\x01", -128),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "decimal(6,2)", b"\x02\xff", "-0.10"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "decimal(4,1)", b"\x00", "0.0"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "decimal(4,0)", b"\x28" + b"\xff" * 20, "-1"),
    ],
)
def test_a_column_takes_what_it_can_hold_of_another_type(written_type: Any, ddl: str, value: bytes, shown: Any) -> None:
    actual = read_one(record(("f", written_type)), value, ddl)
    assert (str(actual) if isinstance(actual, Decimal) else actual) == shown


@pytest.mark.parametrize(
    ("written_type", "ddl"),
    [
        ("long", "int"),
        ("double", "float"),
        ("string", "int"),
        ("long", "timestamp"),
        ({"type": "long", "logicalType": "time-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "string"),
        ("null", "int not null"),
        (["null", "string", "boolean"], "int"),
        ("double", "decimal(4,2)"),
        ({"type": "bytes", "logicalType": "decimal"}, "decimal(4,2)"),
        ({"type": "string", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "array", "items": "string"}, "array<int>"),
        ({"type": "map", "values": "string"}, "array<string>"),
    ],
)
def test_schemas_that_cannot_go_together_are_refused_with_both_sides(written_type: Any, ddl: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"field 'f(\[\])?' is written as .*, and the table's column is "):
        AvroReader(json.dumps(record(("f", written_type))), columns(f"f {ddl}"))


def test_a_column_that_may_not_be_null_has_to_be_written() -> None:
    with pytest.raises(SchemaMismatch, match="field 'g' is written as nothing, and the table's column is int NOT NULL"):
        AvroReader(json.dumps(record(("f", "int"))), columns("g int not null"))


@pytest.mark.parametrize(
    ("written_type", "ddl", "value", "reason"),
    [
        ("boolean", "boolean", b"\x02", "a boolean that is neither 0 nor 1"),
        ("int", "int", b"\x80\x80\x80\x80\x10", "column 'f': the number 2147483648 does not fit int"),
        ("int", "bigint", b"\x80\x80\x80\x80\x10", "column 'f': the number 2147483648 does not fit Avro's int"),
        ("int", "tinyint", b"\x80\x02", "column 'f': the number 128 does not fit tinyint"),
        ("long", "bigint", b"\xff" * 10, "a number of more than 64 bits"),
        ("string", "string", b"\x02\xff", "a text that is not UTF-8"),
        ("string", "string", b"\x03a", "it ends in the middle of a field"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "string", b"\x02", "an enum of 1 symbols has none"),
        (["null", "int"], "int", b"\x04\x02", "a union of 2 branches has none"),
        (["int", "null"], "int not null", b"\x02", "written as null"),
        (["string", "int"], "int", b"\x00\x02a", "written as string"),
        ({"type": "array", "items": "int"}, "array<int>", b"\xfe\xff\xff\xff\x0f\x02", "a block claims more items"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            "decimal(4,1)",
            b"\x04\x27\x10",
            "column 'f': the number 1000.0 does not fit decimal(4,1)",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2},
            "decimal(4,1)",
            b"\x04\x07\xcf",
            "column 'f': the number 19.99 has more digits behind the point than decimal(4,1). Set"
            " decimal.rounding=half_up",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "timestamp",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "column 'f': 9223372036854775807 ms since 1970 are outside the years 0001 to 9999",
        ),
        ("string", "timestamp", b"\x02a", "column 'f': 'a' is not a time"),
    ],
)
def test_a_value_that_the_column_cannot_hold_fails_its_row(
    written_type: Any, ddl: str, value: bytes, reason: str
) -> None:
    assert reason in read_one(record(("f", written_type)), value, ddl)


def test_blocks_of_an_array_may_tell_their_size_and_be_several() -> None:
    schema = record(("f", {"type": "array", "items": "int"}), ("g", "int"))
    value = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00" + b"\x08"
    rows, reasons = read(schema, [value, value], columns("f array<int>, g int"))
    assert reasons == {}
    assert rows == [{"f": [1, 2, 3], "g": 4}] * 2
    assert read(schema, [value], columns("g int"))[0] == [{"g": 4}]


def test_of_a_key_that_a_map_has_twice_the_last_value_counts() -> None:
    value = b"\x06\x02a\x02\x02b\x04\x02a\x06\x00"
    assert read_one(record(("f", {"type": "map", "values": "int"})), value, "map<string,int>") == [("a", 3), ("b", 2)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(("a", "int"), ("a", "string")), "r has two fields named 'a'"),
        (
            record(("a", {**record(("x", "int")), "name": "s"}), ("b", {**record(("y", "int")), "name": "s"})),
            "two types",
        ),
        (record(("a", "s")), "no type before it is named 's'"),
        (record(("a", {"type": "enum", "name": "int", "symbols": ["x"]})), "has the name of the type int"),
        (record(("a", ["null", {"type": ["int"]}])), "a union has a union as a branch"),
        (record(("a", {"type": "fixed", "name": "f", "size": -1})), "the size of f is -1"),
        (record(("a", {"type": "enum", "name": "e", "symbols": [1]})), "a symbol of e is not a text"),
        (record(("a", {"type": "array"})), "has no 'items'"),
    ],
)
def test_a_schema_that_leaves_open_how_its_bytes_are_read_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AvroReader(json.dumps(schema), columns("b int"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}, b"\x02\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127}, b"\x02\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": "2"}, b"\x02\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, b"\x02\x01"),
        ({"type": "fixed", "name": "f", "size": 1, "logicalType": "decimal", "precision": 3}, b"\x01"),
        ({"type": "fixed", "name": "f", "size": 1, "logicalType": ["uuid"]}, b"\x01"),
        ({"type": "fixed", "name": "f", "size": 1, "logicalType": "duration"}, b"\x01"),
    ],
)
def test_an_invalid_logical_type_is_its_plain_type(kind: Any, value: bytes) -> None:
    schema = record(("f", kind), ("g", "int"))
    assert read(schema, [value + b"\x0e"], columns("g int")) == ([{"g": 7}], {})
    assert read(schema, [value + b"\x0e"], columns("f binary")) == ([{"f": b"\x01"}], {})


@pytest.mark.parametrize("default", [None, "0", {}, [1], "x" * 10])
def test_a_default_is_not_looked_at(default: Any) -> None:
    schema = record(("f", "long"), ("e", {"type": "enum", "name": "e", "symbols": ["A"], "default": "B"}))
    for field in schema["fields"]:
        field["default"] = default
    assert read(schema, [b"\x0e\0"], columns("f bigint, e string")) == ([{"f": 7, "e": "A"}], {})


def test_a_type_twice_in_the_same_words_is_one_type() -> None:
    line = {**record(("q", "int")), "name": "Line"}
    schema = record(("a", line), ("b", {**line, "doc": "again"}), ("c", "Line"))
    assert read(schema, [b"\x02\x04\x06"], columns("a struct<q: int>, c struct<q: int>")) == (
        [{"a": {"q": 1}, "c": {"q": 3}}],
        {},
    )


@pytest.mark.parametrize(
    ("names", "reference"),
    [
        (("Line", None), "shop.Line"),
        (("shop.Line", None), "Line"),
        (("Line", "shop"), "Line"),
        (("Line", ""), "Line"),
        (("x.Line", "ignored"), "x.Line"),
    ],
)
def test_names_are_those_of_avro(names: tuple[str, str | None], reference: str) -> None:
    name, space = names
    line = {**record(("q", "int")), "name": name} | ({} if space is None else {"namespace": space})
    schema = {**record(("a", line), ("b", reference)), "name": "Order", "namespace": "shop"}
    assert read(schema, [b"\x02\x04"], columns("b struct<q: int>")) == ([{"b": {"q": 2}}], {})


def test_a_name_is_of_the_inner_namespace_before_all_others() -> None:
    inner = {**record(("x", {**record(("q", "int")), "name": "Line"}), ("y", "Line")), "name": "in.Inner"}
    outer = {**record(("p", "string")), "name": "Line"}
    schema = {**record(("a", outer), ("b", inner), ("c", "Line"), ("d", "in.Line")), "name": "out.Order"}
    rows, _ = read(schema, [b"\x02a\x04\x06\x02c\x08"], columns("b struct<y: struct<q: int>>, c struct<p: string>"))
    assert rows == [{"b": {"y": {"q": 3}}, "c": {"p": "c"}}]


@pytest.mark.parametrize(
    ("kind", "ddl", "way_out"),
    [
        ("long", "timestamp", r"timestamp\. Set time\.unit to one of s, ms, us, ns, or"),
        ("int", "date", r"date\. Set date\.unit to one of days, s, ms, us, ns, or"),
        ("string", "decimal(4,2)", r"decimal\(4,2\)\. Set decimal\.format to numeric \(digits\) or base64, or"),
    ],
)
def test_what_a_type_leaves_open_names_the_setting_that_says_it(kind: str, ddl: str, way_out: str) -> None:
    with pytest.raises(SchemaMismatch, match=way_out):
        AvroReader(json.dumps(record(("f", kind))), columns(f"f {ddl}"))


def test_two_fields_that_differ_in_case_only_are_named() -> None:
    inner = {**record(("ID", "int"), ("Id", "int")), "name": "s"}
    reason = "record 'a': column 'id': the fields 'ID' and 'Id' differ in case only"
    with pytest.raises(SchemaMismatch, match=reason):
        AvroReader(json.dumps(record(("a", inner))), columns("a struct<id: int>"))
    exact = Columns.of(parse_ddl("a struct<id: int>").value_struct, ValueRules(exact_case=True))
    assert read(record(("a", inner)), [b"\x02\x04"], exact) == ([{"a": {"id": None}}], {})


def test_a_type_that_contains_itself_is_stepped_over() -> None:
    tree = {"type": "record", "name": "tree", "fields": [{"name": "kids", "type": {"type": "array", "items": "tree"}}]}
    leaf = b"\x00"
    value = b"\x04" + b"\x02" + leaf + b"\x00" + leaf + b"\x00" + b"\x0a"
    assert read(record(("t", tree), ("f", "int")), [value], columns("f int"))[0] == [{"f": 5}]


def test_a_value_within_itself_is_stepped_over_to_a_depth_beyond_which_it_is_bad_alone() -> None:
    node = {**record(("v", "int"), ("next", ["null", "n"])), "name": "n"}
    nest = {**record(("in", {"type": "array", "items": {"type": "map", "values": ["null", "m"]}})), "name": "m"}

    def chain(length: int) -> bytes:
        return b"\x02" + b"\x02\x02" * length + b"\x00" + b"\x0a"

    values = [chain(length) for length in (3, 90, 400, 100_000, 0)]
    rows, reasons = read(record(("n", node), ("f", "int")), values, columns("f int"))
    assert rows == [{"f": 5}] * 3
    assert reasons == dict.fromkeys((2, 3), "a value is nested in itself too deeply to be skipped")
    deep = b"\x02\x02\x02a\x02" * 1000 + b"\x00" + b"\x00\x00" * 1000 + b"\x0a"
    assert list(read(record(("m", nest), ("f", "int")), [deep, b"\x00\x0a"], columns("f int"))[1]) == [0]


def test_a_named_type_may_come_from_a_reference() -> None:
    place_schema = json.dumps({"type": "record", "name": "geo.Place", "fields": [{"name": "city", "type": "string"}]})
    schema = json.dumps(record(("at", "geo.Place"), ("from", ["null", "geo.Place"])))
    cursors = Cursors(pa.array([b"\x02a\x02\x02b"], pa.binary()))
    target = columns("at struct<city string>, from struct<city string>")
    read_columns = AvroReader(schema, target, [place_schema]).read(cursors, np.arange(1))
    assert [column.to_pylist() for column in read_columns] == [[{"city": "a"}], [{"city": "b"}]]


@pytest.mark.parametrize(("logical", "per_second"), [("millis", 10**3), ("micros", 10**6), ("nanos", 10**9)])
def test_moments_at_both_ends_of_the_calendar_are_exact(logical: str, per_second: int) -> None:
    first, last = -62_135_596_800, 253_402_300_799
    longest = (1 << 63) - 1
    ends = [max(first * per_second, -longest - 1), min((last + 1) * per_second - 1, longest)]
    beyond = [end + step for end, step in zip(ends, (-1, 1), strict=True) if abs(end) < longest]
    schema = record(("f", {"type": "long", "logicalType": f"timestamp-{logical}"}))
    values = encoded(record(("f", "long")), [{"f": number} for number in (*ends, *beyond)])
    cursors = Cursors(pa.array(values, pa.binary()))
    timestamps = AvroReader(json.dumps(schema), columns("f timestamp")).read(cursors, np.arange(len(values)))[0]
    assert timestamps.cast(pa.int64()).to_pylist()[:2] == [end * 10**6 // per_second for end in ends]
    assert [*cursors.reasons] == [*range(2, len(values))]


@pytest.mark.parametrize("text", ["{", '"no.such.type"', '{"type": "strange"}', "[]", "3"])
def test_a_text_that_is_no_schema_of_a_record_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises((ConfigError, SchemaMismatch)):
        AvroReader(text, columns("f int"))


def test_the_types_of_columns_are_those_that_the_table_holds() -> None:
    target = columns("a tinyint, b struct<c smallint>, d array<tinyint>")
    inner = {**record(("c", "int")), "name": "s"}
    schema = record(("a", "int"), ("b", inner), ("d", {"type": "array", "items": "int"}))
    cursors = Cursors(pa.array([b"\x02\x04\x02\x06\x00"], pa.binary()))
    read_columns = AvroReader(json.dumps(schema), target).read(cursors, np.arange(1))
    assert [column.type for column in read_columns] == parse_ddl(
        "a int, b struct<c int>, d array<int>"
    ).stored_arrow.types
