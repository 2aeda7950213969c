"""An error about one sink's topics hides no topic of another sink."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka.log import UnknownTopic, Unsettled
from sink.http.logs import LogCache


class Broker:
    """A broker with these topics, each of one partition."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.leaderless: str | None = None

    def recent(
        self, topics: Sequence[str], _age: float, optional: Sequence[str] = (), patterns: Sequence[str] = (), /
    ) -> LogView:
        if missing := [topic for topic in topics if topic not in self.topics]:
            raise UnknownTopic(missing, "k:9092", ())
        if self.leaderless in topics:
            raise Unsettled(f"offsets of {self.leaderless}-0: Leader not available")
        matching = [topic for topic in self.topics if any(re.fullmatch(pattern, topic) for pattern in patterns)]
        existing = [topic for topic in (*topics, *optional, *matching) if topic in self.topics]
        return LogView("cluster", {TopicPartition(topic, 0): PartitionLog("id", 0, 5) for topic in existing})


def sink(broker: Broker, configured: Sequence[str], recorded: Sequence[str], pattern: str | None = None) -> Any:
    hosted = SimpleNamespace(observed=SimpleNamespace(topics=tuple(configured), topic_pattern=pattern), log=broker)
    return hosted, SimpleNamespace(topics=tuple(recorded))


def topics_of(logs: LogCache, name: str) -> set[str] | None:
    answer = logs.answer_for(name)
    return {source.topic for source in answer.partitions} if isinstance(answer, LogView) else None


def test_a_topic_of_a_pattern_that_is_gone_hides_nothing() -> None:
    broker, logs = Broker("a", "b"), LogCache()
    logs.refresh({"one": sink(broker, (), ("a", "gone")), "two": sink(broker, ("b",), ("b",))})
    assert (topics_of(logs, "one"), topics_of(logs, "two")) == ({"a"}, {"b"})


def test_a_sink_of_a_pattern_sees_matching_topics_that_are_not_recorded_yet_and_no_other_sink_does() -> None:
    broker, logs = Broker("orders-eu", "orders-us", "clicks"), LogCache()
    one, two = sink(broker, (), ("orders-us",), "orders-.*"), sink(broker, ("clicks",), ())
    logs.refresh({"one": one, "two": two})
    assert (topics_of(logs, "one"), topics_of(logs, "two")) == ({"orders-eu", "orders-us"}, {"clicks"})


def test_a_configured_topic_that_is_not_there_is_an_error_of_its_sink_alone() -> None:
    broker, logs = Broker("b"), LogCache()
    logs.refresh({"one": sink(broker, ("nowhere",), ()), "two": sink(broker, ("b",), ())})
    assert "no such topic" in str(logs.answer_for("one"))
    assert (topics_of(logs, "one"), topics_of(logs, "two")) == (None, {"b"})


def test_a_sink_whose_topics_are_all_gone_or_are_yet_to_come_has_an_empty_log() -> None:
    broker, logs = Broker(), LogCache()
    logs.refresh({"gone": sink(broker, (), ("a",)), "early": sink(broker, (), ())})
    assert (topics_of(logs, "gone"), topics_of(logs, "early")) == (set(), set())


def test_a_topic_without_a_leader_hides_no_other_sinks_lag() -> None:
    broker, logs = Broker("orders", "clicks"), LogCache()
    broker.leaderless = "clicks"
    logs.refresh({"orders": sink(broker, ["orders"], []), "clicks": sink(broker, ["clicks"], [])})
    assert topics_of(logs, "orders") == {"orders"}
    assert str(logs.answer_for("clicks")) == "offsets of clicks-0: Leader not available"
