"""Warns once when the table's store is away, refuses or is slow, and logs once when it is back. The same for the schema
registry.

Guarantee: a fault that lasts `TELL_SECONDS` is one warning, whichever request meets it, also where that request still
hangs; its end is one line, when nothing has failed for as long: a store that fails a part of the requests is told once.
A small question to the store, asked in a thread of its own, tells a request that hangs from one that has much to do.
Voided by faults that `sink.storage.faults` does not know, and by stores that cannot be asked (other than S3 and HDFS):
there, a request has to fail first. For the registry one failure is enough, because a task has asked it for as long as
`RegistryAccess.patience_seconds`; without a further request that needs the registry its fault is no longer shown after
`FORGET_SECONDS`, and its end is not logged. Raises nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from coordination.errors import SinkError
from coordination.state.failures import Failure, FailureKind
from coordination.state.messages import (
    Begin,
    Complete,
    Done,
    Failed,
    FindExistingFiles,
    Outcome,
    ReadTable,
    Request,
    RollBack,
    Unknown,
    WriteTasks,
)
from sink.config import Settings
from sink.runtime.turns.actor import EffectHandler
from sink.storage.access import HDFS_SCHEMES, S3_SCHEMES, scheme_of
from sink.storage.faults import Fault, fault_in, fault_of_store, server_of
from sink.storage.files import ask_store
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
TELL_SECONDS = 10.0
LONG_SECONDS = 3.0
"""A request that takes longer gives reason to ask the store something small."""
SLOW_SECONDS = 1.0
"""A store that takes longer over something small is slow."""
ASK_SECONDS = 2.0
QUIET_SECONDS = 30.0
"""Seconds after the last failure from which an answered question proves that the store is back: longer than the pause
between two tries of a request."""
POLL_SECONDS = 0.5
_ON_THE_TABLE = (Begin, Complete, FindExistingFiles, ReadTable, RollBack, WriteTasks)
FORGET_SECONDS = 60.0


class RegistryWatch:
    """Watches for one sink in one worker. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[str, float] = {}
        """When a kind of request failed last."""
        self._since = 0.0
        self._reason = ""

    @property
    def trouble(self) -> str:
        """The fault of the registry that lasts; empty without one."""
        with self._lock:
            return self._reason if self._lasts() else ""

    def observe(self, kind: str, outcome: Outcome) -> None:
        """Records an outcome. A success clears the failure of that kind of request."""
        failure = outcome.failure if isinstance(outcome, Failed) else None
        now = self._clock()
        with self._lock:
            lasted = self._lasts()
            if not lasted:
                self._failing.clear()
            if failure is not None and failure.kind is FailureKind.REGISTRY_AWAY:
                self._failing[kind] = now
                self._reason = failure.reason
                if not lasted:
                    self._since = now
                    LOG.warning("registry.unavailable", reason=failure.reason)
            elif isinstance(outcome, Done) and lasted:
                self._failing.pop(kind, None)
                if not self._failing:
                    LOG.info("registry.available", seconds=round(now - self._since, 1))

    def _lasts(self) -> bool:
        return self._clock() - max(self._failing.values(), default=-FORGET_SECONDS) < FORGET_SECONDS


class WatchedEffectHandler:
    """A handler whose requests on the table are watched. A write that failed because the store was away says so in its
    outcome."""

    def __init__(self, handler: EffectHandler, storage: StorageWatch, registry: RegistryWatch) -> None:
        self._handler = handler
        self._storage = storage
        self._registry = registry

    def perform(self, request: Request) -> Outcome:
        operation = request.operation
        if not isinstance(operation, _ON_THE_TABLE):
            return self._handler.perform(request)
        with self._storage.request():
            outcome = self._handler.perform(request)
        for watch in (self._storage, self._registry):
            watch.observe(type(operation).__name__, outcome)
        if not (isinstance(operation, WriteTasks) and isinstance(outcome, Failed) and outcome.failure is None):
            return outcome
        fault = self._storage.fault(outcome.reason)
        return outcome if fault is None else Failed(outcome.reason, Failure(FailureKind.STORE_AWAY, fault.sentence))

    def cancel(self, request_id: int) -> None:
        self._handler.cancel(request_id)


@dataclass(frozen=True, slots=True)
class _Problem:
    reason: str
    is_slow: bool = False


