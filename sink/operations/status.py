"""The state of a sink as one value, which `sink status --json` and HTTP show: read from ZooKeeper, and from Kafka if it
answers.

The JSON form has a `format` number. Within one format, fields are added, never renamed or removed. A reading is not
atomic: two facts in it may be a moment apart. An error of Kafka is part of the status. Points in time are seconds since
1970; 0 is never. Raises nothing.
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
HISTORY_LENGTH = 10
"""The most ended transactions in a status; `sink history` has more."""
PHASE_NAMES = {
    (Phase.PLANNED.value, Phase.STARTED.value): "begin",
    (Phase.STARTED.value, Phase.PREPARED.value): "write",
    (Phase.PREPARED.value, Phase.COMMITTED.value): "commit",
    (Phase.COMMITTED.value, "ENDED"): "settle",
    (Phase.ABORTED.value, "ENDED"): "roll back",
}
"""Names of the time that a transaction spends between entering the first phase and entering the second."""
PHASE_ORDER = (*(phase.value for phase in Phase), "ENDED")


@dataclass(frozen=True, slots=True)
class MemberStatus:
    incarnation: str
    worker: str
    host: str
    pid: int
    version: str
    """The version of the sink that it runs."""
    state: str
    """`active` or `draining`."""
    role: str
    """`coordinator` (and participant), or `participant`."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The record of a partition, and its log. `[start, end)` is the recorded range: open if `status` is BEFORE,
    committed if it is AFTER. A NEW partition has no record yet. The offsets before `committed` are in the table. `lag`
    counts the acknowledged offsets from there on; an open Kafka transaction holds back the last `held_back` of them,
    from `log_end` on. `lag` and the log's fields are None if Kafka does not answer.
    """

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
    """Offsets that the plan covers."""
    participants: int
    """Workers that have slices to write."""
    reported: int
    """Participants whose write status is there."""
    reason: str
    """Why it was aborted; empty otherwise."""


@dataclass(frozen=True, slots=True)
class EndedStatus:
    """A transaction that was committed and settled, or aborted and rolled back: its `outcome`."""

    number: int
    batch: int
    outcome: str
    """`COMMITTED` or `ABORTED`."""
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
    """A worker process that hosts the sink and has not joined its fleet. `state` is a `SinkState`: `waiting`, `hanging`
    or `refused`, for example.
    """

    worker: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """The table's entry in a catalogue; `catalog` names both. `worker` registered it last, or failed to; `synced` is
    when that last succeeded. `committed` is the sink's newest transaction that the catalogue knows of, and `instant`
    the table's newest instant there. `behind` counts the transaction numbers after `committed`. `failures` counts
    failures in a row, the last one at `failed` for `reason`.
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
    """The UUID of that tree."""
    config: str | None
    """The digest of the fleet's configuration."""
    same_config: bool
    """Whether the fleet has the configuration of the process that made this status; True without a tree."""
    epoch: int
    coordinator: str | None
    """The coordinator's incarnation."""
    halt: Halt | None
    members: tuple[MemberStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    lag: int | None
    """The sum over all partitions; None if Kafka does not answer."""
    transactions: tuple[TransactionStatus, ...]
    """Open transactions."""
    history: tuple[EndedStatus, ...]
    """Transactions that ended last, newest first."""
    committed: int
    """The number of the newest transaction that is committed and settled."""
    kafka_error: str | None
    services: TableServiceRun | None = None
    """The last run of the table services."""
    paused: RequestAuthor | None = None
    """The author, time and reason of the present pause."""
    flush_pending: bool = False
    switchover: str | None = None
    """The coordinator's incarnation that an operator asked to yield, until another worker coordinates."""
    catalog: CatalogStatus | None = None
    audit: AuditAnswer | None = None
    """The last audit."""
    outside: tuple[OutsideStatus, ...] = ()
    """Processes that host the sink and are not in its fleet."""

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a sink: its tree in ZooKeeper, its log if Kafka answers, and the status made of both."""

    view: KeeperView
    log: LogView | None
    status: Status


def reading_of(
    sink: ObservedSink, tree: FullTree, log_answer: LogAnswer | None, hosts: Mapping[str, HostedRecord]
) -> Reading:
    """Makes the reading of a sink. `log_answer` is None if Kafka was not asked. `hosts` has the sink's record in each
    worker process that hosts it, by worker.
    """
    outside = outside_workers(hosts)
    status = status_of(sink, tree, log_answer, time.time(), outside)
    return Reading(tree.view, log_answer if isinstance(log_answer, LogView) else None, status)


def outside_workers(hosts: Mapping[str, HostedRecord]) -> tuple[OutsideStatus, ...]:
    """Returns the workers that host the sink and have not joined its fleet, for a reason that is known."""
    return tuple(
        OutsideStatus(worker, hosted.state, hosted.reason)
        for worker, hosted in hosts.items()
        if hosted.reason and hosted.state != "joined"
    )


def catalog_status(name: str | None, state: CatalogState | None, committed: int) -> CatalogStatus | None:
    """Returns the state of the table's entry in its catalogue; None without a catalogue. `name` is the table's name
    there. A `state` that was recorded under another name is ignored: the settings have changed since. `committed` is
    the sink's newest transaction.
    """
    if name is None:
        return None
    if state is None or state.catalog != name:
        state = CatalogState(name)
    behind = max(0, committed - state.committed)
    return CatalogStatus(
        name, state.worker, state.synced, state.committed, state.instant, behind, state.failures, state.failed,
        state.reason,
    )  # fmt: skip


def status_of(
    sink: ObservedSink,
    tree: FullTree,
    log_answer: LogAnswer | None,
    wall: float,
    outside: tuple[OutsideStatus, ...] = (),
) -> Status:
    """Returns the status of a sink. `log_answer` is None if Kafka was not asked; `wall` is the present time."""
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
        history=tuple(ended_status(summary) for summary in reversed(view.ledger.history[-HISTORY_LENGTH:])),
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
    # Nothing is recorded of a new partition: its first plan decides where it starts.
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
    """Returns the status of a transaction that has ended."""
    # In the order of the phases, not of the times: the clocks of two coordinators may differ.
    times = [(phase, summary.times[phase]) for phase in PHASE_ORDER if phase in summary.times]
    seconds: dict[str, float] = {}
    for (phase, entered_at), (next_phase, left_at) in pairwise(times):
        # The time before an abort counts as what usually follows the phase: PLANNED to ABORTED is "begin".
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
