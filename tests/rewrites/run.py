"""Runs many seeds: `python -m tests.rewrites --seeds 0..500 --results FILE`, or one with its whole trace.

The results have a line a seed; a run that is started again leaves out the seeds that they have. The exit status is 1 if
any sequence broke, or too little happened in all of them.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path

from tests.jvm import start_fast
from tests.rewrites.lab import Lab, a_lab
from tests.rewrites.named import NAMED
from tests.rewrites.steps import DIES_LATE, FAULTS
from tests.rewrites.world import Report, World

COLUMNS = ("seed", "seconds", "cpu", "profile", "counts", "failure")
ENOUGH = 12
MINIMUM = {
    "commits": 5.0,
    "comparisons": 8.0,
    "comparisons with hudi-rs": 2.0,
    "killed": 0.2,
    "stopped": 0.2,
    "refused by the disk": 0.2,
    "without its lock": 0.2,
    "overtaken": 0.2,
    "clustering done": 0.3,
    "compaction done": 0.3,
    "cleaning done": 0.5,
    "restored": 0.05,
}
"""The least counts a sequence, on the average of at least `ENOUGH`: with less, they show nothing."""


def too_little(totals: Mapping[str, int], runs: int) -> dict[str, int]:
    """Returns the counts that are two standard deviations below the minimum for so many sequences, or more. Faults that
    strike are to be a third of those planned, in few sequences too."""
    fewest = {name: least * runs - 2 * sqrt(least * runs) for name, least in MINIMUM.items()}
    missing = {name: totals.get(name, 0) for name, count in fewest.items() if totals.get(name, 0) < count}
    struck = sum(totals.get(kind, 0) for kind in (*FAULTS, DIES_LATE))
    return missing if 3 * struck >= totals.get("faults planned", 0) else {**missing, "faults that struck": struck}


def line_of(report: Report) -> str:
    counts = json.dumps(dict(sorted(report.counts.items())))
    values = (
        report.seed,
        f"{report.seconds:.1f}",
        f"{report.cpu_seconds:.1f}",
        report.profile,
        counts,
        report.failure.replace("\n", " "),
    )
    return "\t".join(map(str, values)).replace("\r", " ")


def earlier_results(file: Path | None) -> dict[int, Sequence[str]]:
    """Returns the fields of each seed that the file has."""
    if file is None or not file.exists():
        return {}
    rows = [line.split("\t") for line in file.read_text().splitlines()[1:]]
    return {int(row[0]): row for row in rows}


def said_of(report: Report) -> str:
    used = f"{report.seconds:.0f} s, {report.cpu_seconds:.0f} CPU s"
    return f"{report.seed}: {used}, {report.profile}: {report.failure or 'held'}"


def run_seeds(
    lab: Lab, seeds: Sequence[int], results: Path | None, shows: bool, until: float, s3: float
) -> list[Report]:
    reports = []
    if results is not None and not results.exists():
        results.write_text("\t".join(COLUMNS) + "\n")
    for seed in seeds:
        if time.monotonic() > until:
            break
        report = World(lab, seed, s3_share=s3, show=print if shows else lambda _: None).run()
        reports.append(report)
        if report.failure and not shows:
            print("\n".join(report.trace))
        print(f"seed {said_of(report)}", flush=True)
        if results is not None:
            with results.open("a") as file:
                file.write(line_of(report) + "\n")
    return reports


def run_named(lab: Lab, names: Sequence[str]) -> list[Report]:
    """Runs the named sequences that have one of the texts in their names."""
    chosen = [name for name in NAMED if any(text in name for text in names)]
    reports = []
    for number, name in enumerate(chosen):
        print(f"{name}: {NAMED[name].repeats}", flush=True)
        reports.append(World.of(lab, number, NAMED[name].profile, NAMED[name].steps).run())
        print(f"{name}: {said_of(reports[-1])}", flush=True)
    return reports


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0..100", help="one seed, or first..last (without the last)")
    parser.add_argument("--results", type=Path, help="a file that gets a line a seed, and says which have run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no seed after so many seconds")
    parser.add_argument("--s3", type=float, default=0.1, help="the share of tables in an S3 store (default: 0.1)")
    parser.add_argument("--keep", type=Path, help="a new directory for logs and broken tables")
    parser.add_argument("--named", nargs="+", help="instead: the sequences with one of these texts in their names")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("..")
    known = earlier_results(options.results)
    seeds = [seed for seed in range(int(first), int(last or int(first) + 1)) if seed not in known]
    start_fast()
    # So that `with` unmounts the disk and ends the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="rewrites-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(exist_ok=True, parents=True)
        with a_lab(directory) as lab:
            until = time.monotonic() + options.seconds
            if options.named:
                return any(report.failure for report in run_named(lab, options.named))
            reports = run_seeds(lab, seeds, options.results, not last, until, options.s3)
    totals: Counter[str] = Counter()
    for row in known.values():
        totals.update(json.loads(row[4]))
    for report in reports:
        totals.update(report.counts)
    runs = len(known) + len(reports)
    failing = sorted([seed for seed, row in known.items() if row[5]] + [r.seed for r in reports if r.failure])
    seconds = sum(report.seconds for report in reports)
    used = sum(report.cpu_seconds for report in reports)
    print(f"{runs} sequences, {len(reports)} of them now, in {seconds:.0f} s, {used:.0f} CPU s;")
    for name, count in sorted(totals.items()):
        print(f"{count:8d}  {name}")
    print(f"broken: {failing or 'none'}")
    if runs >= ENOUGH and (missing := too_little(totals, runs)):
        print(f"too little happened: {missing}", file=sys.stderr)
        return 1
    return bool(failing)
