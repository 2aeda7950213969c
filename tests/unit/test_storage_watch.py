"""A worker says once that a fault of its table's store has lasted for ten seconds, and once that it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordination.errors import Unavailable
from coordination.state.failures import Failure, FailureKind
from coordination.state.messages import Begin, Done, Failed, Outcome, ReadKeeper, ReadTable, Request, WriteTasks
from coordination.state.model import Slice, WriteTask
from sink.runtime.watches.storage_watch import (
    QUIET_SECONDS,
    TELL_SECONDS,
    RegistryWatch,
    StorageWatch,
    WatchedEffectHandler,
)
from tests.unit.settings_kit import minimal_settings
from tests.waiting import eventually

REFUSED = "s3a://lake/t: com.amazonaws.SdkClientException: Connect to minio:9000 failed: Connection refused"
SENTENCE = "storage.s3.endpoint: http://minio:9000 does not answer. Start it, or correct the address."


class Store:
    """A store with a clock that answers the watch's requests, or does not."""

    def __init__(self, directory: Path) -> None:
        self.now = 100.0
        self.error = ""
        self.answers = Event()
        self.answers.set()
        self.requests = 0
        options = {"target__base__path": "s3a://lake/t", "storage__s3__endpoint": "http://minio:9000"}
        self.watch = StorageWatch(minimal_settings(directory, **options), self._answer, lambda: self.now)

    def _answer(self) -> None:
        self.requests += 1
        assert self.answers.wait(30)
        if self.error:
            raise Unavailable(self.error)

    def pass_time(self, seconds: float) -> list[dict[str, Any]]:
        """Lets time pass and returns the store's log lines of that time."""
        with capture_logs() as lines:
            for _ in range(round(seconds * 2)):
                self.now += 0.5
                self.watch.poll()
                if self.answers.is_set():
                    eventually("the question is answered", lambda: not self.watch._asking, 30)
        return [line for line in lines if line["event"].startswith("store.")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.answers.set()


def events(lines: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(line["event"], line["seconds"]) for line in lines]


def test_a_fault_is_told_once_after_ten_seconds_and_its_end_once(store: Store) -> None:
    store.error = REFUSED
    store.watch.observe("Begin", Failed(REFUSED))
    assert store.pass_time(TELL_SECONDS - 0.5) == []
    lines = store.pass_time(600)
    assert events(lines) == [("store.unavailable", TELL_SECONDS)]
    assert lines[0]["reason"] == SENTENCE
    store.error = ""
    store.watch.observe("Begin", Done())
    assert events(store.pass_time(30)) == [("store.available", 610.5)]
    requests = store.requests
    assert store.pass_time(60) == []
    assert store.requests == requests


def test_a_store_that_fails_a_part_of_the_requests_is_told_once_until_it_fails_none(store: Store) -> None:
    store.error = REFUSED
    store.watch.observe("Begin", Failed(REFUSED))
    lines = store.pass_time(TELL_SECONDS + 1)
    for _ in range(20):
        store.error = ""
        store.watch.observe("Begin", Done())
        lines += store.pass_time(TELL_SECONDS / 2)
        store.error = REFUSED
        store.watch.observe("Begin", Failed(REFUSED))
        lines += store.pass_time(1)
    assert [event for event, _ in events(lines)] == ["store.unavailable"]
    store.error = ""
    store.watch.observe("Begin", Done())
    assert [event for event, _ in events(store.pass_time(TELL_SECONDS + 5))] == ["store.available"]


def test_a_short_fault_is_not_told(store: Store) -> None:
    store.watch.observe("Begin", Failed(REFUSED))
    assert store.pass_time(TELL_SECONDS - 1) == []
    store.watch.observe("Begin", Done())
    assert store.pass_time(60) == []


def test_what_reads_well_does_not_hide_that_writes_are_refused(store: Store) -> None:
    store.watch.observe("Begin", Failed(REFUSED))
    store.watch.observe("ReadTable", Done())
    assert events(store.pass_time(TELL_SECONDS + 1)) == [("store.unavailable", TELL_SECONDS)]


def test_who_asks_nothing_any_more_is_told_of_the_stores_return_by_the_watchs_own_question(store: Store) -> None:
    store.error = REFUSED
    store.watch.observe("Begin", Failed(REFUSED))
    store.pass_time(TELL_SECONDS + QUIET_SECONDS + 5)
    store.error = ""
    assert [event for event, _ in events(store.pass_time(TELL_SECONDS + 5))] == ["store.available"]


def test_a_store_that_hangs_is_told_while_the_request_is_under_way(store: Store) -> None:
    store.answers.clear()
    with store.watch.request():
        lines = store.pass_time(TELL_SECONDS + 1)
        assert events(lines) == [("store.slow", TELL_SECONDS)]
        assert lines[0]["reason"].startswith("http://minio:9000 takes")
        store.answers.set()
        assert [event for event, _ in events(store.pass_time(TELL_SECONDS + 5))] == ["store.available"]


def test_a_request_that_takes_long_on_a_store_that_answers_is_nobodys_fault(store: Store) -> None:
    with store.watch.request():
        assert store.pass_time(300) == []
    assert store.requests


class FixedHandler:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.cancelled: list[int] = []

    def perform(self, _: Request) -> Outcome:
        return self.outcome

    def cancel(self, request_id: int) -> None:
        self.cancelled.append(request_id)


def watched(handler: FixedHandler, store: Store) -> WatchedEffectHandler:
    return WatchedEffectHandler(handler, store.watch, RegistryWatch())


WRITE = WriteTasks(1, "i1", (WriteTask((Slice("t", 0, 0, 10, "id", 0),)),))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (REFUSED, FailureKind.STORE_AWAY),
        (
            "OSError: When uploading part: AWS Error NETWORK_CONNECTION during PutObject",
            FailureKind.STORE_AWAY,
        ),
        ("KafkaError: kafka:9092: Connect failed: Connection refused", None),
    ],
)
def test_a_write_that_failed_for_the_store_says_so(store: Store, reason: str, kind: FailureKind | None) -> None:
    outcome = watched(FixedHandler(Failed(reason)), store).perform(Request(1, WRITE))
    assert isinstance(outcome, Failed)
    assert (outcome.failure and outcome.failure.kind) == kind


def test_a_write_that_failed_for_memory_is_left_as_it_is(store: Store) -> None:
    failed = Failed(REFUSED, Failure(FailureKind.OUT_OF_MEMORY, "the heap is full"))
    assert watched(FixedHandler(failed), store).perform(Request(1, WRITE)) == failed


@pytest.mark.parametrize(
    ("operation", "is_reported"), [(Begin(1, 1), True), (ReadTable(()), True), (ReadKeeper(), False)]
)
def test_only_requests_on_the_table_say_something_of_the_store(store: Store, operation: Any, is_reported: bool) -> None:
    handler = FixedHandler(Failed(REFUSED))
    watching = watched(handler, store)
    watching.perform(Request(1, operation))
    watching.cancel(7)
    assert bool(store.pass_time(TELL_SECONDS + 1)) is is_reported
    assert handler.cancelled == [7]
