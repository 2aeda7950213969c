"""Reads of the log are held against the plan, and against the record that was read last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.machines.term import FlushTarget
from coordination.planning import log_continuity, slicing, write_tasks
from coordination.planning.log_continuity import Evidence
from coordination.state import tree
from coordination.state.codec import (
    decode_checkpoint,
    decode_states,
    decode_status,
    encode_checkpoint,
    encode_states,
    encode_status,
)
from coordination.state.failures import Failure, FailureKind
from coordination.state.log_records import Anchor, ReadRange
from coordination.state.model import (
    NO_ANCHOR,
    Checkpoint,
    LogView,
    OpenRange,
    PartitionCheckpoint,
    PartitionLog,
    PartitionState,
    Slice,
    TopicPartition,
    WriteStatus,
    WriteTask,
)
from tests.unit.machine_kit import SOURCE, Driver, Environment, new_term

P0 = TopicPartition("orders", 0)
OLD, NEW = Anchor(9, 0, 1), Anchor(9, 2, 1)
TASK = WriteTask((Slice("orders", 0, 10, 20, "id", 0, 9), Slice("orders", 0, 20, 30, "id", 0, 19)))


def read(start: int = 10, end: int = 30, before: Anchor | None = OLD, last: Anchor | None = None) -> ReadRange:
    return ReadRange("c", "orders", "id", 0, start, end, before, last)


def states(anchor: Anchor | None) -> dict[TopicPartition, PartitionState]:
    return {P0: PartitionState("id", 0, 10, 0, anchor=anchor)}


def test_adjacent_slices_of_a_task_are_one_range_with_the_anchor_of_the_first() -> None:
    other = Slice("orders", 1, 0, 5, "id", 0)
    assert WriteTask((*TASK.slices, other)).ranges == (Slice("orders", 0, 10, 30, "id", 0), other)
    assert WriteTask((*TASK.slices, other)).ranges[0].anchor == 9
    assert WriteTask((TASK.slices[1], TASK.slices[0])).ranges == (TASK.slices[1], TASK.slices[0])


def test_what_was_planned_is_what_was_read() -> None:
    assert log_continuity.misread([TASK], [read()], "c") is None


@pytest.mark.parametrize(
    ("reads", "sentence"),
    [
        ([], "0 ranges where 1 were planned"),
        ([read(), read()], "2 ranges where 1 were planned"),
        ([read(end=29)], "orders-0[10, 29) where orders-0[10, 30)"),
        ([replace(read(), partition=1)], "orders-1[10, 30) where"),
        ([replace(read(), cluster="d")], "cluster c, topic id id, but the brokers gave cluster d, topic id id"),
        ([replace(read(), topic_id="new")], "topic id id, but the brokers gave cluster c, topic id new"),
    ],
)
def test_any_other_read_is_named(reads: list[ReadRange], sentence: str) -> None:
    assert sentence in (log_continuity.misread([TASK], reads, "c") or "")


@pytest.mark.parametrize(
    ("anchor", "before", "is_changed"),
    [
        (OLD, OLD, False),
        (OLD, NEW, True),
        (OLD, replace(OLD, digest=2), True),
        # The reader looked back behind the anchor, which compaction has taken.
        (OLD, replace(OLD, offset=8), False),
        (replace(OLD, offset=5), replace(OLD, offset=7), True),
        (OLD, None, False),
        (None, OLD, False),
        (None, None, False),
    ],
)
def test_another_record_at_the_anchor_is_another_log_and_none_there_says_nothing(
    anchor: Anchor | None, before: Anchor | None, is_changed: bool
) -> None:
    failure = log_continuity.changed_log([read(before=before)], states(anchor))
    assert (failure is not None) == is_changed
    if failure is not None:
        assert failure.kind is FailureKind.LOG_CHANGED
        assert (failure.topic, failure.partition) == ("orders", 0)
        assert str(anchor) in failure.reason
        assert str(before) in failure.reason


@pytest.mark.parametrize(
    ("last", "before", "is_changed"),
    [
        (Anchor(19, 0, 5), Anchor(19, 0, 5), False),
        (Anchor(19, 0, 5), Anchor(19, 1, 5), True),
        (Anchor(15, 0, 5), None, False),
        (Anchor(15, 0, 5), Anchor(19, 0, 5), True),
        (None, Anchor(19, 0, 5), True),
    ],
)
def test_the_tasks_of_a_transaction_read_one_log(last: Anchor | None, before: Anchor | None, is_changed: bool) -> None:
    reads = [read(20, 30, before), read(10, 20, last=last)]
    assert (log_continuity.changed_log(reads, states(OLD)) is not None) == is_changed


def test_partitions_without_a_record_at_the_anchor_are_counted() -> None:
    two = {**states(OLD), TopicPartition("orders", 1): PartitionState("id", 0, 10, 0, anchor=OLD)}
    assert log_continuity.evidence([read(), replace(read(before=None), partition=1)], two) == Evidence(1, 1)
    assert log_continuity.evidence([read()], states(None)) == Evidence(0, 0)


def test_the_last_record_of_a_partition_is_the_one_with_the_highest_offset() -> None:
    reads = [read(20, 30, last=Anchor(25, 1, 1)), read(10, 20, last=Anchor(19, 0, 1)), replace(read(), partition=1)]
    assert log_continuity.last_records(reads) == {P0: Anchor(25, 1, 1)}


def test_a_range_is_read_from_its_anchor_and_behind_what_is_still_open_from_some_offsets_before() -> None:
    recorded = OpenRange(10, 30, 5, 10, 0, 100)
    (task,) = write_tasks.group_into_tasks([(P0, replace(states(Anchor(4, 0, 1))[P0], open=(recorded,)), recorded)])
    assert [piece.anchor for piece in task.slices] == [4, 16]
    (task,) = write_tasks.group_into_tasks([(P0, replace(states(None)[P0], open=(recorded,)), recorded)])
    assert [piece.anchor for piece in task.slices] == [NO_ANCHOR, 16]
    behind = OpenRange(30, 40, 6, 10, 0, 100)
    (task,) = write_tasks.group_into_tasks([(P0, replace(states(OLD)[P0], open=(recorded, behind)), behind)])
    assert [piece.anchor for piece in task.slices] == [26]
    assert [piece.anchor for piece in slicing.cut(P0, "id", recorded)] == [NO_ANCHOR, 16]
    # What was read and settled before has an anchor of its own; before a range nothing may have been read at all.
    short = (OpenRange(10, 12, 5, 10, 0, 100), OpenRange(12, 15, 6, 2, 0, 100))
    (task,) = write_tasks.group_into_tasks([(P0, replace(states(OLD)[P0], open=short), short[1])])
    assert [piece.anchor for piece in task.slices] == [10, 12]


def test_a_log_that_changed_behind_the_marker_of_an_open_range_is_found() -> None:
    """Offset 29 is a producer's marker, before and after. The record before it is another one."""
    behind = OpenRange(30, 40, 6, 10, 0, 100)
    (task,) = write_tasks.group_into_tasks(
        [(P0, PartitionState("id", 0, 10, 0, (OpenRange(10, 30, 5, 10, 0, 100), behind)), behind)]
    )
    assert task.slices[0].anchor <= 28
    settled = {P0: PartitionState("id", 10, 30, 0, (behind,), Anchor(28, 0, 1))}
    assert log_continuity.changed_log([read(30, 40, Anchor(28, 0, 1))], settled) is None
    assert log_continuity.changed_log([read(30, 40, Anchor(28, 1, 2))], settled) is not None


