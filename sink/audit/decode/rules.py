"""The columns of a table as the auditor knows them: types as Spark writes them in JSON, and rules of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


def chosen(choices: ByColumn, path: str) -> str | None:
    return choices.get(path, choices.get(""))


def place(rules: Rules, column: str, parent: str) -> tuple[str, ...]:
    """Returns the path of a column's field, in the field of the struct `parent` that it is in."""
    whole = _source(rules, column)
    return whole[len(_source(rules, parent)) :]


def _source(rules: Rules, column: str) -> tuple[str, ...]:
    if not column:
        return ()
    outer, _, name = column.rpartition(".")
    return rules.names.get(column, (*_source(rules, outer), name))


def decimal_type(kind: Any) -> tuple[int, int] | None:
    """Returns precision and scale of `decimal(10,2)`; None for another type."""
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)
