"""Protobuf messages as columns, judged by Google's own library: it makes the descriptors, and what it parses is right.

Where the two part on purpose a test says so: `test_what_googles_library_takes_and_this_does_not` and its neighbours.
"""

from __future__ import annotations

import random
import struct
import time
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protobuf_kit import (
    UTC,
    Field,
    Maker,
    Proto,
    ddl_of,
    decode_both,
    decode_one,
    equal_rows,
    library_result,
    read,
    sized,
    tag,
    varint,
)
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Cursors
from sink.decode.fields import Choices, ValueRules
from sink.decode.protobuf.columns import ProtobufReader
from sink.decode.protobuf.types import NestedMessages, as_decimal, decimal_of_bytes
from sink.decode.records import SchemaMismatch
from sink.schema.table_schema import stored_type
from tests.columns_kit import columns


@given(st.randoms(use_true_random=True))
def test_messages_of_any_type_in_any_encoding_are_what_the_library_makes_of_them(chance: random.Random) -> None:
    maker = Maker(chance)
    values = maker.values(60)
    rows, expected, kinds = decode_both(maker, values)
    for value, row, expected_row in zip(values, rows, expected, strict=True):
        assert equal_rows(row, expected_row, kinds), (maker.proto.file, value.hex(), row, expected_row)


@given(st.randoms(use_true_random=True))
def test_what_the_library_writes_is_read_as_it_was(chance: random.Random) -> None:
    maker = Maker(chance)
    values = [maker.type.FromString(value) for value in maker.values(50)]
    written = [value.SerializePartialToString() for value in values]
    rows, expected, kinds = decode_both(maker, written)
    assert all(equal_rows(row, expected_row, kinds) for row, expected_row in zip(rows, expected, strict=True))


@given(st.randoms(use_true_random=True))
def test_two_encodings_one_after_the_other_are_the_two_messages_merged(chance: random.Random) -> None:
    maker = Maker(chance)
    values = maker.values(80)
    merged = [first + second for first, second in zip(values[::2], values[1::2], strict=True)]
    rows, expected, kinds = decode_both(maker, merged)
    for value, row, expected_row in zip(merged, rows, expected, strict=True):
        assert equal_rows(row, expected_row, kinds), (maker.proto.file, value.hex(), row, expected_row)


@given(st.randoms(use_true_random=True))
def test_broken_bytes_are_refused_by_both_or_are_the_same_to_both(chance: random.Random) -> None:
    """But the library does not check text in proto2, cuts numbers of more than 64 bits, and steps over fields of
    number 0 in unknown groups. Elsewhere it refuses them too, which is tested case by case."""
    maker = Maker(chance, plain_only=True)
    values = []
    for value in maker.values(60):
        broken = bytearray(value)
        for _ in range(chance.randint(0, 2)):
            if broken:
                broken[chance.randrange(len(broken))] = chance.randrange(256)
        values.append(bytes(broken[: chance.randint(0, len(broken))] if chance.random() < 0.5 else broken))
    rows, expected, kinds = decode_both(maker, values)
    for value, row, expected_row in zip(values, rows, expected, strict=True):
        stricter = row == "a text that is not UTF-8" and maker.syntax == "proto2"
        if not stricter and row not in ("a number of more than 64 bits", "its bytes are not a Protobuf field"):
            assert equal_rows(row, expected_row, kinds), (maker.proto.file, value.hex(), row, expected_row)


