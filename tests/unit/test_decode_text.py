"""JSON as Jackson reads and writes it: the text of values that are not strings, and infinite numbers."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from sink.decode.json_records import JsonDecoder
from sink.schema import parse_ddl


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (rb'{"x":"\\u00ab"}', r'{"x":"\\u00ab"}'),
        (rb'{"\\u00ab" : 1}', r'{"\\u00ab":1}'),
        (rb'["\\\\u00ab"]', r'["\\\\u00ab"]'),
        (rb'["\\\u001f"]', r'["\\\u001F"]'),
        (rb'["\u001f\u00ab\u007f"]', '["\\u001F«\x7f"]'),
        # Rounded to a few digits, both would be a power of ten higher than they are.
        (rb"99999999.99", "9.999999999E7"),
        (rb"[-0.00099999999]", "[-9.9999999E-4]"),
        (rb"[0.001,9999999.5,1e7,-1E-7,0e5,-0.0]", "[0.001,9999999.5,1.0E7,-1.0E-7,0.0,-0.0]"),
        (rb"[1.7976931348623157e308,1e999]", '[1.7976931348623157E308,"Infinity"]'),
        (rb"NaN", '"NaN"'),
        ('{"é😀": "\\ud83d\\ude00\U0010ffff"}'.encode(), r'{"é\uD83D\uDE00":"\uD83D\uDE00\uDBFF\uDFFF"}'),
        (rb"[-Infinity, NaN]", '["-Infinity","NaN"]'),
        (rb'{"+INF" : +INF}', '{"+INF":"Infinity"}'),
        (rb'["\u0008\u000c\n\r\t\"\\\/"]', r'["\b\f\n\r\t\"\\/"]'),
    ],
)
def test_an_object_in_a_string_column_keeps_its_text_but_for_blanks_and_capital_escapes(written, text):
    schema = parse_ddl("s string, l bigint")
    good = b'{"s":"a","l":1}'
    values = [good, b'{"s":' + written + b"}", *[good] * 20]
    decoded = JsonDecoder(schema).decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    assert decoded.rows.column("s").to_pylist() == ["a", text, *["a"] * 20]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b'{"d":-INF}', -math.inf),
        (b'{"d":+INF}', math.inf),
        (b'{"d":+Infinity }', math.inf),
        (rb'{"s":"\"-INF","u":[+INF,{"-INF":-INF}],"d":-INF}', -math.inf),
        (b'{"u":-INF,"d":1}', 1.0),
    ],
)
def test_the_infinities_of_jackson_are_numbers(value, number):
    decoded = JsonDecoder(parse_ddl("d double, s string")).decode(pa.array([value], pa.binary()))
    assert not decoded.bad
    assert decoded.rows.column("d").to_pylist() == [number]
    assert decoded.rows.column("s").to_pylist() in ([None], ['"-INF'])


@pytest.mark.parametrize("number", ["INF", "-Inf", "-+INF", "++INF", "-+Infinity", "--INF", "-INFx", "1-INF", '"-INF'])
def test_what_jackson_calls_no_number_is_no_document(number):
    decoded = JsonDecoder(parse_ddl("d double")).decode(pa.array([f'{{"d":{number}}}'.encode()], pa.binary()))
    assert "not one JSON document" in decoded.bad[0].reason


def test_infinities_by_the_thousand_cost_one_more_parse():
    value = b'{"d":[' + b"-INF," * 200_000 + b"1]}"
    decoded = JsonDecoder(parse_ddl("d array<double>")).decode(pa.array([value], pa.binary()))
    assert decoded.rows.column("d").to_pylist()[0][-2:] == [-math.inf, 1.0]


@pytest.mark.parametrize("depth", [100, 400, 700, 900, 5000])
def test_a_value_that_is_nested_deeply_is_text_or_a_bad_record_and_nothing_worse(depth: int) -> None:
    value = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    decoded = JsonDecoder(parse_ddl("a string")).decode(pa.array([value, b'{"a":"x"}'], pa.binary()))
    texts = [row["a"] for row in decoded.rows.to_pylist()]
    assert texts[-1] == "x"
    if depth == 100:
        assert texts[0] == "[" * depth + "]" * depth
    else:
        assert len(texts) == 2 or [bad_value.reason for bad_value in decoded.bad] == ["nested too deeply"]


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_decimal_of_all_the_digits_there_are_is_taken(sign: str) -> None:
    number = f"{sign}{'9' * 38}"
    decoded = JsonDecoder(parse_ddl("a decimal(38,0)")).decode(pa.array([f'{{"a":{number}}}'.encode()], pa.binary()))
    assert decoded.rows.to_pylist() == [{"a": Decimal(number)}]
