"""Runs the peers that are plain Spark: see `tests.bench.spark_peer` for what they do."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from coordination.errors import Unavailable
from sink.clients.child_process import Child
from tests.bench.lab import PATIENCE, Lab, Window, measured
from tests.bench.results import Run
from tests.bench.sampler import Sampler
from tests.bench.spark_plan import Plan

WARM_RECORDS = 1_000_000
"""Records of the warm-up, at most; taken from the end of the topic."""


def run(lab: Lab, peer: str, number: int, plan: Plan, keys: int = 0) -> Run:
    """`keys`: of a table with a row for each, which needs the lead of the topic too. It is not counted."""
    place = lab.place(f"{peer}-{number}")
    result = place / "result.json"
    arguments = {
        "plan": plan.to_json(),
        "bootstrap": lab.kafka.address,
        "topic": lab.topic,
        "place": place,
        "result": result,
        "heap": lab.heap,
        "skip": 0 if keys else lab.load.lead,
        "warm": min(WARM_RECORDS, lab.load.lead),
        "cores": lab.cores,
    }
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    child = Child(peer, (sys.executable, "-m", "tests.bench.spark_peer", *words), place / "peer.log")
    child.start()
    try:
        with Sampler([child.pid]) as own, Sampler([lab.kafka.pid]) as broker:
            status = child.wait(PATIENCE)
    finally:
        child.kill()
    if status != 0 or not result.is_file():
        raise Unavailable(f"peer {peer} ended with status {status}: {child.tail()} (log: {child.log})")
    found = json.loads(result.read_text())
    if found["rows"] != (keys or lab.load.records):
        raise Unavailable(f"peer {peer} has {found['rows']} rows, not {keys or lab.load.records}")
    shutil.rmtree(place / "counted")
    counted = _counted(found["batches"], lab.load.lead if keys else 0)
    window = Window(counted[0]["started"], counted[-1]["ended"], sum(each["records"] for each in counted))
    return measured(lab, peer, number, window, (own, broker))


def _counted(batches: list[dict[str, Any]], lead: int) -> list[dict[str, Any]]:
    """Those after the lead."""
    while lead > 0:
        lead -= batches[0]["records"]
        batches = batches[1:]
    return batches
