"""Removes custom options from Protobuf sources: `option (x) = 1;` and `[(x) = 1]`, which change no value on the wire.

Guarantee: nothing else is removed. A source that is not valid gives one that is not valid either. Raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\s+|[\w.]+|.""", re.DOTALL)
"""Comments and texts may lack their ends: a source is read in one pass, whatever it is."""
_OPEN, _CLOSE = "([{", ")]}"


def without_custom_options(source: str) -> str:
    """Returns the source without custom options, and without comments."""
    tokens = ["\n" if token.startswith(("//", "/*")) else token for token in _TOKEN.findall(source)]
    return "".join(_kept(tokens))


def _kept(tokens: Sequence[str]) -> Iterator[str]:
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token == "option" and _next_sign(tokens, position + 1) == "(":
            position = _end(tokens, position, ";") + 1
        elif token == "[":
            end = _end(tokens, position + 1, "]")
            yield from _options(tokens[position + 1 : end])
            position = end + 1
        else:
            yield token
            position += 1


def _options(tokens: Sequence[str]) -> Iterator[str]:
    """Yields the options of a list that are not custom ones, in brackets."""
    kept: list[str] = []
    position = 0
    while position < len(tokens):
        end = _end(tokens, position, ",")
        if _next_sign(tokens, position) != "(":
            kept.append("".join(tokens[position:end]))
        position = end + 1
    if kept:
        yield f"[{','.join(kept)}]"


def _end(tokens: Sequence[str], position: int, sign: str) -> int:
    """Returns where the sign stands that ends the part from `position` on, outside of inner brackets."""
    depth = 0
    while position < len(tokens):
        token = tokens[position]
        if depth == 0 and token == sign:
            return position
        depth += (token in _OPEN) - (token in _CLOSE)
        position += 1
    return position


def _next_sign(tokens: Sequence[str], position: int) -> str:
    return next((token for token in tokens[position : position + 50] if not token.isspace()), "")
