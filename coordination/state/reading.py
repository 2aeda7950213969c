"""Reads a copy of the znode tree: all of it for a coordinator, or one participant's share.

A reader says what to ask ZooKeeper for, and makes an immutable view of the answers. A participant's share costs the
same in a fleet of any size: it is its own member znode, the headers, and its own part of each plan. A reader raises
`Corrupt` with the znode's path for content that it does not understand, or that no worker wrote; it never takes such a
znode for absent.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from coordination.errors import Corrupt, in_sentences
from coordination.state import codec, tree
from coordination.state import control as controls
from coordination.state.control import Control
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import (
    NO_TRANSACTION,
    Header,
    Member,
    PartitionState,
    Plan,
    TopicPartition,
    WriteStatus,
    WriteTask,
)
from coordination.state.require import require_int, require_seconds, require_str, require_times
from coordination.state.tree import (
    CONTROL,
    ELECTION,
    EPOCH,
    HALT,
    KEEPER,
    PARTITIONS,
    REMEDY,
    SKELETON,
    TRANSACTIONS,
    WORKERS,
    KeeperInfo,
    KeeperView,
    Ledger,
    Node,
    NodeRead,
    Snapshot,
    Summary,
    Transaction,
)

_NEW = Node(b"", 0)
"""The ledger's znode before its first plan."""

T = TypeVar("T")
Decode = Callable[[bytes, str, int], T]
Decoded = Callable[[str, Callable[[bytes, str, int], Any]], Any]


class SnapshotReader(ABC, Generic[T]):
    """Decodes snapshots, and decodes again only the znodes that changed since the last one."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Node, Any]] = {}

    def node_read(self, path: str) -> NodeRead | None:
        """Returns the kind of request for that path; None: no request."""
        return tree.node_read(path)

    def names(self, path: str) -> tuple[str, ...] | None:  # noqa: ARG002 - a subclass uses it
        """Returns the only children of interest; None: all, which ZooKeeper lists."""
        return None

    def read(self, snapshot: Snapshot) -> T:
        decoded_nodes: dict[str, tuple[Node, Any]] = {}

        def decoded(path: str, decode: Decode[T]) -> T:
            node = snapshot[path]
            cached = self._seen.get(path)
            value = cached[1] if cached is not None and cached[0] == node else decode(node.data, path, node.version)
            decoded_nodes[path] = (node, value)
            return cast(T, value)

        try:
            view = self.build(snapshot, decoded)
        except Corrupt as error:
            raise Corrupt(in_sentences(str(error), REMEDY)) from error
        self._seen = decoded_nodes
        return view

    @abstractmethod
    def build(self, snapshot: Snapshot, decoded: Decoded) -> T:
        """Makes the view. `decoded(path, decode)` is the value of a znode, which is decoded once for each version."""


class TreeReader(SnapshotReader[KeeperView]):
    def node_read(self, path: str) -> NodeRead | None:
        return None if path in (tree.SERVICES, tree.CATALOG, tree.AUDIT) else tree.node_read(path)

    def build(self, snapshot: Snapshot, decoded: Decoded) -> KeeperView:
        # First: it refuses a tree of another version, the rest of which may be anything.
        info = decoded(KEEPER, _decode_info) if KEEPER in snapshot else None
        children = _children(snapshot)
        states: dict[TopicPartition, PartitionState] = {}
        shards: dict[str, int] = {}
        for topic in children.get(PARTITIONS, ()):
            for shard in children.get(f"{PARTITIONS}/{topic}", ()):
                path = f"{PARTITIONS}/{topic}/{shard}"
                shards[path] = snapshot[path].version
                for partition, state in decoded(path, codec.decode_states).items():
                    states[TopicPartition(topic, partition)] = state
        ledger = snapshot.get(TRANSACTIONS, _NEW)
        if shards and ledger == _NEW:
            # It alone had the gaps that no commit carries yet. A new one would lose them.
            raise Corrupt(f"{TRANSACTIONS}: has no ledger, but there are partition states that were written with one")
        numbers = sorted(children.get(TRANSACTIONS, ()))
        if invalid_names := [name for name in numbers if not name.isdecimal()]:
            raise Corrupt(f"{TRANSACTIONS}/{invalid_names[0]} is not a transaction")
        open_names = [n for n in numbers if f"{TRANSACTIONS}/{n}/header" in snapshot]
        control = _control(snapshot, decoded)
        members = (decoded(f"{WORKERS}/{name}", _decode_member) for name in children.get(WORKERS, ()))
        contenders = [f"{ELECTION}/{name}" for name in sorted(children.get(ELECTION, ()), key=_sequence)]
        return KeeperView(
            info=info,
            info_version=_version(snapshot, KEEPER),
            members=tuple(sorted(map(control.with_drain_state, members))),
            contenders=tuple((path, snapshot[path].data.decode(errors="replace")) for path in contenders),
            epoch=decoded(EPOCH, _decode_epoch) if EPOCH in snapshot else 0,
            epoch_version=_version(snapshot, EPOCH),
            states=states,
            topics=tuple(sorted(children.get(PARTITIONS, ()))),
            is_complete=all(name in snapshot for name in (KEEPER, EPOCH, TRANSACTIONS, CONTROL, *SKELETON)),
            shard_versions=shards,
            ledger=Ledger() if ledger == _NEW else decoded(TRANSACTIONS, _decode_ledger),
            ledger_version=_version(snapshot, TRANSACTIONS),
            transactions=tuple(_transaction(snapshot, children, n, decoded) for n in open_names),
            incomplete_plan_paths=tuple(
                path for n in numbers if n not in open_names for path in _deepest_first(children, f"{TRANSACTIONS}/{n}")
            ),
            highest=int(numbers[-1]) if numbers else NO_TRANSACTION,
            halt=decoded(HALT, _decode_halt) if HALT in snapshot else None,
            control=control,
            control_version=_version(snapshot, CONTROL),
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """One participant's part of an open transaction."""

    header: Header
    version: int
    """The header's."""
    tasks: tuple[WriteTask, ...] | None
    """None: the plan that was read is not the one that the header names."""


