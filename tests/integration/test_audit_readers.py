"""The rows that Spark and hudi-rs return are compared with those of the files; Spark reads what hudi-rs cannot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sink.audit.audit import audit
from sink.audit.readers import READERS, SPARK
from sink.audit.report import FindingKind, Report
from tests.handmade import kinds, sentences
from tests.integration.table_kit import SINK
from tests.integration.test_upserts import MakeUpserts, make_upserts
from tests.integration.upsert_kit import BUCKETS, ON_READ, Change, Upserts, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

__all__ = ["make_upserts"]


ChangeRows = Callable[[pa.Table], pa.Table]


class SparkTable:
    """Reads with the session of the tests, as `sink.commands.spark_rows` does with one of its own."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._path = spark, path

    def write(self, folder: Path, metadata: bool, /) -> None:
        rows = self._spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower()).load(self._path)
        rows.write.option("compression", "snappy").parquet(folder.as_uri())


def change(key: int, at: int, **more: object) -> Change:
    row = {"id": key, "at": at, "kind": "a", "amount": "1.00", "tags": ["x", None] if key % 2 else None, **more}
    return str(key).encode(), json.dumps(row).encode()


def landed(upserts: Upserts, kafka: str) -> None:
    """Lands ten keys, of which one changes, one is deleted, and two changes come too late."""
    send(kafka, upserts.topic, [change(key, 5) for key in range(10)])
    upserts.land((0, 0, 10))
    changes = [change(1, 6), change(2, 4), change(3, 7, _hoodie_is_deleted=True), change(4, 3, _hoodie_is_deleted=True)]
    send(kafka, upserts.topic, changes)
    upserts.land((0, 10, 14))


def report_of(upserts: Upserts, spark: SparkSession | None, *readers: str) -> Report:
    path = upserts.settings.base_path
    rows = None if spark is None else SparkTable(spark, path)
    return audit(path, SINK, storage=upserts.settings.storage, spark=rows, readers=readers)


@pytest.mark.parametrize("more", [{}, {**ON_READ, **BUCKETS}])
def test_readers_of_a_healthy_table_agree(make_upserts: MakeUpserts, kafka, spark, more: dict[str, str]) -> None:
    upserts = make_upserts(**{"ordering__field__name": "at", "decimal__format": "numeric", **more})
    landed(upserts, kafka.address)
    report = report_of(upserts, spark, *READERS)
    assert report.held, report.to_json()
    found = sorted(finding.sentence for finding in report.notes if finding.kind is FindingKind.READ)
    readers = ("Spark with the metadata table", "Spark without the metadata table", "hudi-rs")
    assert found == [f"{reader} returns 9 rows as the files have them" for reader in readers]


def test_deletes_of_the_sink_and_of_spark_sql_side_by_side_are_no_fault_of_the_table(
    make_upserts: MakeUpserts, kafka, spark
) -> None:
    upserts = make_upserts(**{"ordering__field__name": "at", "decimal__format": "numeric", **ON_READ, **BUCKETS})
    landed(upserts, kafka.address)
    name = f"audited_{upserts.topic.replace('-', '_')}"
    spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{upserts.settings.base_path}'")
    try:
        # Its delete blocks have no ordering value, and those of the sink have a BIGINT.
        spark.sql(f"DELETE FROM {name} WHERE id IN (5, 6)")
    finally:
        spark.sql(f"DROP TABLE {name}")
    report = report_of(upserts, spark, *READERS)
    assert (report.held, report.rows) == (True, 7), report.to_json()
    read = sentences(report, FindingKind.READ)
    assert "Spark with the metadata table returns 7 rows as the files have them" in read
    assert "Spark without the metadata table returns 7 rows as the files have them" in read


def test_spark_reads_a_table_of_several_ordering_columns(make_upserts: MakeUpserts, kafka, spark) -> None:
    upserts = make_upserts(**{"ordering__field__name": "at,id", "decimal__format": "numeric", **ON_READ, **BUCKETS})
    landed(upserts, kafka.address)
    report = report_of(upserts, spark, *READERS)
    assert (report.held, report.rows) == (True, 9), report.to_json()
    assert "it knows one ordering column, not at, id" in sentences(report, FindingKind.BY_SPARK)
    alone = report_of(upserts, None)
    assert FindingKind.FILE_UNREADABLE in kinds(alone)
    assert "there is no Spark to read its rows" in sentences(alone, FindingKind.FILE_UNREADABLE)


def without_the_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def twice_the_first(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def another_kind(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("kind")
    return rows.set_column(place, rows.schema.field(place), pa.array(["z"] + ["a"] * (len(rows) - 1)))


@pytest.mark.parametrize(
    ("change_rows", "difference"),
    [
        (without_the_first, "a row of the files is not returned"),
        (twice_the_first, "a row is returned that the files do not have"),
        (another_kind, "a row has other cells than in the files"),
    ],
)
def test_readers_that_differ_are_a_finding_by_file_group_and_row(
    make_upserts: MakeUpserts,
    kafka,
    spark,
    tmp_path: Path,
    change_rows: Callable[[pa.Table], pa.Table],
    difference: str,
) -> None:
    upserts = make_upserts(**{"ordering__field__name": "at", "decimal__format": "numeric"})
    landed(upserts, kafka.address)
    path = Path(upserts.settings.base_path)
    other = Path(shutil.copytree(path, tmp_path / "other"))
    # Of the last commit: task numbers in the names begin anywhere.
    file = max(other.glob("*.parquet"), key=lambda path: path.stem.rpartition("_")[2])
    rows = pq.ParquetFile(file).read()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(change_rows(rows), file)
    report = audit(str(path), spark=SparkTable(spark, str(other)), readers=[SPARK])
    assert kinds(report) & {FindingKind.READERS, FindingKind.READ} == {FindingKind.READERS}
    key, group = rows.column("_hoodie_record_key")[0].as_py(), file.name.split("_")[0]
    assert f"file group {group}: {difference} (_hoodie_record_key={key!r}" in sentences(report, FindingKind.READERS)
