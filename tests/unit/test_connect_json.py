"""JSON as Kafka Connect's JsonConverter writes it: envelopes, their schemas, and keys that are not objects."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sink.audit.decode.json_values import json_row
from sink.audit.decode.rules import Bad, Rules
from sink.decode.formats import ValueFormat
from sink.decode.json.connect_json import ConnectDecoder
from sink.schema.table_schema import parse_ddl
from tests.columns_kit import columns
from tests.unit.change_kit import changes_of, separated, settings_of

MANY = 300
"""So many values take the fast path."""
MOMENT = datetime(2024, 5, 6, 7, 8, tzinfo=timezone.utc)


def schema(*fields: tuple[str, str, str] | tuple[str, str, str, str]) -> dict[str, Any]:
    """Returns a schema of fields with name, type, logical name and scale."""
    parts = [
        {"field": name, "type": kind, "name": logical, "parameters": {"scale": scale[0]} if scale else {}}
        for name, kind, logical, *scale in fields
    ]
    return {"type": "struct", "fields": parts, "optional": False, "name": "shop.Order"}


ORDER = schema(
    ("id", "int64", ""),
    ("at", "int64", "io.debezium.time.MicroTimestamp"),
    ("day", "int32", "org.apache.kafka.connect.data.Date"),
    ("amount", "bytes", "org.apache.kafka.connect.data.Decimal", "2"),
)
DDL = "id bigint, at timestamp, day date, amount decimal(20,4)"
PAYLOAD = {"id": 1, "at": 1714979280000000, "day": 19849, "amount": "AeJA"}
ROW = {"id": 1, "at": MOMENT, "day": date(2024, 5, 6), "amount": Decimal("1234.5600")}


def written(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def wrapped(payload: object, by: object = ORDER) -> bytes:
    return written({"schema": by, "payload": payload})


def decoded(ddl: str, values: list[bytes | None], takes_bare: bool = False) -> tuple[list[dict[str, Any]], list[int]]:
    found = ConnectDecoder(columns(ddl), takes_bare).decode(pa.array(values, pa.binary()))
    return found.rows.to_pylist(), [bad.index for bad in found.bad]


def test_a_payload_is_read_by_the_schema_beside_it() -> None:
    assert decoded(DDL, [wrapped(PAYLOAD)] * MANY) == ([ROW] * MANY, [])
    assert decoded(DDL, [wrapped(PAYLOAD), written(PAYLOAD)]) == ([ROW], [1])


def test_values_of_several_schemas_keep_their_order_among_those_without() -> None:
    millis = schema(("id", "int64", ""), ("at", "int64", "org.apache.kafka.connect.data.Timestamp"))
    values = [
        wrapped({"id": 0, "at": 1714979280000}, millis),
        written({"id": 1, "at": "2024-05-06T07:08:00Z"}),
        wrapped({"id": 2, "at": 1714979280000000}),
        wrapped({"id": 3, "at": 1714979280000}, millis),
    ]
    values += [wrapped({"id": 4 + number, "at": 1714979280000}, {**millis, "version": number}) for number in range(40)]
    rows, bad = decoded("id bigint, at timestamp", values)
    assert rows == [{"id": number, "at": MOMENT} for number in range(len(values))]
    assert not bad


@pytest.mark.parametrize(
    "value",
    [
        b'{"schema":null,"payload":{"id":7}}',
        b'{"schema":{"type":"struct"},"payload":{"id":7}}',
        b' { "schema" : {"type":"struct"} ,\n "payload" : {"id":7} }\r\n',
        b'{"id":7}',
    ],
)
def test_an_envelope_with_blanks_or_without_fields_is_one(value: bytes) -> None:
    assert decoded("id bigint", [value, *[wrapped({"id": 7})] * MANY]) == ([{"id": 7}] * (MANY + 1), [])


def test_what_has_other_members_or_another_schema_is_the_record_itself() -> None:
    schemas = [b'"v1"', b'{"type":"table"}', b'{"type":["object","null"]}', b'{"type":{}}', b'{"type":1}', b"{}"]
    values = [b'{"schema":%s,"payload":"x"}' % schema for schema in schemas]
    assert decoded("payload string", values) == ([{"payload": "x"}] * len(values), [])


def test_a_member_after_the_payload_makes_the_value_a_row_of_its_own() -> None:
    values = [b'{"schema":null,"payload":{"id":1},"id":2}', b'{"schema":null,"payload":{"id":3}}']
    two = b'{"schema":null,"payload":{"id":4}} {"id":5}'
    rows, bad = decoded("id int", [*values, two])
    assert rows == [{"id": 2}, {"id": 3}]
    assert bad == [2]


@pytest.mark.parametrize("schemas", [1, 9, 200])
def test_each_of_many_schemas_reads_its_own_values(schemas: int) -> None:
    units = [("Timestamp", 1714979280000), ("MicroTimestamp", 1714979280000000), ("NanoTimestamp", 1714979280000000000)]
    decoder = ConnectDecoder(columns("id bigint, at timestamp"))
    for first in (0, 7):
        values = []
        for number in range(400):
            tenant = (first + number) % schemas
            name, count = units[tenant % 3]
            by = schema(("id", "int64", ""), ("at", "int64", f"io.debezium.time.{name}"))
            values.append(wrapped({"id": number, "at": count}, {**by, "name": f"tenant_{tenant}.Value"}))
        found = decoder.decode(pa.array(values, pa.binary()))
        assert found.rows.to_pylist() == [{"id": number, "at": MOMENT} for number in range(400)]


def test_a_schema_with_more_levels_than_a_value_may_have_makes_it_bad() -> None:
    for levels, expected in ((490, []), (498, []), (499, [0]), (600, [0]), (5000, [0])):
        deep = b'{"type":"array","items":' * levels + b"{}" + b"}" * levels
        value = b'{"schema":{"type":"struct","fields":[],"x":%s},"payload":{"id":1}}' % deep[24:-1]
        assert decoded("id bigint", [value])[1] == expected, levels
        try:
            json_row(value, json.loads(parse_ddl("id bigint").value_struct.json()), Rules())
            audited = []
        except Bad:
            audited = [0]
        assert audited == expected, levels


def test_where_the_table_has_both_columns_nothing_is_an_envelope() -> None:
    rows, bad = decoded("schema string, payload string", [wrapped({"id": 1}, {"type": "struct"})])
    assert rows == [{"schema": '{"type":"struct"}', "payload": '{"id":1}'}]
    assert not bad


def test_a_column_named_payload_is_found_in_the_payload() -> None:
    assert decoded("id bigint, payload string", [wrapped({"id": 1, "payload": "x"})]) == (
        [{"id": 1, "payload": "x"}],
        [],
    )


@pytest.mark.parametrize("value", [None, b"null", b'{"schema":null,"payload":null}', wrapped(None)])
@pytest.mark.parametrize("form", ["json", "json-confluent"])
def test_each_kind_of_null_is_a_tombstone(form: str, value: bytes | None) -> None:
    decoder = ValueFormat(form).decoder(columns("id bigint").struct)
    header = b"\x00\x00\x00\x00\x01" if form == "json-confluent" else b""
    values = [value, b'{"id":null}', wrapped({"id": None}), b'"null"']
    framed = pa.array([each if each is None else header + each for each in values], pa.binary())
    assert decoder.nulls(framed).tolist() == [True, False, False, False]
    assert 0 in [bad.index for bad in decoder.decode(framed).bad]


def test_a_value_that_ends_in_the_middle_of_its_envelope_is_bad() -> None:
    cut = [
        wrapped(PAYLOAD)[:-1],
        wrapped(PAYLOAD)[:-2],
        wrapped(PAYLOAD) + b"}",
        b'{"schema":{"type":"struct"},"payload":}',
    ]
    assert decoded(DDL, [wrapped(PAYLOAD), *cut]) == ([ROW], [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'"A-17"', "A-17"),
        (b"7", "7"),
        (b'{"id":"x"}', "x"),
        (wrapped("B", {"type": "string"}), "B"),
        (wrapped({"id": "C"}), "C"),
    ],
)
def test_a_key_that_is_no_object_is_the_one_field(value: bytes, key: str) -> None:
    assert decoded("id string", [value], takes_bare=True) == ([{"id": key}], [])


@pytest.mark.parametrize("value", [b'1,"id":2', b"", b"[1]", b"null", b'"\\ud800"', b"x", b'"a" "b"'])
def test_a_key_that_is_no_json_document_or_no_scalar_is_bad(value: bytes) -> None:
    assert decoded("id string", [value], takes_bare=True) == ([], [0])


def test_a_change_event_is_bad_where_it_fills_no_column_of_the_table() -> None:
    event = {"before": None, "after": {"id": 1}, "source": {}, "op": "c", "ts_ms": 5}
    values = [written(event), wrapped(event, {"type": "struct"}), b'{"other":1}', b'{"id":1}']
    assert decoded("id bigint, ts_ms bigint", values) == (
        [{"id": None, "ts_ms": None}, {"id": 1, "ts_ms": None}],
        [0, 1],
    )
    assert decoded("op string, ts_ms bigint", values)[1] == []


def test_keys_and_tombstones_in_envelopes_delete_rows(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, delete__key__format="json", schema__ddl="id bigint, name string")
    key = {"schema": {"type": "int64"}, "payload": 1}
    records = [(key, wrapped({"id": 1, "name": "a"}).decode()), (key, wrapped(None).decode()), ("2", None)]
    changes = changes_of(settings, records)
    assert [(change["id"], change["_hoodie_is_deleted"]) for change in changes] == [(1, False), (1, True), (2, True)]


@pytest.mark.parametrize(
    ("form", "key", "reason"),
    [
        ("string", b'"A-17"', "delete.key.format=json"),
        ("string", b'{"id":"A-17"}', "delete.key.format=json"),
        ("string", (17).to_bytes(8, "big"), "delete.key.format to long or int"),
        ("long", (17).to_bytes(4, "big"), "it has 4 bytes, and a number of 8 is needed"),
        ("int", b"A-17x", "it has 5 bytes"),
    ],
)
def test_a_key_that_would_delete_nothing_is_bad_and_says_why(
    tmp_path: Path, form: str, key: bytes, reason: str
) -> None:
    settings = settings_of(tmp_path, delete__key__format=form, schema__ddl="id string")
    _, (bad,) = separated(settings, [(key, None)])
    assert reason in bad.reason


@pytest.mark.parametrize(("form", "size"), [("int", 4), ("long", 8)])
@pytest.mark.parametrize("column", ["bigint", "int", "string"])
def test_numbers_of_kafkas_serializers_are_keys(tmp_path: Path, form: str, size: int, column: str) -> None:
    settings = settings_of(tmp_path, delete__key__format=form, schema__ddl=f"id {column}")
    changes = changes_of(settings, [((-17).to_bytes(size, "big", signed=True), None)])
    assert [str(change["id"]) for change in changes] == ["-17"]
