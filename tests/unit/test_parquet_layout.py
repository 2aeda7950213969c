"""Columns of a file get a dictionary, or are packed as differences, and all values are read as they were."""

from __future__ import annotations

import io
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sink.write.files.parquet_layout import PAGES, choose_layout

ROWS = 5000
RANDOM = Random(1)
LOW, HIGH = -(1 << 63), (1 << 63) - 1


def layout_of(values: list[int | None], kind: pa.DataType) -> str:
    table = pa.table({"c": pa.array(values, kind)})
    layout = choose_layout(table, (), ())
    return "dictionary" if layout.dictionary else layout.encodings.get("c", "plain")


@pytest.mark.parametrize(
    ("values", "layout"),
    [
        ([7 * number for number in range(ROWS)], "DELTA_BINARY_PACKED"),
        ([None if number % 3 else number for number in range(ROWS)], "DELTA_BINARY_PACKED"),
        ([1_700_000_000_000 + RANDOM.randrange(60_000) for _ in range(ROWS)], "DELTA_BINARY_PACKED"),
        ([RANDOM.randrange(1_000_000) for _ in range(ROWS)], "DELTA_BINARY_PACKED"),
        ([RANDOM.randrange(3) for _ in range(ROWS)], "dictionary"),
        ([RANDOM.choice((LOW, HIGH)) + 0 * number for number in range(ROWS)], "dictionary"),
        ([RANDOM.randrange(LOW, HIGH) for _ in range(ROWS)], "plain"),
        ([RANDOM.randrange(LOW, HIGH) for _ in range(300)] * 20, "plain"),
        (list(range(100)), "plain"),
        ([None] * ROWS, "dictionary"),
        ([], "dictionary"),
    ],
    ids=["rising", "with nulls", "times", "narrow", "few", "far apart", "wide", "repeated", "short", "null", "none"],
)
def test_numbers_are_laid_down_as_they_are_smallest(values, layout):
    assert layout_of(values, pa.int64()) == layout


def test_what_is_known_beforehand_is_not_looked_at():
    table = pa.table({"offset": [1] * ROWS, "key": [f"k{number}" for number in range(ROWS)], "text": ["a"] * ROWS})
    layout = choose_layout(table, ("offset", "absent"), ("key",))
    assert layout.dictionary == ("text",)
    assert layout.encodings == {"offset": "DELTA_BINARY_PACKED", "key": "DELTA_BYTE_ARRAY"}


def test_packed_numbers_of_every_type_are_read_as_they_were():
    steps = np.cumsum([RANDOM.randrange(9) for _ in range(ROWS)])
    table = pa.table(
        {
            "int": pa.array(steps.astype(np.int32)),
            "long": pa.array(steps * 1000 + (1 << 40)),
            "day": pa.array(steps.astype(np.int32)).cast(pa.date32()),
            "time": pa.array([None if at % 5 == 0 else int(at) for at in steps], pa.timestamp("us", "UTC")),
            "text": [f"t{at}" for at in steps],
        }
    )
    layout = choose_layout(table, (), ())
    assert set(layout.encodings) == {"int", "day", "time", "long"}
    # Rows after the sample may look different.
    wide = pa.table({"long": pa.array([LOW, HIGH, 0, None, LOW] * 400, pa.int64())})
    rows = pa.concat_tables([table, wide], promote_options="default")
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer, rows.schema, use_dictionary=False, column_encoding=dict(layout.encodings), **PAGES
    ) as writer:
        writer.write_table(rows)
    buffer.seek(0)
    parquet_file = pq.ParquetFile(buffer)
    assert parquet_file.read().equals(rows)
    for at in range(4):
        assert "DELTA_BINARY_PACKED" in parquet_file.metadata.row_group(0).column(at).encodings
