"""The znode tree of a sink: its paths, its content, and the operations that write it.

Everything below `/sink/<sink name>`:

    keeper                                  uuid of this tree, digest of the fleet's configuration, Kafka cluster
    workers/<incarnation>                   ephemeral: a live worker
    election/                               kazoo Lock: contenders for coordinator
    epoch                                   raised by every election
    partitions/<topic>/<shard>              partition states, 256 to a znode
    transactions                            the ledger: what outlives a transaction
    transactions/<number>/plan/<incarnation>            which plan this is a part of
    transactions/<number>/plan/<incarnation>/<piece>    write tasks of one participant; uncounted without a header
    transactions/<number>/header            makes the transaction count; its version is the decision
    transactions/<number>/pieces/<incarnation>.<attempt>/<piece>  a write status that is too large for one znode
    transactions/<number>/status/<incarnation>          makes the write status count
    services/                               what the last run of table services did; kazoo Lock: contenders for them
    catalog                                 how far a catalogue follows the table
    audit                                   the answer of the last `sink audit`
    control                                 what operators ask for: pause, flush, switchover, drains
    halt                                    why the sink stopped itself
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from coordination.state import codec
from coordination.state import control as controls
from coordination.state.control import NOTHING_ASKED, Control
from coordination.state.failures import Halt
from coordination.state.model import (
    NO_TRANSACTION,
    Gap,
    Header,
    Member,
    PartitionState,
    Plan,
    TopicPartition,
    WriteStatus,
)

SHARD = 256
PIECE_BYTES = 256 * 1024
MULTI_BYTES = 512 * 1024
MULTI_OPS = 500
HISTORY = 100
"""Transactions that have ended, as the ledger keeps them: some 5 KB, written with every change of it."""

KEEPER = "keeper"
WORKERS = "workers"
ELECTION = "election"
EPOCH = "epoch"
PARTITIONS = "partitions"
TRANSACTIONS = "transactions"
HALT = "halt"
SERVICES = "services"
CATALOG = "catalog"
AUDIT = "audit"
CONTROL = "control"
SKELETON = (WORKERS, ELECTION, PARTITIONS)
RECORDS = (KEEPER, EPOCH, PARTITIONS, TRANSACTIONS, HALT, SERVICES, CATALOG, AUDIT, CONTROL)
"""All znodes but those that sessions own. The table rebuilds what the sink needs of them."""
REMEDY = "Stop all workers, drop what ZooKeeper records with `sink reset --forget --yes`, and start them again."


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


Op = Check | Create | Set | Delete


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int


Snapshot = Mapping[str, Node]
"""Every znode below the sink's root, by relative path."""


class NodeRead(Enum):
    """The parts that a znode can have, so that a reader asks for nothing else."""

    CONTENT = "content"
    CHILDREN = "children"
    BOTH = "both"


def node_read(path: str) -> NodeRead:
    parts = path.split("/")
    if path == TRANSACTIONS:
        return NodeRead.BOTH
    if path in (WORKERS, ELECTION, PARTITIONS) or (parts[0] == PARTITIONS and len(parts) == 2):
        return NodeRead.CHILDREN
    if parts[0] == TRANSACTIONS and parts[-1] != "header":
        if len(parts) == 4 and parts[2] == "plan":
            return NodeRead.BOTH
        depth = 4 if len(parts) > 2 and parts[2] == "status" else 5
        return NodeRead.CHILDREN if len(parts) < depth else NodeRead.CONTENT
    return NodeRead.CONTENT


def is_immutable(path: str) -> bool:
    """Whether the znode is created once and never set: it needs no watch."""
    parts = path.split("/")
    return parts[0] == TRANSACTIONS and len(parts) > 3


@dataclass(frozen=True, slots=True)
class KeeperInfo:
    uuid: str
    config: str
    cluster: str = ""
    """The Kafka cluster whose topics are recorded; empty until the log was read for the first time."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A transaction that has ended, as `sink status` shows it."""

    number: int
    batch: int
    outcome: str
    instant: str | None
    records: int
    reason: str
    times: Mapping[str, float]
    errors: int = 0
    """Bad records beside them, for the errors table."""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Ledger:
    """Numbers that outlive a transaction. `last` is the highest that ever counted: an open range of a batch above it
    belongs to a plan that never counted. `committed` is the newest checkpoint that was settled."""

    last: int = NO_TRANSACTION
    committed: int = NO_TRANSACTION
    attempts: Mapping[int, int] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    history: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction in the tree. `version` is the header's."""

    header: Header
    version: int
    plan: Plan
    statuses: Mapping[str, WriteStatus]


