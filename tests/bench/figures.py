"""Medians, ranges and ratios out of results, and how they stand against what was to be reached. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.bench.results import Results, Run
from tests.bench.sampler import Role

INTERVAL_SECONDS = 60.0
"""The default of `transaction.interval.ms`, of which everything outside the write phase may take a share."""
PHASES = ("plan", "begin", "write", "commit", "settle")


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = list(values)
        return cls(statistics.median(found), min(found), max(found))


@dataclass(frozen=True, slots=True)
class Target:
    """`measured` is None when what it needs was not run. `wanted` is a bound from below, or from above."""

    what: str
    wanted: float
    at_least: bool
    unit: str
    measured: float | None

    @property
    def reached(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted


def by_peer(results: Results) -> Mapping[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in results.runs:
        found.setdefault(run.peer, []).append(run)
    return found


def rate(runs: Iterable[Run]) -> Spread:
    return Spread.of(run.rate for run in runs)


def cpu_per_million(runs: Iterable[Run]) -> Spread:
    return Spread.of(run.cpu_per_million for run in runs)


def role_per_million(runs: Iterable[Run], role: Role) -> float:
    """The part of one role in the CPU seconds for a million records, median; 0 when there is no such process."""
    return statistics.median(run.cpu.get(role.value, 0.0) / run.records * 1e6 for run in runs)


def broker_per_million(runs: Iterable[Run]) -> Spread:
    return Spread.of(run.broker_cpu / run.records * 1e6 for run in runs)


def peak(runs: Iterable[Run], role: Role) -> int:
    """The highest of all runs, in bytes; 0 when the peer has no such process."""
    return max((run.peak.get(role.value, 0) for run in runs), default=0)


def phase_seconds(phases: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    """Median of each phase over transactions."""
    found = list(phases)
    return {name: statistics.median(each[name] for each in found) for name in PHASES} if found else {}


def outside_write(phases: Mapping[str, float]) -> float:
    return sum(seconds for name, seconds in phases.items() if name != "write")


@dataclass(frozen=True, slots=True)
class Gain:
    """What two transactions in flight gain where one takes `seconds`, as the ratio of rates from end to end, cold.
    `outside`: of the seconds those outside the write phase."""

    seconds: float
    outside: float
    one: Spread
    two: Spread

    @property
    def ratio(self) -> float:
        return self.two.median / self.one.median


def gains(results: Results) -> Iterator[Gain]:
    """Smaller transactions first."""
    runs = by_peer(results)
    for one, two in (("d-half", "d-half-two"), ("d", "d-two")):
        if one in runs and two in runs:
            seconds = phase_seconds(phases for run in runs[one] for phases in run.phases)
            yield Gain(sum(seconds.values()), outside_write(seconds), cold_rate(runs[one]), cold_rate(runs[two]))


def targets(results: Results) -> Iterator[Target]:
    runs = by_peer(results)

    def ratio(one: str, other: str) -> float | None:
        return rate(runs[one]).median / rate(runs[other]).median if one in runs and other in runs else None

    yield Target("(d) Arrow writer against (a)", 1.4, True, "times", ratio("d", "a"))
    yield Target("(d) Arrow writer against (b)", 3.0, True, "times", ratio("d", "b"))
    yield Target("(d) Arrow writer against (b-bulk)", 3.0, True, "times", ratio("d", "b-bulk"))
    yield Target("(d) Arrow writer against (f)", 1.0, True, "times", ratio("d", "f"))
    yield Target("(d) without meta fields against (f)", 1.0, True, "times", ratio("d-nometa", "f"))
    cold = cold_rate(runs["d-two"]).median / cold_rate(runs["f"]).median if "d-two" in runs and "f" in runs else None
    yield Target("(d) with two transactions in flight against (f), end to end", 1.15, True, "times", cold)
    yield Target("(e) against (d)", 0.9, True, "times", ratio("e", "d"))
    phases = phase_seconds(phases for run in runs.get("d", []) for phases in run.phases)
    outside = 100 * outside_write(phases) / INTERVAL_SECONDS if phases else None
    yield Target("(d) outside the write phase, of a 60 s interval", 3.0, False, "%", outside)
    python = peak((run for each in ("d", "e") for run in runs.get(each, [])), Role.PYTHON) / 2**20 or None
    yield Target("(d), (e) a worker's own Python", 250.0, False, "MB", python)
    for fresh in results.freshness:
        yield Target(f"freshness p50 after {fresh.commits} commits", 2.5, False, "s", fresh.p50)
        yield Target(f"freshness p99 after {fresh.commits} commits", 5.0, False, "s", fresh.p99)


def cold_rate(runs: Iterable[Run]) -> Spread:
    """Records per second of the whole topic, from its first transaction on."""
    return Spread.of(run.details["end_to_end_records"] / run.details["end_to_end_seconds"] for run in runs)


def median_of(runs: Iterable[Run], value: Callable[[Run], float]) -> float:
    return statistics.median(map(value, runs))
