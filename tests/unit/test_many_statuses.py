"""`sink status` of many sinks: trees together, one question to Kafka for all sinks of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import pytest
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from coordination.errors import Corrupt, Unavailable
from coordination.state import codec, tree
from coordination.state import control as controls
from coordination.state.control import Control
from coordination.state.model import LogView, Member, PartitionLog, TopicPartition
from coordination.state.tree import KeeperInfo
from coordination.zookeeper.keeper import TREES_AT_ONCE
from coordination.zookeeper.records import CatalogState
from coordination.zookeeper.table_service_lock import TableServiceRun
from coordination.zookeeper.worker_summaries import WorkerSummaries
from sink.clients.kafka.log import UnknownTopic, Unsettled
from sink.operations import many_statuses
from sink.operations.log_ends import LogAnswer, LogQuestion, ask_fresh
from sink.operations.many_statuses import ManyStatuses


class Broker:
    """Stands for `Log`. `missing` topics do not exist, `unsettled` ones have no leader. Counts questions."""

    def __init__(self, missing: Sequence[str] = (), unsettled: Sequence[str] = (), down: bool = False) -> None:
        self.missing, self.unsettled, self.down = frozenset(missing), frozenset(unsettled), down
        self.questions = 0

    def topics(self, pattern: str) -> tuple[str, ...]:
        return (pattern.replace(".*", "1"),)

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
        matching = None if pattern is None else self.topics(pattern)
        present = [
            topic for topic in dict.fromkeys((*topics, *optional, *(matching or ()))) if topic not in self.missing
        ]
        ends = {TopicPartition(topic, 0): PartitionLog("id", 0, len(topic), len(topic)) for topic in present}
        return LogView("cluster", ends, matching=matching, deleted=tuple(t for t in optional if t in self.missing))


def questions(count: int) -> dict[str, LogQuestion]:
    return {f"s{number}": LogQuestion((f"t{number}",), None, ()) for number in range(count)}


def asked(broker: Broker, of: dict[str, LogQuestion]) -> dict[str, Any]:
    log: Any = broker
    return ask_fresh(log, of)


def topics(answer: LogAnswer) -> list[str]:
    assert isinstance(answer, LogView), answer
    return sorted(partition.topic for partition in answer.partitions)


def test_three_hundred_sinks_are_one_question_to_kafka() -> None:
    broker = Broker()
    answers = asked(broker, questions(300))
    assert broker.questions == 1
    assert all(topics(answers[f"s{number}"]) == [f"t{number}"] for number in range(300))


@pytest.mark.parametrize("broker", [Broker(missing=["t77"]), Broker(unsettled=["t77"])], ids=["missing", "unsettled"])
def test_a_topic_that_cannot_be_looked_at_hides_no_other_sink(broker: Broker) -> None:
    answers = asked(broker, questions(300))
    assert [name for name, answer in answers.items() if not isinstance(answer, LogView)] == ["s77"]
    assert broker.questions <= 20


def test_a_cluster_that_is_away_is_waited_for_once() -> None:
    broker = Broker(down=True)
    answers = asked(broker, questions(300))
    assert broker.questions == 1
    assert {str(error) for error in answers.values()} == {"Kafka gave no answer"}


def test_a_recorded_topic_that_is_gone_is_said_to_its_own_sink() -> None:
    of = {"a": LogQuestion(("t0",), None, ("old",)), "b": LogQuestion(("t1",), None, ())}
    answers = asked(Broker(missing=["old"]), of)
    assert (topics(answers["a"]), answers["a"].deleted) == (["t0"], ("old",))
    assert (topics(answers["b"]), answers["b"].deleted) == (["t1"], ())


def test_sinks_of_patterns_are_part_of_the_question() -> None:
    of = {**questions(3), "p": LogQuestion((), "x.*", ()), "q": LogQuestion((), "y.*", ())}
    broker = Broker()
    answers = asked(broker, of)
    assert broker.questions == 1
    assert (topics(answers["p"]), topics(answers["q"])) == (["x1"], ["y1"])


class Sink:
    kafka = {"bootstrap.servers": "broker"}  # noqa: RUF012 - nobody changes it
    topic_pattern = None

    def __init__(self, name: str) -> None:
        self.name, self.topics, self.root_znode = name, (name,), f"/sink/{name}"
        self.fleet_znode = "/sink"


class ZooKeeper:
    """Stands for kazoo's client. A wait for an answer is a round trip, in which all requests are answered that were
    sent before it. `most` requests were under way at a time.
    """

    def __init__(self, sinks: int) -> None:
        self.requests = self.round_trips = self.most = self._answered = 0
        self.watches: dict[str, Any] = {}
        self.znodes: dict[str, bytes] = {}
        for number in range(sinks):
            self.znodes |= znodes_of(f"/sink/s{number}")

    def add_listener(self, _listener: object) -> None: ...

    def get_async(self, path: str, watch: Any = None) -> Answer:
        if watch is not None:
            self.watches[path] = watch
        return self._answer(lambda: (self.znodes[path], Stat(0)))

    def get_children_async(self, path: str, watch: Any) -> Answer:  # noqa: ARG002 - kazoo's name
        def names() -> list[str]:
            below = [name[len(path) + 1 :] for name in self.znodes if name.startswith(f"{path}/")]
            return sorted({name.partition("/")[0] for name in below})

        return self._answer(names)

    def _answer(self, value: Callable[[], Any]) -> Answer:
        self.requests += 1
        self.most = max(self.most, self.requests - self._answered)
        return Answer(self, self.requests, value)

    def wait_for(self, request: int) -> None:
        if request > self._answered:
            self.round_trips += 1
            self._answered = self.requests


class Answer:
    def __init__(self, zookeeper: ZooKeeper, request: int, value: Callable[[], Any]) -> None:
        self._zookeeper, self._request, self._value = zookeeper, request, value

    def get(self, timeout: float) -> Any:  # noqa: ARG002 - kazoo's name
        self._zookeeper.wait_for(self._request)
        return self._value()


class Stat(NamedTuple):
    version: int


def znodes_of(root: str) -> dict[str, bytes]:
    contents = {
        tree.KEEPER: tree.info_data(KeeperInfo("uuid", "config")),
        tree.EPOCH: tree.epoch_data(3, "w1:1"),
        tree.TRANSACTIONS: b"",
        tree.CONTROL: controls.encode(Control()),
        tree.member_path("w1:1"): codec.encode_member(Member("w1:1", "host", 1, "version")),
        tree.SERVICES: codec.to_bytes(asdict(TableServiceRun("w1", 7.0))),
        tree.CATALOG: codec.to_bytes(asdict(CatalogState("hive"))),
    }
    return {f"{root}/{name}": content for name, content in contents.items()}


def statuses_of(zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, sinks: int) -> ManyStatuses:
    monkeypatch.setattr(many_statuses, "reading_of", lambda _sink, tree, *_: tree)
    monkeypatch.setattr(WorkerSummaries, "hosts", lambda _: {})
    sinks_seen: Any = [Sink(f"s{number}") for number in range(sinks)]
    client: Any = zookeeper
    return ManyStatuses(client, sinks_seen, lag=False)


def test_as_many_trees_as_are_read_together_take_the_round_trips_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, many = ZooKeeper(1), ZooKeeper(TREES_AT_ONCE)
    statuses_of(one, monkeypatch, 1).read()
    looks = statuses_of(many, monkeypatch, TREES_AT_ONCE).read()
    trees: list[Any] = [look.reading for look in looks]
    assert [(tree.view.epoch, tree.services.ended, tree.catalog.catalog) for tree in trees] == [
        (3, 7.0, "hive")
    ] * TREES_AT_ONCE
    assert many.round_trips == one.round_trips <= 4
    assert many.requests == one.requests * TREES_AT_ONCE


def test_a_look_at_three_hundred_trees_takes_few_round_trips_and_never_fills_the_pipe_of_kazoo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zookeeper = ZooKeeper(300)
    assert len(statuses_of(zookeeper, monkeypatch, 300).read()) == 300
    assert zookeeper.round_trips <= 4 * -(-300 // TREES_AT_ONCE)
    assert zookeeper.most < 270


def test_a_tree_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = ZooKeeper(4 * TREES_AT_ONCE)
    zookeeper.znodes[f"/sink/s3/{tree.EPOCH}"] = b"damaged"
    looks = statuses_of(zookeeper, monkeypatch, 4 * TREES_AT_ONCE).read()
    assert [look.sink.name for look in looks if look.reading is None] == ["s3"]
    assert isinstance(looks[3].error, Corrupt)


def test_a_repeated_look_reads_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = ZooKeeper(90)
    statuses = statuses_of(zookeeper, monkeypatch, 90)
    statuses.read()
    before = zookeeper.requests
    assert len(statuses.read()) == 90
    assert zookeeper.requests == before
    changed = f"/sink/s7/{tree.SERVICES}"
    zookeeper.znodes[changed] = codec.to_bytes(asdict(TableServiceRun("w1", 8.0)))
    zookeeper.watches[changed](WatchedEvent(EventType.CHANGED, KeeperState.CONNECTED, changed))
    seventh: Any = statuses.read()[7].reading
    assert (seventh.services.ended, zookeeper.requests - before) == (8.0, 1)


def test_records_beside_a_tree_that_are_missing_or_damaged_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = ZooKeeper(1)
    zookeeper.znodes[f"/sink/s0/{tree.SERVICES}"] = b"damaged"
    del zookeeper.znodes[f"/sink/s0/{tree.CATALOG}"]
    (look,) = statuses_of(zookeeper, monkeypatch, 1).read()
    reading: Any = look.reading
    assert (reading.view.epoch, reading.services, reading.catalog) == (3, None, None)
