"""Judges one sink by a reading of its tree and of Kafka's log: reasons why it is unhealthy, and notes for an operator.

A sink is healthy while it has a coordinator, no halt, and either no record waits or the last commit is newer than three
intervals or the write deadline, whichever is longer. New records in a quiet topic have their interval, too: records
that may have come a moment ago are a note. A pause is a note, no fault. An open Kafka transaction is a note, and a
fault after `kafka.open.transaction.limit`. A table service that has been due for `services.overdue.after` without
success is a fault; before, its failure is a note. Pure; raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain

from coordination.state.model import Phase
from coordination.state.tree import KeeperView
from coordination.zookeeper.table_service_lock import WHOLE_RUN, TableServiceRun
from sink.operations.observed_sink import ObservedSink
from sink.operations.remedies import Finding, Remedy, finding, halt_remedy
from sink.operations.status import Status
from sink.telemetry.backlog import PartitionTrend, Trend, last_commit

EARLY, LATE = 0.5, 0.9
"""Shares of the retention time that trigger a warning."""
ABORTS = 2
"""A transaction with more attempts is worth a note."""
CLOCK_SECONDS = 5.0
"""The tolerated clock error, as in the alert `SinkClockOff`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    reasons: tuple[Finding, ...] = ()
    """The reasons why the sink is not healthy."""
    notes: tuple[Finding, ...] = ()

    @property
    def healthy(self) -> bool:
        return not self.reasons


@dataclass(frozen=True, slots=True)
class HealthEvidence:
    """The facts about a sink. `unread` is the reason if there is no `view`."""

    sink: ObservedSink
    wall: float
    view: KeeperView | None = None
    status: Status | None = None
    unread: Finding | None = None
    departed_workers: tuple[str, ...] = ()
    """Workers that left the fleet some time ago without draining."""
    troubles: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    """The reasons why this worker is not alive."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Kafka's retention in seconds, by topic."""
    trend: Trend = field(default_factory=lambda: Trend(0.0))

    @property
    def paused(self) -> str:
        """The text of a pause; empty without one."""
        pause = None if self.view is None else self.view.control.paused
        return "" if pause is None else f"paused: {pause.reason or f'by {pause.by}'}"


def newest_time(view: KeeperView) -> float:
    """Returns the newest time that a coordinator has recorded, in seconds since 1970; 0 without any."""
    ended = (summary.times for summary in view.ledger.history)
    entered = (transaction.header.times for transaction in view.transactions)
    return max((max(times.values(), default=0.0) for times in chain(ended, entered)), default=0.0)


def judge(evidence: HealthEvidence) -> Judgement:
    if evidence.view is None or evidence.status is None:
        unread = evidence.unread or finding("not-read", "nothing was read of this sink yet")
        return Judgement((unread,), tuple(_waits(evidence)))
    return Judgement(
        tuple(_reasons(evidence, evidence.view, evidence.status)),
        tuple(_notes(evidence, evidence.view, evidence.status)),
    )


def _reasons(evidence: HealthEvidence, view: KeeperView, status: Status) -> Iterator[Finding]:
    if evidence.unread is not None:
        yield evidence.unread
    refusals = _refusals(evidence)
    if not status.exists:
        no_tree = finding("no-tree", "ZooKeeper has nothing of this sink: no worker has ever joined, or it was emptied")
        yield from refusals or [no_tree]
        return
    if view.halt is not None:
        remedy: Remedy = halt_remedy(view.halt.kind)
        yield Finding("halted", view.halt.reason, remedy.do, remedy.section)
    if view.coordinator is None:
        no_coordinator = finding("no-coordinator", f"no worker coordinates; {len(view.members)} are in the fleet")
        yield from refusals or [no_coordinator]
    if view.halt is None and not evidence.paused:
        yield from _overdue(evidence, view, status)
    yield from _overdue_services(evidence, status)
    yield from _open_transactions(evidence, are_too_long=True)


def _overdue_services(evidence: HealthEvidence, status: Status) -> Iterator[Finding]:
    run = status.services or TableServiceRun()
    reasons = {service.name: service.reason for service in run.failed}
    for name in _names_of_overdue(evidence, run):
        outcome = f"the last attempt failed: {reasons[name]}" if name in reasons else "no run has ended since"
        time_due = duration(evidence.wall - run.due_since[name])
        yield finding("service-overdue", f"{_title(name)} due for {time_due} without success; {outcome}")


def _names_of_overdue(evidence: HealthEvidence, run: TableServiceRun) -> tuple[str, ...]:
    limit = evidence.sink.services_overdue
    return tuple(name for name, since in run.due_since.items() if evidence.wall - since > limit)


def _title(service: str) -> str:
    return "the table services have been" if service == WHOLE_RUN else f"the table service {service} has been"


def _open_transactions(evidence: HealthEvidence, are_too_long: bool) -> Iterator[Finding]:
    """Yields one finding for the open Kafka transactions that have been seen for longer than the setting allows, or for
    the other ones. It names the oldest.
    """
    limit = evidence.sink.open_limit
    transactions = [
        transaction
        for transaction in evidence.trend.open_transactions.open
        if (evidence.wall - transaction.since > limit) is are_too_long
    ]
    if not transactions:
        return
    oldest = min(transactions, key=lambda transaction: (transaction.since, transaction.partition))
    text = (
        f"{oldest.partition}: a Kafka transaction is open at offset {oldest.offset}, since {moment(oldest.since)}, and"
        f" holds back {oldest.held_back:,} acknowledged offsets"
    )
    if len(transactions) > 1:
        text += f"; so do transactions in {len(transactions) - 1} other partitions"
    yield finding("open-transaction", f"{text}; allowed are {duration(limit)}" if are_too_long else text)


