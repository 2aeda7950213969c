"""Rules that hold for the whole of `coordination/`: its imports, its phases, its recovery table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import coordination
from coordination.machines import transactions
from coordination.machines.recovery import Advance, Ahead, InStep, compare_with_table
from coordination.state.model import (
    Checkpoint,
    Gap,
    Header,
    OpenRange,
    PartitionCheckpoint,
    PartitionState,
    Phase,
    TopicPartition,
)
from coordination.state.phases import TRANSITIONS, IllegalTransition, enter
from coordination.state.tree import Ledger

SOURCE = TopicPartition("orders", 0)
ROOT = Path(coordination.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
PURE = [module for module in MODULES if module.parent.name != "zookeeper"]
IMPURE = [
    "asyncio",
    "concurrent",
    "ctypes",
    "io",
    "kazoo",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uuid",
]
FOREIGN = ["confluent_kafka", "fastavro", "hudi", "pandas", "pyarrow", "pyspark", "py4j", "sink"]


def imported(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("module", PURE, ids=lambda module: str(module.relative_to(ROOT)))
def test_no_machine_imports_io_clock_random_or_threads(module: Path) -> None:
    assert imported(module) & {*IMPURE, "datetime"} == set()
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & {"open", "print", "input", "eval", "exec", "__import__", "id", "hash"} == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_coordination_imports_no_spark_kafka_or_hudi_nor_the_sink(module: Path) -> None:
    assert imported(module) & set(FOREIGN) == set()


def header(phase: Phase) -> Header:
    return Header(1, 1, 1, 1, 0, phase, 5.0, "digest", instant="i1")


@pytest.mark.parametrize("source", Phase)
@pytest.mark.parametrize("target", Phase)
def test_only_the_steps_of_the_table_are_possible(source: Phase, target: Phase) -> None:
    if target in TRANSITIONS[source]:
        assert enter(header(source), target, 1.0, instant="i1").phase is target
    else:
        with pytest.raises(IllegalTransition):
            enter(header(source), target, 1.0, instant="i1")


def test_started_needs_an_instant() -> None:
    with pytest.raises(IllegalTransition):
        enter(Header(1, 1, 1, 1, 0, Phase.PLANNED, 5.0, "digest"), Phase.STARTED, 1.0)


def test_prepared_is_left_for_committed_or_on_proof_for_aborted_only() -> None:
    assert set(TRANSITIONS[Phase.PREPARED]) == {Phase.COMMITTED, Phase.ABORTED}
    assert not TRANSITIONS[Phase.COMMITTED]
    assert not TRANSITIONS[Phase.ABORTED]


def checkpoint(number: int, end: int, generation: int = 0, gaps: tuple[Gap, ...] = ()) -> Checkpoint:
    ends = {SOURCE: PartitionCheckpoint(end, generation)}
    return Checkpoint("s", "k", "c", 1, number, number - 1, "config", {"orders": "id"}, ends, (), gaps)


def state(end: int, *open_: OpenRange, generation: int = 0) -> PartitionState:
    return PartitionState("id", 0, end, generation, open_)


def test_recovery_both_empty_is_a_new_sink() -> None:
    assert compare_with_table({}, Ledger(), None) == InStep()


def test_recovery_in_step_needs_nothing() -> None:
    assert compare_with_table({SOURCE: state(50)}, Ledger(3, 3), checkpoint(3, 50)) == InStep()


def test_recovery_zookeeper_behind_is_advanced() -> None:
    behind = state(50, OpenRange(50, 80, 4, 10, 0, 10))
    answer = compare_with_table({SOURCE: behind}, Ledger(4, 3), checkpoint(4, 80))
    assert isinstance(answer, Advance)
    assert answer.changed == {SOURCE: PartitionState("id", 50, 80, 0)}
    assert answer.ledger.committed == 4


def test_recovery_zookeeper_behind_keeps_what_is_recorded_beyond_the_checkpoint() -> None:
    later = OpenRange(80, 90, 5, 10, 0, 10)
    answer = compare_with_table(
        {SOURCE: state(50, OpenRange(50, 80, 4, 10, 0, 10), later)}, Ledger(5, 3), checkpoint(4, 80)
    )
    assert isinstance(answer, Advance)
    assert answer.changed[SOURCE].open == (later,)


def test_recovery_zookeeper_empty_is_rebuilt_above_the_table_s_number() -> None:
    gaps = (Gap("orders", 0, 10, 20),)
    answer = compare_with_table({}, Ledger(), checkpoint(7, 80, 1, gaps))
    assert isinstance(answer, Advance)
    assert answer.changed == {SOURCE: PartitionState("id", 80, 80, 1)}
    assert (answer.ledger.last, answer.ledger.committed, answer.ledger.gaps) == (7, 7, gaps)


def test_recovery_takes_gaps_from_the_table_and_keeps_those_of_partitions_that_do_not_follow_it() -> None:
    other_partition, committed_gap = TopicPartition("orders", 1), Gap("orders", 0, 40, 60)
    void_gap, kept_gap = Gap("orders", 0, 0, 30), Gap("orders", 1, 0, 5)
    states = {SOURCE: state(30), other_partition: PartitionState("id", 5, 5, 1)}
    answer = compare_with_table(states, Ledger(3, 3, gaps=(void_gap, kept_gap)), checkpoint(7, 80, 1, (committed_gap,)))
    assert isinstance(answer, Advance)
    assert answer.changed.keys() == {SOURCE}
    assert answer.ledger.gaps == (committed_gap, kept_gap)


def test_recovery_zookeeper_ahead_by_number_halts() -> None:
    assert isinstance(compare_with_table({SOURCE: state(80)}, Ledger(5, 5), checkpoint(4, 80)), Ahead)


def test_recovery_a_deleted_table_halts() -> None:
    assert isinstance(compare_with_table({SOURCE: state(80)}, Ledger(5, 5), None), Ahead)


def test_recovery_zookeeper_ahead_by_offset_halts() -> None:
    assert isinstance(compare_with_table({SOURCE: state(90)}, Ledger(5, 5), checkpoint(5, 80)), Ahead)


def test_recovery_a_skipped_gap_that_no_commit_carries_yet_stands() -> None:
    skipped = PartitionState("id", 90, 90, 1)
    assert compare_with_table({SOURCE: skipped}, Ledger(5, 5), checkpoint(5, 80)) == InStep()


@pytest.mark.parametrize("recorded", [state(90, generation=1), state(20, generation=1), state(90)])
def test_recovery_of_a_tree_from_a_backup_what_the_table_went_on_without_is_void(recorded: PartitionState) -> None:
    gap = Gap("orders", 0, 0, recorded.end)
    answer = compare_with_table({SOURCE: recorded}, Ledger(6, 5, gaps=(gap,)), checkpoint(6, 80))
    assert isinstance(answer, Advance)
    assert answer.changed == {SOURCE: PartitionState("id", 80, 80, 0)}
    assert (answer.ledger.committed, answer.ledger.gaps) == (6, ())


def test_recovery_what_is_where_the_table_is_stays_as_it_is() -> None:
    open_ = OpenRange(80, 90, 6, 10, 0, 10)
    answer = compare_with_table({SOURCE: state(80, open_)}, Ledger(6, 5), checkpoint(6, 80))
    assert isinstance(answer, Advance)
    assert not answer.changed


@pytest.mark.parametrize(
    ("batches", "last", "remaining_batches"),
    [((4, 5), 5, (4, 5)), ((4, 5), 4, (4,)), ((4, 5), 3, ()), ((4, 6, 5), 5, (4, 6, 5))],
)
def test_what_never_counted_is_dropped_from_the_end_only(
    batches: tuple[int, ...], last: int, remaining_batches: tuple[int, ...]
) -> None:
    """Last case: ZooKeeper was read at two moments, and a batch was divided between them."""
    ranges = (OpenRange(50 + 10 * at, 60 + 10 * at, batch, 10, 0, 10) for at, batch in enumerate(batches))
    recorded = state(50, *ranges)
    remaining = transactions.drop_incomplete_plans({SOURCE: recorded}, last).get(SOURCE, recorded)
    assert tuple(r.batch for r in remaining.open) == remaining_batches
