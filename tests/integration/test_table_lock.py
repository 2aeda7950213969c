"""The table lock against Hudi's own: whoever holds it, the other one waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.errors import Unavailable
from sink.config import Settings
from sink.hudi.lock import TableLocks, lock_path
from tests.integration.table_kit import Other, connected, hudis_lock, settings, try_lock

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LONG = 60


@pytest.fixture
def given(tmp_path: Path, chroot: str) -> Settings:
    return settings(tmp_path / "table", chroot)


@pytest.fixture
def client(chroot: str) -> Iterator[KazooClient]:
    with connected(chroot) as client:
        yield client


@pytest.fixture
def hudis(spark: SparkSession, given: Settings) -> Iterator[Callable[[], Any]]:
    """Hudi's ZooKeeper lock providers, as another writer of the table configures them."""
    made = []

    def make() -> Any:
        made.append(hudis_lock(spark, given))
        return made[-1]

    yield make
    for lock in made:
        lock.close()


def test_hudi_waits_while_we_hold_the_lock(spark: SparkSession, given: Settings, client: KazooClient, hudis) -> None:
    order: list[str] = []

    def theirs() -> None:
        if try_lock(spark, hudis(), LONG):
            order.append("theirs")

    waiter = threading.Thread(target=theirs)
    with TableLocks(client, given)():
        waiter.start()
        wait_for_contenders(client, lock_path(given), 2)
        order.append("ours")
    waiter.join()
    assert order == ["ours", "theirs"]


def test_we_wait_while_hudi_holds_the_lock(spark: SparkSession, given: Settings, client: KazooClient, hudis) -> None:
    theirs = hudis()
    assert try_lock(spark, theirs, LONG)
    with (
        pytest.raises(Unavailable, match="not free within 1 s, held by"),
        TableLocks(client, given, wait=1)(),
    ):
        pass
    order: list[str] = []
    entered = threading.Event()

    def ours() -> None:
        with TableLocks(client, given, wait=LONG)():
            order.append("ours")
            entered.set()

    waiter = threading.Thread(target=ours)
    waiter.start()
    wait_for_contenders(client, lock_path(given), 2)
    order.append("theirs")
    theirs.unlock()
    assert entered.wait(LONG)
    waiter.join()
    assert order == ["theirs", "ours"]


def test_a_wait_that_is_too_long_names_the_holder(given: Settings, client: KazooClient, chroot: str) -> None:
    refusal = pytest.raises(Unavailable)
    with connected(chroot) as other, TableLocks(other, given)(), refusal as refused:
        TableLocks(client, given, wait=0.5)().__enter__()
    assert f"held by sink orders, worker {given.worker_id}" in str(refused.value)
    assert client.get_children(lock_path(given)) == []


def test_the_lock_is_free_again_whatever_happened_inside(given: Settings, client: KazooClient) -> None:
    locks = TableLocks(client, given, wait=5)
    with pytest.raises(ZeroDivisionError), locks():
        raise ZeroDivisionError
    with locks():
        assert len(client.get_children(lock_path(given))) == 1
    assert client.get_children(lock_path(given)) == []


def test_a_holder_whose_session_ended_does_not_lock_the_table_for_ever(given: Settings, client, chroot: str) -> None:
    with connected(chroot) as other:
        holding = TableLocks(other, given)()
        holding.__enter__()
        assert len(client.get_children(lock_path(given))) == 1
    with TableLocks(client, given, wait=30)():
        pass


def test_a_worker_killed_in_hudis_table_services_locks_the_table_no_longer_than_its_session(
    given: Settings, client: KazooClient, chroot: str, tmp_path: Path
) -> None:
    other = Other(tmp_path / "table", chroot)
    try:
        assert other.ask("take_hudis_lock")
        assert len(client.get_children(lock_path(given))) == 1
    finally:
        other.kill_all()
    assert given.session_timeout_ms < 15_000
    with TableLocks(client, given, wait=30)():
        pass


def test_without_a_connection_nobody_waits(given: Settings, chroot: str) -> None:
    with connected(chroot) as client:
        locks = TableLocks(client, given)
    with pytest.raises(Unavailable, match="no connection to ZooKeeper"), locks():
        pass


def test_the_path_is_where_hudi_is_told_to_lock(tmp_path: Path) -> None:
    assert lock_path(settings(tmp_path / "a", "h:1")) == "/hudi/orders"
    own = {
        "hoodie__write__lock__zookeeper__base_path": "/locks/",
        "hoodie__write__lock__zookeeper__lock_key": "k",
    }
    assert lock_path(settings(tmp_path / "b", "h:1", **own)) == "/locks/k"


def wait_for_contenders(client: KazooClient, path: str, count: int) -> None:
    """Returns when so many are in the lock's queue; the znodes themselves tell."""
    enough = threading.Event()

    @client.ChildrenWatch(path)
    def watch(children: list[str]) -> bool:
        if len(children) >= count:
            enough.set()
        return not enough.is_set()

    assert enough.wait(LONG)
