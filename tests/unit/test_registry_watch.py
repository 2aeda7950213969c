"""A worker says once that the schema registry does not answer, and once that it does again."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from coordination.state.messages import Done, Failed
from sink.decode.registry import Registry, RegistryAccess
from sink.decode.registry_answers import RegistryUnavailable
from sink.runtime.storage_watch import FORGET_SECONDS, RegistryWatch, registry_silence


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def silent() -> Failed:
    """Returns the failure of a Spark task for a registry where nobody listens."""
    with pytest.raises(RegistryUnavailable) as caught:
        Registry(RegistryAccess(("http://127.0.0.1:9",), patience_seconds=0.1)).schema(7)
    return Failed(f"PythonException: sink.decode.registry_answers.RegistryUnavailable: {caught.value}")


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
        assert watch.trouble.endswith("Check that it runs, and schema.registry.url.")
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


@pytest.mark.parametrize("reason", ["no answer", "schema registry http://r has no schema id 7 (error code 40403)"])
def test_other_reasons_are_none_of_the_registry(reason: str) -> None:
    assert registry_silence(reason) is None
