"""The parts of `docs/benchmarks.md` that compare topics of different numbers of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Case, by_case, cpu_per_million, median_of, peak, phase_seconds, rate, shapes
from tests.bench.results import Backlog, Results, Run, Shape
from tests.bench.sampler import Role
from tests.bench.tables import spread_text, table

MB = 2**20


def shape_cells(shape: Shape) -> list[str]:
    """Returns the cells beside every figure, under `SHAPE_HEADS`."""
    return [f"{shape.partitions:,}", f"{shape.warm_up / 1e6:g}"]


SHAPE_HEADS = ("Kafka partitions", "warm-up, million")


def by_partitions(results: Results) -> str:
    """Compares the sink with Kafka Connect, by shape; empty where there is only one number of partitions."""
    sink_shapes = shapes(results, "d")
    if len({shape.partitions for shape in sink_shapes}) < 2:
        return ""
    heads = [*SHAPE_HEADS, "sink, records/s", "Kafka Connect, records/s", "ratio", "of the narrowest"]
    heads += ["sink, CPU s per million", "Kafka Connect, CPU s per million"]
    rows = [[*shape_cells(shape), *_rates(results, shape, sink_shapes[0].partitions)] for shape in sink_shapes]
    costs = [[*shape_cells(shape), *_costs(by_case(results)[Case("d", shape)])] for shape in sink_shapes]
    cost_heads = [*SHAPE_HEADS, "files of a commit", "write tasks", "commit phase, s", "JVM, MB"]
    cost_heads += ["worker's Python, MB", "Spark's Pythons, MB", "all at one moment, MB"]
    return (
        "## By number of partitions\n\n"
        "(d), one worker of two cores with the Arrow writer, and (f), Kafka Connect with the Iceberg sink, two tasks.\n"
        "*Of the narrowest*: the sink's rate against its own on the topic with the fewest partitions.\n\n"
        f"{table(heads, rows)}\n"
        "The sink's commits and memory: medians over counted commits and rounds; memory is the highest of all.\n\n"
        f"{table(cost_heads, costs)}"
    )


def _rates(results: Results, shape: Shape, narrowest: int) -> list[str]:
    runs = by_case(results)
    sink_runs, connect_runs = runs[Case("d", shape)], runs.get(Case("f", shape), [])
    narrow_runs = runs.get(Case("d", Shape(narrowest, shape.warm_up)), [])
    return [
        spread_text(rate(sink_runs), ",.0f"),
        spread_text(rate(connect_runs), ",.0f") if connect_runs else "not run",
        f"{rate(sink_runs).median / rate(connect_runs).median:.2f}" if connect_runs else "",
        f"{rate(sink_runs).median / rate(narrow_runs).median:.2f}" if narrow_runs else "",
        spread_text(cpu_per_million(sink_runs), ".2f"),
        spread_text(cpu_per_million(connect_runs), ".2f") if connect_runs else "",
    ]


def _costs(runs: Sequence[Run]) -> list[str]:
    phases = phase_seconds(transaction for run in runs for transaction in run.phases)
    return [
        f"{median_of(runs, lambda run: run.files):g}",
        f"{median_of(runs, lambda run: run.write_tasks):g}",
        f"{phases['commit']:.2f}" if phases else "",
        *(f"{peak(runs, role) / MB:,.0f}" for role in (Role.JVM, Role.PYTHON, Role.SPARK_PYTHON)),
        f"{max(run.together for run in runs) / MB:,.0f}",
    ]


def spread(results: Results) -> str:
    """Returns the section on commits into several table partitions."""
    rows = [
        [str(runs[0].table_partitions), *shape_cells(case.shape), spread_text(rate(runs), ",.0f"), *_costs(runs)]
        for case, runs in by_case(results).items()
        if runs[0].table_partitions > 1
    ]
    if not rows:
        return ""
    heads = ["table partitions", *SHAPE_HEADS, "records/s", "files of a commit", "write tasks", "commit phase, s"]
    heads += ["JVM, MB", "worker's Python, MB", "Spark's Pythons, MB", "all at one moment, MB"]
    return f"## Into several table partitions\n\n{table(heads, rows)}"


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
