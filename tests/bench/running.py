"""The frame of every comparison: binds the process to its cores, keeps the results of its runs, prints progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from coordination.errors import SinkError
from sink.clients.java.installation import find_java
from tests.bench.results import Results, Run, this_machine

CORES = 2
BROKER_HEAP = "2g"
"""Heap of a broker that keeps several topics of a thousand partitions."""
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RESULTS = ROOT / "tests" / "bench" / "results"


def begin(command: str, **conditions: str) -> Results:
    """Binds this process and all that it starts to `CORES` CPUs. Returns results without runs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    return Results(
        command=command,
        began=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=this_machine(f"Java {find_java().version}"),
        conditions={**conditions, "load before": " ".join(f"{load_average:.2f}" for load_average in os.getloadavg())},
    )


def results_path(results: Results, name: str = "") -> Path:
    """Returns the file to which results are written as they come."""
    return RESULTS / f"{name}{datetime.fromisoformat(results.began):%Y-%m-%d-%H%M%S}.json"


def with_run(results: Results, name: str, number: int, start: Callable[[], Run]) -> Results:
    """Starts a run. Returns the results with it, or with its failure, so that the other runs keep their figures."""
    try:
        run = start()
    except SinkError as error:
        print_progress(f"round {number} {name}: {error}")
        return replace(results, failed=(*results.failed, f"{name}, round {number}: {error}"))
    print_progress(f"round {number} {name}: {run.rate:,.0f} records/s, {run.cpu_per_million:.2f} CPU s per million")
    return replace(results, runs=(*results.runs, run))


def print_progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
