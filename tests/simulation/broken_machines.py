"""Ways to break the protocol in its machines: their requests, their handling of answers, and their rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordination.machines import advance, coordinator, housekeeping, opening, transactions
from coordination.machines.advance import ADVANCE
from coordination.machines.coordinator import Coordinator
from coordination.machines.pacing import Backoff
from coordination.machines.participant import Participant
from coordination.machines.term import Term
from coordination.state import tree
from coordination.state.log_records import ReadRange
from coordination.state.messages import Answered, Complete, Done, RollBack, Unknown, Write
from coordination.state.model import Phase, SliceResult, WriteStatus
from coordination.state.tree import Check, Create, Delete, Set
from tests.simulation.broken_decisions import Patch
from tests.simulation.process import Process
from tests.simulation.table import stat_of


def replace_rule(patch: Patch, original: Any, replacement: Any) -> None:
    """Replaces one of the coordinator's rules."""
    patch(coordinator, "RULES", tuple(replacement if rule is original else rule for rule in coordinator.RULES))


def without(dropped: Any) -> Callable[[Patch], None]:
    return lambda patch: patch(coordinator, "RULES", tuple(rule for rule in coordinator.RULES if rule is not dropped))


def planned_ahead_unchecked(patch: Patch) -> None:
    """The coordinator plans the next transaction from states that it has not compared with the table."""

    def plan_ahead(term: Term) -> Any:
        transactions = term.open_transactions()
        is_written = bool(transactions) and all(t.header.phase is Phase.STARTED for t in transactions)
        return opening.plan(term) if is_written else None

    replace_rule(patch, opening.plan_ahead, plan_ahead)


def without_checks(prefixes: tuple[str, ...]) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        original = Coordinator._next

        def next_(self: Coordinator) -> Any:
            op = original(self)
            if isinstance(op, Write):
                unchecked = (o for o in op.ops if not (isinstance(o, Check) and o.path.startswith(prefixes)))
                return replace(op, ops=tuple(unchecked))
            return op

        patch(Coordinator, "_next", next_)

    return apply


