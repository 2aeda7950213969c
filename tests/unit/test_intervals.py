"""The batches of a term are due at intervals, which begin apart for each sink."""

from __future__ import annotations

from itertools import pairwise

from coordination.machines.term import Term
from coordination.planning.config import CoordinatorConfig
from coordination.planning.slicing import Limits


def test_sinks_that_begin_together_are_due_one_after_another_and_each_at_every_interval() -> None:
    dues: dict[str, list[float]] = {}
    for number in range(100):
        config = CoordinatorConfig(f"orders-{number}", "w1:1", "", "", ("t",), Limits(10, 10), 60.0, 60.0)
        term, dues[config.sink] = Term(config), []
        # A plan is late by a little, and once by more than two intervals.
        for late in (0.0, 0.3, 0.3, 130.0, 0.0):
            term.at = term.next_plan + late
            term.interval_planned()
            dues[config.sink].append(term.next_plan)
    firsts = sorted(due[0] for due in dues.values())
    assert 0 < firsts[0] < firsts[-1] <= 60
    # No more than a fifth of them within a tenth of the interval.
    assert all(sum(start < first <= start + 6 for first in firsts) <= 20 for start in range(0, 60, 6))
    for due in dues.values():
        assert [round(after - before, 6) for before, after in pairwise(due)] == [60, 60, 180, 60]
