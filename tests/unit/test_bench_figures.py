"""The benchmark computes figures of its runs: medians, targets, the sampler's windows."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from coordination.state.tree import Summary
from tests.bench import data_report
from tests.bench.figures import PHASES, Case, Spread, by_case, gains, outside_write, phase_seconds, rate, shapes
from tests.bench.fleet import phases
from tests.bench.report import render
from tests.bench.results import Backlog, Freshness, Machine, Results, Run, Shape, merge_results
from tests.bench.sampler import Reading, Role, Sampler
from tests.bench.sink_run import leading
from tests.bench.spark_peer import Batch, batches_of
from tests.bench.targets import Target, targets

MACHINE = Machine(2, (0, 1), 2**34, "cpu", "system", "3.11", "Java 17", {"pyspark": "3.5.7"})
CONDITIONS = {"records": "8", "lead": "4", "heap": "2g", "load before": "0 0 0"}


MILLION = 1_000_000
NARROW = Shape(4, 4 * MILLION)


def a_run(peer: str, seconds: float, number: int = 1, shape: Shape = NARROW) -> Run:
    return Run(
        peer,
        number,
        1000,
        seconds,
        {Role.JVM.value: 1.0},
        0.1,
        {Role.PYTHON.value: 100 * 2**20},
        partitions=shape.partitions,
        warm_up=shape.warm_up,
    )


def cold(seconds: float) -> dict[str, float]:
    return {"end_to_end_records": 1000.0, "end_to_end_seconds": seconds}


def results(*runs: Run, freshness: tuple[Freshness, ...] = ()) -> Results:
    return Results("python -m tests.bench", "now", MACHINE, CONDITIONS, runs, freshness)


def test_a_rate_is_the_median_of_its_rounds_with_both_ends() -> None:
    assert rate([a_run("a", 1.0), a_run("a", 2.0), a_run("a", 4.0)]) == Spread(500.0, 250.0, 1000.0)


def by_name(measured: Results) -> dict[str, Target]:
    return {target.description: target for target in targets(measured)}


def test_a_target_compares_medians_and_says_when_it_is_missed() -> None:
    against_spark = "(d) Arrow writer against (a), 4 partitions, 4 million to warm up"
    named_targets = by_name(results(a_run("a", 2.0), a_run("d", 1.0)))
    assert named_targets[against_spark].measured == pytest.approx(2.0)
    assert named_targets[against_spark].reached
    assert not by_name(results(a_run("a", 1.0), a_run("d", 1.0)))[against_spark].reached


def test_runs_on_topics_of_other_shapes_are_never_one_figure() -> None:
    wide = Shape(1024, 2 * MILLION)
    runs = [a_run("d", 1.0), a_run("d", 3.0, 2), a_run("d", 8.0, 1, wide), a_run("f", 4.0, 1, wide)]
    measured = results(*runs)
    assert list(by_case(measured)) == [Case("d", NARROW), Case("d", wide), Case("f", wide)]
    assert rate(by_case(measured)[Case("d", NARROW)]).median == pytest.approx(2000 / 3)
    assert shapes(measured, "d", "f") == [wide]
    assert by_name(measured)[f"(d) Arrow writer against (f), {wide}"].measured == pytest.approx(0.5)


def test_the_widest_topics_may_be_slower_than_narrow_ones_and_only_those() -> None:
    warm = 2 * MILLION
    seconds = {4: 1.0, 128: 1.1, 1024: 1.1}
    runs = [a_run("d", duration, 1, Shape(partitions, warm)) for partitions, duration in seconds.items()]
    named_targets = by_name(
        results(*runs, a_run("f", 1.375, 1, Shape(128, warm)), a_run("f", 1.375, 1, Shape(1024, warm)))
    )
    beside_narrow = "(d) rate against that on 4 partitions, {}"
    assert not named_targets[beside_narrow.format(Shape(128, warm))].reached
    assert named_targets[beside_narrow.format(Shape(1024, warm))].reached
    assert not named_targets[f"(d) Arrow writer against (f), {Shape(128, warm)}"].reached
    assert named_targets[f"(d) Arrow writer against (f), {Shape(1024, warm)}"].reached


def test_the_page_shows_every_number_of_partitions_with_its_ratio() -> None:
    runs = []
    for partitions, seconds in ((4, 1.0), (128, 2.0), (1024, 4.0)):
        shape = Shape(partitions, 2 * MILLION)
        run = dataclasses.replace(a_run("d", seconds, 1, shape), files=2.0, write_tasks=2.0)
        runs += [run, a_run("f", 2.0, 1, shape)]
    table = render(results(*runs), "x").partition("## By number of partitions")[2].partition("## Throughput")[0]
    assert "| 4 | 2 | **1,000** | **500** | 2.00 | 1.00 |" in table
    assert "| 128 | 2 | **500** | **500** | 1.00 | 0.50 |" in table
    assert "| 1,024 | 2 | **250** | **500** | 0.50 | 0.25 |" in table


def test_a_commit_that_has_a_file_for_each_kafka_partition_has_too_many() -> None:
    shape = Shape(128, 2 * MILLION)
    phases = (dict.fromkeys(PHASES, 1.5),)
    run = dataclasses.replace(a_run("d-spread", 1.0, 1, shape), table_partitions=8, phases=phases)
    few = by_name(results(dataclasses.replace(run, files=16.0, write_tasks=2.0)))
    many = by_name(results(dataclasses.replace(run, files=1024.0, write_tasks=2.0)))
    files = f"(d-spread) files of a commit for each table partition and write task, {shape}"
    assert few[files].reached
    assert not many[files].reached
    assert many[f"commit phase, 8 table partitions, {shape}"].measured == 1.5


def test_as_many_transactions_warm_up_as_it_takes_to_move_the_lead() -> None:
    assert leading([4, 4, 4], 4) == 1
    assert leading([2, 2, 4], 4) == 2
    assert leading([3, 3, 3], 4) == 2
    assert leading([4, 4], 0) == 0


BACKLOG = Backlog(
    partitions=1024,
    table_partitions=8,
    heap="1g",
    records=5000,
    large=2,
    large_bytes=5_000_000,
    landed=5000,
    seconds=60.0,
    committed=3,
    aborted=0,
    out_of_memory=0,
    jvm=2**30,
    pythons=2**30,
    together=2 * 2**30,
    proportional=2**30,
)


def test_a_backlog_has_to_land_whole_without_an_abort_and_in_little_memory() -> None:
    good = dataclasses.replace(results(), backlogs=(BACKLOG,))
    assert all(target.reached for description, target in by_name(good).items() if description.startswith("backlog"))
    bad = dataclasses.replace(BACKLOG, landed=4999, aborted=1, out_of_memory=1, together=4 * 2**30, trouble="too late")
    missed = dataclasses.replace(results(), backlogs=(bad,))
    assert not any(
        target.reached for description, target in by_name(missed).items() if description.startswith("backlog")
    )
    text = render(missed, "x")
    assert "**4,999**" in text
    assert "Trouble: too late" in text


def test_freshness_of_a_wide_topic_has_a_bound_of_its_own() -> None:
    narrow = Freshness(10, 60000, 1000, 1.8, 3.5, 4.0, 55)
    measured = results(freshness=(narrow, dataclasses.replace(narrow, partitions=128)))
    reached = {
        description: target.reached
        for description, target in by_name(measured).items()
        if description.startswith("freshness p50")
    }
    assert reached == {
        "freshness p50 after 10 commits, 4 partitions": False,
        "freshness p50 after 10 commits, 128 partitions": True,
    }


def test_what_two_in_flight_gain_is_the_ratio_of_rates() -> None:
    phases = ({"plan": 0.0, "begin": 0.5, "write": 4.0, "commit": 0.5, "settle": 0.0},)
    single = dataclasses.replace(a_run("d", 2.0), phases=phases, details=cold(3.0))
    pipelined = dataclasses.replace(a_run("d-two", 1.0), details=cold(2.4))
    gain = next(gains(results(single, pipelined)))
    assert (gain.seconds, gain.outside) == (5.0, 1.0)
    assert gain.ratio == pytest.approx(1.25)
    assert "+25 %" in render(results(single, pipelined), "x")


def test_what_a_person_says_of_a_run_stands_at_its_head() -> None:
    noted = dataclasses.replace(results(a_run("d", 1.0)), note="On a slow machine.")
    assert "\nOn a slow machine.\n" in render(noted, "x").partition("## How it is measured")[0]


def test_what_was_not_run_is_neither_reached_nor_a_figure() -> None:
    target = by_name(results(a_run("d", 1.0)))["(d) Arrow writer against (f)"]
    assert target.measured is None
    assert not target.reached
    text = render(results(a_run("d", 1.0)), "benchmarks")
    assert "not run" in text
    assert "Peers: a, b, b-bulk, c, d-nometa" in text
    assert "A backlog on a small heap." in text


def test_phases_are_the_seconds_between_the_ledgers_times() -> None:
    first = {"PLANNED": 10.0, "STARTED": 11.0, "PREPARED": 15.0, "COMMITTED": 16.0, "ENDED": 16.5}
    second = {phase: at + 10 for phase, at in first.items()}
    summaries = [Summary(n, n, "COMMITTED", "i", 1, "", times) for n, times in ((1, first), (2, second))]
    phases_of_transactions = phases(summaries)
    assert phases_of_transactions[1] == {
        "plan": 3.5,
        "begin": 1.0,
        "write": 4.0,
        "commit": 1.0,
        "settle": 0.5,
        "idle": 6.0,
    }
    assert phases_of_transactions[0]["plan"] == 0.0
    assert outside_write(phase_seconds(phases_of_transactions)) == 3.5


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


def test_memory_of_all_is_the_highest_sum_at_one_moment_and_not_the_sum_of_the_highest() -> None:
    sampler = Sampler([])
    sampler._samples = [
        (0.0, {1: Reading(Role.JVM, 9, 5.0, 300, 250), 2: Reading(Role.SPARK_PYTHON, 1, 1.0, 50, 20)}),
        (1.0, {1: Reading(Role.JVM, 9, 6.0, 100, 90), 2: Reading(Role.SPARK_PYTHON, 1, 1.0, 200, 100)}),
    ]
    usage = sampler.usage(0.0, 1.0)
    assert (usage.together, usage.proportional) == (350, 270)


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
    batches = batches_of([progress(2, 10), progress(3, 10), progress(4, 25)], zero, 4)
    assert batches == [Batch(zero, zero + 2.5, 16), Batch(zero + 4, zero + 4.5, 30)]


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    fresh = Freshness(20, 60000, 1000, 1.0, 2.0, 3.0, 55, ({"write": 1.0},))
    measured = results(dataclasses.replace(a_run("d", 1.0), phases=({"write": 1.0},)), freshness=(fresh,))
    saved = dataclasses.replace(measured, note="On a slow machine.", backlogs=(BACKLOG,))
    saved.save(tmp_path / "results" / "x.json")
    assert Results.load(tmp_path / "results" / "x.json") == saved


def test_results_from_before_shapes_were_noted_are_of_four_partitions_and_the_lead(tmp_path: Path) -> None:
    saved = results(a_run("d", 1.0))
    document = dataclasses.asdict(saved)
    for name in ("partitions", "warm_up", "together", "files", "write_tasks", "table_partitions"):
        del document["runs"][0][name]
    del document["backlogs"]
    (tmp_path / "old.json").write_text(json.dumps(document))
    run = Results.load(tmp_path / "old.json").runs[0]
    assert run.shape == Shape(4, int(CONDITIONS["lead"]))


def test_results_of_several_commands_are_one_page() -> None:
    first = results(a_run("d", 1.0))
    second = dataclasses.replace(results(a_run("f", 1.0)), backlogs=(BACKLOG,))
    merged = merge_results([first, second])
    assert (len(merged.runs), merged.backlogs) == (2, (BACKLOG,))
