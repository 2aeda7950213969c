"""Writes a JSON value that is not a string as text, for a string column.

Guarantee: the members and elements in their order, repeated ones too, without blanks between them; numbers with the
digits as written; strings with escapes only for what JSON cannot hold otherwise. Raises nothing.
"""

from __future__ import annotations

import json
from typing import Any


class WholeNumber(str):
    """The digits of a JSON number without fraction or exponent."""


class FractionalNumber(str):
    """The digits of a JSON number with fraction or exponent, or NaN, Infinity, -Infinity."""


class JsonObject(list[tuple[str, Any]]):
    """The members of a JSON object in their order, repeated keys included."""


class _Sign(str):
    """A part of the text that is written as it is."""


def compact_text(value: Any) -> str:
    """Returns the text of a JSON value, with numbers as `WholeNumber` and `FractionalNumber`."""
    parts: list[str] = []
    pending = [value]
    """The parts that are still to be written, the next one last."""
    while pending:
        part = pending.pop()
        if type(part) is JsonObject:
            members = [item for name, inner in part for item in (_Sign(","), _Sign(f"{_quote(name)}:"), inner)]
            pending += [_Sign("}"), *reversed(members[1:]), _Sign("{")]
        elif type(part) is list:
            elements = [item for inner in part for item in (_Sign(","), inner)]
            pending += [_Sign("]"), *reversed(elements[1:]), _Sign("[")]
        else:
            parts.append(_scalar(part))
    return "".join(parts)


def _scalar(value: Any) -> str:
    if type(value) is str:
        return _quote(value)
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower()


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
