"""A membership that ends gives back its election and its znode, whatever fails meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.protocol.states import KazooState

from coordination.errors import Unavailable
from sink.runtime.sinks.life import SinkState
from tests.unit.membership_kit import FakeCandidacy, World, running_world
from tests.waiting import eventually


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with running_world(tmp_path, monkeypatch) as world:
        yield world


def test_a_term_whose_end_fails_gives_up_the_election(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise Unavailable("/lake/orders: the JVM is gone")

    monkeypatch.setattr(world.table, "stop_heartbeats", fail)
    monkeypatch.setattr(FakeCandidacy, "is_won", True)
    membership = world.membership()
    membership.start()
    threading.Timer(0.1, membership.end).start()
    membership.campaign()
    membership.close(5.0)
    assert len(FakeCandidacy.resigned) == 1
    assert not world.keeper.members


def test_a_sink_that_joins_while_zookeeper_is_away_does_not_count_as_stuck(world: World) -> None:
    world.keeper.may_join.clear()
    membership = world.membership()
    joining = threading.Thread(target=membership.start)
    joining.start()
    assert world.keeper.is_joining.wait(30)
    time.sleep(0.3)
    assert time.monotonic() - membership.last_heartbeat() < 0.2
    world.keeper.may_join.set()
    joining.join()
    membership.close(5.0)


def test_a_sink_that_is_told_to_stop_while_it_joins_leaves_at_once(world: World) -> None:
    world.keeper.may_join.clear()
    sink = world.sink()
    taking_part = world.take_part(sink)
    assert world.keeper.is_joining.wait(30)
    with ThreadPoolExecutor(1) as pool:
        drain = pool.submit(sink.drain, 20.0)
        eventually("it is told to stop", sink._stop.is_set)
        world.keeper.may_join.set()
        assert drain.result(10.0)
    taking_part.join(10.0)
    assert sink.ended.is_set()
    assert not world.keeper.members


def test_a_drain_that_comes_after_the_end_returns_at_once_and_makes_no_member_again(world: World) -> None:
    membership = world.membership()
    membership.start()
    membership.session_changed(KazooState.LOST)
    membership.campaign()
    membership.close(5.0)
    began = time.monotonic()
    assert not membership.drain(20.0)
    assert time.monotonic() - began < 10.0
    assert not world.keeper.members


def test_a_sink_that_has_joined_drains_before_it_leaves(world: World) -> None:
    sink = world.sink()
    taking_part = world.take_part(sink)
    eventually("it takes part", lambda: sink.state is SinkState.JOINED)
    assert sink.drain(20.0)
    taking_part.join(10.0)
    assert not world.keeper.members
