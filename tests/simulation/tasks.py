"""Invariants of write tasks at every moment of every run, computed from the recorded ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from coordination.state.failures import FailureKind
from coordination.state.model import (
    Member,
    OpenRange,
    PartitionState,
    Phase,
    Slice,
    TopicPartition,
    WorkerState,
    WriteTask,
)
from coordination.state.tree import Transaction
from sink.layout import file_ids
from tests.simulation.faults import Profile
from tests.simulation.table import SINK, TABLE, task_of
from tests.simulation.violation import Violation

BYTES = 100
"""The most bytes of an offset."""

States = Mapping[TopicPartition, PartitionState]


class TaskInvariants:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._cores = 1
        """The most cores that the fleet ever had: a plan may be made from an older reading."""
        self._contents: dict[str, WriteTask] = {}
        self._too_large: dict[int, Counter[WriteTask]] = {}
        """Write tasks of batches that ran out of memory."""

    def note_members(self, members: Iterable[Member]) -> None:
        cores = [member.cores for member in members if member.state is WorkerState.ACTIVE] or [1]
        self._cores = max(self._cores, max(cores) if self._profile.single_writer else sum(cores))

    def planned(self, t: Transaction, states: States) -> None:
        """Checks the write tasks of a transaction that has just been opened."""
        tasks = t.plan.all_tasks
        if not tasks:
            return
        if Counter(tasks) != Counter(recorded(states, t.header.batch)):
            raise Violation(
                "write tasks are those on record", f"{t.header.number}: {tasks}, not {recorded(states, t.header.batch)}"
            )
        for task in tasks:
            file_id = file_ids.file_id(TABLE, SINK, task, "", 0)
            if self._contents.setdefault(file_id, task) != task:
                raise Violation("a file id names one content", f"{file_id}: {task}, {self._contents[file_id]}")
        offsets = sum(task.size for task in tasks)
        if offsets > 1 and self._too_large.get(t.header.batch) == Counter(tasks):
            raise Violation("what was too large for the memory is not tried again as it was", f"{t.header}")
        bound = max(self._cores, offsets * BYTES // self._profile.task_bytes)
        is_new = t.header.batch == t.header.number and t.header.attempt == 1
        if is_new and len(tasks) > bound:
            raise Violation("a new batch has no more write tasks than cores or target sizes", f"{len(tasks)} > {bound}")

    def prepared(self, t: Transaction) -> None:
        """Checks that each planned slice was reported once, by the incarnation that it was planned for."""
        written = Counter((name, r.slice) for name, status in t.statuses.items() for r in status.results)
        planned = Counter((name, piece) for name, pieces in t.plan.slices.items() for piece in pieces)
        if written != planned:
            raise Violation("PREPARED only with every slice accounted for", f"{t.header.number}")
        if Counter(task_of(stat) for status in t.statuses.values() for stat in status.stats) != Counter(
            t.plan.all_tasks
        ):
            raise Violation("PREPARED only with every write task's file", f"{t.header.number}")

    def ended(self, t: Transaction) -> None:
        failures = (status.failure for status in t.statuses.values())
        if t.header.phase is Phase.ABORTED and any(f and f.kind is FailureKind.OUT_OF_MEMORY for f in failures):
            self._too_large[t.header.batch] = Counter(t.plan.all_tasks)

    def forget(self) -> None:
        """Forgets batches: another tree may use their numbers again, or a reset has forgotten their attempts."""
        self._too_large.clear()

    def divided(
        self, source: TopicPartition, old_range: OpenRange, new_ranges: Iterable[OpenRange], before: States
    ) -> None:
        """Checks tasks against half of the batch's largest: a division that a conflict cut short leaves two sizes."""
        batch = (r for state in before.values() for r in state.open if r.batch == old_range.batch)
        most = max(1, max(r.task_records for r in batch) // 2)
        for part in new_ranges:
            is_inside = old_range.start <= part.start and part.end <= old_range.end
            if is_inside and (part.task_records > most or part.step > most):
                raise Violation("no write task of a divided batch is more than half as large", f"{source} {part}")

    def committed(self, instant: str, stats: Iterable[str], transactions: Iterable[Transaction]) -> None:
        """Checks the files of an instant that is completed for the first time. The transaction that aborts an orphan
        names its instant too, without tasks: a commit that was in flight when ZooKeeper was emptied may still land."""
        tasks = [task_of(stat) for stat in stats]
        t = next((t for t in transactions if t.header.instant == instant and t.plan.all_tasks), None)
        if t is not None and Counter(tasks) != Counter(t.plan.all_tasks):
            raise Violation("a commit's files are those of its write tasks", f"{instant}: {tasks}")


def recorded(states: States, batch: int) -> list[WriteTask]:
    """Returns the write tasks of a batch, by the rules of docs/decisions/0032-write-tasks.md."""
    tasks: list[WriteTask] = []
    open_tasks: dict[int, list[Slice]] = {}
    for source in sorted(states):
        for r in states[source].open:
            if r.batch != batch:
                continue
            start = r.start
            while start < r.end:
                end = min(r.end, start - start % r.step + r.step)
                piece = Slice(source.topic, source.partition, start, end, states[source].topic_id, r.generation)
                task = open_tasks.setdefault(r.task_records, [])
                if task and sum(other.size for other in task) + piece.size > r.task_records:
                    tasks.append(WriteTask(tuple(task)))
                    task.clear()
                task.append(piece)
                start = end
    return tasks + [WriteTask(tuple(task)) for task in open_tasks.values() if task]
