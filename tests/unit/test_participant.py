"""What a participant writes and reports, and what it refuses to, event by event."""

from __future__ import annotations

import pytest

from coordination.machines.participant import Participant
from coordination.state import tree
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
from coordination.state.model import Failure, FailureKind, Phase
from coordination.state.reading import ParticipantViewReader
from coordination.state.tree import Check, Node
from tests.unit.machine_kit import Driver, Place, new_term


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def term(place: Place) -> Driver:
    term = new_term(place)
    term.until("STARTED")
    return term


@pytest.fixture
def worker(place: Place) -> Driver:
    return Driver(place, Participant("a:1"))


def start(term: Driver) -> None:
    term.answer(term.perform(term.asked))  # type: ignore[arg-type]
    term.idle()


def abort(place: Place, term: Driver) -> None:
    """The other participant dies."""
    place.keeper.expire(place.sessions["b:1"])
    term.changed()
    term.until("ABORTED")
    term.answer(term.perform(term.asked))  # type: ignore[arg-type]


def test_nothing_is_written_before_the_transaction_is_started(term: Driver, worker: Driver) -> None:
    worker.seen()
    assert worker.asked is None
    start(term)
    worker.seen()
    assert isinstance(worker.asked, WriteTasks)


def test_exactly_the_tasks_of_its_incarnation_are_written(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    assert isinstance(worker.asked, WriteTasks)
    assert worker.asked.tasks == place.transaction().plan.tasks["a:1"]


def test_a_status_is_created_only_under_the_header_that_was_read(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    report = worker.until("write status")
    assert report.ops[0] == Check(tree.header_path(1), place.transaction().version)
    assert Check(tree.member_path("a:1"), -1) in report.ops


def test_a_status_that_arrives_after_the_abort_is_refused(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    worker.until("write status")
    abort(place, term)
    outcome = worker.perform(worker.asked)  # type: ignore[arg-type]
    assert isinstance(outcome, Refused)
    worker.answer(outcome)
    worker.seen()
    assert worker.asked is None
    assert place.transaction().statuses == {}


def test_tasks_of_an_aborted_transaction_are_cancelled_and_never_reported(
    place: Place, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.seen()
    written = worker.perform(worker.asked)  # type: ignore[arg-type]
    abort(place, term)
    assert any(isinstance(effect, Cancel) for effect in worker.seen())
    worker.answer(written)
    assert worker.asked is None


def test_the_next_write_waits_for_the_cancelled_one(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    abort(place, term)
    term.until("STARTED")
    start(term)
    worker.seen()
    assert isinstance(worker.asked, WriteTasks)
    assert worker.asked.number == 1
    worker.answer(Failed("cancelled"))
    assert isinstance(worker.asked, WriteTasks)
    assert worker.asked.number == 2


def test_an_answer_to_an_older_request_is_dropped(term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    assert worker.request is not None
    worker.step(Answered(0.0, worker.request.id - 1, Done()))
    assert worker.notes("answer.dropped")
    assert isinstance(worker.asked, WriteTasks)


@pytest.mark.parametrize("outcome", [Failed("disk full"), Unknown("the JVM went away")])
def test_a_failed_write_is_reported_as_a_failure(
    place: Place, term: Driver, worker: Driver, outcome: Failed | Unknown
) -> None:
    start(term)
    worker.seen()
    worker.answer(outcome)
    worker.idle()
    failure = place.transaction().statuses["a:1"].failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.RETRYABLE, outcome.reason)
    term.changed()
    term.until("ABORTED")


def test_a_bad_record_halts_the_sink_and_names_it(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    worker.answer(Failed("bad", Failure(FailureKind.BAD_RECORD, "not JSON", "orders", 0, 17)))
    worker.idle()
    term.changed()
    term.until("ABORTED")
    term.answer(term.perform(term.asked))  # type: ignore[arg-type]
    assert place.view.halt is not None
    assert (place.view.halt.topic, place.view.halt.partition, place.view.halt.offset) == ("orders", 0, 17)
    assert place.phase() is Phase.ABORTED


def test_a_status_of_unknown_outcome_is_created_again_and_counts_once(
    place: Place, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.seen()
    worker.until("write status")
    worker.perform(worker.asked)  # type: ignore[arg-type]
    worker.answer(Unknown("no answer"))
    worker.seen()
    worker.tick(60.0)
    worker.idle()
    assert list(place.transaction().statuses) == ["a:1"]
    assert sum(isinstance(getattr(e, "operation", None), WriteTasks) for e in worker.said) == 1


def test_a_participant_whose_member_znode_is_gone_resigns(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    place.keeper.expire(place.sessions["a:1"])
    effects = worker.seen()
    assert worker.resigned is not None
    assert any(isinstance(effect, Cancel) for effect in effects)
    assert worker.tick(1.0) == []


def test_a_status_of_a_dead_incarnation_is_refused(place: Place, term: Driver, worker: Driver) -> None:
    start(term)
    worker.seen()
    worker.until("write status")
    place.keeper.expire(place.sessions["a:1"])
    assert isinstance(worker.perform(worker.asked), Refused)  # type: ignore[arg-type]


def test_a_draining_participant_reports_what_it_was_given_before_it_leaves(
    place: Place, term: Driver, worker: Driver
) -> None:
    start(term)
    worker.seen()
    worker.step(Drain(0.0))
    assert worker.resigned is None
    worker.until("write status")
    worker.answer(worker.perform(worker.asked))  # type: ignore[arg-type]
    worker.seen()
    assert worker.resigned == "drained"
    assert "a:1" in place.transaction().statuses


def test_a_plan_that_is_not_the_header_s_is_not_written(place: Place, term: Driver, worker: Driver) -> None:
    """A reading can be torn: the header of one moment, the plan of another."""
    start(term)
    torn = dict(place.keeper.snapshot(place.keeper.latest))
    torn[tree.plan_path(1, "a:1")] = Node(b"of another plan", 0)
    worker.step(ParticipantViewSeen(0.0, ParticipantViewReader("a:1").read(torn)))
    assert worker.asked is None
    worker.step(Drain(0.0))
    assert worker.resigned is None, "it may well be wanted"
    worker.seen()
    assert isinstance(worker.asked, WriteTasks)
