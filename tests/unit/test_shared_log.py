"""Threads share one Kafka client: a reader of the recent view waits for no other, and hears of a Kafka that is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from coordination.errors import Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka import log as kafka
from sink.clients.kafka import process as kafka_process
from sink.clients.kafka import shared_log
from sink.clients.kafka.log import UnknownTopic, Unsettled
from sink.clients.kafka.shared_log import SharedLog
from tests.waiting import eventually

SOURCE = TopicPartition("orders", 0)
GONE = "gone"
MOVING = "moving"
"""A topic with a partition that has no leader."""
NOW = 0.0
"""An age that no earlier view has."""


class Broker:
    """Answers once a test lets it, or raises Unavailable."""

    def __init__(self) -> None:
        self.end = 5
        self.is_away = False
        self.is_settled = False
        self.names: tuple[str, ...] = ("orders", "orders-eu", "clicks")
        self.requests = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def view_once(self, topics: Sequence[str], _pattern: str | None, optional: Sequence[str]) -> LogView:
        self.requests += 1
        assert self.may_answer.wait(30)
        if self.is_away:
            raise Unavailable("Kafka at k:9092 gave no answer")
        if MOVING in topics and not self.is_settled:
            raise Unsettled("offsets of moving-0 at k:9092: Leader not available")
        if GONE in topics:
            raise UnknownTopic([GONE], "k:9092", ())
        present = [TopicPartition(topic, 0) for topic in (*topics, *optional) if topic != GONE]
        logs = {source: PartitionLog("id", 0, self.end) for source in present}
        return LogView("cluster", logs, deleted=tuple(topic for topic in optional if topic == GONE))

    def topics(self) -> tuple[str, ...]:
        if self.is_away:
            raise Unavailable("Kafka at k:9092 gave no answer")
        return self.names


@pytest.fixture
def broker() -> Iterator[Broker]:
    fake = Broker()
    yield fake
    fake.may_answer.set()


@pytest.fixture
def log(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> SharedLog:
    monkeypatch.setattr(kafka, "GRACE_SECONDS", 0.0)
    stub: Any = broker
    return SharedLog(stub)


def start_request(log: SharedLog, broker: Broker, topic: str = "orders") -> threading.Thread:
    """Starts another thread, whose request is under way."""

    def ask() -> None:
        try:
            log.view([topic])
        except Unavailable:
            return

    earlier_requests = broker.requests
    broker.may_answer.clear()
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    eventually("it asks", lambda: broker.requests > earlier_requests, 30)
    return thread


def test_who_asks_while_another_does_gets_the_last_view(log: SharedLog, broker: Broker) -> None:
    log.view(["orders"])
    broker.end = 9
    thread = start_request(log, broker)
    assert log.recent(["orders"], NOW).partitions[SOURCE].end == 5
    broker.may_answer.set()
    thread.join()
    assert log.recent(["orders"], 60.0).partitions[SOURCE].end == 9


def test_kafka_away_is_heard_of_though_others_keep_asking(log: SharedLog, broker: Broker) -> None:
    log.view(["orders"])
    broker.is_away = True
    with pytest.raises(Unavailable):
        log.view(["orders"])
    thread = start_request(log, broker)
    with pytest.raises(Unavailable, match="k:9092"):
        log.recent(["orders"], NOW)
    broker.is_away = False
    broker.may_answer.set()
    thread.join()
    assert log.recent(["orders"], 60.0).partitions[SOURCE].end == 5


def test_a_view_has_the_optional_topics_that_are_there(log: SharedLog, broker: Broker) -> None:
    view = log.view(["orders"], None, ["former", GONE])
    assert ({source.topic for source in view.partitions}, view.deleted) == ({"orders", "former"}, (GONE,))
    recent = log.recent(["former"], 60.0, ["orders", GONE])
    assert {source.topic for source in recent.partitions} == {"orders", "former"}
    assert broker.requests == 1, "the log remembers a topic that is gone, too"


def test_a_topic_that_one_sink_may_miss_is_an_error_for_another_that_names_it(log: SharedLog) -> None:
    assert log.recent([], 60.0, [GONE]).partitions == {}
    with pytest.raises(UnknownTopic):
        log.recent([GONE], 60.0)


def test_a_sink_whose_first_topic_is_yet_to_come_has_an_empty_log(log: SharedLog, broker: Broker) -> None:
    assert log.recent([], 60.0, []).partitions == {}
    assert broker.requests == 0


def test_topics_that_do_not_settle_keep_the_log_from_no_other_sink(log: SharedLog, broker: Broker) -> None:
    thread = start_request(log, broker, MOVING)
    broker.may_answer.set()
    assert log.view(["orders"]).partitions[SOURCE].end == 5
    assert thread.is_alive(), "the other sink still waits"
    broker.is_settled = True
    thread.join()
    assert TopicPartition(MOVING, 0) in log.recent([MOVING], 60.0).partitions


def test_topics_that_do_not_settle_are_not_taken_for_a_kafka_that_is_away(
    log: SharedLog, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_log, "TIMEOUT_SECONDS", 0.0)
    log.view(["orders"])
    with pytest.raises(Unsettled):
        log.view([MOVING])
    thread = start_request(log, broker, MOVING)
    assert log.recent(["orders"], NOW).partitions[SOURCE].end == 5
    broker.is_settled = True
    broker.may_answer.set()
    thread.join()


def test_the_process_that_asks_kafka_tries_a_view_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Sequence[str]] = []

    def take_view(_log: kafka.Log, _admin: Any, topics: Sequence[str], *_: Any) -> LogView:
        tries.append(topics)
        raise Unsettled("offsets of moving-0 at k:9092: Leader not available")

    monkeypatch.setattr(kafka.Log, "_take_view", take_view)
    monkeypatch.setattr(kafka.Log, "_asking", lambda _: nullcontext())
    answer = kafka_process._prepare(({"bootstrap.servers": "k:9092"}, 1.0))
    with pytest.raises(Unsettled):
        answer(((MOVING,), None, ()))
    assert tries == [(MOVING,)]


def topics_of(view: LogView) -> set[str]:
    return {source.topic for source in view.partitions}


def test_a_recent_view_has_the_topics_that_match_a_pattern(log: SharedLog, broker: Broker) -> None:
    assert topics_of(log.recent(["orders"], NOW, [], ["orders-.*", "none"])) == {"orders", "orders-eu"}
    broker.names += ("orders-us",)
    assert topics_of(log.recent([], 60.0, [], ["orders-.*"])) == {"orders-eu"}, "the list of topics is recent"
    assert topics_of(log.recent([], NOW, [], ["orders-.*"])) == {"orders-eu", "orders-us"}


def test_while_another_asks_a_pattern_is_answered_from_the_last_list(log: SharedLog, broker: Broker) -> None:
    log.recent([], NOW, [], ["orders-.*"])
    thread = start_request(log, broker)
    assert topics_of(log.recent([], NOW, [], ["orders-.*"])) == {"orders-eu"}
    broker.may_answer.set()
    thread.join()


def test_while_another_asks_a_pattern_without_any_list_has_no_answer(log: SharedLog, broker: Broker) -> None:
    thread = start_request(log, broker)
    with pytest.raises(Unavailable, match="no earlier one"):
        log.recent([], NOW, [], ["orders-.*"])
    broker.may_answer.set()
    thread.join()


def test_topics_that_cannot_be_listed_are_a_kafka_that_is_away(log: SharedLog, broker: Broker) -> None:
    broker.is_away = True
    with pytest.raises(Unavailable, match="k:9092"):
        log.recent([], NOW, [], ["orders-.*"])
    thread = start_request(log, broker)
    with pytest.raises(Unavailable, match="k:9092"):
        log.recent([], NOW, [], ["orders-.*"])
    broker.may_answer.set()
    thread.join()
