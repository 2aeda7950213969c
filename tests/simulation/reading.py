"""How a task reads the simulated logs, and what must hold of everything that was read and committed.

A client asks for a topic by its name: whichever cluster its connections lead to, and whichever topic has that name
now, answers. It raises when that changes while it reads a range, or when records below its position are lost. Whether
it compares them with the plan as well is drawn for each run: the coordinator has to find out without that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordination.errors import DataLoss, WrongLog
from coordination.state.log_records import Anchor, ReadRange
from coordination.state.model import Slice, SliceResult, TopicPartition, WriteTask
from tests.simulation.log import LogState, SimLog
from tests.simulation.violation import Violation

Origin = tuple[str, str]
"""Cluster and topic id."""


@dataclass(frozen=True)
class SliceTruth:
    """Where the records of a slice came from, whatever its reader says, and the log as it was then."""

    piece: Slice
    origin: Origin
    last: Anchor | None
    log: LogState
    open_from: int | None
    """The first offset of an open transaction."""


@dataclass
class _Range:
    piece: Slice
    origin: Origin
    truncations: int
    before: Anchor | None
    last: Anchor | None = None


@dataclass
class Reading:
    """One task's reading. `is_trusting`: it does not compare what it reads from with the plan."""

    task: WriteTask
    cluster: str
    is_trusting: bool
    truths: list[SliceTruth] = field(default_factory=list)
    _ranges: list[_Range] = field(default_factory=list)

    def read(self, log: SimLog, piece: Slice) -> SliceResult:
        """Reads the next slice. Raises WrongLog and DataLoss."""
        origin = log.origin(piece.topic)
        if origin != (self.cluster, piece.topic_id) and not self.is_trusting:
            raise WrongLog(piece.topic, (self.cluster, piece.topic_id), origin)
        if not log.has_offsets(piece):
            raise DataLoss(piece.topic, piece.partition, piece.start, "the log lost it")
        partition = log.partitions[piece.source]
        current = self._ranges[-1] if self._ranges else None
        if current is None or current.piece.source != piece.source or not current.piece.start < piece.start:
            (planned,) = (r for r in self.task.ranges if r.source == piece.source and r.start == piece.start)
            before = partition.last_record(origin[1], planned.anchor, planned.start) if planned.anchor >= 0 else None
            current = _Range(planned, origin, len(partition.truncations), before)
            self._ranges.append(current)
        if self.has_changed(current, origin):
            raise WrongLog(piece.topic, current.origin, origin)
        if any(end < piece.start for end in partition.truncations[current.truncations :]):
            raise DataLoss(piece.topic, piece.partition, piece.start, "the log was truncated below the position")
        last = partition.last_record(origin[1], piece.start, piece.end)
        current.last = last or current.last
        self.truths.append(SliceTruth(piece, origin, last, partition.state(), partition.open_from))
        return SliceResult(piece, *log.read(piece))

    def has_changed(self, current: _Range, origin: Origin) -> bool:
        return current.origin != origin

    def reads(self) -> tuple[ReadRange, ...]:
        """Returns what the task reports of its ranges, once all are read."""
        return tuple(self.reported(r) for r in self._ranges)

    def reported(self, r: _Range) -> ReadRange:
        cluster, topic_id = r.origin
        piece = r.piece
        return ReadRange(cluster, piece.topic, topic_id, piece.partition, piece.start, piece.end, r.before, r.last)


class ReadInvariants:
    """Follows the visible records of each partition: where they came from, and which was the last."""

    def __init__(self) -> None:
        self._last: dict[TopicPartition, tuple[str, int, Anchor]] = {}
        """Topic id, generation and the last visible record."""
        self._cluster = ""

    def committed(self, cluster: str, truths: Iterable[SliceTruth]) -> None:
        self._cluster = self._cluster or cluster
        if cluster != self._cluster:
            raise Violation("all commits are of one cluster", f"{cluster} after {self._cluster}")
        for truth in sorted(truths, key=lambda truth: truth.piece):
            piece = truth.piece
            if truth.origin != (cluster, piece.topic_id):
                raise Violation("rows come from the planned cluster and topic alone", f"{piece} from {truth.origin}")
            if truth.open_from is not None and truth.open_from < piece.end:
                raise Violation("nothing of an open transaction is visible", f"{piece}, open from {truth.open_from}")
            identity = (piece.topic_id, piece.generation)
            topic_id, generation, last = self._last.get(piece.source, (*identity, None))
            if last is not None and (topic_id, generation) == identity and truth.log.has_another(last, piece.start):
                raise Violation("only the log that was read is read on", f"{piece} after {last}: {truth.log}")
            if truth.last is not None:
                self._last[piece.source] = (*identity, truth.last)

    def begin_again(self, commits: Iterable[tuple[str, Sequence[SliceTruth]]]) -> None:
        self._last.clear()
        for cluster, truths in commits:
            self.committed(cluster, truths)


def truths_of(stats: Iterable[str], read: Mapping[str, Sequence[SliceTruth]]) -> list[SliceTruth]:
    return [truth for stat in stats for truth in read.get(stat, ())]


def reads_of(task: WriteTask, log: SimLog) -> tuple[ReadRange, ...]:
    """Returns what a task reports that reads this log at once."""
    reading = Reading(task, log.origin("")[0], is_trusting=True)
    for piece in task.slices:
        reading.read(log, piece)
    return reading.reads()
