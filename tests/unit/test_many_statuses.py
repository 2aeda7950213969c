"""`sink status` of many sinks: trees side by side, one question to Kafka for all sinks of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka import UnknownTopic, Unsettled
from sink.operations import many_statuses
from sink.operations.log_ends import LogQuestion, ask_all
from sink.operations.many_statuses import ManyStatuses, TreeReading


class Broker:
    """Stands for `Log`. `missing` topics do not exist, `unsettled` ones have no leader. Counts questions."""

    def __init__(self, missing: Sequence[str] = (), unsettled: Sequence[str] = (), down: bool = False) -> None:
        self.missing, self.unsettled, self.down = frozenset(missing), frozenset(unsettled), down
        self.questions = 0

    def view(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        return self.view_once(topics, pattern, optional)

    def view_once(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        self.questions += 1
        if self.down:
            raise Unavailable("Kafka gave no answer")
        if unknown := [topic for topic in topics if topic in self.missing]:
            raise UnknownTopic(unknown, "broker", [])
        if any(topic in self.unsettled for topic in (*topics, *optional)):
            raise Unsettled("no leader")
        matching = None if pattern is None else (f"{pattern}1",)
        present = [
            topic for topic in dict.fromkeys((*topics, *optional, *(matching or ()))) if topic not in self.missing
        ]
        ends = {TopicPartition(topic, 0): PartitionLog("id", 0, len(topic), len(topic)) for topic in present}
        return LogView("cluster", ends, matching=matching, deleted=tuple(t for t in optional if t in self.missing))


def questions(count: int) -> dict[str, LogQuestion]:
    return {f"s{number}": LogQuestion((f"t{number}",), None, ()) for number in range(count)}


def asked(broker: Broker, of: dict[str, LogQuestion]) -> dict[str, Any]:
    log: Any = broker
    return ask_all(log, of)


def topics(answer: tuple[LogView | None, str | None]) -> list[str]:
    view, error = answer
    assert view is not None, error
    return sorted(partition.topic for partition in view.partitions)


def test_three_hundred_sinks_are_one_question_to_kafka() -> None:
    broker = Broker()
    answers = asked(broker, questions(300))
    assert broker.questions == 1
    assert all(topics(answers[f"s{number}"]) == [f"t{number}"] for number in range(300))


@pytest.mark.parametrize("broker", [Broker(missing=["t77"]), Broker(unsettled=["t77"])], ids=["missing", "unsettled"])
def test_a_topic_that_cannot_be_looked_at_hides_no_other_sink(broker: Broker) -> None:
    answers = asked(broker, questions(300))
    assert [name for name, (view, _) in answers.items() if view is None] == ["s77"]
    assert answers["s77"][1]
    assert broker.questions <= 20


def test_a_cluster_that_is_away_is_waited_for_once() -> None:
    broker = Broker(down=True)
    answers = asked(broker, questions(300))
    assert broker.questions == 1
    assert {error for _, error in answers.values()} == {"Kafka gave no answer"}


def test_a_recorded_topic_that_is_gone_is_said_to_its_own_sink() -> None:
    of = {"a": LogQuestion(("t0",), None, ("old",)), "b": LogQuestion(("t1",), None, ())}
    answers = asked(Broker(missing=["old"]), of)
    assert (topics(answers["a"]), answers["a"][0].deleted) == (["t0"], ("old",))
    assert (topics(answers["b"]), answers["b"][0].deleted) == (["t1"], ())


def test_sinks_of_patterns_are_asked_about_alone() -> None:
    of = {**questions(3), "p": LogQuestion((), "x.*", ()), "q": LogQuestion((), "y.*", ())}
    broker = Broker()
    answers = asked(broker, of)
    assert broker.questions == 3
    assert (topics(answers["p"]), topics(answers["q"])) == (["x.*1"], ["y.*1"])
    assert answers["p"][0].matching == ("x.*1",)


class Settings:
    kafka_native = {"bootstrap.servers": "broker"}  # noqa: RUF012 - nobody changes it
    topic_pattern = None

    def __init__(self, name: str) -> None:
        self.name, self.topics, self.root_znode = name, (name,), f"/sink/{name}"


class Client:
    def add_listener(self, _listener: object) -> None: ...


def test_trees_are_read_side_by_side_and_one_that_cannot_be_read_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class View:
        states: dict[TopicPartition, object] = {}  # noqa: RUF012 - nobody changes it

    together = threading.Barrier(many_statuses.SIDE_BY_SIDE)

    def read_tree(keeper: Any) -> TreeReading:
        # So many readings wait for one another: one after the other they would wait in vain.
        together.wait(30)
        if keeper._root.endswith("/s3"):
            raise many_statuses.Corrupt("s3 is damaged")
        view: Any = View()
        return TreeReading(view, None, None)

    monkeypatch.setattr(many_statuses, "read_tree", read_tree)
    monkeypatch.setattr(many_statuses, "reading_of", lambda settings, *_: settings.name)
    monkeypatch.setattr(ManyStatuses, "_hosts", lambda *_: {})
    settings: Any = [Settings(f"s{number}") for number in range(4 * many_statuses.SIDE_BY_SIDE)]
    client: Any = Client()
    looks = ManyStatuses(client, settings, lag=False).read()
    assert [look.reading for look in looks if look.error is None] == [s.name for s in settings if s.name != "s3"]
    errors = [look.error for look in looks if look.error is not None]
    assert all(isinstance(error, SinkError) for error in errors)
    assert len(errors) == 1


def test_a_repeated_look_reads_the_records_without_a_watch_of_some_sinks_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records_read: list[str] = []
    view: Any = type("View", (), {"states": {}})

    def read_tree(keeper: Any) -> TreeReading:
        records_read.append(keeper._root)
        return TreeReading(view, None, None)

    monkeypatch.setattr(many_statuses, "read_tree", read_tree)
    monkeypatch.setattr(many_statuses.Keeper, "read", lambda _keeper: view)
    monkeypatch.setattr(many_statuses, "reading_of", lambda settings, *_: settings.name)
    monkeypatch.setattr(ManyStatuses, "_hosts", lambda *_: {})
    settings: Any = [Settings(f"s{number}") for number in range(90)]
    client: Any = Client()
    statuses = ManyStatuses(client, settings, lag=False)
    statuses.read()
    assert len(records_read) == 90
    records_read.clear()
    for _ in range(3):
        assert len(statuses.read()) == 90
    assert sorted(records_read) == sorted(f"/sink/s{number}" for number in range(90))
