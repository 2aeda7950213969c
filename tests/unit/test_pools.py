"""Many sinks share the threads of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from sink.runtime.turns import pools
from sink.runtime.turns.pools import CoalescedRun, SerialExecutor, SlotPool, Ticker, new_pool
from tests.waiting import eventually


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with new_pool() as pool:
        yield pool


def test_jobs_of_one_executor_run_in_order_and_never_two_at_once(pool: ThreadPoolExecutor) -> None:
    serial, order, running = SerialExecutor(pool), list[int](), list[int]()

    def job(number: int) -> None:
        running.append(number)
        assert len(running) == 1
        time.sleep(0.001 * (number % 3))  # gives way to a job that could run beside it
        order.append(number)
        running.remove(number)

    futures = [serial.submit(job, number) for number in range(60)]
    for future in futures:
        future.result(30)
    assert order == list(range(60))
    assert serial.wait_idle(30)


def test_a_job_that_hangs_keeps_nothing_of_another_executor(pool: ThreadPoolExecutor) -> None:
    gate = threading.Event()
    hanging, free = SerialExecutor(pool), SerialExecutor(pool)
    hanging.submit(gate.wait, 30)
    assert free.submit(lambda: "done").result(30) == "done"
    assert not hanging.wait_idle(0.01)
    gate.set()
    assert hanging.wait_idle(30)


def test_a_job_that_raises_leaves_the_next_one_alone_and_tells_who_asked(pool: ThreadPoolExecutor) -> None:
    serial = SerialExecutor(pool)
    failed = serial.submit(lambda: 1 / 0)
    assert serial.submit(lambda: 1).result(30) == 1
    with pytest.raises(ZeroDivisionError):
        failed.result(30)


def test_triggers_that_come_while_a_run_is_under_way_are_one_more_run(pool: ThreadPoolExecutor) -> None:
    gate, runs = threading.Event(), list[int]()

    def run() -> None:
        runs.append(1)
        assert gate.wait(30)

    coalesced = CoalescedRun(pool, run)
    coalesced.trigger()
    eventually("it runs", lambda: runs)
    for _ in range(50):
        coalesced.trigger()
    gate.set()
    assert coalesced.wait_idle(30)
    assert len(runs) == 2


def test_more_subscribers_are_ticked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Recording(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            if len(waits) > 1:
                self.set()
            return self.is_set()

    for subscribers, seconds in ((1, pools.TICK_SECONDS), (400, 400 / pools.TICKS_PER_SECOND)):
        waits.clear()
        ticker, ticks = Ticker(), list[int]()
        monkeypatch.setattr(ticker, "ended", Recording())
        for number in range(subscribers):
            ticker.subscribe(partial(ticks.append, number))
        ticker._run()
        assert waits[0] == seconds
        assert ticks == list(range(subscribers))


def test_turns_are_taken_in_the_order_in_which_they_were_asked_for_and_few_at_a_time() -> None:
    turns, gate, order = SlotPool("turns", 2, 60.0), threading.Event(), list[int]()
    threads = set[str]()

    def job(number: int) -> int:
        order.append(number)
        threads.add(threading.current_thread().name)
        assert gate.wait(30)
        return number

    with ThreadPoolExecutor(8) as callers:
        futures = []
        for number in range(8):
            futures.append(callers.submit(turns.run, lambda number=number: job(number)))
            eventually("it is in the queue", lambda number=number: len(turns._waiting) + len(order) == number + 1)
        assert order == [0, 1]
        gate.set()
        assert [future.result(30) for future in futures] == list(range(8))
    assert sorted(order) == list(range(8))
    assert len(threads) <= 2


def test_a_job_that_hangs_gives_up_its_turn_and_one_that_raises_tells_who_asked() -> None:
    turns, gate = SlotPool("turns", 1, 0.1), threading.Event()
    with ThreadPoolExecutor(2) as callers:
        hanging = callers.submit(turns.run, lambda: gate.wait(30))
        eventually("it runs", lambda: len(turns._running) == 1)
        raising = callers.submit(turns.run, lambda: 1 / 0)
        eventually("the other one had its turn", lambda: turns.grant_turns() or raising.done())
        with pytest.raises(ZeroDivisionError):
            raising.result(30)
        gate.set()
        assert hanging.result(30)
    assert turns.run(lambda: 1) == 1
