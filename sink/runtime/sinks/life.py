"""A sink's life in a process, as data, and the only way from one state to the next.

The sink's own thread is the only one that lets something happen; others read the state. A watchdog ends the membership
whose request hangs; the sink's thread meets that request before it joins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class SinkState(Enum):
    """The values are part of the record that a worker keeps of its sinks in ZooKeeper."""

    OPENING = "opening"
    WAITING = "waiting"
    JOINED = "joined"
    HANGING = "hanging"
    REFUSED = "refused"
    ENDED = "ended"


class SinkEvent(Enum):
    """The values are what has happened, in words."""

    LACKS = "something that it needs is away"
    HAS = "what it needs is there"
    JOINS = "it takes part in the fleet"
    LEAVES = "its membership has ended"
    HANGS = "a request of its last membership hangs"
    RETURNS = "the request that hung has returned"
    REFUSES = "settings or table cannot be used, or a defect"
    ENDS = "it was told to end"


TRANSITIONS: Mapping[SinkState, Mapping[SinkEvent, SinkState]] = MappingProxyType(
    {
        SinkState.OPENING: {
            SinkEvent.HAS: SinkState.OPENING,
            SinkEvent.LACKS: SinkState.WAITING,
            SinkEvent.JOINS: SinkState.JOINED,
            SinkEvent.HANGS: SinkState.HANGING,
            SinkEvent.REFUSES: SinkState.REFUSED,
            SinkEvent.ENDS: SinkState.ENDED,
        },
        SinkState.WAITING: {
            SinkEvent.HAS: SinkState.OPENING,
            SinkEvent.LACKS: SinkState.WAITING,
            SinkEvent.JOINS: SinkState.JOINED,
            SinkEvent.HANGS: SinkState.HANGING,
            SinkEvent.REFUSES: SinkState.REFUSED,
            SinkEvent.ENDS: SinkState.ENDED,
        },
        SinkState.JOINED: {
            SinkEvent.LACKS: SinkState.WAITING,
            SinkEvent.LEAVES: SinkState.OPENING,
        },
        SinkState.HANGING: {
            SinkEvent.RETURNS: SinkState.OPENING,
            SinkEvent.REFUSES: SinkState.REFUSED,
            SinkEvent.ENDS: SinkState.ENDED,
        },
        SinkState.REFUSED: {},
        SinkState.ENDED: {},
    }
)
"""The table is the theory of operation. REFUSED and ENDED are the end: a sink that is to begin again is a new one."""


class IllegalEvent(AssertionError):
    """A defect of the sink, never an outcome: nothing was changed."""


class Life:
    """`reason` says why it waits, hangs or was refused."""

    def __init__(self, state: SinkState = SinkState.OPENING) -> None:
        self.state, self.reason = state, ""

    def happens(self, event: SinkEvent, reason: str = "") -> None:
        """Raises IllegalEvent for an event that cannot happen in this state."""
        after = TRANSITIONS[self.state].get(event)
        if after is None:
            raise IllegalEvent(f"a sink that is {self.state.value}: {event.value}")
        self.state, self.reason = after, reason
