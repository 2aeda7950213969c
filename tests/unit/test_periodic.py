"""The one periodic loop: it goes on after a failure, ends when told, and keeps to its share of a core."""

from __future__ import annotations

import threading
import time

from structlog.testing import capture_logs

from sink.telemetry.periodic import Periodic

PATIENCE = 30.0


def test_what_fails_is_told_with_the_threads_name_and_is_called_again() -> None:
    calls: list[float] = []
    again = threading.Event()

    def work() -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise ValueError("a defect")
        again.set()

    with capture_logs() as lines:
        periodic = Periodic("looks", work, lambda: 0.01)
        periodic.start()
        assert again.wait(PATIENCE)
        periodic.stop()
        periodic.join(PATIENCE)
    failures = [line for line in lines if line["event"] == "thread.failed"]
    assert [(line["thread"], line["reason"]) for line in failures] == [("looks", "ValueError('a defect')")]


def test_it_ends_in_mid_pause_and_is_not_called_again() -> None:
    called = threading.Event()
    periodic = Periodic("looks", called.set, lambda: 3600.0)
    periodic.start()
    assert called.wait(PATIENCE)
    called.clear()
    periodic.stop()
    periodic.join(PATIENCE)
    assert not periodic._thread.is_alive()
    assert not called.is_set()


def test_the_first_call_may_come_after_a_pause_and_never_comes_after_a_stop() -> None:
    called = threading.Event()
    periodic = Periodic("looks", called.set, lambda: 3600.0, at_once=False)
    periodic.start()
    periodic.stop()
    periodic.join(PATIENCE)
    assert not called.is_set()


def test_a_call_that_takes_a_core_is_followed_by_a_pause_that_keeps_to_the_share() -> None:
    starts: list[float] = []
    enough = threading.Event()

    def work() -> None:
        starts.append(time.monotonic())
        if len(starts) == 2:
            enough.set()
        busy_until = time.thread_time() + 0.05
        while time.thread_time() < busy_until:
            pass

    periodic = Periodic("looks", work, lambda: 0.0, share=0.1)
    periodic.start()
    assert enough.wait(PATIENCE)
    periodic.stop()
    assert starts[1] - starts[0] >= 0.5


def test_one_that_was_never_started_can_be_joined() -> None:
    Periodic("looks", lambda: None, lambda: 1.0).join(1.0)
