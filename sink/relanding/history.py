"""The commits of a table as a repair needs them: the sink's checkpoints, and the files that readers see.

Guarantee: each completed commit counts once, in the order of completion. Raises TableError for a timeline that cannot
be read whole, Unavailable, and Corrupt for a checkpoint that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordination.planning.relanding import CommittedSlice, OffsetRange
from coordination.state.codec import decode_checkpoint
from sink.hudi.commits import StoredCommit, completed_commits, readable
from sink.hudi.file_groups import FileGroups, Group, NewestBaseFile
from sink.hudi.specification import TableSpecification

REPLAYED_KEY, RELANDED_KEY = "sink.replayed.", "sink.relanded."
"""Begin the keys of what a commit replayed, and has landed again, before the name of the sink."""
_MOVING = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})


@dataclass(frozen=True)
class History:
    """`own` are instants of this sink, `of_sinks` those of all sinks. `removals` are commits of other writers that
    deleted rows."""

    own: frozenset[str]
    of_sinks: frozenset[str]
    committed: tuple[CommittedSlice, ...]
    replayed: tuple[OffsetRange, ...]
    live: Mapping[Group, NewestBaseFile]
    logged: frozenset[Group]
    removals: tuple[str, ...]


def read_history(specification: TableSpecification) -> History:
    commits = completed_commits(specification.store.table())
    with readable(specification.base_path):
        return _history(specification, commits)


def _history(table: TableSpecification, commits: Iterable[StoredCommit]) -> History:
    own: set[str] = set()
    of_sinks: set[str] = set()
    committed: list[CommittedSlice] = []
    replayed: list[OffsetRange] = []
    removals: list[str] = []
    groups = FileGroups()
    for commit in commits:
        if commit.checkpoints:
            of_sinks.add(commit.instant)
        if (text := commit.checkpoints.get(table.sink)) is not None:
            own.add(commit.instant)
            checkpoint = decode_checkpoint(text, f"{table.base_path}: commit {commit.instant}")
            committed += (CommittedSlice(checkpoint.number, result) for result in checkpoint.results)
            replayed += _runs(commit.extra.get(REPLAYED_KEY + table.sink))
        _, deleted = groups.add(commit)
        if deleted and not commit.checkpoints and commit.metadata["operationType"] not in _MOVING:
            removals.append(f"{commit.instant} ({commit.metadata['operationType']})")
    return History(
        frozenset(own),
        frozenset(of_sinks),
        tuple(committed),
        tuple(replayed),
        groups.base_files,
        groups.logged,
        tuple(removals),
    )


def _runs(text: str | None) -> list[OffsetRange]:
    if text is None:
        return []
    return [OffsetRange(topic, partition, low, high) for topic, _, partition, _, low, high in json.loads(text)]
