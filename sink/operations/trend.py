"""Follows one sink from look to look: the age of its oldest waiting record, the rates, and the time to catch up.

Guarantee: memory and the work of a look grow with the partitions, not with time. Ages are those of
`sink.telemetry.backlog`. Not thread-safe. Pure except for its memory of earlier looks; raises nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from coordination.state.model import LogView, TopicPartition
from coordination.state.tree import KeeperView
from sink.telemetry.backlog import NONE_WAITS, Age, Backlog, committed_offset, lag, last_commit

SAMPLES = 180
SAMPLE_SECONDS = 5.0
RATE_SAMPLES = 11
RATE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PartitionTrend:
    """`age` is that of the oldest record that has not landed. `catch_up` is None while rates are unknown, or records
    arrive faster than they land."""

    age: Age
    landed_per_second: float | None = None
    arrived_per_second: float | None = None
    catch_up: float | None = None
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    """Wall clock."""
    lag: int | None
    waiting: float | None
    commit_age: float | None


class Trend:
    def __init__(self, normal: float) -> None:
        """`normal`: the most seconds that a record waits where nothing is wrong."""
        self._normal = normal
        self._backlog = Backlog()
        self._points: dict[TopicPartition, deque[tuple[float, int, int]]] = {}
        """Occasional samples of `(time, committed, end)`."""
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.partitions: Mapping[TopicPartition, PartitionTrend] = {}
        self.age = NONE_WAITS
        """The age of the oldest record that has not landed."""

    @property
    def catch_up(self) -> float | None:
        """Seconds until the slowest partition has caught up; None if one does not, or rates are unknown."""
        longest = 0.0
        for trend in self.partitions.values():
            if trend.age.known and trend.catch_up is None:
                return None
            longest = max(longest, trend.catch_up or 0.0)
        return longest

    def observe(self, view: KeeperView, log: LogView | None, wall: float) -> None:
        """Adds a reading of the tree and a view of the log, if there is one."""
        commit = last_commit(view)
        commit_age = None if commit is None else max(0.0, wall - commit)
        if log is None:
            self._sample(Sample(wall, None, None, commit_age))
            return
        lags = {partition: lag(view.states.get(partition), ends) for partition, ends in log.partitions.items()}
        self._backlog.look(view, {partition: log.partitions[partition] for partition in lags if lags[partition]}, wall)
        self.age = self._backlog.oldest(view.states, wall)
        trends: dict[TopicPartition, PartitionTrend] = {}
        for partition, log_range in log.partitions.items():
            state = view.states.get(partition)
            age = self._backlog.age(partition, state, wall) if lags[partition] else NONE_WAITS
            points = self._points.setdefault(partition, deque(maxlen=RATE_SAMPLES))
            committed = committed_offset(state, log_range)
            trends[partition] = _observe(points, committed, log_range.end, age, wall, self._normal)
        for removed in self._points.keys() - log.partitions.keys():
            del self._points[removed]
        self.partitions = trends
        self._sample(Sample(wall, sum(lags.values()), self.age.known, commit_age))

    def _sample(self, sample: Sample) -> None:
        if not self.samples or sample.at - self.samples[-1].at >= SAMPLE_SECONDS * 0.8:
            self.samples.append(sample)


def _observe(
    points: deque[tuple[float, int, int]], committed: int, end: int, age: Age, wall: float, normal: float
) -> PartitionTrend:
    if points and committed < points[-1][1]:
        points.clear()  # a reset moved the partition back
    if not points or wall - points[-1][0] >= RATE_SECONDS:
        points.append((wall, committed, end))
    first_at, first_committed, first_end = points[0]
    seconds = wall - first_at
    if seconds < RATE_SECONDS:
        return PartitionTrend(age)
    landed, arrived = (committed - first_committed) / seconds, max(0, end - first_end) / seconds
    catch_up, grows = _catch_up(end - committed, age.known <= normal, landed, arrived)
    return PartitionTrend(age, landed, arrived, catch_up, grows)


def _catch_up(lag: int, keeps_up: bool, landed: float, arrived: float) -> tuple[float | None, bool]:
    """Returns the seconds until no record waits, and whether the backlog grows instead."""
    if lag <= 0:
        return 0.0, False
    if keeps_up and landed > 0:
        return lag / landed, False
    gain = landed - arrived
    return (lag / gain, False) if gain > 0 else (None, arrived > landed)
