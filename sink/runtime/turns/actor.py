"""An `Actor` steps a machine on a shared pool, one step at a time, and performs its requests, one at a time, on an
executor that outlives it: a new term never overlaps with a request that an older one still has under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Protocol

import structlog

from coordination.state.messages import (
    Answered,
    Cancel,
    Effect,
    Event,
    Note,
    Operation,
    Outcome,
    Request,
    Resign,
    Tick,
    Unknown,
)
from sink.clients.java.errors import error_summary
from sink.runtime.turns.pools import SerialExecutor, Ticker
from sink.telemetry.failpoints import Failpoints
from sink.telemetry.logs import bound, in_context

LOG = structlog.get_logger("sink.worker")


class Machine(Protocol):
    def step(self, event: Event) -> list[Effect]: ...


class EffectHandler(Protocol):
    """Performs one request, blocking. Never raises for a failure that is an outcome."""

    def perform(self, request: Request) -> Outcome: ...

    def cancel(self, request_id: int) -> None: ...


class Actor:
    """One machine at work. `on_note` gets its notes, `on_resign` its last word; both between two steps. Its steps have
    the log context of the thread that makes it.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        handler: EffectHandler,
        executor: Executor,
        steps: SerialExecutor,
        ticker: Ticker,
        on_note: Callable[[Note], None],
        on_resign: Callable[[Resign], None],
    ) -> None:
        """`executor` performs the requests, `steps` runs this machine's steps only."""
        self._name = name
        self._machine = machine
        self._handler = handler
        self._executor = executor
        self._steps = steps
        self._ticker = ticker
        self._on_note = on_note
        self._on_resign = on_resign
        self._failpoints = Failpoints.from_environment()
        self._context = copy_context()
        self._ended = threading.Event()
        self._ticking = threading.Lock()
        self._last_heartbeat: float | None = None
        self._request_started_at: float | None = None

    @property
    def last_heartbeat(self) -> float:
        """When it made its last step, in monotonic seconds; now, before it starts. The watchdog looks at it."""
        last_heartbeat = self._last_heartbeat
        return time.monotonic() if last_heartbeat is None else last_heartbeat

    @property
    def request_started_at(self) -> float:
        """When the request under way began, in monotonic seconds; now, if there is none."""
        started_at = self._request_started_at
        return time.monotonic() if started_at is None else started_at

    def start(self) -> None:
        self._last_heartbeat = time.monotonic()
        # A new coordinator has something to do before anything happens.
        self._tick()
        self._ticker.subscribe(self._tick)

    def post(self, event: Event) -> None:
        if not self._ended.is_set():
            self._steps.submit(self._context.run, self._step, event)

    def stop(self) -> None:
        """Ends without waiting for the request under way: its answer is dropped."""
        self._ended.set()
        self._ticker.unsubscribe(self._tick)

    def join(self, timeout: float) -> None:
        """Waits for a step that is under way."""
        self._steps.wait_idle(timeout)

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def _tick(self) -> None:
        """Queues one tick at a time: a busy machine needs no second one."""
        if self._ticking.acquire(blocking=False):
            self._steps.submit(self._context.run, self._step, None)

    def _step(self, event: Event | None) -> None:
        """`event`: None for a tick."""
        if event is None:
            self._ticking.release()
        if self._ended.is_set():
            return
        self._last_heartbeat = time.monotonic()
        try:
            # People read the wall clock of phases: keep it no older than the event that enters one.
            effects = self._machine.step(Tick(time.monotonic(), time.time()))
            if event is not None:
                effects = effects + self._machine.step(event)
            for effect in effects:
                self._handle(effect)
        except Exception as error:
            LOG.exception("machine.failed", machine=self._name)
            self._on_resign(Resign(f"a defect: {error!r}"))
            self.stop()

    def _handle(self, effect: Effect) -> None:
        match effect:
            case Request():
                self._request_started_at = time.monotonic()
                self._executor.submit(in_context(self._perform), effect)
            case Cancel(id=id):
                self._handler.cancel(id)
            case Note():
                self._on_note(effect)
            case Resign():
                self._on_resign(effect)
                self.stop()

    def _perform(self, request: Request) -> None:
        outcome: Outcome = Unknown("not performed: its machine has ended")
        if not self._ended.is_set():
            self._failpoints.reach_operation(request.operation, "before")
            try:
                with bound(**_context_of(request.operation)):
                    outcome = self._handler.perform(request)
            except Exception as error:
                LOG.exception("request.failed", operation=type(request.operation).__name__)
                outcome = Unknown(error_summary(error))
            self._failpoints.reach_operation(request.operation, "after")
        self._request_started_at = None
        self.post(Answered(time.monotonic(), request.id, outcome))


def _context_of(operation: Operation) -> dict[str, int]:
    """Returns the epoch and transaction that an operation names, for log lines from within it."""
    fields = {"epoch": getattr(operation, "epoch", None), "transaction": getattr(operation, "number", None)}
    return {key: value for key, value in fields.items() if value is not None}
