"""The one way in which tests wait for what they cannot be told of."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(
    what: str, true: Callable[[], object], seconds: float = 60.0, context: Callable[[], str] = lambda: ""
) -> None:
    """Returns as soon as `true()` is; after `seconds` fails, saying what was waited for, and the context."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{context()}")
        time.sleep(0.05)
