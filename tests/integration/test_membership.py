"""Joining a fleet on a real ZooKeeper."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from coordination.errors import ConfigError, OtherVersion, Unavailable
from coordination.state.model import Member
from coordination.state.versions import PROTOCOL
from coordination.zookeeper.keeper import Keeper
from sink.runtime.sinks.membership import Membership, new_member
from sink.runtime.sinks.resources import Resources
from sink.runtime.turns.pools import SerialExecutor, Ticker, new_pool
from sink.runtime.watches.notes import Observer
from sink.telemetry.metrics import ProcessMetrics
from tests.chaos.proxy import Mode, Proxy
from tests.integration.table_kit import table_settings
from tests.unit.membership_kit import turns_of
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def resources(chroot: str, proxy: Proxy, tmp_path: Path):
    """All that joining needs: it touches neither the table nor Spark before it finds that the fleet agrees."""
    sink_settings = table_settings(tmp_path / "table", chroot)
    client = KazooClient(f"{proxy.address}/{chroot.partition('/')[2]}")
    client.start()
    keeper = Keeper(client, "/sink/orders", lambda: None)
    absent = cast(Any, None)
    table = cast(Any, SimpleNamespace(metadata_services=None, metadata_interval=1, share_lock=lambda _: None))
    ticker = Ticker()
    ticker.start()
    with new_pool() as pool:
        serial, observer = SerialExecutor(pool), Observer(sink_settings, ProcessMetrics().sink("orders"))
        yield Resources(
            settings=sink_settings,
            client=client,
            keeper=keeper,
            table=table,
            errors=absent,
            engine=absent,
            log=absent,
            coordinating=serial,
            participating=serial,
            turns=turns_of(pool, ticker),
            observer=observer,
            locks=(),
        )
    ticker.stop()
    client.stop()
    client.close()


@pytest.fixture
def proxy(chroot: str) -> Iterator[Proxy]:
    """The way to ZooKeeper."""
    host, _, _ = chroot.partition("/")
    proxy = Proxy(host)
    yield proxy
    proxy.close()


def test_of_two_that_join_at_once_with_different_settings_the_later_leaves(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, join = resources.keeper, resources.keeper.join

    def overtaken(member: Member) -> None:
        join(Member("rival:1", "host", 1, "1", config="another"))
        join(member)

    monkeypatch.setattr(keeper, "join", overtaken)
    membership = Membership(resources, new_member(resources.settings, "host", 1, "1"))
    with pytest.raises(ConfigError, match="rival already run under this name with another configuration"):
        membership.start()
    assert [member.incarnation for member in keeper.read().members] == ["rival:1"]


@pytest.mark.parametrize(("version", "release"), [(PROTOCOL - 1, "older"), (PROTOCOL + 1, "newer")])
def test_a_worker_refuses_to_join_one_of_another_version(resources: Resources, version: int, release: str) -> None:
    resources.client.ensure_path("/sink/orders/workers")
    resources.client.create("/sink/orders/workers/w0:1", b'{"format":%d}' % version, ephemeral=True)
    sentence = (
        f"/sink/orders/workers/w0:1: protocol version {version}. This release reads version {PROTOCOL}. Use the"
        f" {release} release"
    )
    with pytest.raises(OtherVersion, match=re.escape(sentence)):
        Membership(resources, new_member(resources.settings, "host", 1, "1")).start()
    assert resources.client.get_children("/sink/orders/workers") == ["w0:1"]
    assert resources.client.get_children("/sink/orders") == ["workers"]


def test_who_cannot_look_at_the_fleet_does_not_stay_in_it(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, read = resources.keeper, resources.keeper.read
    looks = iter((read, _away))
    monkeypatch.setattr(keeper, "read", lambda: next(looks)())
    with pytest.raises(Unavailable):
        Membership(resources, new_member(resources.settings, "host", 1, "1")).start()
    assert read().members == ()


def _away() -> None:
    raise Unavailable("ZooKeeper is away")


def test_a_lock_that_could_not_be_given_up_at_once_is_given_up_later(
    resources: Resources, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its own contender would stand before it and all workers, for as long as the session lives."""
    elected: list[str] = []

    def coordinate(_: Membership, lock_path: str) -> None:
        elected.append(lock_path)
        if len(elected) == 1:
            proxy.set(Mode.CUT)
            eventually("the connection is away", lambda: not resources.client.connected)

    monkeypatch.setattr(Membership, "_coordinate", coordinate)
    membership = Membership(resources, new_member(resources.settings, "host", 1, "1"))
    membership.start()
    standing = threading.Thread(target=membership.campaign, daemon=True)
    standing.start()
    eventually("the first term has ended", lambda: elected and not resources.client.connected)
    proxy.set(Mode.OPEN)
    eventually("a second term", lambda: len(elected) > 1)
    membership.close(5.0)
    standing.join(5.0)
    assert not standing.is_alive()
