"""Reconciles the recorded state of a partition with its Kafka log. `reconcile` decides where the partition goes on.

A partition's record has a settled range, whose offsets the table holds or which a gap declares lost, and after it open
ranges, which are planned and not known to be committed.

Guarantee: a coordinator that acts on the returned `Decision` plans no offset twice, and skips no offset without
declaring a `Gap`. An open range keeps its bounds: it is planned again as recorded, or abandoned as a whole. The caller
first has to read the table's timeline, and record as settled each range that it finds committed. A log that is
truncated, and grows beyond the recorded end before the next reading, goes unnoticed. Raises nothing: a partition that
cannot go on is `Invalid`, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from coordination.state.failures import HaltKind
from coordination.state.model import Gap, OpenRange, PartitionLog, PartitionState, TopicPartition

FIRST_GENERATION = 0
"""The generation of a partition that never had a reset, a replay or a gap. Each of these raises the generation, so that
the same offsets become a new batch with new file ids."""


class DataLossPolicy(Enum):
    """`on.data.loss`: what to do when the log lost records before they were read."""

    FAIL = "fail"
    SKIP = "skip"


class OffsetReset(Enum):
    """`auto.offset.reset`: where to begin a partition without a record."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Case(Enum):
    """Relates the log's offsets to the recorded ones. The names are those of ClickHouse's Kafka Connect sink."""

    NEW = "New"
    SAME = "Same"
    CONTAINS = "Contains"
    OVERLAPPING = "Overlapping"
    CROP = "Crop"
    LOST_PREFIX = "Lost prefix"
    INVALID = "Invalid"


