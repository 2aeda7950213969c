"""Asks something of a running sink through its `control` znode, and waits until the fleet has done it.

Commands and the worker's HTTP server call the same functions. Guarantee: a request is one compare-and-set on what was
read, tried again when another client has written in between; each is safe to be made twice. A function reads from
ZooKeeper what it waits for, and does not trust its own request. Errors: ConfigError (there is nothing to ask it of),
Conflict (the sink's state does not let it), Overdue, Unavailable, Corrupt, OutcomeUnknown.
"""

from __future__ import annotations

import getpass
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from kazoo.client import KazooClient

from coordination.errors import ConfigError, Conflict, SinkError, Unavailable
from coordination.state import tree
from coordination.state.control import Asked, Control
from coordination.state.model import PROTOCOL
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from sink.config import Settings

TRIES = 20
LOOK_SECONDS = 2.0
"""At least so often a wait looks again, whatever the watches say."""

Edit = Callable[[KeeperView], Control]


class NoSuchWorker(ConfigError):
    """The sink has no live worker of that name."""


class Overdue(SinkError):
    """A request stands, and the fleet has not done it in time."""


class SinkControl:
    """One sink, as an operator acts on it. `by` names the author."""

    def __init__(self, settings: Settings, client: KazooClient, by: str = "") -> None:
        self._settings = settings
        self._by = by or requester()
        self._changed = threading.Event()
        self._keeper = Keeper(client, settings.root_znode, self._changed.set)
        self._client = client

    @property
    def settings(self) -> Settings:
        return self._settings

    def pause(self, reason: str = "") -> str:
        """Asks to plan nothing more. Returns the author of an earlier pause, if there is one."""
        known = self._ask(lambda view: view.control.pause(self._asked(reason))).control.paused
        if known is not None:
            return f"sink {self.name} is paused already, {described(known)}"
        return f"sink {self.name} is paused"

    def wait_at_rest(self, seconds: float) -> str:
        """Waits until a paused sink has nothing open. Raises Conflict without a worker, or for a halted sink: it would
        never come.
        """

        def at_rest(view: KeeperView) -> str | None:
            if view.control.paused is None:
                raise Conflict(f"sink {self.name} was resumed meanwhile")
            if not view.transactions:
                return "nothing is open"
            still = f"transaction {view.transactions[0].header.number} is open"
            if view.halt is not None:
                return f"{still} and stays so, for the sink is halted: see `sink status`"
            if not view.members:
                return f"{still} until a worker starts, which finishes it"
            return None

        return self.wait(at_rest, seconds, lambda: f"sink {self.name} is paused, but a transaction is still open")

    def resume(self) -> str:
        before = self._ask(lambda view: view.control.resume())
        if before.control.paused is None:
            return f"sink {self.name} is not paused"
        return f"sink {self.name} goes on; it was paused {described(before.control.paused)}"

    def flush(self) -> int:
        """Asks to commit at once. Returns the number to wait for."""

        def edit(view: KeeperView) -> Control:
            self._require_running(view, "flush")
            return view.control.ask_flush(self._asked())

        return self._ask(edit).control.flush.asked + 1

    def wait_flushed(self, request: int, seconds: float) -> str:
        def flushed(view: KeeperView) -> str | None:
            if view.control.flush.asked < request:
                raise Conflict(f"sink {self.name}: ZooKeeper was emptied or restored meanwhile; flush again")
            if view.control.flush.done >= request:
                return f"sink {self.name}: all that was there is committed, up to transaction {view.ledger.committed}"
            self._require_running(view, "flush")
            return None

        return self.wait(flushed, seconds, lambda: f"sink {self.name}: the flush is not done yet")

    def switchover(self) -> tuple[str, str]:
        """Asks for another coordinator. Returns the contender that has to yield: its znode, and its incarnation."""
        led: list[tuple[str, str]] = []

        def edit(view: KeeperView) -> Control:
            if len(view.contenders) < 2:
                raise Conflict(
                    f"sink {self.name}: {_worker(view.coordinator) or 'no worker'} coordinates it and no other worker"
                    " could; start a second one first"
                )
            led[:] = [view.contenders[0]]
            return view.control.ask_switchover(*view.contenders[0], self._asked())

        self._ask(edit)
        return led[0]

    def wait_switched(self, contender: tuple[str, str], seconds: float) -> str:
        incarnation = contender[1]
        late = f"sink {self.name}: {_worker(incarnation)} still has to finish what is open"
        return self.wait(lambda view: switched(self.name, view, contender), seconds, lambda: late)

    def drain(self, worker: str) -> tuple[str, ...]:
        """Asks a worker to leave. Returns its incarnations."""
        named: list[str] = []

        def edit(view: KeeperView) -> Control:
            alive = [member.incarnation for member in view.members]
            named[:] = [member.incarnation for member in view.members if member.worker == worker]
            if not named:
                known = ", ".join(sorted({member.worker for member in view.members})) or "none"
                raise NoSuchWorker(f"sink {self.name} has no live worker {worker!r}; there are: {known}")
            return view.control.drain(named, alive, self._asked())

        self._ask(edit)
        return tuple(named)

    def wait_left(self, incarnations: tuple[str, ...], seconds: float) -> str:
        worker = _worker(incarnations[0])

        def left(view: KeeperView) -> str | None:
            members = {member.incarnation for member in view.members}
            if members & set(incarnations):
                return None
            rest = len(members)
            alone = "; no worker is left, the sink stands still until one starts" if not rest else ""
            return f"{worker} has left sink {self.name}{alone}"

        return self.wait(left, seconds, lambda: f"sink {self.name}: {worker} has not left yet")

    @property
    def name(self) -> str:
        return self._settings.name

    def _asked(self, reason: str = "") -> Asked:
        return Asked(self._by, round(time.time(), 3), reason)

    def _ask(self, edit: Edit) -> KeeperView:
        """Writes the content that `edit` makes of the present one. Returns the reading behind it."""
        for _ in range(TRIES):
            view = self._read()
            if (control := edit(view)) == view.control:
                return view
            try:
                self._keeper.write((tree.control_op(view, control),))
            except Conflict:
                continue
            return view
        raise Unavailable(f"sink {self.name}: its control znode changes faster than it is written; try again")

    def read(self) -> KeeperView:
        """Reads once. Raises Unavailable, Corrupt."""
        return self._keeper.read()

    def _read(self) -> KeeperView:
        """Raises ConfigError for a sink that is not there, and for a fleet that would not honour a request."""
        view = self._keeper.read()
        if view.info is None:
            raise ConfigError(f"sink {self.name}: ZooKeeper has nothing of it yet; start a worker first")
        older = sorted({member.worker for member in view.members if member.protocol < PROTOCOL})
        if older:
            raise Conflict(
                f"sink {self.name}: {', '.join(older)} run an older version, which does not look at such a request;"
                " stop all workers and start them with this version"
            )
        if view.control_version < 0:
            # A tree of an older version, whose workers are stopped.
            self._keeper.bootstrap(self._settings.config_digest)
            view = self._keeper.read()
        return view

    def _require_running(self, view: KeeperView, verb: str) -> None:
        if view.halt is not None:
            raise Conflict(f"sink {self.name} is halted: {view.halt.reason}; a {verb} has to wait until it goes on")
        if view.control.paused is not None:
            raise Conflict(
                f"sink {self.name} is paused, {described(view.control.paused)}; run `sink resume` before a {verb}"
            )
        if not view.members:
            raise Conflict(f"sink {self.name} has no live worker; start one, then {verb}")

    def wait(
        self,
        true: Callable[[KeeperView], str | None],
        seconds: float,
        late: Callable[[], str],
        stop: threading.Event | None = None,
    ) -> str:
        """Waits until `true` returns a value, and returns that. Tries failed readings again until the time is over, or
        `stop` is set; `late` explains that.
        """
        self._client.add_listener(self._keeper.session_changed)
        deadline = time.monotonic() + seconds
        try:
            while True:
                self._changed.clear()
                unread = ""
                try:
                    if (answer := true(self._keeper.read())) is not None:
                        return answer
                except Unavailable as error:
                    unread = f" ({error})"
                left = deadline - time.monotonic()
                if stop is not None and stop.is_set():
                    raise Overdue(f"{late()}, and was stopped{unread}")
                if left <= 0:
                    raise Overdue(f"{late()} after {seconds:g} s{unread}; it goes on, see `sink status`")
                self._changed.wait(min(left, LOOK_SECONDS))
        finally:
            self._client.remove_listener(self._keeper.session_changed)


