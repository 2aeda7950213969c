"""Workers know what every other one carries, at a small cost: watches keep summaries, records are read when needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from coordination.errors import Unavailable
from coordination.zookeeper import worker_summaries
from coordination.zookeeper.worker_records import HostedRecord, OwnWorkerRecord, WorkerRecord
from coordination.zookeeper.worker_summaries import WorkerSummaries, WorkerSummary
from sink.runtime.process import presence as presence_module
from sink.runtime.process.presence import Presence
from sink.runtime.sinks.life import SinkState

ROOT = "/sink"
SUMMARIES = f"{ROOT}/{worker_summaries.DIRECTORY}"

Watch = Callable[[WatchedEvent], None]


@dataclass
class Answer:
    result: Any = None
    error: Exception | None = None

    def get(self, timeout: float) -> Any:
        assert timeout
        if self.error is not None:
            raise self.error
        return self.result


@dataclass
class ZooKeeper:
    """Znodes in memory, with one-shot watches. `requests` counts reads, `during_read` runs once within the next one."""

    znodes: dict[str, bytes] = field(default_factory=dict)
    watches: dict[str, set[Watch]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    down: bool = False
    connected: bool = True
    client_id: tuple[int, bytes] = (1, b"")
    during_read: Callable[[], None] | None = None

    def _fire(self, path: str, kind: str) -> None:
        for watch in self.watches.pop(path, set()):
            watch(WatchedEvent(kind, KeeperState.CONNECTED, path))

    def _read(self, path: str, watch: Watch | None, result: Callable[[], Any]) -> Answer:
        self.requests.append(path)
        if self.down:
            return Answer(error=ConnectionLoss())
        if path not in self.znodes:
            return Answer(error=NoNodeError())
        if watch is not None:
            self.watches.setdefault(path, set()).add(watch)
        answer = Answer(result())
        act, self.during_read = self.during_read, None
        if act is not None:
            act()
        return answer

    def get_async(self, path: str, watch: Watch | None = None) -> Answer:
        return self._read(path, watch, lambda: (self.znodes[path], None))

    def get_children_async(self, path: str, watch: Watch | None = None) -> Answer:
        return self._read(path, watch, lambda: [p.rpartition("/")[2] for p in self.znodes if p.startswith(f"{path}/")])

    def set_async(self, path: str, data: bytes) -> Answer:
        if path not in self.znodes:
            return Answer(error=NoNodeError())
        self.znodes[path] = data
        self._fire(path, EventType.CHANGED)
        return Answer()

    def create_async(self, path: str, data: bytes, ephemeral: bool, makepath: bool) -> Answer:
        assert ephemeral
        assert makepath
        parent = path.rpartition("/")[0]
        self.znodes.setdefault(parent, b"")
        self.znodes[path] = data
        self._fire(parent, EventType.CHILD)
        return Answer()

    def delete_async(self, path: str) -> Answer:
        del self.znodes[path]
        self._fire(path, EventType.DELETED)
        self._fire(path.rpartition("/")[0], EventType.CHILD)
        return Answer()

    def lose_connection(self) -> None:
        watches = {watch for per_path in self.watches.values() for watch in per_path}
        self.watches.clear()
        for watch in watches:
            watch(WatchedEvent(EventType.NONE, KeeperState.CONNECTING, None))


def summary(worker: str, load: int = 0, revision: int = 1, joined: int = 1) -> WorkerSummary:
    return WorkerSummary(worker, False, load, (), revision, joined)


def summaries_of(zookeeper: Any) -> WorkerSummaries:
    return WorkerSummaries(zookeeper, ROOT)


def loads(summaries: WorkerSummaries) -> dict[str, int]:
    summaries.refresh()
    return {known.worker: known.load for known in summaries.by_name.values()}


def reads(zookeeper: ZooKeeper, act: Callable[[], object]) -> list[str]:
    """Returns what `act` reads from ZooKeeper."""
    before = len(zookeeper.requests)
    act()
    return zookeeper.requests[before:]


@pytest.fixture
def zookeeper() -> ZooKeeper:
    zookeeper = ZooKeeper()
    fleet = summaries_of(zookeeper)
    for number in range(3):
        fleet.publish(f"w{number}:1", summary(f"w{number}", number))
    return zookeeper


def test_a_fleet_in_which_nothing_changes_is_read_once(zookeeper: ZooKeeper) -> None:
    summaries = summaries_of(zookeeper)
    assert loads(summaries) == {"w0": 0, "w1": 1, "w2": 2}
    assert reads(zookeeper, summaries.refresh) == []


def test_a_change_is_read_and_nothing_else(zookeeper: ZooKeeper) -> None:
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)
    loads(summaries)
    other.publish("w1:1", summary("w1", 7))
    assert reads(zookeeper, summaries.refresh) == [f"{SUMMARIES}/w1:1"]
    assert loads(summaries)["w1"] == 7


def test_a_worker_that_joins_and_one_that_leaves_are_known(zookeeper: ZooKeeper) -> None:
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)
    loads(summaries)
    other.publish("w3:1", summary("w3", 3))
    assert reads(zookeeper, summaries.refresh) == [SUMMARIES, f"{SUMMARIES}/w3:1"]
    other.forget("w0:1")
    assert reads(zookeeper, summaries.refresh) == [SUMMARIES]
    assert sorted(loads(summaries)) == ["w1", "w2", "w3"]


def test_a_change_that_is_told_while_the_summary_is_read_is_read_again(zookeeper: ZooKeeper) -> None:
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)
    loads(summaries)
    other.publish("w1:1", summary("w1", 7))
    zookeeper.during_read = lambda: other.publish("w1:1", summary("w1", 8))
    assert loads(summaries)["w1"] == 7
    assert loads(summaries)["w1"] == 8


def test_what_a_failed_reading_has_not_read_is_read_by_the_next_one(zookeeper: ZooKeeper) -> None:
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)
    loads(summaries)
    other.publish("w1:1", summary("w1", 7))
    other.publish("w3:1", summary("w3", 3))
    zookeeper.down = True
    with pytest.raises(Unavailable):
        summaries.refresh()
    zookeeper.down = False
    assert loads(summaries) == {"w0": 0, "w1": 7, "w2": 2, "w3": 3}


def test_everything_is_read_again_after_the_connection_was_lost(zookeeper: ZooKeeper) -> None:
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)
    loads(summaries)
    zookeeper.lose_connection()
    other.publish("w1:1", summary("w1", 7))
    other.forget("w2:1")
    assert loads(summaries) == {"w0": 0, "w1": 7}
    other.publish("w1:1", summary("w1", 9))
    assert loads(summaries)["w1"] == 9


def test_a_watch_that_never_fires_is_made_good(zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)
    loads(summaries)
    zookeeper.watches.clear()
    other.publish("w1:1", summary("w1", 7))
    assert loads(summaries)["w1"] == 1
    monkeypatch.setattr(worker_summaries, "REREAD_SECONDS", 0.0)
    assert loads(summaries)["w1"] == 7


def test_the_first_worker_of_all_finds_nobody_until_it_publishes() -> None:
    empty = ZooKeeper()
    summaries = summaries_of(empty)
    assert loads(summaries) == {}
    summaries.publish("w0:1", summary("w0"))
    assert loads(summaries) == {"w0": 0}
    assert summaries.holds("w0:1")


def test_what_cannot_be_read_counts_as_missing(zookeeper: ZooKeeper) -> None:
    zookeeper.set_async(f"{SUMMARIES}/w1:1", b"{")
    zookeeper.set_async(f"{SUMMARIES}/w2:1", b'{"format":999}')
    summaries = summaries_of(zookeeper)
    assert loads(summaries) == {"w0": 0}
    assert summaries.holds("w1:1")


def test_a_record_is_read_once_for_each_change_that_its_summary_counts(zookeeper: ZooKeeper) -> None:
    client: Any = zookeeper
    own = OwnWorkerRecord(client, ROOT, "w9")
    summaries, other = summaries_of(zookeeper), summaries_of(zookeeper)

    def publish(state: str, revision: int, joined: int) -> None:
        own.publish(WorkerRecord("w9", "host", 1, "1", False, {"orders": HostedRecord(state, False)}))
        other.publish(own.name, summary("w9", 0, revision, joined))
        summaries.refresh()

    def state() -> str:
        record = summaries.record_of(own.name)
        assert record is not None
        return record.sinks["orders"].state

    publish("opening", 1, 1)
    assert reads(zookeeper, lambda: summaries.record_of(own.name)) != []
    assert reads(zookeeper, lambda: summaries.record_of(own.name)) == []
    assert summaries.joined_by(own.name) == frozenset()
    publish("waiting", 2, 1)
    assert state() == "waiting"
    assert reads(zookeeper, lambda: summaries.joined_by(own.name)) == []
    publish("joined", 3, 2)
    assert state() == "joined"
    assert summaries.joined_by(own.name) == {"orders"}
    assert reads(zookeeper, lambda: summaries.joined_by(own.name)) == []


@dataclass
class HostedSink:
    """A sink of this process, which is its own settings, too."""

    name: str
    leads: bool = False
    state: SinkState = SinkState.JOINED
    reason: str = ""
    is_impaired: bool = False
    interval_ms: int = 60_000
    refusal: None = None

    @property
    def settings(self) -> HostedSink:
        return self

    @property
    def observed(self) -> HostedSink:
        return self


@dataclass
class ProcessSettings:
    worker_id: str
    zookeeper_root: str = ROOT


class Fleet:
    """Presences of several workers that host the same sinks. The first one leads them all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: int, sinks: int) -> None:
        self.now = 1000.0
        self.zookeeper = ZooKeeper()
        self.asked: list[str] = []
        monkeypatch.setattr(presence_module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(presence_module, "SinkControl", self._control)
        self.sinks = [
            {f"s{number}": HostedSink(f"s{number}", worker == 0) for number in range(sinks)}
            for worker in range(workers)
        ]
        self.presences = [self._presence(number) for number in range(workers)]

    def _presence(self, number: int) -> Presence:
        settings: Any = ProcessSettings(f"w{number}")
        client: Any = self.zookeeper
        sinks: Any = self.sinks[number]
        return Presence(settings, client, sinks, {}, lambda: False)

    def _control(self, settings: HostedSink, *_: object) -> Any:
        asked = self.asked

        class Control:
            def switchover(self) -> None:
                asked.append(settings.name)
                settings.leads = False

        return Control()

    def poll(self, seconds: float) -> None:
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            for presence in self.presences:
                presence.poll()


def test_an_idle_fleet_reads_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, workers=4, sinks=10)
    fleet.poll(20)
    assert len(fleet.asked) == 9
    before = dict(fleet.zookeeper.znodes)
    decisions: list[object] = []
    monkeypatch.setattr(presence_module, "to_hand_over", lambda *facts: decisions.append(facts))
    assert reads(fleet.zookeeper, lambda: fleet.poll(10)) == []
    assert fleet.zookeeper.znodes == before
    assert decisions == []


