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
"""Seconds in which nothing is written: from the end of a transaction's write to the start of the next one's."""


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def from_values(cls, values: Iterable[float]) -> Spread:
        samples = list(values)
        return cls(statistics.median(samples), min(samples), max(samples))


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A peer on a topic of one shape."""

    peer: str
    shape: Shape


def by_peer(results: Results) -> Mapping[str, list[Run]]:
    runs_by_peer: dict[str, list[Run]] = {}
    for run in results.runs:
        runs_by_peer.setdefault(run.peer, []).append(run)
    return runs_by_peer


def by_case(results: Results) -> Mapping[Case, list[Run]]:
    """Returns runs by case, in order of partitions and warm-up."""
    runs_by_case: dict[Case, list[Run]] = {}
    for run in sorted(results.runs, key=lambda run: run.shape):
        runs_by_case.setdefault(Case(run.peer, run.shape), []).append(run)
    return runs_by_case


def shapes(results: Results, *peers: str) -> list[Shape]:
    """Returns the shapes that every one of these peers was run with; without peers, all shapes."""
    runs_by_case = by_case(results)
    return sorted(
        {case.shape for case in runs_by_case if all(Case(peer, case.shape) in runs_by_case for peer in peers)}
    )


def rate(runs: Iterable[Run]) -> Spread:
    return Spread.from_values(run.rate for run in runs)


def cpu_per_million(runs: Iterable[Run]) -> Spread:
    return Spread.from_values(run.cpu_per_million for run in runs)


def role_per_million(runs: Iterable[Run], role: Role) -> float:
    """Returns the median CPU seconds of one role for a million records; 0 when there is no such process."""
    return statistics.median(run.cpu.get(role.value, 0.0) / run.records * 1e6 for run in runs)


def broker_per_million(runs: Iterable[Run]) -> Spread:
    return Spread.from_values(run.broker_cpu / run.records * 1e6 for run in runs)


def peak(runs: Iterable[Run], role: Role) -> int:
    """Returns the highest memory of all runs, in bytes; 0 when the peer has no such process."""
    return max((run.peak.get(role.value, 0) for run in runs), default=0)


def phase_seconds(phases: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    """Returns the median of each phase over transactions."""
    transactions = list(phases)
    names = transactions[0] if transactions else ()
    return {name: statistics.median(transaction[name] for transaction in transactions) for name in names}


def outside_write(phases: Mapping[str, float]) -> float:
    """Returns the seconds of a transaction in which nothing is written."""
    other_phases = sum(phases[name] for name in PHASES if name != "write" and name in phases)
    return phases.get(IDLE, other_phases)


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain by two transactions in flight where one takes `seconds`: the ratio of rates from end to end, cold.
    `outside`: the part of `seconds` in which nothing is written."""

    shape: Shape
    seconds: float
    outside: float
    one_in_flight: Spread
    two_in_flight: Spread

    @property
    def ratio(self) -> float:
        return self.two_in_flight.median / self.one_in_flight.median


def gains(results: Results) -> Iterator[Gain]:
    """Yields gains, smaller transactions first."""
    runs = by_case(results)
    for one_peer, two_peer in (("d-half", "d-half-two"), ("d", "d-two"), ("e", "e-two")):
        for shape in shapes(results, one_peer, two_peer):
            one_runs, two_runs = runs[Case(one_peer, shape)], runs[Case(two_peer, shape)]
            seconds = phase_seconds(phases for run in one_runs for phases in run.phases)
            total = sum(seconds[name] for name in PHASES)
            yield Gain(shape, total, outside_write(seconds), cold_rate(one_runs), cold_rate(two_runs))


def cold_rate(runs: Iterable[Run]) -> Spread:
    """Returns records per second of the whole topic, from its first transaction on."""
    return Spread.from_values(run.details["end_to_end_records"] / run.details["end_to_end_seconds"] for run in runs)


def median_of(runs: Iterable[Run], value: Callable[[Run], float]) -> float:
    return statistics.median(map(value, runs))
