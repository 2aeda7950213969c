"""Column statistics in a write stat are left out where a status would become too large."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sink.layout import column_ranges
from sink.layout.column_ranges import KEY, decode_ranges, ranges_of, within_bounds


def footer(*tables: pa.Table) -> Any:
    """Returns the footer of a file with each table as a row group."""
    footers: list[Any] = []
    with pq.ParquetWriter(io.BytesIO(), tables[0].schema, metadata_collector=footers) as file:
        for table in tables:
            file.write_table(table)
    return footers[0]


def stat(number: int) -> str:
    return json.dumps({"fileId": str(number), KEY: {"cut": False, "ranges": []}})


def test_ranges_survive_the_json_of_a_write_stat() -> None:
    values = {"number": [1, 2], "ratio": [float("-inf"), 0.1], "raw": [b"\x00", b"\xff"], "word": ["", "\U0001f600"]}
    document = ranges_of(footer(pa.table(values)))
    assert document is not None
    file = decode_ranges(json.loads(json.dumps(document, allow_nan=False)))
    ends = {column_range.column: [column_range.least, column_range.greatest] for column_range in file.ranges}
    assert ends == values
    assert not file.cut


def test_of_a_wide_file_the_first_columns_are_carried_and_it_says_so() -> None:
    document = ranges_of(footer(pa.table({f"c{number}": [number] for number in range(100)})))
    assert document is not None
    file = decode_ranges(document)
    assert file.cut
    assert [column_range.column for column_range in file.ranges] == [f"c{number}" for number in range(64)]


@pytest.mark.parametrize(
    "values",
    [pa.array([1], pa.int8()), pa.array([b"\xff"]).view(pa.string()), pa.array([1], pa.time64("us"))],
    ids=["a type that Hudi refuses", "not UTF-8", "a time of day"],
)
def test_a_file_of_which_hudi_might_say_otherwise_carries_nothing(values: pa.Array) -> None:
    assert ranges_of(footer(pa.table({"id": [1], "odd": values}))) is None


def test_a_file_whose_statistics_are_long_carries_nothing() -> None:
    assert ranges_of(footer(pa.table({f"c{number}": ["x" * 4000] for number in range(3)}))) is None


def test_a_status_keeps_the_ranges_of_its_first_files_and_all_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = [stat(number) for number in range(5)]
    assert within_bounds(stats) == tuple(stats)
    monkeypatch.setattr(column_ranges, "STATUS_BYTES_MOST", 2 * len(stats[0]))
    kept_stats = within_bounds(stats)
    assert [json.loads(kept_stat)["fileId"] for kept_stat in kept_stats] == ["0", "1", "2", "3", "4"]
    assert [KEY in json.loads(kept_stat) for kept_stat in kept_stats] == [True, True, False, False, False]
