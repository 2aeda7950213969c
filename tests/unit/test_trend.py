"""The trend tells for how long the oldest record has waited, and when a partition catches up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import KeeperView, Ledger, Summary
from sink.telemetry.backlog import LOOKS, SAMPLES, Trend

SOURCE = TopicPartition("orders", 0)


class ScriptedPartition:
    """A partition whose records come and land as the test says."""

    def __init__(self, normal: float = 30.0) -> None:
        self.trend = Trend(normal)
        self.wall = 1_000_000.0
        self.end = self.committed = 0
        self.last_commit: float | None = None
        self.planned_since: float | None = None

    def look(self, after: float = 5.0, produced: int = 0, landed: int = 0) -> Trend:
        self.wall += after
        self.end += produced
        self.committed += landed
        if landed:
            self.last_commit = self.wall
        log = LogView("c", {SOURCE: PartitionLog("id", 0, self.end)})
        states = {SOURCE: PartitionState("id", 0, self.committed, 1)}
        self.trend.observe(self.view(states), log, self.wall)
        return self.trend

    def view(self, states: Mapping[TopicPartition, PartitionState]) -> KeeperView:
        """A tree whose newest commit was planned and committed at `last_commit`, and what was planned after it was
        aborted."""
        commit = () if self.last_commit is None else (summary("COMMITTED", self.last_commit),)
        aborted = () if self.planned_since is None else (summary("ABORTED", self.planned_since),)
        ledger = Ledger(7, 7, history=(*commit, *aborted))
        return replace(TreeReader().read({}), states=states, ledger=ledger)


def summary(outcome: str, at: float) -> Summary:
    return Summary(7, 7, outcome, None, 0, "", {"PLANNED": at, outcome: at})


def test_without_lag_nothing_waits() -> None:
    partition = ScriptedPartition()
    partition.look(produced=10, landed=10)
    assert (partition.look().age.known, partition.trend.catch_up) == (0.0, 0.0)


def test_a_record_waits_from_when_its_end_was_seen() -> None:
    partition = ScriptedPartition()
    partition.look()
    partition.look(produced=10)
    assert partition.look(after=7).age.known == 7
    assert partition.look(after=7, produced=10).age.known == 14


def test_what_came_later_waits_less_long_once_the_older_has_landed() -> None:
    partition = ScriptedPartition()
    partition.look()
    partition.look(produced=10)
    partition.look(after=20, produced=10)
    assert partition.look(after=5, landed=10).age.known == 5
    assert partition.look(after=5, landed=10).age.known == 0


def test_what_waited_before_the_first_look_may_have_come_at_any_time_since_the_last_commit() -> None:
    partition = ScriptedPartition()
    partition.end, partition.last_commit = 10, partition.wall - 300
    trend = partition.look(after=0)
    assert trend.age == (0, 300)
    trend = partition.look(after=20)
    assert trend.age == (20, 320)


def test_what_a_transaction_has_planned_before_the_first_look_waits_since_then() -> None:
    partition = ScriptedPartition()
    partition.end, partition.last_commit, partition.planned_since = 10, partition.wall - 300, partition.wall - 200
    trend = partition.look(after=0)
    assert trend.age == (200, 300)


def test_what_is_planned_and_never_was_committed_waits_since_it_was_planned() -> None:
    partition = ScriptedPartition()
    partition.end, partition.planned_since = 10, partition.wall - 200
    trend = partition.look(after=0)
    assert trend.age == (200, 200)


def test_what_comes_while_nobody_looks_may_have_come_at_any_time_since_the_look_before() -> None:
    partition = ScriptedPartition()
    partition.look(produced=5, landed=5)
    trend = partition.look(after=900, produced=5)
    assert trend.age == (0, 900)


def test_what_waits_is_not_forgotten_while_nobody_looks() -> None:
    partition = ScriptedPartition()
    partition.look()
    partition.look(produced=5)
    assert partition.look(after=900, produced=5).age.known == 900


def test_no_partition_takes_more_memory_with_time() -> None:
    partition = ScriptedPartition()
    partition.look()
    looks = 2 * max(SAMPLES, LOOKS)
    for _ in range(looks):
        partition.look(after=10, produced=1)
    assert len(partition.trend._backlog._looks) <= LOOKS
    assert partition.trend.age.known == 10 * (looks - 1)
    assert len(partition.trend.samples) == SAMPLES


def test_a_backlog_is_caught_up_with_by_what_lands_beyond_what_comes() -> None:
    partition = ScriptedPartition()
    partition.look(produced=100_000)
    for _ in range(12):
        partition.look(after=5, produced=500, landed=1000)
    trend = partition.trend.partitions[SOURCE]
    assert trend.landed_per_second == pytest.approx(200)
    assert trend.arrived_per_second == pytest.approx(100)
    assert trend.catch_up == pytest.approx((partition.end - partition.committed) / 100)


def test_a_backlog_that_grows_is_said_to() -> None:
    partition = ScriptedPartition()
    partition.look(produced=100_000)
    for _ in range(12):
        partition.look(after=5, produced=1500, landed=1000)
    trend = partition.trend.partitions[SOURCE]
    assert (trend.catch_up, trend.grows) == (None, True)
    assert partition.trend.catch_up is None


def test_a_sink_that_keeps_up_lands_what_waits_in_the_time_that_as_much_takes() -> None:
    partition = ScriptedPartition()
    for _ in range(12):
        partition.look(after=5, produced=500, landed=500)
    partition.look(after=5, produced=500)
    trend = partition.trend.partitions[SOURCE]
    assert trend.catch_up == pytest.approx(500 / trend.landed_per_second)
    assert not trend.grows


def test_a_reset_to_earlier_offsets_is_no_rate() -> None:
    partition = ScriptedPartition()
    partition.look(produced=1000, landed=1000)
    partition.look(after=40)
    partition.committed = 0
    partition.look(after=5)
    trend = partition.trend.partitions[SOURCE]
    assert trend.landed_per_second is None
    assert trend.age.known == 0
    assert partition.look(after=10).age.known == 10


def test_without_kafka_the_chart_has_a_gap() -> None:
    partition = ScriptedPartition()
    partition.look(produced=5)
    partition.trend.observe(partition.view({}), None, partition.wall + 10)
    assert [sample.lag for sample in partition.trend.samples] == [5, None]
