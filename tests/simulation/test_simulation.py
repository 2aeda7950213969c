"""The protocol holds under every schedule of faults that the seeds draw.

`make test-all` sets their number by SIMULATION_SEEDS; `python -m tests.simulation.run` runs more, with totals.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from coordination.planning.offsets import DataLossPolicy, OffsetReset
from tests.simulation.faults import NO_LIMIT, Profile, draw
from tests.simulation.run import described, too_little
from tests.simulation.schedule import DIRECTORY, NO_FAULT, Recorder, Replay, Schedule
from tests.simulation.world import World

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "50"))
"""`make test-all` asks for 1,000."""
PORTION = min(100, SEEDS)
NO_FAULTS = dict.fromkeys(
    (
        "lost",
        "answer_lost",
        "late",
        "failed",
        "crash_at",
        "pause_at",
        "duplicate_answer",
        "slices_fail",
        "lag",
        "crashes",
        "pauses",
        "expiries",
        "keeper_cuts",
        "table_cuts",
        "log_cuts",
        "drains",
        "wipes",
        "foreign_commits",
        "foreign_rollbacks",
        "new_partitions",
        "new_topics",
        "deletions",
        "data_loss",
        "recreations",
        "clock_jumps",
        "restores",
        "tampering",
        "truncations",
        "table_restores",
        "operated",
        "sink_pauses",
        "flushes",
        "switchovers",
        "drain_requests",
        "flush_only",
        "ends_paused",
        "planned_restores",
        "planned_rollbacks",
        "savepoints",
        "other_clusters",
        "unclean_elections",
        "replacements",
        "elections",
        "open_transactions",
        "damages",
    ),
    0.0,
)

# One file for each run that once broke an invariant; each names the bug that it found.
SCHEDULES = sorted(DIRECTORY.glob("*.json"), key=lambda path: int(path.stem))


def calm(seed: int, **changes: object) -> Profile:
    """Returns a profile without faults, of the size that the seed draws."""
    settings = {
        **NO_FAULTS,
        "torn": False,
        "one_survivor": False,
        "poisoned": False,
        "mixed": False,
        "policy": DataLossPolicy.FAIL,
        "reset": OffsetReset.EARLIEST,
        "write_seconds": 0.2,
        "capacity": 0,
        "errors_max": NO_LIMIT,
        **changes,
    }
    return replace(draw(Random(seed)), **settings)  # type: ignore[arg-type]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_every_invariant_holds_under_the_faults_of_each_seed(first: int) -> None:
    totals: Counter[str] = Counter()
    for seed in range(first, first + PORTION):
        report = World(seed).run()
        assert report.violation is None, described(report, 60)
        totals.update(report.counts)
    assert too_little(totals, PORTION) == {}


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_a_run_that_once_found_a_bug_holds(path: Path) -> None:
    schedule = Schedule.load(path)
    report = schedule.world().run()
    assert report.violation is None, f"{schedule.bug}\n{described(report, 60)}"


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_a_schedule_names_functions_that_the_simulator_has(path: Path) -> None:
    """A renamed function would silently lose its draws, and the run its faults."""
    names = {caller.rpartition(" ")[0] for caller in Schedule.load(path).order}
    assert {name for name in names if not name.endswith(">")} - _functions() == set()


def _functions() -> set[str]:
    return {
        f"{source.stem}.{node.name}"
        for source in Path(__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def test_a_recorded_run_replays_to_the_letter(tmp_path: Path) -> None:
    Schedule.record(24, "none").save(tmp_path / "run.json")
    assert Schedule.load(tmp_path / "run.json").world().run().digest == World(24).run().digest


def test_a_draw_more_in_one_place_moves_no_draw_of_another() -> None:
    def first(rng: Random) -> float:
        return rng.random()

    def second(rng: Random) -> tuple[float, int]:
        return rng.random(), rng.randrange(9)

    recorder = Recorder(7)
    recorded = [(first(recorder), second(recorder)) for _ in range(3)]
    replay = Replay(7, recorder.order)
    assert [first(replay) for _ in range(4)] == [*(first_draw for first_draw, _ in recorded), NO_FAULT]
    assert [second(replay) for _ in range(3)] == [second_draws for _, second_draws in recorded]


@pytest.mark.parametrize("seed", range(5))
def test_without_faults_one_term_commits_everything_and_aborts_nothing(seed: int) -> None:
    report = World(seed, calm(seed)).run()
    assert report.violation is None, described(report, 60)
    assert report.counts["commits"] >= 5
    assert report.counts["terms"] == 1
    assert report.counts["ended ABORTED"] == 0


def test_a_seed_replays_to_the_letter_in_another_process() -> None:
    program = "from tests.simulation.world import World; print(*(World(s, trace=10**6).run().trace for s in (3, 4, 5)))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
