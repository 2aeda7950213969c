"""A Hudi table in memory: a timeline of instants, the files of each, and completion under the lock.

Completion is check-then-create, in two steps: between the checks and the creation anything may happen. The created
file's name contains the completion time, so that nothing stops a second completion of the same instant. Files that
arrive after a rollback stay where they are, invisible.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from coordination.planning import continuity
from coordination.state.codec import decode_checkpoint, decode_tasks, encode_checkpoint, encode_tasks
from coordination.state.messages import Complete, Done, Failed, FileCheck, Outcome, Refused
from coordination.state.model import Checkpoint, InstantState, QuarantinedRecords, Slice, TableView, WriteTask
from sink.layout import file_ids

TABLE, SINK = "orders", "orders"


@dataclass
class SimInstant:
    name: str
    number: int
    epoch: int
    owner: object
    moment: int
    clock: float = 0.0
    state: InstantState = InstantState.PENDING
    files: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    """The column lists that its files were written with."""
    stats: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    completions: int = 0


class TableWatcher(Protocol):
    def completing(self, instant: SimInstant, op: Complete) -> None: ...

    def rolling_back(self, instant: SimInstant) -> None: ...

    def table_restored(self) -> None: ...


class NoWatcher:
    """Accepts everything, for tests in which the table itself has to refuse."""

    def completing(self, *_: object) -> None: ...

    def rolling_back(self, *_: object) -> None: ...

    def table_restored(self) -> None: ...


def stat_of(task: WriteTask) -> str:
    """Returns what stands for a Hudi write stat: the deterministic file id and the contents of the file."""
    task_file_id = file_ids.file_id(TABLE, SINK, task, "", 0)
    stat = {"partitionPath": "", "fileId": task_file_id, "tasks": encode_tasks([task])}
    return json.dumps(stat, separators=(",", ":"))


@lru_cache(maxsize=4096)
def file_id(stat: str) -> str:
    return str(json.loads(stat)["fileId"])


@lru_cache(maxsize=4096)
def task_of(stat: str) -> WriteTask:
    (task,) = decode_tasks(json.loads(stat)["tasks"])
    return task


def slices_of(stats: Iterable[str]) -> Iterator[Slice]:
    for stat in stats:
        yield from task_of(stat).slices


class SimTable:
    def __init__(self, watcher: TableWatcher) -> None:
        self._watcher = watcher
        self.instants: dict[str, SimInstant] = {}
        self.newest: Checkpoint | None = None
        self.commits: list[SimInstant] = []
        self.existing_file_ids: set[str] = set()
        self.quarantined: dict[str, frozenset[tuple[Slice, int]]] = {}
        self.errors: set[tuple[Slice, int]] = set()
        """The rows of the errors table."""
        self._moments = 0
        self._foreign_commits: list[int] = []
        self._newest_clock = 0.0

    def begin(self, number: int, epoch: int, owner: object, clock: float = 0.0) -> str | None:
        """Requests an instant. Returns None, and rolls it back, if the owner's clock is behind the newest commit."""
        name = f"i{len(self.instants) + 1:05d}"
        self.instants[name] = SimInstant(name, number, epoch, owner, self._moment(), clock)
        if clock < self._newest_clock:
            self.instants[name].state = InstantState.ROLLED_BACK
            return None
        return name

    def quarantine(
        self, name: str, incarnation: str, bad_offsets: Collection[tuple[Slice, int]]
    ) -> tuple[QuarantinedRecords, ...]:
        """Keeps one participant's bad records for the errors table."""
        if not bad_offsets:
            return ()
        path = f"{name}/{incarnation}/{len(self.quarantined)}"
        self.quarantined[path] = frozenset(bad_offsets)
        piece, offset = min(bad_offsets)
        return (QuarantinedRecords(path, len(bad_offsets), piece.topic, piece.partition, offset, "bad"),)

    def publish(self, op: Complete) -> None:
        """Upserts bad records into the errors table by key: doing it again changes nothing."""
        for quarantined in op.errors:
            self.errors |= self.quarantined[quarantined.path]

    def write_file(self, name: str, task: WriteTask, columns: str = "") -> None:
        instant = self.instants[name]
        instant.columns.add(columns)
        is_pending = instant.state is InstantState.PENDING
        (instant.files if is_pending else instant.strays).add(stat_of(task))

    def complete(self, op: Complete) -> Outcome:
        """Completes an instant in both steps at once."""
        return self.refusal(op) or self.create(op)

    def refusal(self, op: Complete) -> Outcome | None:
        """Returns the outcome if the timeline leaves nothing to create, else None."""
        instant = self.instants.get(op.instant)
        if instant is None or instant.state is InstantState.ABSENT:
            return Failed(f"instant {op.instant} is not on the timeline")
        if instant.state is InstantState.COMPLETED:
            return Done()
        if instant.state is InstantState.ROLLED_BACK:
            return Refused(f"instant {op.instant} was rolled back")
        newest = self.newest.number if self.newest else 0
        if newest != op.checkpoint.base:
            return Refused(f"the table is at transaction {newest}, not at {op.checkpoint.base}")
        discontinuity = continuity.discontinuity(op.checkpoint, self.newest)
        return None if discontinuity is None else Refused(discontinuity)

    def create(self, op: Complete) -> Outcome:
        """Marks the instant as complete; Hudi creates the file only beside the instant's inflight file."""
        instant = self.instants[op.instant]
        if instant.state is InstantState.ROLLED_BACK:
            return Refused(f"instant {op.instant} was rolled back meanwhile")
        if instant.state is InstantState.ABSENT:
            return Failed(f"instant {op.instant} is gone")
        self._watcher.completing(instant, op)
        instant.completions += 1
        if instant.completions > 1:
            return Done()
        instant.state, instant.stats = InstantState.COMPLETED, op.stats
        instant.checkpoint = self.newest = decode_checkpoint(encode_checkpoint(op.checkpoint))
        self.commits.append(instant)
        self._newest_clock = instant.clock
        self.existing_file_ids.update(file_id(stat) for stat in op.stats)
        self._foreign_commits = [moment for moment in self._foreign_commits if moment > instant.moment]
        return Done()

    def roll_back(self, name: str) -> Outcome:
        instant = self.instants.get(name)
        if instant is None or instant.state in (InstantState.ROLLED_BACK, InstantState.ABSENT):
            return Done()
        self._watcher.rolling_back(instant)
        if instant.state is InstantState.COMPLETED:
            return Failed(f"instant {name} is complete and is never rolled back")
        self.roll_back_by_others(name)
        return Done()

    def roll_back_by_others(self, name: str) -> None:
        instant = self.instants[name]
        if instant.state is InstantState.PENDING:
            instant.state = InstantState.ROLLED_BACK
            instant.files.clear()
            # A rollback is an instant of the timeline too.
            self.foreign_commit()

    def foreign_commit(self) -> None:
        self._foreign_commits.append(self._moment())

    def restore(self, kept: int) -> None:
        """Keeps the first `kept` commits with their files, and drops later commits and pending instants."""
        for instant in (*self.commits[kept:], *map(self.instants.__getitem__, self.pending())):
            instant.state = InstantState.ABSENT
        del self.commits[kept:]
        self.newest = self.commits[-1].checkpoint if self.commits else None
        self.existing_file_ids = {file_id(stat) for instant in self.commits for stat in instant.stats}
        self._watcher.table_restored()

    def check_files(self, stats: Collection[str], tasks: Iterable[WriteTask]) -> FileCheck:
        existing = tuple(sorted(self.existing_file_ids & {file_id(stat) for stat in stats}))
        return FileCheck(existing, file_ids.unplanned(TABLE, SINK, tasks, stats))

    def pending(self) -> tuple[str, ...]:
        return tuple(n for n, instant in self.instants.items() if instant.state is InstantState.PENDING)

    def view(self, names: Collection[str]) -> TableView:
        states = {name: self.instants[name].state if name in self.instants else InstantState.ABSENT for name in names}
        return TableView(self.newest, states, self.pending(), len(self._foreign_commits))

    def _moment(self) -> int:
        """Returns the next request time: instants are requested one after another."""
        self._moments += 1
        return self._moments
