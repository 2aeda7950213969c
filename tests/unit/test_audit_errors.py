"""Each record is once in the table or once in the errors table; the audit must see one that is not."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sink.audit.report import FindingKind, Report
from tests.handmade import _METADATA, SINK, AddedFile, HandmadeTable, kinds, sentences, span

BAD = (3, 7, 8)


class HandmadeErrors(HandmadeTable):
    """Rows of (offset, generation, instant of the table's commit), all of partition 0."""

    def add(self, *rows: tuple[int | None, int, str], **columns: Any) -> None:
        """`columns` have values of their own, the same in all rows."""
        instant = self.tick()
        file_id = f"errors-{self.number}-0"
        self.number += 1
        path = self.write_errors(f"{file_id}_0-0-0_{instant}.parquet", rows, columns)
        self.complete(instant, [self.stat(file_id, path, len(rows))], operation="UPSERT")

    def write_errors(self, name: str, rows: Iterable[tuple[int | None, int, str]], changed: Mapping[str, Any]) -> Path:
        offsets, generations, instants = zip(*rows, strict=True)
        count = len(offsets)
        columns = {
            "_kafka_topic": pa.array([self.topic] * count, pa.string()),
            "_kafka_partition": pa.array([0] * count, pa.int32()),
            "_kafka_offset": pa.array(offsets, pa.int64()),
            "sink": pa.array([SINK] * count, pa.string()),
            "topic_id": pa.array([self.topic_id] * count, pa.string()),
            "generation": pa.array(generations, pa.int32()),
            "instant": pa.array(instants, pa.string()),
        }
        columns |= {column: pa.array([value] * count, columns[column].type) for column, value in changed.items()}
        pq.write_table(pa.table(columns), self.path / name)
        return self.path / name

    def _provenance_types(self) -> tuple[tuple[str, str], ...]:
        return (
            *super()._provenance_types(),
            ("sink", "string"),
            ("topic_id", "string"),
            ("generation", "int"),
            ("instant", "string"),
        )


class SoundTables:
    """A table of offsets 0 to 19 without three bad ones of the first commit, and an empty errors table."""

    def __init__(self, directory: Path) -> None:
        self.table = HandmadeTable(directory / "table")
        self.errors = HandmadeErrors(directory / "table_errors")
        good = [offset for offset in range(10) if offset not in BAD]
        self.instant = self.table.commit(AddedFile(0, good, 0, 10))
        self.table.commit(span(0, 10, 20))
        self.table.rewrite_commit(self.instant, lambda checkpoint: checkpoint["results"][0].__setitem__(-1, len(BAD)))

    def audit(self) -> Report:
        return self.table.audit()

    def replay(self, *offsets: int) -> None:
        """Commits these offsets to the table, and records that they were replayed."""
        instant = self.table.commit(span(1, 0, 1))
        for file in self.table.files_of(instant):
            file.unlink()
        path = self.table.write_file(f"replay-0_0-0-0_{instant}.parquet", [(0, offset) for offset in offsets])
        [commit] = self.table.timeline.glob(f"{instant}_*commit")
        [document] = list(fastavro.reader(io.BytesIO(commit.read_bytes())))
        document["partitionToWriteStats"] = {"": [self.table.stat("replay-0", path, len(offsets))]}
        extra: dict[str, Any] = document["extraMetadata"]
        checkpoint = json.loads(extra[f"sink.checkpoint.{SINK}"])
        del checkpoint["ends"][self.table.topic]["1"]
        extra[f"sink.checkpoint.{SINK}"] = json.dumps({**checkpoint, "results": []})
        runs = [[self.table.topic, self.table.topic_id, 0, 0, offset, offset + 1] for offset in offsets]
        extra[f"sink.replayed.{SINK}"] = json.dumps(runs)
        buffer = io.BytesIO()
        fastavro.writer(buffer, _METADATA, [document])
        commit.write_bytes(buffer.getvalue())


@pytest.fixture
def tables(tmp_path: Path) -> SoundTables:
    return SoundTables(tmp_path)


def test_rows_and_bad_records_together_are_all_records(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD))
    report = tables.audit()
    assert report.held, report.failures
    assert (report.rows, report.errors, report.missing, report.replayed) == (17, 3, 0, 0)
    assert [(row.rows, row.errors, row.gaps) for row in report.partitions] == [(17, 3, 0)]
    assert "17 rows and 3 bad records" in report.verdict()


def test_a_bad_record_that_is_nowhere_is_missing(tables: SoundTables) -> None:
    tables.errors.add((3, 0, tables.instant), (7, 0, tables.instant))
    report = tables.audit()
    assert kinds(report) == {FindingKind.MISSING, FindingKind.ERRORS_COUNT}
    assert report.missing == 1
    assert "counts 3 bad records" in sentences(report, FindingKind.ERRORS_COUNT)


def test_a_record_that_is_in_both_tables_is_a_duplicate(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in (*BAD[:2], 9)))
    report = tables.audit()
    assert kinds(report) == {FindingKind.DUPLICATE, FindingKind.MISSING}
    assert "orders-0 offset 9" in sentences(report, FindingKind.DUPLICATE)
    assert "the errors table" in sentences(report, FindingKind.DUPLICATE)


