"""Runs the peers that are plain Spark, as `tests.bench.spark_peer` describes them."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from coordination.errors import Unavailable
from sink.devtools.local.child_process import Child
from tests.bench.lab import PATIENCE, Lab, Window, measured_run
from tests.bench.results import Run
from tests.bench.sampler import Sampler
from tests.bench.spark_plan import Plan

WARM_RECORDS = 1_000_000
"""Records of the warm-up, at most; taken from the end of the topic."""


def run(lab: Lab, peer: str, number: int, plan: Plan, keys: int = 0) -> Run:
    """`keys`: of a table with a row for each. Such a table needs the lead of the topic too, which is not counted."""
    directory = lab.run_directory(f"{peer}-{number}")
    result_path = directory / "result.json"
    arguments = {
        "plan": plan.to_json(),
        "bootstrap": lab.kafka.address,
        "topic": lab.topic,
        "place": directory,
        "result": result_path,
        "heap": lab.heap,
        "skip": 0 if keys else lab.load.lead,
        "warm": min(WARM_RECORDS, lab.load.lead),
        "cores": lab.cores,
    }
    command_line = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    child = Child(peer, (sys.executable, "-m", "tests.bench.spark_peer", *command_line), directory / "peer.log")
    child.start()
    try:
        with Sampler([child.pid]) as peer_sampler, Sampler([lab.kafka.pid]) as broker_sampler:
            status = child.wait(PATIENCE)
    finally:
        child.kill()
    if status != 0 or not result_path.is_file():
        raise Unavailable(f"peer {peer} ended with status {status}: {child.tail()} (log: {child.log})")
    result = json.loads(result_path.read_text())
    if result["rows"] != (keys or lab.load.records):
        raise Unavailable(f"peer {peer} has {result['rows']} rows, not {keys or lab.load.records}")
    shutil.rmtree(directory / "counted")
    counted = _counted(result["batches"], lab.load.lead if keys else 0)
    window = Window(counted[0]["started"], counted[-1]["ended"], sum(batch["records"] for batch in counted))
    return measured_run(lab, peer, number, window, (peer_sampler, broker_sampler))


def _counted(batches: list[dict[str, Any]], lead: int) -> list[dict[str, Any]]:
    """Returns the batches after the lead."""
    while lead > 0:
        lead -= batches[0]["records"]
        batches = batches[1:]
    return batches
