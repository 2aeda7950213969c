"""Groups the slices of a batch into write tasks: next-fit over the recorded ranges of the batch alone.

Guarantee: the same recorded ranges give tasks of the same offsets on any coordinator, in every attempt, whatever the
settings, the members and the assignment are by then. Slices come in the order of topic, partition and start; a task is
closed when the next slice would give it more offsets than the `task_records` of its range. Void if some ranges of the
batch are missing: `transactions.inconsistency` compares the planned tasks with the recorded ranges before a commit.
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
"""Bytes of records for each offset, until the sink has measured some: those of a usual event."""
SLICES_A_TASK = 4
"""A partition with more than this part of a task is cut, so that no task is more than a quarter above the average."""


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
    """Returns the write tasks of these ranges. Each range comes with its partition and the partition's state. Ranges
    that record different `task_records` share no task: a batch that is divided only in part has such.
    """
    slices: dict[int, list[Slice]] = {}
    for source, state, recorded in sorted(ranges, key=lambda item: (item[0], item[2].start)):
        cut = slicing.cut(source, state.topic_id, recorded, _anchor(state, recorded))
        slices.setdefault(recorded.task_records, []).extend(cut)
    return tuple(task for target in sorted(slices) for task in _packed(slices[target], target))


def _anchor(state: PartitionState, recorded: OpenRange) -> int:
    """Returns where a reader looks for the last record before the range: at its offset, if that is known. Behind an
    open range it is unknown: the reader looks back `slicing.LOOK_BACK` offsets at most, and not before that range.
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
    one. Without an active member: one, for the worker that will join.
    """
    counts = [max(member.cores, 1) for member in members if member.state is WorkerState.ACTIVE]
    return (max if single_writer else sum)(counts or [1])


def max_task_count(offsets: int, bytes_per_offset: float | None, cores: int, sizes: TaskSizes) -> int:
    """Returns the most write tasks for a batch of so many offsets. Tasks fill whole rounds of the cores, at least one.
    If there are several rounds, each task has at least `sizes.target` bytes, and less than twice that. There is one
    round while nothing was measured (`bytes_per_offset` is None). There are fewer tasks where they would have less than
    `sizes.least` bytes.
    """
    rounds = 1 if bytes_per_offset is None else int(offsets * bytes_per_offset // sizes.target // cores)
    weight = offsets * (ASSUMED_BYTES if bytes_per_offset is None else bytes_per_offset)
    return min(cores * max(rounds, 1), max(1, int(-(-weight // sizes.least))))


def with_task_limit(ranges: Mapping[TopicPartition, OpenRange], tasks: int) -> dict[TopicPartition, OpenRange]:
    """Returns the ranges with a limit that gives at most so many tasks of about equal size. `step`, the offsets of a
    slice, becomes a quarter of an average task at most; a single task needs no slices.
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
    # With `high`, each task that is closed has more than the average: at most `tasks` - 1 are.
    low, high = max(largest, -(-sum(sizes) // tasks)), sum(sizes) // tasks + largest
    while low < high:
        middle = (low + high) // 2
        if _task_count(sizes, middle) <= tasks:
            high = middle
        else:
            low = middle + 1
    return low


def _task_count(sizes: Iterable[int], target: int) -> int:
    """Returns how many tasks `_packed` makes of slices of these sizes."""
    # As after a full task: the first slice opens one.
    tasks, size = 0, target + 1
    for slice_size in sizes:
        size += slice_size
        if size > target:
            tasks, size = tasks + 1, slice_size
    return tasks
