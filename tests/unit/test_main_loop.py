"""The main loop of a worker ticks, whatever a server keeps waiting: it feeds the service manager's watchdog."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sink.clients.zookeeper.session import ZooKeeperSession
from sink.runtime.process.commit_warmup import LeaderSearch
from sink.runtime.process.worker_process import PAUSED_SECONDS, WorkerProcess
from sink.runtime.sinks.life import SinkState
from sink.runtime.turns.pools import CoalescedRun, new_pool
from tests.unit.settings_kit import minimal_settings

LOOP_SECONDS = PAUSED_SECONDS + 1.5
"""Longer than a tick may take. A wait in the loop would last for all of it."""


class Worker:
    """The main loop of a process with some sinks, whose waits last until `release` is set."""

    def __init__(self, directory: Path) -> None:
        self.settings = minimal_settings(directory)
        self.release = threading.Event()
        self.ticks: list[float] = []
        self.signals: Any = SimpleNamespace(stop=threading.Event(), reload=threading.Event())
        fleet: Any = SimpleNamespace(
            process=self.settings.process, is_one_sink=False, patterns=(), misconfigured={}, sinks=(), hosts=bool
        )
        unused: Any = None
        self.process = WorkerProcess(fleet, self.signals, unused, unused)
        self.process._watch = lambda _watchdog: self.ticks.append(time.monotonic())  # type: ignore[method-assign]
        self.session: Any = SimpleNamespace(poll=lambda: None)
        self.poll_presence: Callable[[], None] = lambda: None

    def add_sinks(self, follows: Callable[[], bool]) -> None:
        for number in range(20):
            sink: Any = SimpleNamespace(
                settings=self.settings,
                schema=SimpleNamespace(),
                state=SinkState.JOINED,
                leads=False,
                refusal=None,
                ended=threading.Event(),
                is_asked_to_drain=False,
                follows=follows,
                poll=lambda: None,
                leave_to_others=lambda: None,
            )
            self.process._sinks[f"s{number}"] = sink

    def wait(self) -> bool:
        return self.release.wait(60) and False

    def longest_tick(self) -> float:
        """Runs the loop for a while. Returns the longest time from one tick to the next."""
        pool = new_pool()
        unused: Any = None
        leaders = LeaderSearch(pool, self.process._sinks)
        arguments = self.session, unused, unused, CoalescedRun(pool, self.poll_presence), leaders
        loop = threading.Thread(target=self.process._supervise, args=arguments)
        self.ticks.append(time.monotonic())
        loop.start()
        time.sleep(LOOP_SECONDS)
        ended_at = time.monotonic()
        self.release.set()
        self.signals.stop.set()
        loop.join(60)
        pool.shutdown(wait=True)
        ticks = [*(tick for tick in self.ticks if tick < ended_at), ended_at]
        return max(later - earlier for earlier, later in pairwise(ticks))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    yield worker
    worker.release.set()


def test_whatever_waits_for_zookeeper_keeps_no_tick_waiting(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look for leaders, the presence, and the end of a session that has to be replaced."""
    worker.add_sinks(worker.wait)
    worker.poll_presence = lambda: worker.wait() and None
    worker.session = session = ZooKeeperSession(worker.settings.ensemble, lambda _state: None)
    started: list[str] = []
    client: Any = SimpleNamespace(connected=False, stop=worker.wait, start_async=lambda: started.append("started"))
    monkeypatch.setattr(session, "client", client)
    monkeypatch.setattr(session, "_disconnected_at", -1e9)
    assert worker.longest_tick() < PAUSED_SECONDS
    assert session._replacing is not None
    session._replacing.join(10)
    assert started == ["started"]


def test_a_session_that_has_ended_is_replaced(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ZooKeeperSession(worker.settings.ensemble, lambda _state: None)
    calls: list[str] = []
    client: Any = SimpleNamespace(
        connected=False, stop=lambda: calls.append("stop"), start_async=lambda: calls.append("start")
    )
    monkeypatch.setattr(session, "client", client)
    session.poll()
    assert session._replacing is None
    monkeypatch.setattr(session, "_disconnected_at", -1e9)
    session.poll()
    session.poll()
    assert session._replacing is not None
    session._replacing.join(10)
    assert calls == ["stop", "start"]
