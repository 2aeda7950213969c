"""A worker that has left a sink shows neither a halt nor a pause of it, as one that has not joined yet."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import ConfigError, Corrupt, Unavailable
from sink.runtime.sinks import sink as runtime
from sink.runtime.sinks.sink import Sink
from sink.telemetry.metrics import ProcessMetrics
from tests.http_fleet import settings_in

GAUGES = ("sink_halted", "sink_paused")


def shown(process: ProcessMetrics) -> list[str]:
    return [line for line in process.text().decode().splitlines() if line.startswith(GAUGES)]


@pytest.mark.parametrize("error", [None, Unavailable("away"), Corrupt("broken"), ConfigError("refused")])
def test_a_halt_and_a_pause_show_no_longer_than_the_membership_however_it_ends(
    error: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = ProcessMetrics("worker-1")
    metrics = process.sink("orders")

    def take_part() -> None:
        metrics.halted(True)
        metrics.paused(True)
        if error is not None:
            raise error

    parts = {
        "campaign": take_part,
        "start": lambda: None,
        "ended": SimpleNamespace(wait=lambda: None),
        "close": lambda _seconds: None,
    }
    monkeypatch.setattr(runtime, "Membership", lambda *_: SimpleNamespace(**parts))
    monkeypatch.setattr(runtime, "REJOIN_SECONDS", 0.0)
    hosted = Sink(settings_in(tmp_path, "127.0.0.1:1"), Future(), metrics)
    shared: Any = SimpleNamespace(
        session=SimpleNamespace(wait=lambda _stop: True),
        spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1)),
    )
    resources: Any = None
    before = shown(process)
    if isinstance(error, ConfigError):
        with pytest.raises(ConfigError):
            hosted._take_part(resources, shared)
    else:
        hosted._take_part(resources, shared)
    assert shown(process) == before
