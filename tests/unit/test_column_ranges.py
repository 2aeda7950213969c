"""Column statistics in a write stat hold all values of the file, and stay small."""

from __future__ import annotations

import io
import json
import math
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sink.layout import column_ranges
from sink.layout.column_ranges import (
    KEY,
    ColumnRange,
    chunks_without_nulls,
    decode_ranges,
    nan_columns,
    ranges_of,
    within_bounds,
)


def footer(*tables: pa.Table) -> Any:
    """Returns the footer of a file with each table as a row group."""
    footers: list[Any] = []
    with pq.ParquetWriter(io.BytesIO(), tables[0].schema, metadata_collector=footers) as file:
        for table in tables:
            file.write_table(table)
    return footers[0]


def ranges(*tables: pa.Table) -> tuple[ColumnRange, ...]:
    """Returns the ranges of such a file as they come out of the JSON of its write stat."""
    with_nan = set().union(*map(nan_columns, tables))
    return decode_ranges(json.loads(json.dumps(ranges_of(footer(*tables), with_nan), allow_nan=False))).ranges


def ends(*tables: pa.Table) -> list[tuple[Any, Any]]:
    return [(column.least, column.greatest) for column in ranges(*tables)]


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


TOP = "\U0010ffff"


@pytest.mark.parametrize(
    ("value", "greatest"),
    [
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 63 + "y"),
        ("ä" * 2000, "ä" * 63 + "å"),
        ("x" * 63 + "\ud7ff" + "x", "x" * 63 + "\ue000"),
        ("x" * 60 + TOP * 9, "x" * 59 + "y"),
        (TOP * 65, TOP * 64),
        ("x" * 5000, TOP * 64),
        (b"x" * 65, b"x" * 63 + b"y"),
        (b"x" * 60 + b"\xff" * 9, b"x" * 59 + b"y"),
        (b"x" * 5000, b"\xff" * 64),
    ],
    ids=range(10),
)
def test_a_long_value_is_between_short_bounds_in_every_row_group(value: Any, greatest: Any) -> None:
    for groups in (1, 2):
        (column,) = ranges(*[pa.table({"word": [value]})] * groups)
        assert (column.least, column.greatest) == (value[:0] if len(value) > 4096 else value[:64], greatest)


@pytest.mark.parametrize(("less", "more"), [("\ufffd", "\U0001f600"), (b"\x7f", b"\x80")])
def test_row_groups_are_merged_in_sparks_order(less: Any, more: Any) -> None:
    (column,) = ranges(pa.table({"word": [more]}), pa.table({"word": [less]}))
    assert (column.least, column.greatest) == (less, more)


def test_a_range_with_nan_ends_with_infinity_wherever_the_nan_is() -> None:
    nan, nowhere = math.nan, pa.table({"x": [3.0]})
    assert ends(pa.table({"x": [1.0, nan, None]}), nowhere) == [(1.0, math.inf)]
    assert ends(pa.table({"x": [nan, nan]})) == [(math.inf, math.inf)]
    assert ends(pa.table({"x": [nan]}), nowhere) == [(3.0, math.inf)]
    assert ends(nowhere, pa.table({"x": [1.0]})) == [(1.0, 3.0)]
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.float32())), ("c", pa.map_(pa.int32(), pa.float64()))])
    rows = [{"a": "a", "b": [1.0], "c": [(1, nan)]}, None, {"a": "a", "b": None, "c": None}, {"a": "a", "b": [nan]}]
    nested = pa.table({"x": pa.chunked_array([pa.array(rows, kind)]), "y": [1.0] * 4})
    assert ends(nested) == [("a", "a"), (1.0, math.inf), (1, 1), (math.inf, math.inf), (1.0, 1.0)]


def test_a_status_keeps_the_ranges_of_its_first_files_and_all_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = [stat(number) for number in range(5)]
    assert within_bounds(stats) == tuple(stats)
    monkeypatch.setattr(column_ranges, "STATUS_BYTES_MOST", 2 * len(stats[0]))
    kept_stats = within_bounds(stats)
    assert [json.loads(kept_stat)["fileId"] for kept_stat in kept_stats] == ["0", "1", "2", "3", "4"]
    assert [KEY in json.loads(kept_stat) for kept_stat in kept_stats] == [True, True, False, False, False]


class JavaFooter:
    """A footer of one column as Parquet's Java library writes it, in the shape of pyarrow's: no statistics at all of a
    chunk with long values, and NaN as a maximum."""

    num_columns, num_row_groups = 1, 1

    def __init__(self, kind: pa.DataType, values: int, **statistics: Any) -> None:
        self._column = footer(pa.table({"c": pa.array([None], kind)})).schema.column(0)
        self.schema = SimpleNamespace(column=lambda _: self._column)
        found = SimpleNamespace(**{"has_min_max": False, "has_null_count": False, **statistics})
        self._chunk = SimpleNamespace(
            statistics=found, num_values=values, total_compressed_size=1, total_uncompressed_size=1
        )

    def row_group(self, _: int) -> Any:
        return SimpleNamespace(column=lambda _: self._chunk)


def test_a_chunk_without_statistics_gets_a_range_once_its_nulls_are_counted() -> None:
    java: Any = JavaFooter(pa.string(), 3)
    assert chunks_without_nulls(java) == [(0, 0)]
    assert ranges_of(java) is None
    document = ranges_of(java, counted={(0, 0): 2})
    assert document is not None
    (found,) = decode_ranges(document).ranges
    assert (found.least, found.greatest, found.nulls, found.values) == ("", "\U0010ffff" * 64, 2, 3)


def test_nan_in_a_footer_of_javas_becomes_infinity() -> None:
    counted = {"has_null_count": True, "null_count": 0, "has_min_max": True}
    for least, greatest in ((1.0, math.nan), (math.nan, math.nan)):
        java: Any = JavaFooter(pa.float64(), 2, min_raw=least, max_raw=greatest, **counted)
        document = ranges_of(java)
        assert document is not None
        (found,) = decode_ranges(document).ranges
        assert (found.least, found.greatest) == (math.inf if math.isnan(least) else least, math.inf)
