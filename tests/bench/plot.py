"""The plot of `docs/benchmarks.png`: rates by topic and peer, and where the time of the sink's transactions goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tests.bench.figures import PHASES, Case, Spread, by_case, phase_seconds, rate, shapes
from tests.bench.peers import ALL
from tests.bench.results import Results

OURS, OTHERS = "#1f6fb4", "#9aa5b1"
PHASE_COLOURS = ("#c9d6e2", "#7fb3dd", "#1f6fb4", "#f2a65a", "#8c6bb1")
BAR = 0.8
"""Share of the distance between two rows, or between two groups of bars."""


def draw(results: Results, path: Path) -> None:
    wide = len({shape.partitions for shape in shapes(results, "d", "f")}) > 1
    with _figure(path, len(_transactions(results))) as (left, right):
        if wide:
            _by_partitions(left, results)
        else:
            _by_peer(left, results)
        _phases(right, results)


@contextmanager
def _figure(path: Path, rows: int) -> Iterator[tuple[Axes, Axes]]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, max(5.0, 0.55 * rows)), width_ratios=(5, 4))
    yield left, right
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _by_partitions(axes: Axes, results: Results) -> None:
    """Draws a group of bars for each number of partitions: the sink and Kafka Connect, by warm-up."""
    common_shapes, runs = shapes(results, "d", "f"), by_case(results)
    groups = sorted({shape.partitions for shape in common_shapes})
    series = [(peer, warm_up) for warm_up in sorted({shape.warm_up for shape in common_shapes}) for peer in ("d", "f")]
    width = BAR / len(series)
    for index, (peer, warm_up) in enumerate(series):
        shown = [shape for shape in common_shapes if shape.warm_up == warm_up]
        spreads = [rate(runs[Case(peer, shape)]) for shape in shown]
        at = [groups.index(shape.partitions) + (index + 0.5) * width - BAR / 2 for shape in shown]
        name = {"d": "sink", "f": "Kafka Connect, Iceberg"}[peer]
        colour = OURS if peer == "d" else OTHERS
        axes.bar(
            at,
            [spread.median / 1000 for spread in spreads],
            width * 0.95,
            yerr=_errors(spreads),
            color=colour,
            alpha=1.0 if warm_up == series[-1][1] else 0.6,
            label=f"{name}, {warm_up / 1e6:g} million to warm up",
            error_kw={"ecolor": "#444444", "capsize": 2},
        )
        for x, spread in zip(at, spreads, strict=True):
            axes.text(x, spread.median / 2000, f"{spread.median / 1000:,.0f}", ha="center", color="white", fontsize=8)
    axes.set_xticks(range(len(groups)), [f"{count:,} partitions" for count in groups])
    axes.set_ylabel("thousand records a second on two cores")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _by_peer(axes: Axes, results: Results) -> None:
    runs = by_case(results)
    order = [peer.name for peer in reversed(ALL)]
    descriptions = {peer.name: peer.description.replace("`", "") for peer in ALL}
    cases = sorted(
        (case for case in runs if case.peer in descriptions), key=lambda case: (order.index(case.peer), case.shape)
    )
    spreads = [rate(runs[case]) for case in cases]
    colours = [OURS if case.peer[0] in "de" else OTHERS for case in cases]
    labels = [f"{descriptions[case.peer]}  ({_label(case)})" for case in cases]
    rows = range(len(cases))
    thousands = [spread.median / 1000 for spread in spreads]
    axes.barh(rows, thousands, BAR, xerr=_errors(spreads), color=colours, error_kw={"ecolor": "#444444", "capsize": 2})
    for index, value in enumerate(thousands):
        axes.text(value / 2, index, f"{value:,.0f}", va="center", ha="center", color="white", fontsize=9)
    axes.set_yticks(rows, labels)
    axes.set_xlabel("thousand records a second on two cores")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _errors(spreads: list[Spread]) -> list[list[float]]:
    below = [(spread.median - spread.least) / 1000 for spread in spreads]
    return [below, [(spread.most - spread.median) / 1000 for spread in spreads]]


def _label(case: Case) -> str:
    return f"{case.peer}; {case.shape.partitions:,} partitions"


def _transactions(results: Results) -> list[tuple[str, Mapping[str, float]]]:
    """Returns label and phases of each bar, the first one at the bottom."""
    return [
        (
            f"{_label(case)}, {case.shape.warm_up / 1e6:g} M",
            phase_seconds(phases for run in runs for phases in run.phases),
        )
        for case, runs in reversed(by_case(results).items())
        if any(run.phases for run in runs)
    ]


def _phases(axes: Axes, results: Results) -> None:
    transactions = _transactions(results)
    rows, starts = range(len(transactions)), [0.0] * len(transactions)
    for phase, colour in zip(PHASES, PHASE_COLOURS, strict=True):
        widths = [seconds[phase] for _, seconds in transactions]
        axes.barh(rows, widths, BAR, left=starts, color=colour, label=phase)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks(rows, [label for label, _ in transactions])
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("seconds of a transaction")
    if transactions:
        axes.legend(
            ncols=len(PHASES),
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
            fontsize=8,
            columnspacing=1.0,
            handlelength=1.2,
        )
    axes.spines[["top", "right"]].set_visible(False)