@dataclass(frozen=True, slots=True)
class ParticipantView:
    """One participant's share of a reading of the tree."""

    member: bool
    """Whether its own znode is there."""
    assignments: tuple[Assignment, ...]
    """One for each open transaction, in order."""
    halted: bool
    paused: bool = False
    asked_to_drain: bool = False
    """Whether an operator wants this incarnation to leave."""


class ParticipantViewReader(SnapshotReader[ParticipantView]):
    def __init__(self, incarnation: str) -> None:
        super().__init__()
        self.incarnation = incarnation
        self._member = tree.member_path(incarnation)

    def node_read(self, path: str) -> NodeRead | None:
        match path.split("/"):
            case [tree.TRANSACTIONS]:
                return NodeRead.CHILDREN  # not the ledger, which changes with every transaction
            case [tree.WORKERS | tree.HALT | tree.TRANSACTIONS | tree.CONTROL, *_]:
                return tree.node_read(path)
        return None

    def names(self, path: str) -> tuple[str, ...] | None:
        match path.split("/"):
            case [tree.WORKERS] | [tree.TRANSACTIONS, _, "plan"]:
                return (self.incarnation,)
            case [tree.TRANSACTIONS, _, "pieces" | "status"]:
                return ()
        return None

    def build(self, snapshot: Snapshot, decoded: Decoded) -> ParticipantView:
        ends = "/header"
        headers = sorted(path for path in snapshot if path.startswith(f"{TRANSACTIONS}/") and path.endswith(ends))
        control = _control(snapshot, decoded)
        return ParticipantView(
            self._member in snapshot,
            tuple(self._assignment(snapshot, decoded, path.removesuffix(ends)) for path in headers),
            HALT in snapshot,
            control.paused is not None,
            self.incarnation in control.drains,
        )

    def _assignment(self, snapshot: Snapshot, decoded: Decoded, transaction_path: str) -> Assignment:
        path, plan = f"{transaction_path}/header", f"{transaction_path}/plan/{self.incarnation}"
        header: Header = decoded(path, codec.decode_header)
        tasks: tuple[WriteTask, ...] | None = ()
        if (part := snapshot.get(plan)) is not None:
            pieces = sorted(path for path in snapshot if path.startswith(f"{plan}/"))
            is_current = part.data.decode(errors="replace") == header.plan_digest
            tasks = _tasks(snapshot, plan, pieces, decoded) if is_current else None
        return Assignment(header, snapshot[path].version, tasks)


def _sequence(name: str) -> str:
    """Returns the ten digits that ZooKeeper has appended to the name of a sequential znode."""
    return name[-10:]


def _version(snapshot: Snapshot, path: str) -> int:
    """Returns the version of a znode, -1 if it is absent: then it is created, and never set with that version."""
    return snapshot[path].version if path in snapshot else -1


def _control(snapshot: Snapshot, decoded: Decoded) -> Control:
    """Returns the requests of operators. Without the znode there can be none: the tree is still being created."""
    return cast(Control, decoded(CONTROL, controls.decode)) if CONTROL in snapshot else Control()


