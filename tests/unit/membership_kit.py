"""A membership on a ZooKeeper in memory, without a table, services, Spark or Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from coordination.state.model import Member
from coordination.state.reading import ParticipantView
from sink.runtime.sinks import membership
from sink.runtime.sinks.membership import Membership, new_member
from sink.runtime.sinks.resources import Resources, SharedTurns
from sink.runtime.sinks.sink import Sink
from sink.runtime.turns.admission import AdmissionControl
from sink.runtime.turns.pools import SerialExecutor, SlotPool, Ticker, new_pool
from sink.runtime.watches.notes import Observer
from sink.telemetry.metrics import ProcessMetrics
from tests.unit.settings_kit import minimal_settings


class FakeKeeper:
    """The tree of one sink. `join` waits for `may_join`."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.is_joining = threading.Event()
        self.may_join = threading.Event()
        self.may_join.set()

    def bootstrap(self, _digest: str) -> None:
        """The tree is there."""

    def read(self) -> Any:
        return SimpleNamespace(members=tuple(self.members.values()), coordinator=None)

    def join(self, member: Member) -> None:
        self.is_joining.set()
        assert self.may_join.wait(30)
        self.members[member.incarnation] = member

    def leave(self, incarnation: str) -> None:
        self.members.pop(incarnation, None)

    def participant_view(self, incarnation: str) -> ParticipantView:
        return ParticipantView(incarnation in self.members, (), halted=False)

    def session_changed(self, _state: str) -> None:
        """Forgets nothing."""


class IdleServiceLock:
    """A lock of table services that nobody takes."""

    def __init__(self, *_: object) -> None:
        """Nothing to keep."""

    def committed(self) -> None:
        """Nobody waits for a commit."""


class FakeCandidacy:
    """An election that others win, until `is_won` is set on the class."""

    is_won = False
    resigned: ClassVar[list[str]] = []

    def __init__(self, _client: Any, _root: str, incarnation: str) -> None:
        self._incarnation = incarnation
        self._withdrawn = threading.Event()

    def campaign(self) -> str | None:
        if self.is_won:
            return "election/lock-0"
        assert self._withdrawn.wait(30)
        return None

    def withdraw(self) -> None:
        self._withdrawn.set()

    def resign(self) -> None:
        self.resigned.append(self._incarnation)


class IdleServices:
    def __init__(self, *_: Any) -> None:
        """Serves nothing."""

    def start(self) -> None: ...

    def end(self) -> None: ...

    def join(self, _seconds: float) -> None: ...


class IdleCoordinator:
    """A coordinator that requests nothing."""

    def __init__(self, *_: Any) -> None:
        self.wake = lambda: None

    def step(self, _event: Any) -> list[Any]:
        return []

    def close(self) -> None: ...


def turns_of(pool: Any, ticker: Ticker) -> SharedTurns:
    commits, services = SlotPool("commits", 1, 60.0), SlotPool("services", 1, 60.0)
    return SharedTurns(pool=pool, commits=commits, admission=AdmissionControl(1), services=services, ticker=ticker)


class World:
    """The parts that the memberships of one sink share."""

    def __init__(self, tmp_path: Path, pool: Any, ticker: Ticker) -> None:
        self.keeper = FakeKeeper()
        self.settings = minimal_settings(tmp_path)
        self.metrics = ProcessMetrics("w1").sink(self.settings.name)
        steps: Any = {"share_lock": lambda _: None, "stop_heartbeats": lambda: None}
        self.table = SimpleNamespace(metadata_services=None, metadata_interval=1, **steps)
        unused: Any = None
        client: Any = SimpleNamespace(connected=True, state="CONNECTED")
        keeper: Any = self.keeper
        table: Any = self.table
        self.resources = Resources(
            settings=self.settings,
            client=client,
            keeper=keeper,
            table=table,
            errors=unused,
            engine=unused,
            log=unused,
            coordinating=SerialExecutor(pool),
            participating=SerialExecutor(pool),
            turns=turns_of(pool, ticker),
            observer=Observer(self.settings, self.metrics),
            locks=(),
        )

    def membership(self) -> Membership:
        return Membership(self.resources, new_member(self.settings, "host", 1, "1"))

    def sink(self) -> Sink:
        return Sink(self.settings, Future(), self.metrics)

    def take_part(self, sink: Sink) -> threading.Thread:
        """Lets the sink take part in a thread of its own until it is told to stop, as its own thread does."""
        session = SimpleNamespace(wait=lambda stop: not stop.is_set())
        shared: Any = SimpleNamespace(session=session, spark=SimpleNamespace(sparkContext=_OneCore()))

        def run() -> None:
            while not sink._stop.is_set():
                sink._take_part(self.resources, shared)
            sink.ended.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


class _OneCore:
    defaultParallelism = 1


@contextmanager
def running_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(membership, "Candidacy", FakeCandidacy)
    monkeypatch.setattr(membership, "TableServiceRunner", IdleServices)
    monkeypatch.setattr(membership, "TableServiceLock", IdleServiceLock)
    monkeypatch.setattr(membership, "Coordinator", IdleCoordinator)
    monkeypatch.setattr(membership, "AdmittedCoordinator", IdleCoordinator)
    monkeypatch.setattr(membership, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(FakeCandidacy, "is_won", False)
    monkeypatch.setattr(FakeCandidacy, "resigned", [])
    ticker = Ticker()
    ticker.start()
    with new_pool() as pool:
        made = World(tmp_path, pool, ticker)
        yield made
        made.keeper.may_join.set()
    ticker.stop()
