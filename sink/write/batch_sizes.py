"""Bounds the bytes of the batches that Spark's Kafka source hands to Python. Spark itself bounds only their rows.

The sink learns the record sizes of each Kafka partition from the records that it wrote. For a new partition it first
measures some records; after an out-of-memory failure it measures all records that it is about to write. The partition
with the largest records decides the batch size of a write. Thread-safe, because transactions in flight overlap.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from coordination.state.model import Slice, TopicPartition
from sink.config import Settings
from sink.write.memory import from_memory
from sink.write.source import read_slices
from sink.write.units import UNIT_ROWS

BATCH_ROWS = UNIT_ROWS
BATCH_BYTES = 32 << 20
BURST_BYTES = 512 << 20
"""Largest size of a batch in which every record is as large as the largest one seen."""
FIRST_ROWS = 64
"""Records to measure in a partition whose record sizes are unknown."""
MAX_DIVISOR = 64
"""Largest factor by which failures divide the rows of a batch. Smaller batches cost more than their rows, and would
not save a write that still runs out of memory."""
_CARRIED_OVER = 0.75
"""Share of the difference to an earlier, larger figure that stays after each write."""


@dataclass(frozen=True, slots=True)
class SliceSizes:
    """Sizes of a slice: number of records, bytes of all values, bytes of the largest value."""

    source: TopicPartition
    records: int
    size: int
    largest: int


@dataclass(frozen=True, slots=True)
class _Figures:
    mean: float
    largest: float

    def rows(self) -> float:
        return min(BATCH_BYTES / max(1.0, self.mean), BURST_BYTES / max(1.0, self.largest))

    def or_larger(self, other: _Figures) -> _Figures:
        return _Figures(max(self.mean, other.mean), max(self.largest, other.largest))

    def after(self, earlier: _Figures) -> _Figures:
        """Lets the figures decay slowly from larger earlier ones: the next slice may have large records again."""
        mean, largest = (
            value + _CARRIED_OVER * max(0.0, earlier_value - value)
            for value, earlier_value in ((self.mean, earlier.mean), (self.largest, earlier.largest))
        )
        return _Figures(mean, largest)


class RecordSizes:
    """Mean and largest record size of each partition, and the rows per batch that follow from them."""

    def __init__(self) -> None:
        self._figures: dict[TopicPartition, _Figures] = {}
        self._divisor = 1
        self._lock = threading.Lock()

    def knows(self, source: TopicPartition) -> bool:
        return source in self._figures

    def note(self, slice_sizes: Iterable[SliceSizes]) -> None:
        """Notes sizes of slices with records. If a partition has several slices, the largest figures count."""
        new_figures: dict[TopicPartition, _Figures] = {}
        for sizes in slice_sizes:
            figures = _Figures(sizes.size / sizes.records, sizes.largest)
            new_figures[sizes.source] = figures.or_larger(new_figures.get(sizes.source, figures))
        with self._lock:
            for source, figures in new_figures.items():
                self._figures[source] = figures.after(self._figures.get(source, figures))

    def learn(self, slice_sizes: Iterable[SliceSizes]) -> None:
        """Notes sizes after a write that succeeded, and lets batches grow again."""
        filled = [sizes for sizes in slice_sizes if sizes.records]
        self.note(filled)
        if filled:
            with self._lock:
                self._divisor = max(1, self._divisor // 2)

    def shrink(self) -> None:
        with self._lock:
            self._divisor = min(self._divisor * 4, MAX_DIVISOR)

    def rows_per_batch(self, sources: Iterable[TopicPartition]) -> int:
        """Returns a power of two, so that few sessions are needed, which fits every known partition."""
        row_counts = [figures.rows() for source in sources if (figures := self._figures.get(source))]
        rows = min(row_counts, default=BATCH_ROWS)
        return 1 << max(0, int(min(BATCH_ROWS, rows) / self._divisor).bit_length() - 1)


class BatchSizes(RecordSizes):
    """Sizes of records, and Spark sessions whose batches fit them."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__()
        self._spark = spark
        self._settings = settings
        self._doubted: set[TopicPartition] = set()
        self._sessions: dict[int, SparkSession] = {}

    def session(self, slices: Sequence[Slice]) -> SparkSession:
        """Returns a Spark session whose batches fit the records of these slices."""
        unknown = self._unknown(slices)
        if unknown:
            self.note(self._measure(unknown))
        return self._session(self.rows_per_batch(piece.source for piece in slices))

    def failed(self, slices: Sequence[Slice], error: BaseException) -> None:
        """Makes batches smaller if the job of these slices failed for lack of memory."""
        if from_memory(error):
            self.shrink()
            with self._lock:
                self._doubted |= {piece.source for piece in slices}

    def _unknown(self, slices: Sequence[Slice]) -> list[Slice]:
        """Returns the slices to measure before the write: the first records of an unknown partition, or all records
        of a partition whose last write ran out of memory."""
        sources = {piece.source for piece in slices}
        with self._lock:
            doubted = self._doubted & sources
            self._doubted -= doubted
        heads = {piece.source: _head(piece) for piece in reversed(slices) if not self.knows(piece.source)}
        doubted_slices = [piece for piece in slices if piece.source in doubted]
        return doubted_slices + [head for source, head in heads.items() if source not in doubted]

    def _measure(self, slices: Sequence[Slice]) -> list[SliceSizes]:
        """Lets Spark measure the records; no Python worker sees them."""
        frame = read_slices(self._session(1), self._settings, slices)
        size = F.coalesce(F.length("value"), F.lit(0))
        measured = frame.groupBy("topic", "partition").agg(F.count("*"), F.sum(size), F.max(size)).collect()
        return [SliceSizes(TopicPartition(topic, partition), *figures) for topic, partition, *figures in measured]

    def _session(self, rows: int) -> SparkSession:
        """Returns a session for this batch size, because the size is a setting of a session, not of a job."""
        with self._lock:
            session = self._sessions.get(rows)
            if session is None:
                session = self._sessions[rows] = self._spark.newSession()
                session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", rows)
                session.conf.set("spark.sql.session.timeZone", "UTC")
            return session


def _head(piece: Slice) -> Slice:
    return replace(piece, end=min(piece.end, piece.start + FIRST_ROWS))
