"""The parts of `docs/benchmarks.md` that compare topics of different numbers of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Case, by_case, cold_rate, cpu_per_million, median_of, peak, phase_seconds, rate, shapes
from tests.bench.results import Backlog, Results, Run, Shape
from tests.bench.sampler import Role
from tests.bench.tables import spread_text, table

MB = 2**20


def shape_cells(shape: Shape) -> list[str]:
    """Returns the cells beside every figure, under `SHAPE_HEADS`."""
    return [f"{shape.partitions:,}", f"{shape.warm_up / 1e6:g}"]


SHAPE_HEADS = ("Kafka partitions", "warm-up, million")


RATE_HEADS = ("records/s", "cold, records/s", "CPU s per million")
COST_HEADS = ("files of a commit", "commit phase, s", "JVM, MB", "all at one moment, MB")


def by_partitions(results: Results) -> str:
    """Compares the sink with Kafka Connect, by shape; empty where there is only one number of partitions."""
    sink_shapes = shapes(results, "d")
    if len({shape.partitions for shape in sink_shapes}) < 2:
        return ""
    heads = [*SHAPE_HEADS, "sink, records/s", "Kafka Connect, records/s", "ratio", "of the narrowest"]
    heads += ["sink, cold", "Kafka Connect, cold", "sink, CPU s per million", "Kafka Connect, CPU s per million"]
    heads += [f"sink, {head}" for head in COST_HEADS]
    rows = []
    for shape in sink_shapes:
        costs = cost_cells(by_case(results)[Case("d", shape)])
        rows.append([*shape_cells(shape), *_rates(results, shape, sink_shapes[0].partitions), *costs])
    return (
        "## By number of partitions\n\n"
        "(d), one worker of two cores with the Arrow writer, and (f), Kafka Connect with the Iceberg sink, two tasks:\n"
        "medians of rounds; memory is the highest of all. *Of the narrowest*: the sink's rate against its own on the\n"
        f"topic with the fewest partitions.\n\n{table(heads, rows)}"
    )


def _rates(results: Results, shape: Shape, narrowest: int) -> list[str]:
    runs = by_case(results)
    sink_runs, connect_runs = runs[Case("d", shape)], runs.get(Case("f", shape), [])
    narrow_runs = runs.get(Case("d", Shape(narrowest, shape.warm_up)), [])
    return [
        f"**{rate(sink_runs).median:,.0f}**",
        f"**{rate(connect_runs).median:,.0f}**" if connect_runs else "not run",
        f"{rate(sink_runs).median / rate(connect_runs).median:.2f}" if connect_runs else "",
        f"{rate(sink_runs).median / rate(narrow_runs).median:.2f}" if narrow_runs else "",
        _cold(sink_runs),
        _cold(connect_runs),
        f"{cpu_per_million(sink_runs).median:.2f}",
        f"{cpu_per_million(connect_runs).median:.2f}" if connect_runs else "",
    ]


def rate_cells(runs: Sequence[Run]) -> list[str]:
    """Returns the cells under `RATE_HEADS`."""
    return [spread_text(rate(runs), ",.0f"), _cold(runs), f"{cpu_per_million(runs).median:.2f}"]


def _cold(runs: Sequence[Run]) -> str:
    known = runs and all("end_to_end_seconds" in run.details for run in runs)
    return f"{cold_rate(runs).median:,.0f}" if known else ""


def cost_cells(runs: Sequence[Run]) -> list[str]:
    """Returns the cells under `COST_HEADS`; empty where a figure was not taken."""
    phases = phase_seconds(transaction for run in runs for transaction in run.phases)
    files, together = median_of(runs, lambda run: run.files), max(run.together for run in runs)
    return [
        f"{files:g}" if files else "",
        f"{phases['commit']:.2f}" if phases else "",
        f"{peak(runs, Role.JVM) / MB:,.0f}",
        f"{together / MB:,.0f}" if together else "",
    ]


def backlogs(results: Results) -> str:
    if not results.backlogs:
        return ""
    return (
        "## A backlog on a small heap\n\n"
        "One worker of two cores with default settings, and a topic that has waited and has some large records.\n"
        "Memory is the highest resident size; *shared once* counts a page that processes share in parts (PSS).\n\n"
        + backlog_table(results.backlogs)
    )


def backlog_table(measured_backlogs: Sequence[Backlog]) -> str:
    heads = ["Kafka partitions", "table partitions", "heap", "records", "large ones", "landed", "seconds", "commits"]
    heads += ["aborted", "out of memory", "JVM, MB", "Pythons, MB", "all at one moment, MB", "shared once, MB"]
    rows = []
    for backlog in measured_backlogs:
        sizes = (backlog.jvm, backlog.pythons, backlog.together, backlog.proportional)
        rows.append(
            [
                f"{backlog.partitions:,}",
                str(backlog.table_partitions),
                backlog.heap,
                f"{backlog.records:,}",
                f"{backlog.large:,} of {backlog.large_bytes / 1e6:g} MB",
                "all" if backlog.all_landed else f"**{backlog.landed:,}**",
                f"{backlog.seconds:.0f}",
                str(backlog.committed),
                str(backlog.aborted),
                str(backlog.out_of_memory),
                *(f"{size / MB:,.0f}" for size in sizes),
            ]
        )
    troubles = "".join(f"\n- Trouble: {backlog.trouble}\n" for backlog in measured_backlogs if backlog.trouble)
    return table(heads, rows) + troubles
