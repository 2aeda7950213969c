"""JSON as the auditor parses it, and how a value that is not a text is written into one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class Number(str):
    """A number as written."""


class Members(tuple[tuple[str, Any], ...]):
    """The members of an object, in their order."""


def written(found: Any) -> str:
    """Writes a value that is not a text, level by level: Python's own depth is limited."""
    done: dict[int, str] = {}
    levels = [[found]]
    while levels[-1]:
        levels.append([inner for outer in levels[-1] for inner in _inside(outer) if isinstance(inner, (Members, list))])
    for level in reversed(levels):
        for outer in level:
            if isinstance(outer, Members):
                members = (f"{_quoted(name)}:{_plain(inner, done)}" for name, inner in outer)
                done[id(outer)] = "{" + ",".join(members) + "}"
            elif isinstance(outer, list):
                done[id(outer)] = "[" + ",".join(_plain(inner, done) for inner in outer) + "]"
    return _plain(found, done)


def _inside(outer: Any) -> list[Any]:
    return (
        [inner for _, inner in outer] if isinstance(outer, Members) else list(outer) if isinstance(outer, list) else []
    )


def _plain(value: Any, done: Mapping[int, str]) -> str:
    if isinstance(value, (Members, list)):
        return done[id(value)]
    if isinstance(value, str):
        return str(value) if isinstance(value, Number) else _quoted(value)
    return {True: "true", False: "false", None: "null"}[value]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def depth(value: bytes) -> int:
    """Returns how deep objects and arrays are nested in a text."""
    level = deepest = 0
    in_text = escaped = False
    for sign in value:
        if in_text:
            if escaped:
                escaped = False
            elif sign == 0x5C:
                escaped = True
            elif sign == 0x22:
                in_text = False
        elif sign == 0x22:
            in_text = True
        elif sign in b"{[":
            level += 1
            deepest = max(deepest, level)
        elif sign in b"}]":
            level -= 1
    return deepest
