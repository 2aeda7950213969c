"""Compares the ranges that tasks have read with their plan and with the records that were read before.

Guarantee: `misread` passes only reads of each planned range, from the planned topic id and cluster. `changed_log` finds
a log that lost its end and grew again. A task reads from the last record on that was read before, and this record has
to be the same by offset, leader epoch and digest; so it is from one transaction to the next, and between the tasks of
one. Void where the log no longer has that record (compacted, expired, a transaction's marker): `evidence` counts these
partitions. Pure; raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coordination.errors import WrongLog
from coordination.state.failures import Failure, FailureKind
from coordination.state.log_records import Anchor, ReadRange
from coordination.state.model import PartitionState, TopicPartition, WriteTask

States = Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class Evidence:
    """`compared`: partitions whose log was compared with the last record read. `absent`: partitions whose log no longer
    has that record."""

    compared: int
    absent: int


def misread(tasks: Iterable[WriteTask], reads: Sequence[ReadRange], cluster: str) -> str | None:
    """Tells how `reads` differ from what these tasks were to read from `cluster`; None if they do not."""
    planned = [piece for task in tasks for piece in task.ranges]
    for piece, read in zip(planned, reads, strict=False):
        if (read.topic, read.partition, read.start, read.end) != (piece.topic, piece.partition, piece.start, piece.end):
            return f"it read {read} where {piece} was planned"
        if (read.cluster, read.topic_id) != (cluster, piece.topic_id):
            return str(WrongLog(piece.topic, (cluster, piece.topic_id), (read.cluster, read.topic_id)))
    if len(reads) != len(planned):
        return f"it read {len(reads)} ranges where {len(planned)} were planned"
    return None


def last_records(reads: Iterable[ReadRange]) -> dict[TopicPartition, Anchor]:
    """Returns the last record that was read of each partition; partitions without a record are absent."""
    last: dict[TopicPartition, Anchor] = {}
    for read in reads:
        source = TopicPartition(read.topic, read.partition)
        if read.last is not None and (source not in last or last[source].offset < read.last.offset):
            last[source] = read.last
    return last


def changed_log(reads: Iterable[ReadRange], states: States) -> Failure | None:
    """Returns the failure for the first partition whose log is not the one that was read before; None without one.
    `states` are those before the reads: their anchors are the records that were read last.
    """
    for source, anchor, ranges in _by_partition(reads, states):
        expected = anchor
        for position, read in enumerate(ranges):
            if (expected is not None or position > 0) and _is_evidence(read, expected) and read.before != expected:
                return _failure(source, read, expected)
            expected = read.last or expected
    return None


def evidence(reads: Iterable[ReadRange], states: States) -> Evidence:
    """Counts the partitions with an anchor: those whose log was compared, and those whose log no longer has the
    record."""
    first_reads = [(ranges[0], anchor) for _, anchor, ranges in _by_partition(reads, states) if anchor is not None]
    compared = sum(_is_evidence(read, anchor) for read, anchor in first_reads)
    return Evidence(compared, len(first_reads) - compared)


def _is_evidence(read: ReadRange, expected: Anchor | None) -> bool:
    """Whether the reader found a record that can be compared. An older one than the expected says nothing: compaction
    may have taken what was between."""
    return read.before is not None and (expected is None or read.before.offset >= expected.offset)


def _by_partition(
    reads: Iterable[ReadRange], states: States
) -> Iterator[tuple[TopicPartition, Anchor | None, list[ReadRange]]]:
    ranges: dict[TopicPartition, list[ReadRange]] = {}
    for read in reads:
        ranges.setdefault(TopicPartition(read.topic, read.partition), []).append(read)
    for source in sorted(ranges):
        state = states.get(source)
        yield source, state.anchor if state else None, sorted(ranges[source], key=lambda read: read.start)


def _failure(source: TopicPartition, read: ReadRange, expected: Anchor | None) -> Failure:
    found = read.before
    assert found is not None
    earlier = f"none was read at or after offset {found.offset}" if expected is None else f"the last was {expected}"
    reason = (
        f"{source}: the log is not the one that was read: before offset {read.start} {earlier}, and now there is"
        f" {found}. The log lost its end and grew again (an unclean leader election, a restored disk). Run `sink audit`"
        " to see which records differ, then `sink reset --to checkpoint` to go on in this log, or `--offset` to read"
        " the new records from where it changed"
    )
    return Failure(FailureKind.LOG_CHANGED, reason, source.topic, source.partition, found.offset)
