"""Work that a thread does again and again: the one loop of this kind.

Guarantee: the work is called until `stop`, one call at a time, with a pause after each. What it raises is logged, with
the thread's name, and the next call comes all the same. Each line that it logs carries what the starting thread was
about. Voided by work that does not return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")


class Periodic:
    """`pause` gives the seconds between two calls, the first one of which comes after a pause unless `at_once`.
    `share` is the most that the work may take of one core: a longer call is followed by a longer pause.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        pause: Callable[[], float],
        at_once: bool = True,
        share: float = 1.0,
    ) -> None:
        self._name, self._work, self._pause, self._share = name, work, pause, share
        self._at_once = at_once
        self.ended = threading.Event()
        """Set by `stop`. The work may wait for it."""
        self._thread = ContextThread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tells the thread to end, and does not wait for it."""
        self.ended.set()

    def join(self, seconds: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        if not self._at_once:
            self.ended.wait(self._pause())
        while not self.ended.is_set():
            began = time.thread_time()
            try:
                self._work()
            except Exception as error:
                LOG.exception("thread.failed", thread=self._name, reason=repr(error))
            self.ended.wait(max(self._pause(), (time.thread_time() - began) / self._share))
