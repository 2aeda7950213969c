"""Takes each open transaction to its next phase: RFC-32's steps, one function for each phase.

PLANNED begins the instant and waits until no other is being written, STARTED waits for the write statuses and decides,
PREPARED completes that very instant, COMMITTED settles, ABORTED rolls back first. `coordination.state.phases` lists the
steps that are allowed.
"""

from __future__ import annotations

from collections.abc import Callable

from coordination.machines import transactions
from coordination.machines.term import Term
from coordination.state import tree
from coordination.state.failures import Halt, HaltKind
from coordination.state.messages import Begin, Complete, FindExistingFiles, Operation, RollBack
from coordination.state.model import InstantState, Phase
from coordination.state.tree import Transaction


def abort_superseded(term: Term) -> Operation | None:
    """Aborts undecided transactions of an older epoch, and those that were to follow an aborted one."""
    aborted: int | None = None
    for transaction in term.open_transactions():
        header = transaction.header
        if header.phase is Phase.ABORTED:
            aborted = header.number
        elif header.phase in (Phase.PLANNED, Phase.STARTED):
            if header.epoch != term.epoch:
                return term.abort(transaction, f"epoch {term.epoch} has followed epoch {header.epoch}")
            if aborted is not None:
                return term.abort(transaction, f"transaction {aborted} before it was aborted")
    return None


def start(term: Term) -> Operation | None:
    """Lets workers write one transaction while the one before it commits, but never two: they would share the cores. It
    precedes `advance`, because a commit takes long, and the coordinator does nothing else until it has ended."""
    for transaction in term.open_transactions():
        header = transaction.header
        if header.phase is Phase.STARTED:
            return None
        if header.phase is Phase.PLANNED:
            begun = term.progress_of(header.number).begun
            return None if begun is None else term.enter(transaction, Phase.STARTED, instant=begun)
    return None


def begin_ahead(term: Term) -> Operation | None:
    """Begins the next transaction before the written one commits. It tries once: a Begin that fails must not keep the
    commit waiting, and `advance` tries again."""
    for transaction in term.open_transactions():
        if transaction.header.phase is Phase.PLANNED and not term.progress_of(transaction.header.number).begin_failed:
            return _planned(term, transaction)
    return None


def advance(term: Term) -> Operation | None:
    """Takes each open transaction, oldest first, to its next phase."""
    for transaction in term.open_transactions():
        operation = ADVANCE[transaction.header.phase](term, transaction)
        if operation is not None:
            return operation
    return None


def _planned(term: Term, t: Transaction) -> Operation | None:
    if term.progress_of(t.header.number).begun is None:
        return Begin(t.header.number, t.header.epoch)
    return None


def _started(term: Term, t: Transaction) -> Operation | None:
    progress = term.progress_of(t.header.number)
    if progress.refused is not None:
        return term.abort(t, progress.refused)
    if progress.started_at is None or term.store_is_faulty:
        # The deadline is for participants that hang: it runs anew once the store is well.
        progress.started_at = term.at
    members = {member.incarnation for member in term.keeper_view.members}
    match transactions.readiness(t, members, term.at - progress.started_at):
        case transactions.MustAbort() as verdict:
            term.worker_health.blame(verdict.blamed, term.at)
            return term.abort(t, verdict.reason, verdict.failure)
        case transactions.AllReported():
            if (excess := term.config.errors.exceeded(t.statuses.values())) is not None:
                return term.abort(t, excess.reason, excess)
            if not progress.files_checked:
                return FindExistingFiles(t.header.number, transactions.stats(t), t.plan.all_tasks)
            # The one before it may be PREPARED and halted: nothing follows it then.
            if t is not term.open_transactions()[0]:
                return None
            if (inconsistency := term.inconsistency(t)) is not None:
                return term.abort(t, inconsistency)
            if (change := transactions.changed_log(t, term.keeper_view.states)) is not None:
                return term.abort(t, change.reason, change)
            if (change := transactions.changed_schema(t, term.table_view.checkpoint)) is not None:
                return term.abort(t, change.reason, change)
            return term.enter(t, Phase.PREPARED)
        case _:
            return None


def _prepared(term: Term, t: Transaction) -> Operation | None:
    assert t.header.instant is not None
    assert term.keeper_view.info is not None
    progress = term.progress_of(t.header.number)
    match term.table_view.instants.get(t.header.instant, InstantState.PENDING):
        case InstantState.COMPLETED:
            return term.enter(t, Phase.COMMITTED)
        case InstantState.ROLLED_BACK:
            return term.abort(t, "its instant was rolled back by somebody else")
        case InstantState.ABSENT:
            return term.halt(
                Halt(
                    HaltKind.TABLE_BEHIND,
                    f"transaction {t.header.number} is PREPARED, but its instant {t.header.instant} is not on"
                    " the timeline: the table was restored or deleted. Decide with `sink reset`.",
                    at=term.wall,
                )
            )
    if progress.refused is not None:
        return term.abort(t, progress.refused)
    if (inconsistency := term.inconsistency(t)) is not None:
        reason = f"transaction {t.header.number} is PREPARED, but {inconsistency}. {tree.REMEDY}"
        return term.halt(Halt(HaltKind.ZNODES_GONE, reason, at=term.wall))
    checkpoint = transactions.checkpoint(
        t,
        term.keeper_view.states,
        term.keeper_view.info,
        term.keeper_view.ledger.gaps,
        term.config.sink,
        term.raised_epoch,
        term.table_view.checkpoint,
    )
    return Complete(
        t.header.instant,
        t.header.number,
        term.keeper_view.epoch_version,
        t.version,
        transactions.stats(t),
        checkpoint,
        t.header.columns,
        errors=transactions.errors(t),
        attempt=t.header.attempt,
    )


def _committed(term: Term, t: Transaction) -> Operation | None:
    term.worker_health.note_commit(t.plan)
    term.failures_by_servers = 0
    progress = term.progress_of(t.header.number)
    if not progress.accounted:
        progress.accounted = True
        term.batch_sizes.note_commit(transactions.size(t), sum(piece.size for piece in t.plan))
    return term.end(t)


def _aborted(term: Term, t: Transaction) -> Operation | None:
    if term.table_view.instants.get(t.header.instant or "") is InstantState.COMPLETED:
        # Only after ZooKeeper lost the PREPARED record of a commit that was under way. The table is the truth.
        return term.end(t)
    if t.header.instant is not None and t.header.instant not in term.rolled_back:
        return RollBack(t.header.instant)
    return term.end(t)


ADVANCE: dict[Phase, Callable[[Term, Transaction], Operation | None]] = {
    Phase.PLANNED: _planned,
    Phase.STARTED: _started,
    Phase.PREPARED: _prepared,
    Phase.COMMITTED: _committed,
    Phase.ABORTED: _aborted,
}
