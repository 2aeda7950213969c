"""Reads a sink's checkpoints from a table's timeline, without Hudi and without a JVM, for `sink reset`.

Absence has to be proven: a timeline that cannot be read completely is a TableError, never "no checkpoint".
Errors: TableError, Unavailable, Corrupt and OtherVersion for a checkpoint, ConfigError for a file system that pyarrow
does not reach.
"""

from __future__ import annotations

import re

from coordination.errors import TableError
from coordination.state.codec import decode_checkpoint
from coordination.state.model import TopicPartition
from sink.hudi.commits import active_names, completed_in, read_commits, readable
from sink.hudi.files import Content, inspect_base_path
from sink.operations.reset import NO_TABLE, TimelineSnapshot
from sink.storage.access import NO_ACCESS, Access
from sink.storage.table_files import open_table

_REQUESTED = re.compile(r"(\d{17})\.\w+\.(requested|inflight)\Z|(\d{17})\.inflight\Z")


def read_timeline_snapshot(base_path: str, sink: str, access: Access = NO_ACCESS) -> TimelineSnapshot:
    """Reads the timeline. Returns `NO_TABLE` for an empty base path."""
    base = inspect_base_path(base_path, access)
    if base.content is Content.NOTHING:
        return NO_TABLE
    if base.content is Content.OTHER:
        names = ", ".join(base.names)
        raise TableError(f"{base_path} holds something else than a Hudi table ({names}). Correct target.base.path.")
    table = open_table(base_path, access)
    with readable(base_path):
        file_names = active_names(table)
    commits = list(read_commits(table, file_names))
    checkpoints = [
        decode_checkpoint(
            commit.checkpoints[sink], f"{base_path}: checkpoint of sink {sink} in commit {commit.instant}"
        )
        for commit in commits
        if sink in commit.checkpoints
    ]
    generations: dict[TopicPartition, int] = {}
    for checkpoint in checkpoints:
        for partition, end in checkpoint.ends.items():
            generations[partition] = max(generations.get(partition, -1), end.generation)
    completed = frozenset(completed_in(file_names)) | {commit.instant for commit in commits}
    started = {match[1] or match[3] for match in map(_REQUESTED.match, file_names) if match}
    return TimelineSnapshot(
        checkpoint=max(checkpoints, key=lambda checkpoint: checkpoint.number, default=None),
        generations=generations,
        completed=completed,
        pending=frozenset(started) - completed,
    )
