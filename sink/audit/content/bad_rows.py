"""Compares the rows of the errors table with the log: each bad record has a row, with its key, value and timestamp.

Headers, `kind` and `reason` are not compared: the sink itself writes the last two. Guarantee: each record that the log
still has and the auditor's decoders refuse has a row in the slice of its offset; each row of a slice is of such a
record, or counted with the reason why it was not compared. Rows that lie in no slice are left to `sink.audit.errors`.
Where a repair has landed a slice again by another specification, a row may be of a record that is good by now; the
repair has left it there, and `aside-*.parquet` tells the comparison of the table's rows. Memory: 21 bytes for each bad
record of the sink, three times that while they are sorted, and one batch of rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import LogPartition
from sink.audit.content.cells import COORDINATES, Unread
from sink.audit.content.expected import ASIDE_SCHEMA, BAD_SCHEMA, PLACED, Range
from sink.audit.content.owners import Coordinates
from sink.audit.coverage import Coverage
from sink.audit.errors import PLACE_COLUMNS, BadSlices
from sink.audit.log_records import LogRecords
from sink.audit.report import LEFT_OUT, AuditFindings, FindingKind
from sink.audit.rows import MEMORY, PROVENANCE

_RECORD = ("_kafka_timestamp", "_kafka_key", "value")
COLUMNS = (*PLACE_COLUMNS, *_RECORD)
"""The columns of the errors table that are read."""
_SHOWN_MILLISECONDS = range(-62_135_596_800_000, 253_402_300_800_000)
"""The years 0001 to 9999. The errors table has null for other timestamps, and for -1, by which Kafka means none."""
_NO_TIMESTAMP = -1
_ERRORS = pa.schema([*PLACED, ("is_judged", pa.bool_())])
"""Rows of the errors table. `is_judged` is false for one that a repair by another specification has left there, and
null for one that is not compared."""


@dataclass
class _Rows:
    """The rows of one partition. `is_read`: whether the log delivered the record."""

    offsets: NDArray[np.int64]
    commits: NDArray[np.int32]
    digests: NDArray[np.uint64]
    is_read: NDArray[np.bool_]


@dataclass(frozen=True)
class DecodedRanges:
    """The records that were decoded. `folder` has the bad ones, `refusals` the specifications that decode nothing, with
    the reason, and `specifications` that of each commit."""

    folder: Path
    ranges: Mapping[LogPartition, Sequence[Range]]
    refusals: Mapping[int, str]
    specifications: Mapping[int, int]


class ErrorsTableRows:
    """The bad records of a sink. Call `read`, then `receive` with the log's records, then `compare`."""

    def __init__(
        self,
        sink: str,
        ranges: Sequence[CommittedRange],
        topic_ids: Mapping[str, str],
        coordinates: Coordinates,
        coverage: Coverage,
    ) -> None:
        """`topic_ids` are those of the newest checkpoint."""
        self._coverage = coverage
        self._slices, self._topic_ids, self._known = BadSlices({sink: ranges}), topic_ids, coordinates
        self._committed = sorted({coordinates.commits[entry.instant] for entry in ranges})
        """Numbers of the commits that have slices. Others have replayed records, whose rows are of earlier commits."""
        self._rows: dict[LogPartition, _Rows] = {}
        self._elsewhere: Counter[tuple[int, int]] = Counter()
        """Rows of topics that were created again, and rows left out, by the numbers of partition and commit."""
        self._findings = AuditFindings()

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes the rows of the errors table, with `COLUMNS`."""
        parts: dict[LogPartition, list[_Rows]] = defaultdict(list)
        for batch in batches:
            for number, positions in self._slices.of(batch):
                if number is None:
                    continue
                _, entry = self._slices.entries[number]
                commit = self._known.commits[entry.instant]
                is_of_this_log = entry.result.slice.topic_id == self._topic_ids.get(entry.source.topic)
                # What is left out may be of a log that lost its end since: its offsets have other records now.
                if is_of_this_log and self._coverage.has_contents(entry.source, entry.instant):
                    parts[entry.source].append(_rows(batch.take(pa.array(positions)), commit))
                else:
                    self._elsewhere[self._known.sources[entry.source], commit] += positions.size
        self._rows = {source: _sorted(several) for source, several in parts.items()}

    def receive(self, partition: LogPartition, records: LogRecords) -> None:
        """Compares records of one partition, which are in order of offset."""
        rows, offsets = self._rows.get(partition), records.offsets
        if rows is None or not offsets:
            return
        low, high = map(int, np.searchsorted(rows.offsets, [offsets[0], offsets[-1] + 1]))
        positions = {offset: position for position, offset in enumerate(offsets)} if low < high else {}
        for row, offset in enumerate(rows.offsets[low:high].tolist(), low):
            if (position := positions.get(offset)) is None:
                continue
            rows.is_read[row] = True
            microseconds = _microseconds(records.timestamps[position])
            if _digest(microseconds, records.keys[position], records.values[position]) != rows.digests[row]:
                self._add(partition, offset, "key, value or timestamp in the errors table differs from the log's")

    def compare(self, decoded: DecodedRanges, unread: Unread, findings: AuditFindings) -> Mapping[str, int]:
        """Compares which records are bad. Returns how many rows were not compared, by reason."""
        reasons: Counter[str] = Counter()
        for (number, commit), count in self._elsewhere.items():
            reasons[_reason(number, commit, unread)] += count
        tables = [_ERRORS.empty_table()]
        for source, rows in self._rows.items():
            judging = _Judging(self._known.sources[source], decoded.ranges.get(source, ()), decoded, unread)
            is_judged = judging.judged(rows, reasons)
            columns = (np.full(rows.offsets.size, judging.source, np.int32), rows.offsets, rows.commits, is_judged)
            tables.append(pa.table([*map(pa.array, columns)], _ERRORS))
        errors = pa.concat_tables(tables)
        aside = errors.filter(pc.invert(errors["is_judged"])).select(ASIDE_SCHEMA.names)
        pq.write_table(aside, decoded.folder / "aside-0.parquet")
        self._compare_sets(errors, decoded.folder)
        findings.extend(self._findings.all())
        return dict(reasons)

    def _compare_sets(self, errors: pa.Table, folder: Path) -> None:
        names = {number: source for source, number in self._known.sources.items()}
        pq.write_table(BAD_SCHEMA.empty_table(), folder / "bad-none.parquet")
        database = str(folder.parent / "errors.duckdb")
        with closing(duckdb.connect(database, config={"memory_limit": MEMORY, "threads": 2})) as connection:
            connection.register("errors", errors)
            connection.register("committed", pa.table({"_sink_commit": pa.array(self._committed, pa.int32())}))
            bad = f"(FROM read_parquet('{folder}/bad-*.parquet') SEMI JOIN committed USING (_sink_commit))"
            query = f"FROM {bad} ANTI JOIN errors USING ({COORDINATES})"
            for source, offset, reason in _selected(connection, f"reason {query}"):
                self._add(names[source], offset, f"its record is bad, and the errors table does not have it: {reason}")
            query = f"FROM (FROM errors WHERE is_judged) ANTI JOIN {bad} USING ({COORDINATES})"
            for source, offset, _ in _selected(connection, f"NULL {query}"):
                self._add(names[source], offset, "the errors table has its record, which is good")

    def _add(self, partition: LogPartition, offset: int, sentence: str) -> None:
        self._findings.add(FindingKind.ERRORS_ROW, f"{partition} offset {offset}: {sentence}")


@dataclass(frozen=True)
class _Judging:
    """Tells whether the records of the rows of a partition were decoded by the specification of their commit."""

    source: int
    ranges: Sequence[Range]
    decoded: DecodedRanges
    unread: Unread

    def judged(self, rows: _Rows, reasons: Counter[str]) -> list[bool | None]:
        """Returns for each row whether; None for a record that was not decoded. Counts these, by reason."""
        by_commit: dict[int, list[Range]] = defaultdict(list)
        for entry in self.ranges:
            by_commit[entry.commit].append(entry)
        is_judged: list[bool | None] = [None] * rows.offsets.size
        places = zip(rows.offsets.tolist(), rows.commits.tolist(), rows.is_read.tolist(), strict=True)
        for row, (offset, commit, is_read) in enumerate(places):
            found = next((entry for entry in by_commit.get(commit, ()) if entry.start <= offset < entry.end), None)
            reason = self._reason(found, offset, commit, is_read)
            if reason is not None:
                reasons[reason] += 1
            elif found is not None:
                is_judged[row] = found.specification == self.decoded.specifications[commit]
        return is_judged

    def _reason(self, found: Range | None, offset: int, commit: int, is_read: bool) -> str | None:
        if found is None:
            return _reason(self.source, commit, self.unread)
        if is_read:
            return self.decoded.refusals.get(found.specification)
        if offset < self.unread.firsts.get(self.source, 0):
            return "expired from the log"
        return self.unread.reason(self.source, commit)


def _reason(source: int, commit: int, unread: Unread) -> str:
    return LEFT_OUT if (source, commit) in unread.left_out else unread.reason(source, commit)


def _rows(rows: pa.RecordBatch, commit: int) -> _Rows:
    """Returns the rows of one commit."""
    microseconds = rows.column(_RECORD[0]).cast(pa.int64()).to_pylist()
    records = zip(microseconds, *(rows.column(name).to_pylist() for name in _RECORD[1:]), strict=True)
    digests = np.array([_digest(*record) for record in records], np.uint64)
    offsets = np.asarray(rows.column(PROVENANCE[2]).to_numpy(), np.int64)
    return _Rows(offsets, np.full(offsets.size, commit, np.int32), digests, np.zeros(offsets.size, np.bool_))


def _sorted(parts: Sequence[_Rows]) -> _Rows:
    columns = [np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(_Rows)]
    order = np.argsort(columns[0], kind="stable")
    return _Rows(*(column[order] for column in columns))


def _microseconds(milliseconds: int) -> int | None:
    is_shown = milliseconds in _SHOWN_MILLISECONDS and milliseconds != _NO_TIMESTAMP
    return milliseconds * 1000 if is_shown else None


def _digest(microseconds: int | None, key: object, value: object) -> int:
    return xxh64_intdigest(repr((microseconds, key, value)).encode())


def _selected(connection: duckdb.DuckDBPyConnection, rest: str) -> Iterator[tuple[Any, ...]]:
    """Yields partition and offset, with what `rest` selects."""
    cursor = connection.execute(f"SELECT _sink_source, _sink_offset, {rest} ORDER BY ALL")
    while rows := cursor.fetchmany(1000):
        yield from rows
