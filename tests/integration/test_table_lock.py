"""The sink's table lock and Hudi's own exclude each other: the one waits while the other is held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from pyspark.sql import SparkSession

from coordination.errors import Unavailable
from sink.config import Settings
from sink.hudi.lock import TableLocks
from tests.integration.table_kit import connected, hudi_lock_provider, table_settings, try_lock
from tests.unit.settings_kit import minimal_settings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LONG_SECONDS = 60


@pytest.fixture
def sink_settings(tmp_path: Path, chroot: str) -> Settings:
    return table_settings(tmp_path / "table", chroot)


@pytest.fixture
def client(chroot: str) -> Iterator[KazooClient]:
    with connected(chroot) as client:
        yield client


@pytest.fixture
def make_hudi_lock(spark: SparkSession, sink_settings: Settings) -> Iterator[Callable[[], Any]]:
    """Hudi's ZooKeeper lock providers, as another writer of the table configures them."""
    locks = []

    def make() -> Any:
        locks.append(hudi_lock_provider(spark, sink_settings))
        return locks[-1]

    yield make
    for lock in locks:
        lock.close()


def test_hudi_waits_while_we_hold_the_lock(
    spark: SparkSession, sink_settings: Settings, client: KazooClient, make_hudi_lock
) -> None:
    order: list[str] = []

    def take_hudi_lock() -> None:
        if try_lock(spark, make_hudi_lock(), LONG_SECONDS):
            order.append("theirs")

    waiter = threading.Thread(target=take_hudi_lock)
    with TableLocks(client, sink_settings.table.lock)("test"):
        waiter.start()
        wait_for_contenders(client, sink_settings.table.lock.path, 2)
        order.append("ours")
    waiter.join()
    assert order == ["ours", "theirs"]


def test_we_wait_while_hudi_holds_the_lock(
    spark: SparkSession, sink_settings: Settings, client: KazooClient, make_hudi_lock
) -> None:
    hudi_lock = make_hudi_lock()
    assert try_lock(spark, hudi_lock, LONG_SECONDS)
    with (
        pytest.raises(Unavailable, match="not free within 1 s, held by"),
        TableLocks(client, sink_settings.table.lock, wait=1)("test"),
    ):
        pass
    order: list[str] = []
    entered = threading.Event()

    def take_our_lock() -> None:
        with TableLocks(client, sink_settings.table.lock, wait=LONG_SECONDS)("test"):
            order.append("ours")
            entered.set()

    waiter = threading.Thread(target=take_our_lock)
    waiter.start()
    wait_for_contenders(client, sink_settings.table.lock.path, 2)
    order.append("theirs")
    hudi_lock.unlock()
    assert entered.wait(LONG_SECONDS)
    waiter.join()
    assert order == ["theirs", "ours"]


def test_a_wait_that_is_too_long_names_the_holder(sink_settings: Settings, client: KazooClient, chroot: str) -> None:
    refusal = pytest.raises(Unavailable)
    with (
        connected(chroot) as other_client,
        TableLocks(other_client, sink_settings.table.lock)("test"),
        refusal as refused,
    ):
        TableLocks(client, sink_settings.table.lock, wait=0.5)("test").__enter__()
    assert f"held by sink orders, worker {sink_settings.worker_id}" in str(refused.value)
    assert client.get_children(sink_settings.table.lock.path) == []


def test_the_lock_is_free_again_whatever_happened_inside(sink_settings: Settings, client: KazooClient) -> None:
    locks = TableLocks(client, sink_settings.table.lock, wait=5)
    with pytest.raises(ZeroDivisionError), locks("test"):
        raise ZeroDivisionError
    with locks("test"):
        assert len(client.get_children(sink_settings.table.lock.path)) == 1
    assert client.get_children(sink_settings.table.lock.path) == []


def test_a_holder_whose_session_ended_does_not_lock_the_table_for_ever(
    sink_settings: Settings, client, chroot: str
) -> None:
    with connected(chroot) as other_client:
        lock = TableLocks(other_client, sink_settings.table.lock)("test")
        lock.__enter__()
        assert len(client.get_children(sink_settings.table.lock.path)) == 1
    with TableLocks(client, sink_settings.table.lock, wait=30)("test"):
        pass


def test_a_holder_is_told_that_its_lock_is_lost_when_the_znode_or_the_session_is_gone(
    sink_settings: Settings, client: KazooClient, chroot: str
) -> None:
    locks = TableLocks(client, sink_settings.table.lock)
    with locks("test") as require_held:
        require_held()
        [znode] = client.get_children(locks.path)
        client.delete(f"{locks.path}/{znode}")
        with locks("the next holder") as require_held_by_next:
            require_held_by_next()
            with pytest.raises(Unavailable, match=f"{locks.path}: NoNodeError: this process no longer holds it"):
                require_held()
    with connected(chroot) as other_client:
        lost = TableLocks(other_client, sink_settings.table.lock)("test")
        require_held = lost.__enter__()
    with pytest.raises(Unavailable, match="no longer holds it"):
        require_held()


def test_how_long_it_was_held_is_told_with_the_purpose(sink_settings: Settings, client: KazooClient) -> None:
    held: list[tuple[str, float]] = []
    locks = TableLocks(client, sink_settings.table.lock, note_held=lambda *hold: held.append(hold))
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), locks("archiving"):
        raise ZeroDivisionError
    [(purpose, seconds)] = held
    assert purpose == "archiving"
    assert 0 < seconds <= time.monotonic() - began


def test_a_lock_that_zookeeper_refuses_names_the_right_that_is_missing(
    sink_settings: Settings, client: KazooClient, chroot: str
) -> None:
    owner = KazooClient(chroot, auth_data=[("digest", "other:secret")])
    owner.start()
    owner.ensure_path(sink_settings.table.lock.path)
    owner.set_acls(sink_settings.table.lock.path, [make_digest_acl("other", "secret", all=True)])
    with pytest.raises(Unavailable, match="NoAuthError: ZooKeeper refuses it to the sink's user"):
        TableLocks(client, sink_settings.table.lock)("test").__enter__()
    owner.delete(sink_settings.table.lock.path)
    owner.stop()
    owner.close()


def test_without_a_connection_nobody_waits(sink_settings: Settings, chroot: str) -> None:
    with connected(chroot) as client:
        locks = TableLocks(client, sink_settings.table.lock)
    with pytest.raises(Unavailable, match="no connection to ZooKeeper"), locks("test"):
        pass


def test_the_path_is_where_hudi_is_told_to_lock(tmp_path: Path) -> None:
    assert minimal_settings(tmp_path).table.lock.path == "/hudi/orders"
    lock_settings = {
        "hoodie__write__lock__zookeeper__base_path": "/locks/",
        "hoodie__write__lock__zookeeper__lock_key": "k",
    }
    assert table_settings(tmp_path / "b", "h:1", **lock_settings).table.lock.path == "/locks/k"


def wait_for_contenders(client: KazooClient, path: str, count: int) -> None:
    """Returns when the lock's queue has `count` znodes."""
    reached = threading.Event()

    @client.ChildrenWatch(path)
    def watch(children: list[str]) -> bool:
        if len(children) >= count:
            reached.set()
        return not reached.is_set()

    assert reached.wait(LONG_SECONDS)
