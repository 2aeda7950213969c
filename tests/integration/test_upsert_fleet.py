"""A fleet of real workers on a table whose rows are changed, killed as writer and as coordinator in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hudi import HudiTableBuilder

from sink.audit.report import Kind
from tests.fleet import Fleet
from tests.integration.conftest import MakeFleet
from tests.integration.sinktable import slices_of
from tests.integration.upsert_kit import DDL, expected, plain, random_log, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def rows(fleet: Fleet) -> list[dict[str, Any]]:
    batches = HudiTableBuilder.from_base_uri(fleet.table.as_uri()).build().read()
    found = (row for batch in batches for row in batch.to_pylist())
    kept = ({name: value for name, value in row.items() if not name.startswith("_")} for row in found)
    return sorted(kept, key=lambda row: row["id"])


def test_every_change_takes_effect_once_whoever_is_killed(fleet: MakeFleet, topic, kafka) -> None:
    log = random_log(7, 2, 2400, 150, ordered=False)
    name = topic(partitions=2)
    for partition in (0, 1):
        send(kafka.address, name, log.changes(partition), partition)
    it = fleet(
        name=name,
        **{
            "schema.ddl": DDL,
            "write.operation": "upsert",
            "record.key.fields": "id",
            "delete.key.format": "string",
            "provenance.columns": False,
            "flush.size": 500,
            "slice.records": 300,
            "hoodie.metadata.enable": False,
        },
    )
    for worker, point in (("w1", "WriteSlices.after"), ("w2", "Write:PREPARED.after")):
        it.start(worker, f"{point}=kill")
        it.wait_fired(point)
    it.start("w3")
    ends = {partition: len(log.partitions[partition]) for partition in (0, 1)}
    history = it.wait_landed(ends).ledger.history
    assert [summary.outcome for summary in history].count("COMMITTED") >= 3
    whole = slices_of(name, *((partition, 0, end) for partition, end in ends.items()))
    assert rows(it) == plain(expected(log, whole, ordered=False))
    report = it.audit()
    assert report.held, report.to_json()
    assert report.changed
    assert any("changed and deleted by key" in f.sentence for f in report.notes)
    assert {f.kind for f in report.notes} <= {Kind.UNPROVEN, Kind.STRAY}
    assert json.loads(report.to_json())["changed"]
