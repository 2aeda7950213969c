"""Lets many sinks share the threads of one process.

Guarantee: a `SerialExecutor` runs its jobs in order, one at a time, on a pool that it shares with others; a job that
hangs keeps a thread of the pool, and nothing of another executor. `SlotPool` runs its jobs in few threads, in the order
in which they came; a job that hangs there gives up its turn. A `CoalescedRun` runs once more after the last trigger,
however many come while it runs. A `Ticker` calls each of its subscribers again and again, less often the more there
are, so that their number does not decide what an idle process costs. Only `SlotPool.run` raises what a job raises.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from coordination.errors import SinkError
from sink.telemetry.logs import in_context
from sink.telemetry.periodic import Periodic

LOG = structlog.get_logger("sink.worker")
_R = TypeVar("_R")
MOST_THREADS = 4096
"""A thread is only started when no other one is idle. A sink that hangs keeps three: this is a bound for defects."""
TICK_SECONDS = 0.1
SERVICE_SECONDS = 2.0
TICKS_PER_SECOND = 200
"""All subscribers together get no more."""


def new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, "sinks")


class SerialExecutor(Executor):
    """Runs one job at a time."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = False
        self._idle = threading.Event()
        self._idle.set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 (the future raises it again)
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._waiting.append(run)
            self._idle.clear()
            if self._running:
                return future
            self._running = True
        self._pool.submit(self._run)
        return future

    def wait_idle(self, seconds: float) -> bool:
        """Waits until no job is left, for so long at most. Returns whether that happened."""
        return self._idle.wait(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    self._idle.set()
                    return
                job = self._waiting.popleft()
            job()


class SlotPool:
    """At most `size` jobs run side by side, in threads of their own. One that takes longer than `patience` seconds no
    longer counts, so that a store that hangs keeps nothing from other sinks.

    Hudi keeps a megabyte for each thread that has ever committed, and jobs side by side share the cores: of a hundred
    that begin together, the first would end with the last.
    """

    def __init__(self, name: str, size: int, patience: float) -> None:
        self._pool = ThreadPoolExecutor(MOST_THREADS, name)
        self._size = size
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._running: dict[threading.Event, float] = {}
        """When each turn that counts began."""

    def run(self, job: Callable[[], _R]) -> _R:
        """Waits for its turn, runs `job`, and returns what it returns, or raises what it raises."""
        turn = threading.Event()
        with self._lock:
            self._waiting.append(turn)
        self.grant_turns()
        turn.wait()
        try:
            return self._pool.submit(in_context(job)).result()
        finally:
            with self._lock:
                self._running.pop(turn, None)
            self.grant_turns()

    def grant_turns(self) -> None:
        """Gives free turns to jobs that wait. To be called again and again by a ticker, too."""
        now = time.monotonic()
        with self._lock:
            self._running = {turn: began for turn, began in self._running.items() if now - began < self._patience}
            while self._waiting and len(self._running) < self._size:
                turn = self._waiting.popleft()
                self._running[turn] = now
                turn.set()


class CoalescedRun:
    """`trigger` asks for a run. A run that raises is logged."""

    def __init__(self, pool: Executor, run: Callable[[], None]) -> None:
        self._executor = SerialExecutor(pool)
        self._run = in_context(run)
        self._lock = threading.Lock()
        self._is_due = False

    def trigger(self) -> None:
        with self._lock:
            if self._is_due:
                return
            self._is_due = True
        self._executor.submit(self._once)

    def wait_idle(self, seconds: float) -> bool:
        return self._executor.wait_idle(seconds)

    def _once(self) -> None:
        with self._lock:
            self._is_due = False
        try:
            self._run()
        except Exception:
            LOG.exception("run.failed")


class ServiceThread(Periodic):
    """Works while this worker holds the lock of the table services: between `follow` and `pause`. `begin` is called
    first each time, `work` again and again; SinkErrors of both are logged.
    """

    def __init__(self, name: str, begin: Callable[[], None], work: Callable[[], None]) -> None:
        super().__init__(name, self._serve, lambda: SERVICE_SECONDS)
        self._service, self._begin, self._perform = name, begin, work
        self._following = threading.Event()
        self._has_begun = False

    def follow(self) -> None:
        self._following.set()

    def pause(self) -> None:
        """Begins nothing further; what is under way goes on."""
        self._following.clear()

    def stop(self) -> None:
        super().stop()
        # The thread waits for it.
        self._following.set()

    def _serve(self) -> None:
        if not self._following.is_set():
            self._has_begun = False
            self._following.wait()
        if self.ended.is_set():
            return
        try:
            if not self._has_begun:
                self._begin()
                self._has_begun = True
            self._perform()
        except SinkError as error:
            self._has_begun = False
            LOG.debug("service_thread.interrupted", service=self._service, reason=str(error))


class Ticker(Periodic):
    """Subscribers must return at once."""

    def __init__(self) -> None:
        super().__init__("ticker", self._tick, self._rest, at_once=False)
        self._lock = threading.Lock()
        self._subscribers: tuple[Callable[[], None], ...] = ()

    def subscribe(self, tick: Callable[[], None]) -> None:
        with self._lock:
            self._subscribers = (*self._subscribers, tick)

    def unsubscribe(self, tick: Callable[[], None]) -> None:
        with self._lock:
            self._subscribers = tuple(subscriber for subscriber in self._subscribers if subscriber != tick)

    def _rest(self) -> float:
        return max(TICK_SECONDS, len(self._subscribers) / TICKS_PER_SECOND)

    def _tick(self) -> None:
        for tick in self._subscribers:
            tick()
