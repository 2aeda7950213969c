"""The layout of a JSON record: its text without the values of its members.

Braces, names, colons, commas, quotes of strings and blanks belong to the layout. A producer that serialises one class
writes one layout, or a few if members may be missing or null. Guarantee: a record with the same texts in the same
order, and strings or bare values between them, is one JSON object with the members in `members`. The caller checks the
bare values (numbers, `true`, `false`, `null`). Raises nothing on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST = 1024
"""The most bytes of one text of a layout."""
_DEPTH = 16
_STRING = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_BARE = re.compile(rb"[^\x00-\x20\",:{}\[\]\\]+")


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A value in a layout: between the text with this number and the next one. `quoted`: the value is a string."""

    number: int
    quoted: bool


Members = Mapping[str, "TextSpan | Members"]
"""The members of an object by name."""


@dataclass(frozen=True, slots=True)
class JsonLayout:
    """`texts` are all bytes of a record except its values."""

    texts: tuple[bytes, ...]
    members: Members = field(compare=False)
    """The members by name, with their spans. They follow from the texts."""

    @property
    def quotes(self) -> int:
        return sum(text.count(b'"') for text in self.texts)


def layout_of(record: bytes) -> JsonLayout | None:
    """Returns the layout. Returns None for a record that is not an object with a value, that has arrays, escapes,
    control characters, a name twice, or spaces around it, or that exceeds the limits above.
    """
    spans: list[tuple[int, int]] = []
    try:
        members, end = _members(record, 0, spans, _DEPTH)
    except (_NoLayout, UnicodeDecodeError):
        return None
    if end != len(record) or not spans:
        return None
    begins = [0, *(stop for _, stop in spans)]
    stops = [*(start for start, _ in spans), len(record)]
    texts = tuple(record[begin:stop] for begin, stop in zip(begins, stops, strict=True))
    return JsonLayout(texts, members) if max(map(len, texts)) <= LONGEST else None


class _NoLayout(Exception):
    """The record has no layout that can be compared."""


def _members(record: bytes, at: int, spans: list[tuple[int, int]], depth: int) -> tuple[Members, int]:
    """Reads the object at `at`. Returns its members and where it ends."""
    members: dict[str, TextSpan | Members] = {}
    at = _skip_punctuation(record, at, b"{")
    if record[at : at + 1] == b"}":
        return members, at + 1
    while True:
        name = _STRING.match(record, at)
        if name is None or depth == 0 or (member := name[1].decode()) in members:
            raise _NoLayout
        at = _skip_punctuation(record, _skip_blanks(record, name.end()), b":")
        if record[at : at + 1] == b"{":
            members[member], at = _members(record, at, spans, depth - 1)
        else:
            members[member] = TextSpan(len(spans), record[at : at + 1] == b'"')
            at = _value(record, at, spans)
        at = _skip_blanks(record, at)
        if record[at : at + 1] == b"}":
            return members, at + 1
        at = _skip_punctuation(record, at, b",")


def _value(record: bytes, at: int, spans: list[tuple[int, int]]) -> int:
    """Adds the span of the value at `at`, for a string without its quotes. Returns the position after the value."""
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
    return _skip_blanks(record, at + 1)


def _skip_blanks(record: bytes, at: int) -> int:
    while record[at : at + 1] == b" ":
        at += 1
    return at