class StorageWatch:
    """Watches for one worker. `request` surrounds a request to the store; `observe` takes its outcome."""

    def __init__(
        self,
        settings: Settings,
        ask: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base_path, self._access = settings.base_path, settings.storage_as_set
        self._ask = ask or (lambda: ask_store(settings.base_path, settings.storage))
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: dict[object, float] = {}
        self._failing: dict[str, _Problem] = {}
        """By kind of request."""
        self._failed_at = 0.0
        self._asked_at = -ASK_SECONDS
        self._asking = False
        self._asked_problem: _Problem | None = None
        """The fault that the last question found."""
        self._since: float | None = None
        self._last_seen = 0.0
        """When `poll` last saw a problem."""
        self._logged = False
        self._reason = ""
        self.can_ask = scheme_of(self._base_path) in S3_SCHEMES | HDFS_SCHEMES
        """Whether `poll` has anything to look at."""

    @property
    def is_faulty(self) -> bool:
        """Whether the store is at fault now, logged or not."""
        return self._since is not None

    @property
    def trouble(self) -> str:
        """The fault of the store that was logged and lasts; empty without one."""
        return self._reason if self._logged and self._since is not None else ""

    def fault(self, reason: str) -> Fault | None:
        """Returns the store's fault that a request failed for; None if it failed for another reason."""
        return fault_of_store(reason, self._base_path, self._access)

    @contextmanager
    def request(self) -> Iterator[None]:
        token = object()
        with self._lock:
            self._under_way[token] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                del self._under_way[token]

    def observe(self, kind: str, outcome: Outcome) -> None:
        """Records an outcome. A success clears the failure of that kind of request."""
        fault = self.fault(outcome.reason) if isinstance(outcome, Failed | Unknown) else None
        with self._lock:
            if fault is not None:
                self._failing[kind] = _Problem(fault.sentence)
                self._failed_at = self._clock()
            elif isinstance(outcome, Done):
                self._failing.pop(kind, None)

    def poll(self) -> None:
        """Logs a fault or its end, and asks the store if need be. One thread calls it every `POLL_SECONDS` or so.
        Returns at once.
        """
        now = self._clock()
        with self._lock:
            oldest = min(self._under_way.values(), default=now)
            problem = self._current_problem(now)
            self._log_change(problem, min(oldest, now), now)
            suspicious = self._since is not None or now - oldest > LONG_SECONDS
            if not suspicious or self._asking or now - self._asked_at < ASK_SECONDS:
                return
            self._asked_at, self._asking = now, True
        ContextThread(target=self._ask_and_judge, name="storage-question", daemon=True).start()

    def _current_problem(self, now: float) -> _Problem | None:
        if self._failing:
            return next(iter(self._failing.values()))
        if self._asking and now - self._asked_at > SLOW_SECONDS:
            return self._asked_problem or self._slow(now - self._asked_at)
        return self._asked_problem

    def _log_change(self, problem: _Problem | None, began: float, now: float) -> None:
        if problem is None:
            if self._logged and now - self._last_seen < TELL_SECONDS:
                return
            if self._logged and self._since is not None:
                LOG.info("store.available", place=self._base_path, seconds=round(self._last_seen - self._since, 1))
            self._since, self._logged = None, False
            return
        self._reason, self._last_seen = problem.reason, now
        if self._since is None:
            self._since = min(began, self._failed_at) if self._failing else began
        if not self._logged and now - self._since >= TELL_SECONDS:
            self._logged = True
            fields = {"place": self._base_path, "seconds": round(now - self._since, 1), "reason": problem.reason}
            if problem.is_slow:
                LOG.warning("store.slow", **fields)
            else:
                LOG.warning("store.unavailable", **fields)

    def _ask_and_judge(self) -> None:
        began = self._clock()
        problem: _Problem | None = None
        try:
            self._ask()
        except (SinkError, OSError) as error:
            fault = fault_in(str(error), self._base_path, self._access)
            problem = _Problem(fault.sentence if fault else str(error)[:300])
        now = self._clock()
        if problem is None and now - began > SLOW_SECONDS:
            problem = self._slow(now - began)
        with self._lock:
            self._asking, self._asked_problem = False, problem
            if problem is None and not self._under_way and now - self._failed_at > QUIET_SECONDS:
                self._failing.clear()

    def _slow(self, seconds: float) -> _Problem:
        server = server_of(self._base_path, self._access)
        return _Problem(f"{server} takes {seconds:.1f} s and more over a small question", is_slow=True)