@dataclass(frozen=True, slots=True)
class KeeperView:
    """One immutable reading of the tree. A compare-and-set names its versions."""

    info: KeeperInfo | None
    info_version: int
    members: tuple[Member, ...]
    contenders: tuple[tuple[str, str], ...]
    """`(lock path, incarnation)` in the order of the election's queue."""
    epoch: int
    epoch_version: int
    states: Mapping[TopicPartition, PartitionState]
    shard_versions: Mapping[str, int]
    ledger: Ledger
    ledger_version: int
    transactions: tuple[Transaction, ...]
    incomplete_plan_paths: tuple[str, ...]
    """Paths of transactions without a header, deepest first: left over, of no meaning, to be deleted."""
    highest: int
    """The highest transaction number in sight, uncounted ones included."""
    halt: Halt | None
    topics: tuple[str, ...] = ()
    """Topics that have a znode, with shards below it or not yet."""

    is_complete: bool = True
    """Whether every znode is there that all other znodes rest on."""
    control: Control = NOTHING_ASKED
    control_version: int = -1

    @property
    def coordinator(self) -> str | None:
        return self.contenders[0][1] if self.contenders else None


def transaction_path(number: int) -> str:
    return f"{TRANSACTIONS}/{number:010d}"


def header_path(number: int) -> str:
    return f"{transaction_path(number)}/header"


def plan_path(number: int, incarnation: str) -> str:
    return f"{transaction_path(number)}/plan/{incarnation}"


def status_path(number: int, incarnation: str) -> str:
    return f"{transaction_path(number)}/status/{incarnation}"


def member_path(incarnation: str) -> str:
    return f"{WORKERS}/{incarnation}"


def shard_path(source: TopicPartition) -> str:
    return f"{PARTITIONS}/{source.topic}/{source.partition // SHARD:06d}"


def plan_digest(plan: Plan) -> str:
    """Names a plan by content, so that a header can never be completed with another plan's slices."""
    digest = hashlib.sha256()
    for incarnation in sorted(plan.tasks):
        digest.update(f"{incarnation} {codec.encode_tasks(plan.tasks[incarnation])}\n".encode())
    return digest.hexdigest()[:16]


def plan_ops(number: int, plan: Plan) -> Iterator[Op]:
    """Yields the operations that create a plan's znodes, parents first; without a header they mean nothing."""
    path, digest = transaction_path(number), plan_digest(plan).encode()
    yield Create(path)
    yield from (Create(f"{path}/{name}") for name in ("plan", "pieces", "status"))
    for incarnation in sorted(plan.tasks):
        yield Create(plan_path(number, incarnation), digest)
        data = codec.to_bytes({"tasks": codec.encode_tasks(plan.tasks[incarnation])}, compress_above=4096)
        yield from _pieces(plan_path(number, incarnation), data)


def status_ops(status: WriteStatus, attempt: int = 1) -> Iterator[Op]:
    """Yields the operations that create a write status; the last one makes it count. A further attempt has pieces of
    its own: those of an earlier one may exist, or still come.
    """
    path, data = status_path(status.number, status.incarnation), codec.encode_status(status)
    if len(data) <= PIECE_BYTES:
        yield Create(path, data)
        return
    status_name = f"{status.incarnation}.{attempt}"
    pieces = f"{transaction_path(status.number)}/pieces/{status_name}"
    yield Create(pieces)
    yield from _pieces(pieces, data)
    pointer = {"pieces": status_name, "digest": hashlib.sha256(data).hexdigest()}
    yield Create(path, codec.to_bytes(pointer))


def header_op(header: Header, version: int | None = None) -> Op:
    """Replaces the header of that version; without a version creates it."""
    path = header_path(header.number)
    if version is None:
        return Create(path, codec.encode_header(header))
    return _replaced(path, partial(codec.encode_header, header), version)


