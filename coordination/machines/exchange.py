"""The part that all state machines share: one request to the shell under way at a time, and the effects of each step.

The shell is the code around a machine that does I/O. It passes events to `step`, carries out the effects that `step`
returns, and passes back the answer to each request as an event. Raises nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from coordination.machines.pacing import Backoff
from coordination.state.messages import Effect, Note, Operation, Request, Resign, Write
from coordination.state.tree import Op


class Exchange:
    """The base class of a machine. Times are seconds of the process's monotonic clock."""

    def __init__(self) -> None:
        self.at = 0.0
        """The time of the newest event."""
        self.requests = 0
        """Requests so far. The newest one has this id."""
        self.outstanding: Request | None = None
        """The request whose answer has not come."""
        self.not_before = 0.0
        """The earliest time of the next request. A machine sets it after a failure."""
        self.backoff = Backoff()
        self.group: deque[Write] = deque()
        """Multis of one write plan after the first. A machine sends them one by one, before anything else, and drops
        them if one is not done."""
        self.draining = False
        """Whether the machine takes on nothing new, and ends when it has finished the rest."""
        self.resigned = False
        """Whether the machine has ended: it makes no request any more."""
        self.outbox: list[Effect] = []
        """Effects of the present step, until it ends."""

    def take_answer(self, id: int) -> Operation | None:
        """Returns the operation of the request under way if `id` is its id, and ends the request. Returns None for any
        other id: the caller drops that answer.
        """
        request = self.outstanding
        if request is None or request.id != id:
            self.note("answer.dropped", request=id)
            return None
        self.outstanding = None
        return request.operation

    def effects(self, next_operation: Callable[[], Operation | None]) -> list[Effect]:
        """Ends a step: returns its effects. Requests the next operation first, unless one is under way or it is too
        early. `next_operation` may return None, and may resign.
        """
        if not self.resigned and self.outstanding is None and self.at >= self.not_before:
            operation = next_operation()
            if operation is not None:
                self.requests += 1
                self.outstanding = Request(self.requests, operation)
                self.outbox.append(self.outstanding)
        effects, self.outbox = self.outbox, []
        return effects

    def queue(self, purpose: str, fence: Sequence[Op], multis: Iterable[Sequence[Op]]) -> Write:
        """Puts the checks of `fence` before each multi. Returns the first multi and queues the others in `group`. Skips
        empty ones; at least one multi must not be empty.
        """
        first, *others = [Write(purpose, (*fence, *multi)) for multi in multis if multi]
        self.group.extend(others)
        return first

    def note(self, event: str, **fields: Any) -> None:
        """Asks the shell for a log line."""
        self.outbox.append(Note(event, tuple(fields.items())))

    def resign(self, reason: str, pause: float = 0.0) -> None:
        """Ends the machine. A coordinator's process does not stand for election again for `pause` seconds."""
        self.resigned = True
        self.outbox.append(Resign(reason, pause))
