"""A survey handles partitions that the log does not have, or no longer has."""

from __future__ import annotations

from coordination.planning.batches import Survey, survey
from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.state.model import LogView, OpenRange, PartitionLog, PartitionState, TopicPartition

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


def test_a_topic_without_any_partition_halts() -> None:
    assert survey_of({P0: PartitionState("id", 0, 0, 2)}).halt is not None
