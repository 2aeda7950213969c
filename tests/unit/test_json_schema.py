"""A column of a JSON Schema takes all values of its property."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.errors import ConfigError
from sink.decode.debezium import row_of_event
from sink.decode.formats import ValueFormat
from sink.decode.registry.client import RegisteredSchema
from sink.infer.json_keywords import DECIMAL
from sink.infer.json_samples import with_valid_names
from sink.infer.json_schema import columns_of_json_schema
from sink.infer.registered import SchemaSelection, columns_of_registered
from sink.schema.ddl import to_ddl
from sink.schema.table_schema import parse_ddl

NULL = {"type": "null", "title": "Not included"}
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def columns_of_properties(*properties: Any, **keywords: Any) -> tuple[str, list[str]]:
    """Returns the columns, as DDL, of an object with properties a, b and so on, and the warnings."""
    by_name = dict(zip("abcdef", properties, strict=False))
    return columns_of_schema({"type": "object", "properties": by_name, **keywords})


def registered(schema: Any) -> RegisteredSchema:
    return RegisteredSchema(7, "JSON", json.dumps(schema))


def columns_of_schema(schema: Any) -> tuple[str, list[str]]:
    warnings: list[str] = []
    columns = columns_of_json_schema(registered(schema), warnings)
    return to_ddl(columns).replace("\n", " "), warnings


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (TEXT, "STRING"),
        ({"type": "string", "format": "date-time"}, "STRING"),
        (WHOLE, "BIGINT"),
        ({"type": "integer", "connect.type": "int16"}, "INT"),
        ({"type": "integer", "connect.type": "int64", "title": "org.apache.kafka.connect.data.Timestamp"}, "BIGINT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": ["number", "integer"]}, "DOUBLE"),
        ({"type": "number", "connect.type": "float32"}, "FLOAT"),
        (
            {
                "type": "number",
                "title": DECIMAL,
                "connect.type": "bytes",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
            "DECIMAL(10,2)",
        ),
        ({"type": "boolean"}, "BOOLEAN"),
        ({"type": ["null", "string"]}, "STRING"),
        ({"oneOf": [NULL, WHOLE]}, "BIGINT"),
        ({"anyOf": [WHOLE, NULL]}, "BIGINT"),
        ({"allOf": [TEXT]}, "STRING"),
        ({"enum": ["red", "green", None]}, "STRING"),
        ({"enum": [1, 2.5]}, "DOUBLE"),
        ({"const": True}, "BOOLEAN"),
        ({"oneOf": [{"enum": [None]}, TEXT]}, "STRING"),
        ({"allOf": [{"properties": {"x": WHOLE}}, {"properties": {"y": TEXT}}]}, "STRUCT<x: BIGINT, y: STRING>"),
        ({"allOf": [{"properties": {"x": WHOLE}}], "properties": {"y": TEXT}}, "STRUCT<x: BIGINT, y: STRING>"),
        ({"type": ["object", "null"], "oneOf": [{"properties": {"x": WHOLE}}]}, "STRUCT<x: BIGINT>"),
        ({"type": "array", "items": {"oneOf": [NULL, TEXT]}}, "ARRAY<STRING>"),
        ({"type": "object", "connect.type": "map", "additionalProperties": WHOLE}, "MAP<STRING, BIGINT>"),
        ({"type": "object", "properties": {"x": WHOLE, "y": TEXT}}, "STRUCT<x: BIGINT, y: STRING>"),
        ({"properties": {"x": WHOLE}}, "STRUCT<x: BIGINT>"),
    ],
)
def test_a_property_is_a_column_of_the_type_that_takes_all_its_values(schema: Any, column: str) -> None:
    assert columns_of_properties(schema, required=["a"]) == (f"a {column}", [])


@pytest.mark.parametrize(
    ("schema", "warning"),
    [
        ({"type": ["string", "integer"]}, "it has several types: string, integer"),
        ({"oneOf": [TEXT, WHOLE]}, "it is one of several schemas"),
        ({"enum": ["one", 1]}, "it has several types: string, integer"),
        ({}, "it has no type"),
        (True, "it has no type"),
        ({"type": "null"}, "it has no type"),
        ({"type": "object"}, "an object without properties"),
        ({"$ref": "elsewhere.json"}, "it refers to elsewhere.json, which does not exist"),
        ({"$ref": "#/definitions/nothing"}, "it refers to #/definitions/nothing, which does not exist"),
        ({"$ref": "#/properties/b/type/x"}, "it refers to #/properties/b/type/x, which does not exist"),
        ({"$ref": "#/required/x"}, "it refers to #/required/x, which does not exist"),
        ({"allOf": [TEXT, WHOLE]}, "it is one of several schemas"),
        ({"$ref": "#"}, "it contains itself"),
        (
            {"type": "number", "title": DECIMAL},
            "its connect.parameters have no scale: None",
        ),
        (
            {"type": "number", "title": DECIMAL, "connect.parameters": {"scale": 39}},
            "no column holds a decimal of precision 38 and scale 39",
        ),
    ],
)
def test_what_may_be_of_any_type_is_a_text_which_is_said(schema: Any, warning: str) -> None:
    inside = {"type": "object", "properties": {"x": {"type": "array", "items": schema}, "y": TEXT}}
    assert columns_of_properties(schema, TEXT, inside, required=["b"]) == (
        "a STRING, b STRING, c STRUCT<x: ARRAY<STRING>, y: STRING>",
        [f"a is STRING, the JSON of its values: {warning}", f"c.x[] is STRING, the JSON of its values: {warning}"],
    )


def test_references_are_followed_within_the_schema_and_to_others_and_from_these_to_others() -> None:
    address = {"$id": "http://there/address.json", "type": "object", "properties": {"town": {"$ref": "town.json"}}}
    branches = {"type": "array", "items": {"$ref": "#/definitions/tree"}}
    order = {
        "$id": "http://there/order.json",
        "definitions": {"id": WHOLE, "tree": {"properties": {"name": TEXT, "all": branches}}},
        "properties": {
            "id": {"$ref": "#/definitions/id"},
            "to": {"oneOf": [NULL, {"$ref": "address.json"}]},
            "tree": {"$ref": "#/definitions/tree"},
        },
    }
    town_schema = RegisteredSchema(9, "JSON", json.dumps(TEXT))
    address_schema = RegisteredSchema(8, "JSON", json.dumps(address), (("town.json", town_schema),))
    order_schema = RegisteredSchema(7, "JSON", json.dumps(order), (("address.json", address_schema),))
    warnings: list[str] = []
    origin, columns = columns_of_registered(SchemaSelection(order_schema), "JSON", warnings)
    assert origin == "schema id 7"
    assert to_ddl(columns).split(",\n") == [
        "id BIGINT",
        "to STRUCT<town: STRING>",
        "tree STRUCT<name: STRING, all: ARRAY<STRING>>",
    ]
    assert warnings == ["tree.all[] is STRING, the JSON of its values: it contains itself"]


def test_the_row_in_an_event_of_debezium_is_found() -> None:
    row = {"oneOf": [NULL, {"type": "object", "properties": {"id": WHOLE, "note": {"oneOf": [NULL, TEXT]}}}]}
    event = {"type": "object", "properties": {"before": row, "after": row, "op": TEXT, "ts_ms": WHOLE}}
    columns = row_of_event(columns_of_json_schema(registered(event), []), "the subject")
    assert to_ddl(columns).split(",\n") == ["id BIGINT", "note STRING"]


PLACED = {"type": "object", "properties": {"id": WHOLE, "total": {"type": "number"}}}
CANCELLED = {"type": ["object", "null"], "properties": {"id": WHOLE, "reason": TEXT}}
DEFINITIONS = {"definitions": {"p": PLACED, "c": CANCELLED}}
REFERENCES = [{"$ref": "#/definitions/p"}, {"$ref": "#/definitions/c"}]
ONE, BOTH = "id BIGINT, total DOUBLE", "id BIGINT, total DOUBLE, reason STRING"


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ({"oneOf": [PLACED, CANCELLED]}, BOTH),
        ({"anyOf": [NULL, PLACED, CANCELLED, {"required": ["id"]}]}, BOTH),
        (
            {
                "oneOf": [{"$ref": "#/definitions/p"}, {"$ref": "#/definitions/c"}],
                "definitions": {"p": PLACED, "c": CANCELLED},
            },
            "id BIGINT, total DOUBLE, reason STRING",
        ),
        ({**PLACED, "anyOf": [CANCELLED, {"required": ["total"]}]}, BOTH),
        ({**PLACED, "oneOf": [{"allOf": [CANCELLED]}, NULL]}, BOTH),
        (
            {**PLACED, "if": {"properties": {"id": {"const": 1}}}, "then": CANCELLED},
            "id BIGINT, total DOUBLE, reason STRING",
        ),
        ({**PLACED, "dependentSchemas": {"id": CANCELLED}}, BOTH),
        ({"allOf": [PLACED, {"properties": {"total": {"minimum": 0}}}]}, ONE),
        (
            {"allOf": [{"$ref": "#/definitions/p"}, {"title": "more"}], "definitions": {"p": PLACED}},
            "id BIGINT, total DOUBLE",
        ),
        ({"oneOf": [PLACED, {"properties": {"id": {"type": "number"}}}]}, "id DOUBLE, total DOUBLE"),
        (
            {"oneOf": [{"properties": {"of": PLACED}}, {"properties": {"of": CANCELLED}}]},
            "of STRUCT<id: BIGINT, total: DOUBLE, reason: STRING>",
        ),
        (
            {"oneOf": [{"properties": {"of": {"type": "array", "items": part}}} for part in (PLACED, CANCELLED)]},
            "of ARRAY<STRUCT<id: BIGINT, total: DOUBLE, reason: STRING>>",
        ),
    ],
)
def test_what_only_some_values_have_are_columns_too(schema: Any, columns: str) -> None:
    assert columns_of_schema(schema) == (columns, [])


def test_a_property_of_several_types_in_several_schemas_is_a_text_which_is_said() -> None:
    schema = {"oneOf": [PLACED, {"properties": {"id": TEXT, "total": PLACED}}]}
    assert columns_of_schema(schema) == (
        "id STRING, total STRING",
        [
            "id is STRING, the JSON of its values: its schemas have several types: bigint, string",
            "total is STRING, the JSON of its values: its schemas have several types: double, struct",
        ],
    )


MEMBERS = "unevaluatedProperties, patternProperties"


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"additionalProperties": TEXT}, "additionalProperties"),
        ({"additionalProperties": True}, "additionalProperties"),
        (
            {"patternProperties": {"^x": TEXT}, "unevaluatedProperties": WHOLE},
            "unevaluatedProperties, patternProperties",
        ),
        ({"oneOf": [{**CANCELLED, "additionalProperties": TEXT}]}, "additionalProperties"),
        ({"additionalProperties": False}, ""),
        ({}, ""),
    ],
)
def test_members_beside_the_properties_are_named(keywords: dict[str, Any], named: str) -> None:
    for schema, place in (({**PLACED, **keywords}, "columns"), ({"properties": {"a": {**PLACED, **keywords}}}, "a")):
        _, warnings = columns_of_schema(schema)
        assert warnings == ([f"left out: {place}: members beside its properties ({named})"] if named else [])


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "object", "patternProperties": {"^x": WHOLE}}, "MAP<STRING, BIGINT>"),
        ({"patternProperties": {"^x": WHOLE, "^y": {"type": "number"}}}, "MAP<STRING, DOUBLE>"),
        ({"type": "object", "patternProperties": {"^x": PLACED}, "additionalProperties": CANCELLED},
         "MAP<STRING, STRUCT<id: BIGINT, reason: STRING, total: DOUBLE>>"),
        ({"type": "string", "nullable": True}, "STRING"),
        ({"allOf": [{"$ref": "#/properties/b"}], "nullable": True}, "BIGINT"),
        ({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}, "BIGINT"),
        ({"const": "x"}, "STRING"),
    ],
)  # fmt: skip
def test_maps_and_nullable_forms_have_a_column(schema: Any, column: str) -> None:
    assert columns_of_properties(schema, WHOLE) == (f"a {column}, b BIGINT", [])


def test_what_stands_beside_a_reference_is_named() -> None:
    schema = {"properties": {"a": {"$ref": "#/definitions/p", "properties": {"z": TEXT}}}, "definitions": {"p": PLACED}}
    assert columns_of_schema(schema) == (
        "a STRUCT<id: BIGINT, total: DOUBLE>",
        ["left out: a: what stands beside a $ref (properties)"],
    )


def test_an_object_none_of_whose_names_a_table_can_have_is_left_out() -> None:
    texts = {"type": "array", "items": {"properties": {"de-DE": TEXT, "en-US": TEXT}}}
    warnings: list[str] = []
    schema = registered({"properties": {"id": WHOLE, "texts": texts}})
    columns = with_valid_names(columns_of_json_schema(schema, []), warnings)
    assert to_ddl(columns) == "id BIGINT"
    assert warnings == [
        "left out, because Hudi cannot have columns of such names: in texts[]: 'de-DE', 'en-US'",
        "left out, because none of its fields can be a column: texts",
    ]


def test_a_schema_of_an_older_draft_is_one_too() -> None:
    older = {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://there/", "definitions": {"n": WHOLE}}
    low = {"type": "number", "minimum": 0, "exclusiveMinimum": True}
    properties = {"a": low, "b": {"$ref": "#/definitions/n"}}
    assert columns_of_schema({**older, "properties": properties}) == ("a DOUBLE, b BIGINT", [])


def test_what_a_schema_within_it_refers_to_is_looked_up_from_there() -> None:
    inner = {"definitions": {"n": WHOLE}, "properties": {"x": {"$ref": "#/definitions/n"}}}
    outer = {"$id": "http://there/outer.json", "properties": {"a": {"$id": "http://there/inner.json", **inner}}}
    assert columns_of_schema(outer) == ("a STRUCT<x: BIGINT>", [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not a JSON Schema: Expecting"),
        ('{"type": "wide"}', "it is not a JSON Schema: 'wide' is not valid"),
        ('{"properties": []}', "it is not a JSON Schema: \\[\\] is not of type 'object'"),
        ('{"type": "string"}', "its type is string. Only the properties of an object"),
        ("true", "it has no type"),
        ('{"type": "object"}', "an object without properties"),
    ],
)
def test_what_is_no_schema_of_an_object_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^schema id 7: {reason}"):
        columns_of_registered(SchemaSelection(RegisteredSchema(7, "JSON", text)), "JSON", [])


@pytest.mark.parametrize("dialect", ["2019-09", "2020-12"])
@pytest.mark.parametrize("keyword", ["properties", "$defs", "dependentSchemas", "definitions"])
def test_a_newer_dialect_is_checked_as_far_as_columns_depend_on_it(dialect: str, keyword: str) -> None:
    schema = {"$schema": f"https://json-schema.org/draft/{dialect}/schema", "properties": {"a": {"$ref": "#/$defs/n"}}}
    assert columns_of_schema({**schema, "$defs": {"n": WHOLE}, "prefixItems": [TEXT]}) == ("a BIGINT", [])
    with pytest.raises(ConfigError, match="it is not a JSON Schema: 5 is not of type"):
        columns_of_schema({"$defs": {"n": WHOLE}, **schema, keyword: {"b": 5}})


def test_patterns_of_other_languages_and_repeated_values_make_no_column_narrower() -> None:
    odd = {"type": "string", "pattern": r"\\p{L}+(?<name>x)", "enum": ["a", "a"]}
    assert columns_of_properties(odd, required=["a", "a"]) == ("a STRING", [])


def test_values_of_each_type_go_into_their_columns() -> None:
    texts, counts = {"type": "array", "items": TEXT}, {"type": "object", "additionalProperties": WHOLE}
    schema = columns_of_properties(TEXT, WHOLE, {"type": "number"}, {"enum": [True]}, texts, counts)
    columns = "a STRING, b BIGINT, c DOUBLE, d BOOLEAN, e ARRAY<STRING>, f MAP<STRING, BIGINT>"
    assert schema == (columns, [])
    values = {"a": "12:00", "b": 2**63 - 1, "c": 1, "d": True, "e": ["x", None], "f": {"y": -1}}
    decoded = (
        ValueFormat("json")
        .decoder(parse_ddl(columns, False).value_struct)
        .decode(pa.array([json.dumps(values).encode()]))
    )
    assert not decoded.bad
    assert decoded.rows.to_pylist() == [{**values, "f": [("y", -1)]}]


words = st.sampled_from(["object", "array", "string", "#", "#/properties/a", "#/type/a", "#/oneOf/a", "http://["])
leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | words
names = st.sampled_from(["type", "properties", "items", "oneOf", "allOf", "$ref", "$id", "$schema", "enum", "a"])
schemas = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=20
)


@given(st.text() | schemas.map(json.dumps))
def test_whatever_a_registry_answers_is_columns_that_a_table_can_have_or_a_refusal(text: str) -> None:
    with suppress(ConfigError):
        columns = with_valid_names(columns_of_json_schema(RegisteredSchema(7, "JSON", text), []), [])
        assert not columns.fields or parse_ddl(to_ddl(columns), False)
