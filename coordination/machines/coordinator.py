"""The coordinator: a level-triggered state machine for one term of one sink.

It holds what it last read of ZooKeeper, the table and the log, and derives from that alone what to do next:
one request at a time, from the first of `RULES` that returns one. Takeover is therefore no special case,
and neither is an unknown outcome: both make the readings stale, and reading again comes first.

Guarantee: every write is one multi that checks this term's lock znode, the epoch and the versions of the znodes that it
replaces; an instant is completed only after PREPARED was acknowledged or read back; an instant is rolled back
only once it has an ABORTED record. Void if the shell answers `Done` for an effect it did not see happen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordination.machines import advance, control, housekeeping, opening
from coordination.machines.term import Term
from coordination.planning.config import CoordinatorConfig
from coordination.state.failures import Halt, HaltKind
from coordination.state.messages import (
    Admission,
    Answered,
    Begin,
    Complete,
    Done,
    Drain,
    Effect,
    Event,
    Failed,
    FileCheck,
    FindExistingFiles,
    KeeperChanged,
    NotDone,
    Operation,
    Outcome,
    ReadKeeper,
    ReadLog,
    ReadTable,
    Refused,
    RollBack,
    StoreSeen,
    Tick,
    Write,
)
from coordination.state.model import NO_TRANSACTION, InstantState, TableView

FRESH_SECONDS = 0.1
"""A reading of the log that is no older is planned from after an admission."""

Rule = Callable[[Term], Operation | None]

RULES: tuple[Rule, ...] = (
    housekeeping.read_keeper,
    housekeeping.resign_if_superseded,
    housekeeping.halt,
    housekeeping.yield_leadership,
    housekeeping.read_table,
    housekeeping.raise_epoch,
    housekeeping.record_config,
    housekeeping.delete_incomplete_plans,
    advance.abort_superseded,
    advance.start,
    opening.plan_ahead,
    advance.begin_ahead,
    advance.advance,
    opening.abort_orphans,
    housekeeping.sync_with_table,
    control.answer_requests,
    opening.plan,
    housekeeping.read_keeper_again,
)
"""The coordinator does what the first of these rules asks for. Each rule may assume that those before it had nothing to
do."""


class Coordinator:
    """`step(event) -> effects`. One instance is one term: after `Resign` it answers nothing any more."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self._term = Term(config)

    @property
    def epoch(self) -> int | None:
        """The epoch of this term, once it has been raised."""
        return self._term.epoch

    @property
    def waits_for_admission(self) -> bool:
        """Whether it needs an `Admission` to go on."""
        return self._term.waits_for_admission

    @property
    def has_open(self) -> bool:
        return self._term.has_open

    def step(self, event: Event) -> list[Effect]:
        term = self._term
        if term.resigned:
            return []
        term.at = max(term.at, event.at)
        match event:
            case Answered(id=id, outcome=outcome):
                self._answered(id, outcome)
            case KeeperChanged():
                term.view, term.changed_during_read = None, True
            case StoreSeen(faulty=faulty):
                term.store_is_faulty = faulty
            case Admission(granted=granted):
                self._admitted(granted)
            case Tick(wall=wall):
                term.wall = wall
            case Drain():
                term.draining = True
        return term.effects(self._next)

    def _next(self) -> Operation | None:
        if self._term.group:
            return self._term.group.popleft()
        for rule in RULES:
            operation = rule(self._term)
            if operation is not None or self._term.resigned:
                return operation
        return None

    def _answered(self, id: int, outcome: Outcome) -> None:
        operation = self._term.take_answer(id)
        if operation is None:
            return
        if isinstance(outcome, Done):
            self._term.backoff.succeeded(type(operation))
            self._done(operation, outcome.value)
        else:
            self._not_done(operation, outcome)

    def _not_done(self, operation: Operation, outcome: NotDone) -> None:
        term = self._term
        term.group.clear()
        term.raising = NO_TRANSACTION
        term.note(
            "request.not_done",
            operation=type(operation).__name__,
            purpose=getattr(operation, "purpose", None),
            outcome=type(outcome).__name__,
            reason=outcome.reason,
        )
        if isinstance(operation, ReadLog):
            term.next_poll = term.at + term.backoff.failed(type(operation))
            if not (isinstance(outcome, Failed) and outcome.halts is not None):
                return
        term.view = term.table = None
        if isinstance(operation, Begin):
            term.progress_of(operation.number).begin_failed = True
        if isinstance(outcome, Refused):
            if outcome.fenced:
                term.resign(outcome.reason)
                return
            if isinstance(operation, Complete):
                term.progress_of(operation.number).refused = outcome.reason
        # An unreadable tree cannot show whether the sink is halted already, and needs no halt once it is readable.
        if isinstance(outcome, Failed) and outcome.halts is not None and not isinstance(operation, ReadKeeper):
            term.halting = Halt(outcome.halts, outcome.reason, at=term.wall)
        term.not_before = term.at + term.backoff.failed(type(operation))

    def _done(self, operation: Operation, value: Any) -> None:
        term = self._term
        match operation:
            case ReadKeeper():
                term.view, term.has_open = value, bool(value.transactions)
            case ReadTable():
                # Transactions named these instants when they were requested: none of them is an orphan.
                term.table, term.table_read_at = value.without_orphans(value.instants), term.at
            case ReadLog():
                term.log, term.log_read_at, term.next_poll = value, term.at, self._next_poll()
            case Write():
                self._written()
            case Begin(number=number):
                term.progress_of(number).begun = value
            case FindExistingFiles(number=number):
                self._checked(number, value)
            case Complete(instant=instant, checkpoint=checkpoint):
                instants = {**term.table_view.instants, instant: InstantState.COMPLETED}
                table = TableView(checkpoint, instants, term.table_view.orphans)
                term.table = table.without_orphans((instant,))
            case RollBack(instant=instant):
                term.table = term.table_view.without_orphans((instant,))
                term.rolled_back.add(instant)

    def _admitted(self, granted: bool) -> None:
        term = self._term
        term.is_admitted = granted
        if granted and term.waits_for_admission and term.at - term.log_read_at > FRESH_SECONDS:
            # Records that arrived during the wait go into the same transaction.
            term.log, term.next_poll = None, term.at

    def _next_poll(self) -> float:
        """Keeps the next poll before the moment at which the next transaction is due: its records would wait for the
        poll after it.
        """
        term = self._term
        poll = term.at + term.config.poll
        return min(poll, term.next_plan) if term.at < term.next_plan else poll

    def _written(self) -> None:
        term = self._term
        if term.group:
            return
        term.view = None
        if term.raising:
            # Everything read before the epoch was raised may have been an older coordinator's last word.
            term.epoch, term.raising, term.table = term.raising, NO_TRANSACTION, None
            term.note("coordinator.elected", epoch=term.epoch)

    def _checked(self, number: int, check: FileCheck) -> None:
        term, progress = self._term, self._term.progress_of(number)
        if check.unplanned:
            file_ids = ", ".join(check.unplanned[:3])
            progress.refused = f"files were written that none of its write tasks writes: file ids {file_ids}"
            return
        if not check.existing:
            progress.files_checked = True
            return
        reason = f"the table already holds file ids of transaction {number} ({', '.join(check.existing[:3])})"
        progress.refused = reason
        remedy = "`sink reset --to checkpoint` raises the generation."
        term.halting = Halt(HaltKind.FILE_IDS, f"{reason}. {remedy}", at=term.wall)
