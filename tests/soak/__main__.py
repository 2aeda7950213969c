"""A soak: a fleet at a trickle for hours, with table services, new columns and a takeover each quarter of an hour, and
how fast its memory, threads, descriptors, watches, znodes and files grow.

`python -m tests.soak --hours 2 --sinks 3` begins in `build/soak`, or goes on with the soak that is there: Ctrl-C ends
it in order, and the hours add up. `--fresh` begins anew, `--leak MB` plants a leak of so many MB an hour into each
worker. Every look is a line of `samples.jsonl` there; `soak.svg` draws them. The exit status is 1 if a worker ended by
itself, or a quantity grows so fast that it may leave its budget within 30 days.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from sink.clients.java.heap import heap_bytes
from tests.soak import probe
from tests.soak.lab import Lab, Progress
from tests.soak.report import draw, judge, table

LOOK_SECONDS = 90.0
QUARTER_SECONDS = 900.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--hours", type=float, default=2.0, help="all lives of the soak together")
    parser.add_argument("--sinks", type=int, default=3)
    parser.add_argument("--heap", default="1g", help="spark.driver.memory of each of the two workers")
    parser.add_argument("--rate", type=float, default=10.0, help="records a second of each sink, of 1 kB")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two transactions of a sink")
    parser.add_argument("--leak", type=float, default=0.0, help="MB an hour that each worker loses, in heap and Python")
    parser.add_argument("--directory", type=Path, default=Path("build/soak"))
    parser.add_argument("--fresh", action="store_true", help="delete what is in the directory")
    parser.add_argument("--report", action="store_true", help="only tell what was measured so far")
    options = parser.parse_args(arguments)
    directory: Path = options.directory.absolute()
    if options.fresh:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    state = directory / "soak.json"
    progress = (
        Progress.load(state)
        if state.exists()
        else Progress(options.sinks, options.heap, options.rate, options.interval, options.leak)
    )
    if not options.report:
        probe.require_jcmd()
        soak(directory, progress, options.hours * 3600)
    return report(directory, progress)


def soak(directory: Path, progress: Progress, seconds: float) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    state = directory / "soak.json"
    progress.life += 1
    soaked_before = progress.soaked
    with Lab(directory, progress) as lab, (directory / "samples.jsonl").open("a", buffering=1) as samples:
        progress.save(state)
        began, quarters = time.monotonic(), 0
        while not stop.wait(LOOK_SECONDS) and progress.soaked < seconds:
            elapsed = time.monotonic() - began
            if elapsed // QUARTER_SECONDS > quarters:
                quarters += 1
                lab.add_column()
                lab.take_over()
            lab.start_ended()
            if values := _look(lab):
                samples.write(json.dumps({"life": progress.life, "seconds": round(elapsed), **values}) + "\n")
            progress.soaked = soaked_before + elapsed
            progress.save(state)
        lab.finish()
        print(
            f"{progress.soaked / 3600:.2f} hours in {progress.life} lives; the audit held for {progress.sinks} tables"
        )


def _look(lab: Lab) -> dict[str, float]:
    """Returns the mean of the workers by quantity, and what the fleet has together, while the sinks are paused; nothing
    if a process just ended."""
    try:
        with lab.at_rest():
            return _found(lab)
    except (psutil.NoSuchProcess, subprocess.CalledProcessError) as error:
        print(f"no look: {error}", flush=True)
        return {}


def _found(lab: Lab) -> dict[str, float]:
    workers = [probe.of_worker(worker) for worker in lab.fleet.workers.values()]
    means = {name: sum(worker[name] for worker in workers) / len(workers) for name in workers[0]}
    together = {**probe.of_zookeeper(lab.fleet.client), "temporary files": probe.files(lab.temporary)}
    together["files of a table"] = probe.files(lab.lake) / len(lab.kinds)
    return {name: round(value, 3) for name, value in {**means, **together}.items()}


def report(directory: Path, progress: Progress) -> int:
    print(f"{progress.ended} workers ended by themselves")
    lines = (directory / "samples.jsonl").read_text().splitlines()
    looks = [json.loads(line) for line in lines]
    verdicts = judge(looks, (heap_bytes(progress.heap) or 0) / probe.MEGABYTE)
    print(table(verdicts))
    draw(looks, verdicts, directory / "soak.svg")
    return 0 if all(verdict.holds for verdict in verdicts) and not progress.ended else 1


if __name__ == "__main__":
    raise SystemExit(main())
