"""The simulation's ZooKeeper is like a real one: the same random commands end alike on both and leave the same tree.

The test compares what the protocol sees: how each command ended, and the tree that a reader on another connection
comes to, through the real `Keeper` with its caches and watches. It replaces names that each side makes up for itself
(the tree's uuid, the contenders' znodes) by aliases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient

from coordination.errors import SinkError
from coordination.state import codec, tree
from coordination.state.model import Member
from coordination.state.reading import ParticipantViewReader, SnapshotReader, TreeReader
from coordination.state.tree import Check, Create, Delete, Node, Op, Set
from coordination.zookeeper.keeper import Keeper, result_of
from tests.simulation.keeper import SimKeeper
from tests.waiting import eventually

pytestmark = pytest.mark.integration

ROOT = "/sink/orders"
NAMES = ("w1", "w2", "w3")
COMMANDS = 300
WHOLE_TREE = TreeReader()
PARTICIPANT_VIEWS = tuple(map(ParticipantViewReader, ("w1", "w2:1")))
PATHS = (
    tree.EPOCH,
    tree.HALT,
    tree.TRANSACTIONS,
    f"{tree.PARTITIONS}/t",
    f"{tree.PARTITIONS}/t/000000",
    "transactions/1",
    "transactions/1/header",
    "transactions/1/plan",
    "transactions/1/plan/w1",
    "transactions/1/plan/w1/0",
    "transactions/1/status",
    "transactions/1/status/w1",
)


class Tree(Protocol):
    """The tree that commands act on. A session is named after its worker; `contend` returns the contender's znode."""

    def open(self, worker: str) -> None: ...

    def end(self, worker: str) -> None: ...

    def join(self, worker: str, member: Member) -> None: ...

    def contend(self, worker: str) -> str: ...

    def resign(self, path: str) -> None: ...

    def write(self, worker: str, ops: tuple[Op, ...]) -> None: ...

    def nodes(self, reader: SnapshotReader[Any]) -> Mapping[str, Node]: ...


class Reading(Keeper):
    def nodes(self, reader: SnapshotReader[Any]) -> Mapping[str, Node]:
        return result_of(self._snapshot(reader))


class Real:
    def __init__(self, address: str) -> None:
        self._address = address
        self._clients: dict[str, KazooClient] = {}
        self._keepers: dict[str, Keeper] = {}
        self.open("reader")
        self._reader = Reading(self._clients["reader"], ROOT, lambda: None)
        self._reader.bootstrap("digest")

    def open(self, worker: str) -> None:
        client = self._clients[worker] = KazooClient(self._address)
        client.start()
        self._keepers[worker] = Keeper(client, ROOT, lambda: None)

    def end(self, worker: str) -> None:
        client = self._clients.pop(worker)
        client.stop()
        client.close()

    def join(self, worker: str, member: Member) -> None:
        self._keepers[worker].join(member)

    def contend(self, worker: str) -> str:
        name = f"{ROOT}/{tree.ELECTION}/{worker}__lock__"
        path = self._clients[worker].create(name, worker.encode(), ephemeral=True, sequence=True)
        return str(path).removeprefix(f"{ROOT}/")

    def resign(self, path: str) -> None:
        self._clients["reader"].delete(f"{ROOT}/{path}")

    def write(self, worker: str, ops: tuple[Op, ...]) -> None:
        self._keepers[worker].write(ops)

    def nodes(self, reader: SnapshotReader[Any]) -> Mapping[str, Node]:
        return self._reader.nodes(reader)

    def close(self) -> None:
        for worker in tuple(self._clients):
            self.end(worker)


class Simulated:
    def __init__(self) -> None:
        self._keeper = SimKeeper(lambda: None)
        self._keeper.bootstrap("digest")
        self._sessions: dict[str, int] = {}

    def open(self, worker: str) -> None:
        self._sessions[worker] = self._keeper.open_session()

    def end(self, worker: str) -> None:
        self._keeper.expire(self._sessions.pop(worker))

    def join(self, worker: str, member: Member) -> None:
        assert self._keeper.join(member, self._sessions[worker])

    def contend(self, worker: str) -> str:
        path = self._keeper.contend(worker, self._sessions[worker])
        assert path is not None
        return path

    def resign(self, path: str) -> None:
        self._keeper.remove(path)

    def write(self, worker: str, ops: tuple[Op, ...]) -> None:
        assert self._sessions[worker] in self._keeper.alive
        self._keeper.write(ops)

    def nodes(self, reader: SnapshotReader[Any]) -> Mapping[str, Node]:
        latest = self._keeper.latest
        snapshot, began, ended = self._keeper.torn_snapshot(Random(0), latest, reader)
        assert began == ended == latest
        assert snapshot == self._keeper.snapshot(latest) or not isinstance(reader, TreeReader)
        return snapshot


