"""Operators' requests through ZooKeeper, and the coordinator's answers: pause, flush, switchover and drain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import Conflict
from coordination.planning.offsets import DataLossPolicy
from coordination.state import tree
from coordination.state.control import Control, RequestAuthor, Switchover
from coordination.state.failures import Halt, HaltKind
from coordination.state.messages import Begin, ReadLog, Write
from coordination.state.model import Phase, TopicPartition, WorkerState
from coordination.zookeeper.worker_records import HostedRecord, WorkerRecord
from sink.operations.control import NoSuchWorker, SinkControl, switchover_outcome
from sink.operations.observed_sink import observed_sink
from tests.unit.machine_kit import SOURCE, Driver, Environment, new_term
from tests.unit.settings_kit import minimal_settings

ME = RequestAuthor("me@host", 1.0, "maintenance")


@pytest.fixture
def env() -> Environment:
    return Environment()


def ask(env: Environment, control: Control, *drivers: Driver) -> None:
    """Writes the control znode as a command does, and fires the watches of these machines."""
    env.keeper.write([tree.control_op(env.view, control)])
    for driver in drivers:
        driver.keeper_changed()


def commit_open(env: Environment, term: Driver, number: int = 1) -> None:
    """Writes and settles the open transaction."""
    term.until(Begin)
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    env.report(number)
    term.keeper_changed()
    term.until("settle")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()


def run_for(term: Driver, seconds: float = 20.0) -> None:
    for _ in range(int(seconds * 4)):
        term.idle()
        term.tick(0.25)


def test_a_paused_sink_plans_nothing_until_it_is_resumed(env: Environment) -> None:
    ask(env, Control().pause(ME))
    term = new_term(env)
    run_for(term)
    assert env.view.transactions == ()
    ask(env, env.view.control.resume(), term)
    term.until(Begin)
    assert env.phase() is Phase.PLANNED


@pytest.mark.parametrize("why", ["paused", "halted"])
def test_what_comes_while_nothing_is_planned_is_still_looked_at(env: Environment, why: str) -> None:
    """Operators see which records wait, and how long Kafka keeps them."""
    if why == "paused":
        ask(env, Control().pause(ME))
    else:
        env.keeper.write((tree.Create(tree.HALT, tree.halt_data(Halt(HaltKind.OTHER, "no"))),))
    term = new_term(env)
    for end in (100, 200):
        env.log.partitions[SOURCE].end = end
        term.until(ReadLog)
        read = term.perform(term.requested_operation)  # type: ignore[arg-type]
        assert read.value.partitions[SOURCE].end == end  # type: ignore[union-attr]
        term.answer(read)
        run_for(term, 1.0)
    assert env.view.transactions == ()


def test_a_transaction_that_is_open_when_the_sink_is_paused_is_committed(env: Environment) -> None:
    term = new_term(env)
    term.until(Begin)
    ask(env, Control().pause(ME), term)
    commit_open(env, term)
    run_for(term)
    assert (env.view.ledger.committed, env.view.transactions) == (1, ())
    assert env.view.states[SOURCE].end == 50


def test_a_plan_that_was_made_before_a_pause_is_refused_after_it(env: Environment) -> None:
    term = new_term(env)
    term.until("open a transaction")
    ask(env, Control().pause(ME))
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    run_for(term)
    assert env.view.transactions == ()
    assert term.resigned is None


def test_a_recorded_batch_is_not_tried_again_while_the_sink_is_paused(env: Environment) -> None:
    term = new_term(env)
    term.until(Begin)
    ask(env, Control().pause(ME))
    successor = new_term(env, "b:1")
    run_for(successor)
    assert (env.view.transactions, env.table.pending()) == ((), ())
    (open_range,) = env.view.states[SOURCE].open
    ask(env, env.view.control.resume(), successor)
    successor.until(Begin)
    assert env.view.states[SOURCE].open == (open_range,)


def test_an_instant_of_nobody_is_rolled_back_while_the_sink_is_paused(env: Environment) -> None:
    ask(env, Control().pause(ME))
    env.table.begin(7, 1, None)
    run_for(new_term(env))
    assert env.table.pending() == ()


def test_a_flush_is_planned_before_the_interval_has_passed_and_answered_when_all_is_committed(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 10
    term = new_term(env)
    commit_open(env, term)
    env.log.partitions[SOURCE].end = 12
    ask(env, env.view.control.ask_flush(ME), term)
    term.until(Begin)
    assert term.at < 1.0, "the interval"
    assert env.view.control.flush.is_pending
    commit_open(env, term, 2)
    assert (env.view.states[SOURCE].end, env.view.control.flush.done) == (12, 1)


def test_a_flush_of_more_than_a_transaction_takes_on_is_answered_after_the_last_of_them(env: Environment) -> None:
    term = new_term(env)
    ask(env, env.view.control.ask_flush(ME), term)
    commit_open(env, term)
    assert (env.view.states[SOURCE].end, env.view.control.flush.done) == (50, 0)
    commit_open(env, term, 2)
    assert (env.view.states[SOURCE].end, env.view.control.flush.done) == (100, 1)


def test_a_flush_where_nothing_is_there_is_answered_without_a_transaction(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 0
    term = new_term(env)
    ask(env, env.view.control.ask_flush(ME), term)
    run_for(term)
    assert (env.view.control.flush.done, env.view.ledger.last) == (1, 0)


def test_a_flush_that_is_asked_for_while_the_log_is_read_waits_for_another_reading(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 0
    term = new_term(env)
    term.until(ReadLog)
    empty = term.perform(term.requested_operation)  # type: ignore[arg-type]
    env.log.partitions[SOURCE].end = 5
    ask(env, env.view.control.ask_flush(ME), term)
    term.answer(empty)
    commit_open(env, term)
    assert (env.view.states[SOURCE].end, env.view.control.flush.done) == (5, 1)


def test_a_flush_that_one_term_has_not_answered_is_answered_by_the_next(env: Environment) -> None:
    term = new_term(env)
    ask(env, env.view.control.ask_flush(ME), term)
    term.until(Begin)
    env.log.partitions[SOURCE].end = 50
    successor = new_term(env, "b:1")
    successor.until(Begin)
    commit_open(env, successor, env.view.transactions[-1].header.number)
    run_for(successor)
    assert env.view.control.flush.done == 1


def term_after_data_loss(env: Environment, on_data_loss: DataLossPolicy) -> Driver:
    """Commits 50 records; Kafka deletes the remaining ones, and then an operator asks for a flush."""
    term = new_term(env, on_data_loss=on_data_loss)
    commit_open(env, term)
    env.log.delete_before(SOURCE, 100)
    ask(env, env.view.control.ask_flush(ME), term)
    run_for(term)
    return term


def test_a_flush_of_records_that_kafka_has_lost_is_answered_once_they_are_declared_a_gap(env: Environment) -> None:
    term_after_data_loss(env, DataLossPolicy.SKIP)
    assert (env.view.states[SOURCE].end, env.view.control.flush.done) == (100, 1)
    assert [(gap.start, gap.end) for gap in env.view.ledger.gaps] == [(50, 100)]


def test_a_flush_of_records_that_kafka_has_lost_is_not_answered_by_a_sink_that_halts_for_them(env: Environment) -> None:
    term_after_data_loss(env, DataLossPolicy.FAIL)
    assert env.view.halt is not None
    assert env.view.control.flush.is_pending


def test_a_flush_no_longer_waits_for_records_that_the_log_lost_at_its_end(env: Environment) -> None:
    term = new_term(env)
    ask(env, env.view.control.ask_flush(ME), term)
    commit_open(env, term)
    assert env.view.control.flush.is_pending
    env.log.truncate(SOURCE, 50)
    run_for(term)
    assert (env.view.states[SOURCE].end, env.view.control.flush.done) == (50, 1)


def test_a_flush_no_longer_waits_for_a_topic_that_was_deleted_since(env: Environment) -> None:
    deleted = TopicPartition("other", 0)
    env.log.add(deleted)
    env.log.partitions[deleted].end = 100
    term = new_term(env, pattern="orders|other")
    ask(env, env.view.control.ask_flush(ME), term)
    commit_open(env, term)
    assert env.view.control.flush.is_pending
    del env.log.ids["other"], env.log.partitions[deleted]
    commit_open(env, term, 2)
    run_for(term)
    assert env.view.control.flush.done == 1


def test_a_term_ends_when_the_tree_goes_back_to_before_a_flush(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 0
    term = new_term(env)
    ask(env, env.view.control.ask_flush(ME), term)
    run_for(term)
    ask(env, Control(), term)
    run_for(term)
    assert term.resigned == "the sink's tree is older than it was"


def test_a_flush_waits_while_the_sink_is_paused(env: Environment) -> None:
    ask(env, Control().pause(ME).ask_flush(ME))
    term = new_term(env)
    run_for(term)
    assert env.view.control.flush.is_pending
    ask(env, env.view.control.resume(), term)
    commit_open(env, term)
    assert env.view.control.flush.is_pending
    commit_open(env, term, 2)
    run_for(term, 1.0)
    assert not env.view.control.flush.is_pending
    assert env.view.ledger.committed == 2


def contend(env: Environment, worker: str) -> str:
    lock = env.keeper.contend(worker, env.sessions[worker])
    assert lock is not None
    return lock


def test_a_coordinator_that_is_asked_to_yield_finishes_what_is_open_plans_nothing_new_and_resigns(
    env: Environment,
) -> None:
    term = new_term(env)
    contend(env, "b:1")
    term.until(Begin)
    ask(env, env.view.control.ask_switchover(*env.view.contenders[0], ME), term)
    commit_open(env, term)
    assert term.resigned == "a switchover was asked for by me@host"
    assert (env.view.ledger.committed, env.view.transactions) == (1, ())


def test_the_next_coordinator_puts_a_switchover_away_that_was_for_the_one_before(env: Environment) -> None:
    term = new_term(env)
    contend(env, "b:1")
    ask(env, env.view.control.ask_switchover(*env.view.contenders[0], ME), term)
    term.idle()
    assert term.resigned is not None
    successor = new_term(env, "b:1")
    successor.until(Begin)
    assert env.view.control.switchover is None


def test_a_switchover_is_told_done_under_way_or_come_to_nothing(env: Environment) -> None:
    term = new_term(env)
    lock = contend(env, "b:1")
    leader = env.view.contenders[0]
    ask(env, env.view.control.ask_switchover(*leader, ME), term)
    assert switchover_outcome("orders", env.view, leader) is None
    env.keeper.write([tree.control_op(env.view, replace(env.view.control, switchover=None))])
    keeper_view = env.view
    ahead, behind = (lock, "b:1"), ("election/z", leader[1])
    handed_over = replace(keeper_view, contenders=(ahead, behind))
    assert switchover_outcome("orders", handed_over, leader) == "b coordinates sink orders, a did before"
    with pytest.raises(Conflict, match="no other worker is left"):
        switchover_outcome("orders", replace(keeper_view, contenders=(leader,)), leader)
    with pytest.raises(Conflict, match="a coordinates it again"):
        switchover_outcome("orders", replace(keeper_view, contenders=(behind, ahead)), leader)


def test_a_coordinator_without_a_successor_leads_on_and_puts_the_switchover_away(env: Environment) -> None:
    term = new_term(env)
    ask(env, env.view.control.ask_switchover(*env.view.contenders[0], ME), term)
    term.until(Begin)
    assert (term.resigned, env.view.control.switchover) == (None, None)


def test_a_halted_sinks_coordinator_yields_though_a_decided_transaction_is_open(env: Environment) -> None:
    term = new_term(env)
    contend(env, "b:1")
    term.until(Begin)
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    env.report()
    term.keeper_changed()
    term.until("PREPARED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    env.table.instants.clear()
    successor = new_term(env, "b:1")
    contend(env, "a:1")
    run_for(successor, 2.0)
    assert env.view.halt is not None
    ask(env, env.view.control.ask_switchover(*env.view.contenders[0], ME), successor)
    run_for(successor, 2.0)
    assert successor.resigned is not None
    assert env.phase() is Phase.PREPARED


def test_a_worker_that_was_asked_to_drain_is_given_no_task_and_shows_as_draining(env: Environment) -> None:
    alive = [member.incarnation for member in env.view.members]
    ask(env, Control().drain(["b:1"], alive, ME))
    assert [member.state for member in env.view.members] == [WorkerState.ACTIVE, WorkerState.DRAINING]
    new_term(env).until(Begin)
    assert set(env.transaction().plan.tasks) == {"a:1"}
    assert env.participant_view("b:1").asked_to_drain
    assert not env.participant_view("a:1").asked_to_drain


def test_a_coordinator_that_was_asked_to_drain_finishes_what_is_open_and_resigns(env: Environment) -> None:
    term = new_term(env)
    term.until(Begin)
    ask(env, Control().drain(["a:1"], ["a:1", "b:1"], ME), term)
    commit_open(env, term)
    assert term.resigned == "drained"


def test_requests_to_workers_that_are_gone_are_dropped_with_the_next_one() -> None:
    control = Control().drain(["a:1"], ["a:1", "b:1"], ME).drain(["b:1"], ["b:1", "c:1"], ME)
    assert set(control.drains) == {"b:1"}


def test_a_pause_that_stands_keeps_who_asked_first() -> None:
    assert Control().pause(ME).pause(replace(ME, by="other")).paused == ME


def test_an_answer_keeps_what_else_was_asked_for(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 0
    term = new_term(env)
    ask(env, Control(None, drains={"b:1": ME}, switchover=Switchover("election/x", "x:1", ME)).ask_flush(ME), term)
    run_for(term)
    control = env.view.control
    assert (control.flush.done, control.switchover, set(control.drains)) == (1, None, {"b:1"})
    answers = [
        effect for effect in term.effects if hasattr(effect, "operation") and isinstance(effect.operation, Write)
    ]
    assert [answer.operation.purpose for answer in answers].count("answer an operator") == 2


@pytest.mark.parametrize(
    ("state", "draining", "error"),
    [
        ("waiting", False, Conflict),
        ("hanging", False, Conflict),
        ("opening", False, Conflict),
        ("waiting", True, NoSuchWorker),
        ("refused", False, NoSuchWorker),
        ("ended", False, NoSuchWorker),
    ],
)
def test_a_drain_says_that_a_worker_stays_which_joins_only_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, draining: bool, error: type[Exception]
) -> None:
    hosted = {"orders": HostedRecord(state, leads=False, reason="the registry is away")}
    records = (
        WorkerRecord("w1", "host", 1, "1", False, {"orders": HostedRecord("joined", leads=True)}),
        WorkerRecord("w2", "host", 2, "1", draining, hosted),
    )
    monkeypatch.setattr("sink.operations.control.worker_records", lambda *_: records)
    client: Any = None
    sink = SinkControl(observed_sink(minimal_settings(tmp_path)), client, "me")
    view = SimpleNamespace(members=(), control=Control())
    monkeypatch.setattr(sink, "_read", lambda: view)
    with pytest.raises(error, match="w2") as caught:
        sink.drain("w2")
    assert type(caught.value) is error
    assert ("the registry is away" in str(caught.value)) == (error is Conflict)
