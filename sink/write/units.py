"""Cuts the rows of a task into units that depend only on the rows, not on the batches that bring them.

Guarantee: the same rows in the same order give the same units with the same sizes. A unit is one record batch of at
most `UNIT_ROWS` rows; its last row may exceed `bytes_max`. Small batches are merged while they wait, because each has a
fixed cost. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UNIT_ROWS = 16_384
"""As many rows as a batch of the reader has: usually a unit is one batch, and nothing is copied."""
_WAITING_PARTS = 64
"""The pieces of batches that may wait for a full unit; each costs some 10 KB besides its rows."""
_OFFSET_BYTES = 4

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows, the number of each row's partition path, and the size of the rows."""

    rows: pa.RecordBatch
    paths: Numbers
    bytes: int


class RowChunker:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[pa.RecordBatch] = []
        self._paths: list[Numbers] = []
        self._rows = 0
        self._bytes = 0

    def add(self, rows: pa.RecordBatch, paths: Numbers) -> Iterator[Unit]:
        """Yields the units that are full; the remaining rows wait for the next call."""
        ends = np.cumsum(row_bytes(rows))
        start, earlier_bytes = 0, 0
        while start < rows.num_rows:
            full = int(np.searchsorted(ends, earlier_bytes + self._bytes_max - self._bytes)) + 1
            stop = min(start + UNIT_ROWS - self._rows, full, rows.num_rows)
            self._keep(rows.slice(start, stop - start), paths[start:stop], int(ends[stop - 1]) - earlier_bytes)
            start, earlier_bytes = stop, int(ends[stop - 1])
            if self._rows == UNIT_ROWS or self._bytes >= self._bytes_max:
                yield self._take()

    def flush(self) -> Unit | None:
        """Returns the last unit, if rows are waiting."""
        return self._take() if self._parts else None

    def _keep(self, rows: pa.RecordBatch, paths: Numbers, size: int) -> None:
        self._parts.append(rows)
        self._paths.append(paths)
        self._rows += rows.num_rows
        self._bytes += size
        if len(self._parts) >= _WAITING_PARTS:
            self._parts = [_merged(self._parts)]
            self._paths = [np.concatenate(self._paths)]

    def _take(self) -> Unit:
        unit = Unit(_merged(self._parts), np.concatenate(self._paths), self._bytes)
        self._parts, self._paths, self._rows, self._bytes = [], [], 0, 0
        return unit


def row_bytes(rows: pa.RecordBatch) -> Numbers:
    """Returns the size of each row. `RecordBatch.nbytes` would depend on where batches end."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        total += _value_bytes(column)
    return total


def _value_bytes(column: pa.Array) -> Numbers | int:
    """Returns the size of each value, or one size for all; a null counts like the shortest value."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.binary_length(column)
        value_lengths: Numbers = (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy().astype(np.int64)
        return value_lengths + _OFFSET_BYTES
    if pa.types.is_struct(kind):
        return sum((_value_bytes(column.field(index)) for index in range(kind.num_fields)), start=0)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = np.zeros(len(column.values) + 1, np.int64)
        np.cumsum(np.broadcast_to(_value_bytes(column.values), len(column.values)), out=ends[1:])
        inner: Numbers = np.diff(ends[column.offsets.to_numpy()])
        return inner + _OFFSET_BYTES
    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    return max(1, int(kind.bit_width) // 8)


def _merged(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
