"""Reads a sink's checkpoints from a table's timeline, without Hudi and without a JVM, for `sink reset`.

Absence has to be proven: a timeline that cannot be read completely is a TableError, never "no checkpoint".
Errors: TableError, Unavailable, ConfigError for a file system that pyarrow does not reach.
"""

from __future__ import annotations

import re

from coordination.errors import TableError, Unavailable
from coordination.state.model import TopicPartition
from sink.audit.timeline import active_names, read_timeline
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
        raise TableError(f"{base_path} holds something else than a Hudi table ({names}); correct target.base.path")
    try:
        table = open_table(base_path, access)
        file_names = active_names(table)
        timeline = read_timeline(table, file_names)
    except OSError as error:
        raise Unavailable(f"{base_path}: the timeline cannot be read ({error}); try again") from error
    if timeline.problems:
        first_problem = timeline.problems[0].sentence
        raise TableError(
            f"{base_path}: the timeline cannot be read whole ({first_problem}); see `sink audit`, repair it first"
        )
    checkpoints = [commit.checkpoints[sink] for commit in timeline.commits if sink in commit.checkpoints]
    generations: dict[TopicPartition, int] = {}
    for checkpoint in checkpoints:
        for partition, end in checkpoint.ends.items():
            generations[partition] = max(generations.get(partition, -1), end.generation)
    started = {match[1] or match[3] for match in map(_REQUESTED.match, file_names) if match}
    return TimelineSnapshot(
        checkpoint=max(checkpoints, key=lambda checkpoint: checkpoint.number, default=None),
        generations=generations,
        completed=timeline.completed,
        pending=frozenset(started) - timeline.completed,
    )
