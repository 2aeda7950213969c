"""A rehearsal exercises the code of a takeover, and no other system learns of it."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sink.hudi.table import Table, TableOutcome
from sink.runtime.process import commit_warmup
from sink.runtime.process.commit_warmup import rehearse
from sink.schema.table_schema import parse_ddl
from tests.integration.conftest import RECORDS, MakeFleet
from tests.integration.table_kit import DDL, table_settings
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_rehearsal_leaves_nothing_and_tells_nobody(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with socket.create_server(("127.0.0.1", 0)) as graphite:
        graphite.settimeout(0)
        metrics = {
            "hoodie__metrics__on": "true",
            "hoodie__metrics__graphite__port": str(graphite.getsockname()[1]),
            "hoodie__metrics__graphite__report__period__seconds": "1",
        }
        sink_settings = table_settings(tmp_path / "table", "127.0.0.1:9", **metrics)
        schema = parse_ddl(DDL, sink_settings.provenance)
        rehearse(spark, sink_settings, schema)
        with pytest.raises(BlockingIOError):
            graphite.accept()
        assert list(scratch.iterdir()) == []
        assert not (tmp_path / "table").exists()
        # With the settings of its metrics in force, Hudi connects.
        graphite.settimeout(60)
        monkeypatch.setattr(commit_warmup, "_EXERCISED", "hoodie.")
        rehearse(spark, sink_settings, schema)
        graphite.accept()[0].close()


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_rehearsal_comes_to_the_statistics_of_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    indexes: list[set[str]] = []

    def complete(table: Table, *arguments: Any) -> TableOutcome:
        outcome = Table.complete(table, *arguments)
        index = spark.read.format("hudi").load(f"{table._hudi.base_path}/.hoodie/metadata")
        kinds = index.filter("ColumnStatsMetadata is not null").selectExpr("cast(type as string)").distinct()
        indexes.append({row[0] for row in kinds.collect()})
        return outcome

    monkeypatch.setattr(commit_warmup, "Table", type("Watched", (Table,), {"complete": complete}))
    partition = {"partition__field__name": "kind"} if partitioned else {}
    index = {"hoodie__metadata__enable": "true", "hoodie__metadata__index__column__stats__enable": "true"}
    sink_settings = table_settings(tmp_path / "table", "127.0.0.1:9", **index, **partition)
    rehearse(spark, sink_settings, parse_ddl(DDL, sink_settings.provenance))
    assert indexes == [{"3", "6"} if partitioned else {"3"}] * commit_warmup.COMMITS


@pytest.mark.thorough
def test_who_does_not_lead_rehearses_and_who_leads_does_not(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**{"worker.rehearsal": True})
    for name in ("w1", "w2"):
        fleet.start(name)
    fleet.wait_landed(dict.fromkeys(range(3), RECORDS // 3))
    eventually("a rehearsal", lambda: any(map(fleet.has_rehearsed, fleet.workers)), 240, fleet.logs)
    leader = fleet.coordinator()
    assert [name for name in fleet.workers if fleet.has_rehearsed(name)] == [
        name for name, worker in fleet.workers.items() if worker is not leader
    ]
