"""The columns of a table as the auditor knows them: types as Spark writes them in JSON, and rules of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

ByColumn = Mapping[str, str]
"""Values by the dotted path of a column; that of the empty path is for all others."""


class Bad(Exception):
    """The value cannot be a row of the table: the text says why."""


@dataclass(frozen=True)
class Rules:
    """The settings time.unit, date.unit, time.infinity, decimal.format, decimal.rounding, field.case and field.names,
    or what a message says in their place."""

    time_unit: ByColumn = field(default_factory=dict)
    date_unit: ByColumn = field(default_factory=dict)
    decimal_format: ByColumn = field(default_factory=dict)
    decimal_scale: Mapping[str, int] = field(default_factory=dict)
    """The scales of texts in base64 that a message says; the others have that of their column."""
    infinity: str = "bad"
    rounds: bool = False
    exact_case: bool = False
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The paths of fields (field.names) by that of their column."""
    _places: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Paths that `place` found before."""
    structs: dict[tuple[int, str], tuple[Any, list[Any]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Fields that a decoder has worked out, by identity and path of their struct, with the struct."""


def chosen(choices: ByColumn, path: str) -> str | None:
    return choices.get(path, choices.get(""))


def place(rules: Rules, column: str, parent: str) -> tuple[str, ...]:
    """Returns the path of a column's field, in the field of the struct `parent` that it is in."""
    found = rules._places.get((column, parent))
    if found is None:
        found = _source(rules, column)[len(_source(rules, parent)) :]
        rules._places[column, parent] = found
    return found


def _source(rules: Rules, column: str) -> tuple[str, ...]:
    if not column:
        return ()
    outer, _, name = column.rpartition(".")
    return rules.names.get(column, (*_source(rules, outer), name))


def decimal_type(kind: Any) -> tuple[int, int] | None:
    """Returns precision and scale of `decimal(10,2)`; None for another type."""
    return _decimal_type(kind) if isinstance(kind, str) else None


@cache
def _decimal_type(kind: str) -> tuple[int, int] | None:
    if not kind.startswith("decimal("):
        return None
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)
