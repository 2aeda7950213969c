"""A survey handles partitions that the log does not have, or no longer has."""

from __future__ import annotations

import pytest

from coordination.planning.batches import Survey, survey
from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.planning.planner import other_cluster
from coordination.state.model import (
    Checkpoint,
    Gap,
    LogView,
    OpenRange,
    PartitionLog,
    PartitionState,
    TableView,
    TopicPartition,
)
from coordination.state.tree import KeeperInfo, KeeperView, Ledger

P0, P1, P2 = (TopicPartition("orders", partition) for partition in range(3))
READ = PartitionState("id", 0, 40, 1)


def survey_of(states: dict[TopicPartition, PartitionState], *present: TopicPartition) -> Survey:
    log = LogView("cluster", {source: PartitionLog("id", 0, 50) for source in present})
    return survey(states, log, ["orders"], DataLossPolicy.FAIL, OffsetReset.LATEST)


def test_a_partition_of_which_nothing_was_planned_is_waited_for() -> None:
    survey = survey_of({P0: READ, P1: PartitionState("id", 0, 0, 2)}, P0)
    assert survey.halt is None
    assert survey.ends == {P0: 50}


def test_a_partition_that_was_waited_for_is_read_from_its_beginning_as_it_is_recorded() -> None:
    awaited = PartitionState("id", 0, 0, 2)
    survey = survey_of({P0: READ, P1: awaited}, P0, P1)
    assert survey.states[P1] is awaited
    assert (survey.new_partitions, survey.ends[P1]) == ({}, 50)


def test_a_partition_that_is_gone_halts_where_anything_of_it_was_planned_or_is_of_another_topic_id() -> None:
    for gone in (
        PartitionState("id", 0, 5, 0),
        PartitionState("id", 0, 0, 0, (OpenRange(0, 5, 3, 10, 0, 10),)),
        PartitionState("former id", 0, 0, 0),
    ):
        survey = survey_of({P0: READ, P2: gone}, P0, P1)
        assert survey.halt is not None, gone
        assert (survey.halt.partition, "run `sink reset --to earliest" in survey.halt.reason) == (2, True)


@pytest.mark.parametrize("policy", DataLossPolicy)
def test_records_of_an_added_partition_that_expired_before_it_was_seen_are_lost_and_not_passed_over(
    policy: DataLossPolicy,
) -> None:
    log = LogView("cluster", {P0: PartitionLog("id", 0, 50), P1: PartitionLog("id", 7, 50)})
    first = survey({P0: READ}, log, ["orders"], policy, OffsetReset.LATEST)
    assert (first.halt, first.lost, first.ends) == (None, (), {P0: 50})
    assert first.new_partitions == {P1: PartitionState("id", 0, 0, 0)}
    second = survey(first.states, log, ["orders"], policy, OffsetReset.LATEST)
    if policy is DataLossPolicy.FAIL:
        assert second.halt is not None
        assert "orders-1: offsets [0, 7) were deleted from the log" in second.halt.reason
    else:
        assert [loss.gap for loss in second.lost] == [Gap("orders", 1, 0, 7)]


def test_a_partition_of_a_topic_of_which_nothing_was_read_begins_with_what_there_is() -> None:
    log = LogView("cluster", {P0: PartitionLog("id", 0, 50), P1: PartitionLog("id", 7, 50)})
    named = {P0: PartitionState("id", 40, 40, 1)}
    seen = survey(named, log, ["orders"], DataLossPolicy.FAIL, OffsetReset.LATEST)
    assert (seen.halt, seen.new_partitions) == (None, {P1: PartitionState("id", 7, 7, 0)})


def test_a_topic_without_any_partition_halts() -> None:
    assert survey_of({P0: PartitionState("id", 0, 0, 2)}).halt is not None


def view_of(cluster: str) -> KeeperView:
    return KeeperView(KeeperInfo("uuid", "config", cluster), 0, (), (), 1, 0, {}, {}, Ledger(), 0, (), (), 0, None)


@pytest.mark.parametrize(
    ("in_table", "in_tree", "reason"),
    [
        (None, "", None),
        (None, "here", None),
        ("here", "", None),
        # The table is the truth: the tree may be from before it.
        ("here", "there", None),
        (None, "there", "the sink began to read the Kafka cluster there, this one is here"),
        ("there", "", "the table was filled from the Kafka cluster there, this one is here"),
        ("there", "here", "the table was filled from the Kafka cluster there, this one is here"),
    ],
)
def test_another_cluster_is_told_from_a_topic_that_was_created_again_with_both_ids(
    in_table: str | None, in_tree: str, reason: str | None
) -> None:
    checkpoint = None if in_table is None else Checkpoint("orders", "uuid", in_table, 1, 1, 0, "config", {}, {})
    found = other_cluster(view_of(in_tree), TableView(checkpoint, {}), "here")
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(reason)
        assert "kafka.bootstrap.servers" in found
