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
    """The settings time.unit, date.unit, decimal.format, decimal.rounding and field.case."""

    time_unit: ByColumn = field(default_factory=dict)
    date_unit: ByColumn = field(default_factory=dict)
    decimal_format: ByColumn = field(default_factory=dict)
    rounds: bool = False
    exact_case: bool = False


def chosen(choices: ByColumn, path: str) -> str | None:
    return choices.get(path, choices.get(""))


def decimal_type(kind: Any) -> tuple[int, int] | None:
    """Returns precision and scale of `decimal(10,2)`; None for another type."""
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)
