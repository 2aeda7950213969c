"""Medians, ranges and ratios out of results. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.bench.results import Results, Run, Shape
from tests.bench.sampler import Role

INTERVAL_SECONDS = 60.0
"""The default of `transaction.interval.ms`, of which everything outside the write phase may take a share."""
PHASES = ("plan", "begin", "write", "commit", "settle")
IDLE = "idle"
"""From when a transaction was written to when the next one begins to be: seconds in which nothing is written."""


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = list(values)
        return cls(statistics.median(found), min(found), max(found))


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A peer before a topic."""

    peer: str
    shape: Shape


def by_peer(results: Results) -> Mapping[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in results.runs:
        found.setdefault(run.peer, []).append(run)
    return found


def by_case(results: Results) -> Mapping[Case, list[Run]]:
    """In order of partitions and warm-up."""
    found: dict[Case, list[Run]] = {}
    for run in sorted(results.runs, key=lambda run: run.shape):
        found.setdefault(Case(run.peer, run.shape), []).append(run)
    return found


def shapes(results: Results, *peers: str) -> list[Shape]:
    """Those that every one of these peers was run with; without peers, all."""
    found = by_case(results)
    return sorted({case.shape for case in found if all(Case(peer, case.shape) in found for peer in peers)})


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
    names = found[0] if found else ()
    return {name: statistics.median(each[name] for each in found) for name in names}


def outside_write(phases: Mapping[str, float]) -> float:
    """Seconds of a transaction in which nothing is written."""
    others = sum(phases[name] for name in PHASES if name != "write" and name in phases)
    return phases.get(IDLE, others)


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain by two transactions in flight where one takes `seconds`: the ratio of rates from end to end, cold.
    `outside`: those of the seconds in which nothing is written."""

    shape: Shape
    seconds: float
    outside: float
    one: Spread
    two: Spread

    @property
    def ratio(self) -> float:
        return self.two.median / self.one.median


def gains(results: Results) -> Iterator[Gain]:
    """Smaller transactions first."""
    runs = by_case(results)
    for peer, other in (("d-half", "d-half-two"), ("d", "d-two"), ("e", "e-two")):
        for shape in shapes(results, peer, other):
            one, two = runs[Case(peer, shape)], runs[Case(other, shape)]
            seconds = phase_seconds(phases for run in one for phases in run.phases)
            whole = sum(seconds[name] for name in PHASES)
            yield Gain(shape, whole, outside_write(seconds), cold_rate(one), cold_rate(two))


def cold_rate(runs: Iterable[Run]) -> Spread:
    """Records per second of the whole topic, from its first transaction on."""
    return Spread.of(run.details["end_to_end_records"] / run.details["end_to_end_seconds"] for run in runs)


def median_of(runs: Iterable[Run], value: Callable[[Run], float]) -> float:
    return statistics.median(map(value, runs))
