"""The age of waiting records, between its two bounds."""

from __future__ import annotations

from dataclasses import replace

from coordination.state.model import PartitionLog, PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import KeeperView, Ledger, Summary
from sink.telemetry.backlog import LOOKS, NONE_WAITS, Age, Backlog, lag, readable_lag

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_000_000.0


def view(*ended: tuple[str, float], **committed: int) -> KeeperView:
    """A tree with these outcomes of transactions, each with the time when it was planned, and committed offsets."""
    history = tuple(Summary(7, 7, outcome, None, 0, "", {"PLANNED": at, outcome: at + 50}) for outcome, at in ended)
    states = {
        TopicPartition("orders", int(name[1:])): PartitionState("id", 0, end, 0) for name, end in committed.items()
    }
    return replace(TreeReader().read({}), ledger=Ledger(7, 7, history=history), states=states)


def logs(**ends: int) -> dict[TopicPartition, PartitionLog]:
    return {TopicPartition("orders", int(name[1:])): PartitionLog("id", 0, end) for name, end in ends.items()}


def test_a_record_that_came_while_a_transaction_committed_may_be_as_old_as_its_plan() -> None:
    backlog, tree = Backlog(), view(("COMMITTED", NOW - 300), p0=10)
    backlog.look(tree, logs(p0=11), NOW)
    assert backlog.oldest(tree.states, NOW) == Age(0.0, 300.0)


def test_nothing_of_a_topic_that_was_created_again_is_committed_by_what_was_committed_of_the_one_before() -> None:
    before, again = PartitionState("id", 0, 3000, 0), PartitionLog("created again", 5, 2000)
    assert (lag(before, again), readable_lag(before, again)) == (1995, 1995)


def test_each_partition_has_an_age_of_its_own() -> None:
    backlog, tree = Backlog(), view(p0=10, p1=10)
    backlog.look(tree, logs(p0=11, p1=10), NOW)
    backlog.look(tree, logs(p0=11, p1=12), NOW + 20)
    ages = [backlog.age(partition, tree.states[partition], NOW + 30).known for partition in (P0, P1)]
    assert ages == [30, 10]
    assert backlog.oldest(tree.states, NOW + 30).known == 30


def test_once_all_has_landed_nothing_waits_and_nothing_is_remembered() -> None:
    backlog = Backlog()
    backlog.look(view(p0=10), logs(p0=11), NOW)
    assert backlog.oldest(view(p0=11).states, NOW + 5) == NONE_WAITS
    assert backlog._looks == ()


def test_a_reading_that_is_thinned_out_leaves_its_bound_to_the_next() -> None:
    backlog, tree = Backlog(), view(("COMMITTED", NOW), p0=0)
    for second in range(1, 10 * LOOKS):
        backlog.look(tree, logs(p0=second), NOW + second)
    assert len(backlog._looks) == LOOKS
    for committed in range(0, 10 * LOOKS - 1, 7):
        age = backlog.oldest(view(p0=committed).states, NOW + 10 * LOOKS)
        came_at = NOW + committed + 1
        assert age.known <= NOW + 10 * LOOKS - came_at <= age.at_most


def test_a_clock_that_is_ahead_makes_no_age_negative() -> None:
    backlog, tree = Backlog(), view(("COMMITTED", NOW + 500), p0=0)
    backlog.look(tree, logs(p0=1), NOW)
    assert backlog.oldest(tree.states, NOW - 10) == NONE_WAITS


def test_a_log_that_ends_before_its_start_has_no_lag() -> None:
    assert lag(None, PartitionLog("id", 10, 5)) == 0
