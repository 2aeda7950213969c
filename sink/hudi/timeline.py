"""A table's timeline as a sink reads it: newest checkpoint, states of instants, orphans.

Guarantee: the newest checkpoint is that of the highest transaction number. The active timeline is read first and the
archived one after it, so that an instant which is archived in between is not missed; an instant is absent only if
neither has it. Metadata of a completed commit is read once and remembered. Rests on `begin` refusing an instant that is
older than the newest completion: so a checkpoint in the active timeline is newer than any in the archive, unless a
savepoint keeps an older one from being archived, or has kept it: it may be deleted since. Raises
Corrupt (an instant that cannot be understood) and Unavailable (storage, JVM).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from py4j.protocol import Py4JJavaError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_fixed

from coordination.errors import Corrupt, Unavailable
from coordination.state.codec import decode_checkpoint
from coordination.state.model import Checkpoint, InstantState, TableView
from sink.clients.java.errors import JAVA_ERRORS, causes, message
from sink.hudi.client import HudiClient
from sink.hudi.conflicts import TableChanges, grown_partitions
from sink.hudi.half_written import HalfWritten
from sink.hudi.instants import REPLACE, TRANSACTION_ACTIONS, WRITES, ActiveTimeline, Instant
from sink.hudi.lock import Locks
from sink.hudi.moments import require_not_restored_past
from sink.hudi.other_sinks import CHECKPOINT_KEY, OtherSinks
from sink.hudi.rollbacks import Rollbacks

SINK_KEY = "sink.name"
NUMBER_KEY = "sink.transaction"
EPOCH_KEY = "sink.epoch"
_ARCHIVE_CHUNK = 100
_REMOVALS = frozenset({"clean", "rollback", "savepoint"})
_UNSEEN_SECONDS = 300.0
"""Seconds without a reading, after which a savepoint may have come, let commits be archived beyond it, and gone."""
_VANISHED = ("java.io.FileNotFoundException", "org.apache.hudi.exception.TableNotFoundException")
"""An instant that was listed is archived or rolled back meanwhile, or the table's properties are written anew."""
_UNREADABLE = (
    "org.apache.avro.",
    "com.fasterxml.jackson.",
    "java.io.EOFException",
    "java.lang.IllegalArgumentException",
    "java.lang.NullPointerException",
    "java.lang.ClassCastException",
)


def _has_vanished(error: BaseException) -> bool:
    return isinstance(error, Py4JJavaError) and any(name in causes(error) for name in _VANISHED)


