"""Tells concurrent changes of the same file groups and keys.

If another writer has completed a change meanwhile (`HudiTimeline.changes_since`), that is a conflict, and the
transaction is formed again: a change of the same file groups; keys that both writers have added, because neither found
the other's; file groups that were replaced while Hudi looked for rows that move to another table partition. Of such a
row Hudi finds the file group by the index first, and reads the row then: in a group that was replaced in between it
finds none, and leaves the row where it was. A pending compaction conflicts with nothing: rows that are appended after
its plan belong to the file slice that it makes. Pure; raises nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NEW = "null"
"""Hudi writes it as the earlier commit of a file group that has none."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """`groups`: ids of existing file groups that were changed or replaced. `grown`: table partitions to which a writer
    that looks keys up has added rows. `replaces`: whether file groups were replaced, by a clustering for one.
    `built_on`: the instants of the file slices that were changed. `undone`: those that are pending or rolled back."""

    groups: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()
    replaces: bool = False
    built_on: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()

    def __or__(self, other: TableChanges) -> TableChanges:
        return TableChanges(
            self.groups | other.groups,
            self.grown | other.grown,
            self.replaces or other.replaces,
            self.built_on | other.built_on,
            self.undone | other.undone,
        )

    def conflicts_with(self, other: TableChanges, key_is_global: bool) -> bool:
        """`key_is_global`: a key is one row in the whole table, and not one in each table partition."""
        # An instant whose completion was cut short has been shown as complete: its files may go.
        if self.groups & other.groups or self.built_on & other.undone:
            return True
        # A table without partitions has one, with an empty name: no row moves to another.
        if key_is_global and other.replaces and any(self.grown):
            return True
        return bool(self.grown and other.grown if key_is_global else self.grown & other.grown)


def table_changes(stats: Sequence[str], looks_keys_up: bool) -> TableChanges:
    """Returns the changes of a transaction with these stats."""
    parsed = [json.loads(stat) for stat in stats]
    changed = [stat for stat in parsed if not _is_new(stat)]
    return TableChanges(
        frozenset(stat["fileId"] for stat in changed),
        grown_partitions(parsed) if looks_keys_up else frozenset(),
        built_on=frozenset(stat["prevCommit"] for stat in changed),
    )


def grown_partitions(stats: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Returns the table partitions in which these stats have added rows or file groups."""
    return frozenset(stat["partitionPath"] for stat in stats if stat["numInserts"] or _is_new(stat))


def _is_new(stat: Mapping[str, Any]) -> bool:
    return stat["prevCommit"] in (None, NEW)
