"""A schema gives few and short warnings, whatever it holds, and a sink logs each of them once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from coordination.errors import ConfigError
from sink.decode.registry.client import RegisteredSchema
from sink.infer.json_schema import columns_of_json_schema
from sink.infer.protobuf import columns_of_message
from sink.infer.registered import columns_of_avro
from sink.schema.bounds import SchemaBounds, SchemaTooLarge
from sink.schema.table_schema import parse_ddl
from sink.schema.warnings import MOST_SENTENCES, SchemaWarning, sentences
from sink.write.rows import row_spec

NAME = "n" * 1_000
BOUNDS = SchemaBounds()
Columns = Callable[[int, list[SchemaWarning]], object]


def json_schema(levels: int, warnings: list[SchemaWarning]) -> object:
    inner: Any = {"type": "object", "properties": {"known": {"type": "string"}, **{f"p{n}": {} for n in range(900)}}}
    for _ in range(levels):
        inner = {"type": "object", "properties": {NAME: inner}}
    return columns_of_json_schema(RegisteredSchema(7, "JSON", json.dumps(inner)), warnings, BOUNDS)


def avro(levels: int, warnings: list[SchemaWarning]) -> object:
    union = ["int", {"type": "fixed", "name": "E" * 900, "size": 4}]
    fields = [{"name": "p0", "type": union}, *({"name": f"p{n}", "type": ["int", "E" * 900]} for n in range(1, 900))]
    inner: Any = {"type": "record", "name": "R", "fields": [{"name": "known", "type": "int"}, *fields]}
    for level in range(levels):
        inner = {"type": "record", "name": f"R{level}", "fields": [{"name": NAME, "type": inner}]}
    return columns_of_avro(json.dumps(inner), (), warnings, BOUNDS)


def protobuf(levels: int, warnings: list[SchemaWarning]) -> object:
    files = FileDescriptorSet()
    file = files.file.add(name="a.proto", syntax="proto3")
    for level in range(levels):
        message = file.message_type.add(name=f"M{level}")
        message.field.add(name=NAME, number=1, type=11, label=1, type_name=f".M{level + 1}")
    last = file.message_type.add(name=f"M{levels}")
    last.field.add(name="known", number=1, type=9, label=1)
    for number in range(2, 902):
        last.field.add(name=f"p{number}", number=number, type=11, label=1, type_name=f".M{levels}")
    _, columns, more = columns_of_message(files.SerializeToString(), "M0", BOUNDS)
    warnings += more
    return columns


@pytest.mark.parametrize("columns_of", [json_schema, avro, protobuf])
def test_a_schema_of_long_paths_gives_fifty_short_warnings_and_the_number_of_the_others(columns_of: Columns) -> None:
    warnings: list[SchemaWarning] = []
    columns_of(3, warnings)
    texts = sentences(warnings)
    assert texts[-1] == f"and {900 - MOST_SENTENCES} more"
    assert len(texts) == MOST_SENTENCES + 1
    assert max(map(len, map(str, warnings))) < 1_000


@pytest.mark.parametrize("columns_of", [json_schema, avro, protobuf])
def test_a_path_that_is_longer_than_any_name_of_a_column_is_refused(columns_of: Columns) -> None:
    with pytest.raises(SchemaTooLarge, match=r"the path of a column has 4,00. characters, and 4,000 are allowed"):
        columns_of(4, [])


def test_a_path_of_a_ddl_has_the_same_bound() -> None:
    ddl = f"{NAME} struct<a: struct<{NAME}: struct<{NAME}: struct<{NAME}: int>>>>"
    with pytest.raises(ConfigError, match="the path of a column has"):
        parse_ddl(ddl, bounds=BOUNDS)


def test_a_long_reason_is_cut() -> None:
    warnings: list[SchemaWarning] = []
    schema = {"type": "object", "properties": {"a": {"$ref": "r" * 100_000}}}
    columns_of_json_schema(RegisteredSchema(7, "JSON", json.dumps(schema)), warnings, BOUNDS)
    assert len(str(warnings[0])) < 1_000


def test_each_warning_of_each_sink_is_logged_once_however_often_the_registry_is_asked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_spec, "_LOGGED", {})
    by_sink = {f"sink{number}": [f"{number} {text}" for text in sentences(["x"] * 60)] for number in range(100)}
    for _ in range(3):
        for sink, warnings in by_sink.items():
            row_spec._log(sink, list(dict.fromkeys(warnings)))
    assert len(caplog.records) == 200
    row_spec._log("sink0", [*by_sink["sink0"], "another"])
    assert [record.getMessage() for record in caplog.records[200:]] == ["another"]
