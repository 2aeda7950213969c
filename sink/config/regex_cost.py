"""How long matching a topic's name may take: an expression that tries a name in too many ways is refused when read.

Python's matcher goes back and tries again: `([a-z]+)+x` takes hours for a name of forty letters, which anybody who may
create a topic can choose. Refused here, because the expressions are matched in many places and with a lookahead that
the linear engines (RE2) do not have.

Guarantee: `ways` is not below the number of ways in which an accepted expression matches the beginning of a topic's
name. Pure; raises nothing on purpose.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Sequence
from typing import Any

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

LONGEST_NAME = 249
MOST_WAYS = LONGEST_NAME**3
"""Up to three parts of any length beside each other: a tenth of a second for the worst name."""
_CHARACTERS = string.ascii_letters + string.digits + "._-"
"""A topic's name has no others."""
_ALL = frozenset(_CHARACTERS)
_IGNORING_CASE = re.compile(r"\(\?[a-z]*i")
_SINGLE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

Node = tuple[Any, Any]
First = frozenset[str]


def ways(expression: str) -> int:
    """Returns a bound for the ways to match an expression, `MOST_WAYS` + 1 for any above that."""
    ignore_case = _IGNORING_CASE.search(expression) is not None
    tree: Any = parser.parse(expression)
    return min(_Ways(ignore_case).of(list(tree), frozenset()), MOST_WAYS + 1)


class _Ways:
    def __init__(self, ignore_case: bool) -> None:
        self._ignore_case = ignore_case

    def of(self, nodes: Sequence[Node], follow: First) -> int:
        """Returns the ways to match the nodes one after another, before one of the characters in `follow`."""
        total = 1
        for node in reversed(nodes):
            total *= self._of_node(node, follow)
            first, may_be_empty = self._first([node])
            follow = first | follow if may_be_empty else first
            if total > MOST_WAYS:
                return MOST_WAYS + 1
        return total

    def _of_node(self, node: Node, follow: First) -> int:
        name, value = str(node[0]), node[1]
        if name in _REPEATS:
            return self._of_repeat(value[0], int(value[1]), list(value[2]), follow)
        if name == "SUBPATTERN":
            return self.of(list(value[3]), follow)
        if name == "ATOMIC_GROUP":
            return self.of(list(value), follow)
        if name == "BRANCH":
            return self._of_branches([list(branch) for branch in value[1]], follow)
        if name in ("ASSERT", "ASSERT_NOT"):
            return self.of(list(value[1]), _ALL)
        if name == "GROUPREF_EXISTS":
            return self._of_branches([list(value[1]), list(value[2] or ())], follow)
        return 1

    def _of_repeat(self, least: int, most: int, body: list[Node], follow: First) -> int:
        first, may_be_empty = self._first(body)
        most = min(most, LONGEST_NAME)
        inner = self.of(body, first | follow if most > 1 else follow)
        # Where the next character tells whether the repetition ends, there is one way to end it.
        ends = 1 if not first & follow and not may_be_empty else most - min(least, most) + 1
        if inner == 1:
            return ends
        total = ends
        for _ in range(most):
            total *= inner
            if total > MOST_WAYS:
                return MOST_WAYS + 1
        return total

    def _of_branches(self, branches: list[list[Node]], follow: First) -> int:
        each = [self.of(branch, follow) for branch in branches]
        seen: set[str] = set()
        for branch in branches:
            first, may_be_empty = self._first(branch)
            first = first | follow if may_be_empty else first
            if seen & first:
                return sum(each)
            seen |= first
        return max(each)

    def _first(self, nodes: Sequence[Node]) -> tuple[First, bool]:
        """Returns the characters with which the nodes may begin, and whether they may match nothing."""
        first: First = frozenset()
        for node in nodes:
            begin, may_be_empty = self._first_of(node)
            first |= begin
            if not may_be_empty:
                return first, False
        return first, True

    def _first_of(self, node: Node) -> tuple[First, bool]:
        name, value = str(node[0]), node[1]
        if name in _SINGLE:
            return self._characters(node), False
        if name in _REPEATS:
            first, may_be_empty = self._first(list(value[2]))
            return first, may_be_empty or value[0] == 0
        if name == "SUBPATTERN":
            return self._first(list(value[3]))
        if name == "BRANCH":
            firsts = [self._first(list(branch)) for branch in value[1]]
            return frozenset().union(*(first for first, _ in firsts)), any(may_be_empty for _, may_be_empty in firsts)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return frozenset(), True
        return _ALL, True

    def _characters(self, node: Node) -> First:
        """Returns the characters of topics' names that a single position matches."""
        name, value = str(node[0]), node[1]
        if name == "ANY":
            return _ALL
        if name == "LITERAL":
            matched = {chr(value)}
        elif name == "NOT_LITERAL":
            matched = set(_ALL) - {chr(value)}
        else:
            matched = {character for character in _CHARACTERS if _in_set(character, value)}
        if self._ignore_case:
            matched |= {character.swapcase() for character in matched}
        return frozenset(matched) & _ALL


def _in_set(character: str, parts: Sequence[Node]) -> bool:
    negated, found = False, False
    for kind, value in parts:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found |= ord(character) == value
            case "RANGE":
                found |= value[0] <= ord(character) <= value[1]
            case "CATEGORY":
                found |= _in_category(character, str(value))
            case _:
                found = True
    return found != negated


def _in_category(character: str, name: str) -> bool:
    plain = name.replace("_NOT_", "_")
    is_member = {
        "CATEGORY_DIGIT": character.isdigit(),
        "CATEGORY_WORD": character.isalnum() or character == "_",
        "CATEGORY_SPACE": False,
    }.get(plain, True)
    return is_member != (plain != name)
