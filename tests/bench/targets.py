"""The targets, and how results stand against them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.figures import (
    INTERVAL_SECONDS,
    Case,
    by_case,
    cpu_per_million,
    median_of,
    outside_write,
    peak,
    phase_seconds,
    rate,
    shapes,
)
from tests.bench.results import Backlog, Freshness, Results, Shape
from tests.bench.sampler import Role

NARROW, WIDE = 4, 128
"""Partitions of a topic up to which the bound for narrow topics and the one for wide topics hold; a wider topic has a
lower bound."""
RATIOS = (
    ("(d) Arrow writer against (a)", "d", "a", 1.4),
    ("(d) Arrow writer against (b)", "d", "b", 3.0),
    ("(d) Arrow writer against (b-bulk)", "d", "b-bulk", 3.0),
    ("(d) without meta fields against (f)", "d-nometa", "f", 1.0),
    ("(e) two workers of one core against (d) one of two", "e", "d", 0.93),
)


@dataclass(frozen=True, slots=True)
class Target:
    """`measured` is None when a peer that it needs was not run. `wanted` is a bound from below, or from above."""

    description: str
    wanted: float
    at_least: bool
    unit: str
    measured: float | None

    @property
    def reached(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted


def targets(results: Results) -> Iterator[Target]:
    yield from _against_connect(results)
    yield from _by_partitions(results)
    for description, peer, baseline, wanted in RATIOS:
        yield from _ratios(results, description, peer, baseline, wanted)
    yield from _costs(results)
    for freshness in results.freshness:
        yield from _fresh(freshness)
    for backlog in results.backlogs:
        yield from _landed(backlog)


def ratio(results: Results, case: Case, baseline: Case) -> float:
    runs = by_case(results)
    return rate(runs[case]).median / rate(runs[baseline]).median


def _ratios(results: Results, description: str, peer: str, baseline: str, wanted: float) -> Iterator[Target]:
    common = shapes(results, peer, baseline)
    if not common:
        yield Target(description, wanted, True, "times", None)
    for shape in common:
        measured = ratio(results, Case(peer, shape), Case(baseline, shape))
        yield Target(f"{description}, {shape}", wanted, True, "times", measured)


def _against_connect(results: Results) -> Iterator[Target]:
    description = "(d) Arrow writer against (f)"
    common = shapes(results, "d", "f")
    if not common:
        yield Target(description, 1.3, True, "times", None)
    for shape in common:
        wanted = 1.3 if shape.partitions <= WIDE else 1.2
        yield Target(
            f"{description}, {shape}", wanted, True, "times", ratio(results, Case("d", shape), Case("f", shape))
        )


def _by_partitions(results: Results) -> Iterator[Target]:
    """Wide topics against the narrowest one, with the same warm-up."""
    sink_shapes = shapes(results, "d")
    for shape in sink_shapes:
        narrow = Shape(sink_shapes[0].partitions, shape.warm_up)
        if shape != narrow and narrow in sink_shapes:
            description = f"(d) rate against that on {narrow.partitions:,} partitions, {shape}"
            wanted = 0.95 if shape.partitions <= WIDE else 0.85
            yield Target(description, wanted, True, "times", ratio(results, Case("d", shape), Case("d", narrow)))


def _costs(results: Results) -> Iterator[Target]:
    runs = by_case(results)
    sink_shapes = shapes(results, "d")
    warm = [shape for shape in sink_shapes if shape.partitions == sink_shapes[0].partitions][-1:]
    for shape in warm:
        shape_runs = runs[Case("d", shape)]
        description = f"(d) CPU seconds per million records, {shape}"
        yield Target(description, 2.8, False, "s", cpu_per_million(shape_runs).median)
        outside = outside_write(phase_seconds(transaction for run in shape_runs for transaction in run.phases))
        description = f"(d) outside the write phase, of a {INTERVAL_SECONDS:g} s interval, {shape}"
        yield Target(description, 3.0, False, "%", 100 * outside / INTERVAL_SECONDS)
    for case, case_runs in runs.items():
        if case.peer in ("d", "d-spread") and all(run.write_tasks for run in case_runs):
            files = median_of(case_runs, lambda run: run.files / run.table_partitions / run.write_tasks)
            description = f"({case.peer}) files of a commit for each table partition and write task, {case.shape}"
            yield Target(description, 1.0, False, "", files)
    for shape in shapes(results, "d-spread"):
        shape_runs = runs[Case("d-spread", shape)]
        seconds = phase_seconds(transaction for run in shape_runs for transaction in run.phases)
        description = f"commit phase, {shape_runs[0].table_partitions} table partitions, {shape}"
        yield Target(description, 1.0, False, "s", seconds["commit"])
    python = peak((run for run in results.runs if run.peer in ("d", "e")), Role.PYTHON) / 2**20 or None
    yield Target("(d), (e) a worker's own Python", 250.0, False, "MB", python)


def _fresh(freshness: Freshness) -> Iterator[Target]:
    p50, p99 = (1.5, 3.0) if freshness.partitions <= NARROW else (2.0, 4.0)
    label = f"after {freshness.commits:,} commits, {freshness.partitions:,} partitions"
    yield Target(f"freshness p50 {label}", p50, False, "s", freshness.p50)
    yield Target(f"freshness p99 {label}", p99, False, "s", freshness.p99)


def _landed(backlog: Backlog) -> Iterator[Target]:
    label = f"backlog, {backlog.partitions:,} partitions, {backlog.table_partitions} table partitions"
    yield Target(f"{label}: landed", 100.0, True, "%", 100 * backlog.landed / backlog.records)
    yield Target(f"{label}: aborted transactions", 0.0, False, "", backlog.aborted)
    yield Target(f"{label}: lines of the log that tell of too little memory", 0.0, False, "", backlog.out_of_memory)
    yield Target(f"{label}: JVM and Pythons together", 3.0, False, "GB", backlog.together / 2**30)
