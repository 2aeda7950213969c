"""The fleet is read only while somebody asks, and a question after a pause is answered by a new reading."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sink.http import fleet
from sink.http.fleet import FleetWatch
from tests.http_fleet import StubFacts

IDLE_SECONDS = 0.5


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetWatch]:
    monkeypatch.setattr(fleet, "IDLE_SECONDS", IDLE_SECONDS)
    monkeypatch.setattr(fleet, "POLL_SECONDS", 0.05)
    fleet_watch = FleetWatch(StubFacts())
    yield fleet_watch
    fleet_watch.close()


def test_a_question_after_a_pause_waits_for_a_new_reading(watch: FleetWatch) -> None:
    watch.last_reading()
    time.sleep(1.2 * IDLE_SECONDS)
    asked_at = time.monotonic()
    assert watch.last_reading().complete_at >= asked_at


def test_questions_after_a_pause_wait_together_for_a_reading_that_does_not_come(
    watch: FleetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "FIRST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(FleetWatch, "_read_all", lambda _watch: time.sleep(5))
    asked_at = time.monotonic()
    for _ in range(20):
        watch.last_reading()
    assert time.monotonic() - asked_at < 1
