"""A table's active timeline as it was at one moment, and what its instants are called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from coordination.state.model import Checkpoint
from sink.hudi.java_objects import COMMIT, DELTA_COMMIT

TRANSACTION_ACTIONS = frozenset({COMMIT, DELTA_COMMIT})
"""Actions of a sink's transactions, by the type of the table."""
TIMELINE = ".hoodie/timeline"
CLUSTERING = "clustering"
COMPACTION = "compaction"
REPLACE = "replacecommit"
WRITES = TRANSACTION_ACTIONS | {REPLACE}
"""Actions whose completion changes what readers see."""
RESTORE = "restore"


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
class ActiveTimeline:
    """The active timeline at one moment. `rolled_back` have a completed rollback on it, `rolling_back` a
    pending one.
    """

    instants: tuple[Instant, ...]
    checkpoint: Checkpoint | None
    checkpoint_instant: Instant | None
    """The commit that carries the checkpoint."""
    rolled_back: frozenset[str]
    rolling_back: frozenset[str]
    cut_short: tuple[Instant, ...] = ()
    """Instants as they are listed whose completion is cut short: among `instants` they are pending."""

    @property
    def first(self) -> str:
        return min((entry.requested for entry in self.instants), default="")

    def is_pending(self, instant: str, action: str) -> bool:
        entries = [entry for entry in self.instants if entry.requested == instant and entry.action == action]
        return bool(entries) and not any(entry.done for entry in entries)

    def writes_at(self, instant: str) -> list[Instant]:
        return [entry for entry in self.instants if entry.requested == instant and entry.action in WRITES]

    def shows(self, instant: str) -> bool:
        """Whether readers take the instant for committed: they do with each that is older than the active timeline."""
        return instant < self.first or any(entry.done for entry in self.writes_at(instant))

    @property
    def undone(self) -> frozenset[str]:
        """The writes that are pending or rolled back, without compactions: log files may follow a plan of these."""
        pending = {
            entry.requested for entry in self.instants if not entry.done and entry.action in WRITES | {CLUSTERING}
        }
        compactions = {entry.requested for entry in self.instants if entry.action == COMPACTION}
        return frozenset(each for each in pending | self.rolled_back if not self.shows(each)) - compactions

    @property
    def newest_moment(self) -> str:
        """When the newest instant was requested or completed, whichever is later."""
        return max((max(entry.requested, entry.completed or "") for entry in self.instants), default="")

    @property
    def savepoints(self) -> tuple[Instant, ...]:
        """Complete savepoints. `requested` is the instant of the commit that each keeps."""
        return tuple(entry for entry in self.instants if entry.action == "savepoint" and entry.done)

    @property
    def has_savepoint(self) -> bool:
        """Whether commits that are later than a savepoint's may have been archived before that."""
        return bool(self.savepoints)

    @property
    def pending_restores(self) -> tuple[str, ...]:
        return tuple(entry.requested for entry in self.instants if entry.action == RESTORE and not entry.done)

    @property
    def restores(self) -> frozenset[str]:
        return frozenset(entry.requested for entry in self.instants if entry.action == RESTORE)

    def has_other_restores(self, known: Collection[str]) -> bool:
        """Whether there are restores besides these, which were all when an instant was begun: its files may build on
        what is gone. Not by times: the host that restores may have another clock."""
        return not self.restores <= set(known)

    def has_later_restore(self, instant: str) -> bool:
        """Whether the table was restored after this instant was requested, by the clocks of both hosts."""
        return any(entry.action == RESTORE and entry.requested > instant for entry in self.instants)

    def has_later_write(self, instant: str) -> bool:
        """Whether a write that was requested after this instant is complete."""
        return any(entry.done and entry.action in WRITES and entry.requested > instant for entry in self.instants)
