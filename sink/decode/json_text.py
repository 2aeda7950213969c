"""Writes JSON as text, as Spark's `from_json` does for a value that is not a string in a string column.

Guarantee: the text of Jackson's generator: no blanks, integers as written, fractions as Java prints a double,
characters beyond 16 bits as two escapes. Voided in the last digit of some fractions: Java 17 does not always print the
shortest digits, Python does.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_ESCAPES = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(32)}
    | {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
)
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")


class WholeNumber(str):
    """The digits of a JSON number without fraction or exponent."""


class FractionalNumber(str):
    """The digits of a JSON number with fraction or exponent, or NaN, Infinity, -Infinity."""


class JsonObject(list[tuple[str, Any]]):
    """The members of a JSON object in their order, repeated keys included."""


def compact_text(value: Any) -> str:
    """Returns the text of a JSON value, with numbers as `WholeNumber` and `FractionalNumber`."""
    if isinstance(value, JsonObject):
        members = (f"{_quote(key)}:{_inner(inner)}" for key, inner in value)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_inner, value)) + "]"
    if isinstance(value, WholeNumber):
        return "0" if value == "-0" else str(value)
    if isinstance(value, FractionalNumber):
        return _java_double(float(value))
    return "null" if value is None else str(value).lower()


def _inner(value: Any) -> str:
    return _quote(value) if type(value) is str else compact_text(value)


def _quote(text: str) -> str:
    return f'"{_BEYOND_16_BITS.sub(_surrogates, text.translate(_ESCAPES))}"'


def _surrogates(character: re.Match[str]) -> str:
    code = ord(character[0]) - 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def _java_double(number: float) -> str:
    """Writes a double like Java's `Double.toString`: plain from a thousandth to ten million, else with an exponent. NaN
    and infinities are quoted."""
    if number != number:
        return '"NaN"'
    if number in (float("inf"), float("-inf")):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    shortest = Decimal(repr(number)).normalize()
    digits = "".join(map(str, shortest.as_tuple().digits))
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{shortest.adjusted()}"
