"""The reports of a transaction's tasks do not stay in memory, though PySpark keeps each accumulator."""

from __future__ import annotations

from collections import deque

import pytest
from pyspark.accumulators import Accumulator, _accumulatorRegistry

from sink.write.engines import engine
from sink.write.engines.engine import MOST_RELEASED, MergedReports, Reports, release

FIRST_ID = 1_000_000


def test_reports_are_let_go_and_a_late_task_still_finds_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_released", deque())
    before = len(_accumulatorRegistry)
    for number in range(2 * MOST_RELEASED):
        reported: Accumulator[Reports] = Accumulator(FIRST_ID + number, {}, MergedReports())
        reported += {number: None}  # type: ignore[arg-type, dict-item]
        assert reported.value
        release(reported)
        assert not reported.value
    assert len(_accumulatorRegistry) == before + MOST_RELEASED
    late = _accumulatorRegistry[FIRST_ID + MOST_RELEASED]
    late += {0: None}
    assert FIRST_ID not in _accumulatorRegistry
