"""Waits for servers that do not answer yet: logs each reason once, and pauses longer each time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypeVar

import structlog

from coordination.errors import Unavailable

LOG = structlog.get_logger("sink.worker")
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 15.0
_Done = TypeVar("_Done")


def until_stopped(
    stop: Event, server: str, action: Callable[[], _Done], on_reason: Callable[[str], None] = lambda _: None
) -> _Done | None:
    """Returns what `action` returns, once it raises no `Unavailable` any more; None if `stop` is set before.
    `on_reason` gets each new reason.
    """
    last_reason, pause = "", FIRST_PAUSE_SECONDS
    while not stop.is_set():
        try:
            return action()
        except Unavailable as error:
            reason = str(error)
            if reason != last_reason:
                LOG.warning("worker.waits", waiting_for=server, reason=reason)
                on_reason(f"waits for {server}: {reason}")
            last_reason = reason
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    return None
