"""A table's timeline as a sink reads it: newest checkpoint, states of instants, orphans.

Guarantee: the newest checkpoint is that of the highest transaction number; the active timeline is read first
and the archived one after it, so that an instant which is archived in between is not missed; absence is said
only after both were read. Metadata of a completed commit is read once and remembered. Rests on `begin`
refusing an instant that is older than the newest checkpoint's: so a checkpoint in the active timeline is
newer than any in the archive. Raises Corrupt (an instant that cannot be understood) and Unavailable (storage,
JVM).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from coordination.errors import Corrupt, SinkError, Unavailable
from coordination.state.codec import decode_checkpoint
from coordination.state.model import Checkpoint, InstantState, TableView
from sink.clients.java_errors import JAVA_ERRORS, causes, message
from sink.hudi.client import HudiClient
from sink.hudi.java_objects import COMMIT, DELTA_COMMIT

CHECKPOINT_KEY = "sink.checkpoint."
SINK_KEY = "sink.name"
NUMBER_KEY = "sink.transaction"
EPOCH_KEY = "sink.epoch"
OWN = frozenset({COMMIT, DELTA_COMMIT})
"""Actions that a sink's transactions are, by the type of the table."""
WRITES = OWN | {"replacecommit"}
"""Actions whose completion changes what readers see."""
REPEATED = frozenset({"clustering", "compaction", "logcompaction", "replacecommit"})
"""Actions whose plan outlives a rollback, so that one instant may be tried several times."""
_ARCHIVE_CHUNK = 100
_ATTEMPTS = 5
_UNREADABLE = (
    "org.apache.avro.",
    "com.fasterxml.jackson.",
    "java.io.EOFException",
    "java.lang.IllegalArgumentException",
    "java.lang.NullPointerException",
    "java.lang.ClassCastException",
)


