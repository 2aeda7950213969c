"""A membership that ends gives back its election and its znode, whatever fails meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.errors import Unavailable
from tests.unit.membership_kit import FakeCandidacy, World, running_world


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