def _replaced(path: str, encode: Callable[[int], bytes], version: int) -> Set:
    """The content names its next version. ZooKeeper would take a negative version for any."""
    if version < 0:
        raise ValueError(f"{path} cannot be replaced: it was not there when it was read")
    return Set(path, encode(version + 1), version)


def shard_ops(view: KeeperView, changed: Mapping[TopicPartition, PartitionState]) -> Iterator[Op]:
    """Yields the operations that write the shards with `changed`, each whole, on top of the reading `view`."""
    states: dict[str, dict[int, PartitionState]] = {}
    touched = {shard_path(source) for source in changed}
    for source, state in {**view.states, **changed}.items():
        if (path := shard_path(source)) in touched:
            states.setdefault(path, {})[source.partition] = state
    topics = {f"{PARTITIONS}/{topic}" for topic in view.topics}
    for path, shard in sorted(states.items()):
        topic = path.rpartition("/")[0]
        if topic not in topics:
            topics.add(topic)
            yield Create(topic)
        version = view.shard_versions.get(path)
        if version is None:
            yield Create(path, codec.encode_states(shard))
        else:
            yield _replaced(path, partial(codec.encode_states, shard), version)


def ledger_op(view: KeeperView, ledger: Ledger) -> Op:
    document = {
        "last": ledger.last,
        "committed": ledger.committed,
        "attempts": {str(batch): n for batch, n in sorted(ledger.attempts.items())},
        "gaps": codec.encode_gaps(ledger.gaps),
        "history": [
            [s.number, s.batch, s.outcome, s.instant, s.records, s.reason, dict(s.times), s.errors, s.attempt]
            for s in ledger.history[-HISTORY:]
        ],
    }
    return _replaced(TRANSACTIONS, partial(codec.to_bytes, document, compress_above=4096), view.ledger_version)


def control_op(view: KeeperView, control: Control) -> Op:
    return _replaced(CONTROL, partial(controls.encode, control), view.control_version)


def epoch_op(view: KeeperView, epoch: int, incarnation: str) -> Op:
    return _replaced(EPOCH, partial(epoch_data, epoch, incarnation), view.epoch_version)


def epoch_data(epoch: int, incarnation: str, version: int = 0) -> bytes:
    return codec.to_bytes({"epoch": epoch, "incarnation": incarnation}, version)


def info_op(view: KeeperView, info: KeeperInfo) -> Op:
    return _replaced(KEEPER, partial(info_data, info), view.info_version)


def info_data(info: KeeperInfo, version: int = 0) -> bytes:
    return codec.to_bytes({"uuid": info.uuid, "config": info.config, "cluster": info.cluster}, version)


def halt_data(halt: Halt) -> bytes:
    return codec.to_bytes(
        {
            "kind": halt.kind.value,
            "reason": halt.reason,
            "topic": halt.topic,
            "partition": halt.partition,
            "offset": halt.offset,
            "at": halt.at,
        }
    )


def batched(ops: Iterable[Op], last: Iterable[Op]) -> tuple[tuple[Op, ...], ...]:
    """Splits operations into multis that stay far below ZooKeeper's limits; `last` stays together, in the final one."""
    final = tuple(last)
    groups: list[list[Op]] = [[]]
    size = 0
    for op in ops:
        weight = len(op.path) + len(getattr(op, "data", b"")) + 64
        if groups[-1] and (size + weight > MULTI_BYTES or len(groups[-1]) >= MULTI_OPS):
            groups.append([])
            size = 0
        groups[-1].append(op)
        size += weight
    if len(groups) == 1 and size + sum(len(getattr(op, "data", b"")) for op in final) <= MULTI_BYTES:
        return ((*groups[0], *final),)
    return (*(tuple(group) for group in groups), *([final] if final else []))


def _pieces(parent: str, data: bytes) -> Iterator[Op]:
    for index in range(max(1, -(-len(data) // PIECE_BYTES))):
        yield Create(f"{parent}/{index:04d}", data[index * PIECE_BYTES : (index + 1) * PIECE_BYTES])
