"""What the benchmark says of its runs: medians, targets, the sampler's windows."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from pathlib import Path

import pytest

from coordination.tree import Summary
from tests.bench import data_report
from tests.bench.figures import Spread, gains, outside_write, phase_seconds, rate, targets
from tests.bench.fleet import phases
from tests.bench.report import render
from tests.bench.results import Freshness, Machine, Results, Run
from tests.bench.sampler import Reading, Role, Sampler
from tests.bench.spark_peer import Batch, batches_of

MACHINE = Machine(2, (0, 1), 2**34, "cpu", "system", "3.11", "Java 17", {"pyspark": "3.5.7"})
CONDITIONS = {"records": "8", "lead": "4", "heap": "2g", "load before": "0 0 0"}


def a_run(peer: str, seconds: float, number: int = 1) -> Run:
    return Run(peer, number, 1000, seconds, {Role.JVM.value: 1.0}, 0.1, {Role.PYTHON.value: 100 * 2**20})


def cold(seconds: float) -> dict[str, float]:
    return {"end_to_end_records": 1000.0, "end_to_end_seconds": seconds}


def results(*runs: Run, freshness: tuple[Freshness, ...] = ()) -> Results:
    return Results("python -m tests.bench", "now", MACHINE, CONDITIONS, runs, freshness)


def test_a_rate_is_the_median_of_its_rounds_with_both_ends() -> None:
    assert rate([a_run("a", 1.0), a_run("a", 2.0), a_run("a", 4.0)]) == Spread(500.0, 250.0, 1000.0)


def test_a_target_compares_medians_and_says_when_it_is_missed() -> None:
    found = {target.what: target for target in targets(results(a_run("a", 2.0), a_run("d", 1.0)))}
    assert found["(d) Arrow writer against (a)"].measured == pytest.approx(2.0)
    assert found["(d) Arrow writer against (a)"].reached
    slow = {target.what: target for target in targets(results(a_run("a", 1.0), a_run("d", 1.0)))}
    assert not slow["(d) Arrow writer against (a)"].reached


def test_what_two_in_flight_gain_is_the_ratio_of_rates() -> None:
    phases = ({"plan": 0.0, "begin": 0.5, "write": 4.0, "commit": 0.5, "settle": 0.0},)
    one = dataclasses.replace(a_run("d", 2.0), phases=phases, details=cold(3.0))
    two = dataclasses.replace(a_run("d-two", 1.0), details=cold(2.4))
    gain = next(gains(results(one, two)))
    assert (gain.seconds, gain.outside) == (5.0, 1.0)
    assert gain.ratio == pytest.approx(1.25)
    assert "+25 %" in render(results(one, two), "x")


def test_what_a_person_says_of_a_run_stands_at_its_head() -> None:
    said = dataclasses.replace(results(a_run("d", 1.0)), note="On a slow machine.")
    assert "\nOn a slow machine.\n" in render(said, "x").partition("## How it is measured")[0]


def test_what_was_not_run_is_neither_reached_nor_a_figure() -> None:
    target = next(iter(targets(results(a_run("d", 1.0)))))
    assert target.measured is None
    assert not target.reached
    text = render(results(a_run("d", 1.0)), "x")
    assert "not run" in text
    assert "Peers: a, b, b-bulk, c, d-nometa" in text


def test_phases_are_the_seconds_between_the_ledgers_times() -> None:
    first = {"PLANNED": 10.0, "STARTED": 11.0, "PREPARED": 15.0, "COMMITTED": 16.0, "ENDED": 16.5}
    second = {phase: at + 10 for phase, at in first.items()}
    summaries = [Summary(n, n, "COMMITTED", "i", 1, "", times) for n, times in ((1, first), (2, second))]
    found = phases(summaries)
    assert found[1] == {"plan": 3.5, "begin": 1.0, "write": 4.0, "commit": 1.0, "settle": 0.5}
    assert found[0]["plan"] == 0.0
    assert outside_write(phase_seconds(found)) == pytest.approx(1.75 + 1.0 + 1.0 + 0.5)


def test_a_window_counts_the_cpu_of_processes_that_have_ended() -> None:
    sampler = Sampler([])
    sampler._samples = [
        (0.0, {1: Reading(Role.JVM, 9, 5.0, 100)}),
        (1.0, {1: Reading(Role.JVM, 9, 6.0, 300), 2: Reading(Role.SPARK_PYTHON, 1, 1.0, 50)}),
        (2.0, {1: Reading(Role.JVM, 9, 7.0, 200)}),
    ]
    usage = sampler.usage(0.0, 2.0)
    assert usage.cpu == pytest.approx({Role.JVM: 2.0, Role.PYTHON: 0.0, Role.SPARK_PYTHON: 1.0})
    assert usage.peak == {Role.JVM: 300, Role.SPARK_PYTHON: 50}


def test_the_memory_of_a_jvm_is_counted_once_while_it_starts_another_program() -> None:
    sampler = Sampler([])
    sampler._samples = [(0.0, {1: Reading(Role.JVM, 9, 5.0, 300), 2: Reading(Role.JVM, 1, 0.0, 300)})]
    assert sampler.usage(0.0, 0.0).peak == {Role.JVM: 300}


def test_a_pair_is_compared_by_its_medians_and_what_was_not_run_is_said() -> None:
    runs = [a_run("avro-sink", 1.0), a_run("avro-spark", 1.1), a_run("partitions-sink", 1.0)]
    text = data_report.render(results(*runs))
    assert "| `avro` | at least 1.2 times | 1.10 times | **no** |" in text
    assert "| `partitions` | at least 1 times | not run |  |" in text


def test_a_trigger_that_moved_nothing_is_no_batch_and_the_first_begins_with_its_query() -> None:
    def progress(second: int, end: int) -> dict[str, object]:
        sources = [{"endOffset": {"t": {"0": end, "1": end}}}]
        return {"timestamp": f"2026-01-01T00:00:{second:02}.000Z", "durationMs": {"triggerExecution": 500}} | {
            "sources": sources
        }

    zero = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    found = batches_of([progress(2, 10), progress(3, 10), progress(4, 25)], zero, 4)
    assert found == [Batch(zero, zero + 2.5, 16), Batch(zero + 4, zero + 4.5, 30)]


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    fresh = Freshness(20, 60000, 1000, 1.0, 2.0, 3.0, 55, ({"write": 1.0},))
    found = results(dataclasses.replace(a_run("d", 1.0), phases=({"write": 1.0},)), freshness=(fresh,))
    kept = dataclasses.replace(found, note="On a slow machine.")
    kept.save(tmp_path / "results" / "x.json")
    assert Results.load(tmp_path / "results" / "x.json") == kept
