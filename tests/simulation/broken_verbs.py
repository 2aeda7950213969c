"""Ways to break a coordinator's answers to operators' requests."""

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
    _plan_with(patch, lambda requests: replace(requests, paused=None))


def planned_though_asked_to_yield(patch: Patch) -> None:
    _plan_with(patch, lambda requests: replace(requests, switchover=None))


def _plan_with(patch: Patch, change: Any) -> None:
    """The coordinator plans as if one request had not been made."""
    original = opening.plan

    def plan(term: Term) -> Any:
        view = term.keeper_view
        term.view = changed = replace(view, control=change(view.control))
        operation = original(term)
        if term.view is changed:
            term.view = view
        return operation

    replace_rule(patch, original, plan)


def opened_on_an_older_reading(patch: Patch) -> None:
    """The coordinator does not check whether an operator has made a request since its reading."""
    original = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = original(self)
        if isinstance(op, Write):
            return replace(op, ops=tuple(o for o in op.ops if not (isinstance(o, Check) and o.path == tree.CONTROL)))
        return op

    patch(Coordinator, "_next", next_)


def pause_stops_what_is_open(patch: Patch) -> None:
    original = advance.advance

    def advance_(term: Term) -> Any:
        return None if term.keeper_view.control.paused is not None else original(term)

    replace_rule(patch, original, advance_)


def new_term_forgets_the_pause(patch: Patch) -> None:
    original = control.answer_requests

    def answer(term: Term) -> Any:
        requests = term.keeper_view.control
        if requests.paused is not None:
            return term.fence_and_queue(writes.control(term.keeper_view, requests.resume()))
        return original(term)

    replace_rule(patch, original, answer)


def answer_overwrites_the_rest(patch: Patch) -> None:
    """An answer to one request drops the others."""
    original = writes.control

    def control_(view: Any, answered: Control) -> Any:
        return original(view, Control(flush=answered.flush, switchover=answered.switchover))

    patch(writes, "control", control_)


def answer_whatever_the_version(patch: Patch) -> None:
    """An answer overwrites a request that is made at the same moment."""
    original = Coordinator._next

    def next_(self: Coordinator) -> Any:
        op = original(self)
        if isinstance(op, Write):
            unversioned = (
                replace(o, version=-1) if isinstance(o, tree.Set) and o.path == tree.CONTROL else o for o in op.ops
            )
            return replace(op, ops=tuple(unversioned))
        return op

    patch(Coordinator, "_next", next_)


def flush_waits_for_the_interval(patch: Patch) -> None:
    patch(control, "is_flushing", lambda term: False)  # noqa: ARG005


def flush_done_once_planned(patch: Patch) -> None:
    original = control._with_done_flush

    def done(term: Term, requests: Control) -> Control:
        view = term.keeper_view
        planned = {source: replace(state, end=state.planned_end, open=()) for source, state in view.states.items()}
        term.view = replace(view, states=planned)
        try:
            return original(term, requests)
        finally:
            term.view = view

    patch(control, "_with_done_flush", done)


def flush_of_an_older_reading(patch: Patch) -> None:
    """The coordinator takes a reading of the log from before it saw the flush for a later one."""

    def from_any_reading(term: Term, log: Any) -> None:
        flush = term.keeper_view.control.flush
        newest_handled = flush.done if term.flush_target is None else max(flush.done, term.flush_target.request)
        if flush.asked > newest_handled:
            ends = {source: partition.end for source, partition in log.partitions.items()}
            term.flush_target = FlushTarget(flush.asked, ends)

    patch(control, "set_flush_target", from_any_reading)


def flush_answered_at_once(patch: Patch) -> None:
    patch(control, "_with_done_flush", lambda _, requests: requests.with_flush_done(requests.flush.asked))


def flush_never_answered(patch: Patch) -> None:
    patch(control, "_with_done_flush", lambda _, requests: requests)


def tasks_for_workers_asked_to_leave(patch: Patch) -> None:
    patch(Control, "with_drain_state", lambda self, member: member)  # noqa: ARG005


def drain_request_ignored(patch: Patch) -> None:
    original = Process._see

    def see(self: Process) -> None:
        vars(self)["drain"] = lambda: None
        try:
            original(self)
        finally:
            del vars(self)["drain"]

    patch(Process, "_see", see)


def switchover_ignored(patch: Patch) -> None:
    original = control.reason_to_yield

    def reason(term: Term) -> Any:
        text = original(term)
        return None if text is not None and text.startswith("a switchover") else text

    patch(control, "reason_to_yield", reason)


def switchover_dropped(patch: Patch) -> None:
    patch(control, "_without_a_stale_switchover", lambda _, requests: replace(requests, switchover=None))


def switchover_never_dropped(patch: Patch) -> None:
    patch(control, "_without_a_stale_switchover", lambda _, requests: requests)
