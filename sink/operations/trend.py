"""Follows one sink from look to look: the age of its oldest waiting record, the rates, and the time to catch up.

Guarantee: memory and the work of a look grow with the partitions, not with time. `waiting` is at most one look too
short, except for records that came before the first look or in a longer pause. How long those have waited lies between
`waiting`, for which they are known to wait, and `waiting_at_most`. Not thread-safe. Pure except for its memory of
earlier looks; raises nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordination.state.model import LogView, PartitionState, TopicPartition

SAMPLES = 180
SAMPLE_SECONDS = 5.0
RATE_SAMPLES = 11
RATE_SECONDS = 30.0
MARKERS = 16
"""The most ends that are remembered for a partition; more are thinned out."""


class _Marker(NamedTuple):
    """An end beyond what was committed. Its records are known to wait since `since`, and came after `earliest`."""

    since: float
    earliest: float
    end: int


@dataclass(slots=True)
class _Partition:
    """`markers` are oldest first."""

    markers: list[_Marker] = field(default_factory=list)
    points: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=RATE_SAMPLES))
    """Occasional samples of `(time, committed, end)`."""


@dataclass(frozen=True, slots=True)
class PartitionTrend:
    """`waiting` is the time for which the oldest record that has not landed is known to wait, `waiting_at_most` its
    highest possible age. `catch_up` is None while rates are unknown, or records arrive faster than they land."""

    waiting: float
    waiting_at_most: float
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
        """`normal`: the most seconds that a record waits in a healthy sink."""
        self._normal = normal
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._observed_at = -math.inf
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.partitions: Mapping[TopicPartition, PartitionTrend] = {}

    @property
    def waiting(self) -> float:
        """The seconds for which the oldest record that has not landed is known to wait; 0 without one."""
        return max((trend.waiting for trend in self.partitions.values()), default=0.0)

    @property
    def waiting_at_most(self) -> float:
        """The highest possible age of the oldest record that has not landed, in seconds; 0 without one."""
        return max((trend.waiting_at_most for trend in self.partitions.values()), default=0.0)

    @property
    def catch_up(self) -> float | None:
        """Seconds until the slowest partition has caught up; None if one does not, or rates are unknown."""
        longest = 0.0
        for trend in self.partitions.values():
            if trend.waiting and trend.catch_up is None:
                return None
            longest = max(longest, trend.catch_up or 0.0)
        return longest

    def observe(
        self,
        states: Mapping[TopicPartition, PartitionState],
        log: LogView | None,
        last_commit: float | None,
        wall: float,
        planned_since: float | None = None,
    ) -> None:
        """Adds a reading of the tree and a view of the log, if there is one. `planned_since`: the time since when
        records have been planned that no commit has landed, if there are any.
        """
        if log is None:
            self._sample(Sample(wall, None, None, _age(last_commit, wall)))
            return
        # Records that no look has seen came after the last look, and after the last commit, as far as is known.
        bound = max(self._observed_at, -math.inf if last_commit is None else last_commit)
        since = wall if planned_since is None else min(wall, max(bound, planned_since))
        earliest = since if math.isinf(bound) else min(wall, bound)
        self._observed_at = wall
        trends: dict[TopicPartition, PartitionTrend] = {}
        lag = 0
        for topic_partition, log_range in log.partitions.items():
            state = states.get(topic_partition)
            committed = min(log_range.start, log_range.end) if state is None else state.end
            lag += max(0, log_range.end - committed)
            partition = self._partitions.setdefault(topic_partition, _Partition())
            marker = _Marker(since, earliest, log_range.end)
            trends[topic_partition] = _observe(partition, committed, marker, wall, self._normal)
        for removed in self._partitions.keys() - log.partitions.keys():
            del self._partitions[removed]
        self.partitions = trends
        self._sample(Sample(wall, lag, self.waiting, _age(last_commit, wall)))

    def _sample(self, sample: Sample) -> None:
        if not self.samples or sample.at - self.samples[-1].at >= SAMPLE_SECONDS * 0.8:
            self.samples.append(sample)


def _age(moment: float | None, wall: float) -> float | None:
    return None if moment is None else max(0.0, wall - moment)


def _observe(partition: _Partition, committed: int, newest: _Marker, wall: float, normal: float) -> PartitionTrend:
    markers, end = partition.markers, newest.end
    while markers and markers[0].end <= committed:
        del markers[0]
    if end > committed and (not markers or end > markers[-1].end):
        markers.append(newest)
        if len(markers) > MARKERS:
            # Keep the oldest, which is the answer, and the newest, which later ends are compared with.
            markers[1:-1] = markers[2:-1:2]
    points = partition.points
    if points and committed < points[-1][1]:
        points.clear()  # a reset moved the partition back
    if not points or wall - points[-1][0] >= RATE_SECONDS:
        points.append((wall, committed, end))
    oldest = markers[0] if markers else _Marker(wall, wall, end)
    waiting, waiting_at_most = max(0.0, wall - oldest.since), max(0.0, wall - oldest.earliest)
    first_at, first_committed, first_end = points[0]
    seconds = wall - first_at
    if seconds < RATE_SECONDS:
        return PartitionTrend(waiting, waiting_at_most)
    landed, arrived = (committed - first_committed) / seconds, max(0, end - first_end) / seconds
    catch_up, grows = _catch_up(end - committed, waiting <= normal, landed, arrived)
    return PartitionTrend(waiting, waiting_at_most, landed, arrived, catch_up, grows)


def _catch_up(lag: int, keeps_up: bool, landed: float, arrived: float) -> tuple[float | None, bool]:
    """Returns the seconds until no record waits, and whether the backlog grows instead."""
    if lag <= 0:
        return 0.0, False
    if keeps_up and landed > 0:
        return lag / landed, False
    gain = landed - arrived
    return (lag / gain, False) if gain > 0 else (None, arrived > landed)
