"""A sink with an expression for topics reads each topic that comes to match, and reports each that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordination.planning.offsets import OffsetReset
from coordination.state import tree
from coordination.state.failures import Failure, FailureKind
from coordination.state.messages import ReadLog
from coordination.state.model import TopicPartition, WriteStatus
from tests.one_sink import load
from tests.simulation.table import slices_of
from tests.unit.config_kit import MINIMAL
from tests.unit.machine_kit import SOURCE, Driver, Environment, new_term

NEW = TopicPartition("orders-new", 0)


@pytest.fixture
def env() -> Environment:
    return Environment()


def land_all(term: Driver) -> None:
    """Lets the sink commit all records of the log."""
    for _ in range(12):
        term.idle()
        for t in term.env.view.transactions:
            if not t.statuses:
                term.env.report(t.header.number)
                term.keeper_changed()
        term.tick(1.0)


def add(env: Environment, source: TopicPartition, records: int) -> None:
    env.log.add(source)
    env.log.partitions[source].end = records


def test_the_coordinator_asks_for_topics_that_match(env: Environment) -> None:
    assert new_term(env, pattern="ord.*").until(ReadLog) == ReadLog((), "ord.*")


def test_a_topic_that_comes_to_match_is_found_and_read(env: Environment) -> None:
    term = new_term(env, pattern="orders.*")
    land_all(term)
    assert env.view.states[SOURCE].end == 100
    add(env, NEW, 30)
    add(env, TopicPartition("customers", 0), 30)
    land_all(term)
    assert env.view.states[NEW].end == 30
    assert {source.topic for source in env.view.states} == {"orders", "orders-new"}
    assert term.notes("topics.found") == [{"topics": ["orders-new"]}]


def test_a_topic_that_comes_to_match_later_is_read_from_its_beginning(env: Environment) -> None:
    term = new_term(env, pattern="orders.*", reset=OffsetReset.LATEST)
    land_all(term)
    assert env.view.states[SOURCE].start == 100, "records from before the sink began are not wanted"
    add(env, NEW, 30)
    land_all(term)
    slices = [one_slice for commit in env.table.commits for one_slice in slices_of(commit.stats)]
    assert sum(one_slice.end - one_slice.start for one_slice in slices if one_slice.source == NEW) == 30


def test_a_topic_that_is_gone_is_told_of_once_and_stops_nothing(env: Environment) -> None:
    add(env, NEW, 30)
    term = new_term(env, pattern="orders.*")
    land_all(term)
    del env.log.partitions[NEW], env.log.ids[NEW.topic]
    env.log.partitions[SOURCE].end = 150
    land_all(term)
    assert term.notes("topics.gone") == [{"topics": ["orders-new"]}]
    assert env.view.states[SOURCE].end == 150
    assert env.view.states[NEW].end == 30, "its landed offsets stay on record"
    assert env.view.halt is None


def test_a_topic_that_is_deleted_with_planned_offsets_halts_the_sink(env: Environment) -> None:
    """The sink promised these offsets and can never read them: an operator has to know."""
    add(env, NEW, 30)
    term = new_term(env, pattern="orders.*")
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))  # type: ignore[arg-type]
    env.log.delete(NEW.topic)
    for incarnation in env.transaction().plan.slices:
        failure = Failure(FailureKind.RETRYABLE, "no such topic")
        env.keeper.write(tree.status_ops(WriteStatus(1, incarnation, failure=failure)))
    land_all(term)
    assert env.view.halt is not None
    assert env.view.halt.topic == NEW.topic
    assert "[0, 30) was planned and can no longer be read" in env.view.halt.reason
    assert not env.view.transactions


def test_a_topic_that_comes_back_as_another_halts_the_sink_as_one_that_is_named_does(env: Environment) -> None:
    add(env, NEW, 30)
    term = new_term(env, pattern="orders.*")
    land_all(term)
    env.log.recreate(NEW.topic, 1)
    land_all(term)
    assert env.view.halt is not None
    assert "orders-new" in str(env.view.halt)


@pytest.mark.parametrize(
    ("topic", "matches"),
    [("orders-1", True), ("my-orders-1", False), ("__orders", False), ("bad-orders", False), ("bad-orders-2", True)],
)
def test_neither_kafkas_own_topics_nor_that_of_bad_records_match(tmp_path: Path, topic: str, matches: bool) -> None:
    file = tmp_path / "sink.yaml"
    content = MINIMAL.replace("kafka.topic.names: orders", "kafka.topic.regex: 'orders.*|bad.*|__.*'")
    file.write_text(f"{content}\nerrors.tolerance: all\nerrors.deadletter.topic: bad-orders\n")
    settings = load(file, {})
    assert settings.topic_pattern is not None
    assert (re.fullmatch(settings.topic_pattern, topic) is not None) is matches
