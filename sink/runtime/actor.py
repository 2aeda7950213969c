"""An `Actor` gives a machine one thread to step in, and performs its requests, one at a time, on an executor that
outlives it: a new term never overlaps with what an older one still has under way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
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
from sink.clients.java_errors import error_summary
from sink.telemetry.failpoints import Failpoints
from sink.telemetry.logs import ContextThread, bound, in_context

LOG = structlog.get_logger("sink.worker")
TICK_SECONDS = 0.1


class Machine(Protocol):
    def step(self, event: Event) -> list[Effect]: ...


class EffectHandler(Protocol):
    """Performs one request, blocking. Never raises for what it can name as an outcome."""

    def perform(self, request: Request) -> Outcome: ...

    def cancel(self, request_id: int) -> None: ...


class Actor:
    """One machine at work. `on_note` gets its notes, `on_resign` its last word; both in the actor's thread."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        handler: EffectHandler,
        executor: Executor,
        on_note: Callable[[Note], None],
        on_resign: Callable[[str], None],
    ) -> None:
        self._machine = machine
        self._handler = handler
        self._executor = executor
        self._on_note = on_note
        self._on_resign = on_resign
        self._failpoints = Failpoints.from_environment()
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._ended = threading.Event()
        self._thread = ContextThread(target=self._run, name=name, daemon=True)
        self.last_heartbeat = time.monotonic()
        """When the actor's thread last came round: what the watchdog looks at."""
        self._request_started_at: float | None = None

    @property
    def request_started_at(self) -> float:
        """When it made the request that is being performed, in monotonic seconds; now, if there is none."""
        started_at = self._request_started_at
        return time.monotonic() if started_at is None else started_at

    def start(self) -> None:
        self._thread.start()

    def post(self, event: Event) -> None:
        self._events.put(event)

    def stop(self) -> None:
        """End without waiting for what is being performed: its answer will find nobody."""
        self._events.put(None)
        self._ended.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._step_until_ended()
        except Exception as error:
            LOG.exception("machine.failed", machine=self._thread.name)
            self._ended.set()
            self._on_resign(f"a defect: {error!r}")

    def _step_until_ended(self) -> None:
        # A new coordinator has something to do before anything happens.
        self.post(Tick(time.monotonic(), time.time()))
        while not self._ended.is_set():
            self.last_heartbeat = time.monotonic()
            try:
                event = self._events.get(timeout=TICK_SECONDS)
            except queue.Empty:
                event = Tick(time.monotonic(), time.time())
            if event is None:
                return
            # People read the wall clock of phases: keep it no older than the event that enters one.
            for effect in self._machine.step(Tick(time.monotonic(), time.time())) + self._machine.step(event):
                self._handle(effect)

    def _handle(self, effect: Effect) -> None:
        match effect:
            case Request():
                self._request_started_at = time.monotonic()
                self._executor.submit(in_context(self._perform), effect)
            case Cancel(id=id):
                self._handler.cancel(id)
            case Note():
                self._on_note(effect)
            case Resign(reason):
                self._ended.set()
                self._on_resign(reason)

    def _perform(self, request: Request) -> None:
        outcome: Outcome = Unknown("not performed: its machine has ended")
        if not self._ended.is_set():
            self._failpoints.reach(request.operation, "before")
            try:
                with bound(**_context_of(request.operation)):
                    outcome = self._handler.perform(request)
            except Exception as error:
                LOG.exception("request.failed", operation=type(request.operation).__name__)
                outcome = Unknown(error_summary(error))
            self._failpoints.reach(request.operation, "after")
        self._request_started_at = None
        self.post(Answered(time.monotonic(), request.id, outcome))


def _context_of(operation: Operation) -> dict[str, int]:
    """The epoch and transaction that an operation names, for log lines from within it."""
    named = {"epoch": getattr(operation, "epoch", None), "transaction": getattr(operation, "number", None)}
    return {key: value for key, value in named.items() if value is not None}
