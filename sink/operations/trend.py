"""Follows one sink from look to look: the age of its oldest waiting record, the rates, and the time to catch up.

Guarantee: memory and the work of a look grow with the partitions, not with time. `waiting` is at most one look too
short, except for records from before the first look: those count from the last commit, because they came after it. Not
thread-safe. Pure except for its memory of earlier looks; raises nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordination.state.model import LogView, PartitionState, TopicPartition

SAMPLES = 180
SAMPLE_SECONDS = 5.0
RATE_SAMPLES = 11
RATE_SECONDS = 30.0
FORGETFUL_SECONDS = 60.0
"""After so long without a look, the next look counts as the first."""
MARKERS = 16
"""The most ends that are remembered for a partition; more are thinned out."""


@dataclass(slots=True)
class _Partition:
    """`markers`: `(first seen, end)` of ends beyond what is committed, oldest first."""

    markers: list[tuple[float, int]] = field(default_factory=list)
    points: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=RATE_SAMPLES))
    """Occasional samples of `(time, committed, end)`."""


@dataclass(frozen=True, slots=True)
class PartitionTrend:
    """`waiting` is the age of the oldest record that has not landed. `catch_up` is None while rates are unknown, or
    records arrive faster than they land."""

    waiting: float
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
        self._observed_at = -FORGETFUL_SECONDS
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.partitions: Mapping[TopicPartition, PartitionTrend] = {}

    @property
    def waiting(self) -> float:
        """The age of the oldest record that has not landed, in seconds; 0 without one."""
        return max((trend.waiting for trend in self.partitions.values()), default=0.0)

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
    ) -> None:
        """Adds a reading of the tree and a view of the log, if there is one."""
        if log is None:
            self._sample(Sample(wall, None, None, _age(last_commit, wall)))
            return
        # Records that waited before the first look came after the last commit, as far as is known.
        is_first = wall - self._observed_at > FORGETFUL_SECONDS
        since = min(wall, last_commit) if is_first and last_commit is not None else wall
        self._observed_at = wall
        if is_first:
            self._partitions.clear()
        trends: dict[TopicPartition, PartitionTrend] = {}
        lag = 0
        for topic_partition, log_range in log.partitions.items():
            state = states.get(topic_partition)
            committed = min(log_range.start, log_range.end) if state is None else state.end
            lag += max(0, log_range.end - committed)
            partition = self._partitions.setdefault(topic_partition, _Partition())
            trends[topic_partition] = _observe(partition, committed, log_range.end, since, wall, self._normal)
        for removed in self._partitions.keys() - log.partitions.keys():
            del self._partitions[removed]
        self.partitions = trends
        self._sample(Sample(wall, lag, self.waiting, _age(last_commit, wall)))

    def _sample(self, sample: Sample) -> None:
        if not self.samples or sample.at - self.samples[-1].at >= SAMPLE_SECONDS * 0.8:
            self.samples.append(sample)


def _age(moment: float | None, wall: float) -> float | None:
    return None if moment is None else max(0.0, wall - moment)


def _observe(
    partition: _Partition, committed: int, end: int, since: float, wall: float, normal: float
) -> PartitionTrend:
    markers = partition.markers
    while markers and markers[0][1] <= committed:
        del markers[0]
    if end > committed and (not markers or end > markers[-1][1]):
        markers.append((since, end))
        if len(markers) > MARKERS:
            # Keep the oldest, which is the answer, and the newest, which later ends are compared with.
            markers[1:-1] = markers[2:-1:2]
    points = partition.points
    if points and committed < points[-1][1]:
        points.clear()  # a reset moved the partition back
    if not points or wall - points[-1][0] >= RATE_SECONDS:
        points.append((wall, committed, end))
    waiting = max(0.0, wall - markers[0][0]) if markers else 0.0
    first_at, first_committed, first_end = points[0]
    seconds = wall - first_at
    if seconds < RATE_SECONDS:
        return PartitionTrend(waiting)
    landed, arrived = (committed - first_committed) / seconds, max(0, end - first_end) / seconds
    return PartitionTrend(waiting, landed, arrived, *_catch_up(end - committed, waiting <= normal, landed, arrived))


def _catch_up(lag: int, keeps_up: bool, landed: float, arrived: float) -> tuple[float | None, bool]:
    """Returns the seconds until no record waits, and whether the backlog grows instead."""
    if lag <= 0:
        return 0.0, False
    if keeps_up and landed > 0:
        return lag / landed, False
    gain = landed - arrived
    return (lag / gain, False) if gain > 0 else (None, arrived > landed)
