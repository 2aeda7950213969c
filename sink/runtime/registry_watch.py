"""Tells once that the schema registry does not answer, and once that it does again: a line each.

A write task asks the registry for the schemas that its records name, for as long as `RegistryAccess.patience_seconds`,
before it fails: one failure is enough for a warning. Guarantee: a fault is one warning, however many requests meet it,
and its end is one line. Voided if this worker gets no further request that needs the registry: after `FORGET_SECONDS`
the fault is no longer shown, and its end is not logged. Raises nothing.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

import structlog

from coordination.state.messages import Done, Outcome
from sink.decode.registry_answers import RegistryUnavailable

LOG = structlog.get_logger("sink.worker")
FORGET_SECONDS = 60.0
_SILENT = re.compile(rf"\b{RegistryUnavailable.__name__}: (.*?)\. The sink asks again")
"""In the text of an error, which may come from a Python worker of Spark."""


def registry_silence(reason: str) -> str | None:
    """Returns the registry's sentence in a failed request; None if the request failed for another reason."""
    match = _SILENT.search(reason)
    return None if match is None else f"{match[1]}. Check that it runs, and schema.registry.url."


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
        """Takes an outcome. A kind of request that has failed is well again when a request of that kind is done."""
        silence = None if isinstance(outcome, Done) else registry_silence(outcome.reason)
        now = self._clock()
        with self._lock:
            lasted = self._lasts()
            if not lasted:
                self._failing.clear()
            if silence is not None:
                self._failing[kind] = now
                self._reason = silence
                if not lasted:
                    self._since = now
                    LOG.warning("registry.unavailable", reason=silence)
            elif isinstance(outcome, Done) and lasted:
                self._failing.pop(kind, None)
                if not self._failing:
                    LOG.info("registry.available", seconds=round(now - self._since, 1))

    def _lasts(self) -> bool:
        return self._clock() - max(self._failing.values(), default=-FORGET_SECONDS) < FORGET_SECONDS
