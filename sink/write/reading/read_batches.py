"""Batches of Kafka records for a write task.

A slice is a range of offsets of one partition. Guarantee: a batch has records of one topic. Each of its parts is a run
of rows of one slice, by rising offset, and the parts cover the batch. Imports only what every executor has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.errors import SinkError
from coordination.state.model import Slice

BATCH_ROWS = 16_384
"""The cost of a batch besides its rows is small beside theirs then."""
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Rows `[start, stop)` of a batch. They belong to the slice at position `slice` in the task."""

    slice: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """`records` has the columns value, key, partition, offset, timestamp, digest of the record and, if the table has
    them, headers.
    """

    records: pa.RecordBatch
    topic: str
    parts: tuple[BatchPart, ...]


class SliceIndex:
    """Finds the slice of a record by its coordinates."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        by_source: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for position, piece in enumerate(slices):
            by_source[piece.topic, piece.partition].append((piece.start, piece.end, position))
        self._ranges = {source: np.array(sorted(rows), np.int64).T for source, rows in by_source.items()}

    def parts(self, topic: str, partition: int, offsets: Offsets) -> Iterator[BatchPart]:
        """Cuts rows of one partition where slices end. Raises SinkError for a row that belongs to no slice."""
        starts, ends, positions = self._ranges.get((topic, partition), np.zeros((3, 0), np.int64))
        columns = np.searchsorted(starts, offsets, "right") - 1
        if len(offsets) and (columns.min() < 0 or (offsets >= ends[columns]).any()):
            raise SinkError(f"{topic}-{partition}: the reader returned offsets outside its slices, {offsets.min()} on")
        bounds = [0, *(np.flatnonzero(np.diff(columns)) + 1).tolist(), len(offsets)]
        for start, stop in pairwise(bounds):
            if start < stop:
                yield BatchPart(int(positions[columns[start]]), start, stop)


class BatchBuilder:
    """Joins small pieces of one topic into batches of up to `BATCH_ROWS` rows and about `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._topic = ""
        self._pieces: list[pa.RecordBatch] = []
        self._parts: list[BatchPart] = []
        self._rows = self._bytes = 0

    def add(self, topic: str, piece: pa.RecordBatch, parts: Iterator[BatchPart]) -> Iterator[ReadBatch]:
        """Adds a piece; yields the batch before it, if that is full. Rows of `parts` count from the piece's start."""
        full = self._rows + piece.num_rows > BATCH_ROWS or self._bytes + piece.nbytes > self._bytes_max
        if self._pieces and (full or topic != self._topic):
            yield from self.flush()
        self._topic = topic
        self._pieces.append(piece)
        for part in parts:
            self._add_part(BatchPart(part.slice, part.start + self._rows, part.stop + self._rows))
        self._rows += piece.num_rows
        self._bytes += piece.nbytes

    def flush(self) -> Iterator[ReadBatch]:
        """Yields the last batch, if there is one."""
        if self._pieces:
            records = self._pieces[0] if len(self._pieces) == 1 else pa.concat_batches(self._pieces)
            batch = ReadBatch(records, self._topic, tuple(self._parts))
            self._pieces, self._parts, self._rows, self._bytes = [], [], 0, 0
            yield batch

    def _add_part(self, part: BatchPart) -> None:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.slice == part.slice and last.stop == part.start:
            self._parts[-1] = BatchPart(last.slice, last.start, part.stop)
        else:
            self._parts.append(part)
