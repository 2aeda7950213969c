"""Every file of a commit has an id that derives from a planned write task, or the transaction is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coordination.state.model import Slice, WriteTask
from sink.layout.file_ids import file_id, unplanned

SLICES = tuple(Slice("orders", partition, 0, 10, "id", 0) for partition in range(3))
TASKS = (WriteTask(SLICES[:2]), WriteTask(SLICES[2:]))


def stat(task: WriteTask, path: str = "day=1", roll: int = 0, table: str = "table", sink: str = "sink") -> str:
    return json.dumps({"partitionPath": path, "fileId": file_id(table, sink, task, path, roll)})


def unplanned_count(*stats: str) -> int:
    return len(unplanned("table", "sink", TASKS, stats))


def test_each_task_writes_one_file_group_in_each_table_partition_and_may_roll() -> None:
    assert (
        unplanned_count(stat(TASKS[0]), stat(TASKS[0], roll=1), stat(TASKS[0], "day=2"), stat(TASKS[1], "day=2")) == 0
    )
    assert unplanned_count() == 0


@pytest.mark.parametrize(
    "unplanned_stat",
    [
        stat(WriteTask(SLICES)),
        stat(WriteTask(SLICES[:1])),
        stat(WriteTask(SLICES[1::-1])),
        stat(WriteTask((replace(SLICES[2], generation=1),))),
        stat(WriteTask((replace(SLICES[2], end=11),))),
        stat(TASKS[0], roll=2),
        stat(TASKS[0], table="another"),
        stat(TASKS[0], sink="another"),
        json.dumps({"partitionPath": "day=1", "fileId": json.loads(stat(TASKS[0], "day=2"))["fileId"]}),
    ],
    ids=["more slices", "fewer slices", "another order", "another generation", "another end",
         "a roll behind a hole", "another table", "another sink", "another table partition"],
)  # fmt: skip
def test_a_file_of_anything_else_is_found(unplanned_stat: str) -> None:
    assert unplanned_count(stat(TASKS[0]), unplanned_stat, stat(TASKS[1])) == 1


def test_every_file_id_that_is_left_is_named_once() -> None:
    unplanned_stats = [stat(WriteTask(SLICES)), stat(WriteTask(SLICES), "day=2")]
    file_ids = unplanned("table", "sink", TASKS, (*unplanned_stats, stat(TASKS[0])))
    assert file_ids == tuple(sorted(json.loads(text)["fileId"] for text in unplanned_stats))
