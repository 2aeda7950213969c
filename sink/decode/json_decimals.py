"""Finds numbers that Arrow must not convert to decimals, because it reads its power of ten for them behind a table.

Arrow shifts a number of more than 38 digits behind the point by such a power: it crashes, or returns another number. So
the reference decides on batches with such numbers. Arrow refuses large positive exponents by itself.

Guarantee: a text that passes has no such number, in quotes or bare, with or without escapes. A text that does not pass
may still have none. Raises nothing.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sink.decode.cursors import Bytes, Rows

MOST_DIGITS = 38
_MOST_WITH_EXPONENT = 18
"""Digits behind the point beside an exponent, which is below 20: what doubles have."""
_MINUS, _POINT, _ZERO, _BACKSLASH, _LOWER_E, _TO_LOWER = (*b"-.0\\e", 0x20)
_FAR = r"[eE]-([2-9][0-9]|[0-9]{3,})"
_ESCAPED = re.compile(rb"\\u00(?:2[dDeE]|3[0-9]|[46]5)")
"""A digit, `-`, `.` or `e`, which nobody escapes without a purpose."""


def are_short_decimals(texts: pa.StringArray) -> bool:
    """Whether bare numbers have at most 38 digits behind the point: they are not longer than that."""
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    longest = np.diff(offsets).max(initial=0)
    if not (data | _TO_LOWER == _LOWER_E).any():
        return bool(longest <= MOST_DIGITS + 2)
    return bool(longest <= _MOST_WITH_EXPONENT and not pc.any(pc.match_substring_regex(texts, _FAR)).as_py())


def has_only_short_decimals(text: pa.Buffer) -> bool:
    """Whether a JSON text has no number of more digits, and no escapes that may be one."""
    data = np.frombuffer(text, np.uint8)
    # `-` and `.` are neighbours in ASCII.
    positions = np.flatnonzero(data - np.uint8(_MINUS) < 2)
    is_point = data[positions] == _POINT
    minuses = positions[~is_point]
    exponents = minuses[data[minuses - 1] | _TO_LOWER == _LOWER_E]
    if len(exponents) and _is_digit(data, exponents[_is_digit(data, exponents, 2)], 3).any():
        return False
    if len(exponents) and (_is_digit(data, exponents, 2) & (data[exponents + 1] > _ZERO + 1)).any():
        return False
    if _has_fraction(data, positions[is_point], _MOST_WITH_EXPONENT if len(exponents) else MOST_DIGITS):
        return False
    return not (data == _BACKSLASH).any() or _ESCAPED.search(text) is None


def _is_digit(data: Bytes, positions: Rows, step: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    flags: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        data[np.minimum(positions + step, len(data) - 1)] - np.uint8(_ZERO) <= 9
    )
    return flags


def _has_fraction(data: Bytes, points: Rows, digits: int) -> bool:
    """Whether there may be more than so many digits behind one of the points."""
    for step in (1, digits // 4, digits // 2, digits - 2, digits, digits + 1):
        points = points[_is_digit(data, points, step)]
    return bool(len(points))
