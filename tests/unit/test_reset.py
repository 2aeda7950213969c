"""A reset is planned from ZooKeeper, the table and the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.errors import ConfigError, Conflict, TableError
from coordination.machines import recovery
from coordination.state import tree
from coordination.state.failures import Halt, HaltKind
from coordination.state.log_records import Anchor
from coordination.state.model import (
    Checkpoint,
    Gap,
    Header,
    LogView,
    Member,
    OpenRange,
    PartitionCheckpoint,
    PartitionLog,
    PartitionState,
    Phase,
    Plan,
    TopicPartition,
)
from coordination.state.tree import Create, Delete, KeeperInfo, KeeperView, Ledger, Transaction
from sink.operations.reset import NO_TABLE, Position, ResetRequest, TimelineSnapshot, plan_reset, write_plans
from sink.operations.reset_checks import INTERRUPTED
from sink.operations.timeline_snapshot import read_timeline_snapshot
from tests.handmade import HandmadeTable, span

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOG = LogView("cluster", {P0: PartitionLog("id", 3, 100), P1: PartitionLog("id", 0, 80)})
EARLIEST = ResetRequest(Position.EARLIEST)


def view(
    states: Mapping[TopicPartition, PartitionState],
    transactions: tuple[Transaction, ...] = (),
    ledger: Ledger = Ledger(),  # noqa: B008 - frozen
    members: tuple[Member, ...] = (),
    halt: Halt | None = None,
) -> KeeperView:
    shards = {tree.shard_path(source): 4 for source in states}
    return KeeperView(
        KeeperInfo("uuid", "digest"),
        0,
        members,
        (),
        5,
        5,
        states,
        shards,
        ledger,
        7,
        transactions,
        (),
        0,
        halt,
    )


def state(end: int, generation: int = 0, *open_: OpenRange) -> PartitionState:
    return PartitionState("id", 0, end, generation, open_)


def transaction(phase: Phase, instant: str | None = "20260101000000000", number: int = 4) -> Transaction:
    header = Header(number, number, 1, 5, 3, phase, 60.0, "digest", instant=instant, times={phase.value: 1.0})
    return Transaction(header, 2, Plan({}), {})


def checkpoint(number: int = 3, **ends: tuple[int, int]) -> Checkpoint:
    return Checkpoint(
        "orders", "uuid", "cluster", 5, number, number - 1, "digest", {"orders": "id"},
        {TopicPartition("orders", int(p[1:])): PartitionCheckpoint(*end) for p, end in ends.items()},
    )  # fmt: skip


def snapshot_of(newest: Checkpoint | None, completed: str = "", pending: str = "") -> TimelineSnapshot:
    generations = {source: reached.generation for source, reached in newest.ends.items()} if newest else {}
    return TimelineSnapshot(newest, generations, frozenset({completed}), frozenset({pending}))


def test_without_a_position_only_the_halt_is_cleared():
    halt = Halt(HaltKind.BAD_RECORD, "bad record")
    reset = plan_reset(view({P0: state(9)}, (transaction(Phase.PREPARED),), halt=halt), ResetRequest(), NO_TABLE, None)
    assert (reset.halt, reset.moves, reset.aborted, reset.ledger) == (halt, (), (), None)


@pytest.mark.parametrize("request_", [ResetRequest(), EARLIEST])
def test_nothing_is_reset_while_a_worker_lives(request_: ResetRequest):
    members = (Member("w1:x", "host", 1, "1"),)
    with pytest.raises(Conflict, match=r"workers are alive \(w1\)"):
        plan_reset(view({}, members=members), request_, NO_TABLE, LOG)


@pytest.mark.parametrize(
    ("phase", "table", "problem"),
    [
        (Phase.PREPARED, snapshot_of(None, pending="20260101000000000"), "can still be committed"),
        (Phase.PREPARED, snapshot_of(None, completed="20260101000000000"), "in the table but not settled"),
        (Phase.COMMITTED, NO_TABLE, "in the table but not settled"),
    ],
)
def test_a_decided_transaction_is_finished_first(phase: Phase, table: TimelineSnapshot, problem: str):
    with pytest.raises(Conflict, match=problem):
        plan_reset(view({P0: state(9)}, (transaction(phase),)), EARLIEST, table, LOG)


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STARTED, Phase.PREPARED])
def test_an_undecided_transaction_and_one_whose_instant_is_gone_are_aborted(phase: Phase):
    keeper_view = view({P0: state(9)}, (transaction(phase),))
    reset = plan_reset(keeper_view, EARLIEST, NO_TABLE, LOG)
    assert [t.header.number for t in reset.aborted] == [4]
    headers = [op for multi in write_plans(keeper_view, reset) for op in multi if op.path.endswith("/header")]
    assert b"ABORTED" in headers[0].data  # type: ignore[union-attr]


def test_an_aborted_transaction_stays_as_it_is():
    assert plan_reset(view({}, (transaction(Phase.ABORTED),)), EARLIEST, NO_TABLE, LOG).aborted == ()


def test_partitions_that_share_a_batch_with_a_moved_one_keep_their_range():
    shared = OpenRange(10, 20, 4, 100, 2, 100)
    keeper_view = view({P0: state(10, 2, shared), P1: state(10, 2, shared, OpenRange(20, 30, 5, 100, 2, 100))})
    reset = plan_reset(keeper_view, ResetRequest(offsets={P0: 5}), NO_TABLE, LOG)
    assert reset.changed == {P0: PartitionState("id", 5, 5, 3)}


def test_going_back_says_how_many_rows_will_be_there_twice_and_declares_no_gap():
    reset = plan_reset(view({P0: state(40)}), ResetRequest(offsets={P0: 30}), snapshot_of(checkpoint(p0=(40, 0))), LOG)
    assert "reads 10 offsets again" in reset.moves[0].effect
    assert reset.ledger is not None
    assert reset.ledger.gaps == ()


def test_going_forward_declares_the_gap_once():
    ledger = Ledger(gaps=(Gap("orders", 0, 40, 50),))
    for _ in range(2):
        keeper_view = view({P0: state(40)}, ledger=ledger)
        reset = plan_reset(keeper_view, ResetRequest(offsets={P0: 50}), snapshot_of(checkpoint(p0=(40, 0))), LOG)
        assert reset.ledger is not None
        assert reset.ledger.gaps == (Gap("orders", 0, 40, 50),)
        ledger = reset.ledger


def test_what_was_to_be_left_out_of_a_partition_that_is_moved_again_before_a_commit_is_no_gap():
    earlier = Ledger(gaps=(Gap("orders", 0, 40, 90), Gap("orders", 1, 0, 5)))
    keeper_view = view({P0: replace(state(90, 1), start=90), P1: state(5, 1)}, ledger=earlier)
    reset = plan_reset(keeper_view, ResetRequest(offsets={P0: 50}), snapshot_of(checkpoint(p0=(40, 0))), LOG)
    assert reset.ledger is not None
    assert reset.ledger.gaps == (Gap("orders", 1, 0, 5), Gap("orders", 0, 40, 50))


def test_offsets_of_a_recreated_topic_are_no_gap_and_take_its_new_id():
    log = LogView("cluster", {P0: PartitionLog("new id", 0, 100)})
    reset = plan_reset(view({P0: state(40)}), ResetRequest(offsets={P0: 90}), snapshot_of(checkpoint(p0=(40, 0))), log)
    assert reset.changed[P0] == PartitionState("new id", 90, 90, 1)
    assert reset.ledger is not None
    assert reset.ledger.gaps == ()


@pytest.mark.parametrize("recorded", ["in ZooKeeper", "in the table alone"])
@pytest.mark.parametrize("request_", [EARLIEST, ResetRequest(Position.LATEST), ResetRequest(offsets={P0: 7})])
def test_partitions_that_a_recreated_topic_has_no_more_wait_at_offset_0_of_its_new_id(
    recorded: str, request_: ResetRequest
):
    log = LogView("cluster", {P0: PartitionLog("new id", 0, 100)})
    states = {P0: state(40), P1: state(30, 0, OpenRange(30, 35, 4, 100, 0, 100))} if recorded == "in ZooKeeper" else {}
    reset = plan_reset(view(states), request_, snapshot_of(checkpoint(p0=(40, 0), p1=(30, 4))), log)
    assert reset.changed[P1] == PartitionState("new id", 0, 0, 5)
    assert [move.effect for move in reset.moves] == ["starts here", "is no more; starts here if it is added again"]
    second_reset = plan_reset(view(reset.changed), request_, snapshot_of(checkpoint(p0=(40, 0), p1=(30, 4))), log)
    assert second_reset.changed[P1] == PartitionState("new id", 0, 0, 6)


def test_a_partition_that_is_only_missing_keeps_its_place():
    log = LogView("cluster", {P0: PartitionLog("id", 0, 100)})
    assert P1 not in plan_reset(view({P0: state(40), P1: state(30)}), EARLIEST, NO_TABLE, log).changed


@pytest.mark.parametrize(
    ("request_", "given_up"),
    [
        (EARLIEST, True),
        (ResetRequest(Position.LATEST, topics=("gone",)), True),
        (ResetRequest(Position.EARLIEST, topics=("orders",)), False),
        (ResetRequest(offsets={P0: 5}), False),
    ],
)
def test_what_was_planned_of_a_deleted_topic_is_given_up_and_what_is_committed_stays(
    request_: ResetRequest, given_up: bool
):
    gone, planned = TopicPartition("gone", 0), OpenRange(5, 9, 4, 4, 0, 4)
    states = {P0: state(40), gone: state(5, 2, planned), TopicPartition("gone", 1): state(7)}
    reset = plan_reset(view(states), request_, NO_TABLE, replace(LOG, deleted=("gone",)))
    assert {s: after for s, after in reset.changed.items() if s.topic == "gone"} == (
        {gone: PartitionState("id", 5, 5, 3)} if given_up else {}
    )
    effects = {move.effect for move in reset.moves if move.source.topic == "gone"}
    assert effects == ({"is no more; gives up 4 planned offsets"} if given_up else set())


def test_another_topic_keeps_what_it_has_lost():
    log = LogView("cluster", {P0: PartitionLog("new id", 0, 100), TopicPartition("b", 0): PartitionLog("new b", 0, 9)})
    gone = {TopicPartition("b", 0): state(5), TopicPartition("b", 1): state(5)}
    reset = plan_reset(
        view({P0: state(40), **gone}), ResetRequest(Position.EARLIEST, topics=("orders",)), NO_TABLE, log
    )
    assert set(reset.changed) == {P0}


@pytest.mark.parametrize("halt", [None, Halt(HaltKind.BAD_RECORD, "bad record")])
def test_a_reset_of_several_multis_keeps_the_sink_halted_until_the_last_one(halt: Halt | None, monkeypatch):
    monkeypatch.setattr(tree, "SHARD", 1)
    monkeypatch.setattr(tree, "MULTI_OPS", 1)
    keeper_view = view({P0: state(40), P1: state(40)}, halt=halt)
    *before, last = write_plans(
        keeper_view,
        plan_reset(keeper_view, ResetRequest(Position.LATEST), snapshot_of(checkpoint(p0=(40, 0), p1=(40, 0))), LOG),
    )
    assert Delete(tree.HALT) in last
    assert len(before) > 1
    # Partition states without their ledger are not believed: an emptied tree has to have it from the first multi on.
    assert all(any(op.path == tree.TRANSACTIONS for op in multi) for multi in (*before, last))
    # An earlier halt gives way to the mark: a reset that moves nothing could end it, and half of this one would count.
    *clear, mark, _ = before[0]
    assert clear == ([] if halt is None else [Delete(tree.HALT)])
    assert isinstance(mark, Create)
    assert (mark.path, b"interrupted" in mark.data) == (tree.HALT, True)


def test_an_interrupted_reset_is_ended_by_no_reset_that_leaves_offsets_out_in_silence():
    table = snapshot_of(checkpoint(p0=(40, 0), p1=(40, 0)))
    states = {P0: PartitionState("id", 100, 100, 1), P1: state(40)}
    half = view(states, ledger=Ledger(last=3, committed=3), halt=Halt(HaltKind.RESET_INTERRUPTED, INTERRUPTED))
    with pytest.raises(ConfigError, match=r"it moved some partitions .* Run it again, as it was"):
        plan_reset(half, ResetRequest(), NO_TABLE, None)
    with pytest.raises(ConfigError, match=r"it moved orders-0, and has not recorded .*\. Run it again"):
        plan_reset(half, ResetRequest(offsets={P1: 20}), table, LOG)
    again = plan_reset(half, ResetRequest(Position.LATEST), table, LOG)
    assert again.ledger is not None
    assert set(again.ledger.gaps) == {Gap("orders", 0, 40, 100), Gap("orders", 1, 40, 80)}
    assert set(plan_reset(half, EARLIEST, table, LOG).changed) == {P0, P1}


def test_an_interrupted_reset_does_not_hold_up_what_an_earlier_one_left_out_with_a_gap():
    table = snapshot_of(checkpoint(p0=(40, 0), p1=(40, 0)))
    states = {P0: PartitionState("id", 100, 100, 1), P1: state(40)}
    ledger = Ledger(last=3, committed=3, gaps=(Gap("orders", 0, 40, 100),))
    half = view(states, ledger=ledger, halt=Halt(HaltKind.RESET_INTERRUPTED, INTERRUPTED))
    assert set(plan_reset(half, ResetRequest(offsets={P1: 20}), table, LOG).changed) == {P1}


def test_a_reset_of_one_multi_needs_no_halt():
    keeper_view = view({P0: state(40)})
    (only,) = write_plans(keeper_view, plan_reset(keeper_view, EARLIEST, snapshot_of(checkpoint(p0=(40, 0))), LOG))
    assert all(op.path != tree.HALT for op in only)


def test_after_the_table_was_restored_the_checkpoint_is_followed_and_the_sink_goes_on():
    restored = checkpoint(number=2, p0=(20, 1), p1=(10, 0))
    ledger = Ledger(last=5, committed=5)
    keeper_view = view({P0: state(50, 1), P1: state(40)}, ledger=ledger)
    assert isinstance(recovery.compare_with_table(keeper_view.states, ledger, restored), recovery.Ahead)
    reset = plan_reset(keeper_view, ResetRequest(Position.CHECKPOINT), snapshot_of(restored), None)
    assert reset.changed == {P0: PartitionState("id", 20, 20, 2), P1: PartitionState("id", 10, 10, 1)}
    assert reset.ledger is not None
    assert (reset.ledger.last, reset.ledger.committed) == (5, 2)
    after = recovery.compare_with_table({**keeper_view.states, **reset.changed}, reset.ledger, restored)
    assert isinstance(after, recovery.InStep)


@pytest.mark.parametrize("generation", [0, 3])
@pytest.mark.parametrize(
    ("request_", "ends"),
    [
        (ResetRequest(offsets={P0: 20}), {"p0": (20, 0), "p1": (10, 0)}),
        (ResetRequest(Position.CHECKPOINT), {"p0": (20, 0)}),
    ],
)
def test_of_a_restored_table_no_partition_is_left_beyond_what_it_holds(
    request_: ResetRequest, ends: dict[str, tuple[int, int]], generation: int
):
    """A higher generation would look like a reset that no commit carries yet, and the sink would go on with a hole."""
    keeper_view = view({P0: state(50), P1: state(40, generation)}, ledger=Ledger(committed=5))
    with pytest.raises(ConfigError, match="ends at transaction 2, ZooKeeper at 5, and orders-1 would go on beyond"):
        plan_reset(keeper_view, request_, snapshot_of(checkpoint(number=2, **ends)), LOG)


def test_a_deleted_table_is_followed_by_no_partition_that_is_not_moved():
    keeper_view = view({P0: state(50), TopicPartition("gone", 0): state(40)}, ledger=Ledger(committed=5))
    with pytest.raises(ConfigError, match=r"gone-0 would go on .* Move all partitions \(--to earliest.* use --forget"):
        plan_reset(keeper_view, EARLIEST, NO_TABLE, LOG)


def test_in_a_tree_from_a_backup_what_is_not_moved_follows_the_table():
    """The ledger is level with the table afterwards: a higher generation would stand, and rows would come twice."""
    gap = Gap("orders", 1, 0, 9)
    keeper_view = view({P0: state(50), P1: state(9, 1)}, ledger=Ledger(last=3, committed=0, gaps=(gap,)))
    reset = plan_reset(
        keeper_view, ResetRequest(offsets={P0: 20}), snapshot_of(checkpoint(p0=(50, 0), p1=(13, 0))), LOG
    )
    assert reset.changed == {P0: PartitionState("id", 20, 20, 1), P1: PartitionState("id", 13, 13, 0)}
    assert reset.ledger is not None
    assert (reset.ledger.committed, reset.ledger.gaps) == (3, ())
    assert [move.source for move in reset.moves] == [P0]


def test_with_zookeeper_emptied_the_tables_word_on_generations_counts():
    table = TimelineSnapshot(checkpoint(p0=(40, 1)), {P0: 6, P1: 2}, frozenset(), frozenset())
    reset = plan_reset(view({}), EARLIEST, table, LOG)
    assert {source: s.generation for source, s in reset.changed.items()} == {P0: 7, P1: 3}
    assert {source: s.end for source, s in reset.changed.items()} == {P0: 3, P1: 0}


def test_to_the_checkpoint_without_one_is_refused():
    with pytest.raises(ConfigError, match="no checkpoint of this sink"):
        plan_reset(view({}), ResetRequest(Position.CHECKPOINT), NO_TABLE, None)


ENDS = st.integers(0, 100)


def _recorded(end: int, generation: int, sizes: list[int]) -> PartitionState:
    open_: list[OpenRange] = []
    for size in sizes:
        start = open_[-1].end if open_ else end
        open_.append(OpenRange(start, start + size, 4 + len(open_), 10, generation, 10))
    return PartitionState("id", 0, end, generation, tuple(open_))


STATES = st.builds(_recorded, ENDS, st.integers(0, 9), st.lists(st.integers(1, 9), max_size=2))


@given(
    recorded=st.dictionaries(st.sampled_from([P0, P1]), STATES),
    committed=st.dictionaries(
        st.sampled_from([P0, P1]), st.builds(PartitionCheckpoint, ENDS, st.integers(0, 9)), max_size=2
    ),
    target=st.sampled_from(Position),
)
def test_a_moved_partition_is_settled_under_a_generation_that_nobody_used(recorded, committed, target):
    newest = replace(checkpoint(), ends=committed) if committed else None
    if target is Position.CHECKPOINT and newest is None:
        return
    reset = plan_reset(view(recorded), ResetRequest(target), snapshot_of(newest), LOG)
    moved = {move.source for move in reset.moves}
    for move in reset.moves:
        used = [r.generation for r in recorded[move.source].open] if move.source in recorded else []
        used += [recorded[move.source].generation] if move.source in recorded else []
        used += [committed[move.source].generation] if move.source in committed else []
        assert move.after.generation > max(used, default=-1)
        assert (move.after.open, move.after.start) == ((), move.after.end)
    assert moved == (set(committed) if target is Position.CHECKPOINT else {P0, P1})
    assert reset.ledger is not None
    after = recovery.compare_with_table({**recorded, **reset.changed}, reset.ledger, newest)
    if moved >= set(recorded):
        assert not isinstance(after, recovery.Ahead)


def test_the_table_is_read_without_a_jvm(tmp_path: Path):
    table = HandmadeTable(tmp_path / "table")
    table.commit(span(0, 0, 10), span(1, 0, 5))
    table.commit(span(0, 0, 4, generation=3))
    (table.timeline / "20270101000000000.commit.requested").touch()
    (table.timeline / "20270101000000000.inflight").touch()
    snapshot = read_timeline_snapshot(str(table.path), "orders")
    assert snapshot.checkpoint is not None
    assert snapshot.checkpoint.number == 2
    assert snapshot.generations == {P0: 3, P1: 0}
    assert snapshot.pending == {"20270101000000000"}
    assert len(snapshot.completed) == 2
    assert read_timeline_snapshot(str(table.path), "another").checkpoint is None
    assert read_timeline_snapshot(str(tmp_path / "nothing"), "orders") == NO_TABLE


def test_a_reset_of_a_tree_that_is_behind_keeps_the_anchors_of_partitions_that_it_does_not_move(tmp_path: Path):
    table = HandmadeTable(tmp_path / "table")
    instant = table.commit(span(0, 0, 10), span(1, 0, 5))
    table.rewrite_commit(
        instant, lambda checkpoint: checkpoint.update(anchors={"orders": {"1": [4, 0, f"{255:016x}"]}})
    )
    recorded = {P0: PartitionState("id", 0, 5, 0), P1: PartitionState("id", 0, 3, 0)}
    snapshot = read_timeline_snapshot(str(table.path), "orders")
    reset = plan_reset(view(recorded), ResetRequest(offsets={P0: 7}), snapshot, LOG)
    assert reset.changed[P1].end == 5
    assert reset.changed[P1].anchor == Anchor(4, 0, 255)


def test_a_timeline_that_cannot_be_read_whole_is_never_taken_for_empty(tmp_path: Path):
    table = HandmadeTable(tmp_path / "table")
    table.commit(span(0, 0, 10))
    next(table.timeline.glob("*_*.commit")).write_bytes(b"broken")
    with pytest.raises(TableError, match="cannot be read whole"):
        read_timeline_snapshot(str(table.path), "orders")
