"""Collects the offsets of table rows, committed ranges and log records in DuckDB, and compares them.

All three are stored as runs of consecutive offsets. One sweep over the ends of the runs gives segments with three
counts: rows in the table, ranges that cover them, records in the log. Guarantee: counts are exact, whatever the order
of rows in files. Memory is bounded: one batch at a time, and DuckDB spills to its file. Reads with hudi-rs only. Raises
nothing of its own; the error of a file that cannot be read is in its `FileRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiRecordBatchStream, HudiTable
from numpy.typing import NDArray

from sink.audit.checkpoints import LogPartition
from sink.storage.hudi_rs import MirroredTable, raised_by_hudi

PROVENANCE = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
BATCH_ROWS = 131_072
BUFFERED_ROWS = 4_000_000
_PARTITION = 0xFFFFFFFF
"""The bits of a partition beside the number of its topic."""
MEMORY = "640MB"

_TABLES = """
CREATE TABLE runs (source INTEGER, low BIGINT, high BIGINT);
CREATE TABLE ranges (source INTEGER, low BIGINT, high BIGINT);
CREATE TABLE records (source INTEGER, low BIGINT, high BIGINT);
CREATE TABLE stored (source INTEGER, low BIGINT, high BIGINT);
"""

_SWEEP = """
CREATE OR REPLACE TABLE segments AS
WITH edges AS (
    SELECT source, low AS edge, 1 AS landed, 0 AS covered, 0 AS logged FROM runs
    UNION ALL SELECT source, high, -1, 0, 0 FROM runs
    UNION ALL SELECT source, low, 0, 1, 0 FROM ranges
    UNION ALL SELECT source, high, 0, -1, 0 FROM ranges
    UNION ALL SELECT source, low, 0, 0, 1 FROM records
    UNION ALL SELECT source, high, 0, 0, -1 FROM records
), steps AS (
    SELECT source, edge, sum(landed) AS landed, sum(covered) AS covered, sum(logged) AS logged
    FROM edges GROUP BY source, edge
    HAVING sum(landed) <> 0 OR sum(logged) <> 0 OR max(abs(covered)) > 0
), depths AS (
    SELECT source, edge AS low, lead(edge) OVER source_order AS high,
        sum(landed) OVER source_order AS landed, sum(covered) OVER source_order AS covered,
        sum(logged) OVER source_order AS logged
    FROM steps WINDOW source_order AS (PARTITION BY source ORDER BY edge)
)
SELECT source, low, high, CAST(landed AS BIGINT) AS landed, CAST(covered AS BIGINT) AS covered,
    CAST(logged AS BIGINT) AS logged
FROM depths WHERE high IS NOT NULL AND landed + covered + logged > 0;
CREATE OR REPLACE VIEW aborted AS
SELECT s.source, greatest(s.low, r.low) AS low, least(s.high, r.high) AS high, s.landed, s.covered, s.logged
FROM segments s JOIN stored r ON s.source = r.source AND s.low < r.high AND s.high > r.low
WHERE s.logged = 0
"""
_HOLE = "landed > 0 AND covered > 0 AND logged = 0"


Stream = Callable[[], HudiRecordBatchStream | Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Segment:
    """Offsets `[low, high)` of one partition with the same counts."""

    source: LogPartition
    low: int
    high: int
    landed: int
    covered: int
    logged: int

    def __str__(self) -> str:
        last = self.high - 1
        return f"{self.source} offset {self.low}" + (f" to {last}" if last > self.low else "")


@dataclass(frozen=True, slots=True)
class Holes:
    """Offsets of committed rows that the log does not deliver: their number, and `[low, high)` around them."""

    low: int
    high: int
    offsets: int


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a file. `unplaced` rows lack topic, partition or offset; `error` says why the file was not read."""

    path: str
    rows: int
    unplaced: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SourceCounts:
    rows: int
    first: int | None
    last: int | None
    duplicates: int
    outside: int


