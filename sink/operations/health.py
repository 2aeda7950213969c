"""Judges one sink by a reading of its tree and of Kafka's log: why it is unhealthy, and what an operator should know.

A sink is healthy while it has a coordinator, no halt, and either nothing waits or the last commit is newer than three
intervals and the write deadline, whichever is longer. Records that came a moment ago into a quiet topic have their
interval, too. A pause is a note, no fault. Pure; raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from coordination.state.model import Phase
from coordination.state.tree import KeeperView
from sink.config import Settings
from sink.operations.remedies import Finding, Remedy, finding, halt_remedy
from sink.operations.status import Status
from sink.operations.trend import PartitionTrend, Trend

INTERVALS = 3
EARLY, LATE = 0.5, 0.9
"""Shares of a retention."""
ABORTS = 2
"""One abort alone is no news."""
CLOCK_SECONDS = 5.0
"""How far a clock may be off, as for the alert `SinkClockOff`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    reasons: tuple[Finding, ...] = ()
    """Why the sink is not healthy."""
    notes: tuple[Finding, ...] = ()

    @property
    def healthy(self) -> bool:
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about a sink. Without `view` it could not be read, for `unread`."""

    settings: Settings
    wall: float
    view: KeeperView | None = None
    status: Status | None = None
    unread: Finding | None = None
    left: tuple[str, ...] = ()
    """Workers that have left the fleet a while ago without having drained."""
    troubles: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    """Why this worker is not alive."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """How long Kafka keeps a record, in seconds, by topic."""
    trend: Trend = field(default_factory=lambda: Trend(0.0))

    @property
    def paused(self) -> str:
        """Why nothing new is planned though nothing is wrong; empty while it goes on."""
        asked = None if self.view is None else self.view.control.paused
        return "" if asked is None else f"paused: {asked.reason or f'by {asked.by}'}"


def deadline(settings: Settings) -> float:
    """Seconds after which a commit is overdue."""
    return max(INTERVALS * settings.interval_ms, settings.writestatus_timeout_ms) / 1000


def last_commit(view: KeeperView) -> float | None:
    """Returns when the newest transaction of the history was committed, in seconds since 1970. The history is short:
    where aborts fill it, the commit is older than all of them.
    """
    committed = [s.times for s in view.ledger.history if s.outcome == Phase.COMMITTED.value]
    if committed:
        return max(max(times.values(), default=0.0) for times in committed)
    started = [min(s.times.values(), default=0.0) for s in view.ledger.history]
    return min(started) if started and view.ledger.committed else None


def newest_time(view: KeeperView) -> float:
    """Returns the last moment that a coordinator has recorded, in seconds since 1970; 0 without any."""
    ended = (summary.times for summary in view.ledger.history)
    entered = (transaction.header.times for transaction in view.transactions)
    return max((max(times.values(), default=0.0) for times in chain(ended, entered)), default=0.0)


def judge(evidence: Evidence) -> Judgement:
    if evidence.view is None or evidence.status is None:
        unread = evidence.unread or finding("not-read", "nothing was read of this sink yet")
        return Judgement((unread,), tuple(_waits(evidence)))
    return Judgement(
        tuple(_reasons(evidence, evidence.view, evidence.status)),
        tuple(_notes(evidence, evidence.view, evidence.status)),
    )


def _reasons(evidence: Evidence, view: KeeperView, status: Status) -> Iterator[Finding]:
    if evidence.unread is not None:
        yield evidence.unread
    refused = _refusals(evidence)
    if not status.exists:
        nothing = finding("no-tree", "ZooKeeper has nothing of this sink: no worker has ever joined, or it was emptied")
        yield from refused or [nothing]
        return
    if view.halt is not None:
        remedy: Remedy = halt_remedy(view.halt.reason, view.halt.offset is not None)
        yield Finding("halted", view.halt.reason, remedy.do, remedy.section)
    if view.coordinator is None:
        none = finding("no-coordinator", f"no worker coordinates; {len(view.members)} are in the fleet")
        yield from refused or [none]
    if view.halt is None and not evidence.paused:
        yield from _overdue(evidence, view, status)


def _refusals(evidence: Evidence) -> list[Finding]:
    """Tells why no worker takes part, where those that host the sink cannot use their settings of it, or the table."""
    if evidence.status is None or evidence.view is None or evidence.view.members:
        return []
    return [
        finding("refused", f"{outside.worker}: {outside.reason}")
        for outside in evidence.status.outside
        if outside.state == "refused"
    ]


def _overdue(evidence: Evidence, view: KeeperView, status: Status) -> Iterator[Finding]:
    limit, committed = deadline(evidence.settings), last_commit(view)
    since = "never" if committed is None else f"{_seconds(evidence.wall - committed)} ago"
    overdue = committed is None or evidence.wall - committed > limit
    if status.lag is None:
        if overdue and status.kafka_error is not None and committed is not None:
            yield finding("kafka", f"Kafka does not tell what waits ({status.kafka_error}); last commit {since}")
        return
    waiting = evidence.trend.waiting
    if overdue and status.lag > 0 and waiting > limit:
        text = f"{status.lag:,} offsets wait, the oldest for {_seconds(waiting)}; last commit {since}"
        yield finding("not-committing", f"{text}, allowed are {_seconds(limit)}")


def _notes(evidence: Evidence, view: KeeperView, status: Status) -> Iterator[Finding]:
    if evidence.paused:
        yield finding("paused", evidence.paused)
    if status.kafka_error is not None:
        yield finding("kafka", status.kafka_error)
    if not status.same_config:
        yield finding("configuration", "the fleet runs another configuration than this worker's file")
    behind = newest_time(view) - evidence.wall
    if behind > CLOCK_SECONDS:
        text = f"this worker's clock is {_seconds(behind)} or more behind the coordinator's, by the last transaction"
        yield finding("clock", text)
    yield from _waits(evidence)
    yield from (finding("worker-gone", f"{worker} has left the fleet without draining") for worker in evidence.left)
    yield from (
        finding("aborts", f"transaction {t.header.number} is attempt {t.header.attempt} of its batch")
        for t in view.transactions
        if t.header.attempt > ABORTS
    )
    aborted = next((ended for ended in status.history[:1] if ended.outcome == Phase.ABORTED.value), None)
    if aborted is not None:
        yield finding("aborts", f"transaction {aborted.number} was aborted: {aborted.reason}")
    bad = sum(ended.errors for ended in status.history)
    if bad:
        yield finding("bad-records", f"{bad:,} bad records in the last {len(status.history)} transactions")
    if status.services is not None:
        for service in status.services.failed:
            yield finding("service-failed", f"{service.name}, on {status.services.worker}: {service.reason}")
    if status.catalog is not None and status.catalog.failures:
        yield finding("catalog", f"{status.catalog.failures} times in a row: {status.catalog.reason}")
    yield from _retention(evidence)
    growing = sum(1 for trend in evidence.trend.partitions.values() if trend.grows)
    if growing and evidence.trend.waiting > deadline(evidence.settings):
        yield finding("falls-behind", f"{growing} partitions get records faster than they land")


def _retention(evidence: Evidence) -> Iterator[Finding]:
    """Warns if half of a partition's retention is gone and the backlog does not land in what is left, or if nine tenths
    are gone.
    """
    for topic, seconds in evidence.retention.items():
        oldest = max(
            (
                trend.waiting
                for source, trend in evidence.trend.partitions.items()
                if source.topic == topic and _is_at_risk(trend, seconds)
            ),
            default=0.0,
        )
        if oldest:
            left = _seconds(seconds - oldest)
            yield finding("retention", f"Kafka deletes records of {topic} that have not landed in {left}")


def _is_at_risk(trend: PartitionTrend, seconds: float) -> bool:
    late = trend.catch_up is None or trend.catch_up > seconds - trend.waiting
    return trend.waiting > LATE * seconds or (trend.waiting > EARLY * seconds and late)


def _waits(evidence: Evidence) -> Iterator[Finding]:
    yield from (finding("silent", reason) for reason in evidence.silent)
    yield from (finding("waits", trouble) for trouble in evidence.troubles)
    told = {found.text for found in _refusals(evidence)}
    for outside in () if evidence.status is None else evidence.status.outside:
        if f"{outside.worker}: {outside.reason}" not in told:
            text = f"{outside.worker} hosts it and takes no part ({outside.state}): {outside.reason}"
            yield finding("outside", text)


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
