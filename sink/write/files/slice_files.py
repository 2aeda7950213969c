"""Writes the base files of one write task in bounded memory: it buffers rows, sorts them by table partition and rolls
files.

Guarantee: rows keep their order within a table partition. At most `buffer_bytes` of rows are buffered, besides one unit
and the current batch, and at most `open_files_max` files are open. A table partition gets one file, unless that reaches
`file_max_bytes` or has to be closed for another one: then several, with rising roll numbers. The same rows are written
at the same points and in the same order, however batches bring them: another attempt rolls at the same rows. Voided
for the points if a file's size is within a few bytes of `file_max_bytes`: instant and attempt are in the file, and
their compressed length varies. Raises Abandoned if the instant is no longer pending, and what the storage raises.

A unit is a record batch of at most `UNIT_ROWS` rows and, but for its last row, an eighth of the buffer. It depends only
on the rows: the same rows in the same order give the same units. Small batches are merged while they wait, because each
has a fixed cost.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sink.layout.partition_paths import Groups
from sink.schema.table_schema import META_COLUMNS
from sink.storage.files import Storage
from sink.write.files.base_file import Attempt, BaseFile, InstantGuard
from sink.write.files.parquet_layout import ParquetLayout, choose_layout

METAFILE = ".hoodie_partition_metadata"
DELTA = ("_kafka_offset", "_kafka_timestamp")
PREFIXED = ("_hoodie_commit_seqno", "_hoodie_record_key")
_LISTING_EVERY = 1.0
"""Seconds between two checks for a completed instant, each of which lists the timeline."""
_CLOSED_TOGETHER = 8
"""Files that are closed at once on an object store. A closing thread waits for requests, and needs no core."""
_UNITS_IN_BUFFER = 8
"""The least units in a full buffer: a unit of large rows has fewer rows, so that it exceeds the buffer by little."""
UNIT_ROWS = 16_384
"""Those of a batch of `sink.write.reading.read_batches`: usually a unit is one batch, and nothing is copied."""
_WAITING_PARTS = 64
"""The pieces of batches that may wait for a full unit; each costs some 10 KB besides its rows."""
_OFFSET_BYTES = 4

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows, for each row the number of its partition path, and the bytes of the rows in memory."""

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


@dataclass(frozen=True, slots=True)
class FileLimits:
    file_max_bytes: int
    open_files_max: int
    buffer_bytes: int


