"""Reads the errors table: the bad records of committed transactions, and the replayed ones.

Guarantee: every row counts for the slice that it names by sink, instant, topic, topic id, partition and generation; a
row of a committed transaction that lies in none of its slices is reported. Rows of transactions that did not commit are
reported, but do not count. The table's commits say which records were replayed, not the marks in the errors table.
Memory: 8 bytes for each bad record. Reads with hudi-rs only. Raises CannotAudit for an errors table that cannot be
read; one that is not there has no rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions
from numpy.typing import NDArray

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import LogPartition
from sink.audit.failures import CannotAudit
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.rows import PROVENANCE, OffsetLedger
from sink.audit.timeline import Commit, ReplayedRun, active_names, any_commit
from sink.storage.access import NO_ACCESS, Access
from sink.storage.hudi_rs import raised_by_hudi, rust_table
from sink.storage.table_files import NoTable, open_table

SLICE_COLUMNS = ("sink", "instant", *PROVENANCE[:2], "topic_id", "generation")
"""The columns by which a row names its slice."""
PLACE_COLUMNS = (*SLICE_COLUMNS, PROVENANCE[2])
"""The columns by which a row names its slice and its offset."""
_BATCH_ROWS = 8192
_SEPARATOR = "/"
"""Between a sink and an instant, which is digits only."""


def errors_of(base_path: str, columns: Sequence[str], access: Access = NO_ACCESS) -> Iterator[pa.RecordBatch]:
    """Yields the rows of an errors table."""
    files = open_table(base_path, access)
    if not any_commit(active_names(files)):
        return
    options = HudiReadOptions(projection=list(columns)).with_batch_size(_BATCH_ROWS)
    try:
        table = rust_table(files)
        reader = table.create_file_group_reader_with_options(HudiReadOptions())
        for piece in table.get_file_slices(HudiReadOptions()):
            paths = piece.base_file_relative_path(), piece.log_files_relative_paths()
            for batch in reader.read_file_slice_from_paths_stream(*paths, options):
                yield batch.select(list(columns))
    except Exception as error:
        if not raised_by_hudi(error):
            raise
        raise CannotAudit(f"{base_path}: hudi-rs cannot read the errors table: {str(error)[:300]}") from error


class BadSlices:
    """The slices that count bad records, each with its sink. `ranges` are those of each sink."""

    def __init__(self, ranges: Mapping[str, Sequence[CommittedRange]]) -> None:
        self.entries = [(sink, entry) for sink, own in ranges.items() for entry in own if entry.result.errors]
        self._numbers: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, (sink, entry) in enumerate(self.entries):
            piece = entry.result.slice
            named = sink, entry.instant, piece.topic, piece.partition, piece.topic_id, piece.generation
            self._numbers[named].append(number)

    def of(self, batch: pa.RecordBatch) -> Iterator[tuple[int | None, NDArray[np.int64]]]:
        """Yields the positions of rows with the number of their slice in `entries`; None for rows that lie in none."""
        offsets = batch.column(PROVENANCE[2]).fill_null(-1).to_numpy()
        rows = pa.table([*map(batch.column, SLICE_COLUMNS), np.arange(batch.num_rows)], [*SLICE_COLUMNS, "position"])
        for named in rows.group_by(SLICE_COLUMNS).aggregate([("position", "list")]).to_pylist():
            positions = np.array(named["position_list"], np.int64)
            for number in self._numbers.get(tuple(named[name] for name in SLICE_COLUMNS), ()):
                piece = self.entries[number][1].result.slice
                is_inside = (offsets[positions] >= piece.start) & (offsets[positions] < piece.end)
                yield number, positions[is_inside]
                positions = positions[~is_inside]
            if positions.size:
                yield None, positions


def add_errors(
    base_path: str,
    ranges: Mapping[str, Sequence[CommittedRange]],
    commits: Sequence[Commit],
    ledger: OffsetLedger,
    findings: AuditFindings,
    access: Access,
) -> tuple[Counter[LogPartition], int]:
    """Adds bad records that were not replayed to the ledger, like rows: they landed in the errors table. Returns their
    number by partition, and the number of replayed ones. Without a committed slice that counts bad records the table is
    not read: there may be none.

    `ranges`: of each sink of the table. An errors table may have rows of sinks of other tables, which do not count.
    """
    slices = BadSlices(ranges)
    if not slices.entries:
        return Counter(), 0
    runs = [(sink, run) for commit in commits for sink, sink_runs in commit.replayed.items() for run in sink_runs]
    committed = {(sink, entry.instant) for sink, own in ranges.items() for entry in own}
    reading = _ErrorsReading(partial(errors_of, base_path, PLACE_COLUMNS, access), committed, runs, slices)
    try:
        file = ledger.add(f"the errors table {base_path}", reading.unreplayed_batches)
    except NoTable as error:
        sentence = f"the errors table {base_path}: {error.reason}. Check errors.table.base.path."
        findings.add(FindingKind.ERRORS_COUNT, sentence)
    else:
        if file.error:
            raise CannotAudit(f"{base_path}: {file.error}")
    _check_counts(base_path, slices, reading, findings)
    findings.extend(reading.findings.all())
    if reading.waiting:
        findings.add(
            FindingKind.UNPUBLISHED,
            f"{reading.waiting:,} rows of the errors table belong to transactions that did not commit, or not yet",
        )
    return reading.by_source, reading.replayed


def _check_counts(base_path: str, slices: BadSlices, reading: _ErrorsReading, findings: AuditFindings) -> None:
    for number, (sink, entry) in enumerate(slices.entries):
        offsets = np.concatenate([np.empty(0, np.int64), *reading.offsets[number]])
        distinct = np.unique(offsets).size
        if offsets.size == distinct == entry.result.errors:
            continue
        repeated = f" of {distinct:,} offsets" if distinct < offsets.size else ""
        findings.add(
            FindingKind.ERRORS_COUNT,
            f"{entry} of sink {sink} counts {entry.result.errors:,} bad records, but the errors table {base_path} has"
            f" {offsets.size:,}{repeated}",
        )


class _ErrorsReading:
    """Reads the errors table and counts its rows. `unreplayed_batches` may be called again."""

    def __init__(
        self,
        rows: Callable[[], Iterator[pa.RecordBatch]],
        committed: Collection[tuple[str, str]],
        runs: Sequence[tuple[str, ReplayedRun]],
        slices: BadSlices,
    ) -> None:
        """`committed`: sink and instant; `runs`: each with its sink."""
        self._rows, self._runs, self._slices = rows, runs, slices
        self._sinks = pa.array(sorted({sink for sink, _ in committed}), pa.string())
        self._committed = pa.array(sorted(map(_SEPARATOR.join, committed)), pa.string())
        self._begin()

    def _begin(self) -> None:
        self.offsets: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
        """The offsets of the rows of each slice, by its number."""
        self.by_source: Counter[LogPartition] = Counter()
        self.replayed = self.waiting = 0
        self.findings = AuditFindings()

    def unreplayed_batches(self) -> Iterator[pa.RecordBatch]:
        self._begin()
        for batch in self._rows():
            batch = batch.filter(pc.is_in(batch.column("sink"), self._sinks))
            commits = pc.binary_join_element_wise(batch.column("sink"), batch.column("instant"), _SEPARATOR)
            is_committed = pc.is_in(commits, self._committed)
            self.waiting += batch.num_rows - int(pc.sum(is_committed).as_py() or 0)
            batch = batch.filter(is_committed)
            self._collect(batch)
            replayed = self._replayed(batch)
            self.replayed += int(replayed.sum())
            batch = batch.filter(pa.array(~replayed))
            pairs = zip(batch.column(PROVENANCE[0]).to_pylist(), batch.column(PROVENANCE[1]).to_pylist(), strict=True)
            self.by_source.update(LogPartition(*pair) for pair in pairs)
            yield batch

    def _collect(self, batch: pa.RecordBatch) -> None:
        """Takes the offsets of rows, by slice. Reports rows that lie in none."""
        for number, positions in self._slices.of(batch):
            rows = batch.take(pa.array(positions))
            if number is not None:
                self.offsets[number].append(rows.column(PROVENANCE[2]).to_numpy())
                continue
            for sink, instant, topic, partition, topic_id, generation, offset in zip(
                *(rows.column(name).to_pylist() for name in PLACE_COLUMNS), strict=True
            ):
                self.findings.add(
                    FindingKind.ERRORS_ROW,
                    f"{topic}-{partition} offset {offset} in the errors table is of no slice in which commit {instant}"
                    f" of sink {sink} counts bad records, by offset, topic id {topic_id} and generation {generation}",
                )

    def _replayed(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        replayed = np.zeros(batch.num_rows, np.bool_)
        offsets = batch.column(PROVENANCE[2]).fill_null(-1).to_numpy()
        for sink, run in self._runs:
            coordinates: Mapping[str, object] = {
                "sink": sink,
                PROVENANCE[0]: run.topic,
                "topic_id": run.topic_id,
                PROVENANCE[1]: run.partition,
                "generation": run.generation,
            }
            is_in_partition = np.ones(batch.num_rows, np.bool_)
            for name, value in coordinates.items():
                is_equal = pc.equal(batch.column(name), value).fill_null(False)
                is_in_partition &= is_equal.to_numpy(zero_copy_only=False)
            replayed |= is_in_partition & (offsets >= run.low) & (offsets < run.high)
        return replayed
