"""Several sinks in one set of simulated processes: a process's fault hits all sinks, a sink's fault only itself."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from coordination.zookeeper.worker_records import WorkerRecord
from coordination.zookeeper.worker_summaries import WorkerSummary
from sink.runtime.turns import admission, spreading
from tests.simulation import many
from tests.simulation.many import Host, ManySinksWorld, Poison, SinkProcess
from tests.simulation.process import Process

POISONS = tuple(Poison)
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "200")) * 3 // 20
"""Each run simulates several sinks."""
COMPARED = 2
MUTANT_SEEDS = 30


@pytest.mark.timeout(1800)
def test_every_invariant_of_every_sink_holds_under_faults_of_processes_and_of_sinks() -> None:
    totals: Counter[str] = Counter()
    handed_over = 0
    for seed in range(SEEDS):
        report = ManySinksWorld(seed, POISONS[seed % len(POISONS)]).run()
        assert report.violation is None, f"seed {seed}, {report.poison}: {report.violation}"
        totals.update(report.counts)
        handed_over += report.handed_over
    assert handed_over >= SEEDS / 2
    for name in ("processes crashed", "processes paused", "processes drained", "sessions of processes lost"):
        assert totals[name] >= SEEDS / 20, (name, totals[name])
    assert totals["sinks refused"]
    assert totals["admissions withheld"] >= SEEDS
    assert totals["halts for bad records"] or totals["halts"]


@cache
def run_alone(seed: int) -> many.ManyReport:
    return ManySinksWorld(seed, shares=False).run()


@pytest.mark.parametrize("poison", [poison for poison in Poison if poison is not Poison.NONE])
def test_a_poisoned_sink_changes_not_one_step_of_the_others(poison: Poison) -> None:
    """Runs without hand-overs, which would depend on every sink that a worker leads."""
    for seed in range(COMPARED):
        alone = run_alone(seed)
        beside = ManySinksWorld(seed, poison, shares=False).run()
        assert (alone.violation, beside.violation) == (None, None)
        assert beside.healthy_until_healed == alone.healthy_until_healed


def _crash_of_one_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_hit(host: Host, hit: SinkProcess | None = None) -> list[SinkProcess]:
        return [hit] if hit is not None else list(host.parts.values())[:1]

    monkeypatch.setattr(Host, "all_parts", only_hit)


def _hands_over_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(own: WorkerRecord, _summaries: object, handed_over: Collection[str], _joined: object) -> str | None:
        return next((sink for sink in own.leads if sink not in handed_over), None)

    monkeypatch.setattr(spreading, "to_hand_over", always)


def _hands_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "to_hand_over", lambda *_: None)


def _impaired_sinks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    original, summed_up = spreading.to_hand_over, spreading.summary_of

    def healthy(record: WorkerRecord) -> WorkerRecord:
        return replace(record, sinks={name: replace(sink, impaired=False) for name, sink in record.sinks.items()})

    monkeypatch.setattr(spreading, "to_hand_over", lambda own, *rest: original(healthy(own), *rest))
    monkeypatch.setattr(spreading, "summary_of", lambda record, *rest: summed_up(healthy(record), *rest))


def _impaired_elsewhere_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "impaired_sinks", lambda _summaries: frozenset())


def _nobody_is_known_to_have_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "_joined_by", lambda *_: ())


def _summaries_carry_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that counts the sinks that were joined would look as heavy as the own one."""
    original = spreading.summary_of

    def heavy(record: WorkerRecord, *rest: Any) -> WorkerSummary:
        return replace(original(record, *rest), load=sum(sink.weight for sink in record.sinks.values()))

    monkeypatch.setattr(spreading, "summary_of", heavy)


def _leaving_takes_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Host.part_left

    def part_left(host: Host, part: Process) -> None:
        for other in host.parts.values():
            if other is not part and other.alive and not host.down:
                other._leave()
        original(host, part)

    monkeypatch.setattr(Host, "part_left", part_left)


def _places_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the time-out too, which alone would free the places."""
    monkeypatch.setattr(admission, "PATIENCE_SECONDS", math.inf)
    monkeypatch.setattr(admission.AdmissionControl, "forget", lambda *_: None)


MUTANTS: tuple[tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...], Poison], ...] = (
    (_crash_of_one_sink, (many.ENDS_WITH_ITS_PROCESS,), Poison.NONE),
    (_hands_over_for_ever, (many.STEADY, many.EVEN), Poison.NONE),
    (_hands_nothing_over, (many.EVEN,), Poison.NONE),
    (_impaired_sinks_count, (many.STEADY, many.EVEN), Poison.AWAY),
    (_impaired_elsewhere_counts, (many.STEADY, many.EVEN), Poison.AWAY),
    (_nobody_is_known_to_have_joined, (many.EVEN,), Poison.NONE),
    (_summaries_carry_too_much, (many.EVEN,), Poison.NONE),
    (_leaving_takes_others_along, (many.LEAVES_ALONE,), Poison.NONE),
    (_places_kept_for_ever, (many.ADMITTED,), Poison.NONE),
)


@pytest.mark.parametrize(("mutant", "invariants", "poison"), MUTANTS, ids=[mutant.__name__ for mutant, *_ in MUTANTS])
def test_a_broken_rule_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None],
    invariants: tuple[str, ...],
    poison: Poison,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    broken = (ManySinksWorld(seed, poison).run().violation for seed in range(MUTANT_SEEDS))
    caught = next((violation for violation in broken if violation and violation.invariant in invariants), None)
    assert caught is not None, f"survived {MUTANT_SEEDS} seeds"
