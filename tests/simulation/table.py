"""A Hudi table in memory: a timeline of instants, the files of each, and completion under the lock.

Completion is check-then-create, in two steps: between the checks and the creation anything may happen but what takes
the table lock, as the plans of other writers do. The created file's name contains the completion time, so that nothing
stops a second completion of the same instant. Files that arrive after a rollback stay where they are, invisible.

What is looked at under the table lock is looked at by the product's own code, on a timeline like Hudi's. Times are
texts, of clocks that may differ: the timeline knows nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from coordination.errors import Unavailable
from coordination.planning import continuity
from coordination.state.codec import decode_checkpoint, decode_tasks, encode_checkpoint, encode_tasks
from coordination.state.messages import Complete, Done, Failed, FileCheck, Outcome, Refused
from coordination.state.model import Checkpoint, InstantState, QuarantinedRecords, Slice, TableView, WriteTask
from sink.hudi.instants import RESTORE, ActiveTimeline, Instant
from sink.hudi.moments import require_moment
from sink.layout import file_ids
from tests.simulation.reading import SliceTruth

TABLE, SINK = "orders", "orders"
COMMIT, ROLLBACK, SAVEPOINT, COMPACTION = "commit", "rollback", "savepoint", "compaction"
_ALIVE = (InstantState.PENDING, InstantState.COMPLETED)


def time_of(clock: float) -> str:
    """Returns the text of a clock's time, which sorts as the time does. A clock may be behind the beginning."""
    return f"{clock + 1e6:016.6f}"


@dataclass
class SimInstant:
    name: str
    number: int
    epoch: int
    owner: object
    requested: str
    known_restores: frozenset[str] = frozenset()
    completed: str | None = None
    is_archived: bool = False
    rollback_planned: str | None = None
    """When another writer has planned its rollback, which is not complete."""
    rolled_back: str | None = None
    """When its rollback was requested: a restore deletes the rollbacks that are later than what it goes back to."""
    state: InstantState = InstantState.PENDING
    files: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    """The column lists that its files were written with."""
    read: dict[str, Sequence[SliceTruth]] = field(default_factory=dict)
    """The truth of what each of its files was read from."""
    stats: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    completions: int = 0


@dataclass
class Restore:
    """A restore of another writer. It removes what its plan names, newest first, and then is complete."""

    requested: str
    target: str
    planned: list[SimInstant]
    others: list[Instant]
    """Commits of other writers that it removes."""
    completed: str | None = None


class TableWatcher(Protocol):
    def beginning(self, requested: str) -> None: ...

    def completing(self, instant: SimInstant, op: Complete, completed: str) -> None: ...

    def completed_besides(self, completed: str, is_commit: bool) -> None: ...

    def compaction_planned(self, requested: str) -> None: ...

    def rolling_back(self, instant: SimInstant) -> None: ...

    def rolled_back_by_others(self, instant: SimInstant) -> None: ...

    def restore_planned(self) -> None: ...

    def table_restored(self) -> None: ...


class NoWatcher:
    """Accepts everything, for tests in which the table itself has to refuse."""

    def beginning(self, *_: object) -> None: ...

    def completing(self, *_: object) -> None: ...

    def completed_besides(self, *_: object, **__: object) -> None: ...

    def compaction_planned(self, *_: object) -> None: ...

    def rolling_back(self, *_: object) -> None: ...

    def rolled_back_by_others(self, *_: object) -> None: ...

    def restore_planned(self) -> None: ...

    def table_restored(self) -> None: ...


