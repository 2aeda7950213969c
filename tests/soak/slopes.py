"""How fast a measured quantity grows, with its confidence interval. Pure.

Neighbouring samples resemble each other: a commit lasts longer than the time between two looks. So samples are averaged
over blocks, long enough that the averages are nearly independent, and a line is fitted to the averages. A soak that was
stopped and resumed has several lives, because its processes start anew: each has a level of its own, and all have one
slope. The beginning of each life is left out: compilers and caches still fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCK_SECONDS = 600.0
WARM_UP_SECONDS = 1200.0
_STUDENT = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09,
    2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
)  # fmt: skip
"""Two-sided 95 % points of Student's t for 1, 2, … degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`seconds` are counted from the beginning of the life."""

    life: int
    seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class Slope:
    """`per_hour` with its 95 % confidence interval, and the highest block of the newest life, as `level`."""

    per_hour: float
    low: float
    high: float
    level: float

    def after(self, hours: float) -> float:
        """Returns the level that the interval's upper end leads to."""
        return self.level + max(0.0, self.high) * hours


def fit(samples: Sequence[Sample]) -> Slope | None:
    """Returns None if there are too few blocks: three more than lives."""
    blocks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for sample in samples:
        if sample.seconds >= WARM_UP_SECONDS:
            block = int((sample.seconds - WARM_UP_SECONDS) / BLOCK_SECONDS)
            blocks.setdefault((sample.life, block), []).append((sample.seconds / 3600, sample.value))
    lives = sorted({life for life, _ in blocks})
    freedom = len(blocks) - len(lives) - 1
    if freedom < 2:
        return None
    averages = {key: tuple(map(float, np.mean(points, axis=0))) for key, points in blocks.items()}
    centred = []
    for life in lives:
        of_life = np.array([average for (other, _), average in averages.items() if other == life])
        centred.append(of_life - of_life.mean(axis=0))
    hours, values = np.concatenate(centred).T
    spread = float(hours @ hours)
    if spread == 0:
        return None
    per_hour = float(hours @ values) / spread
    residuals = values - per_hour * hours
    error = math.sqrt(float(residuals @ residuals) / freedom / spread)
    half = (_STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.4 / freedom) * error
    level = max(value for (life, _), (_, value) in averages.items() if life == lives[-1])
    return Slope(per_hour, per_hour - half, per_hour + half, level)