def versions_ignored(prefix: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        original = Coordinator._next

        def next_(self: Coordinator) -> Any:
            op = original(self)
            if isinstance(op, Write):
                unversioned = (
                    replace(o, version=-1) if isinstance(o, Set | Delete) and o.path.startswith(prefix) else o
                    for o in op.ops
                )
                return replace(op, ops=tuple(unversioned))
            return op

        patch(Coordinator, "_next", next_)

    return apply


def bad_records_not_published(patch: Patch) -> None:
    original = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = original(self)
        return replace(op, errors=()) if isinstance(op, Complete) else op

    patch(Coordinator, "_next", next_)


def complete_without_prepared(patch: Patch) -> None:
    original = Term.enter

    def enter(self: Term, t: Any, phase: Phase, instant: str | None = None) -> Any:
        if phase is not Phase.PREPARED:
            return original(self, t, phase, instant)
        return ADVANCE[Phase.PREPARED](self, t)

    patch(Term, "enter", enter)


def roll_back_a_prepared_instant(patch: Patch) -> None:
    original = ADVANCE[Phase.PREPARED]

    def prepared(term: Term, t: Any) -> Any:
        return term.abort(t, "takeover") if t.header.epoch != term.epoch else original(term, t)

    patch(ADVANCE, Phase.PREPARED, prepared)  # type: ignore[arg-type]


def old_answers_accepted(patch: Patch) -> None:
    original = Coordinator._answered

    def answered(self: Coordinator, id: int, outcome: Any) -> None:
        original(self, self._term.outstanding.id if self._term.outstanding else id, outcome)

    patch(Coordinator, "_answered", answered)


def unknown_taken_for_done(patch: Patch) -> None:
    original = Coordinator.step

    def step(self: Coordinator, event: Any) -> Any:
        operation = self._term.outstanding.operation if self._term.outstanding else None
        if (
            isinstance(event, Answered)
            and isinstance(event.outcome, Unknown)
            and isinstance(operation, Write | Complete | RollBack)
        ):
            event = replace(event, outcome=Done())
        return original(self, event)

    patch(Coordinator, "step", step)


def after_before_the_commit(patch: Patch) -> None:
    original = Term.enter

    def enter(self: Term, t: Any, phase: Phase, instant: str | None = None) -> Any:
        op = original(self, t, phase, instant)
        if phase is Phase.PREPARED and isinstance(op, Write):
            settled = tree.shard_ops(self.keeper_view, transactions.settled(self.keeper_view.states, t.header, {}))
            return replace(op, ops=(*op.ops, *settled))
        return op

    patch(Term, "enter", enter)


def orphans_without_a_record(patch: Patch) -> None:
    def abort_orphans(term: Term) -> Any:
        recorded = {t.header.instant for t in term.open_transactions()} | {m.begun for m in term.progress.values()}
        orphan = next((i for i in term.table.orphans if i not in recorded), None) if term.table else None
        return RollBack(orphan) if orphan else None

    replace_rule(patch, opening.abort_orphans, abort_orphans)


def aborted_without_rollback(patch: Patch) -> None:
    patch(ADVANCE, Phase.ABORTED, lambda term, t: term.end(t))  # type: ignore[arg-type]


def two_are_written_at_once(patch: Patch) -> None:
    def start(term: Term) -> Any:
        for t in term.open_transactions():
            begun = term.progress_of(t.header.number).begun
            if t.header.phase is Phase.PLANNED and begun is not None:
                return term.enter(t, Phase.STARTED, instant=begun)
        return None

    replace_rule(patch, advance.start, start)


def settled_is_still_an_orphan(patch: Patch) -> None:
    original = Coordinator._done

    def done(self: Coordinator, operation: Any, value: Any) -> None:
        term = self._term
        orphans = term.table.orphans if term.table else ()
        original(self, operation, value)
        if isinstance(operation, Complete) and term.table is not None:
            term.table = replace(term.table, orphans=tuple({*orphans, operation.instant}))

    patch(Coordinator, "_done", done)


def rolled_back_taken_for_failed(patch: Patch) -> None:
    """The coordinator never aborts a PREPARED transaction, not even with proof that its instant is gone."""
    patch(ADVANCE, Phase.PREPARED, lambda *_: None)  # type: ignore[arg-type]


def status_without_a_fence(patch: Patch) -> None:
    def report(self: Participant, t: Any, status: Any) -> Any:
        *_, last = tree.status_ops(status)
        assert isinstance(last, Create)
        self._reporting = {(t.header.number, t.version)}
        return Write("write status", (last,))

    patch(Participant, "_report", report)


def failed_slices_reported_as_written(patch: Patch) -> None:
    original = Participant._status

    def status(self: Participant, operation: Any, outcome: Any) -> Any:
        status = original(self, operation, outcome)
        if status.failure is None:
            return status
        results = tuple(SliceResult(piece, piece.size, 0) for task in operation.tasks for piece in task.slices)
        reads = tuple(
            ReadRange(operation.cluster, piece.topic, piece.topic_id, piece.partition, piece.start, piece.end)
            for task in operation.tasks
            for piece in task.ranges
        )
        stats = tuple(map(stat_of, operation.tasks))
        return WriteStatus(status.number, status.incarnation, results, stats, reads=reads)

    patch(Participant, "_status", status)


def planned_though_halted(patch: Patch) -> None:
    original = opening.plan

    def plan(term: Term) -> Any:
        view = term.keeper_view
        term.view = without_halt = replace(view, halt=None)
        operation = original(term)
        if term.view is without_halt:
            term.view = view
        return operation

    replace_rule(patch, original, plan)


def term_not_checked(patch: Patch) -> None:
    original = housekeeping.resign_if_superseded

    def check(term: Term) -> Any:
        vars(term)["resign"] = lambda _reason: None
        original(term)
        del vars(term)["resign"]

    replace_rule(patch, original, check)


def epoch_from_zookeeper_alone(patch: Patch) -> None:
    original = housekeeping.raise_epoch

    def raise_epoch(term: Term) -> Any:
        if term.epoch is not None:
            return None
        table, term.table = term.table, None
        operation = original(term)
        term.table = table
        return operation

    replace_rule(patch, original, raise_epoch)


def file_left_out(patch: Patch) -> None:
    original = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = original(self)
        return replace(op, stats=op.stats[:-1]) if isinstance(op, Complete) and self._term.requests % 2 else op

    patch(Coordinator, "_next", next_)


def operations_without_columns(kind: type[Any]) -> Callable[[Patch], None]:
    owner = Coordinator if kind is Complete else Participant

    def apply(patch: Patch) -> None:
        original = owner._next

        def next_(self: Any) -> Any:
            op = original(self)
            return replace(op, columns="") if isinstance(op, kind) else op

        patch(owner, "_next", next_)

    return apply


def compared_once_a_term(patch: Patch) -> None:
    original = housekeeping.sync_with_table

    def sync_with_table(term: Term) -> Any:
        return original(term) if term.checkpoint_seen is None else None

    replace_rule(patch, original, sync_with_table)


def any_configuration_may_join(patch: Patch) -> None:
    patch(Process, "_fits", lambda self: True)  # noqa: ARG005


def committed_though_records_are_lost(patch: Patch) -> None:
    patch(Term, "inconsistency", lambda *_: None)


def nothing_forgotten(patch: Patch) -> None:
    class Undeletable(dict):  # type: ignore[type-arg]
        def __delitem__(self, key: object) -> None:
            pass

    original = Term.__init__

    def init(self: Term, config: Any) -> None:
        original(self, config)
        self.progress = Undeletable()

    patch(Term, "__init__", init)


def table_as_read_before_the_epoch(patch: Patch) -> None:
    original = Coordinator._written

    def written(self: Coordinator) -> None:
        table = self._term.table
        original(self)
        self._term.table = table

    patch(Coordinator, "_written", written)


def existing_file_ids_not_checked(patch: Patch) -> None:
    original = Term.progress_of

    def progress_of(self: Term, number: int) -> Any:
        progress = original(self, number)
        progress.files_checked = True
        return progress

    patch(Term, "progress_of", progress_of)


def leadership_kept_though_nothing_works(patch: Patch) -> None:
    patch(Backoff, "exhausted", lambda self: None)  # noqa: ARG005


def admission_not_heard(patch: Patch) -> None:
    def admitted(self: Coordinator, granted: bool) -> None:
        self._term.is_admitted = False

    patch(Coordinator, "_admitted", admitted)
