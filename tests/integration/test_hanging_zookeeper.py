"""A ZooKeeper that hangs keeps the main loop of a worker from nothing: it goes on to feed and to watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.state.model import Member
from coordination.zookeeper.keeper import Keeper
from sink.clients.zookeeper.session import ZooKeeperSession
from sink.devtools.local.zookeeper import ZooKeeperServer
from sink.runtime.process.commit_warmup import LeaderSearch
from sink.runtime.process.presence import Presence
from sink.runtime.process.worker_process import PAUSED_SECONDS, WorkerProcess
from sink.runtime.sinks.life import Life, SinkState
from sink.runtime.sinks.membership import Membership
from sink.runtime.sinks.sink import Sink
from sink.runtime.turns.pools import CoalescedRun, new_pool
from sink.telemetry.metrics import ProcessMetrics
from tests.unit.settings_kit import minimal_settings
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

SINKS = 20
SESSION_MS = 2000
HANGS_SECONDS = 9.0
"""Longer than twice the session time-out: the worker replaces its session meanwhile."""


class Worker:
    """The main loop of a worker whose sinks have joined, with a real session and real readings, without Spark."""

    def __init__(self, directory: Path, address: str) -> None:
        more = {"zookeeper__connect": address, "zookeeper__session__timeout__ms": str(SESSION_MS)}
        self.settings = minimal_settings(directory, **more)
        signals: Any = SimpleNamespace(stop=threading.Event(), reload=threading.Event())
        fleet: Any = SimpleNamespace(
            process=self.settings.process, is_one_sink=False, patterns=(), misconfigured={}, sinks=(), hosts=bool
        )
        unused: Any = None
        self.process = WorkerProcess(fleet, signals, unused, unused)
        self.session = ZooKeeperSession(self.settings.ensemble, self.process._hosted.session_changed)
        self.session.start()
        assert self.session.wait(threading.Event(), 30)
        self.pool = new_pool()
        metrics = ProcessMetrics("w1")
        for number in range(SINKS):
            self._add(f"s{number}", metrics)
        sinks = self.process._sinks
        presence = Presence(self.settings.process, self.session.client, sinks, {}, lambda: False)
        watchdog: Any = SimpleNamespace(answered_at=float("inf"), gone="")
        self.leaders = LeaderSearch(self.pool, sinks)
        arguments = (self.session, watchdog, unused, CoalescedRun(self.pool, presence.poll), self.leaders)
        self.ticks: list[float] = []
        original = self.process._watch

        def watch(watchdog: Any) -> None:
            self.ticks.append(time.monotonic())
            original(watchdog)

        self.process._watch = watch  # type: ignore[method-assign]
        self._stop = signals.stop
        self._thread = threading.Thread(target=self.process._supervise, args=arguments)
        self._thread.start()

    def _add(self, name: str, metrics: ProcessMetrics) -> None:
        unused: Any = None
        settings = self.settings.model_copy(update={"name": name})
        keeper = Keeper(self.session.client, f"/sink/{name}", lambda: None)
        keeper.bootstrap(settings.config_digest)
        fakes: Any = SimpleNamespace(
            settings=settings,
            client=self.session.client,
            keeper=keeper,
            root=f"/sink/{name}",
            table=SimpleNamespace(metadata_services=None, metadata_interval=1),
            participating=unused,
            engine=unused,
            turns=SimpleNamespace(pool=self.pool, ticker=unused, services=SimpleNamespace(run=unused)),
            observer=SimpleNamespace(metrics=unused, storage=unused, registry=unused, note=unused),
        )
        membership = Membership(fakes, Member(f"{name}:1", "host", 1, "1"))
        membership._next_poll = 0.0
        sink = Sink(settings, Future(), metrics.sink(name))
        sink._membership, sink._keeper, sink._life = membership, keeper, Life(SinkState.JOINED)
        sink.schema = unused or SimpleNamespace()
        self.process._sinks[name] = sink

    def longest_tick(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.ticks))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        self.pool.shutdown(wait=False)
        self.session.close()


@pytest.fixture
def zookeeper_of_its_own(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        yield server


def test_the_main_loop_ticks_while_zookeeper_hangs_and_the_session_comes_back(
    zookeeper_of_its_own: ZooKeeperServer, tmp_path: Path
) -> None:
    worker = Worker(tmp_path, zookeeper_of_its_own.address)
    try:
        eventually("ticks", lambda: len(worker.ticks) > 2, 30, lambda: "")
        zookeeper_of_its_own.pause()
        time.sleep(HANGS_SECONDS)
        zookeeper_of_its_own.resume()
        eventually("a session", lambda: bool(worker.session.client.connected), 60, lambda: "")
        time.sleep(1)
        print(f"the longest tick took {worker.longest_tick():.2f} s of at most {PAUSED_SECONDS:.0f}")
        assert worker.longest_tick() < PAUSED_SECONDS
        assert not worker.leaders.has_found
    finally:
        zookeeper_of_its_own.resume()
        worker.close()
