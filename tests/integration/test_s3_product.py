"""Table services, bad records and changed rows work with a table on S3 as with any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from sink.audit.audit import audit
from sink.bad_records.replay import Replay
from sink.bad_records.selection import Selection
from sink.layout.quarantine import QUARANTINE
from sink.operations.operator_commit import commanded_sink
from sink.operations.timeline_snapshot import read_timeline_snapshot
from tests.integration.conftest import MakeSink
from tests.integration.s3_kit import HUDIS_DEFAULTS, driver_on_s3, on_s3, table_location, with_store_access
from tests.integration.sinktable import slices_of
from tests.integration.table_kit import SINK, checkpoint
from tests.integration.test_errors_replay import AFTER as REPAIRED
from tests.integration.test_errors_replay import BROUGHT_BACK, ELSEWHERE, GOOD, IN_ORDER, REPAIR, changes, row
from tests.integration.test_services import CLUSTERING, by_name, count_read_files
from tests.integration.upsert_kit import BY_LOG, ON_READ, RECORD_INDEX, Upserts, expected, plain, random_log, send
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FEW_COMMITS = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    # Hudi archives no instant that its metadata table has not compacted.
    "hoodie.metadata.compact.max.delta.commits": "2",
}
TO_COMPACT = {
    "hoodie.compact.inline.max.delta.commits": "1",
    # With this index Hudi rewrites small files, and nothing is left to compact.
    "hoodie.parquet.small.file.limit": "0",
}
BY_RECORD_INDEX = {
    name.replace("__", "."): value for name, value in RECORD_INDEX.items() if "column__stats" not in name
} | HUDIS_DEFAULTS


def named(settings: dict[str, str]) -> dict[str, str]:
    """Returns settings as keyword arguments of the kits."""
    return {name.replace(".", "__"): value for name, value in settings.items()}


def keys_of(store: Store, base_path: str, directory: str = "") -> set[str]:
    bucket, _, prefix = base_path.removeprefix("s3a://").partition("/")
    return set(store.keys(bucket, f"{prefix}/{directory}"))


@pytest.mark.thorough
def test_files_are_clustered_cleaned_and_their_commits_archived(
    spark: SparkSession, zookeeper, zookeeper_client: KazooClient, s3: Store, tmp_path: Path
) -> None:
    settings = on_s3(s3, tmp_path, zookeeper.address, **CLUSTERING, **FEW_COMMITS)
    driver = driver_on_s3(spark, s3, settings, zookeeper_client)
    for number in range(1, 5):
        driver.land(number)
    small_files = {
        key for key in keys_of(s3, settings.base_path) if key.endswith(".parquet") and "/.hoodie/" not in key
    }
    assert (count_read_files(driver), len(small_files)) == (4, 4)
    runs = [by_name(driver.table.services())]
    assert count_read_files(driver) == 1
    for number in (5, 6):
        driver.land(number)
        runs.append(by_name(driver.table.services()))
    assert not [result.reason for run in runs for result in run.values() if result.reason]
    assert runs[0]["clustering"].instant
    assert runs[-1]["cleaning"].instant
    assert not small_files & keys_of(s3, settings.base_path)
    archived = keys_of(s3, settings.base_path, ".hoodie/timeline/history/")
    assert any(key.endswith(".parquet") for key in archived), archived
    assert driver.count() == driver.count(metadata=False) == 60
    assert driver.table.view().checkpoint == checkpoint(6)


def test_rows_of_a_merge_on_read_table_with_hudis_indexes_are_the_same_before_and_after_its_compaction(
    spark: SparkSession, zookeeper_client: KazooClient, kafka, topic, s3: Store, tmp_path: Path
) -> None:
    name, log = topic(1), random_log(5, 1, 400, 60, ordered=False)
    send(kafka.address, name, log.changes(0))
    more = {**table_location(s3), **BY_LOG, **ON_READ, **BY_RECORD_INDEX, **TO_COMPACT}
    upserts = Upserts(
        with_store_access(spark, s3), zookeeper_client, tmp_path / "table", kafka.address, name, **named(more)
    )
    upserts.land((0, 0, 200))
    upserts.land((0, 200, 300))
    upserts.land((0, 300, 400))
    expected_rows = plain(expected(log, slices_of(name, (0, 0, 400)), ordered=False))
    assert upserts.rows() == expected_rows
    results = by_name(upserts.table.services())
    assert not [result.reason for result in results.values() if result.reason]
    assert results["compaction"].instant
    assert upserts.rows() == expected_rows
    upserts.table.stop_heartbeats()
    report = audit(upserts.settings.base_path, SINK, storage=upserts.settings.storage)
    assert report.held, report.to_json()
    assert report.rows == len(expected_rows)


def test_bad_records_are_published_and_replayed(spark: SparkSession, make_sink: MakeSink, s3: Store) -> None:
    with_store_access(spark, s3)
    odd, even, since = changes(row)
    sink = make_sink([*odd, *since], even, **ELSEWHERE, **IN_ORDER, **named(table_location(s3)))
    sink.land((0, 0, len(odd)), (1, 0, len(even)))
    sink.land((0, len(odd), len(odd) + len(since)))
    assert keys_of(s3, sink.settings.base_path, QUARANTINE)
    sink.sweep()
    assert not [key for key in keys_of(s3, sink.settings.base_path, QUARANTINE) if key.endswith(".parquet")]
    replay = Replay(sink.spark, commanded_sink(sink.settings), sink.client)
    assert len(replay.preview(Selection(), REPAIR).good) == GOOD
    replayed = replay.run(Selection(), REPAIR)
    assert (len(replayed.good), len(replayed.bad)) == (GOOD, 1)
    rows = sink.spark.read.format("hudi").load(sink.settings.base_path).select("id", "at", "kind").collect()
    assert {table_row["id"]: (table_row["at"], table_row["kind"]) for table_row in rows} == REPAIRED | BROUGHT_BACK
    report = audit(sink.settings.base_path, sink.settings.name, storage=sink.settings.storage)
    assert (report.held, report.errors, report.replayed) == (True, 1, GOOD), report.to_json()
    assert not read_timeline_snapshot(sink.settings.base_path, sink.settings.name, sink.settings.storage).pending
