"""A bounded run tells whether it was there when the time came that it runs until."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from sink.config import Fleet, load_fleet
from sink.operations.catching_up import TOPIC_GONE
from sink.operations.chosen import KnownSinks
from sink.runtime import bounded_run
from sink.runtime.bounded_run import BoundedRun, Unfinished
from sink.runtime.signals import Signals
from tests.unit.test_config_errors import BASE


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A configuration whose worker runs until it is stopped."""
    monkeypatch.setattr(bounded_run, "run_worker", lambda _, signals: signals.stop.wait())
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in BASE.items()))
    return load_fleet(file)


def test_a_run_until_a_time_that_has_not_come_is_unfinished_when_its_time_is_over(fleet: Fleet) -> None:
    with pytest.raises(Unfinished, match="the time-out was over before the time that the run runs until"):
        BoundedRun(fleet, Signals(), time.time() + 3600, 0.1).run()


def test_a_run_until_a_time_that_has_not_come_is_unfinished_when_it_is_stopped(fleet: Fleet) -> None:
    signals = Signals()
    signals.stop.set()
    with pytest.raises(Unfinished, match="the run was stopped before the time that it runs until"):
        BoundedRun(fleet, signals, time.time() + 3600, 3600).run()


def test_a_run_passes_over_a_sink_of_a_pattern_whose_topic_is_gone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownSinks(fleet.sinks, gone=frozenset(settings.name for settings in fleet.sinks))
    monkeypatch.setattr(bounded_run, "known_sinks", lambda _: known)
    monkeypatch.setattr(bounded_run, "connected", lambda _: nullcontext())
    assert BoundedRun(fleet, Signals(), None, 60).run() == (f"sink orders: {TOPIC_GONE}",)
