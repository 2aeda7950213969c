"""The reports of a transaction's tasks do not stay in memory, though PySpark keeps each accumulator."""

from __future__ import annotations

from collections import deque

import pytest
from pyspark.accumulators import Accumulator, _accumulatorRegistry

from sink.write.engines import engine
from sink.write.engines.engine import LATE_SECONDS, MergedReports, Reports, release

FIRST_ID = 1_000_000


def test_reports_are_let_go_and_a_late_task_still_finds_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(engine, "_released", deque())
    monkeypatch.setattr(engine, "monotonic", lambda: now)
    before = len(_accumulatorRegistry)
    for number in range(500):
        reported: Accumulator[Reports] = Accumulator(FIRST_ID + number, {}, MergedReports())
        reported += {number: None}  # type: ignore[arg-type, dict-item]
        assert reported.value
        release(reported)
        assert not reported.value
        now += 1
    assert len(_accumulatorRegistry) == before + LATE_SECONDS + 1
    late = _accumulatorRegistry[FIRST_ID + 499 - int(LATE_SECONDS)]
    late += {0: None}
    assert FIRST_ID not in _accumulatorRegistry
