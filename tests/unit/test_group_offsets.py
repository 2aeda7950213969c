"""Offsets of the consumer group: the newest win, a failed commit is retried, and no sink fails or waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordination.errors import Unavailable
from coordination.state.model import PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import KeeperView, Ledger
from sink.clients.kafka import groups as kafka_groups
from sink.clients.kafka.groups import GroupCommitter
from sink.runtime.watches.notes import LandedOffsets
from tests.unit.settings_kit import minimal_settings
from tests.waiting import eventually


class Metrics:
    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.retentions: list[Mapping[str, float]] = []

    def group_committed(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def retention(self, seconds: Mapping[str, float]) -> None:
        self.retentions.append(seconds)


class Kafka:
    """A Kafka client that answers once `answers` is set."""

    def __init__(self) -> None:
        self.commits: list[Any] = []
        self.retention_requests = 0
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.is_asked = threading.Event()

    def ask(self, question: Any) -> Any:
        self.is_asked.set()
        assert self.answers.wait(30)
        if self.error is not None:
            raise self.error
        if len(question) == 2 and isinstance(question[1], tuple):
            self.commits.append(question)
            return None
        self.retention_requests += 1
        return dict.fromkeys(question, 600.0)


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def committer(kafka: Kafka) -> Iterator[GroupCommitter]:
    committer = GroupCommitter({}, kafka.ask)
    yield committer
    kafka.answers.set()
    committer.close()


def states_up_to(end: int) -> dict[TopicPartition, PartitionState]:
    return {TopicPartition("orders", 0): PartitionState("id", 0, end, 0)}


def test_what_has_landed_is_committed_and_the_retention_asked_for(
    committer: GroupCommitter, kafka: Kafka, metrics: Metrics
) -> None:
    committer.offer("orders", "sink-orders", states_up_to(7), metrics)
    eventually("the retention is told", lambda: metrics.retentions)
    assert kafka.commits == [("sink-orders", (("orders", 0, 7, "id"),))]
    assert metrics.outcomes == ["done"]
    assert metrics.retentions == [{"orders": 600.0}]


def test_an_offer_returns_at_once_and_the_newest_wins_while_kafka_hangs(
    committer: GroupCommitter, kafka: Kafka, metrics: Metrics
) -> None:
    kafka.answers.clear()
    committer.offer("orders", "sink-orders", states_up_to(1), metrics)
    assert kafka.is_asked.wait(30)
    for end in range(2, 1000):
        committer.offer("orders", "sink-orders", states_up_to(end), metrics)
    committer.offer("payments", "sink-payments", states_up_to(5), metrics)
    kafka.answers.set()
    eventually("both are committed", lambda: len(kafka.commits) == 3)
    assert kafka.commits[0] == ("sink-orders", (("orders", 0, 1, "id"),))
    assert sorted(kafka.commits[1:]) == [
        ("sink-orders", (("orders", 0, 999, "id"),)),
        ("sink-payments", (("orders", 0, 5, "id"),)),
    ]
    assert kafka.retention_requests == 2, "once for each sink, however often it commits"


@pytest.mark.parametrize("error", [Unavailable("Kafka is away"), ValueError("a defect")])
def test_a_failure_is_told_once_for_each_reason_and_tried_again(
    committer: GroupCommitter, kafka: Kafka, metrics: Metrics, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_groups, "RETRY_SECONDS", 0.02)
    kafka.error = error
    with capture_logs() as logs:
        committer.offer("orders", "sink-orders", states_up_to(7), metrics)
        eventually("it is tried again", lambda: len(metrics.outcomes) > 3)
        kafka.error = None
        eventually("it is committed", lambda: kafka.commits)
    warnings = [
        entry for entry in logs if entry["event"] == "kafka.group_not_committed" and entry["log_level"] == "warning"
    ]
    assert [entry["reason"] for entry in warnings] == [str(error)]
    assert set(metrics.outcomes[:-1]) == {"failed"}
    assert metrics.outcomes[-1] == "done"


def test_without_a_group_only_the_retention_is_asked_for(
    committer: GroupCommitter, kafka: Kafka, metrics: Metrics
) -> None:
    committer.offer("orders", None, states_up_to(7), metrics)
    eventually("the retention is told", lambda: metrics.retentions)
    assert (kafka.commits, metrics.outcomes) == ([], [])


def test_the_end_waits_for_the_newest_offer_but_not_for_a_kafka_that_hangs(kafka: Kafka, metrics: Metrics) -> None:
    committer = GroupCommitter({}, kafka.ask)
    committer.offer("orders", "sink-orders", states_up_to(7), metrics)
    committer.close()
    assert kafka.commits == [("sink-orders", (("orders", 0, 7, "id"),))]
    hanging = Kafka()
    hanging.answers.clear()
    committer = GroupCommitter({}, hanging.ask)
    committer.offer("orders", "sink-orders", states_up_to(7), metrics)
    assert hanging.is_asked.wait(30)
    committer.close(0.05)
    hanging.answers.set()
    committer.offer("orders", "sink-orders", states_up_to(8), metrics)
    assert committer._child.pid == 0


class Offers:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []

    def offer(self, sink: str, group: str | None, *_: Any) -> None:
        self.calls.append((sink, group))


def view(epoch: int, committed: int) -> KeeperView:
    return replace(
        TreeReader().read({}), epoch=epoch, ledger=Ledger(committed, committed), states=states_up_to(committed)
    )


@pytest.mark.parametrize(("value", "group"), [("true", "sink-orders"), ("false", None)])
def test_it_is_offered_once_for_each_commit_and_once_for_each_term(
    value: str, group: str | None, tmp_path: Path
) -> None:
    offers = Offers()
    settings = minimal_settings(tmp_path, kafka__group__offsets=value)
    offsets = LandedOffsets(settings, offers, Metrics())  # type: ignore[arg-type]
    offsets.observe(TreeReader().read({}))
    assert offers.calls == []
    for epoch, committed in ((1, 3), (1, 3), (1, 4), (2, 4)):
        offsets.observe(view(epoch, committed))
    assert offers.calls == [("orders", group)] * 3
