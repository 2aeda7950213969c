"""Makes file ids: a write task has the same file groups in every attempt, and no other task has them.

The id depends on everything that distinguishes two file groups, and on nothing that differs between attempts. Raises
nothing on purpose.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

from coordination.state.model import WriteTask

_NAMESPACE = uuid.UUID("6f0e6a3c-6f0d-5d0b-9c55-0a3a1e0b7c11")


def file_id(table: str, sink: str, task: WriteTask, path: str, roll: int) -> str:
    """Returns the id of the task's `roll`-th file in the table partition `path`: a UUIDv5 of all its slices."""
    return f"{uuid.uuid5(_NAMESPACE, json.dumps([table, sink, *_identity(task), path, roll]))}-0"


def unplanned(table: str, sink: str, tasks: Iterable[WriteTask], stats: Iterable[str]) -> tuple[str, ...]:
    """Returns the file ids in the write stats that belong to none of the tasks, sorted.

    In each table partition a task's rolls count from 0: if a roll is missing, later ones belong to no task.
    """
    paths: dict[str, set[str]] = {}
    for stat in map(json.loads, stats):
        paths.setdefault(stat["partitionPath"], set()).add(stat["fileId"])
    tasks = tuple(tasks)
    for path, ids in paths.items():
        for task in tasks:
            roll = 0
            while (planned := file_id(table, sink, task, path, roll)) in ids:
                ids.discard(planned)
                roll += 1
    return tuple(sorted(unclaimed for ids in paths.values() for unclaimed in ids))


def _identity(task: WriteTask) -> list[object]:
    return [[[s.topic_id, s.generation, s.topic, s.partition, s.start, s.end] for s in task.slices]]
