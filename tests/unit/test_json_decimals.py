"""Numbers whose decimals Arrow would read behind a table go to the reference: no crash, and the same amount."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from sink.decode.fields import Choices, ValueRules
from sink.decode.json.columns import FastParser
from sink.decode.json.hazards import are_short_decimals, has_only_short_decimals
from sink.decode.json.records import JsonDecoder
from tests.columns_kit import columns

COLUMNS = columns("d decimal(10,2), x double", ValueRules(decimal_format=Choices("numeric"), rounds=True))
LONG = "0." + "0" * 60 + "1"


def decoded(number: str, copies: int = 1) -> list[Decimal | None]:
    values = [f'{{"d":{number},"x":1}}'.encode()] * copies
    return [row["d"] for row in JsonDecoder(COLUMNS).decode(pa.array(values, pa.binary())).rows.to_pylist()]


@pytest.mark.parametrize("copies", [1, 200], ids=["alone", "of one layout"])
@pytest.mark.parametrize(
    "number",
    ["1e-999999999", "1e-77", "12e-45", LONG, f'"{LONG}"', '"1e-999999999"', '"1\\u0065-999999999"', '"1e\\u002D99"',
     '"0.' + "\\u0030" * 60 + '1"', "1.000000000000000001e-70", "0.5e-100"],
)  # fmt: skip
def test_a_number_of_many_decimals_is_rounded_and_crashes_nothing(number: str, copies: int) -> None:
    assert FastParser(COLUMNS).parse(pa.array([f'{{"d":{number}}}'.encode()], pa.binary())) is None
    assert decoded(number, copies) == [Decimal("0.00")] * copies


@pytest.mark.parametrize("number", ["1.25", "-1.25", "1e-2", "1.5e-05", "0.12345678901234567", "1E2", "1234567890e-2"])
def test_numbers_that_producers_write_are_left_to_the_fast_path(number: str) -> None:
    text = pa.py_buffer(f'{{"x":{number},"when":"2024-01-01T00:00:00.123456-05:00","s":"\\u00e9 \\u003c"}}\n'.encode())
    assert has_only_short_decimals(text)


@pytest.mark.parametrize(
    ("texts", "short"),
    [
        (["1", "-12.50"], True),
        (["1e5", "1E-5", "0e1"], True),
        (["1E-20"], False),
        (["1e-007"], False),
        (["1" * 40], True),
        (["1" * 41], False),
        ([], True),
    ],
)
def test_bare_numbers_of_a_layout_are_short_unless_their_exponent_is_far_below_zero(
    texts: list[str], short: bool
) -> None:
    assert are_short_decimals(pa.array(["9" * 50, *texts], pa.string()).slice(1)) == short
