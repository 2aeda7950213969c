"""The state of a sink, as one value: read from ZooKeeper, with the lag if Kafka answers.

The JSON form has a `format` number. Within one format, fields are added, never renamed or removed. A reading is not
atomic: two facts in it may be a moment apart. An error of Kafka is part of the status. Raises nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from coordination.errors import SinkError
from coordination.state.control import RequestAuthor
from coordination.state.failures import Halt
from coordination.state.model import LogView, PartitionLog, PartitionState, Phase, TopicPartition
from coordination.state.tree import KeeperView, Summary, Transaction
from coordination.zookeeper.full_tree import FullTree
from coordination.zookeeper.records import AuditAnswer, CatalogState
from coordination.zookeeper.table_service_lock import TableServiceRun
from coordination.zookeeper.worker_records import HostedRecord
from sink.operations.log_ends import LogAnswer
from sink.operations.observed_sink import ObservedSink
from sink.telemetry.backlog import lag

FORMAT = 1
NEWEST = 10
"""Ended transactions in a status; `sink history` has more."""
PHASE_NAMES = {
    (Phase.PLANNED.value, Phase.STARTED.value): "begin",
    (Phase.STARTED.value, Phase.PREPARED.value): "write",
    (Phase.PREPARED.value, Phase.COMMITTED.value): "commit",
    (Phase.COMMITTED.value, "ENDED"): "settle",
    (Phase.ABORTED.value, "ENDED"): "roll back",
}
"""Names of the time between two entries of a transaction's times."""
PHASE_ORDER = (*(phase.value for phase in Phase), "ENDED")


@dataclass(frozen=True, slots=True)
class MemberStatus:
    incarnation: str
    worker: str
    host: str
    pid: int
    version: str
    state: str
    role: str
    """`coordinator` (and participant), or `participant`."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """`[start, end)` is the recorded range in `status` BEFORE or AFTER. `lag` counts acknowledged offsets that are not
    committed; `held_back` of them lie behind an open Kafka transaction, from `log_end` on. The log's fields are None if
    Kafka does not answer."""

    topic: str
    partition: int
    status: str
    start: int
    end: int
    committed: int
    generation: int
    log_start: int | None
    log_end: int | None
    lag: int | None
    held_back: int | None


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    number: int
    batch: int
    attempt: int
    epoch: int
    phase: str
    instant: str | None
    age_seconds: float
    """Since the transaction was planned."""
    phase_seconds: float
    """Since it entered its phase."""
    slices: int
    offsets: int
    participants: int
    reported: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndedStatus:
    number: int
    batch: int
    outcome: str
    instant: str | None
    records: int
    reason: str
    ended: float
    seconds: Mapping[str, float]
    """Seconds by phase: begin, write, commit, settle; roll back."""
    errors: int = 0
    """Bad records, which are in the errors table if the transaction was committed."""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class OutsideStatus:
    """A process that hosts the sink and is not in its fleet: it `waits`, `hangs` or was `refused`, with the reason."""

    worker: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """The registered state of the table. `committed` is the sink's newest transaction in the catalogue; `behind` counts
    the transaction numbers after it. `failures` counts failures in a row, the last one at `failed` for `reason`.
    """

    catalog: str
    worker: str
    synced: float
    committed: int
    instant: str
    behind: int
    failures: int
    failed: float
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    sink: str
    zookeeper: str
    exists: bool
    """Whether ZooKeeper has a tree of this sink."""
    keeper: str | None
    config: str | None
    same_config: bool
    """Whether the fleet has the configuration of this command."""
    epoch: int
    coordinator: str | None
    halt: Halt | None
    members: tuple[MemberStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    lag: int | None
    transactions: tuple[TransactionStatus, ...]
    history: tuple[EndedStatus, ...]
    committed: int
    kafka_error: str | None
    services: TableServiceRun | None = None
    """The last run of the table services."""
    paused: RequestAuthor | None = None
    """The author, time and reason of the present pause."""
    flush_pending: bool = False
    switchover: str | None = None
    """The incarnation that was asked to let another worker coordinate, until one does."""
    catalog: CatalogStatus | None = None
    audit: AuditAnswer | None = None
    """The last audit."""
    outside: tuple[OutsideStatus, ...] = ()
    """Processes that host the sink and are not in its fleet."""

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a sink: its tree, the ends of its log if Kafka answers, and the status made of both."""

    view: KeeperView
    log: LogView | None
    status: Status


def reading_of(
    sink: ObservedSink, tree: FullTree, log_answer: LogAnswer | None, hosts: Mapping[str, HostedRecord]
) -> Reading:
    """Makes a reading of what was read. `hosts`: the sink's record in each process that hosts it, by worker."""
    outside = outside_workers(hosts)
    status = build(sink, tree, log_answer, time.time(), outside)
    return Reading(tree.view, log_answer if isinstance(log_answer, LogView) else None, status)


def outside_workers(hosts: Mapping[str, HostedRecord]) -> tuple[OutsideStatus, ...]:
    """Returns workers that host the sink and do not take part in it."""
    return tuple(
        OutsideStatus(worker, hosted.state, hosted.reason)
        for worker, hosted in hosts.items()
        if hosted.reason and hosted.state != "joined"
    )


