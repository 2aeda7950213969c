"""A machine's exchange with its shell: one request under way at a time, and the effects of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from coordination.machines.pacing import Backoff
from coordination.state.messages import Effect, Note, Operation, Request, Resign, Write
from coordination.state.tree import Op


class Exchange:
    """The state that every machine has towards its shell. Each effect waits in the outbox until the step ends."""

    def __init__(self) -> None:
        self.at = 0.0
        self.requests = 0
        self.outstanding: Request | None = None
        """The request under way."""
        self.not_before = 0.0
        """When the next request may be made: later, after one that failed."""
        self.backoff = Backoff()
        self.group: deque[Write] = deque()
        """Multis of one write plan that are still to be sent."""
        self.draining = False
        self.resigned = False
        self.outbox: list[Effect] = []

    def take_answer(self, id: int) -> Operation | None:
        """Returns the operation under way, which this answer ends; None, if it answers another request: it is
        dropped."""
        request = self.outstanding
        if request is None or request.id != id:
            self.note("answer.dropped", request=id)
            return None
        self.outstanding = None
        return request.operation

    def effects(self, next_operation: Callable[[], Operation | None]) -> list[Effect]:
        """Requests the next operation if it is time for one. Empties the outbox into the step's effects."""
        if not self.resigned and self.outstanding is None and self.at >= self.not_before:
            operation = next_operation()
            if operation is not None:
                self.requests += 1
                self.outstanding = Request(self.requests, operation)
                self.outbox.append(self.outstanding)
        effects, self.outbox = self.outbox, []
        return effects

    def queue(self, purpose: str, fence: Sequence[Op], multis: Iterable[Sequence[Op]]) -> Write:
        """Fences each multi. Returns the first; the others wait in the group."""
        first, *others = [Write(purpose, (*fence, *multi)) for multi in multis if multi]
        self.group.extend(others)
        return first

    def note(self, event: str, **fields: Any) -> None:
        self.outbox.append(Note(event, tuple(fields.items())))

    def resign(self, reason: str, pause: float = 0.0) -> None:
        self.resigned = True
        self.outbox.append(Resign(reason, pause))
