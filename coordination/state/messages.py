"""The messages that go into a state machine and come out of it.

A machine takes an event and returns effects. Every effect is a request with a number; the answer carries that
number back, and an answer to any other request is dropped. An outcome is one of four: done, refused
(certainly without effect: another process decided), failed (certainly without effect, worth trying again) and
unknown (may have happened, may happen later, may never).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordination.state.failures import Failure, HaltKind
from coordination.state.model import Checkpoint, QuarantinedRecords, WriteTask
from coordination.state.reading import ParticipantView
from coordination.state.tree import Op

# --- requests to the shell


@dataclass(frozen=True, slots=True)
class ReadKeeper:
    """Answer: `KeeperView`."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Answer: `TableView`, with the state of each of `instants`."""

    instants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Answer: `LogView` of `topics`, of topics whose whole name matches the regular expression `pattern`, and of those
    of `unfinished` that Kafka has; the rest of `unfinished` is `deleted` there."""

    topics: tuple[str, ...]
    pattern: str | None = None
    unfinished: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """One multi. Answer: None; refused when any check fails."""

    purpose: str
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a Hudi instant. Answer: the instant."""

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FindExistingFiles:
    """Answer: `FileCheck` of the files in `stats`, which these tasks were planned to write."""

    number: int
    stats: tuple[str, ...]
    tasks: tuple[WriteTask, ...]


@dataclass(frozen=True, slots=True)
class FileCheck:
    """Problems with the files of a transaction; none as a rule."""

    existing: tuple[str, ...] = ()
    """File ids that the table has already, replaced file groups included."""
    unplanned: tuple[str, ...] = ()
    """File ids that derive from none of the planned tasks."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete a PREPARED instant, under the table lock, after the three checks of the in-lock guard.

    Answer: None. Refused means proof that the instant can no longer complete as it is: a rollback of it stands
    on the timeline, or, while the instant is pending, the table's checkpoint is not `checkpoint.base` or the offsets of
    `checkpoint` do not continue it. The versions are those of the epoch znode and of the PREPARED header, for the guard
    to check once more. With the commit the table's columns grow to hold `columns` too; columns that another writer has
    added meanwhile stay.

    The bad records that `errors` names are in the errors table before the instant is completed. `attempt` is above 1
    if an earlier attempt at the same ranges may have published others.
    """

    instant: str
    number: int
    epoch_version: int
    header_version: int
    stats: tuple[str, ...]
    checkpoint: Checkpoint
    columns: str = ""
    errors: tuple[QuarantinedRecords, ...] = ()
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class RollBack:
    """Roll back an instant that has an ABORTED record. Answer: None, once the timeline confirms it."""

    instant: str


@dataclass(frozen=True, slots=True)
class WriteTasks:
    """Run write tasks under a started instant, with these columns. Answer: `WriteStatus`; failed with a `Failure` says
    why. `cluster` is the Kafka cluster of which the offsets are. `attempt` counts the tries at the same ranges: a
    writer may take smaller buffers with each."""

    number: int
    instant: str
    tasks: tuple[WriteTask, ...]
    columns: str = ""
    attempt: int = 1
    cluster: str = ""


Operation = ReadKeeper | ReadTable | ReadLog | Write | Begin | FindExistingFiles | Complete | RollBack | WriteTasks


@dataclass(frozen=True, slots=True)
class Request:
    id: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop working on a request: the machine no longer wants its answer, though it will still come."""

    id: int


@dataclass(frozen=True, slots=True)
class Resign:
    """The machine has ended: give up the lock, or leave the fleet. A coordinator's process is not a candidate for
    `pause` seconds.
    """

    reason: str
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a log line: a name and its fields."""

    event: str
    fields: tuple[tuple[str, Any], ...] = ()


Effect = Request | Cancel | Resign | Note


# --- reports of the shell


@dataclass(frozen=True, slots=True)
class Done:
    value: Any = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Certainly without effect. `fenced` means that this coordinator's term is over."""

    reason: str
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str
    failure: Failure | None = None
    halts: HaltKind | None = None
    """Set if no retry can help (the request's own input is at fault): the sink halts, with the reason."""


@dataclass(frozen=True, slots=True)
class Unknown:
    reason: str


NotDone = Refused | Failed | Unknown
Outcome = Done | NotDone


@dataclass(frozen=True, slots=True)
class Answered:
    at: float
    id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class KeeperChanged:
    """Something below the sink's root changed, or the session came back: the reading may be stale."""

    at: float


@dataclass(frozen=True, slots=True)
class ParticipantViewSeen:
    """A participant's reading of its share of the tree, made by the shell after something changed."""

    at: float
    view: ParticipantView


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. `at` is monotonic seconds of the process, `wall` the clock people read."""

    at: float
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """Whether the table's store is away, refuses or is slow, as far as this process can see."""

    at: float
    faulty: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether this process lets the sink open a transaction now. Without one, it does."""

    at: float
    granted: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish open transactions, take on nothing new."""

    at: float


Event = Answered | KeeperChanged | ParticipantViewSeen | StoreSeen | Admission | Tick | Drain