def test_anchors_survive_in_states_statuses_and_checkpoints() -> None:
    anchored = {0: PartitionState("id", 0, 10, 0, anchor=OLD), 1: PartitionState("id", 0, 10, 0)}
    assert decode_states(encode_states(anchored), "here") == anchored
    status = WriteStatus(1, "a:1", reads=(read(last=Anchor(29, 0, 2**64 - 1)), replace(read(), topic_id="other")))
    assert decode_status(encode_status(status), "here") == status
    ends = {P0: PartitionCheckpoint(10, 0, OLD), TopicPartition("orders", 1): PartitionCheckpoint(10, 0)}
    checkpoint = Checkpoint("s", "k", "c", 1, 1, 0, "", {"orders": "id"}, ends)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def land(term: Driver) -> None:
    """Lets the fleet write the next transaction, and the coordinator go on until it has nothing to ask."""
    term.until("STARTED")
    number = term.env.view.transactions[-1].header.number
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    term.env.report(number)
    term.keeper_changed()
    term.idle()


def test_the_last_record_of_a_commit_is_in_state_and_checkpoint_and_outlives_zookeeper() -> None:
    env = Environment()
    term = new_term(env)
    land(term)
    last = env.log.partitions[SOURCE].record("id-orders-1", 49)
    assert env.view.states[SOURCE].anchor == last
    assert env.table.newest is not None
    assert env.table.newest.ends[SOURCE].anchor == last
    emptied = Environment()
    emptied.table, emptied.log = env.table, env.log
    new_term(emptied).until("advance to the checkpoint")
    successor = new_term(emptied)
    land(successor)
    assert emptied.view.states[SOURCE].anchor == env.log.partitions[SOURCE].record("id-orders-1", 99)
    assert successor.notes("log.compared") == [{"transaction": 2, "partitions": 1, "without_record": 0}]


