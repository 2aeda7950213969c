"""A participant writes and reports its own tasks and no other ones, event by event."""

from __future__ import annotations

import pytest

from coordination.machines.participant import Participant
from coordination.state import tree
from coordination.state.failures import Failure, FailureKind
from coordination.state.messages import (
    Answered,
    Cancel,
    Done,
    Drain,
    Failed,
    ParticipantViewSeen,
    Refused,
    Unknown,
    WriteTasks,
)
from coordination.state.model import Phase
from coordination.state.reading import ParticipantViewReader
from coordination.state.tree import Check, Node
from tests.unit.machine_kit import Driver, Environment, new_term


@pytest.fixture
def env() -> Environment:
    return Environment()


@pytest.fixture
def term(env: Environment) -> Driver:
    term = new_term(env)
    term.until("STARTED")
    return term


@pytest.fixture
def worker(env: Environment) -> Driver:
    return Driver(env, Participant("a:1"))


def start(term: Driver) -> None:
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()


def abort(env: Environment, term: Driver) -> None:
    """Ends the other participant's session, for which the coordinator aborts."""
    env.keeper.expire(env.sessions["b:1"])
    term.keeper_changed()
    term.until("ABORTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]


def test_nothing_is_written_before_the_transaction_is_started(term: Driver, worker: Driver) -> None:
    worker.see_participant_view()
    assert worker.requested_operation is None
    start(term)
    worker.see_participant_view()
    assert isinstance(worker.requested_operation, WriteTasks)


def test_exactly_the_tasks_of_its_incarnation_are_written(env: Environment, term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    assert isinstance(worker.requested_operation, WriteTasks)
    assert worker.requested_operation.tasks == env.transaction().plan.tasks["a:1"]


def test_a_status_is_created_only_under_the_header_that_was_read(
    env: Environment, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.see_participant_view()
    report = worker.until("write status")
    assert report.ops[0] == Check(tree.header_path(1), env.transaction().version)
    assert Check(tree.member_path("a:1"), -1) in report.ops


def test_a_status_that_arrives_after_the_abort_is_refused(env: Environment, term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    worker.until("write status")
    abort(env, term)
    outcome = worker.perform(worker.requested_operation)  # type: ignore[arg-type]
    assert isinstance(outcome, Refused)
    worker.answer(outcome)
    worker.see_participant_view()
    assert worker.requested_operation is None
    assert env.transaction().statuses == {}


def test_tasks_of_an_aborted_transaction_are_cancelled_and_never_reported(
    env: Environment, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.see_participant_view()
    written = worker.perform(worker.requested_operation)  # type: ignore[arg-type]
    abort(env, term)
    assert any(isinstance(effect, Cancel) for effect in worker.see_participant_view())
    worker.answer(written)
    assert worker.requested_operation is None


def test_the_next_write_waits_for_the_cancelled_one(env: Environment, term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    abort(env, term)
    term.until("STARTED")
    start(term)
    worker.see_participant_view()
    assert isinstance(worker.requested_operation, WriteTasks)
    assert worker.requested_operation.number == 1
    worker.answer(Failed("cancelled"))
    assert isinstance(worker.requested_operation, WriteTasks)
    assert worker.requested_operation.number == 2


def test_an_answer_to_an_older_request_is_dropped(term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    assert worker.request is not None
    worker.step(Answered(0.0, worker.request.id - 1, Done()))
    assert worker.notes("answer.dropped")
    assert isinstance(worker.requested_operation, WriteTasks)


@pytest.mark.parametrize("outcome", [Failed("disk full"), Unknown("the JVM went away")])
def test_a_failed_write_is_reported_as_a_failure(
    env: Environment, term: Driver, worker: Driver, outcome: Failed | Unknown
) -> None:
    start(term)
    worker.see_participant_view()
    worker.answer(outcome)
    worker.idle()
    failure = env.transaction().statuses["a:1"].failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.RETRYABLE, outcome.reason)
    term.keeper_changed()
    term.until("ABORTED")


def test_a_bad_record_halts_the_sink_and_names_it(env: Environment, term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    worker.answer(Failed("bad", Failure(FailureKind.BAD_RECORD, "not JSON", "orders", 0, 17)))
    worker.idle()
    term.keeper_changed()
    term.until("ABORTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    assert env.view.halt is not None
    assert (env.view.halt.topic, env.view.halt.partition, env.view.halt.offset) == ("orders", 0, 17)
    assert env.phase() is Phase.ABORTED


def test_a_status_of_unknown_outcome_is_created_again_and_counts_once(
    env: Environment, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.see_participant_view()
    worker.until("write status")
    worker.perform(worker.requested_operation)  # type: ignore[arg-type]
    worker.answer(Unknown("no answer"))
    worker.see_participant_view()
    worker.tick(60.0)
    worker.idle()
    assert list(env.transaction().statuses) == ["a:1"]
    assert sum(isinstance(getattr(effect, "operation", None), WriteTasks) for effect in worker.effects) == 1


def test_a_participant_whose_member_znode_is_gone_resigns(env: Environment, term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    env.keeper.expire(env.sessions["a:1"])
    effects = worker.see_participant_view()
    assert worker.resigned is not None
    assert any(isinstance(effect, Cancel) for effect in effects)
    assert worker.tick(1.0) == []


def test_a_status_of_a_dead_incarnation_is_refused(env: Environment, term: Driver, worker: Driver) -> None:
    start(term)
    worker.see_participant_view()
    worker.until("write status")
    env.keeper.expire(env.sessions["a:1"])
    assert isinstance(worker.perform(worker.requested_operation), Refused)  # type: ignore[arg-type]


def test_a_draining_participant_reports_what_it_was_given_before_it_leaves(
    env: Environment, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.see_participant_view()
    worker.step(Drain(0.0))
    assert worker.resigned is None
    worker.until("write status")
    worker.answer(worker.perform(worker.requested_operation))  # type: ignore[arg-type]
    worker.see_participant_view()
    assert worker.resigned == "drained"
    assert "a:1" in env.transaction().statuses


def test_a_plan_that_is_not_the_header_s_is_not_written(env: Environment, term: Driver, worker: Driver) -> None:
    """A reading can be torn: the header of one moment, the plan of another."""
    start(term)
    torn = dict(env.keeper.snapshot(env.keeper.latest))
    torn[tree.plan_path(1, "a:1")] = Node(b"of another plan", 0)
    worker.step(ParticipantViewSeen(0.0, ParticipantViewReader("a:1").read(torn)))
    assert worker.requested_operation is None
    worker.step(Drain(0.0))
    assert worker.resigned is None, "the tasks may still be wanted"
    worker.see_participant_view()
    assert isinstance(worker.requested_operation, WriteTasks)
