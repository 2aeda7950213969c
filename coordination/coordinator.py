"""The coordinator: a level-triggered state machine for one term of one sink.

It holds what it last read of ZooKeeper, the table and the log, and derives from that alone what to do next:
one request at a time, the first of `RULES` that has something to say. Takeover is therefore no special case,
and neither is an unknown outcome: both make what was read stale, and reading again comes first.

Guarantee: every write is one multi that checks this term's lock znode, the epoch and the version of what it
replaces; an instant is completed only after PREPARED was acknowledged or read back; an instant is rolled back
only once it has an ABORTED record. Void if the shell answers `Done` for an effect it did not see happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordination import assignment, planner, planning, recovery, transactions, tree, writes
from coordination.messages import (
    Answered,
    Begin,
    Complete,
    Done,
    Drain,
    Effect,
    Event,
    Failed,
    FindHeld,
    KeeperChanged,
    Note,
    Operation,
    Outcome,
    ReadKeeper,
    ReadLog,
    ReadTable,
    Refused,
    Request,
    Resign,
    RollBack,
    Tick,
    Write,
    unique,
)
from coordination.model import (
    NO_TRANSACTION,
    Checkpoint,
    Failure,
    FailureKind,
    Header,
    InstantState,
    LogView,
    Phase,
    Plan,
    TableView,
)
from coordination.patience import Appetite, Backoff, Crew, retry_after
from coordination.phases import enter
from coordination.term import CoordinatorConfig, Memory
from coordination.tree import Check, Halt, KeeperView, Transaction

OUT_OF_STEP = "what is recorded is not what the table says"
TABLE_FRESH = 60.0
"""Seconds after which an idle coordinator looks at the timeline again."""


class Coordinator:
    """`step(event) -> effects`. One instance is one term: after `Resign` it answers nothing any more."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        self._epoch: int | None = None
        self._raising = NO_TRANSACTION
        self._view: KeeperView | None = None
        self._overtaken = False
        self._table: TableView | None = None
        self._table_read_at = 0.0
        self._log: LogView | None = None
        self._memory: dict[int, Memory] = {}
        self._rolled_back: set[str | None] = set()
        self._halting: Halt | None = None
        self._compared: tuple[KeeperView, Checkpoint | None, recovery.Comparison] | None = None
        self._checkpoint_seen: int | None = None
        self._requests = 0
        self._outstanding: Request | None = None
        self._group: deque[Write] = deque()
        self._at = 0.0
        self._wall = 0.0
        self._not_before = 0.0
        self._next_poll = 0.0
        self._next_plan = 0.0
        self._backoff = Backoff()
        self._crew = Crew()
        self._appetite = Appetite(config.flush_bytes)
        self._draining = False
        self._resigned = False
        self._said: list[Effect] = []

    @property
    def epoch(self) -> int | None:
        """The epoch of this term, once it has been raised."""
        return self._epoch

    def step(self, event: Event) -> list[Effect]:
        if self._resigned:
            return []
        self._at = max(self._at, event.at)
        match event:
            case Answered(id=id, outcome=outcome):
                self._answered(id, outcome)
            case KeeperChanged():
                self._view, self._overtaken = None, True
            case Tick(wall=wall):
                self._wall = wall
            case Drain():
                self._draining = True
        if not self._resigned and self._outstanding is None and self._at >= self._not_before:
            operation = self._next()
            if operation is not None:
                self._requests += 1
                self._outstanding = Request(self._requests, operation)
                self._said.append(self._outstanding)
        said, self._said = self._said, []
        return said

    def _answered(self, id: int, outcome: Outcome) -> None:
        request = self._outstanding
        if request is None or request.id != id:
            self._note("answer.dropped", request=id)
            return
        self._outstanding = None
        if isinstance(outcome, Done):
            self._backoff.succeeded(type(request.operation))
            self._done(request.operation, outcome.value)
        else:
            self._not_done(request.operation, outcome)

    def _not_done(self, operation: Operation, outcome: Outcome) -> None:
        assert not isinstance(outcome, Done)
        self._group.clear()
        self._raising = NO_TRANSACTION
        self._note(
            "request.not_done",
            operation=type(operation).__name__,
            purpose=getattr(operation, "purpose", None),
            outcome=type(outcome).__name__,
            reason=outcome.reason,
        )
        if isinstance(operation, ReadLog):
            self._next_poll = self._at + self._backoff.failed(type(operation))
            if not (isinstance(outcome, Failed) and outcome.invalid):
                return
        self._view = self._table = None
        if isinstance(outcome, Refused):
            if outcome.fenced:
                self._resign(outcome.reason)
                return
            if isinstance(operation, Complete):
                self._remember(operation.number).refused = outcome.reason
        # A tree that cannot be read cannot say either that the sink is halted, and is whole again once it can.
        if isinstance(outcome, Failed) and outcome.invalid and not isinstance(operation, ReadKeeper):
            self._halting = Halt(outcome.reason, at=self._wall)
        self._not_before = self._at + self._backoff.failed(type(operation))

    def _done(self, operation: Operation, value: Any) -> None:
        match operation:
            case ReadKeeper():
                self._view = value
            case ReadTable():
                # What was asked about was named by a transaction then: whatever it has become, no orphan.
                self._table, self._table_read_at = value.without_orphans(value.instants), self._at
            case ReadLog():
                self._log, self._next_poll = value, self._at + self._config.poll
            case Write():
                self._written()
            case Begin(number=number):
                self._remember(number).begun = value
            case FindHeld(number=number):
                self._checked(number, value)
            case Complete(instant=instant, checkpoint=checkpoint):
                if self._table is not None:
                    instants = {**self._table.instants, instant: InstantState.COMPLETED}
                    table = TableView(checkpoint, instants, self._table.orphans)
                    self._table = table.without_orphans((instant,))
            case RollBack(instant=instant):
                if self._table is not None:
                    self._table = self._table.without_orphans((instant,))
                self._rolled_back.add(instant)

    def _written(self) -> None:
        if self._group:
            return
        self._view = None
        if self._raising:
            # Everything read before the epoch was raised may have been an older coordinator's last word.
            self._epoch, self._raising, self._table = self._raising, NO_TRANSACTION, None
            self._note("coordinator.elected", epoch=self._epoch)

    def _checked(self, number: int, held: tuple[str, ...]) -> None:
        if not held:
            self._remember(number).unheld = True
            return
        reason = f"the table already holds file ids of transaction {number} ({', '.join(held[:3])})"
        self._remember(number).refused = reason
        self._halting = Halt(f"{reason}; `sink reset --to checkpoint` raises the generation", at=self._wall)

    # The rules, in their order

    def _next(self) -> Operation | None:
        if self._group:
            return self._group.popleft()
        for rule in RULES:
            operation = rule(self)
            if operation is not None or self._resigned:
                return operation
        return None

    def _read_keeper(self) -> Operation | None:
        if self._view is not None:
            return None
        self._overtaken = False
        return ReadKeeper()

    def _read_keeper_again(self) -> Operation | None:
        """A change that was told of while the tree was being read may or may not be in the reading."""
        if not self._overtaken:
            return None
        self._view = None
        return self._read_keeper()

    def _check_term(self) -> Operation | None:
        if not self._now.whole:
            self._resign("ZooKeeper has lost a part of the sink's tree")
        elif self._epoch is not None and self._now.epoch != self._epoch:
            self._resign(f"epoch {self._now.epoch} has followed epoch {self._epoch}")
        for number in set(self._memory) - {t.header.number for t in self._open()}:
            del self._memory[number]
        self._rolled_back &= {t.header.instant for t in self._open()}
        return None

    def _let_another_try(self) -> Operation | None:
        """What keeps failing here may go well elsewhere: a JVM can be beyond help, a network cut on one side."""
        failing = self._backoff.exhausted()
        if failing is not None and self._now.halt is None and len(self._now.contenders) > 1:
            self._resign(f"{failing} keeps failing here: another worker may do better")
        return None

    def _read_table(self) -> Operation | None:
        named = [t.header.instant for t in self._open() if t.header.instant is not None]
        own = {memory.begun for memory in self._memory.values()}
        if (
            self._table is None
            or set(named) - set(self._table.instants) - own
            or (not named and self._at - self._table_read_at > TABLE_FRESH)
        ):
            return ReadTable(unique(named))
        return None

    def _raise_epoch(self) -> Operation | None:
        seen = self._table.checkpoint.epoch if self._table and self._table.checkpoint else 0
        # Again in mid-term: when a commit was under way while ZooKeeper was emptied, its epoch is known only now.
        if self._epoch is not None and self._epoch >= seen:
            return None
        self._raising = max(self._now.epoch, seen) + 1
        lock = Check(self._config.lock_path, 0)
        return Write("raise epoch", (lock, tree.epoch_op(self._now, self._raising, self._config.incarnation)))

    def _stamp_config(self) -> Operation | None:
        return self._send(writes.stamp_config(self._now, self._config.config_digest))

    def _halt(self) -> Operation | None:
        halt, self._halting = self._halting, None
        if halt is None or self._now.halt is not None:
            return None
        self._note("sink.halted", reason=halt.reason)
        return self._send(writes.halt(halt))

    def _halt_for(self, halt: Halt) -> Operation | None:
        self._halting = replace(halt, at=self._wall)
        return self._halt()

    def _tidy(self) -> Operation | None:
        return self._send(writes.tidy(self._now))

    def _abort_superseded(self) -> Operation | None:
        """What an older epoch left undecided, and what was to follow an aborted transaction, commits no more."""
        aborted: int | None = None
        for transaction in self._open():
            header = transaction.header
            if header.phase is Phase.ABORTED:
                aborted = header.number
            elif header.phase in (Phase.PLANNED, Phase.STARTED):
                if header.epoch != self._epoch:
                    return self._abort(transaction, f"epoch {self._epoch} has followed epoch {header.epoch}")
                if aborted is not None:
                    return self._abort(transaction, f"transaction {aborted} before it was aborted")
        return None

    def _advance(self) -> Operation | None:
        """Take each open transaction, oldest first, to its next phase."""
        for transaction in self._open():
            operation = _ADVANCE[transaction.header.phase](self, transaction)
            if operation is not None:
                return operation
        return None

    def _advance_planned(self, t: Transaction) -> Operation | None:
        begun = self._remember(t.header.number).begun
        if begun is None:
            return Begin(t.header.number, t.header.epoch)
        return self._enter(t, Phase.STARTED, instant=begun)

    def _advance_started(self, t: Transaction) -> Operation | None:
        memory = self._remember(t.header.number)
        if memory.refused is not None:
            return self._abort(t, memory.refused)
        if memory.started_at is None:
            memory.started_at = self._at
        members = {member.incarnation for member in self._now.members}
        match transactions.progress(t, members, self._at - memory.started_at):
            case transactions.MustAbort() as verdict:
                self._crew.blame(verdict.blamed, self._at)
                return self._abort(t, verdict.reason, verdict.failure)
            case transactions.Complete():
                if (too_bad := self._config.errors.exceeded(t.statuses.values())) is not None:
                    return self._abort(t, too_bad.reason, too_bad)
                if not memory.unheld:
                    return FindHeld(t.header.number, transactions.stats(t))
                if t is not self._open()[0]:
                    return None
                if (damage := self._damage(t)) is not None:
                    return self._abort(t, damage)
                return self._enter(t, Phase.PREPARED)
            case _:
                return None

    def _advance_prepared(self, t: Transaction) -> Operation | None:
        assert t.header.instant is not None
        assert self._table is not None
        assert self._now.info is not None
        memory = self._remember(t.header.number)
        match self._table.instants.get(t.header.instant, InstantState.PENDING):
            case InstantState.COMPLETED:
                return self._enter(t, Phase.COMMITTED)
            case InstantState.ROLLED_BACK:
                return self._abort(t, "its instant was rolled back by somebody else")
            case InstantState.ABSENT:
                return self._halt_for(
                    Halt(
                        f"transaction {t.header.number} is PREPARED, but its instant {t.header.instant} is not on"
                        " the timeline: the table was restored or deleted; decide with `sink reset`"
                    )
                )
        if memory.refused is not None:
            return self._abort(t, memory.refused)
        if (damage := self._damage(t)) is not None:
            return self._halt_for(Halt(f"transaction {t.header.number} is PREPARED, but {damage}; {tree.REMEDY}"))
        said = transactions.checkpoint(
            t, self._now.states, self._now.info, self._now.ledger.gaps, self._config.sink, self._fence
        )
        return Complete(
            t.header.instant,
            t.header.number,
            self._now.epoch_version,
            t.version,
            transactions.stats(t),
            said,
            t.header.columns,
            errors=transactions.errors(t),
            attempt=t.header.attempt,
        )

    def _advance_committed(self, t: Transaction) -> Operation | None:
        self._crew.wrote(t.plan)
        memory = self._remember(t.header.number)
        if not memory.counted:
            memory.counted = True
            self._appetite.committed(transactions.size(t), sum(piece.size for piece in t.plan))
        return self._end(t)

    def _advance_aborted(self, t: Transaction) -> Operation | None:
        assert self._table is not None
        if self._table.instants.get(t.header.instant or "") is InstantState.COMPLETED:
            # Only after ZooKeeper lost the PREPARED record of a commit that was under way. The table is the truth.
            return self._end(t)
        if t.header.instant is not None and t.header.instant not in self._rolled_back:
            return RollBack(t.header.instant)
        return self._end(t)

    def _abort_orphans(self) -> Operation | None:
        """A pending instant of ours that no transaction names gets its ABORTED record before its rollback."""
        assert self._table is not None
        named = {t.header.instant for t in self._open()} | {m.begun for m in self._memory.values()}
        orphan = next((instant for instant in self._table.orphans if instant not in named), None)
        if orphan is None:
            return None
        # Whatever becomes of the record, the timeline has to be read again before another one is made.
        self._table = self._table.without_orphans((orphan,))
        header = self._new_header(Plan({}))
        reason = "no transaction names this instant"
        aborted = enter(replace(header, instant=orphan), Phase.ABORTED, self._wall, reason=reason)
        return self._sent(writes.open_transaction(self._now, aborted, Plan({}), {}))

    def _compare(self) -> Operation | None:
        """Bring the recorded states into step with the table's checkpoint; it must be so whenever they are used."""
        assert self._table is not None
        assert self._now.info is not None
        checkpoint = self._table.checkpoint
        foreign = recovery.foreign(checkpoint, self._now.info, self._checkpoint_seen)
        if foreign is not None:
            return self._halt_for(Halt(foreign.reason))
        match self._comparison():
            case recovery.Ahead(reason):
                return self._halt_for(Halt(reason))
            case recovery.Advance() if self._open():
                first = self._open()[0]
                # One that is PREPARED has halted the sink: its own record is what does not fit.
                return self._abort(first, OUT_OF_STEP) if first.header.phase is Phase.STARTED else None
            case recovery.Advance(changed, ledger):
                self._note("keeper.advanced", partitions=len(changed), transaction=ledger.committed)
                return self._send(writes.advance(self._now, changed, ledger))
        self._checkpoint_seen = checkpoint.number if checkpoint else NO_TRANSACTION
        return None

    def _plan(self) -> Operation | None:
        if self._draining:
            if not self._open():
                self._resign("drained")
            return None
        started = (Phase.STARTED, Phase.PREPARED, Phase.COMMITTED)
        if (
            self._now.halt is not None
            or len(self._open()) >= self._config.in_flight
            or any(t.header.phase not in started for t in self._open())
            or not assignment.eligible(self._now.members, ())
        ):
            return None
        log, self._log = self._log, None
        if log is None:
            if self._at < self._next_poll:
                return None
            return ReadLog(planning.topics_to_read(self._now.states, self._config.topics))
        assert self._table is not None
        due = self._at >= self._next_plan
        limits = self._appetite.limits(self._config.limits)
        return self._take(planner.next_step(self._now, self._table, log, self._config, limits, due))

    def _take(self, step: planner.Step) -> Operation | None:
        match step:
            case planner.HaltFor(halt):
                return self._halt_for(halt)
            case planner.SkipGaps(changed, gaps):
                lost = [f"{gap.topic}-{gap.partition}[{gap.start}, {gap.end})" for gap in gaps]
                self._note("log.gap_skipped", gaps=lost)
                return self._send(writes.skip(self._now, changed, gaps))
            case planner.Record(found):
                return self._send(writes.record(self._now, found))
            case planner.Divide(batch, rest, divided, size):
                self._note("batch.divided", batch=batch, rest=rest)
                self._appetite.divided(size)
                return self._send(writes.divide(self._now, divided, batch, rest))
            case planner.OpenBatch():
                if step.attempt == 1:
                    self._next_plan = self._at + self._config.interval
                return self._open_batch(step)
            case _:
                return None

    # Building blocks

    @property
    def _now(self) -> KeeperView:
        assert self._view is not None
        return self._view

    @property
    def _fence(self) -> int:
        assert self._epoch is not None
        return self._epoch

    def _open(self) -> tuple[Transaction, ...]:
        return self._view.transactions if self._view else ()

    def _remember(self, number: int) -> Memory:
        return self._memory.setdefault(number, Memory())

    def _damage(self, t: Transaction) -> str | None:
        """Why `t` may not be committed although it was written: its commit is made of what is recorded."""
        assert self._table is not None
        if (damage := transactions.damage(t, self._now.states)) is not None:
            return damage
        checkpoint = self._table.checkpoint
        if t.header.base != (checkpoint.number if checkpoint else NO_TRANSACTION):
            return None  # the commit's own check finds that out, with proof
        return None if isinstance(self._comparison(), recovery.InStep) else OUT_OF_STEP

    def _comparison(self) -> recovery.Comparison:
        """Made once for each reading: it looks at every partition."""
        assert self._table is not None
        view, checkpoint = self._now, self._table.checkpoint
        if self._compared is None or self._compared[0] is not view or self._compared[1] is not checkpoint:
            self._compared = view, checkpoint, recovery.compare(view.states, view.ledger, checkpoint)
        return self._compared[2]

    def _open_batch(self, step: planner.OpenBatch) -> Operation:
        single = self._config.sink if self._config.single_writer else None
        plan = planning.assigned(
            step.slices,
            self._now.members,
            self._crew.writers,
            self._crew.left_out(self._at),
            step.attempt,
            single,
        )
        header = self._new_header(plan, step)
        self._note(
            "transaction.opened",
            transaction=header.number,
            batch=header.batch,
            attempt=header.attempt,
            slices=len(step.slices),
            offsets=sum(piece.size for piece in step.slices),
        )
        return self._sent(writes.open_transaction(self._now, header, plan, step.changed))

    def _new_header(self, plan: Plan, step: planner.OpenBatch | None = None) -> Header:
        assert self._table is not None
        return planner.new_header(self._now, self._table, self._config, self._fence, self._wall, plan, step)

    def _enter(self, t: Transaction, phase: Phase, instant: str | None = None) -> Operation:
        header = enter(t.header, phase, self._wall, instant)
        self._note("transaction.entered", transaction=header.number, phase=phase.value, instant=header.instant)
        return self._sent(writes.enter(t, header))

    def _abort(self, t: Transaction, reason: str, failure: Failure | None = None) -> Operation:
        header = enter(t.header, Phase.ABORTED, self._wall, self._remember(t.header.number).begun, reason)
        self._note("transaction.aborted", transaction=header.number, attempt=header.attempt, reason=reason)
        halt = None
        if failure is not None:
            self._next_poll = self._at + retry_after(header.attempt)
            if failure.kind is FailureKind.BAD_RECORD and self._now.halt is None:
                halt = Halt(failure.reason, failure.topic, failure.partition, failure.offset, self._wall)
                self._note("sink.halted", reason=halt.reason)
        return self._sent(writes.enter(t, header, halt))

    def _end(self, t: Transaction) -> Operation:
        results = transactions.results(t)
        self._note(
            "transaction.ended",
            transaction=t.header.number,
            outcome=t.header.phase.value,
            records=sum(result.records for result in results),
            errors=sum(result.errors for result in results),
        )
        return self._sent(writes.end(self._now, t, self._wall))

    def _send(self, draft: writes.Draft | None) -> Operation | None:
        return None if draft is None else self._sent(draft)

    def _sent(self, draft: writes.Draft) -> Operation:
        """Fence each multi with this term's lock znode and epoch; all but the first wait in the group."""
        fence = (Check(self._config.lock_path, 0), Check(tree.EPOCH, self._now.epoch_version))
        multis = [Write(draft.purpose, (*fence, *multi)) for multi in draft.multis if multi]
        self._group.extend(multis[1:])
        return multis[0]

    def _note(self, event: str, **fields: Any) -> None:
        self._said.append(Note(event, tuple(fields.items())))

    def _resign(self, reason: str) -> None:
        self._resigned = True
        self._group.clear()
        self._said.append(Resign(reason))


Rule = Callable[[Coordinator], Operation | None]

RULES: tuple[Rule, ...] = (
    Coordinator._read_keeper,
    Coordinator._check_term,
    Coordinator._halt,
    Coordinator._let_another_try,
    Coordinator._read_table,
    Coordinator._raise_epoch,
    Coordinator._stamp_config,
    Coordinator._tidy,
    Coordinator._abort_superseded,
    Coordinator._advance,
    Coordinator._abort_orphans,
    Coordinator._compare,
    Coordinator._plan,
    Coordinator._read_keeper_again,
)
"""What a coordinator does next is the first of these that answers; each may assume that those before had
nothing to do."""

_ADVANCE: dict[Phase, Callable[[Coordinator, Transaction], Operation | None]] = {
    Phase.PLANNED: Coordinator._advance_planned,
    Phase.STARTED: Coordinator._advance_started,
    Phase.PREPARED: Coordinator._advance_prepared,
    Phase.COMMITTED: Coordinator._advance_committed,
    Phase.ABORTED: Coordinator._advance_aborted,
}
