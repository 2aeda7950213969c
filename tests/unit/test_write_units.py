"""Units depend on the rows of a slice alone, and small batches cost no more than their rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from sink.write.files.slice_files import UNIT_ROWS, RowChunker, Unit, row_bytes
from sink.write.reading.read_batches import BATCH_ROWS

INNER = pa.struct([("city", pa.string()), ("zips", pa.list_(pa.int32()))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("place", INNER),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def record(number: int) -> dict[str, object]:
    odd = number % 3
    return {
        "id": number,
        "ok": odd == 1,
        "price": None,
        "name": None if odd == 2 else "x" * (number % 17),
        "raw": b"ab" * (number % 5),
        "place": None if odd else {"city": "Zürich", "zips": list(range(number % 4))},
        "tags": None if odd == 1 else ["t" * (number % 7), None],
        "counts": None if odd == 2 else [(f"k{at}", at) for at in range(number % 3)],
        "topic": "orders",
    }


def batch_of(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([record(number) for number in range(start, stop)], schema=SCHEMA)


def cut(count: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    start, at = 0, 0
    while start < count:
        stop = min(count, start + sizes[at % len(sizes)])
        yield start, stop
        start, at = stop, at + 1


def units_of(rows: pa.RecordBatch, sizes: Sequence[int], bytes_max: int) -> list[Unit]:
    chunker, units = RowChunker(bytes_max), []
    for start, stop in cut(rows.num_rows, sizes):
        units += chunker.add(rows.slice(start, stop - start), np.arange(start, stop))
    rest = chunker.flush()
    return [*units, rest] if rest else units


def numbers_of(units: Sequence[Unit]) -> list[tuple[int, int, int]]:
    return [(int(unit.paths[0]), unit.rows.num_rows, unit.bytes) for unit in units]


@pytest.mark.parametrize("sizes", [[1], [7], [64, 1, 300], [1000]])
@pytest.mark.parametrize("bytes_max", [1, 500, 20_000, 1 << 30])
def test_the_same_rows_give_the_same_units_whatever_batches_bring_them(sizes: list[int], bytes_max: int) -> None:
    rows = batch_of(0, 1000)
    expected, units = units_of(rows, [1000], bytes_max), units_of(rows, sizes, bytes_max)
    assert numbers_of(units) == numbers_of(expected)
    assert pa.Table.from_batches([unit.rows for unit in units]).equals(pa.Table.from_batches([rows]))
    assert [int(number) for unit in units for number in unit.paths] == list(range(1000))


def test_a_row_counts_the_same_in_a_batch_and_alone() -> None:
    together = row_bytes(batch_of(0, 200))
    assert list(together) == [int(row_bytes(batch_of(number, number + 1))[0]) for number in range(200)]
    assert list(row_bytes(batch_of(0, 200).slice(50, 20))) == list(together[50:70])


def test_rows_count_for_what_they_hold() -> None:
    rows = batch_of(0, 10_000)
    assert 0.8 < row_bytes(rows).sum() / rows.nbytes < 1.3


def test_a_unit_ends_with_the_row_that_fills_it() -> None:
    rows = batch_of(0, 1000)
    weights = row_bytes(rows)
    for unit in units_of(rows, [1000], 700)[:-1]:
        assert unit.bytes >= 700
        assert unit.bytes - weights[unit.paths[-1]] < 700


def test_batches_of_the_usual_size_are_units_as_they_are() -> None:
    assert UNIT_ROWS == BATCH_ROWS
    rows = pa.RecordBatch.from_pydict({"id": np.arange(3 * UNIT_ROWS)})
    units = units_of(rows, [UNIT_ROWS], 1 << 30)
    assert [unit.rows.num_rows for unit in units] == [UNIT_ROWS] * 3
    addresses = [unit.rows.column("id").buffers()[1].address for unit in units]
    assert addresses == [rows.column("id").buffers()[1].address] * 3


def test_thousands_of_batches_of_one_row_cost_little_more_than_their_rows() -> None:
    rows, chunker = batch_of(0, 1), RowChunker(1 << 30)
    before = pa.total_allocated_bytes()
    counted = 0
    for number in range(2_000):
        fresh = pa.RecordBatch.from_pylist([record(number)], schema=SCHEMA)
        counted += int(row_bytes(fresh)[0])
        assert not list(chunker.add(fresh, np.zeros(1, np.int64)))
    assert pa.total_allocated_bytes() - before < 2 * counted
    assert rows.num_rows == 1


def test_random_batches_of_random_rows_give_the_same_units() -> None:
    rng = random.Random(5)
    for _ in range(30):
        rows = batch_of(0, rng.randrange(1, 400))
        limit = rng.randrange(1, 9000)
        sizes = [rng.randrange(1, 90) for _ in range(5)]
        assert numbers_of(units_of(rows, sizes, limit)) == numbers_of(units_of(rows, [400], limit))
