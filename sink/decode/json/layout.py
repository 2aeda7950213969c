"""The layout of a JSON record: all of its bytes except the values of its members.

The layout of `{"id":7,"name":"x"}` has three texts, `{"id":`, `,"name":"` and `"}`, and two spans, one between each two
texts. Braces, member names, colons, commas, spaces and the quotes of strings belong to the texts. A producer that
serialises one class writes one layout, or a few if members may be missing or null.

Guarantee: a record that has these texts in this order, and strings or bare values in the spans between them, is one
JSON object with the members `members`. A bare value is one without quotes: a number, `true`, `false` or `null`. The
caller checks that it is one of these. Raises nothing on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_TEXT_BYTES = 1024
"""The longest text of a layout."""
_MAX_DEPTH = 16
"""The most levels of objects within one another."""
_STRING = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_BARE = re.compile(rb"[^\x00-\x20\",:{}\[\]\\]+")


@dataclass(frozen=True, slots=True)
class ValueSpan:
    """The place of a value in a layout."""

    index: int
    """The value is between `texts[index]` and `texts[index + 1]`."""
    quoted: bool
    """Whether the value is a string. Its quotes belong to the texts."""


Members = Mapping[str, "ValueSpan | Members"]
"""The members of an object by name. A member is a value, or an object with members of its own."""


@dataclass(frozen=True, slots=True)
class JsonLayout:
    """The layout of one record. Layouts with the same texts are equal."""

    texts: tuple[bytes, ...]
    members: Members = field(compare=False)
    """The members of the record's object. The texts determine them."""

    @property
    def quote_count(self) -> int:
        return sum(text.count(b'"') for text in self.texts)


def layout_of(record: bytes) -> JsonLayout | None:
    """Returns the layout of a record. Returns None if the record is not a JSON object, or has no value, an array, an
    escape, a control character (tab and line feed, too), the same name twice in an object, spaces before or after the
    object, a text longer than `MAX_TEXT_BYTES`, or more levels than `_MAX_DEPTH`.
    """
    spans: list[tuple[int, int]] = []
    try:
        members, end = _members(record, 0, spans, _MAX_DEPTH)
    except (_NoLayout, UnicodeDecodeError):
        return None
    if end != len(record) or not spans:
        return None
    begins = [0, *(stop for _, stop in spans)]
    stops = [*(start for start, _ in spans), len(record)]
    texts = tuple(record[begin:stop] for begin, stop in zip(begins, stops, strict=True))
    return JsonLayout(texts, members) if max(map(len, texts)) <= MAX_TEXT_BYTES else None


class _NoLayout(Exception):
    """Ends the reading of a record for which `layout_of` returns None."""


def _members(record: bytes, at: int, spans: list[tuple[int, int]], depth: int) -> tuple[Members, int]:
    """Reads the object at position `at`, and appends the start and end of each value in it to `spans`. Returns its
    members, and the position after it. `depth` is the number of levels that are left.
    """
    members: dict[str, ValueSpan | Members] = {}
    at = _skip_punctuation(record, at, b"{")
    if record[at : at + 1] == b"}":
        return members, at + 1
    while True:
        match = _STRING.match(record, at)
        if match is None or depth == 0 or (name := match[1].decode()) in members:
            raise _NoLayout
        at = _skip_punctuation(record, _skip_spaces(record, match.end()), b":")
        if record[at : at + 1] == b"{":
            members[name], at = _members(record, at, spans, depth - 1)
        else:
            members[name] = ValueSpan(len(spans), record[at : at + 1] == b'"')
            at = _value(record, at, spans)
        at = _skip_spaces(record, at)
        if record[at : at + 1] == b"}":
            return members, at + 1
        at = _skip_punctuation(record, at, b",")


def _value(record: bytes, at: int, spans: list[tuple[int, int]]) -> int:
    """Appends the start and end of the string or bare value at position `at` to `spans`, without a string's quotes.
    Returns the position after the value.
    """
    match = _STRING.match(record, at)
    if match is not None:
        spans.append(match.span(1))
        return match.end()
    match = _BARE.match(record, at)
    if match is None:
        raise _NoLayout
    spans.append(match.span())
    return match.end()


def _skip_punctuation(record: bytes, at: int, sign: bytes) -> int:
    if record[at : at + 1] != sign:
        raise _NoLayout
    return _skip_spaces(record, at + 1)


def _skip_spaces(record: bytes, at: int) -> int:
    while record[at : at + 1] == b" ":
        at += 1
    return at
