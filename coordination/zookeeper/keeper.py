"""Reads and writes a sink's znodes over kazoo: snapshots on one side, fenced multis on the other.

A reading is not atomic and may be stale; that is safe because every decision names the versions it was read
at. Trees that are read together are read level by level: a look at sixteen takes the round trips of the deepest one.
A write is one multi: it happened (`write` returns), certainly did not (`Conflict`, `NotLeader`), or is
unknown (`OutcomeUnknown`) and may still happen later. Nothing is ever retried here: kazoo's own retry can
re-issue a deposed coordinator's write after its session has expired.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from coordination.errors import Conflict, Corrupt, NotLeader, OtherVersion, OutcomeUnknown, Unavailable
from coordination.state import codec, tree
from coordination.state import control as controls
from coordination.state.control import Control
from coordination.state.model import Member
from coordination.state.reading import ParticipantView, ParticipantViewReader, SnapshotReader, TreeReader
from coordination.state.tree import Check, Create, Delete, KeeperInfo, KeeperView, Node, NodeRead, Op, Set
from coordination.zookeeper.full_tree import FullTree, FullTreeReader

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A reading that pauses whenever it has sent requests, and then waits for their answers."""

REQUEST_SECONDS = 15.0
TREES_AT_ONCE = 16
"""Trees that are read together. kazoo blocks with some 270 requests that its thread has not taken over, also while
there is no connection; a tree has some ten requests at a time.
"""
_FENCES = (f"{tree.ELECTION}/", tree.EPOCH)


