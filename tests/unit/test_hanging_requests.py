"""A request that hangs costs its own sink only, unless it keeps the table's lock from all workers."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from sink.hudi import lock
from sink.hudi.lock import TableLocks
from sink.runtime.process import worker_process as process
from sink.runtime.process.worker_process import WorkerProcess
from sink.runtime.sinks import sink as sinks
from sink.runtime.sinks.sink import Sink
from sink.telemetry.metrics import ProcessMetrics
from tests.unit.settings_kit import minimal_settings


class FreeLock:
    """A table lock that is always free."""

    def __init__(self, *_: Any) -> None: ...

    def acquire(self, timeout: float) -> bool:
        return timeout > 0

    def require_held(self) -> None: ...

    def release(self) -> None: ...


class HungMembership:
    """A membership whose coordinator's request began long ago."""

    def __init__(self) -> None:
        self.ended = Event()

    def last_heartbeat(self) -> float:
        return time.monotonic()

    def request_started_at(self) -> float:
        return time.monotonic() - sinks.REQUEST_SECONDS - 1.0

    def end(self) -> None:
        self.ended.set()


class Worker:
    """A worker process of several sinks, of which one hangs."""

    def __init__(self, tmp_path: Path) -> None:
        settings = minimal_settings(tmp_path)
        client: Any = SimpleNamespace(connected=True)
        self.locks = TableLocks(client, settings.table.lock)
        self.membership: Any = HungMembership()
        self.sink = Sink(settings, Future(), ProcessMetrics("w1").sink(settings.name))
        self.sink._membership = self.membership
        self.sink._locks = (self.locks,)
        fleet: Any = SimpleNamespace(process=settings, is_one_sink=False)
        unused: Any = SimpleNamespace(stop=Event())
        self._process = WorkerProcess(fleet, unused, unused, unused)
        self._process._sinks[settings.name] = self.sink
        self._process._grace_start -= 2 * sinks.REQUEST_SECONDS

    def supervise(self) -> None:
        """Looks at the sink as the process does all the time."""
        watchdog: Any = SimpleNamespace(answered_at=time.monotonic(), gone="")
        self.sink.leave_to_others()
        self._process._watch(watchdog)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(lock, "TableLock", FreeLock)
    monkeypatch.setattr(sinks, "WAIT_SECONDS", 0.2)
    return Worker(tmp_path)


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    statuses: list[int] = []
    monkeypatch.setattr(process, "kill_process_tree", statuses.append)
    return statuses


def test_a_request_that_hangs_without_the_lock_leaves_the_sink_to_other_workers(
    worker: Worker, kills: list[int]
) -> None:
    worker.supervise()
    assert worker.membership.ended.is_set()
    assert kills == []


def test_a_request_that_hangs_with_the_lock_ends_the_process(worker: Worker, kills: list[int]) -> None:
    with structlog.testing.capture_logs() as lines, worker.locks("test"):
        time.sleep(0.3)
        worker.supervise()
    assert kills == [70]
    assert [line["event"] for line in lines] == ["sink.hangs", "worker.hangs"]
    assert "ending this process" in lines[0]["action"]
    assert lines[1]["blocked_tables_of"] == [worker.sink.settings.name]


def test_a_request_that_hangs_and_takes_the_lock_later_ends_the_process_if_it_keeps_it(
    worker: Worker, kills: list[int]
) -> None:
    worker.supervise()
    with worker.locks("test"):
        worker.supervise()
        assert kills == [], "others still wait for the lock"
        time.sleep(0.3)
        worker.supervise()
    assert kills == [70]


def test_a_sink_that_does_not_hang_may_keep_the_lock_for_long(worker: Worker, kills: list[int]) -> None:
    worker.membership.request_started_at = time.monotonic
    with worker.locks("test"):
        time.sleep(0.3)
        worker.supervise()
    assert not worker.membership.ended.is_set()
    assert kills == []
