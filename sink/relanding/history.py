"""The commits of a table as a repair needs them: the sink's checkpoints, and the files that readers see.

Guarantee: each completed commit counts once, in the order of completion. Raises TableError for a timeline that cannot
be read whole, Unavailable, and Corrupt for a checkpoint that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from coordination.planning.relanding import CommittedSlice, OffsetRange
from coordination.state.codec import decode_checkpoint
from sink.config import Settings
from sink.hudi.commits import StoredCommit, active_names, read_commits, readable
from sink.storage.table_files import open_table

REPLAYED_KEY, RELANDED_KEY = "sink.replayed.", "sink.relanded."
"""Begin the keys of what a commit replayed, and has landed again, before the name of the sink."""
_MOVING = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})

Group = tuple[str, str]
"""Table partition path and file id."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """The newest base file of a group, and the commit that wrote it."""

    path: str
    size: int
    rows: int
    commit: str


@dataclass(frozen=True)
class History:
    """`own` are instants of this sink, `of_sinks` those of all sinks. `removals` are commits of other writers that
    deleted rows."""

    own: frozenset[str]
    of_sinks: frozenset[str]
    committed: tuple[CommittedSlice, ...]
    replayed: tuple[OffsetRange, ...]
    live: Mapping[Group, LiveFile]
    logged: frozenset[Group]
    removals: tuple[str, ...]


def read_history(settings: Settings) -> History:
    table = open_table(settings.base_path, settings.storage)
    with readable(settings.base_path):
        commits = sorted(read_commits(table, active_names(table)), key=lambda c: (c.completed, c.instant))
        return _history(settings, commits)


def _history(settings: Settings, commits: Iterable[StoredCommit]) -> History:
    own: set[str] = set()
    of_sinks: set[str] = set()
    committed: list[CommittedSlice] = []
    replayed: list[OffsetRange] = []
    removals: list[str] = []
    live: dict[Group, LiveFile] = {}
    logs: dict[Group, list[str]] = {}
    for commit in commits:
        if commit.checkpoints:
            of_sinks.add(commit.instant)
        if (text := commit.checkpoints.get(settings.name)) is not None:
            own.add(commit.instant)
            checkpoint = decode_checkpoint(text, f"{settings.base_path}: commit {commit.instant}")
            committed += (CommittedSlice(checkpoint.number, result) for result in checkpoint.results)
            replayed += _runs(commit.extra.get(REPLAYED_KEY + settings.name))
        deleted = 0
        for folder, stats in (commit.metadata["partitionToWriteStats"] or {}).items():
            for stat in filter(itemgetter("path"), stats):
                group = folder, stat["fileId"]
                deleted += stat["numDeletes"] or 0
                if stat["path"].rpartition("/")[2].startswith("."):
                    logs.setdefault(group, []).append(commit.completed)
                else:
                    size, rows = stat["fileSizeInBytes"] or 0, stat["numWrites"] or 0
                    live[group] = LiveFile(stat["path"], size, rows, commit.instant)
                    # A base file holds the rows of logs that had completed when its instant was requested.
                    logs[group] = [completed for completed in logs.get(group, ()) if completed > commit.instant]
        for folder, file_ids in (commit.metadata.get("partitionToReplaceFileIds") or {}).items():
            for file_id in file_ids:
                gone = live.pop((folder, file_id), None)
                deleted += gone.rows if gone else 0
                logs.pop((folder, file_id), None)
        if deleted and not commit.checkpoints and commit.metadata["operationType"] not in _MOVING:
            removals.append(f"{commit.instant} ({commit.metadata['operationType']})")
    logged = frozenset(group for group, completed in logs.items() if completed)
    return History(
        frozenset(own), frozenset(of_sinks), tuple(committed), tuple(replayed), live, logged, tuple(removals)
    )


def _runs(text: str | None) -> list[OffsetRange]:
    if text is None:
        return []
    return [OffsetRange(topic, partition, low, high) for topic, _, partition, _, low, high in json.loads(text)]
