"""Finds what Arrow's JSON parser takes differently from the reference, which then decides on the batch.

Arrow takes texts for decimals, `Inf` for a number, and names by their case alone. It shifts a number of more than 38
digits behind the point by a power of ten that it reads behind a table: it crashes, or returns another number. Arrow
refuses large positive exponents by itself.

Guarantee: a text that passes has nothing of this, in quotes or bare, with or without escapes. A text that does not pass
may still have nothing. Raises nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.cursors import Bytes, Rows
from sink.decode.fields import Columns
from sink.decode.json_values import DEEPEST

MOST_DIGITS = 38
_MOST_WITH_EXPONENT = 18
"""Digits behind the point beside an exponent, which is below 20: what doubles have."""
_MINUS, _POINT, _ZERO, _BACKSLASH, _LOWER_E, _TO_LOWER = (*b"-.0\\e", 0x20)
_FAR = r"[eE]-([2-9][0-9]|[0-9]{3,})"
_ESCAPED = re.compile(rb"\\u00(?:2[dDeE]|3[0-9]|[46]5)")
"""A digit, `-`, `.` or `e`, which nobody escapes without a purpose."""
_MOST_CHARACTERS = 50_000
_ESCAPED_LETTER = r"\\u00[4-7]"
_INFINITE = r"[:\[,][ \t\r\n]*-?Inf(?:[^i]|\z)"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OPENING, _CLOSING = np.frombuffer(b"{[", np.uint8), np.frombuffer(b"}]", np.uint8)


class Hazards:
    """The hazards of values for some columns."""

    def __init__(self, columns: Columns) -> None:
        names = sorted({field.name for field in columns.all_fields if field.name.isascii()})
        self.can_be_told = sum(map(len, names)) <= _MOST_CHARACTERS
        """Whether the names are few and short enough for an expression."""
        self._by_lower = {name.lower(): name for name in names}
        self._any_case = f'"(?:{"|".join(map(_escaped, names))})"[ \\t\\r\\n]*:'
        decimals = [field for field in columns.all_fields if isinstance(field.kind, T.DecimalType)]
        self._has_decimals = bool(decimals)
        others = {field.path.rpartition(".")[2] for field in decimals if field.rule.decimal_format != "numeric"}
        texts = f'"(?i:{"|".join(map(_escaped, sorted(others)))})"[ \\t\\r\\n]*:[ \\t\\r\\n]*["\\[]'
        self._pattern = "|".join([_INFINITE, *([texts, _ESCAPED_LETTER] if others else [])])

    def are_in(self, lines: pa.Buffer) -> bool:
        """Whether the reference has to decide."""
        if self._has_decimals and not has_only_short_decimals(lines):
            return True
        return bool(pc.match_substring_regex(_as_array(lines), self._pattern)[0].as_py())

    def are_names_like(self, lines: pa.Buffer, spelling: Mapping[str, str]) -> bool:
        """Whether each name that is a column's but for its case is spelled like the column, or by `spelling`, which has
        other spellings by column. Names with escapes are not looked at, and so not like it."""
        text = _as_array(lines)
        if pc.match_substring_regex(text, _ESCAPED_LETTER)[0].as_py():
            return False
        spelled = "|".join(_escaped(spelling.get(name, name)) for name in self._by_lower.values())
        like_this = f'"(?:{spelled})"[ \\t\\r\\n]*:'
        found = pc.count_substring_regex(text, self._any_case, ignore_case=True)[0].as_py()
        return bool(found == pc.count_substring_regex(text, like_this)[0].as_py())

    def spelling(self, lines: pa.Buffer) -> Mapping[str, str]:
        """Returns how the text spells the columns that it spells otherwise, the last spelling of each."""
        found = re.findall(self._any_case.encode(), lines, re.IGNORECASE)
        names = {json.loads(name.rstrip(b": \t\r\n")) for name in set(found)}
        return {self._by_lower[name.lower()]: name for name in names if name not in self._by_lower.values()}


def _escaped(name: str) -> str:
    return re.escape(json.dumps(name)[1:-1])


def _as_array(lines: pa.Buffer) -> pa.LargeBinaryArray:
    offsets = pa.py_buffer(np.array([0, lines.size], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, lines])


def is_shallow(starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32], data: Bytes) -> bool:
    """Whether no value is nested deeper than `DEEPEST`. Shorter values cannot be."""
    return all(_depth(data[starts[row] : ends[row]]) <= DEEPEST for row in _long_values(starts, ends))


def _long_values(starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]) -> Iterable[int]:
    return map(int, np.flatnonzero(ends - starts > 2 * DEEPEST))


def _depth(value: Bytes) -> int:
    """Returns the depth of a value; not more than the number of its brackets, if these are few."""
    opening = np.isin(value, _OPENING)
    if (count := np.count_nonzero(opening)) <= DEEPEST:
        return int(count)
    bare = np.frombuffer(_STRING.sub(b"", value.tobytes()), np.uint8)
    steps = np.isin(bare, _OPENING).astype(np.int64) - np.isin(bare, _CLOSING)
    return int(np.cumsum(steps).max(initial=0))


def are_short_decimals(texts: pa.StringArray) -> bool:
    """Whether numbers have at most 38 digits behind the point: they are not longer than that."""
    if texts.buffers()[2] is None:
        return True
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
