"""Measures what a worker's heap has to hold: live objects after a collection, by the number of sinks, at a trickle.

`python -m tests.bench.heap --sinks 1,3,30 --heaps 512m,1g --seconds 300` runs one worker for each pair, with the sinks
of a soak (`tests.soak.lab`), looks every few seconds, also in the middle of commits and table services, and prints a
line of JSON for each pair. A worker that ends is an event, too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path

import psutil

from tests.bench.many_lab import percentile, print_event
from tests.soak import probe
from tests.soak.lab import Lab, Progress

LOOK_SECONDS = 5.0
SHOWN = ("live heap, MB", "metaspace, MB", "JVM beside its heap, MB", "JVM, resident, MB", "threads", "descriptors")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sinks", default="1,3,30")
    parser.add_argument("--heaps", default="512m,1g")
    parser.add_argument("--seconds", type=float, default=300, help="of looks, from when every sink has landed")
    parser.add_argument("--rate", type=float, default=10.0, help="records a second of each sink")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two transactions of a sink")
    parser.add_argument("--keys", type=int, default=20_000, help="rows of each table that is changed, of 1 kB")
    options = parser.parse_args()
    probe.require_jcmd()
    for sinks, heap in product(options.sinks.split(","), options.heaps.split(",")):
        progress = Progress(int(sinks), heap, options.rate, options.interval, workers=1, keys=options.keys)
        with tempfile.TemporaryDirectory(prefix="sink-heap-") as directory, Lab(Path(directory), progress) as lab:
            print_event("heap", sinks=int(sinks), heap=heap, **measure(lab, options.seconds))


def measure(lab: Lab, seconds: float) -> dict[str, object]:
    (worker,) = lab.fleet.workers.values()
    looks: list[dict[str, float]] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and worker.running:
        try:
            looks.append(dict(probe.of_worker(worker)))
        except (psutil.NoSuchProcess, subprocess.CalledProcessError):
            continue
        time.sleep(LOOK_SECONDS)
    spreads = {
        name: [round(figure) for figure in (min(values), statistics.median(values), percentile(values, 1.0))]
        for name in SHOWN
        if (values := [look[name] for look in looks])
    }
    commits = sum(len(lab.fleet.view(sink).ledger.history) for sink in lab.kinds)
    return {"looks": len(looks), "ended": not worker.running, "transactions": commits, **spreads}


if __name__ == "__main__":
    main()
