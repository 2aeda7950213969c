"""Lets a process of many sinks open no more transactions than its cores can carry.

Guarantee: sinks that wait are let in by the order in which they began to. One is let in at once while few have a
transaction open, and one a second beyond those while the host's cores idle, as they do where a store is slow. One that
has waited for `PATIENCE_SECONDS` is let in anyway. A transaction that takes longer than that no longer counts. Raises
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

from coordination.machines.coordinator import Coordinator
from coordination.state.messages import Admission, Effect, Event

PATIENCE_SECONDS = 20.0
SPARE = 1
"""Transactions that may be open beyond one a core: each waits for Kafka and for files in between."""
MOST = 16
SAMPLE_SECONDS = 1.0
BUSY = 0.85
"""A share of the host's cores. Above it, another transaction makes those that are open slower."""


def busy_share() -> Callable[[], float]:
    """A function that tells the share of the host's cores that was busy since it was last asked."""
    before = psutil.cpu_times()

    def ask() -> float:
        nonlocal before
        now = psutil.cpu_times()
        idle = now.idle - before.idle + getattr(now, "iowait", 0.0) - getattr(before, "iowait", 0.0)
        total = sum(now) - sum(before)
        before = now
        return 1.0 - idle / total if total > 0 else 1.0

    return ask


class Openings:
    """`grants` is asked again and again by each sink that leads, and by the first that waits when one has ended."""

    def __init__(
        self, cores: int, busy: Callable[[], float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._least = cores + SPARE
        self._busy = busy or busy_share()
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[object, float] = {}
        """Since when each has been open, or was let in."""
        self._waiting: dict[object, tuple[float, Callable[[], None]]] = {}
        """Since when each has waited, and what wakes it."""
        self._sampled = clock()
        self._extra = False

    def grants(self, sink: object, waits: bool, has_open: bool, wake: Callable[[], None] = lambda: None) -> bool:
        """Whether `sink` may open a transaction, or has one open. `waits`: it would open one. `wake` returns at once:
        it makes the sink ask again.
        """
        if not waits and not has_open:
            self.forget(sink)
            return False
        now = self._clock()
        with self._lock:
            self._sample(now)
            if has_open:
                self._waiting.pop(sink, None)
                self._open.setdefault(sink, now)
            if sink in self._open:
                return True
            since, _ = self._waiting.setdefault(sink, (now, wake))
            if now - since >= PATIENCE_SECONDS or (next(iter(self._waiting)) is sink and self._has_room(now)):
                del self._waiting[sink]
                self._open[sink] = now
                return True
            return False

    def forget(self, sink: object) -> None:
        """Gives back what `sink` was granted."""
        with self._lock:
            self._waiting.pop(sink, None)
            if self._open.pop(sink, None) is None or not self._waiting:
                return
            _, wake = next(iter(self._waiting.values()))
        wake()

    def _has_room(self, now: float) -> bool:
        count = sum(now - at < PATIENCE_SECONDS for at in self._open.values())
        if count < self._least:
            return True
        if count >= MOST or not self._extra:
            return False
        self._extra = False
        return True

    def _sample(self, now: float) -> None:
        if now - self._sampled >= SAMPLE_SECONDS:
            self._sampled = now
            self._extra = self._busy() < BUSY


class AdmittedCoordinator:
    """A coordinator that opens transactions when `openings` lets it."""

    def __init__(self, coordinator: Coordinator, openings: Openings) -> None:
        self._coordinator = coordinator
        self._openings = openings
        self._granted: bool | None = None
        self.wake: Callable[[], None] = lambda: None
        """Makes it step, from any thread."""

    def step(self, event: Event) -> list[Effect]:
        effects = [] if self._granted is not None else self._admit(event.at, False)
        effects += self._coordinator.step(event)
        granted = self._openings.grants(self, self._coordinator.waits_to_open, self._coordinator.has_open, self._wake)
        return effects if granted is self._granted else effects + self._admit(event.at, granted)

    def close(self) -> None:
        """It makes no step any more."""
        self._openings.forget(self)

    def _wake(self) -> None:
        self.wake()

    def _admit(self, at: float, granted: bool) -> list[Effect]:
        self._granted = granted
        return self._coordinator.step(Admission(at, granted))
