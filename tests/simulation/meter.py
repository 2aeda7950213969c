"""Counts the requests to ZooKeeper of the real `Keeper`, with its caches and watches, on a tree in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from coordination.state.tree import Check, Create, Delete, Op, Set
from coordination.zookeeper.keeper import Keeper
from tests.simulation.keeper import SimKeeper

ROOT = "/sink"
STAT_BYTES = 80
"""Bytes that come with every answer: a header, and the znode's times and versions."""
NAME_BYTES = 4
"""A length, before each name of a listing."""

Watch = Callable[[WatchedEvent], None]


@dataclass
class Meter:
    multis: int = 0
    operations: int = 0
    written: int = 0
    largest_multi: int = 0
    reads: int = 0
    read: int = 0


class MeteredKeeper(SimKeeper):
    """Counts requests in `meter`, which a caller may replace to start at zero."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.meter = Meter()
        self._data: dict[str, set[Watch]] = {}
        self._listings: dict[str, set[Watch]] = {}

    def write(self, ops: Iterable[Op]) -> None:
        ops = tuple(ops)
        size = sum(len(op.path) + len(getattr(op, "data", b"")) for op in ops)
        meter = self.meter
        meter.multis += 1
        meter.operations += len(ops)
        meter.written += size
        meter.largest_multi = max(meter.largest_multi, size)
        super().write(ops)
        for op in ops:
            self._fire_watches(op)

    def get(self, path: str, watch: Watch | None) -> tuple[bytes, Stat]:
        meter, node = self.meter, self.nodes.get(path)
        meter.reads += 1
        meter.read += STAT_BYTES
        if node is None:
            raise NoNodeError
        meter.read += len(node.data)
        if watch is not None:
            self._data.setdefault(path, set()).add(watch)
        return node.data, Stat(node.version)

    def get_children(self, path: str, watch: Watch) -> list[str]:
        meter = self.meter
        meter.reads += 1
        meter.read += STAT_BYTES
        if path and path not in self.nodes:
            raise NoNodeError
        names = list(self._listing(self.latest).get(path, ()))
        meter.read += sum(len(name) + NAME_BYTES for name in names)
        self._listings.setdefault(path, set()).add(watch)
        return names

    def largest_znode(self) -> int:
        return max(len(node.data) for node in self.nodes.values())

    def most_children(self) -> int:
        names: dict[str, int] = {}
        for path in self.nodes:
            parent, _, name = path.rpartition("/")
            names[parent] = names.get(parent, 0) + len(name) + NAME_BYTES
        return max(names.values())

    def _fire_watches(self, op: Op) -> None:
        parent = op.path.rpartition("/")[0]
        match op:
            case Create():
                self._fire(self._listings, parent, EventType.CHILD)
            case Set():
                self._fire(self._data, op.path, EventType.CHANGED)
            case Delete():
                self._fire(self._data, op.path, EventType.DELETED)
                self._fire(self._listings, op.path, EventType.DELETED)
                self._fire(self._listings, parent, EventType.CHILD)
            case Check():
                pass

    def _fire(self, watches: dict[str, set[Watch]], path: str, event: EventType) -> None:
        for watch in watches.pop(path, ()):
            watch(WatchedEvent(event, KeeperState.CONNECTED, f"{ROOT}/{path}" if path else ROOT))


class Stat(NamedTuple):
    version: int


class _Answer:
    """Stands for kazoo's asynchronous result; computes the value in `get`."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self._value = value

    def get(self, timeout: float) -> Any:  # noqa: ARG002 - kazoo's name
        return self._value()


class _Client:
    """The part of kazoo's client that a reading uses."""

    def __init__(self, keeper: MeteredKeeper) -> None:
        self._keeper = keeper

    def get_async(self, path: str, watch: Watch | None) -> _Answer:
        return _Answer(lambda: self._keeper.get(path[len(ROOT) + 1 :], watch))

    def get_children_async(self, path: str, watch: Watch) -> _Answer:
        return _Answer(lambda: self._keeper.get_children(path[len(ROOT) + 1 :], watch))


class MeteredReader:
    """A worker's `Keeper`; `stale` says whether a watch has fired since its last reading."""

    def __init__(self, keeper: MeteredKeeper) -> None:
        self.stale = True
        self.keeper = Keeper(_Client(keeper), ROOT, self._changed)

    def _changed(self) -> None:
        self.stale = True
