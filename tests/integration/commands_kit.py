"""The command line in processes of its own, and the sentence that each of its commands works on a table of a fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sink.operations.reset_writer import workers
from tests.fleet import Fleet
from tests.integration.conftest import PARTITIONS
from tests.integration.test_errors_fleet import produce as produce_with_bad_ones
from tests.waiting import eventually

RECORDS = 3000
BAD = 30


def command(it: Fleet, *arguments: str, wrong: bool = False) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "sink.cli", *arguments, "--config", str(it.directory / "w1.yaml")]
    done = subprocess.run(line, env=os.environ, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode != 0) == wrong, f"{done.stdout}\n{done.stderr}"
    return done


def every_command_works(it: Fleet) -> None:
    """On a table that does not exist yet, of a fleet that tolerates bad records."""
    produce_with_bad_ones(it, RECORDS, RECORDS // BAD)
    worker = it.start("w1")
    it.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    worker.kill()
    eventually("its session has ended", lambda: not workers(it.client, it.root))

    assert "orders holds the Hudi table orders" in command(it, "validate").stdout
    report = json.loads(command(it, "audit", "--json").stdout)
    assert (report["held"], report["rows"], report["errors"]) == (True, RECORDS - BAD, BAD), report
    assert len(json.loads(command(it, "errors", "--limit", "100", "--json").stdout)) == BAD
    repair = ("--yes", "--sql", """replace(value, '"none"', '-1')""")
    assert f"{BAD} records are good" in command(it, "errors", "replay", *repair).stdout
    report = json.loads(command(it, "audit", "--json").stdout)
    assert (report["held"], report["rows"], report["replayed"]) == (True, RECORDS, BAD), report
    assert it.topic in command(it, "status").stdout
    assert "Nothing was changed" in command(it, "reset", "--to", "earliest").stdout
    assert "orders" in command(it, "adopt", wrong=True).stderr


def a_reset_lands_everything_again(it: Fleet) -> None:
    """After `every_command_works`: the bad records are bad again, and rows that were landed are there twice."""
    command(it, "reset", "--to", "earliest", "--yes")
    it.start("w2")
    it.wait("it is landed again", lambda view: _landed(it, view))
    assert it.audit().held


def _landed(it: Fleet, view: object) -> bool:
    states = {source.partition: state for source, state in view.states.items()}  # type: ignore[attr-defined]
    return len(states) == PARTITIONS and all(
        state.end == RECORDS // PARTITIONS and state.generation == 1 and not state.open for state in states.values()
    )
