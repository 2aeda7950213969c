"""Sends requests to a running sink through its `control` znode, and waits until the fleet has done them.

Commands and the worker's HTTP server call the same functions. Guarantee: a request is one compare-and-set on the last
reading, tried again if another client has written in between; each request is safe to be made twice. A function waits
for a state that it reads from ZooKeeper, and does not trust its own request. Errors: ConfigError (there is no such sink
or worker), Conflict (the sink's state does not allow the request), Overdue, Unavailable, Corrupt, OutcomeUnknown.
"""

from __future__ import annotations

import getpass
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from kazoo.client import KazooClient

from coordination.errors import ConfigError, Conflict, SinkError, Unavailable, in_sentences
from coordination.state import tree
from coordination.state.control import Control, RequestAuthor
from coordination.state.incarnations import worker_of
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.worker_records import worker_records
from sink.operations.health import moment
from sink.operations.observed_sink import ObservedSink

TRIES = 20
POLL_SECONDS = 2.0
"""A wait reads again after this time at the latest, even without a watch event."""

JOINS_LATER = frozenset({"opening", "waiting", "hanging"})
"""States of a sink whose worker is not a member of its fleet now, and becomes one by itself."""

Edit = Callable[[KeeperView], Control]


class NoSuchWorker(ConfigError):
    """The sink has no live worker of that name."""


class Overdue(SinkError):
    """A request stands, and the fleet has not done it in time."""


def decisive_errors(errors: Sequence[SinkError | None]) -> list[SinkError]:
    """Returns the errors that make a request to several sinks fail; `errors` has None for each sink that took it. A
    worker need not take part in all of the sinks.
    """
    raised = [error for error in errors if error is not None]
    if len(raised) == len(errors):
        return raised
    return [error for error in raised if not isinstance(error, NoSuchWorker)]


