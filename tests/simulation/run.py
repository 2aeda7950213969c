"""Runs many seeds: `python -m tests.simulation.run --seeds 0..1000`, or one with its whole trace.

The exit status is 1 if any seed broke an invariant. The output has each failing seed with the broken invariant and the
last transitions; the same seed breaks the same invariant at the same moment again.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.pool import Pool
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.world import Report, World

REPORT_SECONDS = 60.0
CHUNK = 5
"""Seeds that a process gets at a time."""
CHUNKS = 20
"""Chunks after which another process replaces it: each run leaks about a megabyte."""
ENOUGH = 100
MINIMUM = {"commits": 3.0, "takeovers": 1.0, "unknown outcomes": 0.5, "crashes": 0.5, "ended ABORTED": 0.5}
"""The least counts per run, on the average of at least `ENOUGH` runs: with less, the runs show nothing."""
COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
    TextColumn("{task.fields[failing]} failing"),
)


def processes(jobs: int, start: str | None = None) -> Pool:
    """Returns a pool of processes that simulate without garbage collection: a run has few cycles, and looking for them
    takes time. Each process ends after some runs."""
    return multiprocessing.get_context(start).Pool(jobs, gc.disable, maxtasksperchild=CHUNKS)


def simulate(seed: int) -> Report:
    try:
        return World(seed).run()
    except Exception:
        # A defect of the simulator itself: print the seed that shows it.
        print(f"the simulator fails at seed {seed}", file=sys.stderr, flush=True)
        raise


def too_little(totals: Mapping[str, int], runs: int) -> dict[str, int]:
    """Returns the counts that are below the minimum for so many runs."""
    return {name: totals[name] for name, minimum in MINIMUM.items() if totals[name] < minimum * runs}


def described(report: Report, lines: int) -> str:
    transitions = "\n".join(report.trace[-lines:])
    return f"{transitions}\nseed {report.seed} at {report.seconds:.3f} s: {report.violation}\n{report.profile}"


def many(pool: Pool, seeds: Iterable[int]) -> Iterator[Report]:
    return pool.imap_unordered(simulate, seeds, chunksize=CHUNK)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..300", help="one seed, or first..last (without the last)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--show", type=int, default=3, help="how many failing seeds to print in full")
    parser.add_argument("--lines", type=int, default=40, help="how many transitions to print of each")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("..")
    seeds = range(int(first), int(last or int(first) + 1))
    if len(seeds) == 1:
        report = World(seeds[0], trace=1_000_000).run()
        print(described(report, options.lines))
        return report.violation is not None
    totals: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    failing: list[Any] = []
    began = reported_at = time.monotonic()
    with processes(options.jobs) as pool, Progress(*COLUMNS, console=Console(stderr=True)) as bar:
        task = bar.add_task("simulating", total=len(seeds), failing=0)
        for done, report in enumerate(many(pool, seeds), 1):
            totals.update(report.counts)
            if report.violation is not None:
                broken[report.violation.invariant] += 1
                failing.append((report.seed, str(report.violation)[:200]))
                if len(failing) <= options.show:
                    print(described(report, options.lines), flush=True)
            bar.update(task, completed=done, failing=len(failing))
            if not sys.stderr.isatty() and time.monotonic() - reported_at > REPORT_SECONDS:
                reported_at = time.monotonic()
                print(f"{done} of {len(seeds)} runs, {len(failing)} failing", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{len(seeds)} runs in {seconds:.0f} s ({len(seeds) / seconds:.1f}/s), {len(failing)} failing; in them:")
    for name, count in sorted(totals.items()):
        print(f"{count:10d}  {name}")
    for seed, text in sorted(failing):
        print(f"seed {seed}: {text}")
    for invariant, count in broken.most_common():
        print(f"{count:6d} broke: {invariant}")
    if len(seeds) >= ENOUGH and (missing := too_little(totals, len(seeds))):
        print(f"too little happened: {missing}")
        return 1
    return bool(failing)


if __name__ == "__main__":
    raise SystemExit(main())
