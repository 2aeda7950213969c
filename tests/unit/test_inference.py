"""Columns and warnings that are inferred from JSON values, Avro schemas and Protobuf messages."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from config_kit import MINIMAL
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from json_cases import Cases
from pyspark.sql import types as T

from coordination.errors import ConfigError
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink import cli
from sink.decode.fields import NO_RULES, Columns
from sink.decode.json.records import JsonDecoder
from sink.decode.protobuf.columns import ProtobufReader
from sink.infer.field_stats import DEEPEST, MAP_KEYS
from sink.infer.json_samples import Inferred, with_valid_names
from sink.infer.protobuf import columns_of_message
from sink.infer.registered import columns_of_avro
from sink.operations.samples import SampledRange, spans
from sink.schema.ddl import parse_struct, to_ddl
from sink.schema.table_schema import parse_ddl
from sink.schema.warnings import OmittedField, SchemaWarning
from tests.columns_kit import columns
from tests.inference_kit import infer_json
from tests.one_sink import load
from tests.unit.protobuf_kit import Proto


def inferred(*documents: object) -> Inferred:
    """Infers columns from documents; bytes are values already."""
    values = [document if isinstance(document, bytes) else json.dumps(document).encode() for document in documents]
    return infer_json(values, lambda index: f"orders-0 offset {index}")


def ddl_of(*documents: object) -> str:
    return to_ddl(inferred(*documents).columns)


def undecodable(inference: Inferred, values: list[bytes | None]) -> list[int]:
    """Returns the indexes of values that the sink refuses, decoded with the inferred columns as DDL."""
    decoder = JsonDecoder(columns(to_ddl(inference.columns)))
    return [bad.index for bad in decoder.decode(pa.array(values, pa.binary())).bad]


# DDL

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
SCALARS: list[T.DataType] = [
    T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(),
    T.StringType(), T.BinaryType(), T.DateType(), T.TimestampType(), T.DecimalType(38, 0), T.DecimalType(10, 10),
]  # fmt: skip


def structs(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[T.StructType]:
    fields = st.builds(T.StructField, NAMES, kinds, st.booleans())
    return st.lists(fields, min_size=1, max_size=4).map(T.StructType)


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.builds(T.ArrayType, inner), st.builds(T.MapType, st.just(T.StringType()), inner), structs(inner)
    ),
    max_leaves=6,
)


@given(structs(KINDS))
def test_columns_that_are_written_as_ddl_are_read_back_alike(struct: T.StructType):
    assert parse_struct(to_ddl(struct)) == struct


def test_ddl_is_written_one_column_a_line_with_names_quoted_only_where_needed():
    struct = parse_struct("id bigint not null, `a-b` struct<x: map<string, array<decimal(5, 2)>> not null>, `1st` int")
    assert to_ddl(struct).splitlines() == [
        "id BIGINT NOT NULL,",
        "`a-b` STRUCT<x: MAP<STRING, ARRAY<DECIMAL(5,2)>> NOT NULL>,",
        "`1st` INT",
    ]


# JSON

TEXTS = st.one_of(
    st.text(max_size=5),
    st.dates().map(str),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='seconds')}Z"),
    st.sampled_from(["2024", "10115", "2024-02-30", "2024-01-01T25:00:00Z", "2024-01-01T10:00Z", "NaN"]),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(1 << 70), 1 << 70),
    st.sampled_from([1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, 10**37, 10**38, 10**400]),
    st.floats(),
    TEXTS,
)
KEYS = st.one_of(st.sampled_from(["a", "b", "c", "A", "a-b", "_kafka_offset", "1"]), st.text(max_size=3))
PARTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, PARTS, max_size=4)


@given(st.lists(DOCUMENTS, min_size=1, max_size=8))
def test_every_json_document_of_a_sample_decodes_with_the_columns_that_were_inferred_from_it(documents):
    values: list[bytes | None] = [json.dumps(document).encode() for document in documents]
    inference = infer_json(values)
    assert inference.bad == ()
    if inference.columns.fields:
        assert undecodable(inference, values) == []


@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 4)
def test_of_damaged_values_just_those_that_are_told_do_not_decode(seed):
    random, schema = Random(seed), parse_ddl("s string, i int, a array<double>, st struct<x: int, d: date>")
    cases = Cases(random, schema.value_struct)
    values: list[bytes | None] = [cases.value() if random.random() < 0.5 else cases.plain() for _ in range(30)]
    values += [None, b'{"s":"x"}']
    inference = infer_json(values)
    bad_indexes = {bad.index for bad in inference.bad}
    assert 30 in bad_indexes
    assert 31 not in bad_indexes
    # The fast parser alone takes some values that the reference refuses for members that are not columns.
    assert set(undecodable(inference, values)) <= bad_indexes
    assert undecodable(inference, [value for index, value in enumerate(values) if index not in bad_indexes]) == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1], "BIGINT"),
        ([-(1 << 63), (1 << 63) - 1], "BIGINT"),
        ([1 << 63], "DECIMAL(38,0)"),
        ([10**38], "STRING"),
        ([1.5], "DOUBLE"),
        ([1, 1.5], "DOUBLE"),
        ([1 << 53, 1.5], "DOUBLE"),
        ([(1 << 53) + 1, 1.5], "STRING"),
        ([True, False, None], "BOOLEAN"),
        ([True, 1], "STRING"),
        (["a", 1], "STRING"),
        ([{"x": 1}, "a"], "STRING"),
        ([None], "STRING"),
        (["a"], "STRING"),
        (["2024-02-29"], "DATE"),
        (["2024-02-29", "2023-02-29"], "STRING"),
        (["2024-02-29", ""], "STRING"),
        (["2024"], "STRING"),
        (["2024-02-29T12:00:00Z", None], "TIMESTAMP"),
        (["2024-02-29 12:00:00.123456+01:00", "2024-02-29T12:00"], "TIMESTAMP"),
        (["2024-02-29T12:00Z"], "TIMESTAMP"),
        (["2024-02-29T24:00:00Z"], "STRING"),
        (["2024-02-29", "2024-02-29T12:00:00Z"], "STRING"),
        ([[1, None], [2.5]], "ARRAY<DOUBLE>"),
        ([[], []], "ARRAY<STRING>"),
        ([[{"x": 1}, {"y": "a"}]], "ARRAY<STRUCT<x: BIGINT, y: STRING>>"),
        ([[1], 1], "STRING"),
        ([{}], "MAP<STRING, STRING>"),
        ([{"x": {"y": 1}}, {"x": {"z": True}}], "STRUCT<x: STRUCT<y: BIGINT, z: BOOLEAN>>"),
        ([{"content-type": 1}, {"2024-01-01": 2.5}], "MAP<STRING, DOUBLE>"),
        ([{"content-type": 1, "x": 2}], "STRUCT<x: BIGINT>"),
    ],
)
def test_a_column_has_the_narrowest_type_that_holds_all_that_was_found(values, kind):
    assert ddl_of(*({"a": value} for value in values)) == f"a {kind}"


def test_numbers_are_judged_as_they_are_written_not_as_python_would_read_them():
    assert ddl_of(b'{"a":1.0}', b'{"a":1}') == "a DOUBLE"
    assert ddl_of(b'{"a":1e2}', b'{"a":NaN}', b'{"a":-Infinity}') == "a DOUBLE"
    inference = inferred(b'{"a":0.12345678901234567890}')
    assert to_ddl(inference.columns) == "a DOUBLE"
    assert "a is DOUBLE: it holds more digits than that keeps (orders-0 offset 0)" in inference.warnings[0]
    for text in (b"1e400", b"-1e99999999999999999999"):
        inference = inferred(b'{"a":' + text + b"}")
        assert to_ddl(inference.columns) == "a STRING"
        assert "it holds a number beyond any DOUBLE (orders-0 offset 0)" in inference.warnings[0]


def test_objects_are_a_map_when_they_have_many_keys_and_none_of_them_often():
    sparse = [{"scores": {f"user{n}": n, f"user{n + 1}": n + 0.5}} for n in range(MAP_KEYS - 1)]
    assert ddl_of(*sparse) == "scores MAP<STRING, DOUBLE>"
    assert ddl_of(*sparse[:-1]).startswith("scores STRUCT<user0: BIGINT, user1: DOUBLE")
    often = [{"scores": {"total": 1, **document["scores"]}} for document in sparse]
    assert ddl_of(*often).startswith("scores STRUCT<total: BIGINT, user0: BIGINT")
    assert "scores is a MAP: its 20 keys look like data" in inferred(*sparse).warnings[0]


def test_values_of_a_map_are_one_type_whatever_their_keys():
    inference = inferred({"m": {"a-1": {"x": 1}}}, {"m": {"b-1": {"y": [1.5]}}}, {"m": {"c-1": {"x": None}}})
    assert to_ddl(inference.columns) == "m MAP<STRING, STRUCT<x: BIGINT, y: ARRAY<DOUBLE>>>"
    assert set(inference.missing) == {"m{}.x", "m{}.y"}


def test_what_is_too_deep_is_text():
    deep: object = 1
    for _ in range(DEEPEST + 5):
        deep = [deep]
    inference = inferred({"a": deep})
    assert to_ddl(inference.columns) == f"a {'ARRAY<' * DEEPEST}STRING{'>' * DEEPEST}"
    assert "more than 16 levels deep" in inference.warnings[0]


@pytest.mark.parametrize("depth", [200, 500, 900, 5000])
def test_values_of_any_depth_leave_the_others_their_columns(depth):
    inference = inferred({"a": 1}, b'{"b":' + b"[" * depth + b"]" * depth + b"}")
    assert inference.columns.names[0] == "a"
    assert [bad.reason for bad in inference.bad] in ([], ["it is nested deeper than 500 levels"])


def test_conflicting_kinds_are_told_with_the_coordinates_of_each():
    inference = inferred({"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": "x"}})
    assert inference.warnings == (
        "a.b is STRING: it holds an integer (orders-0 offset 0), a text (orders-0 offset 2), each of which goes into"
        " it as text",
    )


def test_names_that_no_column_can_have_are_told_and_left_out():
    inference = inferred({"a b": 1, "_kafka_offset": 2, "_Hoodie_x": 3, "ok": {"_kafka_offset": 4, "é": 5}})
    assert to_ddl(inference.columns) == "ok STRUCT<_kafka_offset: BIGINT>"
    warnings = "\n".join(inference.warnings)
    assert "Hudi cannot have columns of such names: 'a b'" in warnings
    assert "add columns of such names: '_kafka_offset', '_Hoodie_x'" in warnings
    assert "Hudi cannot have columns of such names: in ok: 'é'" in warnings


def test_of_names_that_differ_in_case_only_the_one_that_is_there_most_often_is_a_column():
    inference = inferred({"ID": 1, "x": {"a": 1, "A": 2}}, {"id": "a"}, {"id": "b"})
    assert to_ddl(inference.columns) == "id STRING,\nx STRUCT<a: BIGINT>"
    assert "no column, because only its case differs from id: 'ID'" in inference.warnings
    assert "no column, because only its case differs from x.a: in x: 'A'" in inference.warnings


def test_columns_are_nullable_and_those_that_were_null_or_missing_are_told():
    inference = inferred({"id": 1, "a": None, "x": {"y": None}}, {"id": 2, "a": None, "b": 1})
    assert all(field.nullable for field in inference.columns.fields)
    assert inference.null == ("a", "x.y")
    assert inference.missing == ("x", "b")


def test_of_a_member_that_is_there_twice_both_values_count():
    assert ddl_of(b'{"a":"x","a":1}') == "a STRING"
    assert inferred(b'{"a":1,"a":2}', b'{"a":1}', b"{}").missing == ("a",)


def test_what_is_bad_is_told_with_its_reason_and_has_no_part_in_the_columns():
    inference = inferred({"a": 1}, b"", b"[1]", b'{"a":"x","b":"\\ud800"}', b'{"a":', b"\xff", {"a": 2})
    assert to_ddl(inference.columns) == "a BIGINT"
    assert [(bad.index, bad.reason.partition(":")[0]) for bad in inference.bad] == [
        (1, "the value is empty"),
        (2, "a JSON object is needed, found an array. Have the producer send each element as a record."),
        (3, "column 'b'"),
        (4, "not one JSON document"),
        (5, "not UTF-8 at byte 0. Have the producer write UTF-8."),
    ]


def test_without_an_object_there_are_no_columns():
    assert inferred().columns == T.StructType([])
    assert inferred(b"x", {}).columns == T.StructType([])


def test_timestamps_that_lose_something_are_told():
    warnings = "\n".join(inferred({"a": "2024-01-01T00:00:00.1234567Z"}, {"a": "2024-01-01T00:00:00"}).warnings)
    assert "more digits than microseconds (orders-0 offset 0)" in warnings
    assert "without a zone (orders-0 offset 1), which are taken as UTC" in warnings


# Avro

ITEM = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]}


def avro(*fields: tuple[str, Any]) -> tuple[str, list[SchemaWarning]]:
    record = {"type": "record", "name": "shop.Order", "fields": [{"name": n, "type": kind} for n, kind in fields]}
    warnings: list[SchemaWarning] = []
    return to_ddl(columns_of_avro(json.dumps(record), [json.dumps(ITEM)], warnings)), warnings


def test_fields_of_an_avro_record_that_cannot_be_columns_are_left_out_and_told():
    ddl, warnings = avro(
        ("id", "long"),
        ("choice", ["null", "int", "bytes"]),
        ("nothing", "null"),
        ("next", ["null", "shop.Order"]),
        ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
        ("span", {"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"}),
        ("theirs", {"type": "string", "logicalType": "varchar"}),
        ("misplaced", {"type": "string", "logicalType": "decimal", "precision": 9, "scale": 2}),
    )
    assert ddl == "id BIGINT NOT NULL,\nat TIMESTAMP,\ntheirs STRING NOT NULL,\nmisplaced STRING NOT NULL"
    assert [str(warning) for warning in warnings] == [
        "left out: choice: the union [int, bytes] cannot be a column. One type beside null, numbers, or texts and"
        " numbers can.",
        "left out: nothing: it is always null",
        "left out: next: shop.Order contains itself, which no column can",
        "left out: span: Avro's duration (months, days and milliseconds) cannot be a column. In schema.ddl it can be"
        " BINARY.",
    ]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ({"type": "long", "logicalType": "timestamp-nanos"}, "TIMESTAMP NOT NULL"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP NOT NULL"),
        ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, "TIMESTAMP NOT NULL"),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "STRING NOT NULL"),
        ({"type": "fixed", "name": "U", "size": 4, "logicalType": "uuid"}, "BINARY NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, "DECIMAL(38,2) NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}, "BINARY NOT NULL"),
        (["null", "int", "long"], "BIGINT"),
        (["int", "float"], "DOUBLE NOT NULL"),
        (["null", "long", "double"], "DOUBLE"),
        (["null", "int", "string", "boolean"], "STRING"),
        (["string", {"type": "enum", "name": "E", "symbols": ["a"], "default": 7}], "STRING NOT NULL"),
    ],
)
def test_an_avro_type_becomes_the_column_that_holds_its_values(kind: Any, column: str) -> None:
    assert avro(("f", kind)) == (f"f {column}", [])


def test_names_in_a_schema_file_are_those_of_avro_as_in_a_subject() -> None:
    line = {"type": "record", "fields": [{"name": "q", "type": "int"}]}
    other = {"type": "record", "name": "other.Line", "fields": [{"name": "r", "type": "string"}]}
    for name, reference in (("Line", "shop.Line"), ("shop.Line", "Line"), ("Line", "Line")):
        fields = [("a", {**line, "name": name}), ("o", other), ("b", ["null", reference])]
        ddl, _ = avro(*fields)
        assert ddl.splitlines()[2] == "b STRUCT<q: INT NOT NULL>"
        record = {"type": "record", "name": "shop.Order", "fields": [{"name": n, "type": kind} for n, kind in fields]}
        assert to_ddl(parse_ddl(json.dumps(record)).value_struct) == ddl


def test_what_cannot_be_a_column_leaves_the_rest_of_its_record():
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["int", "bytes"]}],
    }
    hollow = {"type": "record", "name": "Hollow", "fields": [{"name": "b", "type": "null"}]}
    ddl, warnings = avro(
        ("x", inner),
        ("again", ["null", "Inner"]),
        ("many", {"type": "array", "items": "shop.Inner"}),
        ("keyed", {"type": "map", "values": ["null", "Inner"]}),
        ("hollow", hollow),
    )
    assert ddl == (
        "x STRUCT<a: INT NOT NULL> NOT NULL,\nagain STRUCT<a: INT NOT NULL>,\n"
        "many ARRAY<STRUCT<a: INT NOT NULL>> NOT NULL,\nkeyed MAP<STRING, STRUCT<a: INT NOT NULL>> NOT NULL"
    )
    assert [str(warning).split(":")[1].strip() for warning in warnings] == [
        "x.b", "again.b", "many[].b", "keyed{}.b", "hollow.b", "hollow",
    ]  # fmt: skip


def test_a_type_of_another_avro_schema_is_written_out():
    assert avro(("item", "shop.Item"), ("more", {"type": "array", "items": "Item"}))[0] == (
        "item STRUCT<sku: STRING NOT NULL> NOT NULL,\nmore ARRAY<STRUCT<sku: STRING NOT NULL>> NOT NULL"
    )


def test_avro_that_is_no_record_or_none_at_all_is_refused():
    for text in ('"string"', '{"type": "record"}', "{", '{"type": "enum", "name": "e", "symbols": ["a"]}'):
        with pytest.raises(ConfigError):
            columns_of_avro(text, [], [])


def test_names_of_any_schema_that_no_column_can_have_are_left_out():
    warnings: list[str] = []
    struct = parse_struct("_hoodie_x int, a array<struct<x: int, X: string>>, A string")
    assert to_ddl(with_valid_names(struct, warnings)) == "a ARRAY<STRUCT<x: INT>>"
    assert len(warnings) == 3


# Protobuf


def test_every_kind_of_protobuf_field_has_a_column_that_a_reader_takes():
    kinds = [
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64", "E", "Inner", "google.protobuf.Timestamp",
        "google.protobuf.Int32Value", "google.protobuf.UInt64Value", "google.protobuf.StringValue",
    ]  # fmt: skip
    for syntax in ("proto2", "proto3"):
        singular = [f"optional {_typed(kind)} a{number} = {number}" for number, kind in enumerate(kinds, 1)]
        repeated = [f"repeated {_typed(kind)} b{number} = {number + 100}" for number, kind in enumerate(kinds, 1)]
        keyed = [f"map<string,{_typed(kind)}> c{number} = {number + 200}" for number, kind in enumerate(kinds, 1)]
        proto = Proto(syntax).enum("E", ZERO=0, ONE=1).message("Inner", "optional int32 x = 1")
        proto = proto.message("M", *singular, *repeated, *keyed, "map<bool,int32> d = 300")
        name, columns, warnings = columns_of_message(proto.bytes(), "t.M")
        assert (name, warnings, len(columns.fields)) == ("t.M", (), 3 * len(kinds) + 1)
        ProtobufReader(proto.bytes(), "t.M", Columns.of(columns, NO_RULES))
        ProtobufReader(proto.bytes(), "t.M", Columns.of(parse_struct(to_ddl(columns)), NO_RULES))
        assert columns["a4"].dataType == T.DecimalType(20, 0)
        assert columns["b18"].dataType == T.ArrayType(T.TimestampType())
        assert columns["c17"].dataType.simpleString() == "map<string,struct<x:int>>"


def _typed(kind: str) -> str:
    return {"E": "enum:E", "Inner": "message:Inner"}.get(kind, f"message:{kind}" if "." in kind else kind)


def test_protobuf_messages_within_themselves_or_without_fields_are_left_out_and_told():
    proto = Proto().message("Empty").message("M", "int64 id = 1", "message:M next = 2", "repeated message:N many = 3")
    proto.message("N", "message:M back = 1", "message:Empty empty = 2", "string name = 3")
    _, columns, warnings = columns_of_message(proto.bytes(), [1])
    assert to_ddl(columns) == "id BIGINT,\nmany ARRAY<STRUCT<name: STRING>>"
    assert warnings == (
        OmittedField("next", "it is a t.M within a t.M, which no column can hold"),
        OmittedField("many[].back", "it is a t.M within a t.M, which no column can hold"),
        OmittedField("many[].empty", "it is a t.Empty, which has no field that a column can hold"),
    )
    assert columns_of_message(proto.bytes(), "t.Empty")[1] == T.StructType([])


def test_a_protobuf_message_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"t\.Other"):
        columns_of_message(Proto().message("M").bytes(), "t.Other")
    with pytest.raises(ConfigError):
        columns_of_message(descriptor_pb2.FileDescriptorSet().SerializeToString(), (0,))


# The sample


def test_a_sample_is_spread_over_partitions_and_what_some_have_not_the_others_give():
    bounds = [(0, 2), (50, 60), (5, 5), (0, 90)]
    log = {TopicPartition("t", number): PartitionLog("id", *span) for number, span in enumerate(bounds)}
    view = LogView("cluster", log)
    zero, one, three = (TopicPartition("t", n) for n in (0, 1, 3))
    assert spans(view, 30, False) == {
        zero: SampledRange(0, 2, 2),
        one: SampledRange(50, 60, 10),
        three: SampledRange(72, 90, 18),
    }
    assert spans(view, 30, True) == {
        zero: SampledRange(0, 2, 2),
        one: SampledRange(50, 60, 10),
        three: SampledRange(0, 90, 18),
    }
    assert sum(span.max_records for span in spans(view, 4, False).values()) == 4
    assert sum(span.max_records for span in spans(view, 1, False).values()) == 1
    assert sum(span.max_records for span in spans(view, 1000, False).values()) == 102


# The configuration


def without_columns(text: str = "") -> str:
    return MINIMAL.replace("schema.ddl: id BIGINT\n", text)


@pytest.mark.parametrize("schema_setting", ["", "schema.file: not-there-yet.ddl\n", "schema.ddl: id BIGNIT\n"])
def test_a_configuration_is_loaded_without_columns_only_where_none_are_needed(tmp_path: Path, schema_setting: str):
    config = tmp_path / "sink.yaml"
    config.write_text(without_columns(schema_setting))
    assert load(config, {}, columns=False).schema_text == ""
    config.write_text(without_columns(schema_setting) + "flush.size: many\n")
    with pytest.raises(ConfigError) as refusal:
        load(config, {}, columns=False)
    assert "flush.size" in str(refusal.value)
    assert "schema" not in str(refusal.value)
    config.write_text(without_columns(schema_setting))
    with pytest.raises(ConfigError, match=r"schema\.(ddl|file)"):
        load(config, {})


@pytest.mark.parametrize(
    ("more", "arguments", "sentence"),
    [
        ("", ("--topic", "payments"), "--topic payments is not among the sink's topics (orders)"),
        ("", ("--output", "."), "is a directory"),
        ("", ("--output", "there.ddl"), "there.ddl exists already. Name another file, or replace it with --force"),
        ("", ("--output", "not/there/x.ddl"), "is not a directory"),
        ("value.format: bytes\n", (), "value.format=bytes: there is nothing to infer"),
    ],
)
def test_what_cannot_be_inferred_is_one_sentence_before_kafka_is_asked(
    capsys, monkeypatch, tmp_path: Path, more, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    Path("there.ddl").write_text("id INT")
    config = tmp_path / "sink.yaml"
    config.write_text(without_columns(more))
    assert cli.main(["infer", "--config", str(config), *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, sentence in err, len(err.splitlines())) == ("", True, 1)
    assert Path("there.ddl").read_text() == "id INT"
