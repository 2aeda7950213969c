"""A worker says once that the schema registry does not answer, and once that it does again."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from coordination.state.failures import Failure, FailureKind
from coordination.state.messages import Done, Failed
from sink.decode.registry.answers import RegistryUnavailable
from sink.decode.registry.client import Registry, RegistryAccess
from sink.runtime.watches.storage_watch import FORGET_SECONDS, RegistryWatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def silent() -> Failed:
    """Returns the failure of a Spark task for a registry where nobody listens."""
    with pytest.raises(RegistryUnavailable) as caught:
        Registry(RegistryAccess(("http://127.0.0.1:9",), patience_seconds=0.1)).schema(7)
    return Failed(str(caught.value), Failure(FailureKind.REGISTRY_AWAY, str(caught.value)))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> RegistryWatch:
    return RegistryWatch(clock)


def test_it_is_told_once_and_so_is_its_end(watch: RegistryWatch, clock: Clock, silent: Failed) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            watch.observe("WriteTasks", silent)
            clock.now += 10
        assert watch.trouble.startswith("schema registry: no answer for schema id 7")
        assert watch.trouble.endswith("Check that the registry runs, and schema.registry.url.")
        watch.observe("WriteTasks", Done())
        watch.observe("WriteTasks", Done())
    assert [(line["event"], line.get("seconds")) for line in lines] == [
        ("registry.unavailable", None),
        ("registry.available", 30.0),
    ]
    assert watch.trouble == ""


def test_another_kind_of_request_that_is_done_proves_nothing(watch: RegistryWatch, silent: Failed) -> None:
    watch.observe("WriteTasks", silent)
    watch.observe("Begin", Done())
    watch.observe("WriteTasks", Failed("no room"))
    assert watch.trouble


def test_who_is_given_nothing_more_shows_it_for_a_minute(watch: RegistryWatch, clock: Clock, silent: Failed) -> None:
    watch.observe("Begin", silent)
    clock.now += FORGET_SECONDS
    assert watch.trouble == ""
    with capture_logs() as lines:
        watch.observe("WriteTasks", Done())
        watch.observe("WriteTasks", silent)
        watch.observe("WriteTasks", Done())
    assert [line["event"] for line in lines] == ["registry.unavailable", "registry.available"]


@pytest.mark.parametrize("failure", [None, Failure(FailureKind.STORE_AWAY, "no answer")])
def test_other_failures_are_none_of_the_registry(watch: RegistryWatch, failure: Failure | None) -> None:
    watch.observe("WriteTasks", Failed("schema registry: no answer", failure))
    assert watch.trouble == ""
