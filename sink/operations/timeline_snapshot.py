"""Reads a sink's checkpoints from a table's timeline, without Hudi and without a JVM, for `sink reset`.

Absence has to be proven: a timeline that cannot be read whole is a TableError, never "no checkpoint".
Errors: TableError, Unavailable, ConfigError for a file system that pyarrow does not reach.
"""

from __future__ import annotations

import re

from coordination.errors import TableError, Unavailable
from coordination.state.model import TopicPartition
from sink.audit.timeline import active_names, open_table, read_timeline
from sink.hudi.files import Content, inspect_base_path
from sink.operations.reset import NO_TABLE, TimelineSnapshot
from sink.storage.access import NO_ACCESS, Access

_REQUESTED = re.compile(r"(\d{17})\.\w+\.(requested|inflight)\Z|(\d{17})\.inflight\Z")


def read_timeline_snapshot(base_path: str, sink: str, access: Access = NO_ACCESS) -> TimelineSnapshot:
    """Reads the timeline. Returns `NO_TABLE` for an empty base path."""
    base = inspect_base_path(base_path, access)
    if base.content is Content.NOTHING:
        return NO_TABLE
    if base.content is Content.OTHER:
        what = ", ".join(base.names)
        raise TableError(f"{base_path} holds something else than a Hudi table ({what}); correct target.base.path")
    try:
        table = open_table(base_path, access)
        names = active_names(table)
        timeline = read_timeline(table, names)
    except OSError as error:
        raise Unavailable(f"{base_path}: the timeline cannot be read ({error}); try again") from error
    if timeline.problems:
        first = timeline.problems[0].sentence
        raise TableError(f"{base_path}: the timeline cannot be read whole ({first}); see `sink audit`, repair it first")
    checkpoints = [c.checkpoints[sink] for c in timeline.commits if sink in c.checkpoints]
    generations: dict[TopicPartition, int] = {}
    for checkpoint in checkpoints:
        for source, reached in checkpoint.ends.items():
            generations[source] = max(generations.get(source, -1), reached.generation)
    started = {match[1] or match[3] for match in map(_REQUESTED.match, names) if match}
    return TimelineSnapshot(
        checkpoint=max(checkpoints, key=lambda c: c.number, default=None),
        generations=generations,
        completed=timeline.completed,
        pending=frozenset(started) - timeline.completed,
    )
