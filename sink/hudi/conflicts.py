"""Tells concurrent changes of the same file groups and keys.

If another writer has completed a change meanwhile (`HudiTimeline.changes_since`), that is a conflict, and the
transaction is formed again: a change of the same file groups, or keys that both writers have added, because neither
found the other's. A pending compaction conflicts with nothing: rows that are appended after its plan belong to the file
slice that it makes. Pure; raises nothing.
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
    that looks keys up has added rows."""

    groups: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()

    def __or__(self, other: TableChanges) -> TableChanges:
        return TableChanges(self.groups | other.groups, self.grown | other.grown)

    def conflicts_with(self, other: TableChanges, key_is_global: bool) -> bool:
        """`key_is_global`: a key is one row in the whole table, and not one in each table partition."""
        if self.groups & other.groups:
            return True
        return bool(self.grown and other.grown if key_is_global else self.grown & other.grown)


def table_changes(stats: Sequence[str], looks_keys_up: bool) -> TableChanges:
    """Returns the changes of a transaction with these stats."""
    parsed = [json.loads(stat) for stat in stats]
    groups = frozenset(stat["fileId"] for stat in parsed if not _is_new(stat))
    return TableChanges(groups, grown_partitions(parsed) if looks_keys_up else frozenset())


def grown_partitions(stats: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Returns the table partitions in which these stats have added rows or file groups."""
    return frozenset(stat["partitionPath"] for stat in stats if stat["numInserts"] or _is_new(stat))


def _is_new(stat: Mapping[str, Any]) -> bool:
    return stat["prevCommit"] in (None, NEW)
