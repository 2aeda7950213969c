"""The layout of a JSON record: its text without the values of its members.

Braces, names, colons, commas, the quotes of strings and blanks belong to it. Producers that serialise one class write
one layout, or a few where members may be missing or null. Guarantee: a record with the same texts in the same order,
and strings or bare texts between them, is one JSON object with the members that `members` names; the bare texts are to
be looked at by the caller. Raises nothing on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST = 1024
"""Bytes of a text of a layout."""
_DEPTH = 16
_STRING = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_BARE = re.compile(rb"[^\x00-\x20\",:{}\[\]\\]+")


@dataclass(frozen=True, slots=True)
class Span:
    """The place of one value: behind the text of this number and before the next. `quoted`: it is a string."""

    number: int
    quoted: bool


Members = Mapping[str, "Span | Members"]
"""The members of an object by name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`texts` are all bytes of a record but its values."""

    texts: tuple[bytes, ...]
    members: Members = field(compare=False)
    """Says of the texts what they mean, and nothing that they do not."""

    @property
    def quotes(self) -> int:
        return sum(text.count(b'"') for text in self.texts)


def layout_of(record: bytes) -> Layout | None:
    """None for what is no object, or has arrays, escapes, control characters, or a name twice."""
    spans: list[tuple[int, int, bool]] = []
    try:
        members, end = _members(record, 0, spans, _DEPTH)
    except _NoLayout:
        return None
    if end != len(record) or not spans:
        return None
    begins = [0, *(stop for _, stop, _ in spans)]
    stops = [*(start for start, _, _ in spans), len(record)]
    texts = tuple(record[begin:stop] for begin, stop in zip(begins, stops, strict=True))
    return Layout(texts, members) if max(map(len, texts)) <= LONGEST else None


class _NoLayout(Exception):
    """The record has none that could be compared."""


def _members(record: bytes, at: int, spans: list[tuple[int, int, bool]], depth: int) -> tuple[Members, int]:
    """The members of the object that begins there, and where it ends."""
    members: dict[str, Span | Members] = {}
    at = _after(record, at, b"{")
    if record[at : at + 1] == b"}":
        return members, at + 1
    while True:
        name = _STRING.match(record, at)
        if name is None or depth == 0 or (member := name[1].decode()) in members:
            raise _NoLayout
        at = _after(record, _blanks(record, name.end()), b":")
        if record[at : at + 1] == b"{":
            members[member], at = _members(record, at, spans, depth - 1)
        else:
            members[member] = Span(len(spans), record[at : at + 1] == b'"')
            at = _value(record, at, spans)
        at = _blanks(record, at)
        if record[at : at + 1] == b"}":
            return members, at + 1
        at = _after(record, at, b",")


def _value(record: bytes, at: int, spans: list[tuple[int, int, bool]]) -> int:
    """Notes where the value at that place begins and ends, a string's without its quotes; the place behind it."""
    match = _STRING.match(record, at)
    if match is not None:
        spans.append((*match.span(1), True))
        return match.end()
    match = _BARE.match(record, at)
    if match is None:
        raise _NoLayout
    spans.append((*match.span(), False))
    return match.end()


def _after(record: bytes, at: int, sign: bytes) -> int:
    if record[at : at + 1] != sign:
        raise _NoLayout
    return _blanks(record, at + 1)


def _blanks(record: bytes, at: int) -> int:
    while record[at : at + 1] == b" ":
        at += 1
    return at
