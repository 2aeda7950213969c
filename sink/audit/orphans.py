"""Ends processes whose parent has died, which nothing else would."""

from __future__ import annotations

import os
import threading

_POLL_SECONDS = 2.0


def end_with_parent() -> None:
    """Begins to watch the parent of this process, in a thread."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_POLL_SECONDS)
    os._exit(1)