def test_a_bad_record_that_is_there_twice_is_a_duplicate(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD))
    tables.errors.add((7, 0, tables.instant))
    report = tables.audit()
    assert kinds(report) == {FindingKind.DUPLICATE, FindingKind.ERRORS_COUNT}


def test_a_bad_record_that_is_there_twice_does_not_stand_for_another_one(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in (3, 7, 7)))
    assert "counts 3 bad records" in (sentence := sentences(tables.audit(), FindingKind.ERRORS_COUNT))
    assert sentence.endswith("has 3 of 2 offsets")


@pytest.mark.parametrize("gone", ["", ".hoodie/hoodie.properties"])
def test_an_errors_table_that_is_not_there_lacks_what_the_commits_count(gone: str, tables: SoundTables) -> None:
    path = tables.errors.path / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = tables.audit()
    assert kinds(report) == {FindingKind.MISSING, FindingKind.ERRORS_COUNT}
    found = sentences(report, FindingKind.ERRORS_COUNT)
    assert ("it does not exist" if not gone else "not a Hudi table") in found
    assert "Check errors.table.base.path." in found
    assert found.endswith("table_errors has 0")


@pytest.mark.parametrize(
    "changed",
    [
        {"_kafka_offset": 1000},
        {"_kafka_offset": None},
        {"_kafka_partition": 1},
        {"_kafka_partition": None},
        {"_kafka_topic": "others"},
        {"topic_id": "another"},
        {"generation": 1},
    ],
)
def test_a_row_that_lies_in_no_slice_of_its_commit_is_found(changed: Mapping[str, Any], tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD[1:]))
    tables.errors.add((BAD[0], 0, tables.instant), **changed)
    tables.replay(BAD[1])
    report = tables.audit()
    assert kinds(report) >= {FindingKind.ERRORS_ROW, FindingKind.ERRORS_COUNT}
    assert f"commit {tables.instant}" in sentences(report, FindingKind.ERRORS_ROW)


def test_rows_of_two_commits_that_change_places_are_found(tables: SoundTables) -> None:
    later = tables.table.commit(AddedFile(0, [offset for offset in range(20, 30) if offset != 25], 20, 30))
    tables.table.rewrite_commit(later, lambda checkpoint: checkpoint["results"][0].__setitem__(-1, 1))
    tables.errors.add(*((offset, 0, tables.instant) for offset in (*BAD[1:], 25)), (BAD[0], 0, later))
    assert kinds(tables.audit()) == {FindingKind.ERRORS_ROW, FindingKind.ERRORS_COUNT}


def test_a_slice_has_its_own_bad_records_not_those_of_another_one_of_its_commit(tmp_path: Path) -> None:
    table, errors = HandmadeTable(tmp_path / "table"), HandmadeErrors(tmp_path / "table_errors")
    good = [offset for offset in range(10) if offset != 3]
    instant = table.commit(AddedFile(0, good, 0, 10, records=10), AddedFile(1, range(10), 0, 10, records=9))
    table.rewrite_commit(instant, lambda checkpoint: checkpoint["results"][1].__setitem__(-1, 1))
    errors.add((3, 0, instant))
    found = table.audit()
    assert f"orders-1[0, 10) of transaction 1 (commit {instant})" in sentences(found, FindingKind.ERRORS_COUNT)
    assert "orders-0 offset 3" in sentences(found, FindingKind.ERRORS_ROW)


def test_rows_of_another_tables_sink_in_the_same_errors_table_do_not_count(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD))
    # Two tables may have commits with one instant, and two clusters topics with one name.
    tables.errors.add(*((offset, 0, tables.instant) for offset in range(10)), sink="another")
    report = tables.audit()
    assert report.held, sentences(report)
    assert report.errors == len(BAD)


def test_rows_of_a_transaction_that_was_not_committed_are_only_noted(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD), (25, 0, "20990101000000000"))
    report = tables.audit()
    assert report.held, report.failures
    assert "1 rows of the errors table" in sentences(report, FindingKind.UNPUBLISHED)


def test_what_a_commit_says_it_replayed_is_in_the_table_and_no_longer_counted_as_bad(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD))
    tables.replay(3, 8)
    report = tables.audit()
    assert report.held, report.failures
    assert (report.rows, report.errors, report.replayed) == (19, 1, 2)


def test_a_replay_that_says_more_than_it_added_is_found_out(tables: SoundTables) -> None:
    tables.errors.add(*((offset, 0, tables.instant) for offset in BAD))
    tables.replay(3, 8)
    for path in tables.table.path.glob("replay-0_*.parquet"):
        path.unlink()
    assert kinds(tables.audit()) >= {FindingKind.FILE_MISSING, FindingKind.MISSING}


def test_a_table_without_bad_records_needs_no_errors_table(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "table")
    table.commit(span(0, 0, 10))
    assert table.audit().held
