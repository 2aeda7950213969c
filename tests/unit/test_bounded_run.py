"""A bounded run ends as soon as nothing is left that it could wait for."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import ConfigError, SinkError
from sink.config import Configuration, load_configuration
from sink.operations.catching_up import TOPIC_GONE
from sink.operations.chosen import KnownSinks
from sink.operations.control import Overdue
from sink.runtime.process import bounded_run, launch
from sink.runtime.process.bounded_run import BoundedRun, Unfinished
from sink.runtime.process.signals import Signals
from tests.unit.test_config_errors import BASE

Refuse = Callable[[str, SinkError], None]
SECONDS = 20.0


@pytest.fixture
def run_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., BoundedRun]:
    """Returns a function that makes a run of named sinks. Only `good` is ever caught up; `worker` is the worker."""

    class Control:
        def __init__(self, settings: Any, *_: object) -> None:
            self.name = settings.name

        def read(self) -> Any:
            return SimpleNamespace(states={})

    def wait_for(control: Control, _target: object, seconds: float, stop: threading.Event, **_: object) -> str:
        if control.name == "good":
            return "good has committed what was there"
        stop.wait(seconds)
        raise Overdue(f"{control.name} is 5 offsets before the end")

    def new_run(worker: Callable[[Signals, Refuse], None], *names: str) -> BoundedRun:
        sinks = tuple(SimpleNamespace(name=name) for name in names)
        fleet: Any = SimpleNamespace(hosted=sinks, hosts=lambda _: True, process=SimpleNamespace(ensemble=None))
        monkeypatch.setattr(bounded_run, "known_sinks", lambda _: SimpleNamespace(sinks=sinks, gone=frozenset()))
        monkeypatch.setattr(bounded_run, "run_worker", lambda _, signals, refuse: worker(signals, refuse))
        return BoundedRun(fleet, Signals(), None, SECONDS)

    monkeypatch.setattr(bounded_run, "connected", lambda _: nullcontext())
    monkeypatch.setattr(bounded_run, "observed_sink", lambda settings: settings)
    monkeypatch.setattr(bounded_run, "SinkControl", Control)
    monkeypatch.setattr(bounded_run, "wait_for", wait_for)
    monkeypatch.setattr(BoundedRun, "_target", lambda *_: SimpleNamespace(missing=lambda _: 5))
    return new_run


def test_it_ends_with_the_reason_when_the_worker_cannot_run(run_of: Callable[..., BoundedRun]) -> None:
    def worker(_signals: Signals, _refuse: Refuse) -> None:
        raise ConfigError("the table has other columns")

    with pytest.raises(ConfigError, match="other columns"):
        run_of(worker, "bad").run()
    for thread in threading.enumerate():
        if thread.name.startswith("bounds"):
            thread.join(SECONDS / 2)
            assert not thread.is_alive()


def test_it_waits_for_the_other_sinks_when_one_is_refused_and_ends_with_the_reason(
    run_of: Callable[..., BoundedRun],
) -> None:
    stopped: list[bool] = []

    def worker(signals: Signals, refuse: Refuse) -> None:
        refuse("bad", ConfigError("the table has other columns"))
        stopped.append(signals.stop.wait(SECONDS / 2))

    with pytest.raises(ConfigError, match="sink bad cannot run: the table has other columns"):
        run_of(worker, "good", "bad").run()
    assert stopped == [True]


def test_it_does_not_end_while_a_sink_that_is_not_refused_is_behind(run_of: Callable[..., BoundedRun]) -> None:
    def worker(signals: Signals, refuse: Refuse) -> None:
        refuse("bad", ConfigError("the table has other columns"))
        assert not signals.stop.wait(1.0)

    with pytest.raises(ConfigError, match="sink bad cannot run"):
        run_of(worker, "slow", "bad").run()


def test_a_process_that_was_asked_to_end_and_does_not_is_cut_short_whatever_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    has_ended = threading.Event()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(launch, "SHUTDOWN_SECONDS", 0.1)
    monkeypatch.setattr(launch, "kill_process_tree", lambda status: ended.append(status) or has_ended.set())
    signals = launch.handled_signals(1)
    assert not has_ended.wait(0.5)
    signals.stop.set()
    assert has_ended.wait(SECONDS)
    assert ended == [1]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """A configuration whose worker runs until it is stopped."""
    monkeypatch.setattr(bounded_run, "run_worker", lambda _, signals, _refuse: signals.stop.wait())
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in BASE.items()))
    return load_configuration(file)


def test_a_run_until_a_time_that_has_not_come_is_unfinished_when_its_time_is_over(fleet: Configuration) -> None:
    with pytest.raises(Unfinished, match="the time-out was over before the time that the run runs until"):
        BoundedRun(fleet, Signals(), time.time() + 3600, 0.1).run()


def test_a_run_until_a_time_that_has_not_come_is_unfinished_when_it_is_stopped(fleet: Configuration) -> None:
    signals = Signals()
    signals.stop.set()
    with pytest.raises(Unfinished, match="the run was stopped before"):
        BoundedRun(fleet, signals, time.time() + 3600, 3600).run()


def test_a_run_passes_over_a_sink_of_a_pattern_whose_topic_is_gone(
    fleet: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownSinks(fleet.sinks, gone=frozenset(settings.name for settings in fleet.sinks))
    monkeypatch.setattr(bounded_run, "known_sinks", lambda _: known)
    monkeypatch.setattr(bounded_run, "connected", lambda _: nullcontext())
    assert BoundedRun(fleet, Signals(), None, 60).run() == (f"sink orders: {TOPIC_GONE}",)
