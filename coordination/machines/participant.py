"""The participant runs the write tasks that a STARTED transaction assigns to its incarnation, and reports them.

Guarantee: ZooKeeper creates a write status only while the transaction is STARTED under the header from which the
participant has read its tasks. The participant cancels the tasks of an aborted transaction, and never reports them. It
has one request under way at a time: a write that is no longer wanted has to end before the next one begins.
"""

from __future__ import annotations

from coordination.machines.exchange import Exchange
from coordination.state import tree
from coordination.state.failures import Failure, FailureKind
from coordination.state.messages import (
    Answered,
    Cancel,
    Done,
    Drain,
    Effect,
    Event,
    Failed,
    NotDone,
    Operation,
    Outcome,
    ParticipantViewSeen,
    Refused,
    Request,
    Write,
    WriteTasks,
)
from coordination.state.model import Phase, WriteStatus
from coordination.state.reading import Assignment, ParticipantView
from coordination.state.tree import Check


class Participant(Exchange):
    """`step(event) -> effects`. One instance is one incarnation: after `Resign` it answers nothing any more."""

    def __init__(self, incarnation: str) -> None:
        super().__init__()
        self.incarnation = incarnation
        self._view: ParticipantView | None = None
        self._written: dict[int, WriteStatus] = {}
        self._reporting: set[tuple[int, int]] = set()
        self._closed: set[tuple[int, int]] = set()
        self._reports = 0
        self._cancelled = 0
        """The number of the last request that it cancelled."""

    def step(self, event: Event) -> list[Effect]:
        if self.resigned:
            return []
        self.at = max(self.at, event.at)
        match event:
            case Answered(id=id, outcome=outcome):
                self._answered(id, outcome)
            case ParticipantViewSeen(view=view):
                self._seen(view)
            case Drain():
                self.draining = True
        return self.effects(self._next)

    def _seen(self, view: ParticipantView) -> None:
        self._view = view
        if not view.member:
            self.resign("its member znode is gone")
            return
        started = {a.header.number: a for a in self._assigned() if a.header.phase is Phase.STARTED}
        for number in set(self._written) - set(started):
            del self._written[number]
        self._closed &= {(a.header.number, a.version) for a in view.assignments}
        request = self.outstanding
        if request is None or request.id == self._cancelled or not isinstance(request.operation, WriteTasks):
            return
        assignment = started.get(request.operation.number)
        if assignment is None or assignment.header.instant != request.operation.instant:
            self.note("slices.cancelled", transaction=request.operation.number)
            self._cancel(request)

    def _answered(self, id: int, outcome: Outcome) -> None:
        operation = self.take_answer(id)
        if operation is None:
            return
        if isinstance(operation, WriteTasks):
            if id != self._cancelled:
                self._written[operation.number] = self._status(operation, outcome)
        elif isinstance(outcome, Done):
            self.backoff.succeeded(Write)
            if not self.group:
                self._closed |= self._reporting
        else:
            self._not_reported(outcome)

    def _not_reported(self, outcome: NotDone) -> None:
        """Handles a write status that was not created. Refused: the transaction has moved on, and a later view tells
        its phase. Any other outcome: the status may exist; the participant creates it again, and is refused if it does.
        """
        self.group.clear()
        self.note("status.not_reported", outcome=type(outcome).__name__, reason=outcome.reason)
        if isinstance(outcome, Refused):
            self._closed |= self._reporting
        else:
            self.not_before = self.at + self.backoff.failed(Write)

    def _status(self, operation: WriteTasks, outcome: Outcome) -> WriteStatus:
        if isinstance(outcome, Done) and isinstance(outcome.value, WriteStatus):
            return outcome.value
        assert not isinstance(outcome, Done)
        failure = outcome.failure if isinstance(outcome, Failed) else None
        failure = failure or Failure(FailureKind.RETRYABLE, outcome.reason)
        return WriteStatus(operation.number, self.incarnation, failure=failure)

    def _next(self) -> Operation | None:
        if self.group:
            return self.group.popleft()
        assignments = [a for a in self._assigned() if (a.header.number, a.version) not in self._closed]
        if self._view is not None and self.draining and not assignments:
            self.resign("drained")
            return None
        for assigned in assignments:
            header = assigned.header
            if header.phase is not Phase.STARTED or assigned.tasks is None:
                continue
            if (status := self._written.get(header.number)) is not None:
                return self._report(assigned, status)
            assert header.instant is not None
            return WriteTasks(
                header.number, header.instant, assigned.tasks, header.columns, header.attempt, header.cluster
            )
        return None

    def _report(self, assigned: Assignment, status: WriteStatus) -> Operation:
        number, version = assigned.header.number, assigned.version
        self._reporting = {(number, version)}
        self._reports += 1
        *pieces, last = tree.status_ops(status, self._reports)
        fence = (
            Check(tree.header_path(number), version),
            Check(tree.member_path(self.incarnation), -1),
        )
        return self.queue("write status", fence, tree.batched(pieces, [last]))

    def _assigned(self) -> tuple[Assignment, ...]:
        """Lists the open transactions that may still need this incarnation, oldest first."""
        if self._view is None:
            return ()
        return tuple(
            a for a in self._view.assignments if a.header.phase in (Phase.PLANNED, Phase.STARTED) and a.tasks != ()
        )

    def _cancel(self, request: Request) -> None:
        self._cancelled = request.id
        self.outbox.append(Cancel(request.id))

    def resign(self, reason: str, pause: float = 0.0) -> None:
        if self.outstanding is not None and self.outstanding.id != self._cancelled:
            self._cancel(self.outstanding)
        super().resign(reason, pause)
