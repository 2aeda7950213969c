"""The plot of `docs/benchmarks.png`: rates by peer, and where the time of the sink's transactions goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tests.bench.figures import PHASES, by_peer, phase_seconds, rate
from tests.bench.peers import ALL
from tests.bench.results import Results

OURS, OTHERS = "#1f6fb4", "#9aa5b1"
PHASE_COLOURS = ("#c9d6e2", "#7fb3dd", "#1f6fb4", "#f2a65a", "#8c6bb1")


def draw(results: Results, path: Path) -> None:
    with _figure(path) as (left, right):
        _rates(left, results)
        _phases(right, results)


@contextmanager
def _figure(path: Path) -> Iterator[tuple[Axes, Axes]]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=(5, 4))
    yield left, right
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _rates(axes: Axes, results: Results) -> None:
    runs = by_peer(results)
    peers = [peer for peer in reversed(ALL) if peer.name in runs]
    spreads = [rate(runs[peer.name]) for peer in peers]
    thousands = [spread.median / 1000 for spread in spreads]
    errors = [
        [(spread.median - spread.least) / 1000 for spread in spreads],
        [(spread.most - spread.median) / 1000 for spread in spreads],
    ]
    colours = [OURS if peer.name[0] in "de" else OTHERS for peer in peers]
    labels = [f"{peer.what.replace('`', '')}  ({peer.name})" for peer in peers]
    axes.barh(labels, thousands, xerr=errors, color=colours, error_kw={"ecolor": "#444444", "capsize": 2})
    for index, value in enumerate(thousands):
        axes.text(value / 2, index, f"{value:,.0f}", va="center", ha="center", color="white", fontsize=9)
    axes.set_xlabel("thousand records a second on two cores")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _phases(axes: Axes, results: Results) -> None:
    rows = {
        peer: phase_seconds(phases for run in runs for phases in run.phases)
        for peer, runs in reversed(list(by_peer(results).items()))
        if any(run.phases for run in runs)
    }
    starts = dict.fromkeys(rows, 0.0)
    for phase, colour in zip(PHASES, PHASE_COLOURS, strict=True):
        widths = [seconds[phase] for seconds in rows.values()]
        axes.barh(list(rows), widths, left=list(starts.values()), color=colour, label=phase)
        starts = {peer: at + rows[peer][phase] for peer, at in starts.items()}
    axes.set_xlabel(f"seconds of a transaction of {int(results.conditions['lead']):,} records")
    if rows:
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
