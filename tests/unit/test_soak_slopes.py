"""A soak tells growth from noise, over several lives, and says nothing about what was too short."""

from __future__ import annotations

import math
import random

import pytest

from tests.soak.report import HOURS, judge, table
from tests.soak.slopes import WARM_UP_SECONDS, Sample, fit

LOOK_SECONDS = 30


def samples(hours: float, per_hour: float, noise: float, lives: int = 1, seed: int = 1) -> list[Sample]:
    """Commits come and go: neighbouring looks have most of their noise in common."""
    chance, found, wave = random.Random(seed), [], 0.0
    for life in range(lives):
        for second in range(0, int(hours * 3600 / lives), LOOK_SECONDS):
            wave = 0.7 * wave + chance.gauss(0, noise)
            start = 50 * math.exp(-second / 120)
            found.append(Sample(life, second, 200 + 10 * life - start + per_hour * second / 3600 + wave))
    return found


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("per_hour", [-1.0, 0.0, 1.0, 20.0])
def test_the_interval_holds_the_slope_in_nineteen_of_twenty_soaks(per_hour: float, lives: int) -> None:
    fits = [fit(samples(2.5, per_hour, 0.5, lives, seed)) for seed in range(100)]
    assert sum(slope is not None and slope.low <= per_hour <= slope.high for slope in fits) >= 88


def test_a_megabyte_an_hour_is_found_within_two_hours() -> None:
    slope = fit(samples(2.0, 1.0, 0.3))
    assert slope is not None
    assert slope.low > 0
    still = fit(samples(2.0, 0.0, 0.3))
    assert still is not None
    assert still.low < 0 < still.high


def test_what_is_too_short_has_no_slope() -> None:
    assert fit([]) is None
    assert fit(samples(WARM_UP_SECONDS / 3600, 0.0, 1.0)) is None
    assert fit(samples(0.8, 0.0, 1.0)) is None


def test_a_quantity_that_may_leave_its_budget_or_was_not_measured_long_enough_does_not_hold() -> None:
    looks = [
        {
            "life": 1,
            "seconds": second,
            "live heap, MB": 200.0 + second / 3600,
            "threads": 100.0,
            "files of a table": 5.0,
        }
        for second in range(0, 7200, LOOK_SECONDS)
    ]
    grows, holds, explained = judge(looks, heap=1000)
    assert grows.slope is not None
    assert grows.slope.after(HOURS) == pytest.approx(202 + 720, abs=1)
    assert (grows.holds, holds.holds, explained.holds) == (False, True, True)
    assert "**may leave its budget**" in table([grows, holds, explained])
    assert not any(verdict.holds for verdict in judge(looks[:20], heap=1000)[:2])
    assert table(judge([], heap=1000))