def test_a_record_is_read_only_by_a_worker_that_has_something_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, workers=3, sinks=1)
    # One sink, on one worker, is a fair share.
    assert [path for path in reads(fleet.zookeeper, lambda: fleet.poll(10)) if "~workers" in path] == []


def test_what_a_worker_has_joined_is_read_once_by_each_other_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, workers=5, sinks=40)
    records = [path for path in reads(fleet.zookeeper, lambda: fleet.poll(60)) if "~workers" in path]
    assert len(fleet.asked) >= 39
    assert len(records) <= 4 * 4


def test_a_worker_whose_sinks_change_all_the_time_is_read_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, workers=2, sinks=2)
    fleet.poll(30)

    def change() -> None:
        for number in range(20):
            fleet.sinks[1]["s0"].reason = f"waits, {number}"
            fleet.poll(0.5)

    read_by_both = [path for path in reads(fleet.zookeeper, change) if worker_summaries.DIRECTORY in path]
    assert 10 <= len(read_by_both) / 2 <= 11


def test_a_record_that_the_end_of_an_older_session_has_taken_along_is_published_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, workers=2, sinks=1)
    fleet.poll(5)
    for path in [path for path in fleet.zookeeper.znodes if "/w1:" in path]:
        fleet.zookeeper.delete_async(path)
    fleet.poll(5)
    assert len([path for path in fleet.zookeeper.znodes if "/w1:" in path]) == 2


def test_a_worker_that_ends_leaves_neither_record_nor_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, workers=2, sinks=1)
    fleet.poll(5)
    fleet.presences[1].forget()
    assert [path for path in fleet.zookeeper.znodes if "/w1:" in path] == []