def test_a_log_that_lost_its_end_and_grew_again_halts_the_sink_with_both_records() -> None:
    env = Environment()
    term = new_term(env)
    land(term)
    env.log.truncate(SOURCE, 30)
    env.log.partitions[SOURCE].end = 200
    land(term)
    halt = env.view.halt
    assert halt is not None
    assert (halt.topic, halt.partition, halt.offset) == (SOURCE.topic, 0, 49)
    assert "leader epoch 0" in halt.reason
    assert "leader epoch 1" in halt.reason
    assert env.view.ledger.committed == 1


@pytest.mark.parametrize(
    ("cluster", "topic_id"), [("cluster-2", "id-orders-1"), ("cluster-1", "id-orders-2"), ("", "id-orders-1")]
)
def test_a_worker_that_read_another_log_is_blamed_and_its_transaction_aborted(cluster: str, topic_id: str) -> None:
    env = Environment()
    term = new_term(env)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    term.idle()
    transaction = env.transaction()
    for incarnation, tasks in transaction.plan.tasks.items():
        status = env.write_status_of(transaction.header, incarnation, tasks)
        if incarnation == "b:1":
            reads = tuple(replace(read, cluster=cluster, topic_id=topic_id) for read in status.reads)
            status = replace(status, reads=reads)
        env.keeper.write(tree.status_ops(status))
    term.keeper_changed()
    term.until("ABORTED")
    (note,) = term.notes("transaction.aborted")
    assert note["reason"].startswith("b:1: topic orders: ")
    assert cluster in note["reason"]
    assert topic_id in note["reason"]
    assert env.table.newest is None


def test_a_damaged_batch_halts_the_sink_once_the_next_attempt_cannot_read_it_either() -> None:
    env = Environment()
    term = new_term(env)
    failure = Failure(FailureKind.LOG_DAMAGED, "Kafka: orders-0 offset 5: damaged", "orders", 0, 5)
    for attempt in (1, 2):
        term.until("STARTED")
        term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
        term.idle()
        number = env.view.transactions[-1].header.number
        env.keeper.write(tree.status_ops(WriteStatus(number, "a:1", failure=failure)))
        term.keeper_changed()
        term.until("settle")
        term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
        assert (env.view.halt is not None) == (attempt == 2)
    assert env.view.halt is not None
    assert (env.view.halt.topic, env.view.halt.partition, env.view.halt.offset) == ("orders", 0, 5)


def test_a_flush_is_not_done_by_offsets_of_another_topic() -> None:
    target = FlushTarget(1, {P0: 10}, {"orders": "new"})
    assert not target.is_reached(states(None))
    assert target.is_reached({P0: replace(states(None)[P0], topic_id="new")})
    assert not target.is_reached({})


def test_a_flush_waits_for_a_topic_that_was_created_again_only_where_the_sink_had_begun_with_it() -> None:
    target, log = FlushTarget(1, {P0: 10}, {"orders": "old"}), LogView("", {P0: PartitionLog("new", 0, 3)})
    begun = replace(states(None)[P0], topic_id="old")
    assert not target.still_there(log, {}).ends
    assert not target.still_there(log, {P0: replace(begun, topic_id="new")}).ends
    assert target.still_there(log, {P0: begun}).ends == {P0: 3}
    assert target.still_there(LogView("", {P0: PartitionLog("old", 0, 20)}), {}).ends == {P0: 10}
    assert not target.still_there(LogView("", {}), {}).ends
