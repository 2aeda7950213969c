"""How the client of ZooKeeper waits for its sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from sink.clients.zookeeper.session import PollingHandler

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_socket_with_data_can_be_read_and_an_idle_one_cannot(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")
    assert PollingHandler().select([ours, theirs], [], [], 5.0) == ([ours], [], [])


def test_a_socket_with_room_can_be_written(pair: Pair) -> None:
    ours, _ = pair
    assert PollingHandler().select([], [ours], []) == ([], [ours], [])


def test_nothing_is_ready_after_the_timeout(pair: Pair) -> None:
    ours, _ = pair
    began = time.monotonic()
    assert PollingHandler().select([ours], [], [], 0.05) == ([], [], [])
    assert time.monotonic() - began >= 0.05


def test_a_timeout_that_is_over_waits_for_nothing(pair: Pair) -> None:
    ours, _ = pair
    assert PollingHandler().select([ours], [], [], -1.0) == ([], [], [])


def test_a_socket_whose_peer_has_gone_can_be_read_to_its_end(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    assert PollingHandler().select([ours], [], []) == ([ours], [], [])