class SliceFiles:
    """Writes rows into base files, and collects their write stats."""

    def __init__(self, storage: Storage, attempt: Attempt, limits: FileLimits, codec: str, meta_fields: bool) -> None:
        self.stats: list[str] = []
        self._storage = storage
        self._attempt = attempt
        self._limits = limits
        self._codec = codec
        self._meta_fields = meta_fields
        self._instant_guard = InstantGuard(storage, attempt.instant)
        self._paths: dict[str, int] = {}
        self._units = RowChunker(max(1, limits.buffer_bytes // _UNITS_IN_BUFFER))
        self._pending: list[Unit] = []
        self._pending_bytes = 0
        self._open: OrderedDict[str, BaseFile] = OrderedDict()
        self._rolls: dict[str, int] = {}
        self._layout: ParquetLayout | None = None
        self._listed_at = float("-inf")

    def add(self, rows: pa.RecordBatch, groups: Groups) -> None:
        """Adds rows with the table's columns; with meta fields, sequence number and record key come before them."""
        numbers = np.array([self._paths.setdefault(path, len(self._paths)) for path in groups.paths], np.int64)
        for unit in self._units.add(rows, numbers[groups.codes]):
            self._hold(unit)

    def close(self) -> Sequence[str]:
        last_unit = self._units.flush()
        if last_unit is not None:
            self._hold(last_unit)
        self._flush()
        if self._storage.is_object_store and len(self._open) > 1:
            # Closing a file takes three requests, one after the other.
            with ThreadPoolExecutor(min(_CLOSED_TOGETHER, len(self._open))) as closing:
                self.stats += closing.map(BaseFile.close, list(self._open.values()))
            self._open.clear()
        while self._open:
            self._close(next(iter(self._open)))
        return self.stats

    def discard(self) -> None:
        while self._open:
            self._open.popitem()[1].discard()

    def _hold(self, unit: Unit) -> None:
        self._pending.append(unit)
        self._pending_bytes += unit.bytes
        if self._pending_bytes >= self._limits.buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        units, self._pending, self._pending_bytes = self._pending, [], 0
        if not units:
            return
        rows = pa.Table.from_batches([unit.rows for unit in units])
        codes = np.concatenate([unit.paths for unit in units])
        units.clear()
        # Sort by path: the numbers depend on the order in which batches brought the paths.
        paths = list(self._paths)
        present = sorted(np.unique(codes), key=paths.__getitem__) if len(paths) > 1 else [0]
        if len(present) == 1:
            self._append(paths[present[0]], rows)
            return
        ranks = np.zeros(len(paths), np.int64)
        ranks[present] = np.arange(len(present))
        ranked = ranks[codes]
        rows = rows.combine_chunks().take(pa.array(np.argsort(ranked, kind="stable")))
        start = 0
        for number, count in zip(present, np.bincount(ranked), strict=True):
            self._append(paths[number], rows.slice(start, int(count)))
            start += int(count)

    def _append(self, path: str, rows: pa.Table) -> None:
        file = self._open.get(path)
        if file is None:
            while len(self._open) >= self._limits.open_files_max:
                self._close(next(iter(self._open)))
            file = self._create(path)
        self._open.move_to_end(path)
        if self._meta_fields:
            rows = self._with_meta(rows, file)
        if not file.is_open:
            self._layout = self._layout or choose_layout(rows, DELTA, PREFIXED)
            file.open(self._layout, self._codec)
        if file.write(rows) >= self._limits.file_max_bytes:
            self._close(path)

    def _create(self, path: str) -> BaseFile:
        now = time.monotonic()
        lists_timeline = now - self._listed_at >= _LISTING_EVERY
        self._instant_guard.check(completed_too=lists_timeline)
        self._listed_at = now if lists_timeline else self._listed_at
        roll = self._rolls.get(path, 0)
        self._rolls[path] = roll + 1
        if path and not roll:
            self._mark_partition(path)
        file = BaseFile(self._storage, self._instant_guard, self._attempt, path, roll)
        self._open[path] = file
        return file

    def _mark_partition(self, path: str) -> None:
        """Writes Hudi's partition metafile, as Hudi's own tasks do. The coordinator checks all of them before a commit,
        and would need ten times as long to write one."""
        path_of_metafile = f"{path}/{METAFILE}"
        if not self._storage.exists(path_of_metafile):
            content = f"#partition metadata\ncommitTime={self._attempt.instant}\npartitionDepth={path.count('/') + 1}\n"
            with self._storage.create(path_of_metafile) as metafile:
                metafile.write(content.encode())

    def _close(self, path: str) -> None:
        file = self._open[path]
        self.stats.append(file.close())
        del self._open[path]

    def _with_meta(self, rows: pa.Table, file: BaseFile) -> pa.Table:
        zeros = pa.array(np.zeros(rows.num_rows, np.int32))
        constants = {
            name: pa.DictionaryArray.from_arrays(zeros, pa.array([value]))
            for name, value in (
                ("_hoodie_commit_time", self._attempt.instant),
                ("_hoodie_partition_path", file.path),
                ("_hoodie_file_name", file.name),
            )
        }
        columns = [constants[name] if name in constants else rows.column(name) for name in META_COLUMNS]
        table_columns = rows.drop_columns([name for name in META_COLUMNS if name in rows.schema.names])
        fields = [pa.field(name, column.type) for name, column in zip(META_COLUMNS, columns, strict=True)]
        return pa.Table.from_arrays(columns + table_columns.columns, schema=pa.schema([*fields, *table_columns.schema]))
