"""The outcome of a table service: whatever keeps it from its work is the reason."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import Unavailable
from sink.hudi.instants import ActiveTimeline, Instant
from sink.hudi.moments import abandoned, require_ended, require_moment
from sink.hudi.service_outcome import ServiceBlocked, run_service

NOW = "20261127120000500"


class Clock:
    """Stands for the table at a time of the host's clock."""

    base_path = "/lake/orders"

    def instant_now(self) -> str:
        return NOW


def timeline(*instants: tuple[str, str, str]) -> ActiveTimeline:
    entries = tuple(Instant(requested, action, state, None) for requested, action, state in instants)
    return ActiveTimeline(entries, None, None, frozenset(), frozenset())


def raising(error: BaseException) -> Any:
    def service() -> str:
        raise error

    return run_service("cleaning", service)


@pytest.mark.parametrize(
    "error",
    [Unavailable("no room"), TypeError("'JavaPackage' object is not callable"), MemoryError("no memory"), OSError("x")],
)
def test_whatever_a_service_raises_is_its_reason(error: Exception) -> None:
    outcome = raising(error)
    assert outcome.reason == f"{type(error).__name__}: {error}"
    assert (outcome.instant, outcome.since) == ("", 0.0)


def test_a_service_that_another_writer_blocks_is_due_since_that_one_began() -> None:
    assert raising(ServiceBlocked("commit 1 of another writer", 77.0)).since == 77.0


@pytest.mark.parametrize(("newest", "waits"), [("20261127120000520", True), ("20261127120001600", False)])
def test_a_clock_that_is_a_little_behind_is_waited_for(newest: str, waits: bool) -> None:
    times = iter((NOW, "20261127120000521"))
    clock: Any = SimpleNamespace(base_path="/lake/orders", instant_now=lambda: next(times))
    with nullcontext() if waits else pytest.raises(Unavailable, match=f"the timeline has {newest}"):
        require_moment(clock, timeline((newest, "compaction", "REQUESTED")))


def test_only_instants_that_are_pending_for_too_long_and_block_a_service_are_abandoned() -> None:
    read = timeline(
        ("20261126115959000", "compaction", "REQUESTED"),
        ("20261126115958000", "commit", "COMPLETED"),
        ("20261126115957000", "clean", "REQUESTED"),
        ("20261126115956000", "restore", "INFLIGHT"),
        ("20261126120001000", "commit", "INFLIGHT"),
        ("00000000000000000", "commit", "INFLIGHT"),
        ("20261125000000000", "clustering", "INFLIGHT"),
    )
    clock: Any = Clock()
    found = abandoned(clock, read, 86_400)
    assert list(found.items()) == [("20261125000000000", "clustering"), ("20261126115959000", "compaction")]
    require_ended(clock, found, set(found))
    with pytest.raises(ServiceBlocked, match="/lake/orders: compaction 20261126115959000 of another writer"):
        require_ended(clock, found, {"20261125000000000"})
