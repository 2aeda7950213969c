"""Every case of a recorded state and a log by name, and random histories of a log, its plans and its commits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.planning.offsets import (
    FIRST_GENERATION,
    Case,
    DataLossPolicy,
    Decision,
    Invalid,
    LostPrefix,
    New,
    OffsetReset,
    Ready,
    classify,
    reconcile,
)
from coordination.planning.slicing import Limits, cut, plan_ranges
from coordination.state.model import Gap, OpenRange, PartitionLog, PartitionState, Slice, TopicPartition

ORDERS = TopicPartition("orders", 3)
BATCH_7 = OpenRange(start=100, end=200, batch=7, step=50, generation=2, task_records=50)
BATCH_8 = OpenRange(start=200, end=260, batch=8, step=50, generation=2, task_records=50)
BEFORE = PartitionState("id-a", start=40, end=100, generation=2, open=(BATCH_7,))
IN_FLIGHT = replace(BEFORE, open=(BATCH_7, BATCH_8))
AFTER = PartitionState("id-a", start=100, end=200, generation=2)


def decide(
    recorded: PartitionState | None,
    start: int,
    end: int,
    topic_id: str = "id-a",
    policy: DataLossPolicy = DataLossPolicy.FAIL,
    reset: OffsetReset = OffsetReset.EARLIEST,
) -> Decision:
    return reconcile(ORDERS, recorded, PartitionLog(topic_id, start, end), policy, reset)


def test_new_starts_at_the_log_start_when_the_reset_is_earliest() -> None:
    state = PartitionState("id-a", 30, 30, FIRST_GENERATION)
    assert decide(None, 30, 90) == New(state, 90)


def test_new_starts_at_the_log_end_when_the_reset_is_latest() -> None:
    state = PartitionState("id-a", 90, 90, FIRST_GENERATION)
    assert decide(None, 30, 90, reset=OffsetReset.LATEST) == New(state, 90)


def test_the_reset_position_never_moves_a_recorded_partition() -> None:
    assert decide(AFTER, 0, 500, reset=OffsetReset.LATEST) == decide(AFTER, 0, 500)


def test_same_before_re_forms_the_recorded_range() -> None:
    assert decide(BEFORE, 100, 200) == Ready((Case.SAME,), BEFORE, 200)


@pytest.mark.parametrize("end", [101, 150, 199])
def test_contains_before_re_forms_the_range_as_recorded_and_never_the_smaller_one(end: int) -> None:
    assert classify(BEFORE, (100, end)) == (Case.CONTAINS,)


@pytest.mark.parametrize("end", [100, 150, 199])
def test_contains_before_is_invalid_once_the_log_no_longer_reaches_the_recorded_end(end: int) -> None:
    decision = decide(BEFORE, 0, end)
    assert isinstance(decision, Invalid)
    assert all(word in decision.reason for word in ("orders-3", "200", str(end), "id-a", "sink reset"))


@pytest.mark.parametrize("proposed", [(100, 200), (120, 200), (200, 200), (130, 170)])
def test_contains_after_has_nothing_new(proposed: tuple[int, int]) -> None:
    assert classify(AFTER, proposed) == (Case.CONTAINS,)


def test_contains_after_leaves_nothing_to_plan() -> None:
    decision = decide(AFTER, 150, 200)
    assert decision == Ready((Case.CONTAINS,), AFTER, 200)
    assert decision.state.planned_end == decision.readable_to


def test_overlapping_before_re_forms_the_recorded_range_and_then_plans_what_follows_it() -> None:
    decision = decide(BEFORE, 100, 340)
    assert decision == Ready((Case.OVERLAPPING,), BEFORE, 340)
    assert decision.state.open == (BATCH_7,)
    assert decision.state.planned_end == 200


def test_overlapping_before_re_forms_every_range_in_flight_in_order() -> None:
    decision = decide(IN_FLIGHT, 100, 300)
    assert decision == Ready((Case.OVERLAPPING,), IN_FLIGHT, 300)
    assert decision.state.planned_end == 260


@pytest.mark.parametrize("start", [100, 150, 200])
def test_overlapping_after_plans_only_what_follows_the_settled_range(start: int) -> None:
    decision = decide(AFTER, start, 340)
    assert decision == Ready((Case.OVERLAPPING,), AFTER, 340)
    assert decision.state.planned_end == 200


@pytest.mark.parametrize(
    ("recorded", "end", "case"),
    [
        (BEFORE, 200, Case.SAME),
        (BEFORE, 201, Case.OVERLAPPING),
        (AFTER, 200, Case.CONTAINS),
        (AFTER, 201, Case.OVERLAPPING),
    ],
)
def test_crop_drops_the_prefix_that_the_table_already_holds(recorded: PartitionState, end: int, case: Case) -> None:
    assert decide(recorded, 99, end) == Ready((Case.CROP, case), recorded, end)


@pytest.mark.parametrize("policy", DataLossPolicy)
def test_lost_prefix_names_what_was_lost(policy: DataLossPolicy) -> None:
    decision = decide(AFTER, 230, 400, policy=policy)
    assert isinstance(decision, LostPrefix)
    assert decision.gap == Gap("orders", 3, 200, 230)
    assert decision.halt is (policy is DataLossPolicy.FAIL)
    assert "orders-3: offsets [200, 230)" in decision.reason
    assert ("on.data.loss=skip" in decision.reason) is decision.halt


def test_lost_prefix_of_a_settled_partition_goes_on_from_the_log_start_under_a_new_generation() -> None:
    decision = decide(AFTER, 230, 400, policy=DataLossPolicy.SKIP)
    assert isinstance(decision, LostPrefix)
    assert decision.state == PartitionState("id-a", 230, 230, 3)
    assert (decision.abandoned, decision.readable_to) == ((), 400)


@pytest.mark.parametrize("log_start", [101, 200, 259, 260, 300])
def test_lost_prefix_of_an_open_range_abandons_whatever_is_in_flight(log_start: int) -> None:
    decision = decide(IN_FLIGHT, log_start, 300, policy=DataLossPolicy.SKIP)
    assert isinstance(decision, LostPrefix)
    assert decision.gap == Gap("orders", 3, 100, log_start)
    assert decision.abandoned == (BATCH_7, BATCH_8)
    assert decision.state == PartitionState("id-a", log_start, log_start, 3)


def test_no_prefix_is_lost_while_the_first_unread_offset_is_still_there() -> None:
    assert decide(BEFORE, 100, 300) == Ready((Case.OVERLAPPING,), BEFORE, 300)
    assert decide(AFTER, 200, 200) == Ready((Case.CONTAINS,), AFTER, 200)


def test_a_log_start_seen_later_than_the_end_never_skips_past_what_exists() -> None:
    decision = decide(AFTER, 900, 400, policy=DataLossPolicy.SKIP)
    assert isinstance(decision, LostPrefix)
    assert (decision.gap.end, decision.state.end, decision.readable_to) == (400, 400, 400)
    assert decide(AFTER, 900, 200) == Ready((Case.CONTAINS,), AFTER, 200)
    assert decide(None, 900, 400) == New(PartitionState("id-a", 400, 400, FIRST_GENERATION), 400)


@pytest.mark.parametrize("recorded", [AFTER, BEFORE, IN_FLIGHT])
def test_invalid_when_the_topic_was_recreated_names_both_ids(recorded: PartitionState) -> None:
    decision = decide(recorded, 0, 10_000, topic_id="id-b", policy=DataLossPolicy.SKIP)
    assert isinstance(decision, Invalid)
    assert all(word in decision.reason for word in ("orders-3", "id-a", "id-b", str(recorded.planned_end)))


@pytest.mark.parametrize("recorded", [AFTER, BEFORE, IN_FLIGHT])
@pytest.mark.parametrize("policy", DataLossPolicy)
def test_invalid_when_the_log_was_truncated_whatever_the_policy(
    recorded: PartitionState, policy: DataLossPolicy
) -> None:
    end = recorded.planned_end - 1
    for start in (0, end):
        decision = decide(recorded, start, end, policy=policy)
        assert isinstance(decision, Invalid)
        assert f"ends at {end}" in decision.reason


@pytest.mark.parametrize("recorded", [None, AFTER, BEFORE])
def test_invalid_when_the_topic_or_partition_is_gone(recorded: PartitionState | None) -> None:
    decision = reconcile(ORDERS, recorded, None, DataLossPolicy.SKIP, OffsetReset.EARLIEST)
    assert isinstance(decision, Invalid)
    assert "orders-3" in decision.reason


def test_every_row_of_the_table_has_a_decision_that_names_it() -> None:
    rows = {
        case
        for decision in (
            decide(None, 0, 1),
            decide(BEFORE, 0, 200),
            decide(BEFORE, 0, 300),
            decide(AFTER, 100, 200),
            decide(AFTER, 201, 300),
            decide(AFTER, 0, 0),
        )
        for case in decision.cases
    }
    assert rows == set(Case)


class History:
    """One partition, its log and its table. It keeps its books offset by offset, unlike the code."""

    def __init__(self) -> None:
        self.log_start = self.log_end = 0
        self.state: PartitionState | None = None
        self.committed: list[int] = []
        self.skipped: list[int] = []
        self.recorded: dict[int, OpenRange] = {}
        self.attempted: dict[int, tuple[Slice, ...]] = {}
        self.number = 0
        self.halted = False

    def apply(self, action: str, amount: int) -> None:
        if not self.halted:
            getattr(self, action)(amount)

    def produce(self, amount: int) -> None:
        self.log_end += amount

    def expire(self, amount: int) -> None:
        self.log_start = min(self.log_start + amount, self.log_end)

    def truncate(self, amount: int) -> None:
        self.log_end = max(self.log_end - amount, self.log_start)

    def plan(self, amount: int) -> None:
        observed = PartitionLog("id", self.log_start, self.log_end)
        decision = reconcile(ORDERS, self.state, observed, DataLossPolicy.SKIP, OffsetReset.EARLIEST)
        if isinstance(decision, Invalid):
            assert self.state is not None
            assert self.log_end < self.state.planned_end
            self.halted = True
            return
        if isinstance(decision, New):
            self.skipped += range(decision.state.end)
        elif isinstance(decision, LostPrefix):
            self.skipped += range(decision.gap.start, decision.gap.end)
            for abandoned in decision.abandoned:
                del self.recorded[abandoned.batch]
        self.state = decision.state
        self.number += 1
        limits = Limits(flush_size=amount, slice_records=5)
        ranges = plan_ranges({ORDERS: self.state}, {ORDERS: decision.readable_to}, limits, self.number)
        if fresh := ranges.get(ORDERS):
            assert self.log_start <= fresh.start < fresh.end <= self.log_end
            self.recorded[fresh.batch] = fresh
            self.state = replace(self.state, open=(*self.state.open, fresh))

    def write(self) -> tuple[Slice, ...]:
        """Returns the slices of an attempt at the oldest open range: none without one, or if the log has lost it."""
        if self.state is None or not self.state.open:
            return ()
        first = self.state.open[0]
        assert first == self.recorded[first.batch], "an open range was reshaped"
        if first.start < self.log_start or first.end > self.log_end:
            return ()
        slices = cut(ORDERS, "id", first)
        assert self.attempted.setdefault(first.batch, slices) == slices, "a retry was cut differently"
        return slices

    def abort(self, _amount: int) -> None:
        self.write()

    def commit(self, _amount: int) -> None:
        slices = self.write()
        if slices and self.state:
            self.committed += (offset for one_slice in slices for offset in range(one_slice.start, one_slice.end))
            first, *later_ranges = self.state.open
            self.state = replace(self.state, start=first.start, end=first.end, open=tuple(later_ranges))


ACTIONS = st.tuples(
    st.sampled_from(["produce", "produce", "plan", "plan", "commit", "commit", "abort", "expire", "truncate"]),
    st.integers(1, 12),
)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.lists(ACTIONS, max_size=60))
def test_no_offset_is_planned_twice_nor_skipped_without_a_declared_gap(
    actions: list[tuple[str, int]],
) -> None:
    history = History()
    for action, amount in actions:
        history.apply(action, amount)
    settled = history.state.end if history.state else 0
    assert sorted(history.committed + history.skipped) == list(range(settled))
