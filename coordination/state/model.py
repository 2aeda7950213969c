"""The protocol's vocabulary: frozen values for all other modules.

Nothing here does I/O, reads a clock or draws a random number. A constructor raises ValueError for what cannot be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from coordination.state.failures import Failure, SchemaConflict
from coordination.state.incarnations import worker_of
from coordination.state.log_records import Anchor, ReadRange

NO_TRANSACTION = 0
"""The number before the first transaction: the base of a table without a checkpoint."""
NO_ANCHOR = -1
"""The offset of no record."""


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, order=True, slots=True)
class Slice:
    """Offsets `[start, end)` of one partition: the unit of counting, of digests and of retries.
    `topic_id` and `generation` are part of every file id of the task that writes the slice, so that neither a recreated
    topic nor a replay can ever produce a file id that the table already holds. A reader begins at `anchor`,
    the offset of the last record before it (NO_ANCHOR: at `start`), which is not part of its identity.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str
    generation: int
    anchor: int = field(default=NO_ANCHOR, compare=False)

    def __post_init__(self) -> None:
        if not NO_ANCHOR <= self.anchor < self.start < self.end:
            raise ValueError(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a slice")

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Offsets covered; an upper bound of the records, for a log may have gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Slices that one Spark task reads in this order and writes into one file group per table partition."""

    slices: tuple[Slice, ...]

    def __post_init__(self) -> None:
        if not self.slices:
            raise ValueError("a write task has at least one slice")

    @property
    def size(self) -> int:
        """Offsets covered."""
        return sum(piece.size for piece in self.slices)

    @property
    def ranges(self) -> tuple[Slice, ...]:
        """The slices, with those joined that follow one another without a hole: what a reader reads in one piece."""
        ranges: list[Slice] = []
        for piece in self.slices:
            if ranges and ranges[-1].source == piece.source and ranges[-1].end == piece.start:
                ranges[-1] = replace(ranges[-1], end=piece.end)
            else:
                ranges.append(piece)
        return tuple(ranges)


class RangeStatus(Enum):
    BEFORE = "BEFORE"
    AFTER = "AFTER"


@dataclass(frozen=True, slots=True)
class OpenRange:
    """A range that is BEFORE: recorded, possibly written, not yet known to be committed.

    `batch` names the transaction that recorded it; every later attempt re-forms the batch, whatever its own
    number. `step` is the slicing grid that was in force then, and `task_records` how many offsets a write task of the
    batch takes on, so that neither a changed setting nor another fleet can cut or group it anew.
    """

    start: int
    end: int
    batch: int
    step: int
    generation: int
    task_records: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end or min(self.step, self.task_records) <= 0 or self.batch <= NO_TRANSACTION:
            raise ValueError(f"not an open range: {self}")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The record of one partition: `[start, end)` is AFTER; `open` follows it without a hole.

    More than one open range exists only while several transactions are in flight. `anchor`: the record before `end`.
    """

    topic_id: str
    start: int
    end: int
    generation: int
    open: tuple[OpenRange, ...] = ()
    anchor: Anchor | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a settled range: [{self.start}, {self.end})")
        expected_start = self.end
        for open_range in self.open:
            if open_range.start != expected_start:
                raise ValueError(f"open range starts at {open_range.start}, expected {expected_start}")
            expected_start = open_range.end
        if self.anchor is not None and self.anchor.offset >= self.end:
            raise ValueError(f"{self.anchor} is not before offset {self.end}")

    @property
    def status(self) -> RangeStatus:
        return RangeStatus.BEFORE if self.open else RangeStatus.AFTER

    @property
    def planned_end(self) -> int:
        """The offset after the last one that any plan covers."""
        return self.open[-1].end if self.open else self.end


class Phase(Enum):
    PLANNED = "PLANNED"
    STARTED = "STARTED"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class Header:
    """The transaction znode. Its version is the compare-and-set on which every decision rests.

    `base` is the number of the checkpoint that this transaction extends, `cluster` the Kafka cluster whose
    offsets it moves. `timeout` is the write-status deadline in seconds, counted by the coordinator that saw STARTED.
    `columns` are those that every participant writes, opaque here; empty without a batch to write. `times` holds the
    wall-clock second at which each phase was entered: for people, never for decisions.
    """

    number: int
    batch: int
    attempt: int
    epoch: int
    base: int
    phase: Phase
    timeout: float
    plan_digest: str
    cluster: str = ""
    instant: str | None = None
    reason: str = ""
    times: Mapping[str, float] = field(default_factory=dict)
    columns: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Write tasks by incarnation. The union is the batch; the split is this attempt's."""

    tasks: Mapping[str, tuple[WriteTask, ...]]

    @property
    def slices(self) -> Mapping[str, tuple[Slice, ...]]:
        """The slices of each incarnation's tasks."""
        return {name: tuple(piece for task in tasks for piece in task.slices) for name, tasks in self.tasks.items()}

    @property
    def all_tasks(self) -> tuple[WriteTask, ...]:
        return tuple(task for incarnation in sorted(self.tasks) for task in self.tasks[incarnation])

    def __iter__(self) -> Iterator[Slice]:
        for task in self.all_tasks:
            yield from task.slices


@dataclass(frozen=True, slots=True)
class SliceResult:
    """Evidence of one written slice. `digest` is unsigned 64 bit: the wrapped sum of the hashes of all its records.
    `records` are in the table, `errors` are bad ones, for the errors table."""

    slice: Slice
    records: int
    digest: int
    errors: int = 0


@dataclass(frozen=True, slots=True)
class QuarantinedRecords:
    """Bad records that one participant kept for the errors table: `path` holds them, relative to the table.

    The first of them is named, so that a sink that halts for too many of them can say where to look.
    """

    path: str
    records: int
    topic: str
    partition: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """A participant's report. `stats` are Hudi write stats, one JSON document a file, opaque here."""

    number: int
    incarnation: str
    results: tuple[SliceResult, ...] = ()
    stats: tuple[str, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    size: int = 0
    """Bytes of the values that were read."""
    errors: tuple[QuarantinedRecords, ...] = ()
    reads: tuple[ReadRange, ...] = ()
    """The ranges of each task, in the order of the tasks: one for each of `WriteTask.ranges`."""
    schemas: tuple[tuple[str, str], ...] = ()
    """Id and fingerprint of each registered schema that decoded values."""


@dataclass(frozen=True, slots=True)
class PartitionCheckpoint:
    end: int
    generation: int
    anchor: Anchor | None = None
    """The last record before `end`."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` that the log lost before they were read, skipped by `on.data.loss=skip`."""

    topic: str
    partition: int
    start: int
    end: int

    def covers(self, other: Gap) -> bool:
        is_same_partition = (other.topic, other.partition) == (self.topic, self.partition)
        return is_same_partition and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The offsets inside a Hudi commit: the truth. Cumulative over all partitions, idle ones included.
    `results` are the slices that this very commit added; `gaps` every gap ever skipped; `schemas` the fingerprints of
    the registered schemas that decoded records last, by id, in the order of their last use."""

    sink: str
    keeper: str
    cluster: str
    epoch: int
    number: int
    base: int
    config: str
    topics: Mapping[str, str]
    ends: Mapping[TopicPartition, PartitionCheckpoint]
    results: tuple[SliceResult, ...] = ()
    gaps: tuple[Gap, ...] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)


class WorkerState(Enum):
    ACTIVE = "active"
    DRAINING = "draining"


@dataclass(frozen=True, order=True, slots=True)
class Member:
    """A live worker. `incarnation` is `<worker id>:<uuid of this start>`, never a bare worker id."""

    incarnation: str
    host: str
    pid: int
    version: str
    state: WorkerState = WorkerState.ACTIVE
    config: str = ""
    """Digest of the settings that it runs with: a fleet has one."""
    cores: int = 1
    """Write tasks that it runs side by side."""

    @property
    def worker(self) -> str:
        return worker_of(self.incarnation)


class InstantState(Enum):
    """The state of a Hudi instant on the table's timeline."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    ROLLED_BACK = "ROLLED_BACK"
    """A completed rollback of this very instant stands on the timeline: proof that it can never complete."""
    ABSENT = "ABSENT"


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The broker's view of one partition: offsets `[start, end)` can be read. Those from `end` up to the high watermark
    are acknowledged and wait for an open Kafka transaction, which holds `[end, high_watermark)` back. 0: not asked for.
    """

    topic_id: str
    start: int
    end: int
    high_watermark: int = 0

    @property
    def held_back(self) -> int:
        """Counts the offsets that an open Kafka transaction holds back."""
        return max(0, self.high_watermark - self.end)


@dataclass(frozen=True, slots=True)
class LogView:
    """`columns` are the table's columns once it holds all of these partitions: looked up after their ends, so that no
    record is newer. `schema_conflict` says why the table cannot have them. `matching`: the topics that match the
    request's pattern, None without one. `deleted`: topics that may be missing, and are.
    """

    cluster: str
    partitions: Mapping[TopicPartition, PartitionLog]
    columns: str = ""
    schema_conflict: SchemaConflict | None = None
    matching: tuple[str, ...] | None = None
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableView:
    """The timeline as this sink needs it. `instants` has the states of the requested instants.
    `orphans` are pending instants that carry this sink's name, oldest first; the caller knows which of them
    its open transactions name. `commits_since` counts completed instants after the checkpoint's commit.
    """

    checkpoint: Checkpoint | None
    instants: Mapping[str, InstantState]
    orphans: tuple[str, ...] = ()
    commits_since: int = 0

    def without_orphans(self, instants: Collection[str]) -> TableView:
        """Returns the view without these instants among the orphans: their fate is known by now."""
        return replace(self, orphans=tuple(orphan for orphan in self.orphans if orphan not in instants))
