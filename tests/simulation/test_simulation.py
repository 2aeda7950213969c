"""The protocol holds under every schedule of faults that the seeds draw.

SIMULATION_SEEDS says how many of them; `python -m tests.simulation.run` runs more, on all cores, with totals.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.pool import Pool
from random import Random

import pytest

from coordination.planning.offsets import DataLossPolicy, OffsetReset
from tests.simulation.faults import NO_LIMIT, Profile, draw
from tests.simulation.run import described, many, processes, simulate, too_little
from tests.simulation.world import World

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "2000"))
PORTION = 100
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
        "data_loss",
        "recreations",
        "clock_jumps",
        "restores",
        "tampering",
        "truncations",
        "table_restores",
        "operated",
    ),
    0.0,
)

# Seeds that once broke an invariant, each with the bug that it found; the last five with one of the invariant.
REGRESSIONS = (
    (1, "a settled instant was still taken for an orphan and got an ABORTED record"),
    (2, "the confirmation of a rollback was forgotten when ZooKeeper changed meanwhile"),
    (24, "a late multi of a divided batch moved ranges under an open transaction"),
    (345, "a late multi of a plan added a piece to another plan of the same number"),
    (23171, "after a batch that was too large the next ones were as large, and each cost three attempts"),
    (111300, "a commit under way while ZooKeeper was emptied came from a higher epoch than the one that followed"),
    (96425, "a plan that came late recorded a partition while a commit was tried again: two contents of one instant"),
    (328149, "an abort on proof that came late was taken for a guess: a second restore had taken the instant away"),
    (412584, "a backup of what the restored table has no more was taken for undecided after it had been settled"),
    (450733, "a commit that was under way when its tree was lost was held against where the backup's begins"),
    (492384, "a bad record that a truncated log has no more was taken for one that was published twice"),
    (680630, "a reset that was interrupted before it wrote anything was held against a partition that is new"),
    (769547, "a gap of a reading that a reset had ended was held against the one that a restored table began"),
    (858822, "what a restored table had lost was held against where another tree had begun, not where its own says"),
    (982704, "a log that was lost whole before anything of it was committed was waited for"),
    (1006187, "a backup's gap, of a past that the table had gone on without, stood against the table: rows came twice"),
    (1163386, "a ledger that was read a moment before a batch was divided, and the states after, killed a coordinator"),
    (1230724, "an operator looked once at a tree that a late write made unreadable after"),
    (1245668, "a late write of the holder of the office was taken for an older epoch's: the epoch was deleted by hand"),
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with processes(min(2, os.cpu_count() or 1), "spawn") as workers:
        yield workers


def calm(seed: int, **changes: object) -> Profile:
    """A profile without faults, of the size that the seed draws."""
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
def test_every_invariant_holds_under_the_faults_of_each_seed(pool: Pool, first: int) -> None:
    totals: Counter[str] = Counter()
    for report in many(pool, range(first, first + PORTION)):
        assert report.violation is None, described(report, 60)
        totals.update(report.counts)
    assert too_little(totals, PORTION) == {}


@pytest.mark.parametrize(("seed", "bug"), REGRESSIONS)
def test_a_seed_that_once_found_a_bug_holds(seed: int, bug: str) -> None:
    report = simulate(seed)
    assert report.violation is None, f"{bug}\n{described(report, 60)}"


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