def catalog_status(name: str | None, state: CatalogState | None, committed: int) -> CatalogStatus | None:
    """Returns None without a catalogue. `name` is the table's there; a record of another catalogue is ignored."""
    if name is None:
        return None
    if state is None or state.catalog != name:
        state = CatalogState(name)
    behind = max(0, committed - state.committed)
    return CatalogStatus(
        name, state.worker, state.synced, state.committed, state.instant, behind, state.failures, state.failed,
        state.reason,
    )  # fmt: skip


def build(
    sink: ObservedSink,
    tree: FullTree,
    log_answer: LogAnswer | None,
    wall: float,
    outside: tuple[OutsideStatus, ...] = (),
) -> Status:
    """Makes the status of one reading of ZooKeeper and of the log."""
    view = tree.view
    log_view = log_answer if isinstance(log_answer, LogView) else None
    partitions = _partitions(view.states, log_view)
    lags = [partition.lag for partition in partitions]
    return Status(
        sink=sink.name,
        zookeeper=f"{sink.ensemble}{sink.root_znode}",
        exists=view.info is not None,
        keeper=view.info.uuid if view.info else None,
        config=view.info.config if view.info else None,
        same_config=view.info is None or view.info.config == sink.config_digest,
        epoch=view.epoch,
        coordinator=view.coordinator,
        halt=view.halt,
        members=tuple(
            MemberStatus(
                member.incarnation, member.worker, member.host, member.pid, member.version, member.state.value,
                "coordinator" if member.incarnation == view.coordinator else "participant",
            )
            for member in view.members
        ),
        partitions=partitions,
        lag=None if log_view is None else sum(lag for lag in lags if lag is not None),
        transactions=tuple(_transaction(transaction, wall) for transaction in view.transactions),
        history=tuple(ended_status(summary) for summary in reversed(view.ledger.history[-NEWEST:])),
        committed=view.ledger.committed,
        kafka_error=str(log_answer) if isinstance(log_answer, SinkError) else None,
        services=tree.services,
        catalog=catalog_status(sink.catalog, tree.catalog, view.ledger.committed),
        audit=tree.audit,
        outside=outside,
        paused=view.control.paused,
        flush_pending=view.control.flush.is_pending,
        switchover=view.control.switchover.incarnation if view.control.switchover else None,
    )  # fmt: skip


def _partitions(
    states: Mapping[TopicPartition, PartitionState], log_view: LogView | None
) -> tuple[PartitionStatus, ...]:
    log_ranges = log_view.partitions if log_view else {}
    return tuple(
        _partition(partition, states.get(partition), log_ranges.get(partition))
        for partition in sorted({*states, *log_ranges})
    )


def _partition(
    partition: TopicPartition, state: PartitionState | None, log_range: PartitionLog | None
) -> PartitionStatus:
    # Of a new partition nothing is recorded yet: the first plan decides where it starts.
    recorded = ("NEW", 0, 0, 0, 0)
    if state is not None:
        start, end = (state.end, state.planned_end) if state.open else (state.start, state.end)
        recorded = (state.status.value, start, end, state.end, state.generation)
    in_log: tuple[int | None, ...] = (None,) * 4
    if log_range is not None:
        in_log = log_range.start, log_range.end, lag(state, log_range), log_range.held_back
    return PartitionStatus(partition.topic, partition.partition, *recorded, *in_log)


def _transaction(transaction: Transaction, wall: float) -> TransactionStatus:
    header = transaction.header
    planned_slices = list(transaction.plan)
    times = header.times
    planned_at = min(times.values(), default=wall)
    return TransactionStatus(
        number=header.number,
        batch=header.batch,
        attempt=header.attempt,
        epoch=header.epoch,
        phase=header.phase.value,
        instant=header.instant,
        age_seconds=round(max(0.0, wall - planned_at), 3),
        phase_seconds=round(max(0.0, wall - times.get(header.phase.value, wall)), 3),
        slices=len(planned_slices),
        offsets=sum(planned_slice.size for planned_slice in planned_slices),
        participants=sum(1 for assigned in transaction.plan.slices.values() if assigned),
        reported=len(transaction.statuses),
        reason=header.reason,
    )


def ended_status(summary: Summary) -> EndedStatus:
    # Sort by phase, not by time: clocks of two coordinators may differ.
    times = [(phase, summary.times[phase]) for phase in PHASE_ORDER if phase in summary.times]
    seconds: dict[str, float] = {}
    for (phase, entered_at), (next_phase, left_at) in pairwise(times):
        # Time before an abort counts as the usual phase.
        phase_name = PHASE_NAMES.get((phase, next_phase)) or next(
            (name for (started_phase, _), name in PHASE_NAMES.items() if started_phase == phase), phase.lower()
        )
        seconds[phase_name] = round(max(0.0, left_at - entered_at), 3)
    return EndedStatus(
        summary.number,
        summary.batch,
        summary.outcome,
        summary.instant,
        summary.records,
        summary.reason,
        max(summary.times.values(), default=0.0),
        seconds,
        summary.errors,
        summary.attempt,
    )