class SinkControl:
    """An operator's access to one sink. `by` names the author of requests."""

    def __init__(self, sink: ObservedSink, client: KazooClient, by: str = "") -> None:
        self.sink = sink
        self.name = sink.name
        self._by = by or requester()
        self._changed = threading.Event()
        self._keeper = Keeper(client, sink.root_znode, self._changed.set)
        self._client = client

    def pause(self, reason: str = "") -> str:
        """Asks to plan nothing more. Returns the author of an earlier pause, if there is one."""
        earlier_pause = self._write_request(lambda view: view.control.pause(self._new_request(reason))).control.paused
        if earlier_pause is not None:
            return f"sink {self.name} is paused already, {describe_request(earlier_pause)}"
        return f"sink {self.name} is paused"

    def wait_at_rest(self, seconds: float) -> str:
        """Waits until a paused sink has no open transaction. Returns early for a halted sink, or without a worker: the
        transaction would stay open. Raises Conflict if the sink was resumed.
        """

        def at_rest(view: KeeperView) -> str | None:
            if view.control.paused is None:
                raise Conflict(f"sink {self.name} was resumed meanwhile")
            if not view.transactions:
                return "nothing is open"
            still_open = f"transaction {view.transactions[0].header.number} is open"
            if view.halt is not None:
                return f"{still_open} and stays so, for the sink is halted: see `sink status`"
            if not view.members:
                return f"{still_open} until a worker starts, which finishes it"
            return None

        return self.wait(at_rest, seconds, lambda: f"sink {self.name} is paused, but a transaction is still open")

    def resume(self) -> str:
        before = self._write_request(lambda view: view.control.resume())
        if before.control.paused is None:
            return f"sink {self.name} is not paused"
        return f"sink {self.name} goes on. It was paused {describe_request(before.control.paused)}"

    def flush(self) -> int:
        """Asks to commit at once. Returns the number to wait for."""

        def edit(view: KeeperView) -> Control:
            self._require_running(view, "flush")
            return view.control.ask_flush(self._new_request())

        return self._write_request(edit).control.flush.asked + 1

    def wait_flushed(self, request: int, seconds: float) -> str:
        def flushed(view: KeeperView) -> str | None:
            if view.control.flush.asked < request:
                raise Conflict(f"sink {self.name}: ZooKeeper was emptied or restored meanwhile. Flush again.")
            if view.control.flush.done >= request:
                return f"sink {self.name}: all that was there is committed, up to transaction {view.ledger.committed}"
            self._require_running(view, "flush")
            return None

        return self.wait(flushed, seconds, lambda: f"sink {self.name}: the flush is not done yet")

    def switchover(self) -> tuple[str, str]:
        """Asks for another coordinator. Returns the contender that has to yield, as its znode and incarnation."""

        def edit(view: KeeperView) -> Control:
            if len(view.contenders) < 2:
                raise Conflict(
                    f"sink {self.name}: {_worker(view.coordinator) or 'no worker'} coordinates it and no other worker"
                    " could. Start a second one first."
                )
            return view.control.ask_switchover(*view.contenders[0], self._new_request())

        return self._write_request(edit).contenders[0]

    def wait_switched(self, contender: tuple[str, str], seconds: float) -> str:
        late = f"sink {self.name}: {_worker(contender[1])} still has to finish what is open"
        return self.wait(lambda view: switchover_outcome(self.name, view, contender), seconds, lambda: late)

    def drain(self, worker: str) -> tuple[str, ...]:
        """Asks a worker to leave. Returns its incarnations. Raises Conflict if it would join only later."""

        def edit(view: KeeperView) -> Control:
            incarnations = _incarnations(view, worker)
            if not incarnations:
                self._refuse_if_it_joins_later(worker)
                live_workers = ", ".join(sorted({member.worker for member in view.members})) or "none"
                raise NoSuchWorker(f"sink {self.name} has no live worker {worker!r}. There are: {live_workers}.")
            live_incarnations = [member.incarnation for member in view.members]
            return view.control.drain(incarnations, live_incarnations, self._new_request())

        return _incarnations(self._write_request(edit), worker)

    def _refuse_if_it_joins_later(self, worker: str) -> None:
        """Raises Conflict if the worker hosts this sink and is not a member now: a request names members."""
        for record in worker_records(self._client, self.sink.fleet_znode):
            hosted = record.sinks.get(self.name)
            if record.worker == worker and not record.draining and hosted is not None and hosted.state in JOINS_LATER:
                reason = f": {hosted.reason}" if hosted.reason else ""
                raise Conflict(
                    f"sink {self.name}: {worker} stays, for it has not joined yet and joins later ({hosted.state}"
                    f"{reason}). Drain it again then, or stop its process."
                )

    def wait_left(self, incarnations: tuple[str, ...], seconds: float) -> str:
        worker = _worker(incarnations[0])

        def outcome(view: KeeperView) -> str | None:
            if any(member.incarnation in incarnations for member in view.members):
                return None
            warning = "" if view.members else ". No worker is left: the sink stands still until one starts."
            return f"{worker} has left sink {self.name}{warning}"

        return self.wait(outcome, seconds, lambda: f"sink {self.name}: {worker} has not left yet")

    def _new_request(self, reason: str = "") -> RequestAuthor:
        return RequestAuthor(self._by, round(time.time(), 3), reason)

    def _write_request(self, edit: Edit) -> KeeperView:
        """Writes the content that `edit` returns for the present reading. Returns that reading."""
        for _ in range(TRIES):
            view = self._read()
            if (control := edit(view)) == view.control:
                return view
            try:
                self._keeper.write((tree.control_op(view, control),))
            except Conflict:
                continue
            return view
        raise Unavailable(f"sink {self.name}: its control znode changes faster than it is written. Try again.")

    def read(self) -> KeeperView:
        """Reads once. Raises Unavailable, Corrupt."""
        return self._keeper.read()

    def _read(self) -> KeeperView:
        """Reads once. Raises ConfigError without a tree."""
        view = self._keeper.read()
        if view.info is None or view.control_version < 0:
            raise ConfigError(f"sink {self.name}: ZooKeeper has nothing of it yet. Start a worker first.")
        return view

    def _require_running(self, view: KeeperView, verb: str) -> None:
        if view.halt is not None:
            halted = f"sink {self.name} is halted: {view.halt.reason}"
            raise Conflict(in_sentences(halted, f"A {verb} has to wait until it goes on."))
        if view.control.paused is not None:
            raise Conflict(
                f"sink {self.name} is paused, {describe_request(view.control.paused)}. Run `sink resume` before a"
                f" {verb}."
            )
        if not view.members:
            raise Conflict(f"sink {self.name} has no live worker. Start one, then {verb}.")

    def wait(
        self,
        condition: Callable[[KeeperView], str | None],
        seconds: float,
        late: Callable[[], str],
        stop: threading.Event | None = None,
    ) -> str:
        """Waits until `condition` returns a value, and returns it. Tries failed readings again. Raises Overdue after
        `seconds`, or when `stop` is set, with the text of `late`.
        """
        self._client.add_listener(self._keeper.session_changed)
        deadline = time.monotonic() + seconds
        try:
            while True:
                self._changed.clear()
                read_error = ""
                try:
                    if (answer := condition(self._keeper.read())) is not None:
                        return answer
                except Unavailable as error:
                    read_error = f" ({error})"
                seconds_left = deadline - time.monotonic()
                if stop is not None and stop.is_set():
                    raise Overdue(f"{late()}, and was stopped{read_error}")
                if seconds_left <= 0:
                    raise Overdue(f"{late()} after {seconds:g} s{read_error}. It goes on, see `sink status`.")
                self._changed.wait(min(seconds_left, POLL_SECONDS))
        finally:
            self._client.remove_listener(self._keeper.session_changed)


