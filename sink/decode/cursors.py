"""Reads many binary values side by side with numpy: the position in each value, and the reasons of failed ones.

Guarantee: no read crosses the end of a value: it fails that value, keeps the first reason, and the other values go on.
The position of a failed value is its end; later reads return meaningless bytes of the right length. Rows rise in every
call. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

_VARINT_BYTES = 10
_AHEAD = 16
"""Zero bytes after the last value, so that a read may look ahead before it checks where the value ends."""
MOST_STEPS = 100_000
"""The most steps that items of arrays and maps, and skipped values within others, may take in one value. A value takes
each step alone if no other value is as long: up to 35 microseconds."""
TOO_SHORT = "it ends in the middle of a field"
TOO_LONG = "a number of more than 64 bits"
TOO_MANY = f"its arrays and maps have more than {MOST_STEPS:,} items and fields within them"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a value is bad. `column` is the path of the column that it does not fit; empty for the value as a whole."""

    problem: str
    column: str = ""

    def __str__(self) -> str:
        return f"column {self.column!r}: {self.problem}" if self.column else self.problem


class Cursors:
    _spent: Rows | None = None
    """The steps of each row, once one is counted."""

    def __init__(self, values: pa.BinaryArray) -> None:
        self.data, starts, self.end = _extents(values)
        self.at = starts.copy()
        self.failed = np.zeros(len(values), np.bool_)
        self.failures: dict[int, Reason] = {}
        """The first reason of each failed row."""

    @property
    def reasons(self) -> dict[int, str]:
        """The texts of `failures`."""
        return {row: str(reason) for row, reason in self.failures.items()}

    def spend(self, rows: Rows, steps: int | Rows) -> None:
        """Counts steps of the rows. A row that takes more than `MOST_STEPS` is bad."""
        if self._spent is None:
            self._spent = np.zeros(len(self.failed), np.int64)
        self._spent[rows] += steps
        self.fail_where(rows, self._spent[rows] > MOST_STEPS, TOO_MANY)

    def fail(self, rows: Rows, reason: str | Reason) -> None:
        """Marks the rows as bad. A row that failed before keeps its first reason."""
        failure = Reason(reason) if isinstance(reason, str) else reason
        for row in rows[~self.failed[rows]].tolist():
            self.failures[row] = failure
        self.failed[rows] = True
        self.at[rows] = self.end[rows]

    def name_column(self, row: int, reason: Reason, column: str) -> None:
        """Adds the column to the reason of a failed row, if this one is its first."""
        if self.failures.get(row) == reason:
            self.failures[row] = replace(reason, column=column)

    def fail_where(self, rows: Rows, invalid: Flags, reason: str | Reason) -> None:
        """Marks those of the rows as bad that are flagged in `invalid`."""
        if invalid.any():
            self.fail(rows[invalid], reason)

    def bytes_left(self, rows: Rows) -> Rows:
        remaining: Rows = self.end[rows] - self.at[rows]
        return remaining

    def varints(self, rows: Rows) -> npt.NDArray[np.uint64]:
        """Reads the next varint of each row: seven bits a byte, the lowest first, at most ten bytes."""
        positions = self.at[rows]
        byte = self.data[positions]
        numbers: npt.NDArray[np.uint64] = (byte & 0x7F).astype(np.uint64)
        length = np.ones(len(rows), np.int64)
        unfinished = np.flatnonzero(byte >= 0x80)
        for position in range(1, _VARINT_BYTES):
            if not len(unfinished):
                break
            byte = self.data[positions[unfinished] + position]
            numbers[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * position)
            length[unfinished] += 1
            # The last byte has one bit left.
            unfinished = unfinished[byte >= (2 if position == _VARINT_BYTES - 1 else 0x80)]
        self._advance(rows, length)
        if len(unfinished):
            self.fail(rows[unfinished], TOO_LONG)
        return numbers

    def zigzags(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Reads the next zigzag varint of each row, as in Avro and `sint64`: 0, -1, 1, -2, ..."""
        return zigzag(self.varints(rows))

    def fixed(self, rows: Rows, size: int) -> Bytes:
        """Reads the next `size` bytes of each row, as the rows of a matrix."""
        positions = self.at[rows]
        self._advance(rows, np.full(len(rows), size, np.int64))
        matrix: Bytes = self.data[np.minimum(positions[:, None] + np.arange(size), len(self.data) - 1)]
        return matrix

    def numbers(self, rows: Rows, kind: str) -> npt.NDArray[np.generic]:
        """Reads the next number of each row in a fixed width: `<f4`, `<f8`, `<u4`, ... as numpy names them."""
        dtype = np.dtype(kind)
        return np.ascontiguousarray(self.fixed(rows, dtype.itemsize)).view(dtype).reshape(len(rows))

    def spans(self, rows: Rows, lengths: npt.NDArray[np.int64]) -> tuple[Rows, Rows]:
        """Skips `lengths` bytes of each row. Returns where they start, and their lengths."""
        short = (lengths < 0) | (lengths > self.bytes_left(rows))
        if short.any():
            self.fail(rows[short], TOO_SHORT)
            lengths = np.where(short, 0, lengths)
        starts = self.at[rows]
        self.at[rows] = starts + lengths
        return starts, lengths

    def binary(self, starts: Rows, lengths: Rows) -> pa.BinaryArray:
        """Returns the bytes at these positions, which rise and do not overlap, as a column."""
        return cut(self.data, starts, starts + lengths, pa.binary())

    def utf8(self, rows: Rows, starts: Rows, lengths: Rows) -> pa.StringArray:
        """Returns the bytes as a string column. Bytes that are not UTF-8 fail their row."""
        column = self.binary(starts, lengths)
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            invalid = np.array([not _is_utf8(value) for value in column.to_pylist()])
            self.fail(rows[invalid], "a text that is not UTF-8")
            return self.binary(starts, np.where(invalid, 0, lengths)).cast(pa.string())

    def inside(self, rows: Rows, starts: Rows, lengths: Rows) -> Cursors:
        """Returns cursors over parts of the values. A part that fails also fails its value."""
        return _Parts(self, rows, starts, lengths)

    def _advance(self, rows: Rows, lengths: npt.NDArray[np.int64]) -> None:
        positions = self.at[rows] + lengths
        too_far = positions > self.end[rows]
        self.at[rows] = positions
        self.fail_where(rows, too_far, TOO_SHORT)


class _Parts(Cursors):
    def __init__(self, values: Cursors, rows: Rows, starts: Rows, lengths: Rows) -> None:
        self._values, self._rows = values, rows
        self.data = values.data
        self.at = starts.copy()
        self.end = starts + lengths
        self.failed = np.zeros(len(rows), np.bool_)
        self.failures = {}

    def fail(self, rows: Rows, reason: str | Reason) -> None:
        super().fail(rows, reason)
        self._values.fail(self._rows[rows], reason)

    def name_column(self, row: int, reason: Reason, column: str) -> None:
        super().name_column(row, reason, column)
        self._values.name_column(int(self._rows[row]), reason, column)


def cut(data: Bytes, starts: Rows, ends: Rows, kind: pa.DataType) -> pa.Array:
    """Returns the bytes from each start to its end, which rise and do not overlap, as a column of binaries or texts."""
    # One column of the wanted bytes and the bytes between them; every second value of it is wanted.
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    alternating = pa.Array.from_buffers(kind, max(0, len(offsets) - 1), buffers)
    return alternating.take(pa.array(np.arange(0, len(offsets), 2, dtype=np.int32)))


def zigzag(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    signed: Rows = (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
    return signed


def flags(array: pa.BooleanArray) -> Flags:
    """Returns the booleans as flags; a null is False."""
    values: Flags = array.fill_null(False).to_numpy(zero_copy_only=False)
    return values


def scattered(count: int, parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Merges parts into a column of `count` values. Each part has the positions of its values; the rest is null."""
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    source_rows = np.full(count, -1, np.int64)
    count_before = 0
    for positions, values in parts:
        source_rows[positions] = np.arange(count_before, count_before + len(values))
        count_before += len(values)
    if not count_before:
        return pa.nulls(count, kind)
    return joined([values for _, values in parts], kind).take(pa.array(source_rows, mask=source_rows < 0))


def joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def offsets_after(lengths: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def as_map(lengths: npt.NDArray[np.int64], keys: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Makes a column of maps. If a map has a key twice, the last value counts, at the position of the first."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    codes = pc.dictionary_encode(keys)
    names = max(1, len(codes.dictionary))
    entries = owners * names + codes.indices.to_numpy(zero_copy_only=False)
    _, first_entries, inverse = np.unique(entries, return_index=True, return_inverse=True)
    if len(first_entries) < len(entries):
        last_entries = np.zeros(len(first_entries), np.int64)
        last_entries[inverse] = np.arange(len(entries))
        order = np.argsort(first_entries)
        keys, values = keys.take(pa.array(first_entries[order])), values.take(pa.array(last_entries[order]))
        lengths = np.bincount(owners[first_entries], minlength=len(lengths))
    return pa.MapArray.from_arrays(offsets_after(lengths), keys, values, type=kind)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _extents(values: pa.BinaryArray) -> tuple[Bytes, Rows, Rows]:
    """Returns the bytes of all values, padded, and where each value starts and ends; a null is empty."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if not len(offsets):
        offsets = np.zeros(1, np.int64)
    begin, stop = int(offsets[0]), int(offsets[-1])
    data = np.zeros(stop - begin + _AHEAD, np.uint8)
    if data_buffer is not None:
        data[: stop - begin] = np.frombuffer(data_buffer, np.uint8, stop)[begin:]
    offsets -= begin
    return data, offsets[:-1], offsets[1:]