def _asked_only(act: Callable[[SinkControl, str], object]) -> Callable[[Settings, KazooClient, str], str]:
    def perform(settings: Settings, client: KazooClient, worker: str) -> str:
        answer = act(SinkControl(settings, client, f"HTTP at {socket.gethostname()}"), worker)
        return answer if isinstance(answer, str) else "asked for"

    return perform


VERBS: Mapping[str, Callable[[Settings, KazooClient, str], str]] = {
    "pause": _asked_only(lambda sink, _: sink.pause()),
    "resume": _asked_only(lambda sink, _: sink.resume()),
    "flush": _asked_only(lambda sink, _: sink.flush()),
    "switchover": _asked_only(lambda sink, _: sink.switchover()),
    "drain": _asked_only(lambda sink, worker: sink.drain(worker)),
}
"""For the HTTP server, which does not wait: by name, over a sink's settings, a client, and the worker that is named."""


def switched(sink: str, view: KeeperView, contender: tuple[str, str]) -> str | None:
    """Tells how a switchover ended that asked this contender to yield; None while it is under way. Raises Conflict
    where it was dropped.
    """
    before = contender[1]
    if view.control.switchover is not None:
        return None
    if view.coordinator is not None and view.coordinator != before:
        return f"{_worker(view.coordinator)} coordinates sink {sink}, {_worker(before)} did before"
    if len(view.contenders) < 2:
        raise Conflict(f"sink {sink}: no other worker is left that could coordinate it; nothing was done")
    if view.contenders[0] != contender:
        # It has yielded, and stands in front again.
        raise Conflict(
            f"sink {sink}: {_worker(before)} coordinates it again, for the worker that took over has gone; try again"
        )
    return None


def requester() -> str:
    """Names who asks, for `sink status`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def described(asked: Asked) -> str:
    """Names the author, the time and the reason of a request."""
    at = datetime.fromtimestamp(asked.at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"by {asked.by or 'somebody'} at {at}" + (f": {asked.reason}" if asked.reason else "")


def _worker(incarnation: str | None) -> str:
    return (incarnation or "").rpartition(":")[0]
