"""Warnings about columns that were derived from another schema.

A schema of 100 kB can have thousands of fields with long paths that no column holds. Guarantee: a warning has at most
some hundred characters of a path and of a reason, and `sentences` gives at most `MOST_SENTENCES`. Reasons why columns
cannot become a table's are shown likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_SENTENCES = 50
_LONGEST_PATH = 200
_LONGEST_REASON = 500


def shown_path(path: str) -> str:
    """Returns the path as messages show it."""
    return shown_reason(path, _LONGEST_PATH)


def shown_reason(reason: str, longest: int = _LONGEST_REASON) -> str:
    """Returns the reason as messages show it: it may quote a name, a reference or a type."""
    return reason if len(reason) <= longest else f"{reason[:longest]}..."


@dataclass(frozen=True, slots=True)
class OmittedField:
    """A field that no column can hold. `path` is the path of its column: `name`, `struct.name`, `array[].name`,
    `map{}.name`."""

    path: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", shown_reason(self.reason))

    def __str__(self) -> str:
        return f"left out: {shown_path(self.path)}: {self.reason}"


SchemaWarning = str | OmittedField


def sentences(warnings: Sequence[SchemaWarning]) -> list[str]:
    """Returns the first warnings, and how many more there are."""
    shown = [str(warning) for warning in warnings[:MOST_SENTENCES]]
    more = len(warnings) - len(shown)
    return [*shown, f"and {more:,} more"] if more else shown
