"""The age of the records that have not landed: one answer for `sink status`, HTTP, metrics, health and alerts.

A record waits from when Kafka lets it be read until its offset is committed. No reading tells when that was, so an age
has two bounds: for how long the record is known to wait, and how long it may have waited at most. A record is known to
wait since a reading of the log first showed it, or since it was planned for a transaction that has not committed. At
most it came right after the reading before, or after the newest commit was planned, whichever is later. So a quiet
topic whose first record has just come has not waited for days, and a takeover forgets nothing that was planned. Voided
by a batch that was limited: what it left over may have come before it was planned. Times are seconds since 1970. Raises
nothing.

`Trend` follows one sink from look to look: ages, rates, and the time to catch up. Its memory and the work of a look
grow with the partitions, not with time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from types import MappingProxyType
from typing import NamedTuple

from coordination.state.model import LogView, PartitionLog, PartitionState, Phase, TopicPartition
from coordination.state.tree import KeeperView
from sink.telemetry.open_transactions import OpenTransactions

LOOKS = 16
"""Readings that are remembered; more are thinned out."""
SAMPLES = 180
SAMPLE_SECONDS = 5.0
RATE_SAMPLES = 11
RATE_SECONDS = 30.0


class Age(NamedTuple):
    """The age of the oldest record that waits, in seconds; both are 0 if none waits."""

    known: float
    at_most: float


NONE_WAITS = Age(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Look:
    """A reading of the log. Its records are known to wait since `since`, and came after `earliest`."""

    since: float
    earliest: float
    partitions: Mapping[TopicPartition, PartitionLog]

    def age(self, wall: float) -> Age:
        return Age(max(0.0, wall - self.since), max(0.0, wall - self.earliest))


class Backlog:
    """Remembers readings of one sink's log. One thread calls `look`, any thread may ask: a new reading replaces the
    remembered ones as a whole, and nothing is computed before a question.
    """

    def __init__(self) -> None:
        self._looks: tuple[_Look, ...] = ()
        self._looked_at = -math.inf

    def look(self, view: KeeperView, partitions: Mapping[TopicPartition, PartitionLog], wall: float) -> None:
        """Adds a reading of the log, taken after `view`. `partitions` may leave out those of which nothing waits."""
        bound = max(self._looked_at, _newest_plan(view))
        planned = planned_since(view)
        since = wall if planned is None or not bound <= planned <= wall else planned
        earliest = since if math.isinf(bound) else min(wall, bound)
        self._looked_at = wall
        self._looks = _thinned((*self._looks, _Look(since, earliest, partitions)))

    def oldest(self, states: Mapping[TopicPartition, PartitionState], wall: float) -> Age:
        """Returns the age of the sink's oldest record that waits by `states`."""
        looks = self._looks
        for number, look in enumerate(looks):
            if any(readable_lag(states.get(partition), log_range) for partition, log_range in look.partitions.items()):
                self._forget(looks, number)
                return look.age(wall)
        self._forget(looks, len(looks))
        return NONE_WAITS

    def age(self, partition: TopicPartition, state: PartitionState | None, wall: float) -> Age:
        """Returns the age of one partition's oldest record that waits."""
        for look in self._looks:
            log_range = look.partitions.get(partition)
            if log_range is not None and readable_lag(state, log_range):
                return look.age(wall)
        return NONE_WAITS

    def _forget(self, looks: tuple[_Look, ...], number: int) -> None:
        """Drops the first readings: all their records have landed. Does nothing if another thread added one."""
        if number and self._looks is looks:
            self._looks = looks[number:]


def committed_offset(state: PartitionState | None, log_range: PartitionLog) -> int:
    """Returns the offset after the last one in the table: the log's start while nothing is recorded, or where what is
    recorded is of a topic that was created again since.
    """
    return log_range.start if state is None or state.topic_id != log_range.topic_id else state.end


def lag(state: PartitionState | None, log_range: PartitionLog) -> int:
    """Counts the acknowledged offsets of a partition that are not committed, whether they can be read yet or not."""
    return max(0, max(log_range.end, log_range.high_watermark) - committed_offset(state, log_range))


def readable_lag(state: PartitionState | None, log_range: PartitionLog) -> int:
    """Counts the offsets of a partition that can be read and are not committed."""
    return max(0, log_range.end - committed_offset(state, log_range))


def last_commit(view: KeeperView) -> float | None:
    """Returns the time of the newest commit in the history. Aborts may fill the short history: the commit is then older
    than all of them.
    """
    ended = [max(times.values(), default=0.0) for times in _commits(view)]
    if ended:
        return max(ended)
    start_times = [min(summary.times.values(), default=0.0) for summary in view.ledger.history]
    return min(start_times) if start_times and view.ledger.committed else None


def planned_since(view: KeeperView) -> float | None:
    """Returns since when records are planned that have not landed: those of open transactions, and of all that were
    aborted after the newest commit.
    """
    aborted = takewhile(lambda summary: summary.outcome != Phase.COMMITTED.value, reversed(view.ledger.history))
    entered = chain(
        (transaction.header.times for transaction in view.transactions), (summary.times for summary in aborted)
    )
    return min((min(times.values()) for times in entered if times), default=None)


def _newest_plan(view: KeeperView) -> float:
    """Returns when the newest commit was planned, or else may have been; -inf without a commit."""
    planned = max((min(times.values()) for times in _commits(view) if times), default=None)
    if planned is None:
        planned = last_commit(view)
    return -math.inf if planned is None else planned


def _commits(view: KeeperView) -> list[Mapping[str, float]]:
    return [summary.times for summary in view.ledger.history if summary.outcome == Phase.COMMITTED.value]


def _thinned(looks: tuple[_Look, ...]) -> tuple[_Look, ...]:
    """Returns at most `LOOKS`. Drops the least informative one: its neighbours are nearest, for its age. What it showed
    first may have come as early as it says.
    """
    if len(looks) <= LOOKS:
        return looks
    newest = looks[-1].since

    def information(index: int) -> float:
        return (looks[index + 1].since - looks[index - 1].since) / (newest - looks[index].since + 1.0)

    dropped = min(range(1, len(looks) - 1), key=information)
    widened = replace(looks[dropped + 1], earliest=looks[dropped].earliest)
    return (*looks[:dropped], widened, *looks[dropped + 2 :])


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
class BacklogSample:
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
        self.open_transactions = OpenTransactions()
        self._points: dict[TopicPartition, deque[tuple[float, int, int]]] = {}
        """Occasional samples of `(time, committed, end)`."""
        self.samples: deque[BacklogSample] = deque(maxlen=SAMPLES)
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

    def observe(
        self,
        view: KeeperView,
        log: LogView | None,
        wall: float,
        begun: Mapping[TopicPartition, float] = MappingProxyType({}),
    ) -> None:
        """Adds a reading of the tree and a view of the log, if there is one. `begun`: when open Kafka transactions
        began, for some partitions.
        """
        commit = last_commit(view)
        commit_age = None if commit is None else max(0.0, wall - commit)
        if log is None:
            self._sample(BacklogSample(wall, None, None, commit_age))
            return
        self.open_transactions.look(log.partitions, wall, begun)
        lags = {partition: readable_lag(view.states.get(partition), ends) for partition, ends in log.partitions.items()}
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
        acknowledged = sum(lag(view.states.get(partition), ends) for partition, ends in log.partitions.items())
        self._sample(BacklogSample(wall, acknowledged, self.age.known, commit_age))

    def _sample(self, sample: BacklogSample) -> None:
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
