"""The rows that a table must hold, computed without Spark and Hudi."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A record of the log: a row, or the deletion of the row with the key columns of `row`."""

    row: Row
    deletes: bool = False


@dataclass
class SinkState:
    """The content that the newest checkpoint of a sink must have."""

    number: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """The next offset of each Kafka partition."""


@dataclass
class Contents:
    """The rows by their keys, and the checkpoints by the names of the sinks, at one moment."""

    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    deleted_at: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """The ordering values of deletions of keys that have no row."""
    unspecified: set[tuple[Any, ...]] = field(default_factory=set)
    """Keys of which Hudi promises nothing: a change came that is older than their deletion."""
    sinks: dict[str, SinkState] = field(default_factory=dict)


class Model:
    """A table's contents, and those that a restore brings back.

    `key`: the columns of which each value has one row. `ordering`: the column whose greater or equal value wins;
    without it the later change wins.
    """

    def __init__(self, key: tuple[str, ...], ordering: str | None) -> None:
        self._key = key
        self._ordering = ordering
        self.now = Contents()
        self._saved: Contents | None = None

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            key = tuple(change.row[name] for name in self._key)
            known = self.now.rows.get(key)
            at = change.row[self._ordering] if self._ordering else 0
            if known is not None and self._ordering and at < known[self._ordering]:
                continue
            if known is None and at < self.now.deleted_at.get(key, 0):
                self.now.unspecified.add(key)
                continue
            self.now.unspecified.discard(key)
            self.now.rows.pop(key, None)
            self.now.deleted_at.pop(key, None)
            if change.deletes:
                self.now.deleted_at[key] = at
            else:
                self.now.rows[key] = change.row

    def drop(self, column: str, value: Any) -> None:
        """Deletes the rows with this value."""
        self.now.rows = {key: row for key, row in self.now.rows.items() if row[column] != value}

    def land(self, sink: str, partition_ends: Mapping[int, int], changes: Iterable[Change]) -> None:
        """Applies a transaction of a sink that reached these ends."""
        self.apply(changes)
        state = self.now.sinks.setdefault(sink, SinkState())
        state.number += 1
        state.ends |= partition_ends

    def save(self) -> None:
        self._saved = copy.deepcopy(self.now)

    @property
    def is_saved(self) -> bool:
        return self._saved is not None

    def restore(self) -> None:
        assert self._saved is not None
        self.now, self._saved = self._saved, None

    def specified(self, found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leaves out rows of which Hudi promises nothing."""
        return [row for row in found if tuple(row.get(name) for name in self._key) not in self.now.unspecified]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as `readable` makes them of what a reader returns."""
        return readable(self.now.rows.values())


def readable(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Returns rows in an order, without null columns and Hudi's own: a column that no row of a file has may be missing
    or null.
    """
    plain = [
        {name: value for name, value in row.items() if value is not None and not name.startswith("_")} for row in rows
    ]
    return sorted(plain, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


def difference(expected: list[dict[str, Any]], found: list[dict[str, Any]], most: int = 3) -> str:
    """Returns what differs, in words; an empty text if nothing does."""
    if expected == found:
        return ""
    missing, surplus = list(expected), []
    for row in found:
        if row in missing:
            missing.remove(row)
        else:
            surplus.append(row)
    return f"{len(missing)} rows are missing, {len(surplus)} are wrong: {missing[:most]} against {surplus[:most]}"