def _refusals(evidence: HealthEvidence) -> list[Finding]:
    """Returns the reasons of workers that refuse the sink for its settings or its table, if no worker takes part."""
    if evidence.status is None or evidence.view is None or evidence.view.members:
        return []
    return [
        finding("refused", f"{outsider.worker}: {outsider.reason}")
        for outsider in evidence.status.outside
        if outsider.state == "refused"
    ]


def _overdue(evidence: HealthEvidence, view: KeeperView, status: Status, is_certain: bool = True) -> Iterator[Finding]:
    """Yields that a commit is overdue: reasons if it is certain, a note if records may have waited for too long."""
    limit, committed = evidence.sink.commit_allowance, last_commit(view)
    if committed is not None and evidence.wall - committed <= limit:
        return
    since = "never" if committed is None else f"{duration(evidence.wall - committed)} ago"
    if status.lag is None:
        if is_certain and status.kafka_error is not None and committed is not None:
            yield finding("kafka", f"Kafka does not tell what waits ({status.kafka_error}); last commit {since}")
        return
    waiting, at_most = evidence.trend.age
    if status.lag > 0 and at_most > limit and is_certain == (waiting > limit):
        age = duration(waiting) if is_certain else f"at most {duration(at_most)}"
        text = f"{status.lag:,} offsets wait, the oldest for {age}; last commit {since}"
        yield finding("not-committing", f"{text}, allowed are {duration(limit)}")


def _notes(evidence: HealthEvidence, view: KeeperView, status: Status) -> Iterator[Finding]:
    if evidence.paused:
        yield finding("paused", evidence.paused)
    elif view.halt is None:
        yield from _overdue(evidence, view, status, is_certain=False)
    if status.kafka_error is not None:
        yield finding("kafka", status.kafka_error)
    if not status.same_config:
        yield finding("configuration", "the fleet runs another configuration than this worker's file")
    clock_lag = newest_time(view) - evidence.wall
    if clock_lag > CLOCK_SECONDS:
        text = f"this worker's clock is {duration(clock_lag)} or more behind the coordinator's, by the last transaction"
        yield finding("clock", text)
    yield from _waits(evidence)
    yield from (
        finding("worker-gone", f"{worker} has left the fleet without draining") for worker in evidence.departed_workers
    )
    yield from (
        finding(
            "aborts", f"transaction {transaction.header.number} is attempt {transaction.header.attempt} of its batch"
        )
        for transaction in view.transactions
        if transaction.header.attempt > ABORTS
    )
    aborted = next((ended for ended in status.history[:1] if ended.outcome == Phase.ABORTED.value), None)
    if aborted is not None:
        yield finding("aborts", f"transaction {aborted.number} was aborted: {aborted.reason}")
    bad_records = sum(ended.errors for ended in status.history)
    if bad_records:
        yield finding("bad-records", f"{bad_records:,} bad records in the last {len(status.history)} transactions")
    yield from _failed_services(evidence, status)
    if status.audit is not None and not status.audit.held:
        yield finding("audit", f"{moment(status.audit.ended)}: {status.audit.summary}")
    if status.catalog is not None and status.catalog.failures:
        yield finding("catalog", f"{status.catalog.failures} times in a row: {status.catalog.reason}")
    yield from _retention(evidence)
    yield from _open_transactions(evidence, are_too_long=False)
    growing = sum(1 for trend in evidence.trend.partitions.values() if trend.grows)
    if growing and evidence.trend.age.known > evidence.sink.commit_allowance:
        yield finding("falls-behind", f"{growing} partitions get records faster than they land")


def _failed_services(evidence: HealthEvidence, status: Status) -> Iterator[Finding]:
    run = status.services or TableServiceRun()
    overdue = _names_of_overdue(evidence, run)
    for service in run.failed:
        if service.name not in overdue:
            where = f", on {run.worker}" if run.worker else ""
            yield finding("service-failed", f"{service.name}{where}: {service.reason}")


def _retention(evidence: HealthEvidence) -> Iterator[Finding]:
    """Warns if half of a partition's retention has passed and the backlog will not land in the other half, or if nine
    tenths have passed.
    """
    for topic, seconds in evidence.retention.items():
        oldest_waiting = max(
            (
                trend.age.at_most
                for partition, trend in evidence.trend.partitions.items()
                if partition.topic == topic and _is_at_risk(trend, seconds)
            ),
            default=0.0,
        )
        if oldest_waiting:
            time_left = duration(seconds - oldest_waiting)
            yield finding("retention", f"Kafka deletes records of {topic} that have not landed in {time_left}")


def _is_at_risk(trend: PartitionTrend, seconds: float) -> bool:
    lands_too_late = trend.catch_up is None or trend.catch_up > seconds - trend.age.at_most
    return trend.age.at_most > LATE * seconds or (trend.age.at_most > EARLY * seconds and lands_too_late)


def _waits(evidence: HealthEvidence) -> Iterator[Finding]:
    yield from (finding("silent", reason) for reason in evidence.silent)
    yield from (finding("waits", trouble) for trouble in evidence.troubles)
    refusals = {refusal.text for refusal in _refusals(evidence)}
    for outsider in () if evidence.status is None else evidence.status.outside:
        if f"{outsider.worker}: {outsider.reason}" not in refusals:
            text = f"{outsider.worker} hosts it and has not joined its fleet ({outsider.state}): {outsider.reason}"
            yield finding("outside", text)


def moment(at: float) -> str:
    """Returns a time, in seconds since 1970, for people."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """Returns a duration for people, like `90 s` or `3 h`."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"
