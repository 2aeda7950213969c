"""A fleet of real workers on a table whose rows are changed, killed as writer, coordinator and servant in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hudi import HudiTableBuilder

from sink.audit.report import Kind
from tests.fleet import Fleet
from tests.integration.conftest import METADATA, MakeFleet
from tests.integration.sinktable import slices_of
from tests.integration.upsert_kit import DDL, expected, plain, random_log, send
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

COPY_ON_WRITE: Mapping[str, object] = {}
ON_READ: Mapping[str, object] = {
    "target.table.type": "merge_on_read",
    "services.interval.commits": 2,
    "hoodie.compact.inline.max.delta.commits": 2,
}
BUCKETS = {**ON_READ, "index.type": "bucket", "hoodie.bucket.index.num.buckets": 2}
RECORD_INDEX = {
    **ON_READ,
    **METADATA,
    "index.type": "record",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.enable": False,
}
KILLS = ("WriteSlices.after", "Write:PREPARED.after")


def rows(fleet: Fleet) -> list[dict[str, Any]]:
    batches = HudiTableBuilder.from_base_uri(fleet.table.as_uri()).build().read()
    found = (row for batch in batches for row in batch.to_pylist())
    kept = ({name: value for name, value in row.items() if not name.startswith("_")} for row in found)
    return sorted(kept, key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("more", "kills"),
    [
        (COPY_ON_WRITE, KILLS),
        pytest.param(BUCKETS, (*KILLS, "Compaction.scheduled"), marks=pytest.mark.thorough),
        # Small files are rewritten there, and nothing is left to compact.
        pytest.param(RECORD_INDEX, KILLS, marks=pytest.mark.thorough),
    ],
    ids=["copy on write, bloom", "merge on read, buckets", "merge on read, record index"],
)
def test_every_change_takes_effect_once_whoever_is_killed(
    fleet: MakeFleet, topic, kafka, more: Mapping[str, object], kills: tuple[str, ...]
) -> None:
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
            **more,
        },
    )
    for number, point in enumerate(kills, 1):
        it.start(f"w{number}", f"{point}=kill")
        it.wait_fired(point)
    it.start("last")
    ends = {partition: len(log.partitions[partition]) for partition in (0, 1)}
    history = it.wait_landed(ends).ledger.history
    assert [summary.outcome for summary in history].count("COMMITTED") >= 3
    if "Compaction.scheduled" in kills:
        eventually("a compaction is complete", lambda: compactions(it), 120, it.logs)
    whole = slices_of(name, *((partition, 0, end) for partition, end in ends.items()))
    assert rows(it) == plain(expected(log, whole, ordered=False))
    report = it.audit()
    assert report.held, report.to_json()
    assert report.changed
    assert any("changed and deleted by key" in f.sentence for f in report.notes)
    assert {f.kind for f in report.notes} <= {Kind.UNPROVEN, Kind.STRAY}
    assert json.loads(report.to_json())["changed"]


def compactions(it: Fleet) -> list[str]:
    """Those that are complete: writes to such a table are another kind of commit."""
    return [path.name for path in it.table.glob(".hoodie/timeline/*.commit")]
