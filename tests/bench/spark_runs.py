"""Runs the peers that are plain Spark: see `tests.bench.spark_peer` for what they do."""

from __future__ import annotations

import json
import shutil
import sys

from coordination.errors import Unavailable
from sink.local.process import Child
from tests.bench.lab import PATIENCE, Lab, Window, measured
from tests.bench.results import Run
from tests.bench.sampler import Sampler
from tests.bench.spark_peer import Kind

WARM_RECORDS = 1_000_000
"""Records of the warm-up, at most; taken from the end of the topic."""


def run(lab: Lab, peer: str, number: int, kind: Kind) -> Run:
    place = lab.place(f"{peer}-{number}")
    result = place / "result.json"
    arguments = {
        "kind": kind.value,
        "bootstrap": lab.kafka.address,
        "topic": lab.topic,
        "place": place,
        "result": result,
        "heap": lab.heap,
        "skip": lab.load.lead,
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
    if found["records"] != lab.load.records:
        raise Unavailable(f"peer {peer} moved {found['records']} records, not {lab.load.records}")
    shutil.rmtree(place / "counted")
    window = Window(found["started"], found["ended"], found["records"])
    return measured(peer, number, window, (own, broker))
