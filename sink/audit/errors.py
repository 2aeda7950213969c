"""Reads the errors table: the bad records of committed transactions, and the replayed ones.

Guarantee: every row counts for the instant of the transaction that found it. Rows of transactions that did not commit
are reported, but do not count. The table's commits say which records were replayed, not the marks in the errors table.
Reads with hudi-rs only. Raises CannotAudit for an errors table that cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions

from sink.audit.chain import CommittedRange
from sink.audit.checkpoints import LogPartition
from sink.audit.failures import CannotAudit
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.rows import PROVENANCE, OffsetLedger
from sink.audit.timeline import Commit, ReplayedRun, active_names, any_commit
from sink.storage.access import NO_ACCESS, Access
from sink.storage.hudi_rs import raised_by_hudi, rust_table
from sink.storage.table_files import open_table

NEEDED = (*PROVENANCE, "sink", "topic_id", "generation", "instant")
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


def add_errors(
    base_path: str,
    ranges: Mapping[str, Sequence[CommittedRange]],
    commits: Sequence[Commit],
    ledger: OffsetLedger,
    findings: AuditFindings,
    access: Access,
) -> tuple[Counter[LogPartition], int]:
    """Adds bad records that were not replayed to the ledger, like rows: they landed in the errors table. Returns their
    number by partition, and the number of replayed ones.

    `ranges`: of each sink of the table. An errors table may have rows of sinks of other tables, which do not count.
    """
    counted: Counter[tuple[str, str]] = Counter()
    for sink, sink_ranges in ranges.items():
        for entry in sink_ranges:
            counted[sink, entry.instant] += entry.result.errors
    if not +counted:
        return Counter(), 0
    runs = [(sink, run) for commit in commits for sink, sink_runs in commit.replayed.items() for run in sink_runs]
    reading = _ErrorsReading(partial(errors_of, base_path, NEEDED, access), counted.keys(), runs)
    file = ledger.add(f"the errors table {base_path}", reading.unreplayed_batches)
    if file.error:
        raise CannotAudit(f"{base_path}: {file.error}")
    for (sink, instant), expected in sorted(counted.items()):
        found = reading.by_commit[sink, instant]
        if found != expected:
            findings.add(
                FindingKind.ERRORS_COUNT,
                f"commit {instant} of sink {sink} counts {expected:,} bad records, but the errors table {base_path} has"
                f" {found:,}",
            )
    if reading.waiting:
        findings.add(
            FindingKind.UNPUBLISHED,
            f"{reading.waiting:,} rows of the errors table belong to transactions that did not commit, or not yet",
        )
    return reading.by_source, reading.replayed


class _ErrorsReading:
    """Reads the errors table and counts its rows. `unreplayed_batches` may be called again."""

    def __init__(
        self,
        rows: Callable[[], Iterator[pa.RecordBatch]],
        committed: Collection[tuple[str, str]],
        runs: Sequence[tuple[str, ReplayedRun]],
    ) -> None:
        """`committed`: sink and instant; `runs`: each with its sink."""
        self._rows = rows
        self._sinks = pa.array(sorted({sink for sink, _ in committed}), pa.string())
        self._committed = pa.array(sorted(map(_SEPARATOR.join, committed)), pa.string())
        self._runs = runs
        self.by_commit: Counter[tuple[str, str]] = Counter()
        self.by_source: Counter[LogPartition] = Counter()
        self.replayed = self.waiting = 0

    def unreplayed_batches(self) -> Iterator[pa.RecordBatch]:
        self.by_commit, self.by_source = Counter(), Counter()
        self.replayed = self.waiting = 0
        for batch in self._rows():
            batch = batch.filter(pc.is_in(batch.column("sink"), self._sinks))
            commits = pc.binary_join_element_wise(batch.column("sink"), batch.column("instant"), _SEPARATOR)
            is_committed = pc.is_in(commits, self._committed)
            self.waiting += batch.num_rows - int(pc.sum(is_committed).as_py() or 0)
            batch = batch.filter(is_committed)
            self.by_commit.update(
                zip(batch.column("sink").to_pylist(), batch.column("instant").to_pylist(), strict=True)
            )
            replayed = self._replayed(batch)
            self.replayed += int(replayed.sum())
            batch = batch.filter(pa.array(~replayed))
            pairs = zip(batch.column(PROVENANCE[0]).to_pylist(), batch.column(PROVENANCE[1]).to_pylist(), strict=True)
            self.by_source.update(LogPartition(*pair) for pair in pairs)
            yield batch

    def _replayed(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        replayed = np.zeros(batch.num_rows, np.bool_)
        offsets = batch.column(PROVENANCE[2]).to_numpy()
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
                is_in_partition &= pc.equal(batch.column(name), value).to_numpy(zero_copy_only=False)
            replayed |= is_in_partition & (offsets >= run.low) & (offsets < run.high)
        return replayed
