"""Decides which offsets may be landed again, and of which records the log has to prove that they are the same.

Guarantee: without a refusal, each offset was added by exactly one committed slice, of the topic that is there now, and
the log still has every offset that is needed. What the log then gives is compared with what was committed by count and
digest, slice by slice. Pure; raises nothing: a refusal is a sentence with topic, partition and offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.state.model import Checkpoint, LogView, Slice, SliceResult, TopicPartition

NAMED = 5
"""A message names so many slices: there may be thousands."""


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def meets(self, start: int, end: int) -> bool:
        return self.start < end and start < self.end

    def __str__(self) -> str:
        last = self.end - 1
        offsets = str(self.start) if last == self.start else f"{self.start}..{last}"
        return f"{self.topic}:{self.partition}={offsets}"


@dataclass(frozen=True, slots=True)
class CommittedSlice:
    """A slice that the transaction `number` added."""

    number: int
    result: SliceResult

    @property
    def slice(self) -> Slice:
        return self.result.slice


@dataclass(frozen=True, slots=True)
class Relanding:
    """`pieces` are landed again, without overlap. `needed` are the slices whose records have to be read for that, in
    the order of their transactions; the log has all of their offsets but for those of `cut`, which begin before it."""

    pieces: tuple[Slice, ...] = ()
    needed: tuple[CommittedSlice, ...] = ()
    cut: frozenset[Slice] = frozenset()
    refusals: tuple[str, ...] = ()
    by_key: bool = False

    def is_landed(self, slice_: Slice, offset: int) -> bool:
        """Whether the record at this offset takes part."""
        return self.by_key or any(_meets(slice_, piece) and piece.start <= offset < piece.end for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A slice as the log has it now: its result by the present settings, and the offsets of bad records with the
    reasons."""

    result: SliceResult
    bad: Mapping[int, str]


