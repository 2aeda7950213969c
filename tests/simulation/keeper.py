"""A ZooKeeper in memory: znodes with versions, ephemerals, sessions, all-or-nothing multis, lagging readers.

It keeps the contract of `coordination.zookeeper.keeper.Keeper`. A reading may be stale and torn over several moments,
but is never older than the same client's last reading. A write happens as a whole or raises `Conflict` or `NotLeader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from random import Random
from typing import Any

from coordination.errors import Conflict, NotLeader
from coordination.state import codec, tree
from coordination.state import control as controls
from coordination.state.control import Control
from coordination.state.model import Member
from coordination.state.reading import SnapshotReader, TreeReader
from coordination.state.tree import (
    Check,
    Create,
    Delete,
    KeeperInfo,
    KeeperView,
    Node,
    NodeRead,
    Op,
    Set,
    Snapshot,
)

HISTORY = 48
_EMPTY = Node(b"", 0)
_kind = lru_cache(maxsize=4096)(tree.node_read)


class SimKeeper:
    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._states: list[dict[str, Node]] = [{}]
        self._children: dict[int, dict[str, list[str]]] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._views: dict[int, KeeperView] = {}
        self._reader = TreeReader()
        self._owners: dict[str, int] = {}
        self._sequence = 0
        self._sessions = 0
        self._trees = 0
        self.alive: set[int] = set()

    @property
    def latest(self) -> int:
        """The number of changes so far, which ZooKeeper calls the zxid."""
        return len(self._states) - 1

    @property
    def nodes(self) -> dict[str, Node]:
        return self._states[-1]

    def bootstrap(self, config_digest: str) -> None:
        nodes = dict(self.nodes)
        for name in tree.SKELETON:
            nodes.setdefault(name, _EMPTY)
        nodes.setdefault(tree.EPOCH, Node(tree.epoch_data(0, ""), 0))
        nodes.setdefault(tree.TRANSACTIONS, _EMPTY)
        nodes.setdefault(tree.CONTROL, Node(controls.encode(Control()), 0))
        if tree.KEEPER not in nodes:
            self._trees += 1
            nodes[tree.KEEPER] = Node(tree.info_data(KeeperInfo(f"tree-{self._trees}", config_digest)), 0)
        if nodes != self.nodes:
            self._commit(nodes)

    def wipe(self) -> None:
        """Loses the ensemble, which comes back empty: no session and no znode survives."""
        self._owners.clear()
        self.alive.clear()
        self._commit({})

    def restore(self, rng: Random) -> None:
        """Loses the ensemble, which comes back with an older tree and without sessions."""
        at = rng.randint(self.oldest_readable(0), self.latest)
        self._owners.clear()
        self.alive.clear()
        sessions = (f"{tree.WORKERS}/", f"{tree.ELECTION}/")
        self._commit({path: node for path, node in self._states[at].items() if not path.startswith(sessions)})

    def tamper(self, rng: Random) -> str | None:
        """Writes or deletes a znode, as a person does by hand. Returns a description; None if there is no znode."""
        sessions = (tree.WORKERS, tree.ELECTION, tree.HALT)
        path = rng.choice(sorted(path for path in self.nodes if not path.startswith(sessions)) or [""])
        if not path:
            return None
        if rng.random() < 0.3:
            self._commit({p: node for p, node in self.nodes.items() if p != path and not p.startswith(f"{path}/")})
            return f"{path} deleted"
        node = self.nodes[path]
        older = sorted({state[path].data for state in self._states if path in state} - {node.data})
        data = rng.choice([*older, *older, b"", b"\xff", b"{}", node.data[: len(node.data) // 2]])
        self._commit({**self.nodes, path: Node(data, node.version + 1)})
        return f"{path} is {data[:40]!r}"

    def open_session(self) -> int:
        self._sessions += 1
        self.alive.add(self._sessions)
        return self._sessions

    def expire(self, session: int) -> None:
        """Ends a session, and deletes its ephemerals at once."""
        if session not in self.alive:
            return
        self.alive.discard(session)
        ephemerals = {path for path, owner in self._owners.items() if owner == session}
        if ephemerals:
            for path in ephemerals:
                del self._owners[path]
            self._commit({path: node for path, node in self.nodes.items() if path not in ephemerals})

    def join(self, member: Member, session: int) -> bool:
        path = tree.member_path(member.incarnation)
        if session not in self.alive or tree.WORKERS not in self.nodes:
            return False
        version = self.nodes[path].version + 1 if path in self.nodes else 0
        self._owners.setdefault(path, session)
        self._commit({**self.nodes, path: Node(codec.encode_member(member), version)})
        return True

    def contend(self, incarnation: str, session: int) -> str | None:
        """Queues up in the election. Returns the contender znode's path; None without a session or an election."""
        if session not in self.alive or tree.ELECTION not in self.nodes:
            return None
        self._sequence += 1
        path = f"{tree.ELECTION}/{incarnation.replace(':', '-')}__lock__{self._sequence:010d}"
        self._owners[path] = session
        self._commit({**self.nodes, path: Node(incarnation.encode(), 0)})
        return path

    def first_contender(self, at: int) -> str | None:
        contenders = (path for path in self._states[at] if path.startswith(f"{tree.ELECTION}/"))
        return min(contenders, key=lambda path: path[-10:], default=None)

    def remove(self, path: str) -> None:
        if path in self.nodes:
            self._owners.pop(path, None)
            self._commit({p: node for p, node in self.nodes.items() if p != path})

    def write(self, ops: Iterable[Op]) -> None:
        """Commits one multi. Raises as `Keeper.write` does, for the first operation that is refused."""
        nodes = dict(self.nodes)
        for op in ops:
            refusal = _apply(nodes, op)
            if refusal is not None:
                reason = f"ZooKeeper refused {type(op).__name__} {op.path}: {refusal}"
                if isinstance(op, Check | Set) and op.path.startswith((f"{tree.ELECTION}/", tree.EPOCH)):
                    raise NotLeader(reason)
                raise Conflict(reason)
        self._commit(nodes)

    def oldest_readable(self, last_zxid: int) -> int:
        return max(last_zxid, self.latest - HISTORY, 0)

    def snapshot(self, at: int) -> Snapshot:
        """Returns the tree as it was at one moment, as a reader copies it."""
        snapshot = self._snapshots.get(at)
        if snapshot is None:
            snapshot = self._snapshots[at] = {
                path: _EMPTY if _kind(path) is NodeRead.CHILDREN else node for path, node in self._states[at].items()
            }
        return snapshot

    def view(self, at: int) -> KeeperView:
        """Returns the view of one moment, made once for all processes."""
        view = self._views.get(at)
        if view is None:
            view = self._views[at] = self._reader.read(self.snapshot(at))
        return view

    def torn_snapshot(self, rng: Random, low: int, reader: SnapshotReader[Any]) -> tuple[Snapshot, int, int]:
        """Reads level by level, like `Keeper._snapshot`. Returns the snapshot, its first and its last moment."""
        began = at = rng.randint(low, self.latest)
        nodes: dict[str, Node] = {}

        def advance() -> int:
            nonlocal at
            if at < self.latest and rng.random() < 0.15:
                at = rng.randint(at, self.latest)
            return at

        level = list(self._listing(at).get("", ()))
        while level:
            below: list[str] = []
            node_reads = {path: reader.node_read(path) for path in level}
            for path, node_read in node_reads.items():
                if (
                    node_read in (NodeRead.CONTENT, NodeRead.BOTH)
                    and (node := self._states[advance()].get(path)) is not None
                ):
                    nodes[path] = node
            for path, node_read in node_reads.items():
                if node_read not in (NodeRead.CHILDREN, NodeRead.BOTH):
                    continue
                if (names := reader.names(path)) is None and path in self._states[advance()]:
                    names = tuple(self._listing(at).get(path, ()))
                if names is not None:
                    nodes.setdefault(path, _EMPTY)
                    below += [f"{path}/{name}" for name in names]
            level = below
        return nodes, began, at

    def _listing(self, at: int) -> dict[str, list[str]]:
        listing = self._children.get(at)
        if listing is None:
            listing = {}
            for path in self._states[at]:
                parent, _, name = path.rpartition("/")
                listing.setdefault(parent, []).append(name)
            self._children[at] = listing
        return listing

    def _commit(self, nodes: dict[str, Node]) -> None:
        self._states.append(nodes)
        if self.latest > HISTORY + 1:
            # No reader goes further back: free the memory, keep the numbering.
            self._states[self.latest - HISTORY - 2] = {}
            self._children.pop(self.latest - HISTORY - 2, None)
            self._snapshots.pop(self.latest - HISTORY - 2, None)
            self._views.pop(self.latest - HISTORY - 2, None)
        self._on_change()


def _apply(nodes: dict[str, Node], op: Op) -> str | None:
    """Changes `nodes` by one operation. Returns the name of ZooKeeper's error, or None."""
    parent = op.path.rpartition("/")[0]
    node = nodes.get(op.path)
    if isinstance(op, Create):
        if node is not None:
            return "NodeExistsError"
        if parent and parent not in nodes:
            return "NoNodeError"
        nodes[op.path] = Node(op.data, 0)
        return None
    if node is None:
        return "NoNodeError"
    if op.version not in (-1, node.version):
        return "BadVersionError"
    if isinstance(op, Set):
        nodes[op.path] = Node(op.data, node.version + 1)
    elif isinstance(op, Delete):
        if any(path.startswith(f"{op.path}/") for path in nodes):
            return "NotEmptyError"
        del nodes[op.path]
    return None
