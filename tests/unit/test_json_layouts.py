"""The layout parser reads values of one layout by comparing bytes: each row it takes is the reference's."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_cases import NOT_NUMBERS, NUMBERS, TEXTS, TIMES
from pyspark.sql import types as T
from test_records_fuzz import RULES, decode_alone, python_rows, same

from sink.decode.fields import NO_RULES, ValueRules
from sink.decode.json import layouts as json_layouts
from sink.decode.json.layout import layout_of
from sink.decode.json.layouts import LayoutParser
from sink.decode.json.reasons import Undecodable
from sink.decode.json.records import JsonDecoder
from sink.decode.json.values import record_decoder
from sink.schema.table_schema import TableSchema, parse_ddl
from tests.columns_kit import columns

DDL = (
    "bo boolean, b tinyint, sh smallint, i int, l bigint, f float, d double, dec decimal(10,2), big decimal(38,10),"
    " s string, bin binary, dt date, ts timestamp, st struct<x: int, y: string, deep: struct<d: double, t: timestamp>>,"
    " a array<int>, m map<string, int>"
)
SCHEMA = parse_ddl(DDL)
ORDER = parse_ddl("id bigint not null, name string, amount double, open boolean")
ROWS = 300
"""More than the fewest values that the parser looks for a layout in."""
SPLICES = [
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "0",
    "-",
    ".",
    "e",
    " ",
    "\n",
    "\x00",
    "x",
    "é",
    '"a":1,',
    '","',
    ',"b":"',
]


class Producer:
    """Writes records as one program does: the same members, in the same order, with the same blanks."""

    def __init__(self, random: Random, is_odd: bool = False) -> None:
        """With `is_odd` times may be numbers, decimals texts, texts numbers, and names in another case."""
        self.random = random
        self.has_counts, self.has_texts, self.has_numbers = (is_odd and random.random() < 0.3 for _ in range(3))
        self.spell = random.choice((str.upper, str.title)) if is_odd and random.random() < 0.3 else str
        self.blanks = random.choice((("", ""), (" ", ""), (" ", " "), ("  ", " ")))
        fields = random.sample(SCHEMA.value_struct.fields[:-2], random.randint(1, 6))
        self.members: list[tuple[str, T.DataType | None]] = [(field.name, field.dataType) for field in fields]
        if random.random() < 0.5:
            self.members.insert(random.randint(0, len(fields)), (random.choice(("unknown", "é", "S", "")), None))

    def record(self, wild: float) -> bytes:
        text = self._object(self.members, wild)
        if self.random.random() < wild:
            at = self.random.randrange(len(text))
            text = text[:at] + self.random.choice(SPLICES) + text[at + self.random.randrange(2) :]
        return text.encode()

    def _object(self, members: list[tuple[str, T.DataType | None]], wild: float) -> str:
        after, before = self.blanks
        pairs = (
            f"{json.dumps(self.spell(name), ensure_ascii=False)}:{after}{self._value(kind, wild)}"
            for name, kind in members
        )
        return "{" + f"{before},{after}".join(pairs) + before + "}"

    def _value(self, kind: T.DataType | None, wild: float) -> str:
        if self.random.random() < wild:
            return self.random.choice(("null", *NUMBERS, *NOT_NUMBERS, *TEXTS, "true", "false", "[]", "{}"))
        if isinstance(kind, T.StructType):
            return self._object([(field.name, field.dataType) for field in kind.fields], wild)
        if isinstance(kind, T.BooleanType):
            return self.random.choice(("true", "false"))
        if self.has_counts and isinstance(kind, (T.DateType, T.TimestampType)):
            return str(self.random.choice((0, 1, -1, 19849, 1714979280, -1714979280123, 10**15, 10**18)))
        if self.has_numbers and isinstance(kind, T.StringType):
            return self.random.choice((*NUMBERS, "true", "false"))
        if self.has_texts and isinstance(kind, T.DecimalType):
            return json.dumps(self.random.choice(("1.5", "-20", "0.001", "1e1", "7", "1,5", "aGk=", "")))
        if isinstance(kind, (T.DateType, T.TimestampType)):
            usual = ("2024-02-29", "1969-12-31") if isinstance(kind, T.DateType) else ("2024-02-29T12:34:56Z",)
            return json.dumps(self.random.choice(TIMES if self.random.random() < wild else usual))
        if isinstance(kind, T.FractionalType):
            return self.random.choice(("0", "-0", "0.5", "-1.25", "12", "99999.99", "1e3", "2E-1", "-0.0", "0e1"))
        if isinstance(kind, T.BinaryType):
            return '"aGk="'
        if isinstance(kind, T.IntegralType):
            return str(self.random.choice((0, 1, -1, 7, -128, 127)))
        return json.dumps(
            self.random.choice(("", "a", "é", "😀", "{}", "a,b:c", "null", "1", "\x7f")), ensure_ascii=False
        )


@given(seed=st.integers(0, 2**64), wild=st.sampled_from((0.0, 0.01, 0.1)), rules=st.sampled_from([*RULES]))
@settings(max_examples=settings.default.max_examples // 3)
def test_whatever_is_taken_by_its_layout_is_what_the_reference_says(seed, wild, rules):
    random, (ours, _) = Random(seed), RULES[rules]
    producers = [Producer(random, is_odd=True) for _ in range(random.randint(1, 3))]
    parser = LayoutParser(columns(SCHEMA, ours))
    for _ in range(2):
        values = [random.choice(producers).record(wild) for _ in range(ROWS)]
        assert_as_the_reference(SCHEMA, values, taken_rows(parser, SCHEMA, values), ours)


@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 10)
def test_records_of_one_layout_are_all_taken(seed):
    producer = Producer(Random(seed))
    values = [producer.record(0) for _ in range(ROWS)]
    assert [position for _, position in taken_rows(LayoutParser(columns(SCHEMA)), SCHEMA, values)] == list(range(ROWS))


@given(seed=st.integers(0, 2**64), wild=st.sampled_from((0.01, 0.3)))
@settings(max_examples=settings.default.max_examples // 15)
def test_a_batch_gives_what_its_values_give_alone(seed, wild):
    random = Random(seed)
    producers = [Producer(random) for _ in range(3)]
    values: list[bytes | None] = [random.choice(producers).record(wild) for _ in range(ROWS)]
    values[random.randrange(ROWS)] = None
    assert_decoded_as_alone(SCHEMA, values)


@given(
    text=st.text(st.sampled_from("0123456789+-.eExXinfINFnatul_ \t,"), min_size=1, max_size=12), at=st.integers(0, 2)
)
@example(text="0x10", at=0)
@example(text="1 ", at=0)
@example(text="-", at=0)
@example(text="1.e5", at=1)
@example(text="1,2", at=0)
@settings(max_examples=settings.default.max_examples // 2)
def test_a_text_between_two_commas_is_a_number_only_as_json_spells_it(text, at):
    schema = parse_ddl("l bigint, d double, f float, dec decimal(10,2), ts timestamp")
    for column in ("l", "d", "f", "dec", "ts", "unknown"):
        usual = b'{"%s":1,"s":"x"}' % column.encode()
        assert_one_as_the_reference(schema, usual, f'{{"{column}":{text},"s":"x"}}'.encode(), at * 100)


@pytest.mark.parametrize("column", ["l", "d", "f", "dec", "ts", "bo", "s", "unknown"])
def test_no_byte_before_or_behind_or_in_a_bare_text_is_passed_over(column):
    schema = parse_ddl("l bigint, d double, f float, dec decimal(10,2), ts timestamp, bo boolean, s string")
    usual = {"bo": b"true", "s": b"null"}.get(column, b"12")
    form = b'{"%s":%%s,"x":"y"}' % column.encode()
    for code in range(256):
        byte = bytes([code])
        for odd in (byte + usual, usual + byte, usual[:1] + byte + usual[1:]):
            assert_one_as_the_reference(schema, form % usual, form % odd, 3)


@pytest.mark.parametrize("usual", [b'{"id":1,"name":"ab"}', b'{"x":"y", "amount" : 1.5, "st":{"name":"ab","u":null} }'])
def test_a_record_with_one_byte_changed_is_taken_only_for_what_it_is(usual):
    signs = [bytes([code]) for code in b'"\\{}[]:,0-.e nx\n\x1f\x7f\xff\xc3']
    for at in range(len(usual) + 1):
        assert_one_as_the_reference(ORDER, usual, usual[:at] + usual[at + 1 :], 3)
        for sign in signs:
            assert_one_as_the_reference(ORDER, usual, usual[:at] + sign + usual[at + 1 :], 3)
            assert_one_as_the_reference(ORDER, usual, usual[:at] + sign + usual[at:], 3)


def test_a_string_that_ends_a_record_does_not_swallow_more_members():
    values = [b'{"id":1,"name":"aaaaaaaaaaaa"}'] * ROWS
    values[4:6] = [b'{"id":1,"name":"a","x":"aaaa"}', b'{"id":1,"name":"a","open":"b"}']
    assert_decoded_as_alone(ORDER, values)


def test_every_number_is_read_as_the_reference_reads_it():
    random, schema = Random(1), parse_ddl("l bigint, i int, d double, f float")
    fractions = [repr(random.uniform(-1, 1) * 10.0 ** random.randint(-45, 38)) for _ in range(2000)]
    fractions += [f"{random.randint(0, 10**18)}.{random.randint(0, 10**18)}" for _ in range(500)] + NUMBERS
    singles = [f"{random.uniform(-1, 1) * 10 ** random.randint(0, 18):.{random.randint(1, 12)}f}" for _ in fractions]
    integers = [str(random.randint(-(2**31), 2**31 - 1) >> random.randrange(31)) for _ in fractions]
    values = [
        f'{{"l":{first},"i":{second},"d":{third},"f":{fourth}}}'.encode()
        for first, second, third, fourth in zip(integers, reversed(integers), fractions, singles, strict=True)
    ]
    rows = taken_rows(LayoutParser(columns(schema)), schema, values)
    assert len(rows) > 1000
    assert_as_the_reference(schema, values, rows)


def test_a_string_cannot_hold_a_layouts_text():
    # As many bytes and the same beginning and end, but other members, or a member more.
    usual = b'{"id":1,"name":"aaaaaaaaaaaaaaaaaaaaaaa","amount":1.5}'
    odd = [
        b'{"id":1,"name":"aaaaa","open":1,"n":"aa","amount":1.5}',
        b'{"id":1,"name":"aaaa\\"aaaaaaaaaaaaaaaaa","amount":1.5}',
        b'{"id":1,"name":"a","amount":2.5,"x":"aa","amount":1.5}',
        b'{"id":1,"name":"a","amount":1.5}',
        b'{"id":1,"name":"a"},"amount":1.5}',
        b'{"id":1}',
        b'{"id":1,"name":"',
        b'","amount":1.5}',
    ]
    values = [usual] * ROWS
    for number, value in enumerate(odd):
        values[10 * number + 5] = value
    assert_decoded_as_alone(ORDER, values)


def test_a_value_that_ends_early_does_not_borrow_the_next_ones_text():
    # Together the two are the layout twice, with its quotes.
    first, second = b'{"id":1,"name":"a"', b',"amount":1}{"id":1,"name":"a","amount":1}'
    values = [b'{"id":1,"name":"a","amount":1}'] * ROWS
    values[7:9] = [first, second]
    values[20:22] = [b'{"id":1,"name":"a","amount":1}{', b'"id":1,"name":"a","amount":1}']
    values[-2:] = [first, second]
    assert_decoded_as_alone(ORDER, values)


def test_a_bare_text_that_is_missing_is_no_value():
    values = [b'{"id":1,"amount":1}'] * ROWS
    values[5:8] = [b'{"id":,"amount":1}', b'{"id"1,"amount":1}', b'{"id":1,"amount":}']
    assert_decoded_as_alone(ORDER, values)


def test_the_texts_of_a_layout_cannot_overlap():
    values = [b'{"id": 1 , "amount": 1 }'] * ROWS
    values[5:8] = [b'{"id": , "amount": 1 }', b'{"id": 1 , "amount": }', b'{"id": 1 , "amount":}']
    assert_decoded_as_alone(ORDER, values)
    # Its last text would end before its first does.
    values = [b'{"open": true ,"x": {"y":{ "z": 1 }}}'] * ROWS
    values[-1] = b'{"open": true ,"x": {"y":{ "z": }}}'
    assert_decoded_as_alone(ORDER, values)


def test_null_where_the_schema_says_not_null_is_left_to_the_reference():
    values = [b'{"id":1,"name":"a"}'] * ROWS
    values[9] = b'{"id":null,"name":"a"}'
    decoded = JsonDecoder(columns(ORDER)).decode(pa.array(values, pa.binary()))
    assert [bad.index for bad in decoded.bad] == [9]
    assert "NOT NULL" in decoded.bad[0].reason


def test_layouts_by_turns_keep_their_order():
    forms = (b'{"id":%d,"name":"a"}', b'{"id":%d,"name":null}', b'{"name":"b","id":%d}', b'{"id":%d,"name":"\\u0061"}')
    values = [forms[number % len(forms)] % number for number in range(4 * ROWS)]
    parser = LayoutParser(columns(ORDER))
    assert len(taken_rows(parser, ORDER, values)) == 3 * ROWS
    decoded = JsonDecoder(columns(ORDER)).decode(pa.array(values, pa.binary()))
    assert decoded.rows.column("id").to_pylist() == list(range(4 * ROWS))
    assert decoded.rows.column("name").to_pylist() == ["a", None, "b", "a"] * ROWS


def test_one_record_that_does_not_fit_leaves_the_others_of_its_layout_taken():
    values = [b'{"id":%d,"amount":1.5}' % number for number in range(ROWS)]
    values[3] = b'{"id":99999999999999999999,"amount":1.5}'
    values[4] = b'{"id":4,"amount":01.5}'
    rows = taken_rows(LayoutParser(columns(ORDER)), ORDER, values)
    assert [position for _, position in rows] == [position for position in range(ROWS) if position not in (3, 4)]


def test_batches_without_a_layout_in_common_are_soon_left_alone(monkeypatch: pytest.MonkeyPatch):
    values = pa.array([b'{"id":1,"x%d":1}' % number for number in range(ROWS)], pa.binary())
    parser, inspected = LayoutParser(columns(ORDER)), []
    monkeypatch.setattr(json_layouts, "layout_of", lambda record: inspected.append(record))
    for _ in range(10):
        assert parser.parse(values) == []
    assert len(inspected) == 1


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{}",
        b"[1]",
        b'"a"',
        b' {"a":1}',
        b'{"a":1} ',
        b'{"a":1}x',
        b'{"a":1,}',
        b'{"a":1,"a":2}',
        b'{"a":[1]}',
        b'{"a":"\\n"}',
        b'{"\\u0061":1}',
        b'{"a":1',
        b'{"a"}',
        b'{"a":}',
        b'{"a":"b}',
        b"{a:1}",
        b'{"a":\t1}',
        b'{"a":' * 20 + b"1" + b"}" * 20,
        b'{"' + b"a" * 2000 + b'":1}',
    ],
)
def test_a_record_without_a_plain_layout_has_none(record):
    assert layout_of(record) is None


def test_a_layout_is_all_of_a_record_but_its_values():
    layout = layout_of(b'{"a":1, "b" : "x","c":{"d":null,"e":{}}}')
    assert layout is not None
    assert layout.texts == (b'{"a":', b', "b" : "', b'","c":{"d":', b',"e":{}}}')
    assert layout.quote_count == 12


def taken_rows(parser: LayoutParser, schema: TableSchema, values: list[bytes]) -> list[tuple[dict[str, Any], int]]:
    """Returns the rows that the parser took, each with its position, in order of position."""
    parts = parser.parse(pa.array(values, pa.binary()))
    rows = [pair for part in parts for pair in zip(python_rows(part.rows), part.positions.tolist(), strict=True)]
    for part in parts:
        part.rows.validate(full=True)
        assert part.rows.schema == schema.stored_arrow
        assert (np.diff(part.positions) > 0).all()
    assert len({position for _, position in rows}) == len(rows)
    return sorted(rows, key=lambda pair: pair[1])


def assert_as_the_reference(
    schema: TableSchema, values: list[bytes], rows: list[tuple[dict[str, Any], int]], rules: ValueRules = NO_RULES
) -> None:
    reference = record_decoder(columns(schema, rules))
    for row, position in rows:
        try:
            record = reference(values[position])
        except Undecodable as error:
            raise AssertionError(f"{values[position]!r} was taken, and is not a record: {error}") from error
        (expected,) = python_rows(pa.RecordBatch.from_pylist([record], schema=schema.stored_arrow))
        assert same(row, expected), values[position]


def assert_one_as_the_reference(schema: TableSchema, usual: bytes, odd: bytes, position: int) -> None:
    """Checks an odd value among usual ones: nothing but its own bytes can give it away."""
    values = [usual] * ROWS
    values[position] = odd
    for part in LayoutParser(columns(schema)).parse(pa.array(values, pa.binary())):
        for index in np.flatnonzero(part.positions == position).tolist():
            assert_as_the_reference(schema, values, [(python_rows(part.rows.slice(index, 1))[0], position)])


def assert_decoded_as_alone(schema: TableSchema, values: list[bytes | None]) -> None:
    decoder = JsonDecoder(columns(schema))
    together = decoder.decode(pa.array([b"", *values], pa.binary()).slice(1))
    decoded_by_value = {value: decode_alone(decoder, value) for value in values}
    alone = [decoded_by_value[value] for value in values]
    assert same(python_rows(together.rows), [row for rows, _ in alone for row in rows])
    assert [(bad.index, bad.reason) for bad in together.bad] == [(at, bad) for at, (_, bad) in enumerate(alone) if bad]