def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Returns the same offsets in ranges that neither overlap nor touch, sorted."""
    found: list[OffsetRange] = []
    for entry in sorted(ranges):
        if found and found[-1].source == entry.source and entry.start <= found[-1].end:
            found[-1] = replace(found[-1], end=max(found[-1].end, entry.end))
        else:
            found.append(entry)
    return tuple(found)


def plan_relanding(
    wanted: Sequence[OffsetRange],
    committed: Sequence[CommittedSlice],
    checkpoint: Checkpoint,
    log: LogView,
    replayed: Sequence[OffsetRange] = (),
    by_key: bool = False,
) -> Relanding:
    """`committed` is all that the sink's transactions added, `checkpoint` the newest one. `replayed` are bad records
    that a replay has put into the table. `by_key`: rows are changed by key, so that a row follows from the whole log.
    """
    refusals: list[str] = []
    pieces: list[Slice] = []
    if checkpoint.cluster and checkpoint.cluster != log.cluster:
        refusals.append(f"the table was read from the Kafka cluster {checkpoint.cluster}, and this is {log.cluster}")
    for entry in merged(wanted):
        found, reasons = _pieces(entry, committed, checkpoint.topics)
        pieces += found
        refusals += reasons
        refusals += (
            f"{run} was a bad record, and a replay has put another value into the table than the log has"
            for run in replayed
            if run.source == entry.source and run.meets(entry.start, entry.end) and not by_key
        )
    if by_key and replayed:
        refusals.append(
            f"bad records were replayed ({_listed(map(str, replayed))}): their changes are not in the log, so that it"
            " does not say which row a key has"
        )
    needed = [entry for entry in committed if by_key or any(_meets(entry.slice, piece) for piece in pieces)]
    needed.sort(key=lambda entry: (entry.number, entry.slice))
    refusals += _not_in_log([entry.slice for entry in needed] if by_key else pieces, checkpoint.topics, log)
    cut = frozenset(entry.slice for entry in needed if _start(log, entry.slice) > entry.slice.start)
    return Relanding(tuple(pieces), tuple(needed), cut, tuple(dict.fromkeys(refusals)), by_key)


def differences(
    relanding: Relanding, found: Mapping[Slice, Surveyed], known_bad: Mapping[Slice, Collection[int]]
) -> list[str]:
    """Returns how the log differs from what was committed. `known_bad`: the records of each slice that are in the
    errors table, and not in the table."""
    reasons = []
    for entry in relanding.needed:
        expected, survey = entry.result, found[entry.slice]
        bad = {offset: reason for offset, reason in survey.bad.items() if offset not in known_bad.get(entry.slice, ())}
        if entry.slice not in relanding.cut:
            records = survey.result.records + survey.result.errors
            if records != expected.records + expected.errors:
                reasons.append(
                    f"{entry.slice}: {expected.records + expected.errors:,} records were committed, and the log has"
                    f" {records:,}: compacted or lost since"
                )
            elif survey.result.digest != expected.digest:
                reasons.append(f"{entry.slice}: the log has other keys or values than those that were committed")
        reasons += (
            f"{entry.slice.source} offset {offset}: the record is bad by the present settings: {reason}"
            for offset, reason in sorted(bad.items())
            if relanding.is_landed(entry.slice, offset)
        )
    return reasons


def _pieces(
    wanted: OffsetRange, committed: Sequence[CommittedSlice], topic_ids: Mapping[str, str]
) -> tuple[list[Slice], Iterator[str]]:
    """Returns the offsets of the range as slices, joined where they follow one another; and reasons against it."""
    meeting = [
        entry.slice
        for entry in committed
        if entry.slice.source == wanted.source and wanted.meets(entry.slice.start, entry.slice.end)
    ]
    own = sorted(piece for piece in meeting if piece.topic_id == topic_ids.get(wanted.topic))
    found: list[Slice] = []
    reasons: list[str] = []
    position = wanted.start
    for piece in own:
        start, end = max(piece.start, wanted.start), min(piece.end, wanted.end)
        if start < position:
            place = OffsetRange(wanted.topic, wanted.partition, start, min(position, end))
            reasons.append(f"{place} was loaded again after a reset: its rows are not told apart")
            continue
        if start > position:
            reasons.append(_uncommitted(wanted, position, start, meeting))
        if found and found[-1].end == start and found[-1].generation == piece.generation:
            found[-1] = replace(found[-1], end=end)
        else:
            found.append(replace(piece, start=start, end=end, anchor=-1))
        position = end
    if position < wanted.end:
        reasons.append(_uncommitted(wanted, position, wanted.end, meeting))
    return found, iter(reasons)


def _uncommitted(wanted: OffsetRange, start: int, end: int, meeting: Sequence[Slice]) -> str:
    place = replace(wanted, start=start, end=end)
    if any(piece.start < end and start < piece.end for piece in meeting):
        return f"{place} was read from an earlier topic of this name, which is gone"
    return f"{place} is in no committed range"


def _not_in_log(pieces: Sequence[Slice], topic_ids: Mapping[str, str], log: LogView) -> Iterator[str]:
    by_source: dict[TopicPartition, list[Slice]] = {}
    for piece in pieces:
        by_source.setdefault(piece.source, []).append(piece)
    for source, found in sorted(by_source.items()):
        partition, first = log.partitions.get(source), min(piece.start for piece in found)
        end = max(piece.end for piece in found)
        if any(piece.topic_id != topic_ids.get(source.topic) for piece in found):
            yield f"{source}: records of an earlier topic of this name are needed, which is gone"
        elif partition is None:
            yield f"{source} is no longer in Kafka"
        elif partition.topic_id != topic_ids.get(source.topic):
            yield f"the topic {source.topic} was created again since: its records are others"
        elif partition.start > first:
            yield f"{source}: the log begins at {partition.start}, and its records from {first} on are needed"
        elif partition.end < end:
            yield f"{source}: the log ends at {partition.end}, and its records up to {end} are needed"


def _start(log: LogView, piece: Slice) -> int:
    partition = log.partitions.get(piece.source)
    return 0 if partition is None else partition.start


def _meets(slice_: Slice, piece: Slice) -> bool:
    is_same = (slice_.source, slice_.topic_id, slice_.generation) == (piece.source, piece.topic_id, piece.generation)
    return is_same and slice_.start < piece.end and piece.start < slice_.end


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    return ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
