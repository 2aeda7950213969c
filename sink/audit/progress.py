"""Tells who waits for an audit how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Takes a step, and how much of it is done, of how much. Is called often, from one thread."""


def silent(_step: str, _done: int, _total: int) -> None:
    """Tells nobody."""
