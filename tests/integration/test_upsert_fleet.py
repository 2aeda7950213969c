"""A fleet of real workers upserts a table, although writers, coordinators and table services are killed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from sink.audit.report import FindingKind
from tests.fleet import Fleet
from tests.integration.conftest import MakeFleet
from tests.integration.sinktable import slices_of
from tests.integration.upsert_kit import BY_RECORD_INDEX, UPSERTING, expected, plain, random_log, rows, send
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

COPY_ON_WRITE: Mapping[str, object] = {}
COMPACTED = {"services.interval.commits": 2, "hoodie.compact.inline.max.delta.commits": 2}
ON_READ = {"target.table.type": "merge_on_read", **COMPACTED}
BUCKETS = {**ON_READ, "index.type": "bucket", "hoodie.bucket.index.num.buckets": 2}
ORDERED = {"ordering.field.name": "at", "delete.key.format": "none"}
KILLS = ("WriteTasks.after", "Write:PREPARED.after")


@pytest.mark.parametrize(
    ("more", "kills"),
    [
        (COPY_ON_WRITE, KILLS),
        pytest.param(BUCKETS, (*KILLS, "Compaction.scheduled"), marks=pytest.mark.thorough),
        # With this index Hudi rewrites small files, and nothing is left to compact.
        pytest.param({**BY_RECORD_INDEX, **COMPACTED}, KILLS, marks=pytest.mark.thorough),
        pytest.param({**BUCKETS, **ORDERED}, KILLS, marks=pytest.mark.thorough),
    ],
    ids=[
        "copy on write, bloom",
        "merge on read, buckets",
        "merge on read, record index",
        "merge on read, buckets, ordered by a column",
    ],
)
def test_every_change_takes_effect_once_whoever_is_killed(
    make_fleet: MakeFleet, topic, kafka, more: Mapping[str, object], kills: tuple[str, ...]
) -> None:
    ordered = more.keys() >= ORDERED.keys()
    log = random_log(7, 2, 2400, 150, ordered)
    name = topic(partitions=2)
    for partition in (0, 1):
        send(kafka.address, name, log.changes(partition), partition)
    fleet = make_fleet(name=name, **{**UPSERTING, "flush.size": 500, "slice.records": 300, **more})
    for number, point in enumerate(kills, 1):
        fleet.start(f"w{number}", f"{point}=kill")
        fleet.wait_fired(point)
    fleet.start("last")
    ends = {partition: len(log.partitions[partition]) for partition in (0, 1)}
    history = fleet.wait_landed(ends).ledger.history
    assert [summary.outcome for summary in history].count("COMMITTED") >= 3
    if "Compaction.scheduled" in kills:
        eventually("a compaction is complete", lambda: compactions(fleet), 120, fleet.logs)
    all_slices = slices_of(name, *((partition, 0, end) for partition, end in ends.items()))
    assert rows(fleet.table) == plain(expected(log, all_slices, ordered))
    report = fleet.audit()
    assert report.held, report.to_json()
    assert report.changed
    assert any("changed and deleted by key" in finding.sentence for finding in report.notes)
    assert {finding.kind for finding in report.notes} <= {FindingKind.UNPROVEN, FindingKind.STRAY}
    assert json.loads(report.to_json())["changed"]


def compactions(fleet: Fleet) -> list[str]:
    """Returns the complete compactions: writes to such a table are another kind of commit."""
    return [path.name for path in fleet.table.glob(".hoodie/timeline/*.commit")]
