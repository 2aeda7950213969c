"""One term of a coordinator: its configuration, its readings, its memory, and its writes.

Guarantee: `Term.fence_and_queue` fences every write: each multi checks this term's lock znode, and the epoch that the
term has read. Void for a `Write` that a rule queues itself; only the rule that raises the epoch does so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordination.machines import recovery, transactions, writes
from coordination.machines.exchange import Exchange
from coordination.machines.pacing import BatchSizeController, WorkerHealth, retry_after
from coordination.planning import log_continuity
from coordination.planning.config import CoordinatorConfig
from coordination.state import tree
from coordination.state.failures import AWAY, Failure, FailureKind, Halt, HaltKind
from coordination.state.messages import Operation
from coordination.state.model import (
    NO_TRANSACTION,
    Checkpoint,
    LogView,
    PartitionState,
    Phase,
    TableView,
    TopicPartition,
)
from coordination.state.phases import enter
from coordination.state.tree import Check, KeeperView, Transaction

_HALTS: Mapping[FailureKind, HaltKind] = {
    FailureKind.BAD_RECORD: HaltKind.BAD_RECORD,
    FailureKind.TOO_MANY_BAD_RECORDS: HaltKind.TOO_MANY_BAD_RECORDS,
    FailureKind.LOG_CHANGED: HaltKind.LOG_CHANGED,
    FailureKind.LOG_DAMAGED: HaltKind.LOG_DAMAGED,
    FailureKind.SCHEMA_CHANGED: HaltKind.SCHEMA_CHANGED,
}
"""Failures that only an operator can end."""
OUT_OF_STEP = "what is recorded is not what the table says"


@dataclass(slots=True)
class TransactionProgress:
    """This term's knowledge of one open transaction beyond its znodes."""

    begun: str | None = None
    begin_failed: bool = False
    started_at: float | None = None
    files_checked: bool = False
    refused: str | None = None
    accounted: bool = False
    """Whether `BatchSizeController` has counted its commit."""


@dataclass(frozen=True, slots=True)
class FlushTarget:
    """The end of each partition's log when it was read for the flush `request`, and for earlier ones. The offsets are
    those of `topic_ids`."""

    request: int
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def is_reached(self, states: Mapping[TopicPartition, PartitionState]) -> bool:
        return all(
            (state := states.get(source)) is not None
            and state.end >= end
            and self.topic_ids.get(source.topic, state.topic_id) == state.topic_id
            for source, end in self.ends.items()
        )

    def still_there(self, log: LogView, states: Mapping[TopicPartition, PartitionState]) -> FlushTarget:
        """Returns the target without what the log no longer has. A topic that was created again is still waited for
        where the sink has begun with the earlier one: it halts."""
        ends = {}
        for source, end in self.ends.items():
            present, state = log.partitions.get(source), states.get(source)
            if present is None:
                continue
            if self.topic_ids.get(source.topic, present.topic_id) in (present.topic_id, state and state.topic_id):
                ends[source] = min(end, present.end)
        return replace(self, ends=ends)