class Side:
    """One tree, and the paths of its contenders by the aliases that both sides use."""

    def __init__(self, store: Tree) -> None:
        self.store = store
        self.contenders: dict[str, str] = {}

    def perform(self, rng: Random, opened: frozenset[str], tick: int) -> str:
        """Runs the command that `rng` draws; returns it in words, with its outcome. `opened` are the open sessions."""
        worker = rng.choice(NAMES)
        if worker not in opened:
            self.store.open(worker)
            return f"open {worker}"
        match rng.choice(("write",) * 12 + ("join", "contend", "resign", "end")):
            case "end":
                self.store.end(worker)
                return f"end {worker}"
            case "join":
                self.store.join(worker, Member(f"{worker}:1", "host", tick, "1"))
                return f"join {worker}"
            case "contend":
                self.contenders[f"{tree.ELECTION}/{tick}"] = self.store.contend(worker)
                return f"contend {worker}"
            case "resign":
                alias = rng.choice(sorted(self.contenders) or [""])
                if self.contenders.get(alias) in self.store.nodes(WHOLE_TREE):
                    self.store.resign(self.contenders[alias])
                return f"resign {alias}"
        ops = tuple(_draw(rng, path, tick) for path in rng.sample(self._paths(), rng.randint(1, 4)))
        real = tuple(replace(op, path=self.contenders.get(op.path, op.path)) for op in ops)
        try:
            self.store.write(worker, real)
        except SinkError as error:
            return f"{ops}: {type(error).__name__}"
        return f"{ops}: done"

    def tree(self) -> dict[str, Node]:
        """Returns the nodes by path; a path in a participant's view begins with its owner."""
        participant_nodes = {
            f"{reader.incarnation}'s {path}": node
            for reader in PARTICIPANT_VIEWS
            for path, node in self.store.nodes(reader).items()
        }
        aliases = {path: alias for alias, path in self.contenders.items()}
        nodes = {aliases.get(path, path): node for path, node in self.store.nodes(WHOLE_TREE).items()}
        uuid = codec.from_bytes(nodes[tree.KEEPER].data, tree.KEEPER, lambda info: info["uuid"])
        data = nodes[tree.KEEPER].data.replace(uuid.encode(), b"uuid")
        return {**participant_nodes, **nodes, tree.KEEPER: replace(nodes[tree.KEEPER], data=data)}

    def _paths(self) -> list[str]:
        return [*PATHS, *list(self.contenders)[-2:]]


def _draw(rng: Random, path: str, tick: int) -> Op:
    version = rng.choice((-1, 0, 0, 1, 2))
    content = str(tick).encode()
    if path.startswith(tree.ELECTION):
        return Check(path, version)
    # What is never set is not watched.
    change = Delete(path) if tree.is_immutable(path) else Set(path, content, version)
    return rng.choice((Create(path, content),) * 3 + (change, Check(path, version), Delete(path)))


@pytest.fixture
def sides(chroot: str) -> Iterator[tuple[Side, Side]]:
    real = Real(chroot)
    yield Side(real), Side(Simulated())
    real.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_commands_end_alike_and_leave_the_same_tree(sides: tuple[Side, Side], seed: int) -> None:
    real, simulated = sides
    draws = Random(seed)
    opened: frozenset[str] = frozenset()
    ends: list[str] = []
    for tick in range(COMMANDS):
        command = draws.getrandbits(64)
        outcomes = [side.perform(Random(command), opened, tick) for side in (real, simulated)]
        assert outcomes[0] == outcomes[1], ends[-3:]
        ends.append(outcomes[0])
        opened = {"open": opened | {outcomes[0][5:]}, "end ": opened - {outcomes[0][4:]}}.get(outcomes[0][:4], opened)
        expected = simulated.tree()
        eventually(f"the same tree after {outcomes[0]}", lambda expected=expected: real.tree() == expected, 30)
    for often in ("done", "Conflict", "NotLeader"):
        assert sum(end.endswith(often) for end in ends) > COMMANDS / 50, f"too little ended with {often}: {ends}"
