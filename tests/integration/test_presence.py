"""Workers that come and go, on a real ZooKeeper: every other worker knows it with its second look, half a second later,
and an idle one asks nothing between two full readings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from coordination.zookeeper.worker_summaries import DIRECTORY, WorkerSummaries, WorkerSummary
from tests.waiting import eventually

pytestmark = pytest.mark.integration

ROOT = "/sink"
POLL_SECONDS = 0.5
"""As the main loop of a worker polls."""


class Worker:
    """One worker's session, and what it knows of the others."""

    def __init__(self, address: str, name: str) -> None:
        self.client = KazooClient(address, timeout=10.0)
        self.client.start()
        self.name = f"{name}:1"
        self.summaries = WorkerSummaries(self.client, ROOT)
        self.requests = 0
        self.summaries.publish(self.name, WorkerSummary(name, False, 0, (), 1, 1))

    def count_requests(self) -> None:
        for method in ("get_async", "get_children_async", "set_async"):
            original: Callable[..., object] = getattr(self.client, method)

            def counted(*args: object, _original: Callable[..., object] = original, **kwargs: object) -> object:
                self.requests += 1
                return _original(*args, **kwargs)

            setattr(self.client, method, counted)

    def known(self) -> set[str]:
        self.summaries.refresh()
        return {summary.worker for summary in self.summaries.by_name.values()}

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture
def workers(chroot: str) -> Iterator[list[Worker]]:
    fleet = [Worker(chroot, f"w{number}") for number in range(5)]
    yield fleet
    for worker in fleet:
        worker.close()


def looks_until(worker: Worker, expected: set[str]) -> int:
    """Polls like a worker until it knows `expected`. Returns the number of looks."""
    looks = 1
    while worker.known() != expected:
        assert looks < 20, worker.known()
        time.sleep(POLL_SECONDS)
        looks += 1
    return looks


def close_from_outside(worker: Worker, chroot: str) -> None:
    """Takes over the worker's session and closes it: its owner does not get to say anything, but may take it back."""
    thief = KazooClient(chroot, client_id=worker.client.client_id)
    try:
        thief.start(5)
    except KazooTimeoutError:
        return
    finally:
        thief.stop()
        thief.close()


def names(*numbers: int) -> set[str]:
    return {f"w{number}" for number in numbers}


def test_a_worker_that_joins_leaves_or_is_lost_is_known_with_the_second_look_and_an_idle_one_asks_nothing(
    workers: list[Worker], chroot: str
) -> None:
    first = workers[0]
    eventually("the fleet", lambda: first.known() == names(0, 1, 2, 3, 4), 10, lambda: "")
    first.count_requests()
    for _ in range(5):
        first.summaries.refresh()
    assert first.requests == 0

    joined = Worker(chroot, "w5")
    assert looks_until(first, names(0, 1, 2, 3, 4, 5)) <= 2
    joined.summaries.forget(joined.name)
    assert looks_until(first, names(0, 1, 2, 3, 4)) <= 2
    joined.close()

    ended = threading.Event()
    path = f"{ROOT}/{DIRECTORY}/{workers[4].name}"
    assert first.client.exists(path, watch=lambda _event: ended.set())

    def is_lost() -> bool:
        close_from_outside(workers[4], chroot)
        return ended.wait(1)

    eventually("the session has ended", is_lost)
    assert looks_until(first, names(0, 1, 2, 3)) <= 2
