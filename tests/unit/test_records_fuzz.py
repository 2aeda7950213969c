"""One record, one meaning: the fast path, the reference and the auditor's decoder are compared with each other."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_cases import NOT_NUMBERS, NUMBERS, TEXTS, TIMES, Cases, envelope, sent
from pyspark.sql import types as T

from sink.audit.decode.json_values import json_row
from sink.audit.decode.rules import Bad, Rules
from sink.decode.fields import NO_RULES, Choices, ValueRules
from sink.decode.json.columns import FastParser
from sink.decode.json.connect_json import ConnectDecoder
from sink.decode.json.records import JsonDecoder
from sink.decode.json.values import record_decoder
from sink.schema.table_schema import TableSchema, parse_ddl
from tests.columns_kit import columns

FLAT = (
    "bo boolean, b tinyint, sh smallint, i int, l bigint, f float, d double, dec decimal(10,2), big decimal(38,10),"
    " s string, bin binary, dt date, ts timestamp"
)
NESTED = (
    "s string, a array<int>, ts array<timestamp>, st struct<x: int, y: string, z: struct<d: date, dec: decimal(10,2)>>,"
    " rows array<struct<k: string, v: double, b: binary>>, deep array<array<float>>"
)
ALIKE = "ID bigint, X struct<id: int, Y: struct<x: string>>, y array<struct<Id: double>>"
"""Names that differ in case only, on several levels."""
MAPS = "m map<string, int>, n map<string, struct<x: date>>, i int"
RULES = {
    "no rules": (NO_RULES, Rules()),
    "digits": (
        ValueRules(Choices("ms"), Choices("days"), Choices("numeric"), rounds=True),
        Rules({"": "ms"}, {"": "days"}, {"": "numeric"}, rounds=True),
    ),
    "base64": (
        ValueRules(Choices("s"), Choices("ms"), Choices("base64"), infinity="null"),
        Rules({"": "s"}, {"": "ms"}, {"": "base64"}, infinity="null"),
    ),
    "one column": (
        ValueRules(
            Choices("ns", (("ts", "us"), ("st.z.d", "ms"))),
            Choices("us", (("dt", "ns"), ("st.z.d", "s"))),
            infinity="bound",
        ),
        Rules({"": "ns", "ts": "us", "st.z.d": "ms"}, {"": "us", "dt": "ns", "st.z.d": "s"}, infinity="bound"),
    ),
    "exact case": (ValueRules(exact_case=True), Rules(exact_case=True)),
}
SCHEMAS = {name: parse_ddl(ddl) for name, ddl in {"flat": FLAT, "nested": NESTED, "alike": ALIKE, "maps": MAPS}.items()}


def decode_alone(decoder: JsonDecoder, value: bytes | None) -> tuple[list[dict[str, Any]], str]:
    decoded = decoder.decode(pa.array([value], pa.binary()))
    return python_rows(decoded.rows), decoded.bad[0].reason if decoded.bad else ""


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns rows as Python values; dates and times as numbers, for Python's own end with the year 9999."""
    numeric_schema = pa.schema([(field.name, counted_type(field.type)) for field in rows.schema])
    return rows.cast(numeric_schema).to_pylist()


