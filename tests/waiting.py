"""Waits by polling for a condition that nothing signals to a test."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(
    description: str, condition: Callable[[], object], seconds: float = 60.0, context: Callable[[], str] = lambda: ""
) -> None:
    """Returns as soon as `condition()` is true. After `seconds` raises AssertionError with description and context."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {description}\n{context()}")
        time.sleep(0.05)