@given(st.randoms(use_true_random=True))
def test_what_becomes_of_a_value_does_not_depend_on_its_neighbours(chance: random.Random) -> None:
    maker = Maker(chance)
    distinct = [value[: chance.choice([len(value), len(value), len(value) // 2])] for value in maker.values(10)]
    values = distinct * 6
    reader = maker.proto.reader(ddl_of(maker.type.DESCRIPTOR))
    together = read(reader, values)
    assert repr(together) == repr([row for value in distinct for row in read(reader, [value])] * 6)
    step = chance.randint(15, 50)
    parts = [row for at in range(0, len(values), step) for row in read(reader, values[at : at + step])]
    assert repr(together) == repr(parts)


# Sentence by sentence.

INNER = ("int32 a = 1", "repeated int32 b = 2", "string c = 3")
ENTRY = Proto().message("Inner", *INNER).message("M", "map<string,Inner> m = 1", "map<int32,string> n = 2")
ONEOF = Proto().message("Inner", *INNER).message("M", oneof=["int32 a = 1", "Inner m = 2", "string s = 3"])


def test_the_last_of_several_counts() -> None:
    assert decode_one(Proto().message("M", "int32 a = 1"), "a int", tag(1, 0) + b"\x01" + tag(1, 0) + b"\x02") == 2


def test_a_message_in_several_pieces_is_one_though_a_piece_is_cut_in_its_middle() -> None:
    proto, ddl = Proto().message("Inner", *INNER).message("M", "Inner m = 1"), "m struct<a:int,b:array<int>,c:string>"
    pieces = [sized(1, b"\x08\x05\x10\x01"), sized(1, b""), tag(9, 0) + b"\x01", sized(1, b"\x12\x02\x02\x03\x1a\x01x")]
    assert decode_one(proto, ddl, b"".join(pieces)) == {"a": 5, "b": [1, 2, 3], "c": "x"}
    # Together they would be a message: a text of two bytes.
    assert decode_one(proto, ddl, sized(1, b"\x1a\x02") + sized(1, b"xy")) == "it ends in the middle of a field"


@pytest.mark.parametrize(
    ("kind", "ddl", "wire", "numbers"),
    [
        ("int32", "array<int>", 0, [b"\x01", b"\x02", b"\xac\x02", b"\x04"]),
        ("float", "array<float>", 5, [struct.pack("<f", number) for number in (1, 2, 300, 4)]),
    ],
)
def test_packed_and_single_numbers_are_in_the_order_of_their_bytes(
    kind: str, ddl: str, wire: int, numbers: list[bytes]
) -> None:
    first, second, third, fourth = numbers
    value = tag(1, wire) + first + sized(1, second + third) + sized(1, b"") + tag(1, wire) + fourth
    assert decode_one(Proto().message("M", f"repeated {kind} a = 1"), f"a {ddl}", value) == [1, 2, 300, 4]


def test_the_last_value_of_a_key_counts_and_what_an_entry_lacks_is_empty() -> None:
    complete = sized(1, sized(1, b"k") + sized(2, b"\x08\x05"))
    again = sized(1, sized(2, b"\x10\x07") + tag(99, 0) + b"\x01" + sized(1, b"k") + sized(2, b"\x10\x08"))
    lacking = sized(1, b"") + sized(1, sized(1, b"z"))
    empty = {"a": 0, "b": []}
    decoded = decode_one(ENTRY, "m map<string,struct<a:int,b:array<int>>>", complete + again + lacking)
    assert decoded == [("k", {"a": 0, "b": [7, 8]}), ("", empty), ("z", empty)]
    assert decode_one(ENTRY, "n map<string,string>", sized(2, tag(1, 0) + varint(-3)) + sized(2, sized(2, b"x"))) == [
        ("-3", ""),
        ("0", "x"),
    ]


def test_an_entry_whose_value_is_an_unknown_symbol_of_a_closed_enum_is_none() -> None:
    proto = Proto("proto2").enum("E", ZERO=0).message("M", "map<string,enum:E> m = 1")
    entries = [sized(1, sized(1, key) + tag(2, 0) + number) for key, number in [(b"a", b"\x00"), (b"b", b"\x07")]]
    assert decode_one(proto, "m map<string,string>", b"".join(entries)) == [("a", "ZERO")]


def test_the_member_of_a_oneof_that_is_set_last_is_set_and_starts_anew() -> None:
    ddl = "a int, m struct<a:int,b:array<int>>, s string"
    number, text = tag(1, 0) + b"\x00", sized(3, b"x")
    first, second = sized(2, b"\x08\x05\x10\x01"), sized(2, b"\x10\x02")
    values = [b"", number, number + text, first + second, first + number + second, second + text + number, text + first]
    merged, anew = {"a": 5, "b": [1, 2]}, {"a": 0, "b": [2]}
    expected = [[None] * 3, [0, None, None], [None, None, "x"], [None, merged, None], [None, anew, None],
                [0, None, None], [None, {"a": 5, "b": [1]}, None]]  # fmt: skip
    for times in (1, 9):
        assert read(ONEOF.reader(ddl), values * times) == expected * times


def test_a_member_of_a_oneof_that_is_no_column_unsets_the_others() -> None:
    assert decode_one(ONEOF, "a int", tag(1, 0) + b"\x05" + sized(3, b"x")) is None


@pytest.mark.parametrize(
    ("syntax", "field", "ddl", "expected"),
    [
        ("proto3", "int32 a = 1", "int", 0),
        ("proto3", "string a = 1", "string", ""),
        ("proto3", "bytes a = 1", "binary", b""),
        ("proto3", "uint64 a = 1", "decimal(20,0)", Decimal(0)),
        ("proto3", "enum:E a = 1", "string", "ZERO"),
        ("proto3", "optional int32 a = 1", "int", None),
        ("proto3", "Inner a = 1", "struct<a:int>", None),
        ("proto3", "repeated int32 a = 1", "array<int>", []),
        ("proto2", "optional int32 a = 1", "int", None),
        ("proto2", "optional int32 a = 1 7", "int", 7),
        ("proto2", "optional enum:E a = 1 ONE", "string", "ONE"),
        ("proto2", "required int32 a = 1", "int", "'a' is required and not set"),
        ("proto2", "optional enum:E a = 1", "string", None),
    ],
)
def test_what_is_not_there_has_its_default_or_is_null_by_its_presence(
    syntax: str, field: str, ddl: str, expected: Any
) -> None:
    proto = Proto(syntax).enum("E", ZERO=0, ONE=1)
    inner = "int32 a = 1" if syntax == "proto3" else "optional int32 a = 1"
    proto.message("Inner", inner).message("M", field, f"{'optional ' * (syntax == 'proto2')}int32 z = 9")
    assert decode_one(proto, f"a {ddl}", b"") == expected
    # The same in a message that sets another field.
    assert decode_one(proto, f"a {ddl}", tag(9, 0) + b"\x01") == expected


def test_a_required_field_that_is_no_column_is_required() -> None:
    proto = Proto("proto2").message("M", "required int32 a = 1", "optional int32 b = 2")
    assert decode_one(proto, "b int", tag(2, 0) + b"\x01") == "'a' is required and not set"


def test_a_number_without_a_symbol_is_text_in_an_open_enum_and_unset_in_a_closed_one() -> None:
    value = tag(1, 0) + b"\x01" + tag(1, 0) + varint(-9)
    assert decode_one(Proto().enum("E", ZERO=0, ONE=1).message("M", "enum:E a = 1"), "a string", value) == "-9"
    closed = Proto("proto2").enum("E", ZERO=0, ONE=1)
    assert decode_one(closed.message("M", "optional enum:E a = 1"), "a string", value) == "ONE"


def test_a_null_in_a_column_that_takes_none_fails_the_row() -> None:
    assert decode_one(Proto().message("M", "optional int32 a = 1"), "a int not null", b"") == (
        "it is not set, and NOT NULL"
    )


def test_a_reason_names_the_innermost_column() -> None:
    inner = ("int32 a = 1", "string b = 2", "repeated int32 c = 3")
    proto = Proto().message("Inner", *inner).message("M", "Inner m = 1", "map<string,Inner> n = 2", "int32 z = 3")
    reader = proto.reader("m struct<a:tinyint,b:string>, n map<string,struct<c:array<tinyint>>>, z tinyint")
    large, text = b"\x08\xac\x02", b"\x12\x01\xff"
    values = [
        sized(1, large),
        sized(1, text),
        sized(2, sized(2, b"\x18\xac\x02")),
        b"\x18\xac\x02",
        sized(1, b"\x08"),
        b"\x08",
    ]
    for copies in (1, 20):
        cursors = Cursors(pa.array(values * copies, pa.binary()))
        reader.read(cursors, np.arange(len(values) * copies))
        assert [cursors.reasons[row] for row in range(len(values) * copies)] == copies * [
            "column 'm.a': a number outside the range of tinyint",
            "column 'm.b': a text that is not UTF-8",
            "column 'n.c': a number outside the range of tinyint",
            "column 'z': a number outside the range of tinyint",
            "column 'm': it ends in the middle of a field",
            "it ends in the middle of a field",
        ]


STAMP = Proto().message("M", "google.protobuf.Timestamp a = 1")


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (0, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, 999_999_999, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (1_700_000_000, 1_999, datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)),
        (-62_135_596_800, 0, datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_cut_to_microseconds(seconds: int, nanos: int, expected: datetime) -> None:
    value = sized(1, tag(1, 0) + varint(seconds) + tag(2, 0) + varint(nanos))
    assert decode_one(STAMP, "a timestamp", value) == expected
    assert decode_one(STAMP, "a struct<seconds:bigint,nanos:int>", value) == {"seconds": seconds, "nanos": nanos}


@pytest.mark.parametrize(("seconds", "nanos"), [(0, -1), (0, 10**9), (253_402_300_800, 0), (-(1 << 63), 0)])
def test_a_moment_that_is_none_fails(seconds: int, nanos: int) -> None:
    value = sized(1, tag(1, 0) + varint(seconds) + tag(2, 0) + varint(nanos))
    assert "google.protobuf.Timestamp" in decode_one(STAMP, "a timestamp", value)


def test_json_keeps_the_order_of_members_and_is_merged_from_its_pieces() -> None:
    def entry(key: bytes, value: bytes) -> bytes:
        return sized(1, sized(1, key) + sized(2, value))

    proto = Proto().message("M", "google.protobuf.Struct a = 1", "google.protobuf.Value b = 2")
    number, text = b"\x11" + struct.pack("<d", 2.0), sized(3, 'é"'.encode())
    pieces = sized(1, entry(b"z", number) + entry(b"a", text)) + sized(1, entry(b"z", b"") + entry(b"m", sized(6, b"")))
    assert decode_one(proto, "a string", pieces) == '{"z":null,"a":"é\\"","m":[]}'
    assert decode_one(proto, "b string", sized(2, number) + sized(2, text)) == '"é\\""'
    not_finite = sized(2, b"\x11" + struct.pack("<d", float("inf")))
    assert decode_one(proto, "b string", not_finite).startswith(
        "a google.protobuf.Value holds NaN or an infinite number"
    )
    # Together they would be a message.
    cut = sized(1, b"\x0a\x03\x0a") + sized(1, b"\x01x")
    assert decode_one(proto, "a string", cut) == "bytes that are not a google.protobuf.Struct"


def test_json_of_a_broken_message_that_held_something_before_fails_the_row_and_ends_no_process() -> None:
    proto = Proto().message("M", "google.protobuf.Value a = 1")
    held = sized(3, b"abc") + tag(2, 1) + bytes.fromhex("44f41b59abfd4168")
    assert (
        decode_one(proto, "a string", sized(1, held + sized(3, b"\xff")))
        == "bytes that are not a google.protobuf.Value"
    )


@pytest.mark.parametrize(
    ("digits", "text"), [(2.0, "2"), (-0.0, "0"), (3.5, "3.5"), (1e20, "1" + "0" * 20), (1e21, "1e+21")]
)
def test_numbers_in_json_have_the_fewest_digits(digits: float, text: str) -> None:
    proto = Proto().message("M", "google.protobuf.Value a = 1")
    assert decode_one(proto, "a string", sized(1, b"\x11" + struct.pack("<d", digits))) == text


@pytest.mark.parametrize(
    ("field", "ddl", "setting"),
    [
        ("int64 a = 1", "timestamp", "Set time.unit to one of s, ms, us, ns"),
        ("repeated int64 a = 1", "array<date>", "Set date.unit to one of days, s, ms, us, ns"),
        ("string a = 1", "decimal(10,2)", "Set decimal.format to numeric or base64"),
    ],
)
def test_what_a_setting_decides_is_refused_with_its_name(field: str, ddl: str, setting: str) -> None:
    with pytest.raises(SchemaMismatch, match=setting):
        Proto().message("M", field).reader(f"a {ddl}")


def test_a_setting_of_one_column_holds_in_nested_messages_and_for_each_number() -> None:
    proto = Proto().message("Inner", "repeated uint64 at = 1").message("M", "Inner m = 1", "int64 at = 2")
    rules = ValueRules(Choices("s", (("m.at", "ns"),)))
    numbers = [0, 1_714_979_280_000_000_999, (1 << 64) - 1]
    value = sized(1, sized(1, b"".join(map(varint, numbers)))) + tag(2, 0) + varint(-1)
    (row,) = read(proto.reader("m struct<at:array<timestamp>>, at timestamp", rules=rules), [value])
    assert row[1] == datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert [moment.isoformat() for moment in row[0]["at"]] == [
        "1970-01-01T00:00:00+00:00",
        "2024-05-06T07:08:00+00:00",
        "2554-07-21T23:34:33.709551+00:00",
    ]


def test_a_wrapper_is_a_value_or_null() -> None:
    proto = Proto().message("M", "google.protobuf.Int32Value a = 1", "repeated google.protobuf.StringValue b = 2")
    reader = proto.reader("a int, b array<string>")
    rows = [b"", sized(1, b""), sized(1, b"\x08\x05") + sized(2, b"\x0a\x01x") + sized(2, b"")]
    assert read(reader, rows) == [[None, []], [0, []], [5, ["x", ""]]]
    assert decode_one(proto, "a struct<value:int>", rows[2]) == {"value": 5}


@pytest.mark.parametrize(
    ("day", "expected"),
    [((2024, 2, 29), date(2024, 2, 29)), ((1, 1, 1), date(1, 1, 1)), ((9999, 12, 31), date(9999, 12, 31)),
     ((2023, 2, 29), None), ((2024, 0, 1), None), ((2024, 1, 0), None), ((0, 1, 1), None), ((2024, 13, 1), None)],
)  # fmt: skip
def test_a_date_is_a_day_of_the_calendar(day: tuple[int, int, int], expected: date | None) -> None:
    proto = Proto(package="google.type").message("Date", "int32 year = 1", "int32 month = 2", "int32 day = 3")
    proto.message("M", "Date a = 1")
    value = sized(1, b"".join(tag(at, 0) + varint(part) for at, part in enumerate(day, 1)))
    decoded = decode_one(proto, "a date", value)
    assert decoded == (expected or "a google.type.Date that is not a day of the calendar")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2.5", "2.50"), ("", "0.00"), ("-1e3", "-1000.00"), (".5", "0.50"), ("5.", "5.00"), ("2.500", "2.50"),
     ("0e-999999999", "0.00"), ("2.505", None), ("1000000", None), ("1e999999999", None), ("NaN", None), (" 1", None),
     ("1_0", None), ("٣", None), ("1" * 500, None)],
)  # fmt: skip
def test_a_decimal_in_text_keeps_its_value_or_fails(text: str, expected: str | None) -> None:
    proto = Proto(package="google.type").message("Decimal", "string value = 1").message("M", "Decimal a = 1")
    decoded = decode_one(proto, "a decimal(8,2)", sized(1, sized(1, text.encode())))
    assert decoded == (Decimal(expected) if expected else "a number that decimal(8,2) cannot hold exactly")


@pytest.mark.parametrize(
    ("number", "scale", "expected"),
    [(b"\x00\xfa", 2, "2.50"), (b"\xff", 1, "-0.10"), (b"", 0, "0.00"), (b"\x05", -2, "500.00"), (b"\xfa", 3, None),
     (b"\x01" * 300, 0, None), (b"\x01", -(1 << 31), None), (b"\x01", (1 << 31) - 1, None), (b"\x00", 1 << 30, "0.00")],
)  # fmt: skip
def test_a_decimal_in_bytes_keeps_its_value_or_fails(number: bytes, scale: int, expected: str | None) -> None:
    proto = Proto(package="confluent.type").message("M", "Decimal a = 1")
    proto.message("Decimal", "bytes value = 1", "uint32 precision = 2", "int32 scale = 3")
    decoded = decode_one(proto, "a decimal(8,2)", sized(1, sized(1, number) + tag(3, 0) + varint(scale)))
    assert decoded == (Decimal(expected) if expected else "a number that decimal(8,2) cannot hold exactly")


@pytest.mark.parametrize(
    ("kind", "ddl", "number", "expected"),
    [
        ("sint32", "int", (1 << 32) + 2, 1),
        ("int32", "tinyint", -128, -128),
        ("int32", "tinyint", 128, "a number outside the range of tinyint"),
        ("sint32", "smallint", (1 << 17) - 1, "a number outside the range of smallint"),
        ("int32", "bigint", (1 << 40) + 5, 5),
        ("sint32", "int", (1 << 40) + 1, -1),
        ("int32", "double", -7, -7.0),
        ("uint32", "bigint", (1 << 32) - 1, (1 << 32) - 1),
        ("uint64", "decimal(20,0)", (1 << 64) - 1, Decimal((1 << 64) - 1)),
        ("uint64", "bigint", (1 << 63) - 1, (1 << 63) - 1),
        ("uint64", "bigint", 1 << 63, "a number outside the range of bigint"),
        ("bool", "boolean", 1 << 40, True),
    ],
)
def test_numbers_are_cut_to_their_type_and_held_by_their_column(
    kind: str, ddl: str, number: int, expected: Any
) -> None:
    decoded = decode_one(Proto().message("M", f"{kind} a = 1"), f"a {ddl}", tag(1, 0) + varint(number))
    assert decoded == expected
    assert type(decoded) is type(expected)


@pytest.mark.parametrize(
    ("field", "ddl"),
    [("int64 a = 1", "int"), ("uint32 a = 1", "int"), ("uint64 a = 1", "decimal(19,0)"), ("double a = 1", "float"),
     ("string a = 1", "int"), ("bytes a = 1", "string"), ("string a = 1", "binary"), ("int32 a = 1", "array<int>"),
     ("repeated int32 a = 1", "int"), ("enum:E a = 1", "int"), ("Inner a = 1", "string"), ("int64 a = 1", "timestamp"),
     ("Inner a = 1", "struct<x:int not null>"), ("map<string,int32> a = 1", "array<struct<key:string,value:int>>"),
     ("int32 b = 1", "int not null"), ("google.protobuf.Timestamp a = 1", "bigint")],
)  # fmt: skip
def test_what_can_never_go_together_is_refused_before_a_value_is_read(field: str, ddl: str) -> None:
    proto = Proto().enum("E", ZERO=0).message("Inner", "int32 y = 1").message("M", field)
    with pytest.raises(SchemaMismatch, match="field 'a"):
        proto.reader(f"a {ddl}")


def test_a_column_that_the_message_has_no_field_for_is_null() -> None:
    assert decode_one(Proto().message("M", "int32 a = 1"), "z struct<y:int>", b"\x08\x01") is None


def test_a_message_that_contains_itself_is_stepped_over_where_it_is_no_column() -> None:
    proto = Proto().message("M", "int32 a = 1", "M m = 2", "repeated M n = 3")
    deep = b"\x08\x05"
    for _ in range(500):
        deep = sized(2, deep) + b"\x08\x06"
    assert decode_one(proto, "a int", deep) == 6
    assert decode_one(proto, "m struct<m:struct<a:int>>", deep) == {"m": {"a": 6}}


@pytest.mark.parametrize("is_known", [True, False])
def test_groups_are_a_hundred_deep_at_most(is_known: bool) -> None:
    proto = Proto("proto2").message("Inner", "optional int32 a = 1", "optional group:Inner g = 2")
    proto.message("M", "optional group:Inner g = 2")
    number = 2 if is_known else 3
    for deep in (1, 99, 100, 101, 150):
        value = tag(number, 3) * deep + tag(number, 4) * deep
        expected = library_result(proto.type("M"), value) if not is_known or deep > 100 else [{"a": None}]
        decoded = decode_one(proto, "g struct<a:int>", value)
        assert decoded == (expected[0] if deep <= 100 else "groups are more than 100 deep")
        assert isinstance(expected, str) == (deep > 100)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x00\x01", "its bytes are not a Protobuf field"),
        (b"\x0e", "its bytes are not a Protobuf field"),
        (b"\x88\x80\x80\x80\x10\x01", "its bytes are not a Protobuf field"),
        (b"\x88\x80\x80\x80\x80\x00\x01", "its bytes are not a Protobuf field"),
        (b"\x0c", "a group ends that did not begin"),
        (b"\x9b\x06\x94\x06", "a group ends that did not begin"),
        (b"\x9b\x06\x9b\x06\x9c\x06", "it ends in the middle of a field"),
        (b"\x9b\x06\x0a\x05a\x9c\x06", "it ends in the middle of a field"),
        (b"\x08", "it ends in the middle of a field"),
        (b"\x08\x80", "it ends in the middle of a field"),
        (b"\x12\x05abcd", "it ends in the middle of a field"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "it ends in the middle of a field"),
        (b"\x91\x06abc", "it ends in the middle of a field"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number of more than 64 bits"),
        (b"\x12\x01\xff", "a text that is not UTF-8"),
        (b"\x12\x01\xff\x12\x01a", "a text that is not UTF-8"),
        (b"\x1a\x01\x80", "it ends in the middle of a field"),
        (b"\x22\x03abc", "it ends in the middle of a field"),
    ],
)
def test_what_is_not_protobuf_is_refused_with_a_reason_as_the_library_does(value: bytes, reason: str) -> None:
    proto = Proto().message("M", "int32 a = 1", "string b = 2", "repeated int32 c = 3", "repeated float d = 4")
    assert isinstance(library_result(proto.type("M"), value), str)
    assert decode_one(proto, "a int, b string, c array<int>, d array<float>", value) == reason


def test_what_googles_library_takes_and_this_does_not() -> None:
    proto2 = Proto("proto2").message("M", "optional string a = 1")
    assert proto2.type("M").FromString(b"\x0a\x01\xff")
    assert decode_one(proto2, "a string", b"\x0a\x01\xff") == "a text that is not UTF-8"
    number = Proto().message("M", "uint64 a = 1")
    nought = tag(999, 3) + b"\x00\x01" + tag(999, 4)
    assert number.type("M").FromString(nought) is not None
    assert decode_one(number, "a bigint", nought) == "its bytes are not a Protobuf field"
    wide = b"\x08" + b"\x81" * 9 + b"\x7f"
    assert number.type("M").FromString(wide)
    assert decode_one(number, "a bigint", wide) == "a number of more than 64 bits"


def test_an_entry_with_an_unknown_field_is_an_entry_which_googles_library_for_python_drops() -> None:
    entry = sized(1, sized(1, b"k") + tag(9, 0) + b"\x01")
    assert not ENTRY.type("M").FromString(entry).m
    assert decode_one(ENTRY, "m map<string,struct<a:int>>", entry) == [("k", {"a": 0})]


def test_what_googles_library_refuses_and_this_does_not_look_into() -> None:
    broken = sized(2, b"\x08")
    assert isinstance(library_result(ONEOF.type("M"), broken + tag(1, 0) + b"\x05"), str)
    assert decode_one(ONEOF, "a int", broken + tag(1, 0) + b"\x05") == 5


def test_rows_that_are_not_asked_for_are_left_alone_and_headers_stepped_over() -> None:
    reader = Proto().message("M", "int32 a = 1").reader("a int")
    cursors = Cursors(pa.array([b"\x08", b"..\x08\x07", b"\xff", b"..\x08\x80"], pa.binary()))
    rows = np.array([1, 3])
    cursors.spans(rows, np.array([2, 2]))
    (column,) = reader.read(cursors, rows)
    assert column.to_pylist()[0] == 7
    assert column.type == stored_type(T.IntegerType())
    assert cursors.failed.tolist() == [False, False, False, True]


def test_messages_are_found_by_name_or_by_the_indexes_of_the_wire_format() -> None:
    proto = Proto().message("A", "int32 a = 1").message("B")
    inner = proto.file.message_type[1].nested_type.add(name="C")
    inner.field.add(name="c", number=1, type=Field.TYPE_INT32, label=1)
    for message, column in [("t.A", "a"), ([0], "a"), ("t.B.C", "c"), ([1, 0], "c")]:
        reader = ProtobufReader(proto.bytes(), message, columns(f"{column} int not null"))
        assert read(reader, [b"\x08\x05"]) == [[5]]


@pytest.mark.parametrize("message", ["t.Z", "M", [], [1], [0, 0], [-1]])
def test_a_message_that_there_is_not_is_an_error_of_the_settings(message: Any) -> None:
    with pytest.raises(ConfigError, match="Correct them"):
        ProtobufReader(Proto().message("M").bytes(), message, columns("a int"))


@pytest.mark.parametrize("too_large", [(), (10**20,), (1 << 200,)])
def test_decimals_of_the_columns_scale_are_those_of_any_other(too_large: tuple[int, ...]) -> None:
    chance, most = random.Random(3), 10**20 - 1
    numbers = [0, -1, most, -most, *(chance.randint(-most, most) for _ in range(500))]
    values = [number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True) for number in (*numbers, *too_large)]
    messages = NestedMessages(Cursors(pa.array(values, pa.binary())), np.arange(len(values)), len(values))
    columns = [pa.array(values, pa.binary()), pa.array([4] * len(values), pa.int32())]
    decoded = as_decimal(T.DecimalType(20, 4), decimal_of_bytes, messages, columns).to_pylist()
    assert decoded[: len(numbers)] == [Decimal(number).scaleb(-4) for number in numbers]
    assert list(messages.cursors.reasons) == list(range(len(numbers), len(values)))


def test_descriptors_that_are_none_are_an_error_of_the_settings() -> None:
    for descriptors in (b"", b"\xff", Proto().message("M", "Missing a = 1").bytes(), Proto().file.SerializeToString()):
        with pytest.raises(ConfigError, match="Correct them"):
            ProtobufReader(descriptors, [0], columns("a int"))


def test_a_value_of_a_hundred_thousand_elements_costs_time_in_proportion() -> None:
    proto = Proto().message("Inner", *INNER).message("M", "repeated int32 a = 1", "repeated Inner m = 2")
    reader = proto.reader("a array<int>, m array<struct<a:int>>")

    def seconds(count: int) -> float:
        value = (tag(1, 0) + b"\x05" + sized(2, b"\x08\x07")) * count
        began = time.process_time()
        ((numbers, messages),) = read(reader, [value])
        assert (numbers, messages) == ([5] * count, [{"a": 7}] * count)
        return time.process_time() - began

    # Ten times as much: were it quadratic, a hundred times as long.
    assert seconds(100_000) < 40 * max(seconds(10_000), 0.01)


def test_no_values_are_no_rows() -> None:
    assert read(ONEOF.reader("a int, m struct<a:int>, s string"), []) == []
    assert read(ENTRY.reader("m map<string,struct<a:int>>"), []) == []
