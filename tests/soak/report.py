"""Holds what a soak measured against a budget of thirty days, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.slopes import Sample, Slope, fit

HOURS = 30 * 24.0
LIVE_SHARE = 0.6
"""The share of the heap that may be live after a collection."""
BUDGETS: Mapping[str, float] = {
    "metaspace, MB": 400,
    "JVM beside its heap, MB": 900,
    "Python of the worker, MB": 400,
    "other Pythons, MB": 1000,
    "threads": 600,
    "descriptors": 2000,
    "processes": 20,
    "watches": 5000,
    "znodes": 5000,
    "data in ZooKeeper, kB": 10_000,
    "temporary files": 2000,
}
"""The most that each worker, or the fleet's ZooKeeper, may hold with three sinks."""
EXPLAINED: Mapping[str, str] = {
    "JVM, resident, MB": "the heap that was touched once stays resident: bounded by heap and what is beside it",
    "files of a table": "grows with the rows; cleaning, compaction and archiving bound the rest",
}
"""Quantities that may grow, and why that ends."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`slope` is None as long as there are too few looks to tell."""

    quantity: str
    slope: Slope | None
    budget: float | None
    reason: str

    @property
    def holds(self) -> bool:
        return self.budget is None or (self.slope is not None and self.slope.after(HOURS) <= self.budget)


def judge(looks: Sequence[Mapping[str, float]], heap: float) -> list[Verdict]:
    """`heap` is in MB."""
    budgets = {"live heap, MB": LIVE_SHARE * heap, **BUDGETS}
    quantities = [name for name in looks[0] if name not in ("life", "seconds")] if looks else []
    return [
        Verdict(name, fit(_samples(looks, name)), budgets.get(name), EXPLAINED.get(name, "")) for name in quantities
    ]


def _samples(looks: Sequence[Mapping[str, float]], quantity: str) -> list[Sample]:
    return [Sample(int(look["life"]), look["seconds"], look[quantity]) for look in looks]


def table(verdicts: Sequence[Verdict]) -> str:
    """Returns the verdicts as a table in Markdown."""
    lines = [
        "| of a worker, or of the fleet's servers | level | an hour | 95 % | in 30 days at most | budget | |",
        "|---|---:|---:|---|---:|---:|---|",
    ]
    for verdict in verdicts:
        slope = verdict.slope
        if slope is None:
            lines.append(f"| {verdict.quantity} | | | | | | too short to tell |")
            continue
        budget = "" if verdict.budget is None else f"{verdict.budget:,.0f}"
        comment = verdict.reason or ("held" if verdict.holds else "**may leave its budget**")
        interval = f"{slope.low:+.2f} to {slope.high:+.2f}"
        figures = f"{slope.level:,.0f} | {slope.per_hour:+.2f} | {interval} | {slope.after(HOURS):,.0f} | {budget}"
        lines.append(f"| {verdict.quantity} | {figures} | {comment} |")
    return "\n".join(lines)


def draw(looks: Sequence[Mapping[str, float]], verdicts: Sequence[Verdict], path: Path) -> None:
    """Draws each quantity over the hours of the soak, one life after another."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = 3
    rows = -(-len(verdicts) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(13, 2.3 * rows), sharex=True, squeeze=False)
    starts = _starts(looks)
    hours = [(starts[int(look["life"])] + look["seconds"]) / 3600 for look in looks]
    for axis, verdict in zip(axes.flat, verdicts, strict=False):
        axis.plot(hours, [look[verdict.quantity] for look in looks], linewidth=0.8, color="#1f6fb4")
        for start in list(starts.values())[1:]:
            axis.axvline(start / 3600, color="#9aa5b1", linewidth=0.8)
        axis.set_title(verdict.quantity, fontsize=9)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    for axis in list(axes.flat)[len(verdicts) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("hours", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _starts(looks: Sequence[Mapping[str, float]]) -> dict[int, float]:
    """Returns when each life began, in seconds of the soak."""
    starts: dict[int, float] = {}
    end = 0.0
    for life in sorted({int(look["life"]) for look in looks}):
        starts[life] = end
        end += max(look["seconds"] for look in looks if look["life"] == life)
    return starts