def _request_only(
    make_request: Callable[[SinkControl, str], object],
) -> Callable[[ObservedSink, KazooClient, str], str]:
    def perform(sink: ObservedSink, client: KazooClient, worker: str) -> str:
        outcome = make_request(SinkControl(sink, client, f"HTTP at {socket.gethostname()}"), worker)
        return outcome if isinstance(outcome, str) else "asked for"

    return perform


VERBS: Mapping[str, Callable[[ObservedSink, KazooClient, str], str]] = {
    "pause": _request_only(lambda sink, _: sink.pause()),
    "resume": _request_only(lambda sink, _: sink.resume()),
    "flush": _request_only(lambda sink, _: sink.flush()),
    "switchover": _request_only(lambda sink, _: sink.switchover()),
    "drain": _request_only(lambda sink, worker: sink.drain(worker)),
}
"""Requests of the HTTP server, which does not wait. Each takes the sink, a client, and the named worker."""


def switchover_outcome(sink: str, view: KeeperView, contender: tuple[str, str]) -> str | None:
    """Returns the outcome of a switchover that asked `contender` to yield; None while it is pending. Raises Conflict
    if it was dropped.
    """
    previous = contender[1]
    if view.control.switchover is not None:
        return None
    if view.coordinator is not None and view.coordinator != previous:
        return f"{_worker(view.coordinator)} coordinates sink {sink}, {_worker(previous)} did before"
    if len(view.contenders) < 2:
        raise Conflict(f"sink {sink}: no other worker is left that could coordinate it. Nothing was done.")
    if view.contenders[0] != contender:
        # The contender has yielded, and is first again.
        raise Conflict(
            f"sink {sink}: {_worker(previous)} coordinates it again, for the worker that took over has gone. Try again."
        )
    return None


def requester() -> str:
    """Returns the name of this requester, for `sink status`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def describe_request(request: RequestAuthor) -> str:
    """Returns the author, the time and the reason of a request as text."""
    return f"by {request.by or 'somebody'} at {moment(request.at)}" + (f": {request.reason}" if request.reason else "")


def _incarnations(view: KeeperView, worker: str) -> tuple[str, ...]:
    return tuple(member.incarnation for member in view.members if member.worker == worker)


def _worker(incarnation: str | None) -> str:
    return worker_of(incarnation or "")
