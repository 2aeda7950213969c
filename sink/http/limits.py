"""Bounds what the connections of the HTTP server take together."""

from __future__ import annotations

import time

from tornado.iostream import IOStream

SHARE = 0.5
"""The share of one core that the server's thread may take."""
BURST_SECONDS = 0.5
LONGEST_BREATH = 0.1


class Limits:
    """`open` has all connections, oldest first; `busy` those whose answer is being made. For the server's thread."""

    def __init__(self) -> None:
        self.open: dict[IOStream, None] = {}
        self.busy: set[IOStream] = set()
        self._wall, self._used = time.monotonic(), time.thread_time()
        self._left = BURST_SECONDS

    def breathe(self) -> None:
        """Sleeps where the thread has taken more than its share. To be called for each connection and each request."""
        wall, used = time.monotonic(), time.thread_time()
        self._left = min(BURST_SECONDS, self._left + (wall - self._wall) * SHARE) - (used - self._used)
        self._wall, self._used = wall, used
        if self._left < 0:
            time.sleep(min(LONGEST_BREATH, -self._left / SHARE))
