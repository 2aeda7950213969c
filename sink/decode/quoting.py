"""Quotes values of records in reasons, or describes them by type and length where the settings say so.

Reasons go to logs, znodes, HTTP, metrics and dead letters, which more people read than the topic. Guarantee: within
`quoting(Quotes.LENGTHS)`, every reason of a value, a key or a table partition describes values (`errors.quote.values`).
Names of columns, types, positions in a value and ids of schemas are not values. Within `quoting(Quotes.KINDS)` reasons
of one kind are the same text, so that they can be counted. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum


class Quotes(Enum):
    """How reasons show values."""

    VALUES = "as they are written"
    LENGTHS = "by type and length"
    KINDS = "by type"


_QUOTES: ContextVar[Quotes] = ContextVar("quotes", default=Quotes.VALUES)


@contextmanager
def quoting(quotes: Quotes) -> Iterator[None]:
    """Decides for this thread how reasons show values."""
    token = _QUOTES.set(quotes)
    try:
        yield
    finally:
        _QUOTES.reset(token)


def quotes() -> bool:
    """Returns whether reasons quote values."""
    return _QUOTES.get() is Quotes.VALUES


def quoted(value: object, as_written: str, kind: str = "a text") -> str:
    """Returns `as_written`, which quotes the value, or the value's kind, and its length as a text."""
    if quotes():
        return as_written
    return kind if _QUOTES.get() is Quotes.KINDS else f"{kind} of {len(str(value))} characters"


def at(place: str, position: int) -> str:
    """Returns ` at <place> <position>`; nothing where reasons of one kind are to be the same."""
    return "" if _QUOTES.get() is Quotes.KINDS else f" at {place} {position}"
