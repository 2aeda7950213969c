"""Plans ranges and cuts them into slices: pure functions of recorded states, log ends and limits.

Guarantee: the same inputs, in whatever order they come, give the same ranges and the same cuts on any
coordinator. A range is cut at absolute multiples of the step that is recorded in it, so neither a changed
setting nor another coordinator can cut it differently. Void if the states were not reconciled with the log
first (offsets.py): a log end below a planned end plans nothing here, and offsets.py decides what it means.
Raises ValueError for limits below one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from coordination.state.model import NO_ANCHOR, OpenRange, PartitionState, Slice, TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """The size of one transaction, in offsets. `flush_size` bounds each partition, `slice_records` is the grid at which
    ranges are cut, or more finely, and `transaction_records`, if given, bounds all partitions of the transaction
    together.
    """

    flush_size: int
    slice_records: int
    transaction_records: int | None = None

    def __post_init__(self) -> None:
        budget = 1 if self.transaction_records is None else self.transaction_records
        if min(self.flush_size, self.slice_records, budget) < 1:
            raise ValueError(f"limits must be at least 1: {self}")


LOOK_BACK = 4
"""Where the last record before a slice is not known yet, its reader looks for it in so many offsets. One is too few: a
producer's transaction ends with a marker."""


def cut(source: TopicPartition, topic_id: str, open_range: OpenRange, anchor: int = NO_ANCHOR) -> tuple[Slice, ...]:
    """Cuts a recorded range into slices: at every multiple of its step, from offset 0 of the partition. `anchor` is
    that of the first one; the readers of the others look back within the range.
    """
    return tuple(
        Slice(
            source.topic,
            source.partition,
            start,
            end,
            topic_id,
            open_range.generation,
            anchor if start == open_range.start else max(open_range.start, start - LOOK_BACK),
        )
        for start, end in pairwise(_bounds(open_range))
    )


def sizes(open_range: OpenRange) -> list[int]:
    """Returns the offsets of each slice of the range, in order."""
    return [end - start for start, end in pairwise(_bounds(open_range))]


def _bounds(open_range: OpenRange) -> list[int]:
    step = open_range.step
    grid = range((open_range.start // step + 1) * step, open_range.end, step)
    return [open_range.start, *grid, open_range.end]


def plan_ranges(
    states: Mapping[TopicPartition, PartitionState],
    ends: Mapping[TopicPartition, int],
    limits: Limits,
    batch: int,
) -> Mapping[TopicPartition, OpenRange]:
    """Plans the next range of every partition that has something new, in order of topic and partition.

    A range that leaves records behind ends on the slicing grid where that still makes progress; one that takes all
    there is ends at the log end. Where `transaction_records` binds, partitions are served a slice at a time in an order
    drawn from the batch number: few tiny files, and no partition starves. Each slice is a write task, until
    `write_tasks.with_task_limit` groups them.
    """
    waiting = {
        source: ends[source] - state.planned_end
        for source, state in sorted(states.items(), key=lambda item: (item[0].topic, item[0].partition))
        if ends.get(source, 0) > state.planned_end
    }
    granted = {source: min(size, limits.flush_size) for source, size in waiting.items()}
    if limits.transaction_records is not None and sum(granted.values()) > limits.transaction_records:
        granted = _share(granted, limits.transaction_records, limits.slice_records, batch)
    ranges = {}
    for source, size in granted.items():
        state = states[source]
        start = state.planned_end
        end = start + size
        if size < waiting[source]:
            aligned = end - end % limits.slice_records
            end = aligned if aligned > start else end
        ranges[source] = OpenRange(start, end, batch, limits.slice_records, state.generation, limits.slice_records)
    return ranges


def is_full(ends: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, OpenRange], limits: Limits) -> bool:
    """Whether the next ranges are as large as the limits let them be: then the coordinator need not wait. On the
    slicing grid a range may end short of a limit: it counts as full if it leaves records behind. Where a partition gets
    nothing of a budget, other partitions have used it up.
    """
    sizes = [planned.end - planned.start for planned in ranges.values()]
    budget = limits.transaction_records
    is_limit_reached = max(sizes, default=0) >= limits.flush_size or (budget is not None and sum(sizes) >= budget)
    return is_limit_reached or any(planned.end < ends[source] for source, planned in ranges.items())


def _share(requested: Mapping[TopicPartition, int], budget: int, portion: int, batch: int) -> dict[TopicPartition, int]:
    """Hands out `budget` in portions, round by round, in the order of `requested`; without a portion it is absent."""
    granted: dict[TopicPartition, int] = {}
    queue = sorted(requested, key=lambda source: _rank(source, batch))
    while queue and budget > 0:
        unsated = []
        for source in queue:
            if budget == 0:
                break
            granted_before = granted.get(source, 0)
            share = min(portion, requested[source] - granted_before, budget)
            granted[source] = granted_before + share
            budget -= share
            if granted[source] < requested[source]:
                unsated.append(source)
        queue = unsated
    return {source: granted[source] for source in requested if source in granted}


def _rank(source: TopicPartition, batch: int) -> bytes:
    return blake2b(f"{batch}/{source.topic}/{source.partition}".encode(), digest_size=16).digest()
