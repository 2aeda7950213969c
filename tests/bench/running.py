"""The frame of every comparison: bind itself to the cores, begin its results, take each run into them, and
say how far it is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from coordination.errors import SinkError
from sink.clients.java import find_java
from tests.bench.results import Results, Run, this_machine

CORES = 2
BROKER_HEAP = "2g"
"""Heap of a broker that keeps several topics of a thousand partitions."""
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RESULTS = ROOT / "tests" / "bench" / "results"


def begin(command: str, **conditions: str) -> Results:
    """From now on this process and all that it starts are bound to `CORES` CPUs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    return Results(
        command=command,
        began=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=this_machine(f"Java {find_java().version}"),
        conditions={**conditions, "load before": " ".join(f"{each:.2f}" for each in os.getloadavg())},
    )


def kept(results: Results, name: str = "") -> Path:
    """Where results are written as they come."""
    return RESULTS / f"{name}{datetime.fromisoformat(results.began):%Y-%m-%d-%H%M%S}.json"


def with_run(results: Results, name: str, number: int, start: Callable[[], Run]) -> Results:
    """One failure does not cost the other runs their figures."""
    try:
        run = start()
    except SinkError as error:
        say(f"round {number} {name}: {error}")
        return replace(results, failed=(*results.failed, f"{name}, round {number}: {error}"))
    say(f"round {number} {name}: {run.rate:,.0f} records/s, {run.cpu_per_million:.2f} CPU s per million")
    return replace(results, runs=(*results.runs, run))


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
