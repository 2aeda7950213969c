"""Topics of several record types: a row is never half of a record of another type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T
from test_record_formats import ACCESS, LocalRegistry, avro, decode, framed, reasons

from coordination.errors import ConfigError
from sink.config import Settings
from sink.decode import formats
from sink.decode.registry.client import RegisteredSchema
from sink.infer.record_types import select_message
from sink.schema.table_schema import TableSchema
from sink.write.rows import row_spec
from tests.unit.change_kit import settings_of

PLACED = {
    "type": "record",
    "name": "OrderPlaced",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": ["null", "double"], "default": None}],
}
CANCELLED = {
    "type": "record",
    "name": "OrderCancelled",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "reason", "type": "string"}],
}
RENAMED = {**PLACED, "name": "Placed", "aliases": ["OrderPlaced"]}
WITHOUT_TOTAL = {**PLACED, "fields": PLACED["fields"][:1]}
ELSEWHERE = {**CANCELLED, "fields": [{"name": "at", "type": "long"}]}
TWO_MESSAGES = (
    'syntax = "proto3"; package shop; message Address { string street = 1; }'
    " message Order { int64 id = 1; Address to = 2; message Line { int64 id = 1; } }"
)
ONE_MESSAGE = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'
PLACED_VALUE = framed(1, avro(PLACED, id=1, total=9.5))
CANCELLED_VALUE = framed(2, avro(CANCELLED, id=1, reason="late"))


@pytest.fixture(autouse=True)
def local_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = dict(enumerate((PLACED, CANCELLED, RENAMED, WITHOUT_TOTAL, ELSEWHERE), 1))
    texts: dict[str, Any] = {f"n{number}": ("AVRO", json.dumps(schema)) for number, schema in schemas.items()}
    registry = LocalRegistry(**texts, n9=("PROTOBUF", TWO_MESSAGES))
    monkeypatch.setattr(formats, "registry", lambda _: registry)


def test_a_record_of_another_type_is_bad_with_both_names() -> None:
    decoded = decode(
        "avro-confluent",
        [PLACED_VALUE, CANCELLED_VALUE],
        ddl="id bigint, total double",
        access=ACCESS,
        types=("shop.OrderPlaced",),
    )
    assert decoded.rows.to_pylist() == [{"id": 1, "total": 9.5}]
    (reason,) = reasons(decoded).values()
    assert "it is of type shop.OrderCancelled, and the table takes shop.OrderPlaced" in reason
    assert "schema.types" in reason


def test_all_listed_types_land() -> None:
    decoded = decode(
        "avro-confluent",
        [PLACED_VALUE, CANCELLED_VALUE],
        ddl="id bigint, total double, reason string",
        access=ACCESS,
        types=("shop.OrderPlaced", "shop.OrderCancelled"),
    )
    assert decoded.rows.to_pylist() == [
        {"id": 1, "total": 9.5, "reason": None},
        {"id": 1, "total": None, "reason": "late"},
    ]


@pytest.mark.parametrize(
    ("ddl", "schema_id", "bad"),
    [
        ("id bigint, total double", 1, ""),
        ("id bigint, ToTaL double", 1, ""),
        ("id bigint", 2, ""),
        ("id bigint, total double", 4, ""),
        ("id bigint, total double, reason string", 2, ""),
        ("id bigint, total double", 2, "no field for the column 'total', and no column has its field 'reason'"),
        ("id bigint, total double", 5, "no field for the column 'id' and 1 more, and no column has its field 'at'"),
        ("total double", 4, "no field for the column 'total', and no column has its field 'id'"),
    ],
)
def test_where_nothing_names_a_type_a_record_that_would_be_half_a_row_is_bad(
    ddl: str, schema_id: int, bad: str
) -> None:
    schema = {1: PLACED, 2: CANCELLED, 4: WITHOUT_TOTAL, 5: ELSEWHERE}[schema_id]
    fields = {"id": 1, "total": 1.5, "reason": "late", "at": 5}
    value = avro(schema, **{field["name"]: fields[field["name"]] for field in schema["fields"]})
    decoded = decode("avro-confluent", [framed(schema_id, value)], ddl=ddl, access=ACCESS)
    assert decoded.rows.num_rows == (0 if bad else 1)
    assert bad in "".join(reasons(decoded).values())


def test_a_message_of_another_index_is_of_another_type() -> None:
    address, order = b"\0\x0a\x01x", b"\x02\x02\x08\x05"
    nested = b"\x04\x02\x00\x08\x05"
    values = [framed(9, value) for value in (address, order, nested)]
    decoded = decode("protobuf-confluent", values, ddl="id bigint", access=ACCESS, types=("shop.Order",))
    assert decoded.rows.to_pylist() == [{"id": 5}]
    reason_at = reasons(decoded)
    assert "it is of type shop.Address, and the table takes shop.Order" in reason_at[0]
    assert "it is of type shop.Order.Line" in reason_at[2]


def protobuf(text: str) -> RegisteredSchema:
    return RegisteredSchema(9, "PROTOBUF", text)


def test_the_message_of_the_columns_is_named_or_the_only_one() -> None:
    assert select_message(protobuf(ONE_MESSAGE), None, ()).message == "shop.Order"
    assert select_message(protobuf(TWO_MESSAGES), None, ("shop.Order",)).message == "shop.Order"
    assert select_message(protobuf(TWO_MESSAGES), "shop.Order.Line", ()).message == "shop.Order.Line"
    for types in ((), ("shop.Order", "shop.Address")):
        with pytest.raises(
            ConfigError, match=r"schema id 9 has the messages shop\.Address, shop\.Order\. Set value\.me"
        ):
            select_message(protobuf(TWO_MESSAGES), None, types)


class Subject:
    def __init__(self, schema: RegisteredSchema) -> None:
        self._schema = schema

    def latest(self, _: str) -> RegisteredSchema:
        return self._schema


def subject_settings(directory: Path, form: str, **more: str) -> Settings:
    return settings_of(
        directory,
        schema__ddl="",
        schema__subject="orders-value",
        schema__registry__url="http://registry:8081",
        value__format=form,
        write__operation="",
        record__key__fields="",
        **more,
    )


@pytest.mark.parametrize(
    ("schema", "more", "types"),
    [
        (RegisteredSchema(1, "AVRO", json.dumps(PLACED)), {}, ("shop.OrderPlaced",)),
        (RegisteredSchema(1, "AVRO", json.dumps(RENAMED)), {}, ("shop.Placed", "shop.OrderPlaced")),
        (
            RegisteredSchema(1, "AVRO", json.dumps(PLACED)),
            {"schema__types": "shop.OrderPlaced, shop.OrderCancelled"},
            ("shop.OrderPlaced", "shop.OrderCancelled"),
        ),
        (protobuf(ONE_MESSAGE), {}, ("shop.Order",)),
        (protobuf(TWO_MESSAGES), {"value__message": "shop.Order"}, ("shop.Order",)),
        (protobuf(TWO_MESSAGES), {"schema__types": "shop.Order"}, ("shop.Order",)),
        (RegisteredSchema(1, "JSON", '{"properties": {"id": {"type": "integer"}}}'), {}, ()),
    ],
)
def test_the_newest_schema_of_the_subject_names_the_types_that_land(
    schema: RegisteredSchema,
    more: dict[str, str],
    types: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_spec, "registry", lambda _: Subject(schema))
    settings = subject_settings(tmp_path, f"{schema.kind.lower()}-confluent", **more)
    table = row_spec.table_schema(settings.table, settings.records)
    assert table.types == types
    spec = row_spec.spec_of(settings.table, settings.records, table)
    assert spec.format.types == types
    # A transaction carries them, whatever was newest when its worker started.
    older = TableSchema(table.value_struct, types=("shop.Older",))
    assert spec.of_schema(older.with_columns(table.columns_json)).format.types == types
    assert T.StructType.fromJson(json.loads(table.columns_json)) == table.value_struct


def test_a_subject_of_a_type_that_is_not_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_spec, "registry", lambda _: Subject(RegisteredSchema(1, "AVRO", json.dumps(PLACED))))
    settings = subject_settings(tmp_path, "avro-confluent", schema__types="shop.OrderCancelled")
    with pytest.raises(ConfigError, match=r"is of type shop\.OrderPlaced, which schema\.types does not list"):
        row_spec.table_schema(settings.table, settings.records)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"value__format": "json", "schema__types": "a.B"},
            "schema.types is for avro-confluent",
        ),
        ({"value__format": "json", "value__message": "a.B"}, "value.format=json has no use for value.message"),
        (
            {
                "value__format": "protobuf-confluent",
                "schema__registry__url": "http://registry:8081",
                "value__message": "a.B",
                "schema__types": "a.C",
            },
            "schema.types does not list the message of value.message",
        ),
        ({"value__format": "json", "schema__types": "a b"}, "which cannot be the full name of a record"),
    ],
)
def test_types_and_messages_are_for_formats_that_name_them(more: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence.replace(".", r"\.")):
        settings_of(tmp_path, write__operation="", record__key__fields="", **more)
