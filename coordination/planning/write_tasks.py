"""Groups the slices of a batch into write tasks: next-fit over the recorded ranges of the batch alone.

Guarantee: the same recorded ranges give the same tasks on any coordinator, in every attempt, whatever the settings, the
members and the assignment are by then. Slices come in the order of topic, partition and start; a task is closed when
the next slice would make it read more than the `task_records` that its range records. Void for ranges that are not all
of the batch: `transactions.inconsistency` compares the planned tasks with the recorded ranges before a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.planning import slicing
from coordination.state.model import (
    NO_ANCHOR,
    Member,
    OpenRange,
    PartitionState,
    Slice,
    TopicPartition,
    WorkerState,
    WriteTask,
)

MIB = 1 << 20
ASSUMED_BYTES = 1024.0
"""Bytes of an offset, while nothing was measured."""
SLICES_A_TASK = 4
"""How finely a large partition is cut, so that no task is more than a quarter larger than the average."""


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """Bytes of records that a write task is planned for: `target` where there is much to do, never less than `least`,
    so that a trickle becomes one file and not one for each core."""

    target: int = 512 * MIB
    least: int = 4 * MIB

    def __post_init__(self) -> None:
        if min(self.target, self.least) < 1:
            raise ValueError(f"sizes must be at least 1: {self}")


USUAL_SIZES = TaskSizes()


def of_batch(states: Mapping[TopicPartition, PartitionState], batch: int) -> tuple[WriteTask, ...]:
    """Returns the write tasks of a recorded batch."""
    return group_into_tasks(
        (source, state, recorded)
        for source, state in states.items()
        for recorded in state.open
        if recorded.batch == batch
    )


def group_into_tasks(ranges: Iterable[tuple[TopicPartition, PartitionState, OpenRange]]) -> tuple[WriteTask, ...]:
    """Returns the write tasks of these ranges, each with its partition and its state. Ranges that record different
    targets, as those of a batch that is divided only in part, share no task.
    """
    slices: dict[int, list[Slice]] = {}
    for source, state, recorded in sorted(ranges, key=lambda item: (item[0], item[2].start)):
        cut = slicing.cut(source, state.topic_id, recorded, _anchor(state, recorded))
        slices.setdefault(recorded.task_records, []).extend(cut)
    return tuple(task for target in sorted(slices) for task in _packed(slices[target], target))


def _anchor(state: PartitionState, recorded: OpenRange) -> int:
    """Returns the offset of the last record before the range. Behind a range that is open, nobody knows it yet: its
    reader looks back within that one.
    """
    if recorded.start > state.end:
        return max(state.end, recorded.start - slicing.LOOK_BACK)
    return NO_ANCHOR if state.anchor is None else state.anchor.offset


def _packed(slices: Iterable[Slice], target: int) -> Iterator[WriteTask]:
    task: list[Slice] = []
    size = 0
    for piece in slices:
        if task and size + piece.size > target:
            yield WriteTask(tuple(task))
            task, size = [], 0
        task.append(piece)
        size += piece.size
    if task:
        yield WriteTask(tuple(task))


def cores(members: Iterable[Member], single_writer: bool) -> int:
    """Returns how many write tasks the fleet runs side by side; where one worker writes alone, those of the largest
    one.
    """
    counts = [max(member.cores, 1) for member in members if member.state is WorkerState.ACTIVE]
    return (max if single_writer else sum)(counts or [1])


def max_task_count(offsets: int, bytes_per_offset: float | None, cores: int, sizes: TaskSizes) -> int:
    """Returns the most write tasks for a batch of so many offsets. `bytes_per_offset` is None while nothing was
    measured: then a large batch has one for each core. Else tasks have the target's size, in whole rounds of the cores,
    but at least one for each core; fewer where they would be small.
    """
    rounds = 1 if bytes_per_offset is None else int(offsets * bytes_per_offset // sizes.target // cores)
    weight = offsets * (ASSUMED_BYTES if bytes_per_offset is None else bytes_per_offset)
    return min(cores * max(rounds, 1), max(1, int(-(-weight // sizes.least))))


def with_task_limit(ranges: Mapping[TopicPartition, OpenRange], tasks: int) -> dict[TopicPartition, OpenRange]:
    """Gives new ranges a target that makes them at most so many tasks of about equal size, and a step that cuts
    partitions which are too large for a task.
    """
    total = sum(new_range.end - new_range.start for new_range in ranges.values())
    cut = {
        source: replace(new_range, step=min(new_range.step, max(1, -(-total // (SLICES_A_TASK * tasks)))))
        if tasks > 1
        else new_range
        for source, new_range in sorted(ranges.items())
    }
    target = least_target([size for new_range in cut.values() for size in slicing.sizes(new_range)], tasks)
    return {source: replace(new_range, task_records=target) for source, new_range in cut.items()}


def least_target(sizes: Sequence[int], tasks: int) -> int:
    """Returns the smallest target with which slices of these sizes, in this order, make at most so many tasks."""
    if not sizes:
        return 1
    largest = max(sizes)
    low, high = max(largest, -(-sum(sizes) // tasks)), sum(sizes) // tasks + largest
    while low < high:
        middle = (low + high) // 2
        if _tasks(sizes, middle) <= tasks:
            high = middle
        else:
            low = middle + 1
    return low


def _tasks(sizes: Iterable[int], target: int) -> int:
    tasks, size = 0, target + 1
    for slice_size in sizes:
        size += slice_size
        if size > target:
            tasks, size = tasks + 1, slice_size
    return tasks
