"""A moment at which a table service may change the table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sink.hudi.instants import ActiveTimeline


@dataclass(frozen=True, slots=True)
class Moment:
    """`snapshot`: the timeline as it was read under the table lock. `require_held` raises Unavailable if the lock has
    been lost since. Each step that completes, drops or deletes takes it, or the moment, as an argument and calls it
    last, so that no service can leave it out: the looks before may have taken seconds, or the process stood still.
    """

    snapshot: ActiveTimeline
    require_held: Callable[[], None]


Moments = Callable[[str], AbstractContextManager[Moment]]
"""Gives a moment for the purpose that is named."""
