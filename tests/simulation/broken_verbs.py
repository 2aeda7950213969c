"""Ways to break what a coordinator does for operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.machines import advance, control, opening, writes
from coordination.machines.coordinator import Coordinator
from coordination.machines.term import FlushTarget, Term
from coordination.state import tree
from coordination.state.control import Control
from coordination.state.messages import Write
from coordination.state.tree import Check
from tests.simulation.broken_decisions import Patch
from tests.simulation.broken_machines import replace_rule
from tests.simulation.process import Process


def planned_though_paused(patch: Patch) -> None:
    _plan_with(patch, lambda known: replace(known, paused=None))


def planned_though_asked_to_yield(patch: Patch) -> None:
    _plan_with(patch, lambda known: replace(known, switchover=None))


def _plan_with(patch: Patch, change: Any) -> None:
    """The coordinator plans as if something had not been asked for."""
    usual = opening.plan

    def plan(term: Term) -> Any:
        seen = term.keeper_view
        term.view = blind = replace(seen, control=change(seen.control))
        operation = usual(term)
        if term.view is blind:
            term.view = seen
        return operation

    replace_rule(patch, usual, plan)


def opened_on_an_older_reading(patch: Patch) -> None:
    """Nobody looks whether an operator has asked for something since."""
    usual = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = usual(self)
        if isinstance(op, Write):
            return replace(op, ops=tuple(o for o in op.ops if not (isinstance(o, Check) and o.path == tree.CONTROL)))
        return op

    patch(Coordinator, "_next", next_)


def pause_stops_what_is_open(patch: Patch) -> None:
    usual = advance.advance

    def advance_(term: Term) -> Any:
        return None if term.keeper_view.control.paused is not None else usual(term)

    replace_rule(patch, usual, advance_)


def new_term_forgets_the_pause(patch: Patch) -> None:
    usual = control.answer_requests

    def answer(term: Term) -> Any:
        known = term.keeper_view.control
        if known.paused is not None:
            return term.fence_and_queue(writes.control(term.keeper_view, known.resume()))
        return usual(term)

    replace_rule(patch, usual, answer)


def answer_overwrites_the_rest(patch: Patch) -> None:
    """An answer to one request drops the others."""
    usual = writes.control

    def control_(view: Any, answered: Control) -> Any:
        return usual(view, Control(flush=answered.flush, switchover=answered.switchover))

    patch(writes, "control", control_)


def answer_whatever_the_version(patch: Patch) -> None:
    """A request that is made at the same moment is overwritten."""
    usual = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = usual(self)
        if isinstance(op, Write):
            loose = (
                replace(o, version=-1) if isinstance(o, tree.Set) and o.path == tree.CONTROL else o for o in op.ops
            )
            return replace(op, ops=tuple(loose))
        return op

    patch(Coordinator, "_next", next_)


def flush_waits_for_the_interval(patch: Patch) -> None:
    patch(control, "is_flushing", lambda term: False)  # noqa: ARG005


def flush_done_once_planned(patch: Patch) -> None:
    usual = control._with_done_flush

    def done(term: Term, known: Control) -> Control:
        view = term.keeper_view
        planned = {source: replace(state, end=state.planned_end, open=()) for source, state in view.states.items()}
        term.view = replace(view, states=planned)
        try:
            return usual(term, known)
        finally:
            term.view = view

    patch(control, "_with_done_flush", done)


def flush_of_an_older_reading(patch: Patch) -> None:
    """A reading of the log that was asked for before the flush was seen is taken for one that was asked for after."""

    def from_any_reading(term: Term, log: Any) -> None:
        flush = term.keeper_view.control.flush
        known = flush.done if term.flush_target is None else max(flush.done, term.flush_target.request)
        if flush.asked > known:
            ends = {source: partition.end for source, partition in log.partitions.items()}
            term.flush_target = FlushTarget(flush.asked, ends)

    patch(control, "set_flush_target", from_any_reading)


def flush_answered_at_once(patch: Patch) -> None:
    patch(control, "_with_done_flush", lambda term, known: known.flushed(known.flush.asked))  # noqa: ARG005


def flush_never_answered(patch: Patch) -> None:
    patch(control, "_with_done_flush", lambda term, known: known)  # noqa: ARG005


def tasks_for_who_was_asked_to_leave(patch: Patch) -> None:
    patch(Control, "marked", lambda self, member: member)  # noqa: ARG005


def drain_request_ignored(patch: Patch) -> None:
    usual = Process._see

    def see(self: Process) -> None:
        vars(self)["drain"] = lambda: None
        try:
            usual(self)
        finally:
            del vars(self)["drain"]

    patch(Process, "_see", see)


def switchover_ignored(patch: Patch) -> None:
    usual = control.reason_to_yield

    def reason(term: Term) -> Any:
        found = usual(term)
        return None if found is not None and found.startswith("a switchover") else found

    patch(control, "reason_to_yield", reason)


def switchover_dropped(patch: Patch) -> None:
    patch(control, "_without_a_stale_switchover", lambda term, known: replace(known, switchover=None))  # noqa: ARG005


def switchover_never_dropped(patch: Patch) -> None:
    patch(control, "_without_a_stale_switchover", lambda term, known: known)  # noqa: ARG005
