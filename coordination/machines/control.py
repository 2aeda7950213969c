"""Serves operators: the coordinator plans nothing while the sink is paused, commits at once for a flush, and ends its
term for a switchover or a drain.

Guarantee: an operator's request ends no open transaction, and delays no recovery. It only decides whether and when the
coordinator opens the next transaction. For a flush the coordinator reads the log once more; it answers when all offsets
of that reading are AFTER.
"""

from __future__ import annotations

from dataclasses import replace

from coordination.machines import writes
from coordination.machines.term import FlushTarget, Term
from coordination.state.control import Control
from coordination.state.messages import Operation
from coordination.state.model import LogView, Phase


def answer_requests(term: Term) -> Operation | None:
    """Answers a flush that is done, and drops a switchover that is not for this term, or has no worker to take over."""
    control = term.keeper_view.control
    answered = _without_a_stale_switchover(term, _with_done_flush(term, control))
    if answered == control:
        return None
    term.note("control.answered", flushes=answered.flush.done, pending=answered.flush.is_pending)
    return term.fence_and_queue(writes.control(term.keeper_view, answered))


def reason_to_yield(term: Term) -> str | None:
    """Tells why this term has to end as soon as nothing is open; None while it may go on."""
    control = term.keeper_view.control
    if term.draining or term.config.incarnation in control.drains:
        return "drained"
    switchover = control.switchover
    if switchover is not None and switchover.lock_path == term.config.lock_path and _has_successor(term):
        return f"a switchover was asked for by {switchover.author.by or 'somebody'}"
    return None


def end_term(term: Term, reason: str) -> None:
    """Resigns once nothing is open. A halted sink's PREPARED transaction waits for an operator."""
    open_transactions = term.open_transactions()
    waits = (
        bool(open_transactions)
        and term.keeper_view.halt is not None
        and open_transactions[0].header.phase is Phase.PREPARED
    )
    if not open_transactions or waits:
        term.resign(reason)


def set_flush_target(term: Term, log: LogView) -> None:
    """Remembers where the log ended, for a flush that was requested before that reading. Where Kafka has lost all
    unread records, the state is behind the end until the loss is declared a gap, or halts the sink. Topics that are
    gone or created again since, and offsets that a log lost at its end, are no longer waited for.
    """
    flush, target, states = term.keeper_view.control.flush, term.flush_target, term.keeper_view.states
    if target is not None:
        target = term.flush_target = target.still_there(log, states)
    answered_request = flush.done if target is None else max(flush.done, target.request)
    if term.flush_seen > answered_request:
        ends = {
            source: partition.end
            for source, partition in log.partitions.items()
            if partition.end > partition.start or source in states
        }
        topic_ids = {source.topic: log.partitions[source].topic_id for source in ends}
        term.flush_target = FlushTarget(term.flush_seen, ends, topic_ids)


def is_flushing(term: Term) -> bool:
    target = term.flush_target
    return target is not None and target.request > term.keeper_view.control.flush.done


def _with_done_flush(term: Term, control: Control) -> Control:
    target = term.flush_target
    if target is None or not is_flushing(term) or term.keeper_view.halt is not None:
        return control
    is_reached = target.is_reached(term.keeper_view.states)
    return control.with_flush_done(target.request) if is_reached else control


def _without_a_stale_switchover(term: Term, control: Control) -> Control:
    switchover = control.switchover
    if switchover is None or (switchover.lock_path == term.config.lock_path and _has_successor(term)):
        return control
    return replace(control, switchover=None)


def _has_successor(term: Term) -> bool:
    return len(term.keeper_view.contenders) > 1
