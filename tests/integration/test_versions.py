"""This version reads and takes over the trees that the version before wrote, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from coordination.state import codec, tree
from coordination.state.messages import Complete
from coordination.state.model import Member
from coordination.state.tree import KeeperView, Op
from coordination.zookeeper.keeper import Keeper
from tests.unit.machine_kit import SOURCE, WORKERS, Environment, new_term
from tests.unit.test_versions import ADDED, LEGACY_IDS, SLICES, committed, environment_from, file_ids_of, recorded

pytestmark = pytest.mark.integration

ROOT = "/sink/orders"
PHASES = ("planned", "started", "prepared", "committed", "aborted", "settled")


class RealTree:
    """A keeper for `machine_kit` that reads and writes a real ZooKeeper."""

    latest = 0

    def __init__(self, client: KazooClient, name: str) -> None:
        self._client = client
        self._keeper = Keeper(client, ROOT, lambda: None)
        client.ensure_path(ROOT)
        for path, (data, version) in sorted(recorded(name)["nodes"].items()):
            client.create(f"{ROOT}/{path}", data.encode() if not version else b"")
            for _ in range(version):
                client.set(f"{ROOT}/{path}", data.encode())
        self._keeper.bootstrap("config")
        for worker in WORKERS:
            self._keeper.join(Member(worker, "host", 1, "1"))

    def view(self, _: int) -> KeeperView:
        return self._keeper.read()

    def write(self, ops: Any) -> None:
        self._keeper.write(tuple[Op, ...](ops))

    def contend(self, incarnation: str, _: int) -> str:
        path = f"{ROOT}/{tree.ELECTION}/x__lock__"
        candidate = self._client.create(path, incarnation.encode(), ephemeral=True, sequence=True)
        return str(candidate)[len(ROOT) + 1 :]

    def remove(self, path: str) -> None:
        self._client.delete(f"{ROOT}/{path}")


@pytest.fixture
def client(chroot: str) -> Iterator[KazooClient]:
    client = KazooClient(chroot)
    client.start()
    yield client
    client.stop()
    client.close()


def taken_over(client: KazooClient, phase: str) -> Environment:
    environment = environment_from(phase)
    environment.keeper = RealTree(client, phase)  # type: ignore[assignment]
    return environment


@pytest.mark.parametrize("phase", PHASES)
def test_a_tree_of_the_version_before_is_read_as_it_was_written(client: KazooClient, phase: str) -> None:
    view, expected = RealTree(client, phase).view(0), environment_from(phase).view
    assert (view.states, view.ledger, view.transactions) == (expected.states, expected.ledger, expected.transactions)


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "committed"])
def test_a_transaction_of_the_version_before_is_finished_or_re_formed(client: KazooClient, phase: str) -> None:
    environment = taken_over(client, phase)
    complete = committed(environment, new_term(environment))
    assert isinstance(complete, Complete)
    assert [result.slice for result in complete.checkpoint.results] == SLICES
    assert file_ids_of(complete) == LEGACY_IDS
    assert {source: state.end for source, state in environment.view.states.items()} == {SOURCE: 50, ADDED: 30}


def test_once_it_is_led_by_this_version_the_tree_is_of_its_format(client: KazooClient) -> None:
    environment = taken_over(client, "settled")
    new_term(environment).until("open a transaction")
    data, _ = client.get(f"{ROOT}/{tree.KEEPER}")
    assert data.startswith(b'{"format":%d,' % codec.FORMAT)
