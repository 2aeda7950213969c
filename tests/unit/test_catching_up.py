"""Targets of waits and bounded runs: offsets that stay as they are, and times that people write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordination.errors import ConfigError
from coordination.state.model import LogView, OpenRange, PartitionLog, PartitionState, TopicPartition
from coordination.state.tree import KeeperInfo, KeeperView
from sink.clients.kafka.log import Log
from sink.operations.catching_up import CatchUpTarget, positions_at, target_of
from sink.operations.observed_sink import observed_sink
from sink.operations.reset import ResetRequest, with_offsets
from tests.unit.settings_kit import minimal_settings

P0, P1, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)


class TimedLog:
    """Answers offsets by time as a broker does, with None where a broker answers -1: there is no such record."""

    def __init__(self, **offsets: int | None) -> None:
        self._offsets = offsets

    def offsets_at(self, sources: Sequence[TopicPartition], _seconds: float) -> dict[TopicPartition, int | None]:
        return {source: self._offsets[f"p{source.partition}"] for source in sources}


def log_of(**ends: tuple[int, int]) -> dict[TopicPartition, PartitionLog]:
    return {TopicPartition("orders", int(name[1:])): PartitionLog("id", *bounds) for name, bounds in ends.items()}


def state(end: int, topic_id: str = "id") -> PartitionState:
    return PartitionState(topic_id, 0, end, 0, (OpenRange(end, end + 5, 3, 5, 0, 5),))


def test_a_target_is_reached_when_each_partition_is_committed_that_far() -> None:
    target = CatchUpTarget(log_of(p0=(0, 10), p1=(5, 9)))
    assert target.missing({}) == 10 + 4
    assert not target.is_reached({P0: state(10)})
    assert target.missing({P0: state(10), P1: state(7)}) == 2
    assert target.is_reached({P0: state(12), P1: state(9)})


class SeenLog(TimedLog):
    def __init__(self, log_view: LogView, **offsets: int | None) -> None:
        super().__init__(**offsets)
        self.log_view = log_view

    def view(self, *_: object) -> LogView:
        return self.log_view


def test_records_behind_an_open_kafka_transaction_are_waited_for_and_named(tmp_path: Path) -> None:
    sink, view = observed_sink(minimal_settings(tmp_path)), cast(KeeperView, SimpleNamespace(states={}, info=None))
    logs = {P0: PartitionLog("id", 0, 10, 16), P1: PartitionLog("id", 5, 9, 9)}
    log = SeenLog(LogView("cluster", logs), p0=None, p1=7)
    target = target_of(cast(Log, log), sink, view)
    landed = {P0: state(10), P1: state(9)}
    assert (target.is_reached(landed), target.missing(landed)) == (False, 6)
    assert target.waits_for(landed) == ". It waits for the end of open Kafka transactions: orders-0 (offset 10)"
    assert target.waits_for({P0: state(16), P1: state(9)}) == ""
    before = target_of(cast(Log, log), sink, view, at=1.0)
    assert before.is_reached({P0: state(16), P1: state(7)})


def test_another_cluster_than_the_sink_reads_has_no_end_that_could_be_reached(tmp_path: Path) -> None:
    view = cast(KeeperView, SimpleNamespace(states={}, info=KeeperInfo("uuid", "config", "read")))
    empty = SeenLog(LogView("another", {P0: PartitionLog("id", 0, 0)}))
    with pytest.raises(ConfigError, match="began to read the Kafka cluster read, this one is another"):
        target_of(cast(Log, empty), observed_sink(minimal_settings(tmp_path)), view)


def test_what_is_planned_and_not_committed_does_not_count() -> None:
    assert not CatchUpTarget(log_of(p0=(0, 12))).is_reached({P0: state(10)})


def test_another_topic_of_the_same_name_has_committed_nothing_of_it() -> None:
    assert not CatchUpTarget(log_of(p0=(0, 10))).is_reached({P0: state(10, "another")})


def test_the_records_of_a_time_begin_at_the_first_that_is_not_older_or_at_the_end() -> None:
    log_view = LogView("cluster", log_of(p0=(3, 10), p1=(3, 10)))
    assert positions_at(cast(Log, TimedLog(p0=5, p1=None)), log_view, 1.0) == {P0: 5, P1: 10}
    assert positions_at(cast(Log, TimedLog(p0=1, p1=12)), log_view, 1.0) == {P0: 3, P1: 10}


def test_a_reset_to_a_time_moves_the_topics_that_it_names() -> None:
    positions = {P0: 5, P1: 6, OTHER: 7}
    assert with_offsets(ResetRequest(), positions).offsets == positions
    assert with_offsets(ResetRequest(topics=("orders",)), positions).offsets == {P0: 5, P1: 6}
    with pytest.raises(ConfigError, match="--topic: nothing is known of orderz"):
        with_offsets(ResetRequest(topics=("orderz",)), positions)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run"], "give one of --until-end and --until TIME"),
        (["run", "--until-end", "--until", "2026-11-25"], "give one of --until-end and --until TIME"),
        (["run", "--until", "soon"], "--until 'soon' is not a time"),
        (["wait"], "say what to wait for"),
        (["reset", "--to", "yesterday"], "is not a time. Write .*, or one of earliest, latest, checkpoint"),
        (["reset", "--to", "2999-01-01"], "lies in the future. --to latest"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused_in_one_sentence(
    arguments: list[str], reason: str, capsys: Any
) -> None:
    from sink.cli import main

    assert main([*arguments, "--config", "nowhere.yaml"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(reason, error), error
