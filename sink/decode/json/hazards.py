"""Finds what Arrow's JSON parser takes differently from the reference, which then decides on the batch.

Arrow takes texts for decimals, `Inf` and `-NaN` for numbers, and no name in another case. It shifts a number of more
than 38 digits behind the point by a power of ten that it reads behind a table: it crashes, or returns another number.
Arrow refuses large positive exponents by itself.

Guarantee: a text that passes has nothing of this, in quotes or bare, with or without escapes. A text that does not pass
may still have nothing. Raises nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.cursors import Bytes, Rows
from sink.decode.fields import Columns, Field
from sink.decode.json.values import DEEPEST

MOST_DIGITS = 38
_MOST_WITH_EXPONENT = 18
"""Digits behind the point beside an exponent, which is below 20: what doubles have."""
_MINUS, _POINT, _ZERO, _BACKSLASH, _LOWER_E, _TO_LOWER = (*b"-.0\\e", 0x20)
_FAR = r"[eE]-([2-9][0-9]|[0-9]{3,})"
_ESCAPED = re.compile(rb"\\u00(?:2[dDeE]|3[0-9]|[46]5)")
"""A digit, `-`, `.` or `e`, which nobody escapes without a purpose."""
_MOST_CHARACTERS = 50_000
_MOST_OF_PATTERNS = 200_000
"""The most characters of all expressions for names in another case."""
_TOGETHER = 100
_COLON = r'"[ \t\r\n]*:'
_ESCAPED_LETTER = r"\\u00[4-7]"
_NO_NUMBER = r"[:\[,][ \t\r\n]*(?:-?Inf(?:[^i]|\z)|-NaN)"
_SIGNS_OF_NO_NUMBER = (b"Inf", b"-NaN")
"""One of them is in each match of it: to look for them takes a fraction of the time."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACE, _CLOSING_BRACE = b"{}"
"""The brackets are the capitals of the braces, in ASCII."""


class Hazards:
    """The hazards of values for some columns."""

    def __init__(self, columns: Columns) -> None:
        names = {field.name for field in columns.all_fields if field.name.isascii()}
        self._by_lower = {name.lower(): name for name in sorted(names)}
        are_different = len(self._by_lower) == len(names)
        self._can_tell_case = are_different and sum(len(name) ** 2 for name in names) <= _MOST_OF_PATTERNS
        """Whether expressions find names in another case: not if two columns differ in case only, or they are long."""
        self._other_case: tuple[Mapping[str, str], tuple[str, ...]] | None = None
        decimals = [
            (member, field)
            for member, field in _members(columns.fields)
            if isinstance(field.kind, T.DecimalType) and field.rule.decimal_format != "base64"
        ]
        self._has_decimals = bool(decimals)
        texts = {member for member, field in decimals if field.rule.decimal_format != "numeric"}
        self.can_be_told = sum(map(len, texts)) <= _MOST_CHARACTERS and all(map(str.isascii, texts))
        """Whether an expression finds texts in decimals: not if their names are long, or may be escaped as a whole."""
        named = "|".join(map(_escaped, sorted(texts))) if self.can_be_told else ""
        self._text_decimals = f'"(?i:{named}){_COLON}[ \\t\\r\\n]*["\\[]|{_ESCAPED_LETTER}' if named else ""

    def are_in(self, lines: pa.Buffer) -> bool:
        """Whether the reference has to decide."""
        if self._has_decimals and not has_only_short_decimals(lines):
            return True
        text = _as_array(lines)
        if self._text_decimals and pc.match_substring_regex(text, self._text_decimals)[0].as_py():
            return True
        bare = lines.to_pybytes()
        has_signs = any(sign in bare for sign in _SIGNS_OF_NO_NUMBER)
        return bool(has_signs and pc.match_substring_regex(text, _NO_NUMBER)[0].as_py())

    def are_names_like(self, lines: pa.Buffer, spelling: Mapping[str, str]) -> bool:
        """Whether no name is a column's but for its case. `spelling` has other names of columns, which count then. It
        returns False also where it cannot tell, and for names with escapes."""
        text = _as_array(lines)
        if not self._can_tell_case or pc.match_substring_regex(text, _ESCAPED_LETTER)[0].as_py():
            return False
        if self._other_case is None or self._other_case[0] != spelling:
            names = [spelling.get(name, name) for name in self._by_lower.values()]
            self._other_case = spelling, tuple(_in_another_case(names))
        return not any(pc.match_substring_regex(text, pattern)[0].as_py() for pattern in self._other_case[1])

    def spelling(self, lines: pa.Buffer) -> Mapping[str, str]:
        """Returns how the text spells the columns that it spells otherwise, the last spelling of each."""
        any_case = f'"(?:{"|".join(map(_escaped, self._by_lower.values()))}){_COLON}'
        found = set(re.findall(any_case.encode(), lines, re.IGNORECASE)) if self._can_tell_case else set()
        names = {json.loads(name.rstrip(b": \t\r\n")) for name in found}
        return {self._by_lower[name.lower()]: name for name in names if name not in self._by_lower.values()}


def _members(fields: Iterable[Field]) -> Iterator[tuple[str, Field]]:
    """Yields all fields, nested ones too, each with the name of the member that it is in."""
    for field in fields:
        yield from _inside(field, field.name)


def _inside(field: Field, member: str) -> Iterator[tuple[str, Field]]:
    yield member, field
    if isinstance(field.kind, T.StructType):
        yield from _members(field.inner)
    else:
        for inner in field.inner:
            yield from _inside(inner, member)


def _escaped(name: str) -> str:
    return re.escape(json.dumps(name)[1:-1])


def _in_another_case(names: Sequence[str]) -> Iterator[str]:
    """Yields expressions that match names only in another case. One for many names would take too many states; one
    that also matched the usual names would stop at each of them."""
    for first in range(0, len(names), _TOGETHER):
        variants = [variant for name in names[first : first + _TOGETHER] for variant in _variants(name)]
        if variants:
            yield f'"(?:{"|".join(variants)}){_COLON}'


def _variants(name: str) -> Iterator[str]:
    """Yields an expression for each letter that may be the first one in the other case."""
    for at, sign in enumerate(name):
        if sign.isalpha():
            rest = _escaped(name[at + 1 :])
            yield f"{_escaped(name[:at])}{sign.swapcase()}" + (f"(?i:{rest})" if rest else "")


def _as_array(lines: pa.Buffer) -> pa.LargeBinaryArray:
    offsets = pa.py_buffer(np.array([0, lines.size], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, lines])


def is_shallow(starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32], data: Bytes) -> bool:
    """Whether no value is nested deeper than `DEEPEST`. Shorter values cannot be."""
    if (ends - starts).max() <= 2 * DEEPEST:
        return True
    opening = np.flatnonzero(_are_opening(data[: ends[-1]]))
    counts = np.diff(np.searchsorted(opening, np.append(starts, ends[-1:])))
    suspects = np.flatnonzero(counts > DEEPEST).tolist()
    return all(depth_of(data[starts[row] : ends[row]].tobytes()) <= DEEPEST for row in suspects)


def _are_opening(data: Bytes) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = data | _TO_LOWER == _BRACE
    return flags


def depth_of(text: bytes) -> int:
    """Returns how many levels of objects and arrays a JSON text has, or the beginning of one."""
    bare = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    return int(np.cumsum(_are_opening(bare).astype(np.int64) - (bare | _TO_LOWER == _CLOSING_BRACE)).max(initial=0))


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