@dataclass(frozen=True, slots=True)
class New:
    """No state is recorded. `state` is an empty settled range at the offset where `auto.offset.reset` begins. The
    caller records it at once, even if there is nothing to read: "latest" would be another offset the next time.
    `readable_to` is the end of the log's readable offsets, exclusive.
    """

    cases: ClassVar[tuple[Case, ...]] = (Case.NEW,)
    state: PartitionState
    readable_to: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The partition goes on. The caller plans each range of `state.open` again exactly as recorded, and after them new
    ranges of `[state.planned_end, readable_to)`.
    """

    cases: tuple[Case, ...]
    state: PartitionState
    readable_to: int


@dataclass(frozen=True, slots=True)
class LostPrefix:
    """The log begins after the first offset that is not settled: the offsets of `gap` are lost. If `halt` is set, the
    sink halts with `reason`. Otherwise the caller aborts the batches of `abandoned` and waits until their rollback is
    confirmed. Then it declares `gap` in the next checkpoint and goes on from `state`, which is settled up to the end of
    the gap, in a new generation.
    """

    cases: ClassVar[tuple[Case, ...]] = (Case.LOST_PREFIX,)
    gap: Gap
    halt: bool
    reason: str
    abandoned: tuple[OpenRange, ...]
    state: PartitionState
    readable_to: int


@dataclass(frozen=True, slots=True)
class Invalid:
    """The log lacks the partition, or is not the log that was read: the sink halts with `reason`."""

    cases: ClassVar[tuple[Case, ...]] = (Case.INVALID,)
    kind: HaltKind
    reason: str


Decision = New | Ready | LostPrefix | Invalid


def classify(recorded: PartitionState | None, proposed: tuple[int, int]) -> tuple[Case, ...]:
    """Compares the offsets `[start, end)` of a log with the open ranges of a partition, or with its settled range if
    there are none. Returns the cases that apply. If the log begins before these ranges, CROP is the first of two cases.
    Never returns INVALID: that takes more than offsets.
    """
    start, end = proposed
    if recorded is None:
        return (Case.NEW,)
    if start > recorded.end:
        return (Case.LOST_PREFIX,)
    has_open = bool(recorded.open)
    range_start, range_end = (recorded.end, recorded.planned_end) if has_open else (recorded.start, recorded.end)
    if end > range_end:
        case = Case.OVERLAPPING
    elif has_open and end == range_end:
        case = Case.SAME
    else:
        case = Case.CONTAINS
    return (Case.CROP, case) if start < range_start else (case,)


def reconcile(
    partition: TopicPartition,
    recorded: PartitionState | None,
    observed: PartitionLog | None,
    policy: DataLossPolicy,
    reset: OffsetReset,
) -> Decision:
    """Decides how one partition goes on. `recorded` is None if ZooKeeper has no record of it, `observed` if the broker
    does not have it. Only a partition without a record uses `reset`. If its topic is already being read, pass EARLIEST:
    the partition was added later, and its first records belong to the topic like those of older partitions.
    """
    if observed is None:
        return Invalid(HaltKind.PARTITIONS_GONE, _missing_reason(partition, recorded))
    # Start and end come from two requests. A start beyond the end means that the end is out of date: nothing is lost.
    log_start = min(observed.start, observed.end)
    if recorded is None:
        start = log_start if reset is OffsetReset.EARLIEST else observed.end
        return New(PartitionState(observed.topic_id, start, start, FIRST_GENERATION), observed.end)
    if observed.topic_id != recorded.topic_id:
        return Invalid(HaltKind.TOPIC_RECREATED, _recreated_reason(partition, recorded, observed))
    if observed.end < recorded.planned_end:
        return Invalid(HaltKind.LOG_TRUNCATED, _truncated_reason(partition, recorded, observed))
    cases = classify(recorded, (log_start, observed.end))
    if Case.LOST_PREFIX in cases:
        return _lost_prefix(partition, recorded, log_start, observed.end, policy)
    return Ready(cases, recorded, observed.end)


def _lost_prefix(
    partition: TopicPartition, recorded: PartitionState, log_start: int, end: int, policy: DataLossPolicy
) -> LostPrefix:
    gap = Gap(partition.topic, partition.partition, recorded.end, log_start)
    halt = policy is DataLossPolicy.FAIL
    summary = f"{partition}: offsets [{gap.start}, {gap.end}) were deleted from the log before they were read"
    remedy = (
        ". To go on without them, set on.data.loss=skip, which records the gap. To prevent further loss, raise the"
        " topic's retention."
    )
    resumed = PartitionState(recorded.topic_id, log_start, log_start, recorded.generation + 1)
    return LostPrefix(gap, halt, summary + remedy if halt else summary, recorded.open, resumed, end)


def _missing_reason(partition: TopicPartition, recorded: PartitionState | None) -> str:
    if recorded is None:
        return f"{partition}: the broker has no such topic or partition. Create it, or correct kafka.topic.names."
    planned = (
        f", and [{recorded.end}, {recorded.planned_end}) was planned and can no longer be read" if recorded.open else ""
    )
    return (
        f"{partition}: the broker no longer has this topic or partition. The table holds it up to "
        f"offset {recorded.end} of topic id {recorded.topic_id}{planned}. To go on with the partitions that exist, "
        f"run `sink reset --to earliest --topic {partition.topic}`."
    )


def _recreated_reason(partition: TopicPartition, recorded: PartitionState, observed: PartitionLog) -> str:
    return (
        f"{partition}: the topic was deleted and created again: recorded up to offset {recorded.planned_end} of "
        f"topic id {recorded.topic_id}, but the broker has topic id {observed.topic_id} with offsets "
        f"[{observed.start}, {observed.end}). To read the new topic, run `sink reset --to earliest --topic"
        f" {partition.topic}`."
    )


def _truncated_reason(partition: TopicPartition, recorded: PartitionState, observed: PartitionLog) -> str:
    return (
        f"{partition}: the log was truncated: recorded up to offset {recorded.planned_end}, but the log of the "
        f"same topic id {observed.topic_id} ends at {observed.end}. Find out which records the broker lost, "
        f"then run `sink reset --offset {partition.topic}:{partition.partition}=OFFSET`."
    )
