"""The mirror shows hudi-rs a table that hudi-rs cannot reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from hudi import HudiReadOptions

from sink.audit.failures import TryAgain
from sink.storage.hudi_rs import MirroredTable, NotFetched, rust_table
from sink.storage.table_files import open_table
from tests.handmade import HandmadeTable, span


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    handmade = HandmadeTable(tmp_path / "with blank" / "table")
    handmade.commit(span(0, 0, 10), span(1, 0, 5))
    handmade.commit(span(0, 10, 12))
    return handmade


def test_slices_and_rows_are_those_of_the_table_itself(table: HandmadeTable) -> None:
    files = open_table(str(table.path))
    direct, mirrored = rust_table(files), MirroredTable(files)
    assert mirrored.get_schema() == direct.get_schema()
    slices_by_reader = [sorted(reader.get_file_slices(HudiReadOptions()), key=str) for reader in (direct, mirrored)]
    paths = [[file_slice.base_file_relative_path() for file_slice in file_slices] for file_slices in slices_by_reader]
    assert len(paths[0]) == 3
    assert sorted(paths[0]) == sorted(paths[1])
    read = mirrored.create_file_group_reader_with_options(HudiReadOptions()).read_file_slice_from_paths_stream
    assert (
        sum(
            batch.num_rows
            for file_slice in slices_by_reader[1]
            for batch in read(file_slice.base_file_relative_path(), [], HudiReadOptions())
        )
        == 17
    )


def test_the_local_disk_holds_one_slice_at_a_time(table: HandmadeTable) -> None:
    mirrored = MirroredTable(open_table(str(table.path)))
    read = mirrored.create_file_group_reader_with_options(HudiReadOptions()).read_file_slice_from_paths_stream
    for file_slice in mirrored.get_file_slices(HudiReadOptions()):
        for _ in read(file_slice.base_file_relative_path(), [], HudiReadOptions()):
            assert sum(_blocks(file) for file in _data(mirrored)) == _blocks(
                table.path / file_slice.base_file_relative_path()
            )
    assert sum(_blocks(file) for file in _data(mirrored)) == 0
    directory = mirrored.directory
    del mirrored, read
    assert not directory.exists()


def test_a_file_that_is_gone_is_named(table: HandmadeTable) -> None:
    mirrored = MirroredTable(open_table(str(table.path)))
    file_slice = mirrored.get_file_slices(HudiReadOptions())[0]
    (table.path / file_slice.base_file_relative_path()).unlink()
    read = mirrored.create_file_group_reader_with_options(HudiReadOptions()).read_file_slice_from_paths_stream
    with pytest.raises(NotFetched, match=file_slice.base_file_relative_path()):
        list(read(file_slice.base_file_relative_path(), [], HudiReadOptions()))


def test_a_file_that_went_with_its_table_partition_is_named(table: HandmadeTable) -> None:
    mirrored = MirroredTable(open_table(str(table.path)))
    with pytest.raises(NotFetched, match=r"day=mon/gone\.parquet"), mirrored.filled(["day=mon/gone.parquet"]):
        pass


def test_a_store_that_fails_an_audit_is_unavailable(table: HandmadeTable) -> None:
    timeline = table.path / ".hoodie" / "timeline"
    timeline.rename(timeline.with_name("aside"))
    timeline.write_text("a file, where a directory was")
    with pytest.raises(TryAgain, match=f"{table.path} cannot be read: .*. Try again"):
        table.audit()


def _data(mirrored: MirroredTable) -> list[Path]:
    return list(mirrored.directory.glob("*.parquet"))


def _blocks(file: Path) -> int:
    return file.stat().st_blocks
