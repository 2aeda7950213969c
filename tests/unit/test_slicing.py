"""Ranges and cuts are the same on any coordinator, and every record gets its turn."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.planning.slicing import Limits, cut, is_full, plan_ranges
from coordination.state.model import OpenRange, PartitionState, Slice, TopicPartition

ORDERS = TopicPartition("orders", 0)


def settled(end: int, generation: int = 0) -> PartitionState:
    return PartitionState("id", 0, end, generation)


def planned(start: int, log_end: int, flush_size: int, slice_records: int) -> tuple[int, int]:
    ranges = plan_ranges({ORDERS: settled(start)}, {ORDERS: log_end}, Limits(flush_size, slice_records), 1)
    return ranges[ORDERS].start, ranges[ORDERS].end


def bounds(slices: tuple[Slice, ...]) -> list[tuple[int, int]]:
    return [(one_slice.start, one_slice.end) for one_slice in slices]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 10, [(0, 10)]),
        (0, 11, [(0, 10), (10, 11)]),
        (7, 31, [(7, 10), (10, 20), (20, 30), (30, 31)]),
        (10, 20, [(10, 20)]),
        (13, 14, [(13, 14)]),
    ],
)
def test_a_range_is_cut_at_absolute_multiples_of_its_step(
    start: int, end: int, expected: list[tuple[int, int]]
) -> None:
    assert bounds(cut(ORDERS, "id", OpenRange(start, end, 1, 10, 0, 10))) == expected


def test_a_slice_carries_the_topic_id_and_the_generation_of_its_range() -> None:
    assert cut(ORDERS, "id", OpenRange(3, 5, 9, 10, 4, 10)) == (Slice("orders", 0, 3, 5, "id", 4),)


@given(st.integers(0, 500), st.integers(1, 300), st.integers(1, 70))
def test_the_cuts_cover_the_range_without_hole_or_overlap(start: int, size: int, step: int) -> None:
    cuts = bounds(cut(ORDERS, "id", OpenRange(start, start + size, 1, step, 0, step)))
    assert [offset for low, high in cuts for offset in range(low, high)] == list(range(start, start + size))
    assert all(high % step == 0 for _, high in cuts[:-1])
    assert all(high - low <= step for low, high in cuts)


def test_a_changed_setting_does_not_cut_a_recorded_range_anew() -> None:
    before = plan_ranges({ORDERS: settled(0)}, {ORDERS: 95}, Limits(100, 10), 1)[ORDERS]
    state = PartitionState("id", 0, 0, 0, open=(before,))
    after = plan_ranges({ORDERS: state}, {ORDERS: 195}, Limits(100, 40), 2)[ORDERS]
    assert len(cut(ORDERS, "id", before)) == 10
    assert bounds(cut(ORDERS, "id", after)) == [(95, 120), (120, 160), (160, 195)]


def test_a_range_that_leaves_records_behind_ends_on_the_grid() -> None:
    assert planned(0, 1_000, 35, 10) == (0, 30)
    assert planned(7, 1_000, 35, 10) == (7, 40)


def test_the_tail_is_flushed_unaligned() -> None:
    assert planned(7, 33, 35, 10) == (7, 33)
    assert planned(0, 35, 35, 10) == (0, 35)


def test_a_flush_size_below_the_grid_still_makes_progress() -> None:
    assert planned(2, 1_000, 5, 10) == (2, 7)
    assert planned(7, 1_000, 5, 10) == (7, 10)


def test_a_partition_without_news_is_absent() -> None:
    states = {TopicPartition("orders", number): settled(10) for number in range(3)}
    ends = {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 11}
    assert list(plan_ranges(states, ends, Limits(100, 10), 1)) == [TopicPartition("orders", 1)]


def test_a_new_range_follows_what_is_still_open() -> None:
    state = PartitionState("id", 0, 10, 5, open=(OpenRange(10, 20, 1, 10, 5, 10),))
    assert plan_ranges({ORDERS: state}, {ORDERS: 27}, Limits(100, 10), 2) == {ORDERS: OpenRange(20, 27, 2, 10, 5, 10)}


@pytest.mark.parametrize("limits", [(0, 1, None), (1, 0, None), (1, 1, 0), (-5, 1, None)])
def test_limits_below_one_are_refused(limits: tuple[int, int, int | None]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limits(*limits)


LOGS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.integers(0, 50), st.integers(0, 90)),
)
LIMITS = st.builds(Limits, st.integers(1, 60), st.integers(1, 25), st.none() | st.integers(1, 200))


@given(LOGS, LIMITS, st.integers(1, 99), st.randoms())
def test_the_order_of_the_inputs_does_not_matter(logs, limits: Limits, batch: int, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(logs.items())
    random.shuffle(shuffled)
    ranges, shuffled_ranges = (
        plan_ranges({k: settled(v[0]) for k, v in items}, {k: sum(v) for k, v in items}, limits, batch)
        for items in (list(logs.items()), shuffled)
    )
    assert list(ranges.items()) == list(shuffled_ranges.items())


@given(LOGS, LIMITS, st.integers(1, 99))
def test_ranges_stay_within_the_log_and_the_limits(
    logs: dict[TopicPartition, tuple[int, int]], limits: Limits, batch: int
) -> None:
    states = {source: settled(end) for source, (end, _) in logs.items()}
    ends = {source: end + news for source, (end, news) in logs.items()}
    ranges = plan_ranges(states, ends, limits, batch)
    assert list(ranges) == sorted(ranges)
    for source, fresh in ranges.items():
        assert fresh.start == states[source].planned_end
        assert fresh.end <= min(ends[source], fresh.start + limits.flush_size)
    total = sum(fresh.end - fresh.start for fresh in ranges.values())
    assert total <= (limits.transaction_records or total)
    waiting = {source for source, (_, news) in logs.items() if news}
    assert bool(ranges) == bool(waiting)
    if limits.transaction_records is None:
        assert set(ranges) == waiting


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 8), st.integers(1, 30))
def test_every_partition_is_drained_however_small_a_transaction_is(
    partitions: int, flush_size: int, slice_records: int, budget: int
) -> None:
    ends = {TopicPartition("orders", number): 20 + number for number in range(partitions)}
    states = {source: settled(0) for source in ends}
    for batch in range(1, 1 + sum(ends.values())):
        ranges = plan_ranges(states, ends, Limits(flush_size, slice_records, budget), batch)
        states |= {source: settled(fresh.end) for source, fresh in ranges.items()}
    assert {source: state.end for source, state in states.items()} == ends


def test_partitions_share_a_small_transaction_in_whole_slices() -> None:
    ends = {TopicPartition("orders", number): 1_000 for number in range(4)}
    states = {source: settled(0) for source in ends}
    ranges = plan_ranges(states, ends, Limits(500, 10, 70), 1)
    assert sorted(fresh.end for fresh in ranges.values()) == [10, 20, 20, 20]


def test_a_huge_partition_does_not_starve_small_ones_that_keep_growing() -> None:
    huge, *small = (TopicPartition("orders", number) for number in range(9))
    ends = {huge: 10**9} | dict.fromkeys(small, 0)
    states = {source: settled(0) for source in ends}
    for batch in range(1, 60):
        ends |= {source: ends[source] + 5 for source in small}
        ranges = plan_ranges(states, ends, Limits(1_000, 100, 120), batch)
        states |= {source: settled(fresh.end) for source, fresh in ranges.items()}
    assert states[huge].end > 3_000
    assert all(ends[source] - states[source].end < 100 for source in small)


def test_100_000_partitions_are_planned_and_cut_in_seconds() -> None:
    states = {TopicPartition("orders", number): settled(number) for number in range(100_000)}
    ends = {source: state.end + 20 for source, state in states.items()}
    ends[TopicPartition("orders", 0)] = 50_000_000
    began = time.process_time()
    ranges = plan_ranges(states, ends, Limits(5_000_000, 1_000_000, 2_000_000), 1)
    slices = [one_slice for source, fresh in ranges.items() for one_slice in cut(source, "id", fresh)]
    assert time.process_time() - began < 30
    assert sum(one_slice.size for one_slice in slices) <= 2_000_000


def full(start: int, log_end: int, limits: Limits) -> bool:
    ends = {ORDERS: log_end}
    return is_full(ends, plan_ranges({ORDERS: settled(start)}, ends, limits, 1), limits)


def test_a_batch_is_full_when_a_limit_is_reached_or_records_are_left_behind() -> None:
    assert full(0, 60, Limits(60, 10))
    assert not full(0, 59, Limits(60, 10))
    assert full(0, 60, Limits(1000, 10, 60))
    assert not full(0, 59, Limits(1000, 10, 60))
    # Cut at the grid: 995 of 1000.
    assert full(5, 5000, Limits(1000, 100))
    assert full(5, 5000, Limits(10_000, 100, 1000))
    assert not full(5, 5, Limits(1, 1))
