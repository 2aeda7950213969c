"""An actor performs requests: a hanging request is seen, and an unwanted one is cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from coordination.state.messages import Event, ReadKeeper, Request, WriteTasks
from coordination.state.model import Slice, WriteTask
from sink.runtime.sinks.effect_handlers import ParticipantEffectHandler
from sink.runtime.turns.actor import Actor
from sink.runtime.turns.pools import SerialExecutor, Ticker
from sink.telemetry.metrics import ProcessMetrics
from sink.write.engines.engine import WriteResult
from tests.waiting import eventually

SLICES = (Slice("t", 0, 0, 10, "id", 0),)


class Blocking:
    """An engine whose write lasts until it is cancelled."""

    def __init__(self) -> None:
        self.writing = threading.Event()
        self.cancelled = threading.Event()

    def check(self) -> None: ...

    def write(self, instant: str, tasks: Sequence[WriteTask], columns: str = "", **_more: object) -> WriteResult:
        assert columns == "those"
        self.writing.set()
        assert self.cancelled.wait(30)
        raise OSError(f"{len(tasks)} write tasks of {instant} were cancelled")

    def cancel(self, instant: str) -> None:
        assert instant == "i1"
        self.cancelled.set()


class SingleRequest:
    """A machine that makes one request."""

    def __init__(self) -> None:
        self._requested = False

    def step(self, _: Event) -> list[Any]:
        if self._requested:
            return []
        self._requested = True
        return [Request(1, ReadKeeper())]


def an_actor(name: str, handler: object, pool: ThreadPoolExecutor) -> Actor:
    """Returns an actor whose ticker never ticks."""
    steps = SerialExecutor(pool)
    return Actor(
        name, SingleRequest(), cast(Any, handler), SerialExecutor(pool), steps, Ticker(), lambda _: None, lambda _: None
    )


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize(("cancels", "request_id"), [(True, None), (True, 7), (False, 8)])
def test_a_write_ends_when_it_is_cancelled_by_its_request_or_altogether(
    pool: ThreadPoolExecutor, cancels: bool, request_id: int | None
) -> None:
    engine = Blocking()
    handler = ParticipantEffectHandler(cast(Any, None), engine, "w1:1", ProcessMetrics().sink("orders"))
    pending_write = pool.submit(handler.perform, Request(7, WriteTasks(1, "i1", (WriteTask(SLICES),), "those")))
    assert engine.writing.wait(30)
    handler.cancel(request_id)
    assert engine.cancelled.is_set() is cancels
    handler.cancel()
    assert "cancelled" in str(pending_write.result(30))


def test_a_machine_is_stepped_as_soon_as_its_actor_starts(
    pool: ThreadPoolExecutor,
) -> None:
    """A takeover waits for this first step."""
    performed = threading.Event()

    class Performing:
        def perform(self, _: Request) -> Any:
            performed.set()

        def cancel(self, request_id: int) -> None: ...

    actor = an_actor("new", Performing(), pool)
    actor.start()
    assert performed.wait(30)
    actor.stop()


def test_a_request_that_is_not_done_can_be_seen(pool: ThreadPoolExecutor) -> None:
    gate = threading.Event()

    class Slow:
        def perform(self, _: Request) -> Any:
            assert gate.wait(30)

        def cancel(self, request_id: int) -> None: ...

    actor = an_actor("slow", Slow(), pool)
    posted_at = time.monotonic()
    actor.post(cast(Any, object()))
    actor.start()
    eventually("a request has started", lambda: actor._request_started_at is not None)
    started_at = actor.request_started_at
    assert posted_at <= started_at == actor.request_started_at
    gate.set()
    eventually("the request is answered", lambda: actor._request_started_at is None)
    assert actor.request_started_at > started_at
    actor.stop()
    actor.join(30)
