"""The coordinator makes the right request at each event, and concludes nothing that it does not know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.errors import Corrupt
from coordination.machines.pacing import MAX_CONSECUTIVE_FAILURES
from coordination.planning.planner import OpenBatch, next_step
from coordination.state import tree
from coordination.state.failures import Failure, FailureKind, HaltKind
from coordination.state.messages import (
    Answered,
    Begin,
    Complete,
    Done,
    Drain,
    Failed,
    FileCheck,
    FindExistingFiles,
    ReadKeeper,
    ReadLog,
    ReadTable,
    Refused,
    RollBack,
    StoreSeen,
    Unknown,
    Write,
)
from coordination.state.model import Checkpoint, InstantState, PartitionState, Phase, TopicPartition, WriteStatus
from coordination.state.tree import Check
from tests.unit.machine_kit import SOURCE, WORKERS, Driver, Environment, new_term


@pytest.fixture
def env() -> Environment:
    return Environment()


def test_every_write_is_fenced_by_the_lock_and_the_epoch(env: Environment) -> None:
    term = new_term(env)
    lock = env.view.contenders[0][0]
    term.until("open a transaction")
    for request in term.effects:
        operation = getattr(request, "operation", None)
        if isinstance(operation, Write):
            assert Check(lock, 0) in operation.ops
            assert any(op.path == tree.EPOCH for op in operation.ops)


def test_the_epoch_is_raised_before_anything_else_is_written(env: Environment) -> None:
    term = new_term(env)
    term.until(Write)
    assert isinstance(term.requested_operation, Write)
    assert term.requested_operation.purpose == "raise epoch"
    term.answer(term.perform(term.requested_operation))
    assert env.view.epoch == 1


def test_the_table_is_read_again_after_the_epoch_was_raised(env: Environment) -> None:
    term = new_term(env)
    term.until("raise epoch")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.until(ReadTable)


def test_an_epoch_that_the_table_shows_only_later_is_raised_above(env: Environment) -> None:
    """A commit was under way while ZooKeeper was emptied."""
    term = new_term(env)
    term.until("open a transaction")
    begun = env.table.begin(7, 5, None)
    assert isinstance(begun, Done)
    under_way = Checkpoint("orders", "keeper", "cluster-1", 5, 7, 0, "config", {}, {})
    assert env.table.complete(Complete(begun.value, 7, 0, 0, (), under_way)) == Done()
    term.answer(Unknown("no answer"))
    term.until("raise epoch")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    assert env.view.epoch == 6


def test_an_answer_to_an_older_request_is_dropped(env: Environment) -> None:
    term = new_term(env)
    term.until(Begin)
    assert term.request is not None
    term.step(Answered(term.at, term.request.id - 1, Done("i99999")))
    assert isinstance(term.requested_operation, Begin)
    assert term.notes("answer.dropped")
    term.until("STARTED")
    assert env.table.pending() == ("i00001",)


def test_an_unknown_begin_is_begun_again_and_the_first_instant_becomes_an_orphan(env: Environment) -> None:
    term = new_term(env)
    term.until(Begin)
    env.table.begin(1, 1, None)
    term.answer(Unknown("no answer"))
    term.until("settle")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    assert env.table.instants["i00001"].state is InstantState.ROLLED_BACK


def test_prepared_only_when_every_slice_is_accounted_for(env: Environment) -> None:
    term = new_term(env)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    env.report(incarnations=("a:1",))
    term.keeper_changed()
    term.idle()
    assert env.phase() is Phase.STARTED
    env.report(incarnations=("b:1",))
    term.keeper_changed()
    term.until("PREPARED")


def test_a_change_that_is_told_of_while_the_tree_is_being_read_is_read_too(env: Environment) -> None:
    term = new_term(env)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    older_view = term.perform(term.until(ReadKeeper))
    env.report()
    term.keeper_changed()
    term.answer(older_view)
    term.idle()
    assert env.view.ledger.committed == 1


def test_a_status_with_other_slices_than_planned_aborts(env: Environment) -> None:
    term = new_term(env)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    for incarnation in env.transaction().plan.slices:
        env.keeper.write(tree.status_ops(WriteStatus(1, incarnation)))
    term.keeper_changed()
    term.until("ABORTED")


def test_file_ids_that_the_table_holds_abort_and_halt(env: Environment) -> None:
    term = _all_written(env)
    term.until(FindExistingFiles)
    term.answer(Done(FileCheck(existing=("file-1",))))
    term.until("halt")


def test_an_instant_is_completed_only_after_prepared_was_acknowledged(env: Environment) -> None:
    term = _all_written(env)
    term.until("PREPARED")
    term.answer(Unknown("no answer"))
    term.until(Write)
    assert env.phase() is Phase.STARTED
    assert isinstance(term.requested_operation, Write)
    assert term.requested_operation.purpose == "PREPARED"


def test_a_prepared_that_was_read_back_is_completed(env: Environment) -> None:
    term = _all_written(env)
    term.until("PREPARED")
    term.perform(term.requested_operation)  # type: ignore[arg-type]
    term.answer(Unknown("no answer"))
    complete = term.until(Complete)
    assert complete.checkpoint.number == 1
    assert complete.checkpoint.ends[SOURCE].end == 50


def test_a_plan_that_comes_late_changes_nothing_of_a_commit_under_way(env: Environment) -> None:
    """A retried commit would contain the partition that the plan records: one instant would have two contents."""
    term = new_term(env, in_flight=2)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    new_partition = TopicPartition(SOURCE.topic, 1)
    env.log.add(new_partition)
    env.log.partitions[new_partition].end = 100
    late_plan = term.until("open a transaction")
    term.answer(Unknown("no answer"))
    env.report()
    term.keeper_changed()
    first_completion = term.until(Complete)
    assert isinstance(term.perform(late_plan), Refused)
    term.answer(Unknown("no answer"))
    assert term.until(Complete).checkpoint == first_completion.checkpoint


def test_an_unknown_completion_is_looked_up_never_guessed(env: Environment) -> None:
    term = _all_written(env)
    complete = term.until(Complete)
    env.table.complete(complete)
    term.answer(Unknown("no answer"))
    term.until(ReadTable)
    term.until("COMMITTED")
    assert len(env.table.commits) == 1


def test_a_failed_completion_is_tried_again_not_aborted(env: Environment) -> None:
    term = _all_written(env)
    term.until(Complete)
    term.answer(Failed("storage refused"))
    term.until(Complete)
    assert env.phase() is Phase.PREPARED


def test_who_can_no_longer_complete_lets_another_try(env: Environment) -> None:
    term = _all_written(env)
    env.keeper.contend("b:1", env.sessions["b:1"])
    _fail_to_complete(term, MAX_CONSECUTIVE_FAILURES)
    while term.resigned is None:
        assert not isinstance(term.requested_operation, Complete)
        term.tick(1.0) if term.requested_operation is None else term.answer(term.perform(term.requested_operation))
    assert "Complete keeps failing" in term.resigned
    assert env.phase() is Phase.PREPARED


def test_who_can_no_longer_complete_keeps_trying_while_nobody_else_is_there(env: Environment) -> None:
    term = _all_written(env)
    _fail_to_complete(term, MAX_CONSECUTIVE_FAILURES + 2)
    term.until(Complete)
    assert term.resigned is None


def _fail_to_complete(term: Driver, times: int) -> None:
    for _ in range(times):
        term.until(Complete)
        term.answer(Unknown("a class of this JVM is broken"))


def test_a_refused_completion_is_proof_and_aborts(env: Environment) -> None:
    term = _all_written(env)
    term.until(Complete)
    env.table.roll_back_by_others("i00001")
    term.answer(Refused("rolled back"))
    term.until("ABORTED")


def test_an_aborted_transaction_ends_only_once_its_rollback_is_confirmed(env: Environment) -> None:
    term = _started(env)
    env.keeper.expire(env.sessions["b:1"])
    term.keeper_changed()
    term.until(RollBack)
    term.answer(Unknown("no answer"))
    term.until(RollBack)
    assert env.phase() is Phase.ABORTED
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.until("settle")


def test_a_confirmed_rollback_is_remembered_when_zookeeper_changes_meanwhile(env: Environment) -> None:
    term = _started(env)
    env.keeper.expire(env.sessions["b:1"])
    term.keeper_changed()
    term.until(RollBack)
    term.keeper_changed()
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.until("settle")
    assert sum(isinstance(getattr(effect, "operation", None), RollBack) for effect in term.effects) == 1


def test_a_retry_re_forms_the_same_slices(env: Environment) -> None:
    term = _started(env)
    planned = sorted(env.transaction().plan)
    env.log.partitions[SOURCE].end = 300
    env.keeper.expire(env.sessions["b:1"])
    term.keeper_changed()
    term.until(Begin)
    assert sorted(env.transaction(2).plan) == planned
    assert env.transaction(2).header.attempt == 2


def test_the_parts_of_a_divided_batch_are_tried_by_two_workers_before_they_are_divided_in_turn(
    env: Environment,
) -> None:
    term = new_term(env)
    for _ in range(6):
        term.until("STARTED")
        term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
        transaction = env.view.transactions[0]
        for incarnation in transaction.plan.slices:
            failure = Failure(FailureKind.RETRYABLE, "no memory")
            env.keeper.write(tree.status_ops(WriteStatus(transaction.header.number, incarnation, failure=failure)))
        term.keeper_changed()
        term.until("ABORTED")
    opened = [(note["attempt"], note["offsets"]) for note in term.notes("transaction.opened")]
    assert opened == [(1, 50), (2, 50), (3, 50), (2, 28), (3, 28), (2, 14)]
    assert len(term.notes("batch.divided")) == 2


def test_a_batch_that_ran_out_of_memory_is_divided_before_its_next_attempt_and_its_tasks_are_halved(
    env: Environment,
) -> None:
    term = _started(env)
    largest = max(task.size for task in env.transaction().plan.all_tasks)
    failure = Failure(FailureKind.OUT_OF_MEMORY, "the heap is full")
    env.keeper.write(tree.status_ops(WriteStatus(1, "a:1", failure=failure)))
    term.keeper_changed()
    term.until(Begin)
    assert [note["attempt"] for note in term.notes("transaction.opened")] == [1, 2]
    assert max(task.size for task in env.view.transactions[-1].plan.all_tasks) <= largest // 2
    ranges = env.view.states[SOURCE].open
    assert [(r.task_records, r.step <= largest // 2) for r in ranges] == [(largest // 2, True)] * len(ranges)


def test_a_batch_is_never_divided_for_a_fault_of_the_store_and_waits_longer_each_time(env: Environment) -> None:
    term = new_term(env)
    pauses = []
    for _ in range(6):
        term.until("STARTED")
        term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
        transaction = env.view.transactions[0]
        for incarnation in transaction.plan.slices:
            failure = Failure(FailureKind.STORE_AWAY, "http://minio:9000 does not answer")
            env.keeper.write(tree.status_ops(WriteStatus(transaction.header.number, incarnation, failure=failure)))
        term.keeper_changed()
        term.until("ABORTED")
        machine = term.machine._term
        pauses.append(round(machine.next_poll - machine.at, 3))
    opened = [(note["attempt"], note["offsets"]) for note in term.notes("transaction.opened")]
    assert opened == [(1, 50)] * 6
    assert not term.notes("batch.divided")
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4]


def test_the_deadline_of_a_write_does_not_run_while_the_store_is_away(env: Environment) -> None:
    term = _started(env)
    timeout = env.transaction().header.timeout
    term.step(StoreSeen(term.at, faulty=True))
    for _ in range(5):
        term.tick(timeout)
    assert env.phase() is Phase.STARTED
    assert not term.notes("transaction.aborted")
    term.step(StoreSeen(term.at, faulty=False))
    term.tick(timeout / 2)
    assert not term.notes("transaction.aborted")
    term.tick(timeout)
    assert "no write status of" in term.notes("transaction.aborted")[0]["reason"]


def test_who_takes_over_from_a_coordinator_that_aborted_for_memory_divides_too(env: Environment) -> None:
    term = _started(env)
    failure = Failure(FailureKind.OUT_OF_MEMORY, "the heap is full")
    env.keeper.write(tree.status_ops(WriteStatus(1, "a:1", failure=failure)))
    term.keeper_changed()
    term.until("ABORTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    successor = new_term(env, "b:1")
    successor.until(Begin)
    assert successor.notes("batch.divided")


@pytest.mark.parametrize("mistake", ["a slice twice", "a slice not at all", "a slice of another"])
def test_a_report_that_is_not_one_of_each_slice_of_its_own_tasks_aborts(env: Environment, mistake: str) -> None:
    term = _started(env)
    transaction = env.transaction()
    altered_status, other_status = (
        env.write_status_of(transaction.header, name, transaction.plan.tasks[name]) for name in WORKERS
    )
    results = {
        "a slice twice": (*altered_status.results, altered_status.results[0]),
        "a slice not at all": altered_status.results[1:],
        "a slice of another": (*altered_status.results[1:], other_status.results[0]),
    }
    env.keeper.write(tree.status_ops(replace(altered_status, results=results[mistake])))
    env.keeper.write(tree.status_ops(other_status))
    term.keeper_changed()
    term.until("ABORTED")
    reason = term.notes("transaction.aborted")[0]["reason"]
    named_slice = altered_status.results[0].slice if mistake != "a slice of another" else other_status.results[0].slice
    assert "what was written is not what was planned" in reason
    assert str(named_slice) in reason


def test_a_file_that_none_of_the_planned_tasks_writes_aborts_and_does_not_halt(env: Environment) -> None:
    term = _all_written(env)
    term.until(FindExistingFiles)
    term.answer(Done(FileCheck(unplanned=("file-1",))))
    term.until("ABORTED")
    assert "file ids file-1" in term.notes("transaction.aborted")[0]["reason"]
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.until("open a transaction")
    assert env.view.halt is None


def test_a_plan_that_was_grouped_from_a_part_of_its_ranges_is_not_committed(env: Environment) -> None:
    term = _all_written(env)
    term.until(FindExistingFiles)
    state = env.view.states[SOURCE]
    (open_range,) = state.open
    enlarged = replace(state, open=(replace(open_range, task_records=(open_range.task_records or 0) + 50),))
    env.keeper.write([next(iter(tree.shard_ops(env.view, {SOURCE: enlarged})))])
    term.keeper_changed()
    term.until("ABORTED")
    assert term.notes("transaction.aborted")[0]["reason"] == "its write tasks are not those on record"


def test_nothing_is_planned_from_a_reading_that_is_not_whole(env: Environment) -> None:
    config = _started(env).machine._term.config  # type: ignore[union-attr]
    view = replace(env.view, transactions=(), states={})
    table, log = env.table.view(()), env.log.view((SOURCE.topic,))
    assert isinstance(next_step(view, table, log, config, config.limits, True), OpenBatch)
    assert next_step(replace(view, is_complete=False), table, log, config, config.limits, True) is None


def test_a_started_transaction_of_a_dead_coordinator_is_aborted(env: Environment) -> None:
    _started(env)
    term = new_term(env, "b:1")
    term.until("ABORTED")
    assert term.notes("transaction.aborted")[0]["reason"] == "epoch 2 has followed epoch 1"


def test_a_prepared_transaction_of_a_dead_coordinator_is_recommitted(env: Environment) -> None:
    _all_written(env).until(Complete)
    term = new_term(env, "b:1")
    complete = term.until(Complete)
    assert (complete.instant, complete.checkpoint.epoch) == ("i00001", 2)


def test_a_prepared_transaction_that_is_in_the_timeline_is_only_settled(env: Environment) -> None:
    former = _all_written(env)
    env.table.complete(former.until(Complete))
    term = new_term(env, "b:1")
    term.until("COMMITTED")
    assert not any(isinstance(getattr(effect, "operation", None), Complete) for effect in term.effects)


def test_a_prepared_transaction_whose_instant_is_gone_halts(env: Environment) -> None:
    _all_written(env).until(Complete)
    env.table.instants.clear()
    new_term(env, "b:1").until("halt")


def test_an_orphan_gets_its_aborted_record_before_its_rollback(env: Environment) -> None:
    env.table.begin(7, 1, None)
    term = new_term(env)
    rollback = term.until(RollBack)
    assert rollback.instant == "i00001"
    assert env.view.transactions[0].header.phase is Phase.ABORTED
    assert env.view.transactions[0].header.instant == "i00001"


def test_an_orphan_stays_while_the_table_has_fewer_commits_than_zookeeper_records(env: Environment) -> None:
    """Its host lost power: the completion of a settled transaction is empty, and shows its instant as pending."""
    term = _all_written(env)
    env.table.complete(term.until(Complete))
    term.answer(Done())
    term.until("settle")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    env.table.commits.clear()
    env.table.instants["i00001"].state = InstantState.PENDING
    later = new_term(env, "b:1")
    later.until("halt")
    later.answer(later.perform(later.requested_operation))  # type: ignore[arg-type]
    later.idle()
    assert env.view.halt is not None
    assert env.view.halt.kind is HaltKind.TABLE_BEHIND
    assert not any(isinstance(getattr(effect, "operation", None), RollBack) for effect in later.effects)


def test_a_settled_instant_is_no_orphan(env: Environment) -> None:
    term = _all_written(env)
    term.until(Complete)
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.until("settle")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.until(Begin)
    assert not any(isinstance(getattr(effect, "operation", None), RollBack) for effect in term.effects)


def test_a_fenced_write_ends_the_term(env: Environment) -> None:
    term = _started(env)
    new_term(env, "b:1").until(ReadLog)
    env.keeper.expire(env.sessions["b:1"])
    term.keeper_changed()
    term.until(ReadKeeper)
    term.idle()
    assert term.resigned is not None
    assert term.tick(10.0) == []


def test_a_draining_coordinator_settles_what_is_open_and_resigns(env: Environment) -> None:
    term = _all_written(env)
    term.step(Drain(term.at))
    term.until("settle")
    for _ in range(20):
        term.idle()
        term.tick(1.0)
    assert term.resigned == "drained"
    assert env.view.transactions == ()


def test_zookeeper_emptied_is_rebuilt_from_the_table(env: Environment) -> None:
    term = _all_written(env)
    env.table.complete(term.until(Complete))
    emptied = Environment()
    emptied.table = env.table
    successor = new_term(emptied)
    successor.until(Begin)
    assert emptied.view.states[SOURCE].end == 50
    assert emptied.view.epoch == 2
    assert emptied.transaction(2).header.base == 1


def test_a_table_restored_to_an_older_instant_halts(env: Environment) -> None:
    term = _all_written(env)
    env.table.complete(term.until(Complete))
    term.answer(Done())
    term.until(Begin)
    restored = Environment()
    restored.keeper, restored.sessions = env.keeper, env.sessions
    successor = new_term(restored, "b:1")
    successor.until("halt")


def _next_is_planned(env: Environment) -> Driver:
    """Returns a term that writes the first transaction; the second one waits for it."""
    term = new_term(env, in_flight=2)
    while [transaction.header.phase for transaction in env.view.transactions] != [Phase.STARTED, Phase.PLANNED]:
        term.tick(0.25)
        term.idle()
    return term


def test_the_next_transaction_is_written_while_one_commits_and_not_before(env: Environment) -> None:
    term = _next_is_planned(env)
    for _ in range(8):
        term.tick(0.25)
        term.idle()
    assert env.phase(2) is Phase.PLANNED
    env.report(1)
    term.keeper_changed()
    term.until(Complete)
    assert [env.phase(1), env.phase(2)] == [Phase.PREPARED, Phase.STARTED]


def _written_before_the_next_is_planned(env: Environment) -> Driver:
    """Returns a term whose first transaction was written before the log got more records."""
    env.log.partitions[SOURCE].end = 50
    term = new_term(env, in_flight=2)
    term.until("STARTED")
    term.idle()
    env.log.partitions[SOURCE].end = 100
    env.report(1)
    term.tick(1.0)
    term.keeper_changed()
    return term


def test_the_next_transaction_is_planned_and_begun_before_the_written_one_commits(env: Environment) -> None:
    term = _written_before_the_next_is_planned(env)
    term.until(Complete)
    assert [env.phase(1), env.phase(2)] == [Phase.PREPARED, Phase.STARTED]


def test_a_begin_that_fails_keeps_no_commit_waiting(env: Environment) -> None:
    term = _written_before_the_next_is_planned(env)
    assert term.until(Begin).number == 2
    term.answer(Failed("the store refuses"))
    assert isinstance(term.until((Begin, Complete)), Complete)
    term.until(Begin)


def test_a_log_that_cannot_be_read_keeps_no_commit_waiting(env: Environment) -> None:
    term = _written_before_the_next_is_planned(env)
    term.until(ReadLog)
    term.answer(Failed("no broker"))
    assert term.until(Complete).number == 1


def test_what_trickles_in_is_not_planned_while_another_transaction_is_open(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 90
    term = new_term(env, in_flight=2)
    for _ in range(20):
        term.tick(0.25)
        term.idle()
    assert [transaction.header.phase for transaction in env.view.transactions] == [Phase.STARTED]


def test_a_pipelined_transaction_is_prepared_only_when_its_predecessor_is_committed(env: Environment) -> None:
    term = _next_is_planned(env)
    env.report(1)
    term.keeper_changed()
    term.until(Complete)
    env.report(2)
    term.keeper_changed()
    term.answer(Failed("the table is locked"))
    term.until(Complete)
    assert [env.phase(1), env.phase(2)] == [Phase.PREPARED, Phase.STARTED]
    term.until("COMMITTED")
    assert env.phase(2) is Phase.STARTED
    term.until("PREPARED")


def test_what_was_to_follow_an_aborted_transaction_is_aborted_before_it_is_written(env: Environment) -> None:
    term = _next_is_planned(env)
    env.keeper.expire(env.sessions["b:1"])
    term.keeper_changed()
    term.idle()
    reasons = [note["reason"] for note in term.notes("transaction.aborted")]
    assert reasons == ["participant b:1 left the fleet", "transaction 1 before it was aborted"]


def _remove(env: Environment, lost: str) -> None:
    for path in sorted(env.keeper.nodes, reverse=True):
        if path == lost or path.startswith(f"{lost}/"):
            env.keeper.remove(path)


def test_partition_states_without_their_ledger_are_not_believed(env: Environment) -> None:
    _started(env)
    _remove(env, tree.TRANSACTIONS)
    with pytest.raises(Corrupt, match="transactions: has no ledger"):
        _ = env.view


@pytest.mark.parametrize("lost", [tree.KEEPER, tree.EPOCH, *tree.SKELETON])
def test_a_tree_that_has_lost_what_all_rests_on_ends_the_term(env: Environment, lost: str) -> None:
    term = _started(env)
    _remove(env, lost)
    term.keeper_changed()
    term.idle()
    assert "lost a part" in (term.resigned or "")


def test_a_refused_write_is_not_tried_again_at_once(env: Environment) -> None:
    term = _started(env)
    env.report()
    term.keeper_changed()
    term.until("PREPARED")
    term.answer(Refused("somebody else was faster"))
    assert term.requested_operation is None
    term.tick(0.25)
    assert isinstance(term.requested_operation, ReadKeeper)


def test_states_put_back_in_mid_term_are_never_planned_from(env: Environment) -> None:
    term = _all_written(env)
    env.table.complete(term.until(Complete))
    term.answer(Done())
    term.until("open a transaction")
    view = env.view
    older_state = PartitionState(env.log.ids[SOURCE.topic], 0, 0, 0)
    term.answer(Refused("meanwhile changed"))
    env.keeper.write([next(iter(tree.shard_ops(view, {SOURCE: older_state})))])
    term.keeper_changed()
    assert env.view.states[SOURCE].end == 0
    term.until("advance to the checkpoint")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    assert env.view.states[SOURCE].end == 50


@pytest.mark.parametrize("gone", ["plan", "status"])
def test_what_is_not_what_it_was_decided_with_is_not_committed(env: Environment, gone: str) -> None:
    term = _all_written(env)
    prepare = term.until("PREPARED")
    env.keeper.remove(f"{tree.transaction_path(1)}/{gone}/{WORKERS[0]}")
    if gone == "plan":
        env.keeper.remove(f"{tree.transaction_path(1)}/plan/{WORKERS[0]}/0000")
    term.answer(term.perform(prepare))
    term.until("halt")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    assert env.view.halt is not None
    assert "is PREPARED, but its" in env.view.halt.reason
    assert not env.table.commits


def test_a_commit_is_settled_as_the_table_has_it_though_its_write_statuses_are_gone(env: Environment) -> None:
    term = _all_written(env)
    committed = env.table.complete(term.until(Complete))
    env.keeper.remove(f"{tree.transaction_path(1)}/status/{WORKERS[0]}")
    env.keeper.remove(f"{tree.transaction_path(1)}/status/{WORKERS[1]}")
    term.answer(committed)
    term.until("settle")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    last_record = env.view.states[SOURCE].anchor
    assert last_record is not None
    assert last_record.offset == 49
    assert env.view.ledger.history[-1].records == 50


def _started(env: Environment) -> Driver:
    term = new_term(env)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    return term


def _all_written(env: Environment) -> Driver:
    term = _started(env)
    env.report()
    term.keeper_changed()
    return term


def test_the_log_is_looked_at_when_the_interval_ends_and_not_a_poll_later(env: Environment) -> None:
    env.log.partitions[SOURCE].end = 20
    term = _started(env)
    env.report()
    term.keeper_changed()
    # The first interval of a term is shorter.
    env.log.partitions[SOURCE].end = 25
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    interval_end = term.machine._term.next_plan
    env.report(number=2)
    term.keeper_changed()
    term.until(ReadLog)
    env.log.partitions[SOURCE].end = 30
    # The last look before the interval ends is a poll's length before its end, or less.
    term.at = interval_end - 0.1
    term.idle()
    assert [note["offsets"] for note in term.notes("transaction.opened")] == [20, 5]
    term.tick(0.09)
    assert term.requested_operation is None
    term.tick(0.02)
    assert isinstance(term.requested_operation, ReadLog)
    term.until("open a transaction")
    assert [note["offsets"] for note in term.notes("transaction.opened")] == [20, 5, 5]
