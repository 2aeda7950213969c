"""`sink validate` tells which of a topic's last records are bad, and where fields and columns do not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from message_kit import record_columns
from settings_kit import minimal_settings

from sink.config import Settings
from sink.operations.check_results import CheckResult
from sink.operations.record_checks import _fields
from sink.operations.sampled_records import findings, look
from sink.write.rows.row_spec import spec_of, table_schema

UPSERT = {"write__operation": "upsert", "record__key__fields": "id", "delete__key__format": "json"}
EVENTS = {**UPSERT, "value__envelope": "debezium"}


def records_of(*values: Any, keys: tuple[Any, ...] = ()) -> pa.RecordBatch:
    """Returns records with these values, of which the first ones have keys."""
    return record_columns(*((dict(enumerate(keys)).get(offset), value) for offset, value in enumerate(values)))


def looked_at(settings: Settings, **topics: pa.RecordBatch) -> list[CheckResult]:
    spec = spec_of(settings.table, settings.records, table_schema(settings.table, settings.records))
    looks = [look(spec, topic, records, _fields(settings, spec, records)) for topic, records in topics.items()]
    return list(findings(looks, spec, settings.tolerant))


def told(settings: Settings, *values: Any, keys: tuple[Any, ...] = ()) -> list[str]:
    """Returns the sentences, each with its mark before it."""
    marks = {(False, False): "ok", (False, True): "note", (True, False): "wrong"}
    checks = looked_at(settings, orders=records_of(*values, keys=keys))
    return [f"{marks[check.wrong, check.note]}: {check.sentence}" for check in checks]


def test_records_that_fit_are_counted_and_nothing_else_is_said(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, name string")
    assert told(settings, {"id": 1, "name": "a"}, {"id": 2, "name": None}) == [
        "ok: topic orders: 2 records looked at, none is bad"
    ]


def test_bad_records_are_told_with_their_share_and_grouped_by_reason(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, at timestamp")
    values = [{"id": 1, "at": 1714979280000 + number} for number in range(3)]
    sentences = told(settings, {"id": 1, "at": "2024-05-06"}, *values, {"id": "x"}, {"id": "yy"}, b"{", b"")
    assert sentences[0] == "note: topic orders: 7 of 8 records (87.5%) are bad"
    assert [
        sentence.partition(": column")[0].partition(": not")[0].partition(": the")[0] for sentence in sentences[1:]
    ] == [
        "note: 3 records, the first at orders-0 offset 1",
        "note: 2 records, the first at orders-0 offset 4",
        "note: orders-0 offset 6",
        "note: orders-0 offset 7",
    ]
    assert "the number 1714979280000" in sentences[1]
    assert "Set time.unit to one of" in sentences[1]


def test_reasons_quote_values_only_if_the_sink_may(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint", errors__quote__values="false")
    sentences = told(settings, {"id": "secret"}, {"id": "other secret"}, {"id": 1})
    assert "2 records, the first at orders-0 offset 0: column 'id': a string of 6 characters where" in sentences[1]
    assert "secret" not in sentences[1]


@pytest.mark.parametrize(("tolerance", "mark"), [("none", "wrong"), ("all", "note")])
def test_a_topic_of_bad_records_only_is_wrong_unless_the_sink_goes_on(
    tmp_path: Path, tolerance: str, mark: str
) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint", errors__tolerance=tolerance)
    assert told(settings, {"id": "a"})[0] == f"{mark}: topic orders: 1 of 1 records (100.0%) are bad"


def test_more_reasons_than_fit_are_counted(tmp_path: Path) -> None:
    ddl = ", ".join(f"{name} bigint" for name in "abcdefgh")
    settings = minimal_settings(tmp_path, schema__ddl=ddl)
    sentences = told(settings, *({name: "x"} for name in "abcdefgh"), {"a": 1})
    assert sentences[6] == "note: topic orders: bad records have 3 other reasons"


def test_a_topic_whose_records_fill_no_column_is_wrong_and_its_fields_are_named(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="order_id bigint, item string")
    sentences = told(settings, {"orderId": 1, "sku": "a"}, {"orderId": 2})
    assert sentences[1:] == [
        "wrong: topic orders: 2 records fill no column. Their fields: orderId, sku. The columns: order_id, item."
        " Correct the columns, value.format or value.envelope."
    ]


def test_a_topic_that_fills_no_column_is_wrong_beside_one_that_does(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint", kafka__topic__names="orders, others")
    checks = looked_at(settings, orders=records_of({"id": 1}), others=records_of({"x": 1}))
    assert [check.sentence.partition(".")[0] for check in checks if check.wrong] == [
        "topic others: 1 records fill no column"
    ]


def test_fields_without_a_column_and_columns_without_a_field_are_named_nested_ones_too(tmp_path: Path) -> None:
    settings = minimal_settings(
        tmp_path, schema__ddl="id bigint, gone string, a struct<x: int, y: int>, l array<struct<x: int, y: int>>"
    )
    sentences = told(
        settings,
        {"id": 1, "more": {"z": 1}, "a": {"x": 1, "z": 2}, "l": [{"x": 1}, {"z": 1}]},
        {"id": 1, "more": None, "a": None, "l": None},
    )
    assert sentences[1:] == [
        "note: topic orders: fields without a column, with the number of records: more (2), a.z (1), l.z (1)",
        "note: columns that no record fills: gone, a.y, l.y",
    ]


def test_fields_of_another_name_than_their_column_have_one(tmp_path: Path) -> None:
    names = "id=order-id, message=meta.msgID"
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, message string", field__names=names)
    assert told(settings, {"order-id": 1, "meta": {"msgID": "m", "z": 1}})[1:] == [
        "note: topic orders: fields without a column, with the number of records: meta.z (1)"
    ]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("any", ["note: topic orders: names that differ in case only: field ID and column id"]),
        (
            "exact",
            [
                "note: topic orders: fields without a column, with the number of records: ID (1)",
                "note: topic orders: names that differ in case only: field ID and column id",
                "note: columns that no record fills: id",
            ],
        ),
    ],
)
def test_names_that_differ_in_case_only_are_named(tmp_path: Path, case: str, expected: list[str]) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, name string", field__case=case)
    assert told(settings, {"ID": 1, "name": "a"})[1:] == expected


def test_two_fields_that_differ_in_case_only_are_named(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, name string")
    assert told(settings, {"Id": 1, "ID": 1}, {"id": 1, "name": ""})[-1] == (
        "note: topic orders: names that differ in case only: field ID and column id, field Id and column id"
    )


def test_deletes_are_no_rows_without_values(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, name string", **UPSERT)
    deletes = (None, {"id": 2, "_hoodie_is_deleted": True})
    assert told(settings, *deletes, keys=({"id": 1},)) == ["ok: topic orders: 2 records looked at, none is bad"]
    assert told(settings, *deletes, {"id": 3}, keys=({"id": 1},))[1:] == ["note: columns that no record fills: name"]


def test_fields_of_a_change_event_are_those_of_its_row(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="id bigint, name string", **EVENTS)
    event = {"before": None, "after": {"id": 1, "Name": "a", "more": 1}, "source": {"lsn": 1}, "op": "c"}
    assert told(settings, event, {"schema": None, "payload": event}) == [
        "ok: topic orders: 2 records looked at, none is bad",
        "note: topic orders: fields without a column, with the number of records: more (2)",
        "note: topic orders: names that differ in case only: field Name and column name",
    ]


def test_fields_of_plain_avro_are_those_of_its_schema(tmp_path: Path) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "more", "type": "long"},
        {"name": "odd", "type": ["int", "string"]},
    ]
    (tmp_path / "order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    settings = minimal_settings(
        tmp_path, schema__ddl="id bigint, name string", value__format="avro", value__schema__file="order.avsc"
    )
    assert told(settings, bytes([2, 4, 0, 6])) == [
        "ok: topic orders: 1 records looked at, none is bad",
        "note: topic orders: fields without a column, with the number of records: more (1), odd (1)",
        "note: columns that no record fills: name",
    ]


def test_undecoded_values_have_neither_fields_nor_empty_columns(tmp_path: Path) -> None:
    settings = minimal_settings(tmp_path, schema__ddl="value string", value__format="string")
    assert told(settings, b"{}", None) == ["ok: topic orders: 2 records looked at, none is bad"]


def test_fields_of_json_behind_a_registrys_header_are_those_of_the_value(tmp_path: Path) -> None:
    settings = minimal_settings(
        tmp_path,
        schema__ddl="id bigint",
        value__format="json-confluent",
        schema__registry__url="http://registry",
    )
    by_id, by_guid = bytes([0, 0, 0, 0, 7]), bytes([1, *range(16)])
    assert told(settings, by_id + b'{"id":1,"more":1}', by_guid + b'{"id":1,"more":1}', b'{"id":1}') == [
        "note: topic orders: 1 of 3 records (33.3%) are bad",
        "note: orders-0 offset 2: its first byte is 123. A schema registry's header begins with 0 or 1. For values"
        " without a header, choose a format without -confluent.",
        "note: topic orders: fields without a column, with the number of records: more (2)",
    ]
