"""Runs the command line in processes of its own, and checks that each command works on a fleet's table."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sink.operations.reset_writer import live_workers
from tests.fleet import Fleet
from tests.integration.conftest import PARTITIONS
from tests.integration.test_errors_fleet import produce as produce_with_bad_ones
from tests.waiting import eventually

RECORDS = 3000
BAD = 30


def command(fleet: Fleet, *arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    config = next(iter(fleet.workers.values())).config
    command_line = [sys.executable, "-m", "sink.cli", *arguments, "--config", str(config)]
    result = subprocess.run(command_line, env=os.environ, capture_output=True, text=True, timeout=240, check=False)
    assert (result.returncode != 0) == fails, f"{result.stdout}\n{result.stderr}"
    return result


def every_command_works(fleet: Fleet) -> None:
    """Runs each command for a fleet that tolerates bad records and whose table does not exist yet."""
    produce_with_bad_ones(fleet, RECORDS, RECORDS // BAD)
    worker = fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    worker.kill()
    eventually("its session has ended", lambda: not live_workers(fleet.client, fleet.root))

    assert "orders holds the Hudi table orders" in command(fleet, "validate").stdout
    report = json.loads(command(fleet, "audit", "--json").stdout)
    assert (report["held"], report["rows"], report["errors"]) == (True, RECORDS - BAD, BAD), report
    assert len(json.loads(command(fleet, "errors", "--limit", "100", "--json").stdout)) == BAD
    repair = ("--yes", "--sql", """replace(value, '"none"', '-1')""")
    assert f"{BAD} records are good" in command(fleet, "errors", "replay", *repair).stdout
    report = json.loads(command(fleet, "audit", "--json").stdout)
    assert (report["held"], report["rows"], report["replayed"]) == (True, RECORDS, BAD), report
    assert fleet.topic in command(fleet, "status").stdout
    assert "Nothing was changed" in command(fleet, "reset", "--to", "earliest").stdout
    assert "orders" in command(fleet, "adopt", fails=True).stderr


def a_reset_lands_everything_again(fleet: Fleet) -> None:
    """Runs after `every_command_works`: bad records are bad again, and rows that had landed are there twice."""
    command(fleet, "reset", "--to", "earliest", "--yes")
    fleet.start("w2")
    fleet.wait("it is landed again", lambda view: _landed(fleet, view))
    assert fleet.audit().held


def _landed(fleet: Fleet, view: object) -> bool:
    states = {source.partition: state for source, state in view.states.items()}  # type: ignore[attr-defined]
    return len(states) == PARTITIONS and all(
        state.end == RECORDS // PARTITIONS and state.generation == 1 and not state.open for state in states.values()
    )
