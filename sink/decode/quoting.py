"""Quotes values of records in reasons, or describes them by type and length where the settings say so.

Reasons go to logs, znodes, HTTP, metrics and dead letters, which more people read than the topic. Guarantee: within
`quoting(False)`, every reason of a value, a key or a table partition describes values (`errors.quote.values`). Names of
columns, types, positions in a value and ids of schemas are not values. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_QUOTES: ContextVar[bool] = ContextVar("quotes", default=True)


@contextmanager
def quoting(enabled: bool) -> Iterator[None]:
    """Decides for this thread whether `quoted` quotes."""
    token = _QUOTES.set(enabled)
    try:
        yield
    finally:
        _QUOTES.reset(token)


def quotes() -> bool:
    """Returns whether reasons quote values."""
    return _QUOTES.get()


def quoted(value: object, as_written: str, kind: str = "a text") -> str:
    """Returns `as_written`, which quotes the value, or the value's kind and its length as a text."""
    return as_written if quotes() else f"{kind} of {len(str(value))} characters"
