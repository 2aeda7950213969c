"""The age of the records that have not landed: one answer for `sink status`, HTTP, metrics, health and alerts.

A record waits from when Kafka has it until its offset is committed. No reading tells when a record came, so an age has
two bounds: for how long the record is known to wait, and how long it may have waited at most. A record is known to wait
since a reading of the log first showed it, or since it was planned for a transaction that has not committed. At most it
came right after the reading before, or after the newest commit was planned, whichever is later. So a quiet topic whose
first record has just come has not waited for days, and a takeover forgets nothing that was planned. Voided by a batch
that was limited: what it left over may have come before it was planned. Times are seconds since 1970. Raises nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import NamedTuple

from coordination.state.model import PartitionLog, PartitionState, Phase, TopicPartition
from coordination.state.tree import KeeperView

LOOKS = 16
"""Readings that are remembered; more are thinned out."""


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
            if any(lag(states.get(partition), log_range) for partition, log_range in look.partitions.items()):
                self._forget(looks, number)
                return look.age(wall)
        self._forget(looks, len(looks))
        return NONE_WAITS

    def age(self, partition: TopicPartition, state: PartitionState | None, wall: float) -> Age:
        """Returns the age of one partition's oldest record that waits."""
        for look in self._looks:
            log_range = look.partitions.get(partition)
            if log_range is not None and lag(state, log_range):
                return look.age(wall)
        return NONE_WAITS

    def _forget(self, looks: tuple[_Look, ...], number: int) -> None:
        """Drops the first readings: all their records have landed. Does nothing if another thread added one."""
        if number and self._looks is looks:
            self._looks = looks[number:]


def committed_offset(state: PartitionState | None, log_range: PartitionLog) -> int:
    """Returns the offset after the last one in the table: the log's start while nothing is recorded."""
    return log_range.start if state is None else state.end


def lag(state: PartitionState | None, log_range: PartitionLog) -> int:
    """Counts the readable offsets of a partition that are not committed."""
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