class Term(Exchange):
    """The state that the rules read and change. A reading (`view` of ZooKeeper, `table`, `log`) is None once it may be
    out of date. The first rules read `view` and `table`, so that the later ones have them.
    """

    def __init__(self, config: CoordinatorConfig) -> None:
        super().__init__()
        self.config = config
        self.epoch: int | None = None
        """The epoch that this term raised."""
        self.raising = NO_TRANSACTION
        self.view: KeeperView | None = None
        self.changed_during_read = False
        """Whether ZooKeeper reported a change since the last read of the tree began."""
        self.table: TableView | None = None
        self.table_read_at = 0.0
        self.log: LogView | None = None
        self.flush_seen = 0
        """The newest flush request when the last read of the log began."""
        self.flush_target: FlushTarget | None = None
        self.missing_topics: frozenset[str] = frozenset()
        """Topics that match the pattern, and that Kafka has no more: each is reported once."""
        self.progress: dict[int, TransactionProgress] = {}
        self.rolled_back: set[str | None] = set()
        self.halting: Halt | None = None
        """Why the sink has to stop, until that is on record."""
        self.checkpoint_seen: int | None = None
        self.wall = 0.0
        self.next_poll = 0.0
        self.next_plan = 0.0
        self._first_interval_end: float | None = None
        self.failures_by_servers = 0
        """Transactions in a row that failed because a server was away."""
        self.store_is_faulty = False
        self.is_admitted = True
        self.waits_for_admission = False
        """Whether a batch would be opened if only the process let it."""
        self.has_open = False
        """Whether a transaction was open when the tree was read last, or has been opened since."""
        self.log_read_at = 0.0
        self.worker_health = WorkerHealth()
        self.batch_sizes = BatchSizeController(config.flush_bytes)
        self._last_comparison: tuple[KeeperView, Checkpoint | None, recovery.Comparison] | None = None

    @property
    def keeper_view(self) -> KeeperView:
        assert self.view is not None
        return self.view

    @property
    def table_view(self) -> TableView:
        assert self.table is not None
        return self.table

    @property
    def raised_epoch(self) -> int:
        assert self.epoch is not None
        return self.epoch

    def open_transactions(self) -> tuple[Transaction, ...]:
        return self.view.transactions if self.view else ()

    def progress_of(self, number: int) -> TransactionProgress:
        return self.progress.setdefault(number, TransactionProgress())

    def interval_planned(self) -> None:
        """The next batch is due at the end of this interval. Intervals follow one another whenever a batch was planned,
        so that sinks that began together stay apart.
        """
        interval = self.config.interval
        if self._first_interval_end is None:
            self._first_interval_end = self.at + self.config.first_interval
        # An interval that ends in so short a time has ended: sums of fractions are not exact.
        ended = math.floor((self.at - self._first_interval_end) / interval + 1e-6) + 1
        self.next_plan = self._first_interval_end + max(0, ended) * interval

    def note_topics(self, log: LogView) -> None:
        """Notes topics that have come to match, and those that are gone. Their rows stay."""
        if log.matching is None or self.config.topic_pattern is None:
            return
        recorded = {source.topic for source in self.keeper_view.states}
        if recorded and (new_topics := sorted(set(log.matching) - recorded)):
            self.note("topics.found", topics=new_topics)
        matched = (topic for topic in recorded if re.fullmatch(self.config.topic_pattern, topic))
        missing = frozenset(matched).difference(log.matching)
        if gone_topics := sorted(missing - self.missing_topics):
            self.note("topics.gone", topics=gone_topics)
        self.missing_topics = missing

    def inconsistency(self, t: Transaction) -> str | None:
        """Tells why a written transaction may not be committed, or None: its commit has to match the record."""
        checkpoint = self.table_view.checkpoint
        if (inconsistency := transactions.inconsistency(t, self.keeper_view.states)) is not None:
            return inconsistency
        if t.header.base != (checkpoint.number if checkpoint else NO_TRANSACTION):
            return None  # the commit's own check finds that out, with proof
        return None if isinstance(self.comparison(), recovery.InStep) else OUT_OF_STEP

    def comparison(self) -> recovery.Comparison:
        """Compares once for each reading: it looks at every partition."""
        view, checkpoint = self.keeper_view, self.table_view.checkpoint
        if (
            self._last_comparison is None
            or self._last_comparison[0] is not view
            or self._last_comparison[1] is not checkpoint
        ):
            self._last_comparison = view, checkpoint, recovery.compare_with_table(view.states, view.ledger, checkpoint)
        return self._last_comparison[2]

    def enter(self, t: Transaction, phase: Phase, instant: str | None = None) -> Operation:
        header = enter(t.header, phase, self.wall, instant)
        self.note("transaction.entered", transaction=header.number, phase=phase.value, instant=header.instant)
        return self.fence_and_queue(writes.enter(self.keeper_view, t, header))

    def abort(self, t: Transaction, reason: str, failure: Failure | None = None) -> Operation:
        header = enter(t.header, Phase.ABORTED, self.wall, self.progress_of(t.header.number).begun, reason)
        self.note("transaction.aborted", transaction=header.number, attempt=header.attempt, reason=reason)
        halt = None
        if failure is not None:
            if failure.kind in AWAY:
                self.failures_by_servers += 1
            # Failures of the store are not attempts: by attempts alone the batch would be retried at once, for ever.
            self.next_poll = self.at + retry_after(max(header.attempt, self.failures_by_servers))
            # Another replica may lead by the next attempt, or the bytes changed on their way.
            is_lasting = failure.kind is not FailureKind.LOG_DAMAGED or header.attempt > 1
            kind = _HALTS.get(failure.kind)
            if kind is not None and is_lasting and self.keeper_view.halt is None:
                halt = Halt(kind, failure.reason, failure.topic, failure.partition, failure.offset, self.wall)
                self.note("sink.halted", kind=kind.value, reason=halt.reason)
        return self.fence_and_queue(writes.enter(self.keeper_view, t, header, halt))

    def end(self, t: Transaction) -> Operation:
        written = transactions.written(t, self.table_view.checkpoint)
        self.note(
            "transaction.ended",
            transaction=t.header.number,
            outcome=t.header.phase.value,
            records=sum(result.records for result in written.results),
            errors=sum(result.errors for result in written.results),
        )
        if t.header.phase is Phase.COMMITTED:
            evidence = log_continuity.evidence(transactions.reads(t), self.keeper_view.states)
            self.note(
                "log.compared",
                transaction=t.header.number,
                partitions=evidence.compared,
                without_record=evidence.absent,
            )
        return self.fence_and_queue(writes.end(self.keeper_view, t, written, self.wall, self.config.divide_after))

    def halt(self, halt: Halt) -> Operation | None:
        """Halts the sink; None if it is halted already."""
        if self.keeper_view.halt is not None:
            return None
        self.note("sink.halted", kind=halt.kind.value, reason=halt.reason)
        return self.fence_and_queue(writes.halt(halt))

    def fence_and_queue(self, write_plan: writes.WritePlan) -> Operation:
        """Fences each multi with this term's lock znode and epoch."""
        fence = (Check(self.config.lock_path, 0), Check(tree.EPOCH, self.keeper_view.epoch_version))
        return self.queue(write_plan.purpose, fence, write_plan.multis)
