"""From look to look: for how long the oldest record has waited, and when a partition catches up."""

from __future__ import annotations

import pytest

from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from sink.operations.trend import MARKERS, SAMPLES, Trend

SOURCE = TopicPartition("orders", 0)


class Life:
    """A partition whose records come and land as the test says."""

    def __init__(self, normal: float = 30.0) -> None:
        self.trend = Trend(normal)
        self.wall = 1_000_000.0
        self.end = self.committed = 0
        self.last_commit: float | None = None

    def look(self, after: float = 5.0, produced: int = 0, landed: int = 0) -> Trend:
        self.wall += after
        self.end += produced
        self.committed += landed
        if landed:
            self.last_commit = self.wall
        log = LogView("c", {SOURCE: PartitionLog("id", 0, self.end)})
        self.trend.look({SOURCE: PartitionState("id", 0, self.committed, 1)}, log, self.last_commit, self.wall)
        return self.trend


def test_without_lag_nothing_waits() -> None:
    life = Life()
    life.look(produced=10, landed=10)
    assert (life.look().waiting, life.trend.catch_up) == (0.0, 0.0)


def test_a_record_waits_from_when_its_end_was_seen() -> None:
    life = Life()
    life.look()
    life.look(produced=10)
    assert life.look(after=7).waiting == 7
    assert life.look(after=7, produced=10).waiting == 14


def test_what_came_later_waits_less_long_once_the_older_has_landed() -> None:
    life = Life()
    life.look()
    life.look(produced=10)
    life.look(after=20, produced=10)
    assert life.look(after=5, landed=10).waiting == 5
    assert life.look(after=5, landed=10).waiting == 0


def test_what_waited_before_the_first_look_counts_from_the_last_commit() -> None:
    life = Life()
    life.end, life.last_commit = 10, life.wall - 300
    assert life.look(after=0).waiting == 300


def test_after_a_long_time_without_a_look_it_begins_anew() -> None:
    life = Life()
    life.look(produced=5, landed=5)
    assert life.look(after=900, produced=5).waiting == 900


def test_no_partition_takes_more_memory_with_time() -> None:
    life = Life()
    life.look()
    looks = 2 * max(SAMPLES, MARKERS)
    for _ in range(looks):
        life.look(after=10, produced=1)
    assert len(life.trend._partitions[SOURCE].markers) <= MARKERS
    assert life.trend.waiting == 10 * (looks - 1)
    assert len(life.trend.samples) == SAMPLES


def test_a_backlog_is_caught_up_with_by_what_lands_beyond_what_comes() -> None:
    life = Life()
    life.look(produced=100_000)
    for _ in range(12):
        life.look(after=5, produced=500, landed=1000)
    trend = life.trend.partitions[SOURCE]
    assert trend.landed_per_second == pytest.approx(200)
    assert trend.arrived_per_second == pytest.approx(100)
    assert trend.catch_up == pytest.approx((life.end - life.committed) / 100)


def test_a_backlog_that_grows_is_said_to() -> None:
    life = Life()
    life.look(produced=100_000)
    for _ in range(12):
        life.look(after=5, produced=1500, landed=1000)
    trend = life.trend.partitions[SOURCE]
    assert (trend.catch_up, trend.grows) == (None, True)
    assert life.trend.catch_up is None


def test_a_sink_that_keeps_up_lands_what_waits_in_the_time_that_as_much_takes() -> None:
    life = Life()
    for _ in range(12):
        life.look(after=5, produced=500, landed=500)
    life.look(after=5, produced=500)
    trend = life.trend.partitions[SOURCE]
    assert trend.catch_up == pytest.approx(500 / trend.landed_per_second)
    assert not trend.grows


def test_a_reset_to_earlier_offsets_is_no_rate() -> None:
    life = Life()
    life.look(produced=1000, landed=1000)
    life.look(after=40)
    life.committed = 0
    life.look(after=5)
    trend = life.trend.partitions[SOURCE]
    assert trend.landed_per_second is None
    assert trend.waiting == 0
    assert life.look(after=10).waiting == 10


def test_without_kafka_the_chart_has_a_gap() -> None:
    life = Life()
    life.look(produced=5)
    life.trend.look({}, None, None, life.wall + 10)
    assert [sample.lag for sample in life.trend.samples] == [5, None]
