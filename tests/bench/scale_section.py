"""The section of `docs/scale.md` about a real topic of many partitions, made from the results of the benchmark."""

from __future__ import annotations

from pathlib import Path

from tests.bench.figures import PHASES, Case, by_case, cpu_per_million, median_of, phase_seconds, rate, shapes
from tests.bench.report_shapes import SHAPE_HEADS, shape_cells
from tests.bench.results import Results, Run
from tests.bench.tables import spread_text, table

MANY = 1000
"""A topic of so many partitions, or more, has many."""
_HEADING = "## Real topics, the widest of {partitions} partitions"
_BEGIN = _HEADING.partition("{")[0]


def section(results: Results) -> str:
    """Returns the section; empty where no topic of many partitions was measured."""
    sink_shapes = shapes(results, "d")
    if not sink_shapes or sink_shapes[-1].partitions < MANY:
        return ""
    runs = by_case(results)
    rows = [[*shape_cells(shape), *_cells(runs[Case("d", shape)])] for shape in sink_shapes]
    heads = [*SHAPE_HEADS, "records/s", "CPU s per million", *PHASES, "files", "write tasks", "peak memory, MB"]
    heading = _HEADING.format(partitions=f"{sink_shapes[-1].partitions:,}")
    return f"""\
{heading}

Beside the simulated ones: one worker of two cores on a real broker, with Spark and Hudi, on topics that differ in
nothing but their partitions, as many records in a transaction as are named for warm-up. Seconds of a transaction by
[phase](benchmarks.md#time-by-phase), medians; memory of the JVM and all Pythons at one moment, the highest. The run is
that of [the benchmarks](benchmarks.md), {results.began[:10]}.

{table(heads, rows)}"""


def _cells(runs: list[Run]) -> list[str]:
    seconds = phase_seconds(phases for run in runs for phases in run.phases)
    return [
        spread_text(rate(runs), ",.0f"),
        spread_text(cpu_per_million(runs), ".2f"),
        *(f"{seconds[name]:.2f}" if seconds else "" for name in PHASES),
        f"{median_of(runs, lambda run: run.files):g}",
        f"{median_of(runs, lambda run: run.write_tasks):g}",
        f"{max(run.together for run in runs) / 2**20:,.0f}",
    ]


def with_section(page: str, results: Results) -> str:
    """Returns the page with the section of these results at its end, instead of an earlier one."""
    before = page.partition(f"\n{_BEGIN}")[0].rstrip("\n") + "\n"
    new_section = section(results)
    return f"{before}\n{new_section}" if new_section else before


def write_section(page: Path, results: Results) -> bool:
    """Writes the section into the page. Returns False, and leaves the page as it is, where the section is empty."""
    if not section(results):
        return False
    page.write_text(with_section(page.read_text(), results))
    return True