def counted_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, counted_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, counted_type(kind.value_type)))
    return pa.map_(kind.key_type, counted_type(kind.item_type)) if pa.types.is_map(kind) else kind


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself."""
    return repr(left).replace("-0.0", "0.0") == repr(right).replace("-0.0", "0.0")


@pytest.mark.parametrize("name", SCHEMAS)
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 8)
def test_the_result_depends_neither_on_batches_nor_on_the_path(name, seed):
    random, schema = Random(seed), SCHEMAS[name]
    cases = Cases(random, schema.value_struct)
    values = [cases.value() if random.random() < 0.3 else cases.plain() for _ in range(120)]
    decoder = JsonDecoder(columns(schema))
    together = decoder.decode(pa.array(values, pa.binary()))
    alone = [decode_alone(decoder, value) for value in values]
    assert same(python_rows(together.rows), [row for rows, _ in alone for row in rows])
    assert [(bad.index, bad.reason) for bad in together.bad] == [(at, bad) for at, (_, bad) in enumerate(alone) if bad]


@pytest.mark.parametrize("name", ["flat", "nested"])
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 5)
def test_whatever_the_fast_path_takes_the_reference_takes_with_the_same_value(name, seed):
    schema = SCHEMAS[name]
    cases, fast, slow = (
        Cases(Random(seed), schema.value_struct),
        FastParser(columns(schema)),
        record_decoder(columns(schema)),
    )
    taken_count = 0
    for value in (cases.value() for _ in range(60)):
        rows = fast.parse(pa.array([value], pa.binary()))
        if rows is None:
            continue
        expected = pa.RecordBatch.from_pylist([slow(value)], schema=schema.stored_arrow)
        assert same(python_rows(rows), python_rows(expected)), value
        taken_count += 1
    assert taken_count > 0


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("rules", RULES)
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 10)
def test_the_auditor_reads_each_value_alike_or_both_refuse_it(name, rules, seed):
    ours, auditors = RULES[rules]
    schema = SCHEMAS[name]
    cases = Cases(Random(seed), schema.value_struct)
    compare_with_the_auditor(schema, ours, auditors, [cases.value() for _ in range(100)])


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("rules", RULES)
@example(seed=43878630)
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 10)
def test_the_auditor_reads_each_envelope_of_connects_alike_or_both_refuse_it(name, rules, seed):
    ours, auditors = RULES[rules]
    schema, rnd = SCHEMAS[name], Random(seed)
    cases = Cases(rnd, schema.value_struct)
    envelopes = [envelope(rnd, schema.value_struct) for _ in range(rnd.choice([1, 3, 20]))]
    payloads = [json.dumps(sent(rnd, schema.value_struct)).encode() for _ in range(150)]
    values = [rnd.choice(envelopes).replace(b"PAYLOAD", payload) for payload in payloads]
    values += [rnd.choice(envelopes).replace(b"PAYLOAD", cases.value()) for _ in range(30)]
    compare_with_the_auditor(schema, ours, auditors, values + [cases.value() for _ in range(10)])


@pytest.mark.parametrize("rules", RULES)
def test_the_auditor_reads_every_odd_number_text_and_time_alike(rules):
    ours, auditors = RULES[rules]
    columns_of_texts = {
        "d": NUMBERS + NOT_NUMBERS + TEXTS,
        "f": NUMBERS + NOT_NUMBERS,
        "dec": NUMBERS + NOT_NUMBERS + TEXTS,
        "s": NUMBERS + TEXTS + [f'{{"x":[{text}]}}' for text in NUMBERS + TEXTS],
        "i": NUMBERS + NOT_NUMBERS,
        "unknown": NUMBERS + NOT_NUMBERS,
    }
    moments = [*map(json.dumps, TIMES), *NUMBERS]
    columns_of_texts |= {"ts": moments, "dt": moments}
    values = [f'{{"{name}":{text}}}'.encode() for name, texts in columns_of_texts.items() for text in texts]
    compare_with_the_auditor(SCHEMAS["flat"], ours, auditors, values)


def compare_with_the_auditor(schema: TableSchema, rules: ValueRules, auditors: Rules, values: list[bytes]) -> None:
    decoded = ConnectDecoder(columns(schema, rules)).decode(pa.array(values, pa.binary()))
    refused, rows = {bad.index: bad.reason for bad in decoded.bad}, iter(decoded.rows.to_pylist())
    declared = json.loads(schema.value_struct.json())
    for at, value in enumerate(values):
        audited, reason = audited_row(value, declared, auditors)
        assert (audited is None) == (at in refused), (value, audited, reason, refused.get(at))
        if audited is None:
            continue
        row = next(rows)
        assert same_row(row, audited, schema.value_struct), (value, row, audited)


def audited_row(value: bytes, declared: Any, rules: Rules) -> tuple[dict[str, Any] | None, str]:
    try:
        return json_row(value, declared, rules), ""
    except Bad as error:
        return None, str(error)


def same_row(row: Any, audited: Any, kind: T.DataType) -> bool:
    """Whether Arrow's value is the auditor's: maps are pairs in Arrow."""
    if row is None or audited is None:
        return row is audited
    if isinstance(kind, T.StructType):
        return all(same_row(row[field.name], audited[field.name], field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return len(row) == len(audited) and all(map(partial(same_row, kind=kind.elementType), row, audited))
    if isinstance(kind, T.MapType):
        return [*dict(row)] == [*audited] and all(
            same_row(value, audited[key], kind.valueType) for key, value in dict(row).items()
        )
    if isinstance(row, float):
        return struct.pack("<d", row) == struct.pack("<d", audited) or (row != row and audited != audited)
    return bool(row == audited and type(row) is type(audited))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the value is null (a tombstone)"),
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        (b"x", "not one JSON document"),
        (b"null", "the value is null (a tombstone)"),
        (b"[]", "a JSON object is needed, found an array"),
        (b'"a"', "found the string 'a'"),
        (b'{"l":1}{"l":2}', "goes on after one JSON document"),
        (b'{"l":1}\n{"l":2}', "goes on after one JSON document"),
        (b'{"l":1},', "goes on after one JSON document"),
        (b'{"l":1', "not one JSON document"),
        (b"{'l':1}", "not one JSON document"),
        (b'\xef\xbb\xbf{"l":1}', "it begins with a byte order mark"),
        (b'{"s":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"s":"\\ud800"}', "column 's': half a surrogate pair"),
        (b'{"s":"a\nb"}', "not one JSON document"),
        (b'{"l":1.5}', "column 'l': the number 1.5 is not whole, and bigint is needed"),
        (b'{"l":"1"}', "column 'l': the string '1' where bigint is needed"),
        (b'{"l":9223372036854775808}', "9223372036854775808 does not fit bigint"),
        (b'{"b":200}', "200 does not fit tinyint"),
        (b'{"dec":123456789.5}', "does not fit decimal(10,2)"),
        (b'{"dec":1e999999999}', "does not fit decimal(10,2)"),
        (b'{"dec":1e9999999999}', "does not fit decimal(10,2)"),
        (b'{"dec":"1"}', "the string '1' where a decimal is needed"),
        (b'{"dec":"1"}', "Set decimal.format to numeric"),
        (b'{"dec":0.145}', "Set decimal.rounding=half_up"),
        (b'{"dec":NaN}', "the number NaN where decimal(10,2) is needed"),
        (b'{"d":1e400}', "the number 1e400 does not fit double"),
        (b'{"d":Inf}', "not one JSON document"),
        (b'{"bo":1}', "column 'bo': the number 1 where boolean is needed"),
        (b'{"dt":"2023-02-29"}', "column 'dt'"),
        (
            b'{"dt":19000}',
            "Set date.unit to one of days, s, ms, us, ns; dates between 1970 and 2100: days (2022-01-08)",
        ),
        (
            b'{"ts":1714979280000}',
            "Set time.unit to one of s, ms, us, ns; dates between 1970 and 2100: ms (2024-05-06)",
        ),
        (b'{"ts":"T12:00:00"}', "is not a time"),
        (b'{"L":1,"l ":2,"Dt":null,"dT":null}', "column 'dt': the fields 'Dt' and 'dT' differ in case only"),
        (b'{"bin":"a"}', "not base64"),
        (b'{"l":' + b"9" * 5000 + b"}", "does not fit bigint"),
    ],
)
def test_a_bad_record_says_why_wherever_it_stands(value, reason):
    good = [b'{"l":%d}' % number for number in range(50)]
    decoded = JsonDecoder(columns(SCHEMAS["flat"])).decode(pa.array([*good, value, *good], pa.binary()))
    assert [bad.index for bad in decoded.bad] == [50]
    assert reason in decoded.bad[0].reason
    assert decoded.rows.column("l").to_pylist() == [*range(50), *range(50)]


def test_three_values_and_three_documents_shifted_are_not_three_records():
    values = [b'{"l":1}{"l":2}', b"", b'{"l":3}']
    decoded = JsonDecoder(columns(SCHEMAS["flat"])).decode(pa.array(values, pa.binary()))
    assert [bad.index for bad in decoded.bad] == [0, 1]
    assert decoded.rows.column("l").to_pylist() == [3]


def test_two_documents_cannot_make_up_for_two_values_that_are_one():
    values = [b'{"s":"x}', b'{"}', b'{"l":1}{"l":2}']
    decoded = JsonDecoder(columns(SCHEMAS["flat"])).decode(pa.array(values, pa.binary()))
    assert [bad.index for bad in decoded.bad] == [0, 1, 2]


@pytest.mark.parametrize("value", [b'{"id":null}', b"{}", b'{"id":1,"st":{"x":null}}', b'{"id":1,"st":{}}'])
def test_null_where_the_schema_says_not_null_is_a_bad_record(value):
    schema = parse_ddl("id bigint not null, st struct<x: int not null>")
    good = b'{"id":1,"st":{"x":1}}'
    decoded = JsonDecoder(columns(schema)).decode(pa.array([good, value, good], pa.binary()))
    assert [bad.index for bad in decoded.bad] == [1]
    assert "NOT NULL" in decoded.bad[0].reason


def test_decimals_take_no_detour_over_floats():
    value = b'{"big":1234567890123456789012345678.0123456789,"dec":0.15}'
    rows, _ = decode_alone(JsonDecoder(columns(SCHEMAS["flat"])), value)
    assert rows[0]["big"] == Decimal("1234567890123456789012345678.0123456789")
    assert rows[0]["dec"] == Decimal("0.15")


def test_a_record_of_ten_megabytes_and_500_levels_beside_the_columns_are_taken():
    long = b'{"s":"' + b"[" * 10_000_000 + b'"}'
    deep, too_deep = (b'{"u":' + b"[" * levels + b'"[{"' + b"]" * levels + b',"l":7}' for levels in (499, 500))
    decoded = JsonDecoder(columns(SCHEMAS["flat"])).decode(pa.array([long, deep, too_deep, long], pa.binary()))
    assert [(bad.index, bad.reason) for bad in decoded.bad] == [(2, "it is nested deeper than 500 levels")]
    assert [text and len(text) for text in decoded.rows.column("s").to_pylist()] == [10_000_000, None, 10_000_000]
    assert decoded.rows.column("l").to_pylist() == [None, 7, None]


def test_a_slice_of_a_larger_array_is_read_from_its_own_beginning():
    values = pa.array([b'{"l":%d}' % number for number in range(100)], pa.binary())
    assert JsonDecoder(columns(SCHEMAS["flat"])).decode(values.slice(40, 20)).rows.column("l").to_pylist() == [
        *range(40, 60)
    ]


def test_times_as_text_and_as_numbers_may_alternate():
    values = [b'{"ts":1700000000000}', b'{"ts":"2023-11-14T22:13:20Z"}'] * 40
    decoded = JsonDecoder(columns(SCHEMAS["flat"], ValueRules(Choices("ms")))).decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    assert len(set(decoded.rows.column("ts").to_pylist())) == 1


@pytest.mark.parametrize("copies", [1, 300])
@pytest.mark.parametrize(
    ("ddl", "value", "row"),
    [
        ("id bigint, n bigint", b'{"":5,"id":1}', {"id": 1, "n": None}),
        ("ID bigint, x struct<id: int>", b'{"id":7}', {"ID": 7, "x": None}),
        ("ID bigint, x struct<id: int>", b'{"Id":7,"x":{"ID":8}}', {"ID": 7, "x": {"id": 8}}),
        ("id bigint, s string", b'{"ID":7,"u":[{"S":1}]}', {"id": 7, "s": None}),
    ],
)
def test_a_member_fills_the_column_of_its_level_and_no_other(
    ddl: str, value: bytes, row: dict[str, Any], copies: int
) -> None:
    decoded = JsonDecoder(columns(ddl)).decode(pa.array([value] * copies, pa.binary()))
    assert decoded.rows.to_pylist() == [row] * copies


def test_an_empty_batch_has_the_columns():
    decoded = JsonDecoder(columns(SCHEMAS["flat"])).decode(pa.array([], pa.binary()))
    assert decoded.rows.schema == SCHEMAS["flat"].stored_arrow
    assert decoded.rows.num_rows == 0