class OffsetLedger:
    """The offsets in a DuckDB file under `scratch`, which the caller removes after `close`."""

    def __init__(self, scratch: Path) -> None:
        self._connection = duckdb.connect(str(scratch / "audit.duckdb"), config={"memory_limit": MEMORY})
        self._connection.execute(_TABLES)
        self._sources: dict[LogPartition, int] = {}
        self._files: list[tuple[str, Stream]] = []
        self._spans: list[tuple[int, int, int, int]] = []
        self._buffered: dict[LogPartition, list[NDArray[np.int64]]] = {}
        self._buffered_rows = 0

    def close(self) -> None:
        self._connection.close()

    def source(self, source: LogPartition) -> int:
        return self._sources.setdefault(source, len(self._sources))

    def add_ranges(self, ranges: Iterable[tuple[LogPartition, int, int]]) -> None:
        rows = [(self.source(source), low, high) for source, low, high in ranges]
        if rows:
            sources, lows, highs = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
            self._append("ranges", {"source": sources, "low": lows, "high": highs})

    def add_records(self, source: LogPartition, offsets: Sequence[int]) -> None:
        """Adds offsets that the log delivered, rising."""
        self._add_offsets("records", source, offsets)

    def add_stored(self, source: LogPartition, offsets: Sequence[int]) -> None:
        """Adds offsets that the log has, committed or aborted, rising."""
        self._add_offsets("stored", source, offsets)

    def add(self, path: str, stream: Stream, provenance: bool = True) -> FileRows:
        """Adds rows that landed. Only counts them if they have no columns of `PROVENANCE`."""
        rows = unplaced = 0
        number = len(self._files)
        self._files.append((path, stream))
        try:
            for batch in stream():
                rows += batch.num_rows
                if provenance:
                    unplaced += self._buffer(number, batch)
        except Exception as error:
            if not raised_by_hudi(error):
                raise
            return FileRows(path, rows, unplaced, str(error)[:300])
        return FileRows(path, rows, unplaced)

    def sweep(self) -> None:
        """Computes the segments. Call it once, after everything was added."""
        self._flush()
        self._connection.execute(_SWEEP)

    def segments(self, condition: str, limit: int, table: str = "segments") -> tuple[list[Segment], int, int]:
        """Returns the first segments that fulfil an SQL `condition`, their number, and the number of their offsets.

        `table` may be `aborted`: offsets that the log has, but does not deliver to a read_committed consumer.
        """
        names = {number: source for source, number in self._sources.items()}
        clause = f"FROM {table} WHERE {condition}"
        total = self._row(f"SELECT count(*), coalesce(sum(high - low), 0) {clause}")
        query = f"SELECT source, low, high, landed, covered, logged {clause} ORDER BY source, low LIMIT {limit}"
        rows = self._connection.execute(query).fetchall()
        return [Segment(names[row[0]], *row[1:]) for row in rows], int(total[0]), int(total[1])

    def holes(self, source: LogPartition, start: int, end: int) -> Holes | None:
        """Returns the holes within `[start, end)`; None if there are none."""
        low, high = f"greatest(low, {start})", f"least(high, {end})"
        row = self._row(
            f"SELECT min({low}), max({high}), sum({high} - {low}) FROM segments "
            f"WHERE source = {self.source(source)} AND {_HOLE} AND low < {end} AND high > {start}"
        )
        return None if row[0] is None else Holes(*map(int, row))

    def offsets_by_source(self, condition: str, weight: str = "1") -> dict[LogPartition, int]:
        names = {number: source for source, number in self._sources.items()}
        query = f"SELECT source, sum((high - low) * ({weight})) FROM segments WHERE {condition} GROUP BY source"
        return {names[row[0]]: int(row[1]) for row in self._connection.execute(query).fetchall()}

    def files_of(self, segment: Segment) -> list[str]:
        """Returns the files with rows of the segment; it reads the candidates again."""
        key = self.source(segment.source)
        candidates = {
            file
            for source, file, low, high in self._spans
            if source == key and low < segment.high and high > segment.low
        }
        return [self._files[file][0] for file in sorted(candidates) if self._holds(file, segment)]

    def _holds(self, file: int, segment: Segment) -> bool:
        for batch in self._files[file][1]():
            offsets = _split(batch)[0].get(segment.source)
            if offsets is not None and np.any((offsets >= segment.low) & (offsets < segment.high)):
                return True
        return False

    def counts(self) -> dict[LogPartition, SourceCounts]:
        """Returns the counts of each partition. Duplicates are rows beyond the number of ranges at their offset."""
        query = """
            SELECT source, coalesce(sum((high - low) * landed), 0),
                min(low) FILTER (landed > 0), max(high) FILTER (landed > 0) - 1,
                sum((high - low) * greatest(landed - greatest(covered, 1), 0)),
                coalesce(sum((high - low) * landed) FILTER (covered = 0), 0)
            FROM segments GROUP BY source
        """
        names = {number: source for source, number in self._sources.items()}
        rows = self._connection.execute(query).fetchall()
        return {names[row[0]]: SourceCounts(int(row[1]), row[2], row[3], *map(int, row[4:])) for row in rows}

    def landed_in(self, groups: Sequence[tuple[LogPartition, int, int]]) -> list[int]:
        """Returns the rows of each `[low, high)`; an offset counts at most as often as ranges cover it.

        The ends of every group must be ends of ranges, which no segment crosses.
        """
        return self._sum_in(groups, "least(s.landed, s.covered)")

    def logged_in(self, groups: Sequence[tuple[LogPartition, int, int]]) -> list[int]:
        """Returns the log's records in each `[low, high)`, under the same condition."""
        return self._sum_in(groups, "s.logged")

    def stored_in(self, source: LogPartition, low: int, high: int) -> int:
        """Returns the number of offsets in `[low, high)` that the log has, committed or aborted."""
        row = self._row(
            f"SELECT coalesce(sum(least(high, {high}) - greatest(low, {low})), 0) FROM stored "
            f"WHERE source = {self.source(source)} AND low < {high} AND high > {low}"
        )
        return int(row[0])

    def _row(self, query: str) -> tuple[Any, ...]:
        """Fetches the only row of a result, and reads it to its end: an open result blocks the connection."""
        [row] = self._connection.execute(query).fetchall()
        return tuple(row)

    def _add_offsets(self, table: str, source: LogPartition, offsets: Sequence[int]) -> None:
        low, high = _runs(np.asarray(offsets, dtype=np.int64))
        keys = np.full(len(low), self.source(source), dtype=np.int64)
        self._append(table, {"source": pa.array(keys), "low": pa.array(low), "high": pa.array(high)})

    def _sum_in(self, groups: Sequence[tuple[LogPartition, int, int]], weight: str) -> list[int]:
        keys = [self.source(source) for source, _, _ in groups]
        bounds = pa.table(
            {
                "number": pa.array(range(len(groups)), pa.int64()),
                "source": pa.array(keys, pa.int64()),
                "low": pa.array([low for _, low, _ in groups], pa.int64()),
                "high": pa.array([high for _, _, high in groups], pa.int64()),
            }
        )
        query = f"""
            SELECT w.number, sum((s.high - s.low) * ({weight}))
            FROM segments s ASOF JOIN wanted w ON s.source = w.source AND s.low >= w.low
            WHERE s.low < w.high GROUP BY w.number
        """
        self._connection.register("wanted", bounds)
        sums = dict(self._connection.execute(query).fetchall())
        self._connection.unregister("wanted")
        return [int(sums.get(number, 0)) for number in range(len(groups))]

    def _buffer(self, file: int, batch: pa.RecordBatch) -> int:
        """Buffers offsets until there are many, so that offsets in several files become one run."""
        parts, unplaced = _split(batch)
        for source, offsets in parts.items():
            self._spans.append((self.source(source), file, int(offsets.min()), int(offsets.max()) + 1))
            self._buffered.setdefault(source, []).append(offsets)
            self._buffered_rows += len(offsets)
        if self._buffered_rows >= BUFFERED_ROWS:
            self._flush()
        return unplaced

    def _flush(self) -> None:
        lows, highs, keys = [], [], []
        for source, pieces in self._buffered.items():
            low, high = _runs(np.sort(np.concatenate(pieces)))
            lows.append(low)
            highs.append(high)
            keys.append(np.full(len(low), self.source(source), dtype=np.int64))
        if keys:
            columns = {"source": keys, "low": lows, "high": highs}
            self._append("runs", {name: pa.array(np.concatenate(parts)) for name, parts in columns.items()})
        self._buffered, self._buffered_rows = {}, 0

    def _append(self, table: str, columns: dict[str, pa.Array]) -> None:
        self._connection.register("appended", pa.table(columns))
        self._connection.execute(f"INSERT INTO {table} SELECT {', '.join(columns)} FROM appended")
        self._connection.unregister("appended")