@dataclass(frozen=True, order=True, slots=True)
class Instant:
    requested: str
    action: str
    state: str
    completed: str | None

    @property
    def done(self) -> bool:
        return self.state == "COMPLETED"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The active timeline at one moment. `rolled_back` have a completed rollback on it, `rolling_back` a
    pending one.
    """

    instants: tuple[Instant, ...]
    checkpoint: Checkpoint | None
    place: Instant | None
    """The commit that carries the checkpoint."""
    rolled_back: frozenset[str]
    rolling_back: frozenset[str]

    @property
    def first(self) -> str:
        return min((each.requested for each in self.instants), default="")

    def of(self, instant: str) -> list[Instant]:
        return [each for each in self.instants if each.requested == instant and each.action in WRITES]

    def is_gone(self, instant: str) -> bool:
        """Whether it was rolled back for good: a plan of a clustering or compaction may be carried out again."""
        if instant not in self.rolled_back:
            return False
        return all(each.action == "rollback" for each in self.instants if each.requested == instant)


class Timeline:
    """Reads for one sink of one table."""

    def __init__(self, hudi: HudiClient, sink: str) -> None:
        self._hudi = hudi
        self._sink = sink
        self._meta: Any = None
        self._checkpoints: dict[Instant, Checkpoint | None] = {}
        self._rollbacks: dict[Instant, frozenset[str]] = {}
        self._completed: dict[str, Checkpoint] = {}
        self.completed: frozenset[Instant] = frozenset()
        """Instants that were complete when the active timeline was last read."""
        self._owners: dict[str, str | None] = {}
        self._replaced: dict[Instant, frozenset[str]] = {}
        self._removals: dict[Instant, list[str]] = {}
        self._archived: tuple[Checkpoint, Instant] | None = None
        self._archive_read: set[Instant] = set()

    @property
    def meta(self) -> Any:
        """Hudi's meta client, with the active timeline as it was last read."""
        return self._meta

    def view(self, instants: Collection[str], now: Snapshot | None = None) -> TableView:
        now = now or self.snapshot()
        states = {instant: self._state(now, instant) for instant in instants}
        checkpoint, since = now.checkpoint, now.instants
        if now.place is not None:
            since = tuple(each for each in now.instants if each.requested > now.place.requested)
        elif (archived := self._archived_checkpoint()) is not None:
            checkpoint = archived[0]
            since = (
                *now.instants,
                *(each for each in self._archive() if each.requested > archived[1].requested),
            )
        return TableView(checkpoint, states, self._orphans(now), len({e.requested for e in since if e.done}))

    def note_begun(self, instant: str) -> None:
        """This process wrote it: its file need not be read to know whose it is."""
        self._owners[instant] = self._sink

    def note_completed(self, instant: str, checkpoint: Checkpoint) -> None:
        """This process completed it, and knows what it carries."""
        self._completed = {instant: checkpoint}

    def snapshot(self) -> Snapshot:
        """Reads again where archiving or a rollback takes away what was just listed."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._snapshot()
            except Py4JJavaError as error:
                if "java.io.FileNotFoundException" not in causes(error) or attempt == _ATTEMPTS - 1:
                    raise self._said(error) from error
            except (*JAVA_ERRORS, OSError) as error:
                raise self._said(error) from error
        raise AssertionError("the last attempt returns or raises")

    def state(self, instant: str) -> InstantState:
        return self._state(self.snapshot(), instant)

    def replaced(self, now: Snapshot) -> frozenset[str]:
        """File ids that a commit of the active timeline has replaced, whether or not their files are still
        there.
        """
        found: set[str] = set()
        for each in now.instants:
            if each.done and each.action == "replacecommit":
                if each not in self._replaced:
                    self._replaced[each] = self._read_replaced(each)
                found |= self._replaced[each]
        return frozenset(found)

    def touched_since(self, now: Snapshot, instant: str) -> frozenset[str]:
        """File ids that others have changed or replaced since the instant was requested. What a compaction has merged
        is as it was.
        """
        found: set[str] = set()
        for each in now.instants:
            if each.done and each.action in WRITES and each.completed is not None and each.completed > instant:
                try:
                    found |= self._touched(each)
                except (*JAVA_ERRORS, OSError) as error:
                    raise self._said(error) from error
                if each.action == "replacecommit":
                    found |= self._read_replaced(each)
        return frozenset(found)

    def _touched(self, each: Instant) -> frozenset[str]:
        metadata = self._meta.getActiveTimeline().readCommitMetadata(self._java(each))
        if str(metadata.getOperationType()) == "COMPACT":
            return frozenset()
        return frozenset(self._hudi.json(metadata.getFileIdAndRelativePaths()))

    def removed_files(self, now: Snapshot) -> list[str]:
        """Files, relative to the table, that completed rollbacks of the active timeline were to remove."""
        base = str(self._hudi.path().toUri().getPath()).rstrip("/") + "/"
        found: list[str] = []
        for each in now.instants:
            if each.action == "rollback" and each.done:
                found += (path.removeprefix(base) for path in self._removed(each))
        return found

    def _removed(self, each: Instant) -> list[str]:
        if each not in self._removals:
            metadata = self._meta.getActiveTimeline().readRollbackMetadata(self._java(each))
            paths: list[str] = []
            if any(about.getAction() in REPEATED for about in metadata.getInstantsRollback()):
                # A later attempt at the same instant may have made a file of the same name.
                self._removals[each] = paths
                return paths
            for part in metadata.getPartitionMetadata().values():
                for path in (*part.getSuccessDeleteFiles(), *part.getFailedDeleteFiles()):
                    paths.append(str(self._hudi.java.storage.StoragePath(path).toUri().getPath()))
            self._removals[each] = paths
        return self._removals[each]

    def _snapshot(self) -> Snapshot:
        if self._meta is None:
            self._meta = self._hudi.meta_client()
        timeline = self._meta.reloadActiveTimeline()
        instants = tuple(self._listed(timeline))
        newest, place = None, None
        for each in instants:
            if each.done and each.action in OWN:
                checkpoint = self._checkpoint(timeline, each)
                if checkpoint is not None and (newest is None or checkpoint.number > newest.number):
                    newest, place = checkpoint, each
        rolled_back: set[str] = set()
        rolling_back: set[str] = set()
        for each in instants:
            if each.action == "rollback":
                (rolled_back if each.done else rolling_back).update(self._rollback(timeline, each))
        self._forget(instants)
        completed = frozenset(each for each in instants if each.done)
        if any(each.requested not in self._completed for each in completed - self.completed):
            self._hudi.forget()
        self.completed = completed
        return Snapshot(instants, newest, place, frozenset(rolled_back), frozenset(rolling_back))

    def _listed(self, timeline: Any) -> Iterator[Instant]:
        for each in self._hudi.json(timeline.getInstants()):
            yield Instant(each["requestedTime"], each["action"], each["state"], each.get("completionTime"))

    def _checkpoint(self, timeline: Any, each: Instant) -> Checkpoint | None:
        if each not in self._checkpoints and each.requested in self._completed:
            self._checkpoints[each] = self._completed[each.requested]
        if each not in self._checkpoints:
            java = self._java(each)
            if timeline.isEmpty(java):
                raise Corrupt(f"{self._place(each)} is empty: it was damaged; restore the table or its file")
            self._checkpoints[each] = self._decoded(timeline.readCommitMetadata(java), each)
        return self._checkpoints[each]

    def _decoded(self, metadata: Any, each: Instant) -> Checkpoint | None:
        text = metadata.getMetadata(CHECKPOINT_KEY + self._sink)
        return None if text is None else decode_checkpoint(text, self._place(each))

    def _rollback(self, timeline: Any, each: Instant) -> frozenset[str]:
        """The instants that a rollback is about. One that is only requested may lose its plan to a crash."""
        if each not in self._rollbacks:
            if each.done:
                named = timeline.readRollbackMetadata(self._java(each)).getCommitsRollback()
                self._rollbacks[each] = frozenset(str(instant) for instant in named)
            else:
                requested = self._hudi.instant(self._meta, "REQUESTED", "rollback", each.requested)
                if timeline.isEmpty(requested):
                    return frozenset()
                plan = timeline.readRollbackPlan(requested)
                self._rollbacks[each] = frozenset({str(plan.getInstantToRollback().getCommitTime())})
        return self._rollbacks[each]

    def _read_replaced(self, each: Instant) -> frozenset[str]:
        try:
            metadata = self._meta.getActiveTimeline().readReplaceCommitMetadata(self._java(each))
            named = self._hudi.json(metadata.getPartitionToReplaceFileIds())
        except (*JAVA_ERRORS, OSError) as error:
            raise self._said(error) from error
        return frozenset(file_id for ids in named.values() for file_id in ids)

    def _state(self, now: Snapshot, instant: str) -> InstantState:
        if instant in now.rolled_back:
            return InstantState.ROLLED_BACK
        found = now.of(instant)
        if found:
            return InstantState.COMPLETED if any(each.done for each in found) else InstantState.PENDING
        if now.first and instant > now.first and not self._maybe_archived(now, instant):
            return InstantState.ABSENT
        return self._archived_state(instant)

    def _maybe_archived(self, now: Snapshot, instant: str) -> bool:
        """Archiving takes the oldest first, but lets go of single instants in the middle when they are
        rollbacks.
        """
        writes = [each.requested for each in now.instants if each.done and each.action in WRITES]
        return not writes or instant < min(writes)

    def _archived_state(self, instant: str) -> InstantState:
        rolled_back = False
        for each in self._archive():
            if each.requested == instant and each.action in WRITES:
                return InstantState.COMPLETED
            rolled_back |= (
                each.action == "rollback" and each.requested > instant and instant in self._archived_rollback(each)
            )
        return InstantState.ROLLED_BACK if rolled_back else InstantState.ABSENT

    def _orphans(self, now: Snapshot) -> tuple[str, ...]:
        pending = {each.requested for each in now.instants if not each.done and each.action == self._hudi.action}
        return tuple(instant for instant in sorted(pending - now.rolled_back) if self._owner(instant) == self._sink)

    def _owner(self, instant: str) -> str | None:
        """The sink that began a pending instant, by the content of its requested file; None for other
        writers'.
        """
        if instant not in self._owners:
            timeline = self._meta.getActiveTimeline()
            java = self._hudi.instant(self._meta, "REQUESTED", self._hudi.action, instant)
            try:
                owner = None
                if not timeline.isEmpty(java):
                    owner = timeline.readCommitMetadata(java).getMetadata(SINK_KEY)
            except Py4JJavaError as error:
                if "java.io.FileNotFoundException" in causes(error):
                    return None
                raise self._said(error) from error
            self._owners[instant] = owner
        return self._owners[instant]

    def _archive(self) -> list[Instant]:
        """Completed instants of the archived timeline, newest first."""
        try:
            self._history = self._meta.getArchivedTimeline().reload()
            return sorted(self._listed(self._history), reverse=True)
        except (*JAVA_ERRORS, OSError) as error:
            raise self._said(error) from error

    def _archived_checkpoint(self) -> tuple[Checkpoint, Instant] | None:
        """The highest number of the newest stretch of the archive that has any checkpoint of this sink."""
        after = self._archived[1].requested if self._archived else ""
        commits = [
            each
            for each in self._archive()
            if each.action in OWN and each.requested > after and each not in self._archive_read
        ]
        for start in range(0, len(commits), _ARCHIVE_CHUNK):
            chunk = commits[start : start + _ARCHIVE_CHUNK]
            found = [(said, each) for each, said in self._archived_details(chunk) if said is not None]
            self._archive_read.update(chunk)
            if found:
                self._archived = max(found, key=lambda pair: pair[0].number)
                break
        return self._archived

    def _archived_details(self, commits: Sequence[Instant]) -> Iterable[tuple[Instant, Checkpoint | None]]:
        try:
            self._load(commits[-1].requested, commits[0].requested)
            for each in commits:
                java = self._java(each)
                if self._history.isEmpty(java):
                    raise Corrupt(f"{self._place(each)} is empty in the archived timeline; restore the table")
                yield each, self._decoded(self._history.readCommitMetadata(java), each)
        except (*JAVA_ERRORS, OSError) as error:
            raise self._said(error) from error

    def _load(self, oldest: str, newest: str) -> None:
        """Details of archived instants, both ends included: Hudi's own range leaves out its beginning."""
        self._history.loadCompletedInstantDetailsInMemory(f"{int(oldest) - 1:017d}", newest)

    def _archived_rollback(self, each: Instant) -> frozenset[str]:
        if each not in self._rollbacks:
            try:
                self._load(each.requested, each.requested)
                named = self._history.readRollbackMetadata(self._java(each)).getCommitsRollback()
            except (*JAVA_ERRORS, OSError) as error:
                raise self._said(error) from error
            self._rollbacks[each] = frozenset(str(instant) for instant in named)
        return self._rollbacks[each]

    def _java(self, each: Instant) -> Any:
        states = getattr(self._hudi.jvm, "org.apache.hudi.common.table.timeline.HoodieInstant$State")
        generator = self._meta.getInstantGenerator()
        return generator.createNewInstant(getattr(states, each.state), each.action, each.requested, each.completed)

    def _forget(self, instants: Collection[Instant]) -> None:
        """Forgets instants that left the active timeline: they are archived or rolled back, and not asked for again."""
        known = set(instants)
        pending = {each.requested for each in instants if not each.done}
        self._checkpoints = {k: v for k, v in self._checkpoints.items() if k in known}
        self._replaced = {k: v for k, v in self._replaced.items() if k in known}
        self._owners = {k: v for k, v in self._owners.items() if k in pending}

    def _place(self, each: Instant) -> str:
        return f"{self._hudi.base_path}: {each.action} {each.requested}"

    def _said(self, error: BaseException) -> SinkError:
        said = f"{self._hudi.base_path}: the timeline cannot be read: {message(error)}"
        if isinstance(error, Py4JJavaError):
            found = causes(error)
            if any(name.startswith(_UNREADABLE) for name in found) or "Not an Avro data file" in said:
                return Corrupt(f"{said}; restore the table")
        return Unavailable(said)
