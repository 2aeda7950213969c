"""The audit of kept tables finds what is wrong beside rows: files, the metadata table, statistics and filters."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from sink.audit.content import indexes
from sink.audit.files import check_storage, named_files
from sink.audit.metadata_table import MetadataTable, Record, column_statistics
from sink.audit.report import FindingKind, Report
from sink.audit.timeline import active_names, read_timeline
from sink.storage.table_files import open_table
from tests.handmade import HandmadeTable
from tests.mutations.edit import Edited, change_hfile, log_blocks, rows_of, with_cell, with_footer
from tests.mutations.kept import KeptTable, unpack

Break = Callable[[str], Edited]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept")
    for name in ("appends", "merged", "copied"):
        unpack(name, directory)
    return directory


@pytest.fixture
def a_copy(unpacked: Path, tmp_path: Path) -> Break:
    return lambda name: Edited(unpacked / name).copy("broken", tmp_path)


def audited(edited: Edited) -> Report:
    return KeptTable(edited.directory).audit()


def sentences(edited: Edited, kind: FindingKind) -> list[str]:
    return [finding.sentence for finding in audited(edited).findings if finding.kind is kind]


def newest(edited: Edited) -> Path:
    return max(edited.files(), key=lambda path: path.name.rpartition("_")[2])


def with_type(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)


def test_whole_numbers_that_a_file_has_as_fractions_are_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    edited.without_metadata_table()
    path = newest(edited)
    fractions = pa.chunked_array([[float(number) + 0.4 for number in rows_of(path).column("id").to_pylist()]])
    edited.change_rows(path, lambda rows: with_type(rows, "id", fractions))
    assert any("has type double there, the table's is int64" in one for one in sentences(edited, FindingKind.COLUMNS))


def test_a_decimal_of_more_digits_than_the_column_has_is_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    edited.without_metadata_table()
    path = newest(edited)
    more = [number + Decimal("0.001") for number in rows_of(path).column("amount").to_pylist()]
    digits = pa.chunked_array([pa.array(more, pa.decimal128(12, 3))])
    edited.change_rows(path, lambda rows: with_type(rows, "amount", digits))
    assert any("has type decimal128(12, 3) there" in one for one in sentences(edited, FindingKind.COLUMNS))


@pytest.mark.parametrize("name", ["price", "PRICE"])
def test_a_column_that_a_file_has_twice_is_found(name: str, a_copy: Break) -> None:
    edited = a_copy("appends")
    edited.without_metadata_table()
    edited.change_rows(newest(edited), lambda rows: rows.append_column(name, pa.array([0.0] * rows.num_rows)))
    [sentence] = sentences(edited, FindingKind.COLUMNS)
    assert "is there 2 times" in sentence


def test_moments_without_a_zone_are_found_beside_statistics_of_moments_with_one(a_copy: Break) -> None:
    edited = a_copy("appends")
    path = newest(edited)
    local = rows_of(path).column("seen").cast(pa.timestamp("us"))
    edited.change_rows(path, lambda rows: with_type(rows, "seen", local))
    assert any("has type timestamp[us] there" in one for one in sentences(edited, FindingKind.COLUMNS))


def test_a_null_for_a_record_key_leaves_the_file_unreadable_and_the_audit_runs_on(a_copy: Break) -> None:
    edited = a_copy("copied")
    edited.without_metadata_table()
    path = newest(edited)
    keys = pa.chunked_array([[None, *rows_of(path).column("_hoodie_record_key").to_pylist()[1:]]])
    edited.change_rows(path, lambda rows: with_type(rows, "_hoodie_record_key", keys))
    assert FindingKind.FILE_UNREADABLE in {finding.kind for finding in audited(edited).findings}


def test_a_filter_of_more_hashes_than_any_has_is_refused_at_once(a_copy: Break) -> None:
    edited = a_copy("copied")
    edited.without_metadata_table()
    text = base64.b64encode(struct.pack(">iibi", -1, (1 << 31) - 1, 1, 8) + b"\xff").decode()
    footer = {"org__apache__hudi__bloomfilter": text, "hoodie_bloom_filter_type_code": "SIMPLE"}
    edited.change_rows(newest(edited), lambda rows: with_footer(rows, **footer))
    [sentence] = sentences(edited, FindingKind.FOOTER)
    assert "a Bloom filter of 2,147,483,647 hashes" in sentence


@pytest.mark.parametrize("digits", [14, 17])
def test_a_copy_of_a_file_with_an_instant_of_any_length_is_found(digits: int, a_copy: Break) -> None:
    edited = a_copy("appends")
    path = newest(edited)
    instant = "20200101000000000"[:digits]
    shutil.copy(path, path.with_name(f"0000aaaa-0000-5000-8000-000000000000-0_0-1-1_{instant}.parquet"))
    assert any("a reader that lists storage reads it" in one for one in sentences(edited, FindingKind.FILE_UNNAMED))


@pytest.mark.parametrize("bound", ["minValue", "maxValue"])
def test_a_file_of_whose_values_the_column_statistics_have_no_bound_is_found(
    bound: str, a_copy: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = a_copy("appends")
    place = newest(edited).name, "id"

    def without_bound(metadata: MetadataTable) -> dict[tuple[str, str], Record]:
        found = column_statistics(metadata) or {}
        return {**found, place: {**found[place], bound: None}}

    monkeypatch.setattr(indexes, "column_statistics", without_bound)
    [sentence] = sentences(edited, FindingKind.STATISTICS)
    assert place[0] in sentence
    assert "None" in sentence


def test_column_statistics_without_a_record_are_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    for path in edited.metadata_files("column_stats"):
        path.unlink()
    assert sentences(edited, FindingKind.STATISTICS) == ["column_stats is empty, and the table's properties list it"]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"indexDefinitions": {}}'])
def test_index_definitions_that_do_not_say_what_is_indexed_are_found(text: str | None, a_copy: Break) -> None:
    edited = a_copy("appends")
    path = edited.table / ".hoodie" / ".index_defs" / "index.json"
    path.unlink() if text is None else path.write_text(text)
    [sentence] = sentences(edited, FindingKind.STATISTICS)
    assert "does not say which columns column_stats has" in sentence


def test_a_partition_that_the_metadata_table_lists_and_nobody_has_is_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    path = [file for file in edited.metadata_files("files") if ".log." in file.name][-1]
    [block] = log_blocks(path.read_bytes())
    changed = change_hfile(block.content, b"\x0eday=tue\x00\x00", b"\x0eday=wed\x00\x00")
    path.write_bytes(path.read_bytes().replace(block.content, changed))
    assert sentences(edited, FindingKind.METADATA_TABLE) == [
        "it lists table partition day=wed, which is not on storage"
    ]


@pytest.mark.parametrize("name", ["appends", "merged", "copied"])
def test_a_list_of_partitions_that_lacks_those_of_the_table_is_found(
    name: str, a_copy: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MetadataTable.records

    def without_list(metadata: MetadataTable, part: str) -> dict[bytes, list[Record]]:
        return {key: records for key, records in read(metadata, part).items() if key != b"__all_partitions__"}

    monkeypatch.setattr(MetadataTable, "records", without_list)
    edited = a_copy(name)
    folders = {str(path.parent.relative_to(edited.table)) for path in edited.files()}
    found = sentences(edited, FindingKind.METADATA_TABLE)
    assert len(found) == len(folders)
    assert all(one.startswith("it does not list table partition") for one in found)


KEYS = ("\uff5e1", "\U0001f6001")
"""In the order of their bytes; the second is first by units of UTF-16."""


@pytest.mark.parametrize(("low", "high", "is_found"), [(0, 1, False), (1, 0, False), (0, 0, True), (1, 1, True)])
def test_a_footer_has_the_range_of_record_keys_in_the_order_of_either_of_hudis_writers(
    low: int, high: int, is_found: bool, a_copy: Break
) -> None:
    edited = a_copy("copied")
    edited.without_metadata_table()
    path = newest(edited)
    texts = pa.chunked_array([[KEYS[number % 2] for number in range(rows_of(path).num_rows)]])
    edited.change_rows(
        path,
        lambda rows: with_footer(
            with_type(rows, "_hoodie_record_key", texts),
            org__apache__hudi__bloomfilter=base64.b64encode(struct.pack(">iibi", -1, 1, 1, 8) + b"\xff").decode(),
            hoodie_bloom_filter_type_code="SIMPLE",
            hoodie_min_record_key=KEYS[low],
            hoodie_max_record_key=KEYS[high],
        ),
    )
    assert bool(sentences(edited, FindingKind.FOOTER)) == is_found


@pytest.mark.parametrize("text", ["", "partitionDepth=7\n", "partitionDepth=x\n"])
def test_a_metafile_that_does_not_say_how_deep_its_partition_is_is_found(text: str, a_copy: Break) -> None:
    edited = a_copy("appends")
    (edited.table / "day=mon" / ".hoodie_partition_metadata").write_text(text)
    [sentence] = sentences(edited, FindingKind.PARTITION_METAFILE)
    assert sentence.startswith("table partition day=mon is of depth 1")


def test_a_partition_of_log_files_alone_has_a_metafile(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "table")
    (table.path / ".hoodie_partition_metadata").unlink(missing_ok=True)
    path = table.path / f".group-0_{(instant := table.tick())}.log.1_0-0-0"
    path.write_bytes(b"")
    table.complete(instant, [table.stat("group-0", path, 0)], operation="UPSERT")
    opened = open_table(str(table.path))
    timeline = read_timeline(opened, active_names(opened))
    found = check_storage(opened, timeline, named_files(timeline.commits)).findings
    assert [finding.kind for finding in found] == [FindingKind.PARTITION_METAFILE]


def test_the_checkpoint_of_another_sink_is_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    edited.change_checkpoint(edited.own_commits()[-2], lambda checkpoint: checkpoint.update(sink="other"))
    [sentence] = sentences(edited, FindingKind.UNREADABLE_CHECKPOINT)
    assert "it is the checkpoint of sink other" in sentence


def test_a_commit_that_completed_at_two_moments_is_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    path = edited.own_commits()[-1]
    instant, _, completed = path.stem.partition("_")
    shutil.copy(path, path.with_name(f"{instant}_{int(completed) + 500}.commit"))
    [sentence] = sentences(edited, FindingKind.UNREADABLE_INSTANT)
    assert f"{instant} completed at" in sentence


def test_an_order_of_rows_in_the_properties_other_than_the_sinks_is_found(a_copy: Break) -> None:
    edited = a_copy("copied")
    properties = edited.table / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"))
    [sentence] = sentences(edited, FindingKind.READERS)
    assert sentence.startswith("hoodie.record.merge.mode is COMMIT_TIME_ORDERING")


@pytest.mark.parametrize("schema", ["{", json.dumps({"fields": [{"name": "id", "type": "long"}]})])
def test_a_footer_whose_schema_is_not_that_of_its_file_is_found(schema: str, a_copy: Break) -> None:
    edited = a_copy("copied")
    edited.without_metadata_table()
    edited.change_rows(newest(edited), lambda rows: with_footer(rows, parquet__avro__schema=schema))
    [sentence] = sentences(edited, FindingKind.FOOTER)
    assert "parquet.avro.schema in its footer has other columns" in sentence


def test_rows_that_name_another_file_are_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    edited.without_metadata_table()
    edited.change_rows(newest(edited), lambda rows: with_cell(rows, 0, "_hoodie_file_name", "nowhere.parquet"))
    [sentence] = sentences(edited, FindingKind.CELL)
    assert sentence.startswith("column _hoodie_file_name")


def test_a_log_of_the_metadata_table_that_readers_take_for_corrupt_is_found(a_copy: Break) -> None:
    edited = a_copy("appends")
    path = [file for file in edited.metadata_files("column_stats") if ".log." in file.name][-1]
    path.write_bytes(path.read_bytes()[:-8] + struct.pack(">q", 5))
    [sentence] = sentences(edited, FindingKind.STATISTICS)
    assert path.name in sentence
    assert "by its end" in sentence


def test_rows_of_a_table_without_hudis_columns_name_no_file(a_copy: Break) -> None:
    edited = a_copy("appends")
    edited.without_metadata_table()
    properties = edited.table / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("populate.meta.fields=true", "populate.meta.fields=false"))
    edited.change_rows(newest(edited), lambda rows: with_cell(rows, 0, "_hoodie_file_name", ""))
    assert sentences(edited, FindingKind.CELL) == []


def test_a_decimal_in_column_statistics_has_all_of_its_digits() -> None:
    number = 12345678901234567890123456789012345678
    stored = {"value": number.to_bytes(16, "big", signed=True)}
    record = {"minValue": stored, "valueType": {"typeOrdinal": 10, "additionalInfo": "38,10"}}
    assert indexes._stored(record, "minValue") == Decimal("1234567890123456789012345678.9012345678")