def provenance_of(table: HudiTable | MirroredTable) -> bool:
    return set(table.get_schema().names).issuperset(PROVENANCE)


def _split(batch: pa.RecordBatch) -> tuple[dict[LogPartition, NDArray[np.int64]], int]:
    """Returns offsets by partition, and the number of rows that lack a coordinate."""
    topic, partition, offset = (batch.column(name) for name in PROVENANCE)
    complete = pc.and_(pc.and_(pc.is_valid(topic), pc.is_valid(partition)), pc.is_valid(offset))
    unplaced: int = batch.num_rows - int(pc.sum(complete).as_py() or 0)
    if unplaced:
        topic, partition, offset = (column.filter(complete) for column in (topic, partition, offset))
    topics = pc.dictionary_encode(topic.cast(pa.string()))
    pairs = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32
    pairs |= partition.to_numpy(zero_copy_only=False).astype(np.int64) & _PARTITION
    offsets = offset.to_numpy(zero_copy_only=False).astype(np.int64)
    parts = {}
    for pair in np.unique(pairs):
        source = LogPartition(topics.dictionary[int(pair) >> 32].as_py(), int(pair.astype(np.int32)))
        parts[source] = offsets[pairs == pair]
    return parts, unplaced


def _runs(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns starts and ends of half-open runs of consecutive offsets; a repeated offset starts a new run."""
    if not len(offsets):
        return offsets, offsets
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    low = offsets[np.concatenate(([0], breaks + 1))]
    high = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return low, high