def _transaction(snapshot: Snapshot, children: Mapping[str, list[str]], name: str, decoded: Decoded) -> Transaction:
    transaction_path = f"{TRANSACTIONS}/{name}"
    header: Header = decoded(f"{transaction_path}/header", codec.decode_header)
    tasks: dict[str, tuple[WriteTask, ...]] = {}
    for incarnation in children.get(f"{transaction_path}/plan", ()):
        plan = f"{transaction_path}/plan/{incarnation}"
        pieces = sorted(f"{plan}/{piece}" for piece in children.get(plan, ()))
        tasks[incarnation] = _tasks(snapshot, plan, pieces, decoded)
    statuses: dict[str, WriteStatus] = {}
    for incarnation in children.get(f"{transaction_path}/status", ()):
        path = f"{transaction_path}/status/{incarnation}"
        statuses[incarnation] = decoded(path, partial(_status, snapshot, children))
    return Transaction(header, snapshot[f"{transaction_path}/header"].version, Plan(tasks), statuses)


def _tasks(snapshot: Snapshot, origin: str, pieces: Sequence[str], decoded: Decoded) -> tuple[WriteTask, ...]:
    if len(pieces) == 1:
        tasks: tuple[WriteTask, ...] = decoded(pieces[0], _decode_plan)
        return tasks
    return _decode_plan(b"".join(snapshot[piece].data for piece in pieces), origin, 0)


def _status(
    snapshot: Snapshot, children: Mapping[str, list[str]], data: bytes, origin: str, version: int
) -> WriteStatus:
    pointer = codec.from_bytes(data, origin, lambda d: (d["pieces"], d["digest"]) if "pieces" in d else None, version)
    if pointer is not None:
        parent = f"{origin.partition('/status/')[0]}/pieces/{pointer[0]}"
        data = b"".join(snapshot[f"{parent}/{p}"].data for p in sorted(children.get(parent, ())))
        if hashlib.sha256(data).hexdigest() != pointer[1]:
            raise Corrupt(f"{origin}: the pieces below {parent} do not make up the status that was written")
    return codec.decode_status(data, origin)


def _children(snapshot: Snapshot) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for path in snapshot:
        parent, _, name = path.rpartition("/")
        children.setdefault(parent, []).append(name)
    return children


def _deepest_first(children: Mapping[str, list[str]], path: str) -> Iterator[str]:
    for name in children.get(path, ()):
        yield from _deepest_first(children, f"{path}/{name}")
    yield path


def _decode_member(data: bytes, origin: str, _version: int) -> Member:
    """Decodes a member znode. Its worker alone writes it, so that it needs no version."""
    return codec.decode_member(data, origin)


def _decode_info(data: bytes, origin: str, version: int) -> KeeperInfo:
    def build(d: Any) -> KeeperInfo:
        return KeeperInfo(require_str(d["uuid"]), require_str(d["config"]), require_str(d["cluster"]))

    return codec.from_bytes(data, origin, build, version)


def _decode_plan(data: bytes, origin: str, version: int) -> tuple[WriteTask, ...]:
    return codec.from_bytes(data, origin, lambda d: codec.decode_tasks(d["tasks"]), version)


def _decode_epoch(data: bytes, origin: str, version: int) -> int:
    return codec.from_bytes(data, origin, lambda d: require_int(d["epoch"]), version)


def _decode_halt(data: bytes, origin: str, version: int) -> Halt:
    def build(d: Any) -> Halt:
        topic, partition, offset = d["topic"], d["partition"], d["offset"]
        return Halt(
            HaltKind(d["kind"]),
            require_str(d["reason"]),
            None if topic is None else require_str(topic),
            None if partition is None else require_int(partition),
            None if offset is None else require_int(offset),
            require_seconds(d["at"]),
        )

    return codec.from_bytes(data, origin, build, version)


def _decode_ledger(data: bytes, origin: str, version: int) -> Ledger:
    return codec.from_bytes(
        data,
        origin,
        lambda d: Ledger(
            require_int(d["last"]),
            require_int(d["committed"]),
            {int(batch): require_int(n) for batch, n in d["attempts"].items()},
            codec.decode_gaps(d["gaps"]),
            tuple(_decode_summary(*row) for row in d["history"]),
        ),
        version,
    )


def _decode_summary(
    number: Any,
    batch: Any,
    outcome: Any,
    instant: Any,
    records: Any,
    reason: Any,
    times: Any,
    errors: Any,
    attempt: Any,
) -> Summary:
    return Summary(
        require_int(number),
        require_int(batch),
        require_str(outcome),
        None if instant is None else require_str(instant),
        require_int(records),
        require_str(reason),
        require_times(times),
        require_int(errors),
        require_int(attempt),
    )
