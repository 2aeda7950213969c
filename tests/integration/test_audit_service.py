"""A worker has its table's contents audited while it lives: what landed since the last time; and tells the answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pyarrow.parquet as pq
import pytest
from kazoo.client import KazooClient

from coordination.zookeeper.records import AuditAnswer, AuditRecord
from sink.cli import main
from sink.runtime.sinks.audit_service import MODULE, AuditService
from tests.fleet import Fleet, produce
from tests.http_kit import client_on_free_port
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet
from tests.one_sink import load
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def answer(fleet: Fleet) -> AuditAnswer | None:
    client: KazooClient = fleet.client
    return AuditRecord(client, fleet.root).last()


def audited(fleet: Fleet, rows: int) -> AuditAnswer:
    """Waits for the audit that held and has seen so many rows."""

    def is_seen() -> bool:
        last = answer(fleet)
        return last is not None and last.held and last.rows == rows

    eventually("the audit", is_seen, 240, fleet.logs)
    found = answer(fleet)
    assert found is not None
    return found


def test_what_landed_since_the_last_audit_is_audited_and_a_wrong_cell_is_told(make_fleet: MakeFleet, capsys) -> None:
    http = client_on_free_port()
    fleet = make_fleet(**{"services.audit.interval": "1s", "http.listen": f"{http.host}:{http.port}"})
    worker = fleet.start("w1")
    first = audited(fleet, RECORDS)
    assert first.compared
    assert first.through
    produce(fleet.kafka, fleet.topic, RECORDS, PARTITIONS, first=RECORDS)
    second = audited(fleet, 2 * RECORDS)
    assert second.compared <= RECORDS
    assert second.through > first.through
    worker.kill()
    command = [sys.executable, "-m", "sink.cli", "audit", "--readers", "hudi-rs,spark", "--config", str(worker.config)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"Spark with the metadata table returns {2 * RECORDS:,} rows as the files have them" in told.stdout
    file = min(path for path in fleet.table.rglob("*.parquet") if ".hoodie" not in path.parts)
    rows = pq.ParquetFile(file).read()
    place, amounts = rows.schema.get_field_index("amount"), rows.column("amount").to_pylist()
    pq.write_table(rows.set_column(place, rows.schema.field("amount"), [[-1.0, *amounts[1:]]]), file)
    # An audit by hand finds it, and from then on the worker's audits begin there again.
    arguments = ["--config", str(worker.config)]
    assert main(["audit", "--content", *arguments]) == 1
    assert "column amount: the table has '-1.0'" in capsys.readouterr().out
    fleet.start("w1")
    fleet.wait_for_log("w1", '"audit.not_held"')
    assert "cell" in http.wait("/health", 200).body.decode()
    assert main(["status", "--json", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["audit"]["held"] is False


def test_the_process_of_an_audit_ends_with_the_worker(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**{"services.audit.interval": "1s"})
    worker = fleet.start("w1")

    def audit_processes() -> list[psutil.Process]:
        children = psutil.process_iter(["cmdline", "ppid"])
        return [
            child for child in children if child.info["ppid"] == worker.pid and MODULE in (child.info["cmdline"] or ())
        ]

    seen: list[psutil.Process] = []
    eventually("an audit", lambda: seen.extend(audit_processes()) or seen, 240, fleet.logs)
    eventually("its priority", lambda: seen[0].nice() == 19)
    os.kill(worker.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(seen, timeout=60)
    assert not alive


@pytest.mark.thorough
def test_an_audit_that_needs_more_memory_than_it_may_have_ends_with_that_reason(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    worker = fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    record = AuditRecord(fleet.client, fleet.root)
    settings = load(worker.config, {})
    for mebibytes in (200, 400):
        # Beside the heap, of 1 GiB.
        assert " memory" in AuditService(settings, record, (mebibytes - 1024) << 20)._audit()
    assert record.last() is None
    assert AuditService(settings, record)._audit() == ""
