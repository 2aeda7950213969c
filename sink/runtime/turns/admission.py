"""Admission control: a process of many sinks opens no more transactions than its cores can carry.

Guarantee: sinks that wait are admitted in the order in which they began to wait. One is admitted at once while few have
a transaction open, and one a second beyond those while the host's cores idle, as they do where a store is slow. A
transaction that takes longer than `PATIENCE_SECONDS` no longer counts, so that each sink is admitted in the end. Raises
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from coordination.machines.coordinator import Coordinator
from coordination.state.messages import Admission, Effect, Event

PATIENCE_SECONDS = 20.0
ASKS_SECONDS = 10.0
"""A sink that waits and has not asked for so long hangs: later ones go first."""
SPARE = 1
"""Transactions that may be open beyond one a core: each waits for Kafka and for files in between."""
MOST_OPEN = 16
"""Transactions of a process that are open at once, however many cores are idle."""
SAMPLE_SECONDS = 1.0
BUSY_PERCENT = 85.0
"""The share of the host's cores in use above which another transaction makes the open ones slower."""


@dataclass
class _Waiter:
    wake: Callable[[], None]
    asked_at: float


class AdmissionControl:
    """Each sink that leads calls `admits` again and again; so does the first that waits when a transaction has ended.
    One thread calls `sample` again and again.
    """

    def __init__(
        self,
        cores: int,
        busy_percent: Callable[[], float] = psutil.cpu_percent,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`busy_percent`: of the host's cores, since its last call. Its first answer counts for nothing."""
        self._base_limit = cores + SPARE
        self._busy_percent = busy_percent
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[object, float] = {}
        """Since when each has been open, or was admitted."""
        self._waiting: dict[object, _Waiter] = {}
        """In the order in which they began to wait."""
        self._sampled: float | None = None
        self._has_idle_cores = False

    def sample(self) -> None:
        """Asks once a second whether cores idle."""
        now = self._clock()
        if self._sampled is not None and now - self._sampled < SAMPLE_SECONDS:
            return
        percent = self._busy_percent()
        self._has_idle_cores = self._sampled is not None and percent < BUSY_PERCENT
        self._sampled = now

    def admits(self, sink: object, waits: bool, has_open: bool, wake: Callable[[], None] = lambda: None) -> bool:
        """Whether `sink` may open a transaction, or has one open. `waits`: it would open one. `wake` returns at once:
        it makes the sink ask again.
        """
        if not waits and not has_open:
            self.forget(sink)
            return False
        now = self._clock()
        with self._lock:
            if has_open:
                self._waiting.pop(sink, None)
                self._open.setdefault(sink, now)
            if sink in self._open:
                return True
            waiter = self._waiting.setdefault(sink, _Waiter(wake, now))
            waiter.asked_at = now
            if self._first_waiter(now) is not sink or not self._has_room(now):
                return False
            del self._waiting[sink]
            self._open[sink] = now
            return True

    def forget(self, sink: object) -> None:
        """Gives back the admission of `sink`."""
        with self._lock:
            self._waiting.pop(sink, None)
            freed = self._open.pop(sink, None) is not None
            next_sink = self._first_waiter(self._clock()) if freed else None
            wake = self._waiting[next_sink].wake if next_sink is not None else None
        if wake is not None:
            wake()

    def _first_waiter(self, now: float) -> object | None:
        asking = (sink for sink, waiter in self._waiting.items() if now - waiter.asked_at < ASKS_SECONDS)
        return next(asking, None)

    def _has_room(self, now: float) -> bool:
        count = sum(now - opened_at < PATIENCE_SECONDS for opened_at in self._open.values())
        if count < self._base_limit:
            return True
        if count >= MOST_OPEN or not self._has_idle_cores:
            return False
        self._has_idle_cores = False  # one sink a sample
        return True


class AdmittedCoordinator:
    """A coordinator that opens transactions when `control` admits it."""

    def __init__(self, coordinator: Coordinator, control: AdmissionControl) -> None:
        self._coordinator = coordinator
        self._control = control
        self._admitted: bool | None = None
        self.wake: Callable[[], None] = lambda: None
        """Makes it step, from any thread."""

    def step(self, event: Event) -> list[Effect]:
        effects = [] if self._admitted is not None else self._step_admission(event.at, False)
        effects += self._coordinator.step(event)
        waits, has_open = self._coordinator.waits_for_admission, self._coordinator.has_open
        admitted = self._control.admits(self, waits, has_open, lambda: self.wake())
        return effects if admitted is self._admitted else effects + self._step_admission(event.at, admitted)

    def close(self) -> None:
        """Gives back its admission: it makes no step any more."""
        self._control.forget(self)

    def _step_admission(self, at: float, admitted: bool) -> list[Effect]:
        self._admitted = admitted
        return self._coordinator.step(Admission(at, admitted))
