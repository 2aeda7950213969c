"""Bounds the CPU time that all connections of the HTTP server take together."""

from __future__ import annotations

import time

from tornado.iostream import IOStream

SHARE = 0.5
"""The share of one core that the server's thread may take."""
BURST_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 0.1


class Limits:
    """`open` has all connections, oldest first; `busy` has those that wait for an answer. One thread uses it."""

    def __init__(self) -> None:
        self.open: dict[IOStream, None] = {}
        self.busy: set[IOStream] = set()
        self._wall, self._used = time.monotonic(), time.thread_time()
        self._budget = BURST_SECONDS

    def throttle(self) -> None:
        """Sleeps if the thread has used more than its share. Call it for each connection and each request."""
        wall, used = time.monotonic(), time.thread_time()
        self._budget = min(BURST_SECONDS, self._budget + (wall - self._wall) * SHARE) - (used - self._used)
        self._wall, self._used = wall, used
        if self._budget < 0:
            time.sleep(min(LONGEST_PAUSE_SECONDS, -self._budget / SHARE))