@dataclass(frozen=True)
class Clock:
    """The part of Hudi's client that tells base path and time."""

    base_path: str
    now: str

    def instant_now(self) -> str:
        return self.now


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
    """`clock` is that of the caller's host; without one, it is past everything on the timeline."""

    def __init__(self, watcher: TableWatcher) -> None:
        self._watcher = watcher
        self.instants: dict[str, SimInstant] = {}
        self.commits: list[SimInstant] = []
        """The commits of the sink that the table has, archived ones too."""
        self.existing_file_ids: set[str] = set()
        self.quarantined: dict[str, frozenset[tuple[Slice, int]]] = {}
        self.errors: set[tuple[Slice, int]] = set()
        """The rows of the errors table."""
        self.completing = 0
        """The completions that are under way: each holds the table lock."""
        self.restores: list[Restore] = []
        self.savepoints: set[str] = set()
        """The times of the commits that a savepoint keeps, on the timeline too."""
        self._others: list[Instant] = []
        """The commits and rollbacks of other writers, and this sink's rollbacks, on the active timeline."""
        self._archived_others: list[Instant] = []
        self._latest = ""

    # The sink

    def begin(self, number: int, epoch: int, owner: object, clock: float | None = None) -> Outcome:
        """Requests an instant, named in the order of such requests."""
        now = self._time(clock)
        if (unavailable := self._unavailable(now)) is not None:
            return unavailable
        self._watcher.beginning(now)
        name = f"i{len(self.instants) + 1:05d}"
        self.instants[name] = SimInstant(name, number, epoch, owner, now, self.timeline().restores)
        return Done(name)

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

    def write_file(self, name: str, task: WriteTask, columns: str = "", truths: Sequence[SliceTruth] = ()) -> None:
        instant = self.instants[name]
        instant.columns.add(columns)
        instant.read[stat_of(task)] = truths
        is_pending = instant.state is InstantState.PENDING
        (instant.files if is_pending else instant.strays).add(stat_of(task))

    def complete(self, op: Complete, clock: float | None = None) -> Outcome:
        """Completes an instant in both steps at once."""
        return self.refusal(op, clock) or self.create(op, clock)

    def refusal(self, op: Complete, clock: float | None = None) -> Outcome | None:
        """Returns the outcome if the timeline or the checkpoint leave nothing to create, else None."""
        if (refusal := self.timeline_refusal(op, clock)) is not None:
            return refusal
        newest = self._checkpoint()
        if (newest.number if newest else 0) != op.checkpoint.base:
            return Refused(f"the table is at transaction {newest}, not at {op.checkpoint.base}")
        discontinuity = continuity.discontinuity(op.checkpoint, newest)
        return None if discontinuity is None else Refused(discontinuity)

    def timeline_refusal(self, op: Complete, clock: float | None = None) -> Outcome | None:
        """Returns the outcome if the timeline leaves nothing to create, else None. The order is that of `Table`."""
        instant = self.instants.get(op.instant)
        if instant is None or instant.state is InstantState.ABSENT:
            return Failed(f"instant {op.instant} is not on the timeline")
        if instant.state is InstantState.COMPLETED:
            return Done()
        if instant.state is InstantState.ROLLED_BACK:
            return Refused(f"instant {op.instant} was rolled back")
        if instant.rollback_planned is not None:
            return self.finish_rollback(instant, clock)
        now = self._time(clock)
        if (unavailable := self._unavailable(now)) is not None:
            return unavailable
        if self.timeline().has_other_restores(instant.known_restores):
            return Refused(f"the table was restored since instant {op.instant} was requested")
        return None

    def create(self, op: Complete, clock: float | None = None) -> Outcome:
        """Marks the instant as complete; Hudi creates the file only beside the instant's inflight file."""
        instant = self.instants[op.instant]
        if instant.state is InstantState.ROLLED_BACK:
            return Refused(f"instant {op.instant} was rolled back meanwhile")
        if instant.state is InstantState.ABSENT:
            return Failed(f"instant {op.instant} is gone")
        now = self._time(clock)
        self._watcher.completing(instant, op, now)
        instant.completions += 1
        if instant.completions > 1:
            return Done()
        instant.state, instant.stats, instant.completed = InstantState.COMPLETED, op.stats, now
        instant.checkpoint = decode_checkpoint(encode_checkpoint(op.checkpoint))
        self._latest = max(self._latest, now)
        self.commits.append(instant)
        self.existing_file_ids.update(file_id(stat) for stat in op.stats)
        return Done()

    def finish_rollback(self, instant: SimInstant, clock: float | None = None) -> Outcome:
        """Carries out the rollback that another writer has planned, who may be dead."""
        self._roll_back(instant, clock)
        return Refused(f"instant {instant.name} was rolled back")

    def roll_back(self, name: str, clock: float | None = None) -> Outcome:
        instant = self.instants.get(name)
        if instant is None or instant.state in (InstantState.ROLLED_BACK, InstantState.ABSENT):
            return Done()
        self._watcher.rolling_back(instant)
        if instant.state is InstantState.COMPLETED:
            return Failed(f"instant {name} is complete and is never rolled back")
        self._roll_back(instant, clock)
        return Done()

    def check_files(self, stats: Collection[str], tasks: Iterable[WriteTask]) -> FileCheck:
        existing = tuple(sorted(self.existing_file_ids & {file_id(stat) for stat in stats}))
        return FileCheck(existing, file_ids.unplanned(TABLE, SINK, tasks, stats))

    def pending(self) -> tuple[str, ...]:
        return tuple(n for n, instant in self.instants.items() if instant.state is InstantState.PENDING)

    def view(self, names: Collection[str]) -> TableView:
        states = {name: self.instants[name].state if name in self.instants else InstantState.ABSENT for name in names}
        carrier = self._carrier()
        entries = [*self._others, *(self._archived_others if carrier is not None and carrier.is_archived else ())]
        restores = [restore.requested for restore in self.restores if restore.completed]
        since = {*restores, *self.savepoints, *(entry.requested for entry in entries)}
        later = sum(carrier is None or requested > carrier.requested for requested in since)
        return TableView(carrier.checkpoint if carrier else None, states, self.pending(), later)

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint, wherever it lies."""
        return self.commits[-1].checkpoint if self.commits else None

    def timeline(self) -> ActiveTimeline:
        """Returns the active timeline as the product sees it."""
        own = (
            Instant(instant.requested, COMMIT, instant.state.name, instant.completed)
            for instant in self.instants.values()
            if instant.state in _ALIVE and not instant.is_archived
        )
        kept = (Instant(requested, SAVEPOINT, "COMPLETED", requested) for requested in self.savepoints)
        restores = (
            Instant(restore.requested, RESTORE, "COMPLETED" if restore.completed else "INFLIGHT", restore.completed)
            for restore in self.restores
        )
        carrier = self._active_carrier()
        newest = Instant(carrier.requested, COMMIT, "COMPLETED", carrier.completed) if carrier is not None else None
        entries = tuple(sorted((*own, *self._others, *kept, *restores), key=lambda entry: entry.requested))
        return ActiveTimeline(entries, carrier.checkpoint if carrier else None, newest, frozenset(), frozenset())

    # Other writers

    def rewrite(self, clock: float) -> None:
        """A table service of the sink, on a host with this clock: completes a compaction that is planned, or plans one,
        if the table may be changed at that moment."""
        now = self._time(clock)
        if self._unavailable(now) is not None:
            return
        plan = next((entry for entry in self._others if entry.action == COMPACTION), None)
        if plan is None:
            self._others.append(Instant(now, COMPACTION, "REQUESTED", None))
            self._latest = max(self._latest, now)
            self._watcher.compaction_planned(now)
        else:
            self._others.remove(plan)
            self._note(COMMIT, clock, plan.requested)

    def foreign_commit(self, clock: float | None = None) -> None:
        self._note(COMMIT, clock)

    def roll_back_by_others(self, name: str, clock: float | None = None) -> None:
        """Rolls back whatever the state, as the plan says."""
        instant = self.instants[name]
        if instant.state in _ALIVE:
            self._watcher.rolled_back_by_others(instant)
            self._roll_back(instant, clock)

    def plan_rollback_by_others(self, name: str, clock: float | None = None) -> bool:
        """Plans the rollback of a pending instant. Returns whether it was planned."""
        instant = self.instants[name]
        if instant.state is InstantState.PENDING and instant.rollback_planned is None:
            instant.rollback_planned = self._time(clock)
            self._latest = max(self._latest, instant.rollback_planned)
            return True
        return False

    def savepoint(self, requested: str) -> None:
        self.savepoints.add(requested)

    def delete_savepoint(self, requested: str) -> None:
        self.savepoints.discard(requested)

    def archive(self, kept: int, beyond_savepoints: bool = True) -> int:
        """Archives the oldest completed instants up to the last `kept`, and restores before them; returns how many
        instants. What a savepoint keeps stays, and what is later, unless `beyond_savepoints`. The newest completion
        stays on the active timeline: Hudi keeps more instants there than clocks differ by."""
        entries: list[Instant | SimInstant] = [*filter(lambda entry: entry.done, self._others), *self.active_commits()]
        done = sorted(entries, key=lambda entry: entry.requested)
        newest = max((entry.completed or "" for entry in done), default="")
        count = 0
        for entry in done[: max(len(done) - kept, 0)]:
            if entry.completed == newest:
                break
            if entry.requested in self.savepoints:
                if not beyond_savepoints:
                    break
                continue
            count += 1
            if isinstance(entry, SimInstant):
                entry.is_archived = True
            else:
                self._others.remove(entry)
                self._archived_others.append(entry)
            archived_until = entry.requested
            self.restores = [
                restore
                for restore in self.restores
                if not restore.completed
                or restore.completed > archived_until
                or not self.is_known_to_all_pending(restore)
            ]
        return count

    def is_known_to_all_pending(self, restore: Restore) -> bool:
        """Whether each pending transaction was begun with this restore on the timeline: it may be archived then."""
        return all(restore.requested in self.instants[name].known_restores for name in self.pending())

    def active_commits(self) -> list[SimInstant]:
        return [instant for instant in self.commits if not instant.is_archived]

    def restorable(self) -> list[str]:
        """Returns the times of the commits that a restore may go back to, oldest first: none that is
        older than an archived commit, because the sink refuses such a table for good."""
        others = (entry.requested for entry in self._others if entry.action == COMMIT)
        archived = max((commit.completed or "" for commit in self.commits if commit.is_archived), default="")
        active = (commit.requested for commit in self.active_commits())
        return sorted(time for time in (*others, *active) if time > archived)

    def plan_restore(self, target: str, clock: float | None = None) -> Restore:
        """Plans to go back to the commit of this time, by Hudi's rules: all that was completed later is to be removed,
        and all that is pending; of a commit that is not the sink's, as if it were a compaction, all that was requested
        later. What is archived stays."""
        commit = next((commit for commit in self.active_commits() if commit.requested == target), None)
        return self._plan_restore(target, commit.completed if commit is not None else None, clock)

    def restore_further(self, restore: Restore, clock: float | None = None) -> bool:
        """Removes the newest instant of a plan, or completes the restore. Returns whether it is complete."""
        if restore.completed is not None:
            return True
        if restore.planned:
            instant = restore.planned.pop()
            # It may have been rolled back meanwhile, and then keeps that proof.
            if instant.state in _ALIVE:
                instant.state = InstantState.ABSENT
                self._keep_commits()
        else:
            restore.completed = self._time(clock)
            self._latest = max(self._latest, restore.completed)
            rollbacks = [entry for entry in self._others if entry.action == ROLLBACK]
            gone = {*restore.others, *(entry for entry in rollbacks if entry.requested > restore.target)}
            self._others = [entry for entry in self._others if entry not in gone]
            for instant in self.instants.values():
                if (instant.rollback_planned or "") > restore.target:
                    instant.rollback_planned = None
                if instant.state is InstantState.ROLLED_BACK and (instant.rolled_back or "") > restore.target:
                    instant.state = InstantState.ABSENT
        self._watcher.table_restored()
        return restore.completed is not None

    def restore(self, kept: int) -> None:
        """Keeps the first `kept` commits with their files, and drops later commits and all pending instants, at
        once. No restore goes back behind what is archived."""
        archived = (position for position, commit in enumerate(self.commits, 1) if commit.is_archived)
        kept = max(kept, *archived, 0)
        target = self.commits[kept - 1] if kept else None
        restore = self._plan_restore(target.requested if target else "", (target.completed or "") if target else "")
        while not self.restore_further(restore):
            pass

    # Helpers

    def _plan_restore(self, target: str, completed: str | None, clock: float | None = None) -> Restore:
        def is_later(entry: Instant | SimInstant) -> bool:
            if completed is None:
                return entry.requested > target
            return entry.completed is None or entry.completed > completed

        instants = (i for i in self.instants.values() if i.state in _ALIVE and not i.is_archived)
        planned = sorted(filter(is_later, instants), key=lambda instant: instant.requested)
        others = [entry for entry in self._others if entry.action in (COMMIT, COMPACTION) and is_later(entry)]
        restore = Restore(self._time(clock), target, planned, others)
        self.restores.append(restore)
        self._watcher.restore_planned()
        return restore

    def _active_carrier(self) -> SimInstant | None:
        return max(self.active_commits(), key=lambda instant: instant.number, default=None)

    def _carrier(self) -> SimInstant | None:
        """Returns the commit of the newest checkpoint, which may be archived though an older one is not: what a
        savepoint keeps stays on the active timeline, also for a while after the savepoint is deleted."""
        return max(self.commits, key=lambda instant: instant.number, default=None)

    def _checkpoint(self) -> Checkpoint | None:
        carrier = self._carrier()
        return carrier.checkpoint if carrier else None

    def _roll_back(self, instant: SimInstant, clock: float | None) -> None:
        planned, instant.rollback_planned = instant.rollback_planned, None
        instant.state = InstantState.ROLLED_BACK
        instant.files.clear()
        self._keep_commits()
        # A rollback is an instant of the timeline too.
        instant.rolled_back = self._note(ROLLBACK, clock, planned)

    def _keep_commits(self) -> None:
        if any(instant.state is not InstantState.COMPLETED for instant in self.commits):
            self.commits = [instant for instant in self.commits if instant.state is InstantState.COMPLETED]
            self.existing_file_ids = {file_id(stat) for instant in self.commits for stat in instant.stats}

    def _unavailable(self, now: str) -> Failed | None:
        try:
            require_moment(Clock(TABLE, now), self.timeline())  # type: ignore[arg-type]
        except Unavailable as error:
            return Failed(str(error))
        return None

    def _note(self, action: str, clock: float | None, requested: str | None = None) -> str:
        """Adds a complete instant, requested now unless it was planned before. Returns when it was requested."""
        now = self._time(clock)
        requested = requested or now
        self._others.append(Instant(requested, action, "COMPLETED", now))
        self._latest = max(self._latest, now)
        self._watcher.completed_besides(now, is_commit=action == COMMIT)
        return requested

    def _time(self, clock: float | None) -> str:
        if clock is not None:
            return time_of(clock)
        times = [self._latest, *(instant.requested for instant in self.instants.values())]
        return time_of(float(max(times) or time_of(0.0)) - 1e6 + 1.0)