class HudiTimeline:
    """Reads the timeline of one table for one sink."""

    def __init__(self, hudi: HudiClient, sink: str) -> None:
        self._hudi = hudi
        self._sink = sink
        self._meta: Any = None
        self._history: Any = None
        self._half_written = HalfWritten(hudi)
        self._checkpoints: dict[Instant, Checkpoint | None] = {}
        self.others = OtherSinks(sink)
        """The other sinks of the table as of the last snapshot, and as far as the archive was read: whole, before this
        sink's first commit."""
        self.schemas: Mapping[str, str] = {}
        """The fingerprints of the newest checkpoint that was read, by schema id."""
        self._rollbacks = Rollbacks(hudi, self._half_written)
        self._completed: dict[str, Checkpoint] = {}
        self.completed: frozenset[Instant] = frozenset()
        """Instants that were complete when the active timeline was last read."""
        self._owners: dict[str, str | None] = {}
        self._replaced: dict[Instant, frozenset[str]] = {}
        self._archived: tuple[Checkpoint, Instant] | None = None
        self._archive_read: set[Instant] = set()
        self._archive_is_due = True
        """Whether commits may be archived that are later than the newest checkpoint of the active timeline."""
        self._read_at = 0.0
        self._highest = 0

    @property
    def meta(self) -> Any:
        """Hudi's meta client, with the active timeline as it was last read."""
        return self._meta

    def view(self, instants: Collection[str], active: ActiveTimeline | None = None) -> TableView:
        active = active or self.snapshot()
        with self._reading():
            states = {instant: self._state(active, instant) for instant in instants}
            checkpoint, carrier, since = active.checkpoint, active.checkpoint_instant, active.instants
            if carrier is None or self._archive_is_due:
                self._archived = self._archived_checkpoint(carrier.requested if carrier else "")
                self._archive_is_due = active.has_savepoint
            if self._archived is not None and (checkpoint is None or self._archived[0].number > checkpoint.number):
                checkpoint, carrier = self._archived
                since = (*since, *self.archive())
                require_not_restored_past(self._hudi, self._meta, active, since, carrier)
            self._highest = checkpoint.number if checkpoint else 0
            self.schemas = checkpoint.schemas if checkpoint else {}
            if carrier is not None:
                since = tuple(entry for entry in since if entry.requested > carrier.requested)
            return TableView(checkpoint, states, self._orphans(active), len({e.requested for e in since if e.done}))

    def note_begun(self, instant: str) -> None:
        """Notes an instant that this process wrote: its file need not be read to know its owner."""
        self._owners[instant] = self._sink

    def note_completed(self, instant: str, checkpoint: Checkpoint) -> None:
        """Notes an instant that this process completed, and its content."""
        self._completed = {instant: checkpoint}

    def are_of_sinks(self, instants: Collection[Instant]) -> bool:
        """Whether each of these completed instants is a commit with a checkpoint of a sink, or removes files."""
        return all(
            entry.action in _REMOVALS or entry in self.others or self._checkpoints.get(entry) is not None
            for entry in instants
        )

    def snapshot(self) -> ActiveTimeline:
        """Reads the active timeline; again if archiving or a rollback removes an instant that was just listed."""
        with self._reading():
            return self._snapshot()

    def settled_snapshot(self, locks: Locks) -> ActiveTimeline:
        """Reads the active timeline: under the table lock if something on it is half-written, which no reader of the
        table understands.
        """
        with self._reading():
            snapshot = self._snapshot()
            is_settled = not self._half_written.is_any(snapshot)
        if not is_settled:
            with locks("delete what is half-written") as require_held:
                return self.locked_snapshot(require_held)
        return snapshot

    def locked_snapshot(self, require_held: Callable[[], None]) -> ActiveTimeline:
        """Deletes what is half-written, and reads the active timeline. Call it under the table lock."""
        with self._reading():
            while self._half_written.drop(snapshot := self._snapshot(), require_held):
                pass
            return snapshot

    def state(self, instant: str) -> InstantState:
        active = self.snapshot()
        with self._reading():
            return self._state(active, instant)

    def replaced(self, active: ActiveTimeline) -> frozenset[str]:
        """Returns file ids that a commit of the active timeline has replaced, whether or not their files are still
        there.
        """
        file_ids: set[str] = set()
        with self._reading():
            for entry in active.instants:
                if entry.done and entry.action == REPLACE:
                    if entry not in self._replaced:
                        self._replaced[entry] = self._read_replaced(entry)
                    file_ids |= self._replaced[entry]
        return frozenset(file_ids)

    def changes_since(self, active: ActiveTimeline, instant: str) -> TableChanges:
        """Returns what other writers have changed, replaced, added or undone since the instant was requested. Rows
        that a compaction has merged did not change, and rows that a clustering has moved are not new.
        """
        changes = TableChanges(undone=active.undone - {instant})
        with self._reading():
            for entry in active.instants:
                if entry.done and entry.action in WRITES and entry.completed is not None and entry.completed > instant:
                    changes |= self._changes(entry)
        return changes

    def _changes(self, entry: Instant) -> TableChanges:
        metadata = self._meta.getActiveTimeline().readCommitMetadata(self._java(entry))
        operation = str(metadata.getOperationType())
        if operation == "COMPACT":
            return TableChanges()
        groups = frozenset(self._hudi.json(metadata.getFileIdAndRelativePaths()))
        if entry.action == REPLACE:
            return TableChanges(groups | self._read_replaced(entry), replaces=True)
        if not operation.startswith("UPSERT"):
            return TableChanges(groups)
        stats = self._hudi.json(metadata.getPartitionToWriteStats()).values()
        return TableChanges(groups, grown_partitions(chain.from_iterable(stats)))

    def gone(self, active: ActiveTimeline, rolled_back: Collection[str]) -> set[str]:
        """Returns those of these instants, each of which was rolled back, that are neither pending nor complete: a plan
        of a clustering or compaction may be carried out again after a rollback, and be archived before the rollback is.
        """
        listed = {entry.requested for entry in active.instants if entry.action != "rollback"}
        instants = set(rolled_back) - listed
        if not instants:
            return set()
        with self._reading():
            return instants - {entry.requested for entry in self.archive() if entry.action in WRITES}

    def committed_files(self, active: ActiveTimeline, instant: str) -> frozenset[str]:
        """Returns the files, relative to the table, of a complete write, active or archived; none without one."""
        with self._reading():
            entries, timeline = active.writes_at(instant), self._meta.getActiveTimeline()
            if not any(entry.done for entry in entries):
                entries = [entry for entry in self.archive() if entry.requested == instant and entry.action in WRITES]
                timeline = self._history
                if entries:
                    self._load(instant, instant)
            commits = [timeline.readCommitMetadata(self._java(entry)) for entry in entries if entry.done]
            return frozenset(stat["path"] for commit in commits for stat in self._hudi.json(commit.getWriteStats()))

    def removed_files(self, active: ActiveTimeline, instants: Collection[str]) -> list[str]:
        """Returns files, relative to the table, that active completed rollbacks of these instants were to remove."""
        with self._reading():
            return self._rollbacks.removed_files(self._meta, active.instants, instants)

    @retry(retry=retry_if_exception(_has_vanished), stop=stop_after_attempt(5), wait=wait_fixed(0.05), reraise=True)
    def _snapshot(self) -> ActiveTimeline:
        if self._meta is None:
            self._meta = self._hudi.meta_client()
        timeline = self._meta.reloadActiveTimeline()
        instants, cut_short = self._half_written.with_pending(self._listed(timeline))
        newest, checkpoint_instant = None, None
        for entry in instants:
            if entry.done and entry.action in TRANSACTION_ACTIONS:
                checkpoint = self._checkpoint(timeline, entry)
                if checkpoint is not None and (newest is None or checkpoint.number > newest.number):
                    newest, checkpoint_instant = checkpoint, entry
        rolled_back: set[str] = set()
        rolling_back: set[str] = set()
        for entry in instants:
            if entry.action == "rollback":
                (rolled_back if entry.done else rolling_back).update(
                    self._rollbacks.instants(self._meta, timeline, entry)
                )
        self._forget(instants)
        completed = frozenset(entry for entry in instants if entry.done)
        if any(entry.requested not in self._completed for entry in completed - self.completed):
            self._hudi.forget()
        self.completed = completed
        back = frozenset(rolled_back), frozenset(rolling_back)
        active = ActiveTimeline(instants, newest, checkpoint_instant, *back, cut_short)
        is_older = newest is not None and newest.number < self._highest
        self._archive_is_due |= active.has_savepoint or is_older or time.monotonic() - self._read_at > _UNSEEN_SECONDS
        self._read_at = time.monotonic()
        return active

    def _listed(self, timeline: Any) -> Iterator[Instant]:
        for entry in self._hudi.json(timeline.getInstants()):
            yield Instant(entry["requestedTime"], entry["action"], entry["state"], entry.get("completionTime"))

    def _checkpoint(self, timeline: Any, entry: Instant) -> Checkpoint | None:
        if entry not in self._checkpoints and entry.requested in self._completed:
            self._checkpoints[entry] = self._completed[entry.requested]
        if entry not in self._checkpoints:
            remedy = ": it was damaged. Restore the table or its file."
            self._checkpoints[entry] = self._read_checkpoint(timeline, entry, remedy)
        return self._checkpoints[entry]

    def _read_checkpoint(self, timeline: Any, entry: Instant, remedy: str) -> Checkpoint | None:
        java = self._java(entry)
        if timeline.isEmpty(java):
            raise Corrupt(f"{self._describe(entry)} is empty{remedy}")
        extra = self._hudi.json(timeline.readCommitMetadata(java).getExtraMetadata())
        self.others.add(entry, extra, self._describe(entry), timeline is self._history)
        document = extra.get(CHECKPOINT_KEY + self._sink)
        return None if document is None else decode_checkpoint(document, self._describe(entry))

    def _read_replaced(self, entry: Instant) -> frozenset[str]:
        metadata = self._meta.getActiveTimeline().readReplaceCommitMetadata(self._java(entry))
        replaced = self._hudi.json(metadata.getPartitionToReplaceFileIds())
        return frozenset(file_id for ids in replaced.values() for file_id in ids)

    def _state(self, active: ActiveTimeline, instant: str) -> InstantState:
        if instant in active.rolled_back:
            return InstantState.ROLLED_BACK
        if instant in active.rolling_back:
            # The rollback may have deleted the instant's own files already.
            return InstantState.PENDING
        entries = active.writes_at(instant)
        if entries:
            return InstantState.COMPLETED if any(entry.done for entry in entries) else InstantState.PENDING
        if active.first and instant > active.first and not self._maybe_archived(active, instant):
            return InstantState.ABSENT
        return self._archived_state(instant)

    def _maybe_archived(self, active: ActiveTimeline, instant: str) -> bool:
        """Whether the instant may be archived: the oldest are first, but also single rollbacks in the middle."""
        writes = [entry.requested for entry in active.instants if entry.done and entry.action in WRITES]
        return not writes or instant < min(writes)

    def _archived_state(self, instant: str) -> InstantState:
        rolled_back = False
        for entry in self.archive():
            if entry.requested == instant and entry.action in WRITES:
                return InstantState.COMPLETED
            rolled_back |= (
                entry.action == "rollback" and entry.requested > instant and instant in self._archived_rollback(entry)
            )
        return InstantState.ROLLED_BACK if rolled_back else InstantState.ABSENT

    def _orphans(self, active: ActiveTimeline) -> tuple[str, ...]:
        pending = {entry.requested for entry in active.instants if not entry.done and entry.action == self._hudi.action}
        return tuple(instant for instant in sorted(pending - active.rolled_back) if self._owner(instant) == self._sink)

    def _owner(self, instant: str) -> str | None:
        """Returns the sink that began a pending instant, by its requested file; None for other writers'."""
        if instant not in self._owners:
            timeline = self._meta.getActiveTimeline()
            java = self._hudi.instant(self._meta, "REQUESTED", self._hudi.action, instant)
            try:
                owner = None if timeline.isEmpty(java) else timeline.readCommitMetadata(java).getMetadata(SINK_KEY)
            except Py4JJavaError as error:
                if "java.io.FileNotFoundException" in causes(error):
                    return None
                raise
            self._owners[instant] = owner
        return self._owners[instant]

    def archive(self, since: str = "") -> list[Instant]:
        """Returns completed instants of the archived timeline, newest first; with `since` only later ones, and then
        reads no file without any.
        """
        timeline = self._meta.getArchivedTimeline
        self._history = timeline(since, False) if since else timeline().reload()
        return sorted(self._listed(self._history), reverse=True)

    def _archived_checkpoint(self, since: str) -> tuple[Checkpoint, Instant] | None:
        """Returns the highest checkpoint of the newest stretch of the archive that has any of this sink and is later
        than `since`; else the one that was found before.
        """
        archived = self._archived
        read_until = max(since, archived[1].requested if archived else "")
        commits = [
            entry
            for entry in self.archive(read_until)
            if entry.action in TRANSACTION_ACTIONS and entry.requested > read_until and entry not in self._archive_read
        ]
        for start in range(0, len(commits), _ARCHIVE_CHUNK):
            chunk = commits[start : start + _ARCHIVE_CHUNK]
            self._load(chunk[-1].requested, chunk[0].requested)
            remedy = " in the archived timeline. Restore the table."
            read = [(self._read_checkpoint(self._history, entry, remedy), entry) for entry in chunk]
            checkpoints = [(checkpoint, entry) for checkpoint, entry in read if checkpoint is not None]
            self._archive_read.update(chunk)
            if checkpoints:
                return max(checkpoints, key=lambda pair: pair[0].number)
        return archived

    def _load(self, oldest: str, newest: str) -> None:
        """Loads details of archived instants, both ends included: Hudi's own range leaves out its beginning."""
        self._history.loadCompletedInstantDetailsInMemory(f"{int(oldest) - 1:017d}", newest)

    def _archived_rollback(self, entry: Instant) -> frozenset[str]:
        self._load(entry.requested, entry.requested)
        return self._rollbacks.instants(self._meta, self._history, entry)

    def _java(self, entry: Instant) -> Any:
        return self._hudi.instant(self._meta, entry.state, entry.action, entry.requested, entry.completed)

    def _forget(self, instants: Collection[Instant]) -> None:
        """Forgets instants that left the active timeline: they are archived or rolled back, and not read again."""
        listed = set(instants)
        pending = {entry.requested for entry in instants if not entry.done}
        self._checkpoints = {k: v for k, v in self._checkpoints.items() if k in listed}
        self.others.forget(listed)
        self._replaced = {k: v for k, v in self._replaced.items() if k in listed}
        self._rollbacks.forget(listed)
        self._owners = {k: v for k, v in self._owners.items() if k in pending}

    def _describe(self, entry: Instant) -> str:
        return f"{self._hudi.base_path}: {entry.action} {entry.requested}"

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (*JAVA_ERRORS, OSError) as error:
            summary = f"{self._hudi.base_path}: the timeline cannot be read: {message(error)}"
            if isinstance(error, Py4JJavaError):
                classes = causes(error)
                if any(name.startswith(_UNREADABLE) for name in classes) or "Not an Avro data file" in summary:
                    raise Corrupt(f"{summary}. Restore the table.") from error
            raise Unavailable(summary) from error
