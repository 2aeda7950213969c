"""The Keeper on a real ZooKeeper: readings follow the tree, and a refused multi says why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from kazoo.client import KazooClient

from coordination.errors import Conflict, Corrupt, NotLeader
from coordination.state import tree
from coordination.state.model import Member, PartitionState, TopicPartition
from coordination.state.tree import Check, Create, Set
from coordination.zookeeper.election import Candidacy
from coordination.zookeeper.keeper import Keeper

pytestmark = pytest.mark.integration

ROOT = "/sink/orders"
SECONDS = 30.0


class Side:
    """A client with its Keeper; `changed` is set whenever a reading may be stale."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address)
        self.client.start()
        self.changed = Event()
        self.keeper = Keeper(self.client, ROOT, self.changed.set)
        self.keeper.bootstrap("digest")

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture
def sides(chroot: str) -> Iterator[tuple[Side, Side]]:
    pair = Side(chroot), Side(chroot)
    yield pair
    for side in pair:
        side.close()


def member(name: str) -> Member:
    return Member(f"{name}:1", "host", 1, "version")


def names(side: Side) -> list[str]:
    return [joined.worker for joined in side.keeper.read().members]


def test_a_reading_follows_what_others_change(sides: tuple[Side, Side]) -> None:
    ours, theirs = sides
    assert names(ours) == []
    ours.changed.clear()
    theirs.keeper.join(member("w1"))
    assert ours.changed.wait(SECONDS)
    assert names(ours) == ["w1"]


def test_what_was_written_by_us_is_read_at_once_however_late_the_watch(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = sides
    monkeypatch.setattr(ours.keeper, "_watched", lambda _event: None)
    assert names(ours) == []
    ours.keeper.join(member("w1"))
    assert names(ours) == ["w1"]
    ours.keeper.leave("w1:1")
    assert names(ours) == []
    ours.keeper.write((Create(tree.HALT, b"not read here"),))
    with pytest.raises(Corrupt):
        ours.keeper.read()


@pytest.mark.parametrize("path", [tree.KEEPER, tree.EPOCH, tree.TRANSACTIONS, f"{tree.PARTITIONS}/t/000000"])
@pytest.mark.parametrize("content", ["older", "nothing", "rubbish"])
def test_what_no_worker_wrote_is_never_believed(sides: tuple[Side, Side], path: str, content: str) -> None:
    ours, theirs = sides
    state = PartitionState("id", 0, 5, 0)

    def advance() -> None:
        view = ours.keeper.read()
        assert view.info is not None
        shards = tree.shard_ops(view, {TopicPartition("t", 0): state})
        ledger = tree.ledger_op(view, replace(view.ledger, last=view.ledger.last + 1))
        ours.keeper.write((tree.epoch_op(view, view.epoch + 1, "w1:1"), tree.info_op(view, view.info), *shards, ledger))

    advance()
    older = theirs.client.get(f"{ROOT}/{path}")[0]
    advance()
    assert theirs.keeper.read() == ours.keeper.read()
    ours.changed.clear()
    theirs.client.set(f"{ROOT}/{path}", {"older": older, "nothing": b"", "rubbish": b"{"}[content])
    assert ours.changed.wait(SECONDS)
    with pytest.raises(Corrupt, match=rf"^{path}: .*\. Stop all workers"):
        ours.keeper.read()


class ChangedMeanwhile:
    """An answer that reaches its reader only after the tree has changed and the watch has fired."""

    def __init__(self, answer: Any, change: Any) -> None:
        self._answer = answer
        self._change = change

    def get(self, timeout: float) -> Any:
        value = self._answer.get(timeout=timeout)
        self._change()
        return value


def test_an_answer_that_is_older_than_its_fired_watch_is_never_kept(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = sides
    get_children = ours.client.get_children_async
    late_paths = [f"{ROOT}/{tree.WORKERS}"]

    def change() -> None:
        ours.changed.clear()
        theirs.keeper.join(member("w1"))
        assert ours.changed.wait(SECONDS)

    def get_children_late(path: str, watch: Any) -> Any:
        answer = get_children(path, watch=watch)
        return ChangedMeanwhile(answer, change) if path in late_paths and late_paths.pop() else answer

    monkeypatch.setattr(ours.client, "get_children_async", get_children_late)
    assert names(ours) == []
    assert names(ours) == ["w1"]


def test_a_write_of_an_older_epoch_is_refused_as_not_leader(sides: tuple[Side, Side]) -> None:
    ours, theirs = sides
    lock = Candidacy(ours.client, ROOT, "w1:1").campaign()
    assert lock is not None
    before = ours.keeper.read().epoch_version
    theirs.keeper.write((Set(tree.EPOCH, tree.epoch_data(1, "w2:1", before + 1), before),))
    with pytest.raises(NotLeader):
        ours.keeper.write((Check(lock, 0), Check(tree.EPOCH, before), Create(tree.HALT, b"{}")))
    assert ours.keeper.read().halt is None


def test_a_write_without_the_lock_is_refused_as_not_leader(sides: tuple[Side, Side]) -> None:
    ours, _ = sides
    candidacy = Candidacy(ours.client, ROOT, "w1:1")
    lock = candidacy.campaign()
    assert lock is not None
    candidacy.resign()
    with pytest.raises(NotLeader):
        ours.keeper.write((Check(lock, 0), Create(tree.HALT, b"{}")))


def test_a_write_on_an_older_version_is_a_conflict_without_effect(sides: tuple[Side, Side]) -> None:
    ours, _ = sides
    with pytest.raises(Conflict):
        ours.keeper.write((Create(tree.HALT, b"{}"), Set(tree.KEEPER, b"", 7)))
    assert ours.keeper.read().halt is None