class Keeper:
    """One sink's tree below `root`. `on_change` is called from kazoo's thread whenever a reading may be stale.

    Readings are cached by watch: only changed znodes are fetched again.
    """

    def __init__(self, client: KazooClient, root: str, on_change: Callable[[], None]) -> None:
        self._client = client
        self._root = root
        self._on_change = on_change
        self._mutex = threading.Lock()
        self._reading = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, tuple[str, ...]] = {}
        self._spoiled: set[str] = set()
        self._losses = 0
        self._tree_reader = TreeReader()
        self._full_tree_reader = FullTreeReader()
        self._participant_reader = ParticipantViewReader("")

    def bootstrap(self, config_digest: str) -> None:
        """Makes the missing parts of the tree's skeleton. Safe to call from every worker at once."""
        try:
            for name in tree.SKELETON:
                self._client.ensure_path(self._path(name))
            self._create_once(tree.EPOCH, tree.epoch_data(0, ""))
            self._create_once(tree.TRANSACTIONS, b"")
            self._create_once(tree.CONTROL, controls.encode(Control()))
            self._create_once(tree.KEEPER, tree.info_data(KeeperInfo(str(uuid.uuid4()), config_digest)))
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: cannot prepare {self._root}: {error!r}") from error

    def join(self, member: Member) -> None:
        """Makes or replaces the ephemeral znode of a live worker."""
        path, data = self._path(tree.member_path(member.incarnation)), codec.encode_member(member)
        try:
            try:
                self._client.create(path, data, ephemeral=True)
            except NodeExistsError:
                self._client.set(path, data)
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: cannot join at {path}: {error!r}") from error
        finally:
            self._forget((tree.member_path(member.incarnation),))

    def leave(self, incarnation: str) -> None:
        try:
            self._client.delete(self._path(tree.member_path(incarnation)))
        except NoNodeError:
            return
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper: cannot leave {self._root}: {error!r}") from error
        finally:
            self._forget((tree.member_path(incarnation),))

    def read(self) -> KeeperView:
        """Reads the whole tree. Raises Unavailable, OtherVersion, or Corrupt for content that stays unreadable."""
        return self._read(self._tree_reader)

    def require_own_version(self) -> None:
        """Raises OtherVersion for a tree or a member of another version, and Unavailable. Content that cannot be read
        is for later readings to report.
        """
        with suppress(Corrupt):
            self.read()

    def read_full(self) -> FullTree:
        """Reads the whole tree and the records beside it. Raises as `read`."""
        return self._read(self._full_tree_reader)

    def participant_view(self, incarnation: str) -> ParticipantView:
        """Reads a participant's share, as cheap in a large fleet as in a small one. Raises as `read`."""
        if self._participant_reader.incarnation != incarnation:
            self._participant_reader = ParticipantViewReader(incarnation)
        return self._read(self._participant_reader)

    def _read(self, reader: SnapshotReader[T]) -> T:
        return result_of(self._steps(reader))

    def _steps(self, reader: SnapshotReader[T]) -> Steps[T]:
        with self._reading:
            return (yield from self._read_settled(reader))

    def _read_settled(self, reader: SnapshotReader[T]) -> Steps[T]:
        for attempt in range(3):
            try:
                return reader.read((yield from self._snapshot(reader)))
            except (KazooException, KazooTimeoutError) as error:
                self._forget_all()
                raise Unavailable(f"ZooKeeper: cannot read {self._root}: {error!r}") from error
            except OtherVersion as error:
                raise OtherVersion(f"ZooKeeper: {self._root}/{error}") from error
            except (Corrupt, KeyError) as error:
                # A reading that was overtaken by a write can look corrupt: believe it only when it stays so.
                self._forget_all()
                if attempt == 2:
                    if isinstance(error, Corrupt):
                        raise
                    raise Unavailable(f"ZooKeeper: {self._root} changes faster than it is read") from error
        raise AssertionError("unreachable")

    def write(self, ops: Iterable[Op]) -> None:
        """Commits one multi. Raises `NotLeader`, `Conflict` or `OutcomeUnknown`."""
        ops = tuple(ops)
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Check(path, version):
                    transaction.check(self._path(path), version)
                case Create(path, data):
                    transaction.create(self._path(path), data)
                case Set(path, data, version):
                    transaction.set_data(self._path(path), data, version)
                case Delete(path, version):
                    transaction.delete(self._path(path), version)
        try:
            # Not commit(): it waits without a bound.
            answers = transaction.commit_async().get(timeout=REQUEST_SECONDS)
        except (KazooException, KazooTimeoutError) as error:
            raise OutcomeUnknown(f"ZooKeeper: no answer to a multi on {self._root}: {error!r}") from error
        finally:
            self._forget(op.path for op in ops if not isinstance(op, Check))
        _raise_refusal(ops, answers)

    def _snapshot(self, reader: SnapshotReader[Any]) -> Steps[dict[str, Node]]:
        snapshot: dict[str, Node] = {}
        listed: dict[str, tuple[str, ...]] = yield from self._list(("",))
        level = list(listed.get("", ()))
        visited = {""}
        while level:
            visited.update(level)
            node_reads = {path: reader.node_read(path) for path in level}
            known_children = {path: names for path in level if (names := reader.names(path)) is not None}
            contents = yield from self._get(
                p for p, node_read in node_reads.items() if node_read in (NodeRead.CONTENT, NodeRead.BOTH)
            )
            new_listings = yield from self._list(
                p
                for p, node_read in node_reads.items()
                if node_read in (NodeRead.CHILDREN, NodeRead.BOTH) and p not in known_children
            )
            listed |= new_listings
            listings = known_children | new_listings
            snapshot.update(contents)
            snapshot.update({path: Node(b"", 0) for path in listings if path not in contents})
            level = [f"{path}/{name}" for path, names in listings.items() for name in names]
        self._forget_missing(visited, listed)
        return snapshot

    def _forget_missing(self, visited: Collection[str], listed: Collection[str]) -> None:
        """Forgets everything below a znode that is no longer listed: it has no watch, and may come back with other
        content.
        """

        def is_missing(path: str) -> bool:
            while (parent := path.rpartition("/")[0]) not in visited:
                path = parent
            return path not in visited and parent in listed

        with self._mutex:
            self._spoiled.intersection_update(visited)
            for cache in (self._nodes, self._children):
                for path in [path for path in cache if is_missing(path)]:
                    del cache[path]

    def _get(self, paths: Iterable[str]) -> Steps[dict[str, Node]]:
        def request(path: str) -> Any:
            watch = None if tree.is_immutable(path) else self._watched
            return self._client.get_async(self._path(path), watch=watch)

        return self._fetch(paths, self._nodes, request, lambda a: Node(a[0], a[1].version))

    def _list(self, paths: Iterable[str]) -> Steps[dict[str, tuple[str, ...]]]:
        def request(path: str) -> Any:
            return self._client.get_children_async(self._path(path), watch=self._watched)

        return self._fetch(paths, self._children, request, tuple)

    def _fetch(
        self, paths: Iterable[str], cache: dict[str, Any], request: Callable[[str], Any], build: Callable[[Any], Any]
    ) -> Steps[dict[str, Any]]:
        """Takes znodes from the cache, or fetches them all at once from ZooKeeper; leaves out missing ones."""
        paths = list(paths)
        with self._mutex:
            results = {path: cache[path] for path in paths if path in cache}
            self._spoiled.difference_update(path for path in paths if path not in results)
            losses = self._losses
        pending = {path: request(path) for path in paths if path not in results}
        if pending:
            yield
        for path, answer in pending.items():
            try:
                results[path] = build(answer.get(timeout=REQUEST_SECONDS))
            except NoNodeError:
                continue
            with self._mutex:
                # A watch that fired between the answer and this line is gone: such an answer is used, never kept.
                if path not in self._spoiled and losses == self._losses:
                    cache[path] = results[path]
        return results

    def _watched(self, event: WatchedEvent) -> None:
        if event.type == EventType.NONE or event.path is None:
            self._forget_all()
        else:
            path = event.path[len(self._root) + 1 :]
            with self._mutex:
                self._spoiled.add(path)
                if event.type == EventType.DELETED:
                    self._losses += 1
                for cache in (self._nodes, self._children):
                    cache.pop(path, None)
                    if event.type == EventType.DELETED:
                        for descendant in [p for p in cache if p.startswith(f"{path}/")]:
                            del cache[descendant]
        self._on_change()

    def session_changed(self, state: str) -> None:
        """Forgets all readings. Call it on every change of the session's state: watches do not outlive a connection."""
        self._forget_all()
        if state == KazooState.CONNECTED:
            self._on_change()

    def _forget(self, paths: Iterable[str]) -> None:
        """Forgets znodes after a write of this process: the watches report it too, but on another thread, perhaps
        after the next reading.
        """
        with self._mutex:
            for path in paths:
                parent = path.rpartition("/")[0]
                self._spoiled.update((path, parent))
                self._nodes.pop(path, None)
                self._children.pop(path, None)
                self._children.pop(parent, None)

    def _forget_all(self) -> None:
        with self._mutex:
            self._losses += 1
            self._nodes.clear()
            self._children.clear()

    def _create_once(self, name: str, data: bytes) -> None:
        try:
            self._client.create(self._path(name), data, makepath=True)
        except NodeExistsError:
            return

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def result_of(steps: Steps[T]) -> T:
    """Takes a reading to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def read_together(keepers: Sequence[Keeper]) -> list[FullTree | Corrupt | OtherVersion]:
    """Reads the trees of sinks, in their order, `TREES_AT_ONCE` with the round trips of one. The error of a tree is its
    result. Raises Unavailable.
    """
    results: dict[Keeper, FullTree | Corrupt | OtherVersion] = {}
    for start in range(0, len(keepers), TREES_AT_ONCE):
        together = keepers[start : start + TREES_AT_ONCE]
        pending = {keeper: keeper._steps(keeper._full_tree_reader) for keeper in together}
        while pending:
            for keeper, steps in list(pending.items()):
                try:
                    next(steps)
                    continue
                except StopIteration as end:
                    results[keeper] = end.value
                except (Corrupt, OtherVersion) as error:
                    results[keeper] = error
                del pending[keeper]
    return [results[keeper] for keeper in keepers]


def _raise_refusal(ops: tuple[Op, ...], answers: list[Any]) -> None:
    """Raises the errors of a multi, which kazoo returns."""
    for op, answer in zip(ops, answers, strict=True):
        if isinstance(answer, (RolledBackError, RuntimeInconsistency)) or not isinstance(answer, Exception):
            continue
        reason = f"ZooKeeper refused {type(op).__name__} {op.path}: {type(answer).__name__}"
        if isinstance(op, Check | Set) and op.path.startswith(_FENCES):
            raise NotLeader(reason)
        raise Conflict(reason)
    if any(isinstance(answer, Exception) for answer in answers):
        raise Conflict(f"ZooKeeper refused a multi: {answers!r}")
