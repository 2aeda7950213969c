"""The table of mutations: a thing and what happens to it. Each cell breaks a copy of a kept table in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sink.audit.report import FindingKind
from tests.mutations.edit import Edited

THINGS = (
    *("row", "cell", "column", "file", "log block", "delete block", "footer", "statistics", "metadata table"),
    *("partition path", "errors row", "checkpoint", "digest", "catalogue entry"),
)
WAYS = ("missing", "extra", "altered", "stale")
EXCUSED = {("catalogue entry", way): "no level of the audit reads a catalogue" for way in WAYS}
"""Cells that nothing looks for, with the reason. At most six; `docs/audit.md` lists them."""


@dataclass(frozen=True)
class Cell:
    """`break_it` breaks the table of this name, and returns a text of the finding: where it is."""

    thing: str
    way: str
    table: str
    kind: FindingKind
    break_it: Callable[[Edited], str]

    @property
    def name(self) -> str:
        return f"{self.thing} {self.way}"


CELLS: list[Cell] = []


def cell(
    thing: str, way: str, table: str, kind: FindingKind
) -> Callable[[Callable[[Edited], str]], Callable[[Edited], str]]:
    """Adds a function to the table of mutations."""

    def add(break_it: Callable[[Edited], str]) -> Callable[[Edited], str]:
        CELLS.append(Cell(thing, way, table, kind, break_it))
        return break_it

    return add


def place(row: Any) -> str:
    """Where a row is, as the audit says it."""
    return f"{row['_kafka_topic']}-{row['_kafka_partition']} offset {row['_kafka_offset']}"
