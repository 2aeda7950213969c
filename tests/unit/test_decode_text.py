"""The text of JSON values that are not strings, and infinite numbers."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from sink.decode.json.records import JsonDecoder
from sink.schema.table_schema import parse_ddl
from tests.columns_kit import columns


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (rb'{"x":"\\u00ab"}', r'{"x":"\\u00ab"}'),
        (rb'{"\\u00ab" : 1}', r'{"\\u00ab":1}'),
        (rb'["\\\\u00ab"]', r'["\\\\u00ab"]'),
        (rb'["\\\u001f"]', r'["\\\u001f"]'),
        (rb'["\u001f\u00ab\u007f"]', '["\\u001f«\x7f"]'),
        (rb"99999999.99", "99999999.99"),
        (rb"[-0.00099999999]", "[-0.00099999999]"),
        (rb"[0.001,9999999.5,1e7,-1E-7,0e5,-0.0]", "[0.001,9999999.5,1e7,-1E-7,0e5,-0.0]"),
        (rb"[1.7976931348623157e308,1e999]", "[1.7976931348623157e308,1e999]"),
        (rb"NaN", "NaN"),
        ('{"é😀": "\\ud83d\\ude00\U0010ffff"}'.encode(), '{"é😀":"😀\U0010ffff"}'),
        (rb"[-Infinity, NaN]", "[-Infinity,NaN]"),
        (rb'{ "a" : true , "a":null,"b":[ ], "c":{ }}', '{"a":true,"a":null,"b":[],"c":{}}'),
        (rb'["\u0008\u000c\n\r\t\"\\\/"]', r'["\b\f\n\r\t\"\\/"]'),
    ],
)
def test_a_value_that_is_no_string_keeps_its_digits_and_members_as_text(written, text):
    schema = parse_ddl("s string, l bigint")
    good = b'{"s":"a","l":1}'
    values = [good, b'{"s":' + written + b"}", *[good] * 20]
    decoded = JsonDecoder(columns(schema)).decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    assert decoded.rows.column("s").to_pylist() == ["a", text, *["a"] * 20]


@pytest.mark.parametrize(
    "number", ["Inf", "INF", "-Inf", "-+INF", "+Infinity", "--INF", "-INFx", "1-INF", '"-INF', "nan"]
)
def test_names_of_infinity_that_json_parsers_do_not_share_are_no_document(number):
    decoded = JsonDecoder(columns("d double")).decode(pa.array([f'{{"d":{number}}}'.encode()] * 300, pa.binary()))
    assert len(decoded.bad) == 300
    assert "not one JSON document" in decoded.bad[0].reason
    beside = JsonDecoder(columns("d double")).decode(pa.array([f'{{"d":1,"u":[{number}]}}'.encode()], pa.binary()))
    assert "not one JSON document" in beside.bad[0].reason


@pytest.mark.parametrize(("number", "double"), [("NaN", math.nan), ("-Infinity", -math.inf), ('"Infinity"', math.inf)])
def test_infinities_of_json_parsers_are_doubles(number, double):
    decoded = JsonDecoder(columns("d double")).decode(pa.array([f'{{"d":{number}}}'.encode()], pa.binary()))
    assert str(decoded.rows.column("d").to_pylist()) == str([double])


@pytest.mark.parametrize("depth", [100, 499, 500, 900, 5000])
def test_a_value_that_is_nested_deeply_is_text_or_a_bad_record_and_nothing_worse(depth: int) -> None:
    value = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    decoded = JsonDecoder(columns("a string")).decode(pa.array([value, b'{"a":"x"}'], pa.binary()))
    texts = [row["a"] for row in decoded.rows.to_pylist()]
    assert texts[-1] == "x"
    if depth < 500:
        assert texts[0] == "[" * depth + "]" * depth
    else:
        assert [bad_value.reason for bad_value in decoded.bad] == ["it is nested deeper than 500 levels"]


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_decimal_of_all_the_digits_there_are_is_taken(sign: str) -> None:
    number = f"{sign}{'9' * 38}"
    decoded = JsonDecoder(columns("a decimal(38,0)")).decode(pa.array([f'{{"a":{number}}}'.encode()], pa.binary()))
    assert decoded.rows.to_pylist() == [{"a": Decimal(number)}]
