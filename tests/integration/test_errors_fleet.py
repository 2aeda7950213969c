"""A fleet over a topic with bad records: nothing is lost or there twice, whichever process dies in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from coordination.state.failures import HaltKind
from coordination.state.model import Phase
from sink.layout.quarantine import QUARANTINE
from sink.operations.reset_writer import live_workers
from sink.operations.timeline_snapshot import read_timeline_snapshot
from sink.telemetry.failpoints import DIRECTORY, VARIABLE
from tests.fleet import Fleet, in_phase
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

RECORDS = 3000
BAD = 30
REPAIR = ("errors", "replay", "--yes", "--sql", """replace(value, '"none"', '-1')""")


@pytest.mark.thorough
def test_bad_records_are_landed_once_and_replayed_once_whoever_dies_and_halt_when_there_are_too_many(
    make_fleet: MakeFleet, topic
) -> None:
    fleet = make_fleet(name=topic(partitions=PARTITIONS), **{"errors.tolerance": "all", "errors.max.ratio": 0.2})
    produce(fleet, RECORDS, RECORDS // BAD)
    fleet.start("w1", "Errors.written=kill")
    fleet.wait_fired("Errors.written")
    fleet.wait("PREPARED", in_phase(Phase.PREPARED))
    (undone,) = read_timeline_snapshot(str(errors_of(fleet)), fleet.name).pending
    assert list(errors_of(fleet).glob(f"*_{undone}.parquet")), "its rows were not written yet"
    fleet.start("w2", "Complete.published=kill")
    fleet.wait_fired("Complete.published")
    fleet.wait("PREPARED", in_phase(Phase.PREPARED))
    # The next worker has rolled back the rows that the dead one had written, and committed its own.
    errors, table = (
        read_timeline_snapshot(str(errors_of(fleet)), fleet.name),
        read_timeline_snapshot(str(fleet.table), fleet.name),
    )
    assert not errors.pending
    assert undone not in errors.completed
    assert not list(errors_of(fleet).glob(f"*_{undone}.parquet"))
    assert (len(list(errors_of(fleet).glob("*.parquet"))), table.checkpoint) == (1, None)
    fleet.start("w3")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    assert_landed(fleet, errors=BAD, replayed=0)
    for worker in fleet.workers.values():
        worker.kill()
    eventually("the sessions have ended", lambda: not live_workers(fleet.client, fleet.root))

    assert_bad_records_are_listed(fleet)
    a_replay_dies_and_the_next_one_finishes_it(fleet)

    fleet.start("w4")
    eventually(
        "what was given up is rolled back", lambda: not read_timeline_snapshot(str(fleet.table), fleet.name).pending
    )
    produce(fleet, 600, 2, first=RECORDS)
    halt = fleet.wait("the sink halts", lambda view: view.halt is not None and not view.transactions).halt
    assert halt is not None
    assert halt.topic == fleet.topic
    assert " records are bad, more than errors.max.ratio=0.2 allows. The first: " in halt.reason
    assert "'id'" in halt.reason
    assert fleet.audit().held
    assert "workers are alive" in sink(fleet, *REPAIR).stderr


@pytest.mark.thorough
def test_a_sink_halts_if_somebody_has_deleted_the_bad_records_of_its_open_transaction(
    make_fleet: MakeFleet, topic
) -> None:
    fleet = make_fleet(name=topic(partitions=PARTITIONS), **{"errors.tolerance": "all"})
    produce(fleet, RECORDS, RECORDS // BAD)
    fleet.start("w1", "Write:PREPARED.after=wait")
    fleet.wait_fired("Write:PREPARED.after")
    shutil.rmtree(fleet.table / QUARANTINE)
    fleet.release("Write:PREPARED.after")
    halt = fleet.wait("the sink halts", lambda view: view.halt is not None).halt
    assert halt is not None
    assert halt.kind is HaltKind.BAD_RECORDS_GONE


def errors_of(fleet: Fleet) -> Path:
    return fleet.table.with_name(f"{fleet.table.name}_errors")


def assert_bad_records_are_listed(fleet: Fleet) -> None:
    listed = json.loads(sink(fleet, "errors", "--limit", "100", "--json").stdout)
    assert len(listed) == BAD
    assert {json.loads(row["value"])["id"] for row in listed} == {"none"}
    (group,) = json.loads(sink(fleet, "errors", "--group-by", "kind", "--partition", "0", "--json").stdout)
    first = min(row["_kafka_offset"] for row in listed if row["_kafka_partition"] == 0)
    assert (group["kind"], group["first"]["offset"]) == ("value", first)
    shown = sink(fleet, "errors", "--limit", "1")
    assert f"1 of {BAD}" in shown.stdout, shown
    assert '{"id": "none"' in shown.stdout


def a_replay_dies_and_the_next_one_finishes_it(fleet: Fleet) -> None:
    for point, replayed in (("Replay.written", 0), ("Replay.committed", BAD)):
        assert sink(fleet, *REPAIR, failpoint=f"{point}=kill").returncode == -9
        assert_landed(fleet, errors=BAD - replayed, replayed=replayed)
    result = sink(fleet, *REPAIR)
    assert f"{BAD} records were already in the table, added by a replay that was interrupted" in result.stdout, result
    assert "0 records are good and are in the table now; 0 are still bad" in result.stdout
    assert_landed(fleet, errors=0, replayed=BAD)
    assert json.loads(sink(fleet, "errors", "--json").stdout) == []
    assert len(json.loads(sink(fleet, "errors", "--replayed", "--limit", "100", "--json").stdout)) == BAD


def assert_landed(fleet: Fleet, errors: int, replayed: int) -> None:
    report = fleet.audit()
    assert report.held, report.to_json()
    assert (report.rows, report.errors, report.replayed) == (RECORDS - errors, errors, replayed), report.to_json()
    assert sum(row.errors for row in report.partitions) == errors


def produce(fleet: Fleet, records: int, every: int, first: int = 0) -> None:
    """Produces records, spread evenly; one in `every` has a text instead of a number."""
    producer = Producer({"bootstrap.servers": fleet.kafka, "linger.ms": 20})
    for number in range(first, first + records):
        event = {"id": "none" if number % every == 0 else number, "kind": "buy", "amount": 1.0}
        producer.produce(fleet.topic, json.dumps(event).encode(), key=str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def sink(fleet: Fleet, *arguments: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own."""
    environment = {**os.environ, VARIABLE: failpoint, DIRECTORY: str(fleet.points)}
    command = [sys.executable, "-m", "sink.cli", *arguments, "--config", str(fleet.directory / "w1.yaml")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
