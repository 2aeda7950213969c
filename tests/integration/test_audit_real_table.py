"""The audit on a table that Hudi itself wrote, deleted from, clustered and archived; then broken by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sink.audit.audit import audit
from sink.audit.report import FindingKind, Report
from tests.handmade import kinds, sentences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROWS = 100
COMMITS = 7
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.datasource.write.recordkey.field": "_kafka_topic,_kafka_partition,_kafka_offset",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.commitmeta.key.prefix": "sink.checkpoint.",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
}


def append(spark: SparkSession, path: Path, number: int) -> None:
    """Transaction `number`: the next `ROWS` offsets of two partitions, spread over two days."""
    start, end = (number - 1) * ROWS, number * ROWS
    rows = [("", f"d{offset % 2}", "orders", partition, offset) for partition in (0, 1) for offset in range(start, end)]
    checkpoint = {
        "format": 1,
        "sink": "orders",
        "keeper": "keeper",
        "cluster": "cluster",
        "epoch": 1,
        "number": number,
        "base": number - 1,
        "config": "digest",
        "topics": {"orders": "id"},
        "ends": {"orders": {"0": [end, 0], "1": [end, 0]}},
        "anchors": {},
        "schemas": [],
        "results": [["orders", partition, start, end, 0, ROWS, "0", 0] for partition in (0, 1)],
        "gaps": [],
    }
    frame = spark.createDataFrame(
        rows, "note string, day string, _kafka_topic string, _kafka_partition int, _kafka_offset long"
    )
    options = OPTIONS | {"sink.checkpoint.orders": json.dumps(checkpoint)}
    frame.write.format("hudi").options(**options).mode("append").save(str(path))


@pytest.fixture(scope="module")
def sound(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven commits of the sink, the oldest archived, between them a DELETE, an UPDATE and a clustering."""
    path = tmp_path_factory.mktemp("hudi") / "orders"
    for number in range(1, COMMITS - 1):
        append(spark, path, number)
    spark.sql(f"CREATE TABLE audited USING hudi LOCATION '{path}'")
    spark.sql("DELETE FROM audited WHERE _kafka_offset < 10")
    spark.sql(f"CALL run_clustering(path => '{path}')").collect()
    append(spark, path, COMMITS - 1)
    spark.sql("UPDATE audited SET note = 'seen' WHERE _kafka_offset BETWEEN 300 AND 310")
    append(spark, path, COMMITS)
    spark.sql("DROP TABLE audited")
    return path


@pytest.fixture
def copied(sound: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(sound, tmp_path / "orders"))


def newest_file(table: Path) -> Path:
    return max(table.glob("day=*/*.parquet"), key=lambda path: path.name.rpartition("_")[2])


def remove_metadata_table(table: Path) -> None:
    """Removes the metadata table, so that a reader lists storage."""
    shutil.rmtree(table / ".hoodie" / "metadata")


def test_what_hudi_did_to_the_table_does_not_confuse_it(sound: Path) -> None:
    history = list((sound / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    assert history, "nothing was archived: the table is too small to prove anything"
    report = audit(str(sound), "orders")
    assert report.held, report.failures
    assert (report.commits, report.others) == (COMMITS, 2)
    assert report.rows == 2 * (COMMITS * ROWS - 10)
    assert "20 rows are gone; commits of other writers deleted them" in sentences(report, FindingKind.OTHERS)


@pytest.mark.parametrize("directory_name", ["with blank", "per%20cent", "hash#mark", "what?", "a[b]*"])
def test_its_path_may_have_odd_characters(sound: Path, tmp_path: Path, directory_name: str) -> None:
    """The table has a metadata table, which hudi-rs reads below the same path."""
    path = Path(shutil.copytree(sound, tmp_path / directory_name / "orders"))
    report = audit(f"file://{path}", "orders")
    assert report.held, report.failures
    assert report.rows == 2 * (COMMITS * ROWS - 10)


def test_a_deleted_timeline_is_a_failure(copied: Path) -> None:
    for path in (copied / ".hoodie" / "timeline").glob("2*"):
        path.unlink()
    assert kinds(audit(str(copied), "orders")) == {FindingKind.NO_COMMIT}


def drop(table: Path) -> str:
    file = newest_file(table)
    file.unlink()
    return file.name


def truncate(table: Path) -> str:
    file = newest_file(table)
    file.write_bytes(file.read_bytes()[:1000])
    return file.name


def copy_under_another_id(table: Path) -> str:
    file = newest_file(table)
    copy = file.with_name(f"11111111{file.name[8:]}")
    shutil.copy(file, copy)
    return copy.name


def drop_metafile(table: Path) -> str:
    (table / "day=d0" / ".hoodie_partition_metadata").unlink()
    return "day=d0"


def remove_a_commit(table: Path) -> str:
    newest = max((table / ".hoodie" / "timeline").glob("*_*.commit"))
    second = sorted((table / ".hoodie" / "timeline").glob("*_*.commit"))[-3]
    assert second != newest
    second.unlink()
    return second.name[:17]


def truncate_the_archive(table: Path) -> str:
    file = min((table / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    return file.name


@pytest.mark.parametrize("metadata_table", [True, False], ids=["metadata table", "listing"])
@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (drop, FindingKind.FILE_MISSING),
        (truncate, FindingKind.FILE_SIZE),
        (copy_under_another_id, FindingKind.DUPLICATE),
        (copy_under_another_id, FindingKind.FILE_UNNAMED),
        (drop_metafile, FindingKind.PARTITION_METAFILE),
        (truncate_the_archive, FindingKind.UNREADABLE_INSTANT),
    ],
)
def test_damage_is_found_and_named(
    copied: Path, damage: Callable[[Path], str], kind: FindingKind, metadata_table: bool
) -> None:
    if not metadata_table:
        remove_metadata_table(copied)
    name = damage(copied)
    report = audit(str(copied), "orders")
    assert kind in kinds(report)
    assert name in sentences(report, kind)


def test_a_commit_taken_off_the_timeline_is_found(copied: Path) -> None:
    remove_a_commit(copied)
    report: Report = audit(str(copied), "orders")
    assert kinds(report) >= {FindingKind.BROKEN_CHAIN, FindingKind.RANGE_HOLE}
