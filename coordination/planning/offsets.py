"""Reconciles the recorded state of a partition with its log: one function, case by case.

Guarantee: a coordinator that acts on the returned `Decision` plans no offset twice, and skips none that is not declared
as a `Gap`. An open range (planned, not known to be committed) keeps its bounds: it is planned again as recorded, or
abandoned as a whole. Void if the caller has not looked at the table's timeline first, and recorded a range that was
committed as settled; and if a log is truncated and grows past the recorded end between two readings. Raises nothing: a
state that cannot go on is `Invalid`, with a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from coordination.state.failures import HaltKind
from coordination.state.model import Gap, OpenRange, PartitionLog, PartitionState, TopicPartition

FIRST_GENERATION = 0
"""The generation of a partition without a reset, replay or gap. Each raises it: a batch from before is another one."""


class DataLossPolicy(Enum):
    """`on.data.loss`: what to do when the log lost records before they were read."""

    FAIL = "fail"
    SKIP = "skip"


class OffsetReset(Enum):
    """`auto.offset.reset`: where to begin a partition without a record."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Case(Enum):
    """How the offsets of the log lie to those that are recorded. The names are those of the ClickHouse sink."""

    NEW = "New"
    SAME = "Same"
    CONTAINS = "Contains"
    OVERLAPPING = "Overlapping"
    CROP = "Crop"
    LOST_PREFIX = "Lost prefix"
    INVALID = "Invalid"


@dataclass(frozen=True, slots=True)
class New:
    """No state is recorded: `state` is an empty range at the reset position, which counts as committed. The caller
    records it at once, even while there is nothing to read: asked again, "latest" is another offset. `readable_to` is
    the end of what can be read, exclusive.
    """

    cases: ClassVar[tuple[Case, ...]] = (Case.NEW,)
    state: PartitionState
    readable_to: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The partition goes on: first `state.open` is re-formed exactly as recorded, then `[state.planned_end,
    readable_to)` is planned.
    """

    cases: tuple[Case, ...]
    state: PartitionState
    readable_to: int


@dataclass(frozen=True, slots=True)
class LostPrefix:
    """The log begins after the first unread offset: `gap` is lost for good. With `halt` the sink stops, for the reason
    given. Without it the caller aborts the batches named in `abandoned` and has their rollback confirmed, records `gap`
    for the next checkpoint and goes on from `state`: settled up to the end of the gap, under a new generation.
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
    """The log is not the one that was read: the sink halts with the reason."""

    cases: ClassVar[tuple[Case, ...]] = (Case.INVALID,)
    kind: HaltKind
    reason: str


Decision = New | Ready | LostPrefix | Invalid


def classify(recorded: PartitionState | None, proposed: tuple[int, int]) -> tuple[Case, ...]:
    """Returns the cases that apply when offsets `[start, end)` are proposed for a partition. They are compared with the
    open range if there is one, else with the settled range. CROP comes first: the log still has offsets before that
    range. Never returns INVALID, for which ranges are not enough.
    """
    start, end = proposed
    if recorded is None:
        return (Case.NEW,)
    is_before = bool(recorded.open)
    low, high = (recorded.end, recorded.planned_end) if is_before else (recorded.start, recorded.end)
    if start > recorded.end:
        return (Case.LOST_PREFIX,)
    if end > high:
        case = Case.OVERLAPPING
    elif is_before and end == high:
        case = Case.SAME
    else:
        case = Case.CONTAINS
    return (Case.CROP, case) if start < low else (case,)


def reconcile(
    source: TopicPartition,
    recorded: PartitionState | None,
    observed: PartitionLog | None,
    policy: DataLossPolicy,
    reset: OffsetReset,
) -> Decision:
    """Decides how one partition goes on. Classifies all that the log offers. `reset` matters to New only. For a
    partition that was added to a topic already being read pass EARLIEST: its first records are as much part of the
    topic as those of its older partitions.
    """
    if observed is None:
        return Invalid(HaltKind.PARTITIONS_GONE, _missing_reason(source, recorded))
    # They come from two requests: if the start is beyond the end, the end is older, and nothing is lost.
    log_start = min(observed.start, observed.end)
    if recorded is None:
        start = log_start if reset is OffsetReset.EARLIEST else observed.end
        return New(PartitionState(observed.topic_id, start, start, FIRST_GENERATION), observed.end)
    if observed.topic_id != recorded.topic_id:
        return Invalid(HaltKind.TOPIC_RECREATED, _recreated_reason(source, recorded, observed))
    if observed.end < recorded.planned_end:
        return Invalid(HaltKind.LOG_TRUNCATED, _truncated_reason(source, recorded, observed))
    cases = classify(recorded, (log_start, observed.end))
    if Case.LOST_PREFIX in cases:
        return _lost_prefix(source, recorded, log_start, observed.end, policy)
    return Ready(cases, recorded, observed.end)


def _lost_prefix(
    source: TopicPartition, recorded: PartitionState, log_start: int, end: int, policy: DataLossPolicy
) -> LostPrefix:
    gap = Gap(source.topic, source.partition, recorded.end, log_start)
    halt = policy is DataLossPolicy.FAIL
    summary = f"{source}: offsets [{gap.start}, {gap.end}) were deleted from the log before they were read"
    remedy = (
        ". To go on without them, set on.data.loss=skip, which records the gap. To lose no more, raise the topic's"
        " retention."
    )
    resumed = PartitionState(recorded.topic_id, log_start, log_start, recorded.generation + 1)
    return LostPrefix(gap, halt, summary + remedy if halt else summary, recorded.open, resumed, end)


def _missing_reason(source: TopicPartition, recorded: PartitionState | None) -> str:
    if recorded is None:
        return f"{source}: the broker has no such topic or partition. Create it or correct kafka.topic.names."
    planned = (
        f", [{recorded.end}, {recorded.planned_end}) was planned and cannot be read any more" if recorded.open else ""
    )
    return (
        f"{source}: the broker has no such topic or partition any more. The table holds it up to "
        f"offset {recorded.end} of topic id {recorded.topic_id}{planned}. To go on with what there is, "
        f"run `sink reset --to earliest --topic {source.topic}`."
    )


def _recreated_reason(source: TopicPartition, recorded: PartitionState, observed: PartitionLog) -> str:
    return (
        f"{source}: the topic was deleted and created again: recorded up to offset {recorded.planned_end} of "
        f"topic id {recorded.topic_id}, but the broker has topic id {observed.topic_id} with offsets "
        f"[{observed.start}, {observed.end}). To read the new topic run `sink reset`."
    )


def _truncated_reason(source: TopicPartition, recorded: PartitionState, observed: PartitionLog) -> str:
    return (
        f"{source}: the log was truncated: recorded up to offset {recorded.planned_end}, but the log of the "
        f"same topic id {observed.topic_id} ends at {observed.end}. Find out which records the broker lost, "
        "then run `sink reset`."
    )
