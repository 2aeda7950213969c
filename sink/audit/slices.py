"""Reads the rows of file slices: with hudi-rs, and with Spark where hudi-rs cannot merge log files.

Guarantee: every file group that the commits name is read once, or raises what hudi-rs raises. Spark is asked only if
it is there, and what it reads in place of hudi-rs is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from hudi import HudiReadOptions

from sink.audit.failures import ReaderFailed
from sink.audit.files import Group, NamedFiles
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.rows import BATCH_ROWS, Stream
from sink.audit.state import TableState
from sink.storage.hudi_rs import NotFetched, raised_by_hudi

NamedStream = tuple[str, str, Stream]
"""Table partition, file and rows."""
FILE_NAME, PARTITION = "_hoodie_file_name", "_hoodie_partition_path"


class SparkRows(Protocol):
    def write(self, folder: Path, metadata: bool, /) -> None:
        """Writes the rows that Spark returns, with or without the metadata table, to Parquet files in a new folder, in
        all columns. Raises ReaderFailed."""


@dataclass
class Slices:
    """The file slices of a table. Each is read when its stream is iterated."""

    state: TableState
    files: NamedFiles
    scratch: Path
    findings: AuditFindings
    spark: SparkRows | None = None
    _rows_of_spark: pds.Dataset | None = None
    _noted: set[Group] = field(default_factory=set)

    def streams(
        self, columns: Iterable[str], unshown: Iterable[str] = (), groups: Collection[Group] | None = None
    ) -> Iterator[NamedStream]:
        """Yields table partition, file and rows of each file group, or of these, and of base files that hudi-rs does
        not show. Groups of log files alone are read by their paths: with a metadata table hudi-rs does not show them,
        and without one it shows them and cannot read them.
        """
        reader = self.state.table.create_file_group_reader_with_options(HudiReadOptions())
        names = list(columns)
        options = HudiReadOptions(projection=names).with_batch_size(BATCH_ROWS)

        def stream(group: Group, base: str, logs: list[str]) -> NamedStream:
            # By the paths: of a slice whose first log file began before its base file hudi-rs reads that log alone.
            read = partial(reader.read_file_slice_from_paths_stream, base, logs, options)
            return group[0], base or logs[0], partial(self._merged, group, names, read) if logs else read

        for piece in sorted(self.state.slices, key=lambda piece: (piece.creation_instant_time, piece.file_id)):
            group = piece.partition_path, piece.file_id
            if (base := piece.base_file_relative_path()) and (groups is None or group in groups):
                yield stream(group, base, piece.log_files_relative_paths())
        for path in unshown:
            yield stream((path.rpartition("/")[0], ""), path, [])
        for group, logs in self.files.logs.items():
            if logs and group not in self.files.live and (groups is None or group in groups):
                yield stream(group, "", [log.file.path for log in logs])

    def _merged(
        self, group: Group, columns: Sequence[str], read: Callable[[], Iterable[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Yields rows of a group with log files, by Spark where hudi-rs gives none."""
        reason = self.state.refusal
        if not reason:
            try:
                batches = iter(read())
                first = next(batches, None)
            except Exception as error:
                if self.spark is None or not raised_by_hudi(error):
                    raise
                reason = str(error)[:200]
            else:
                if first is not None:
                    yield first
                    yield from batches
                return
        if group not in self._noted:
            self._noted.add(group)
            place = "/".join(filter(None, group))
            self.findings.add(FindingKind.BY_SPARK, f"{place}: hudi-rs does not merge its log files ({reason})")
        yield from self._by_spark(group, columns, reason)

    def _by_spark(self, group: Group, columns: Sequence[str], reason: str) -> Iterator[pa.RecordBatch]:
        if self._rows_of_spark is None:
            folder = self.scratch / "by-spark"
            if self.spark is None:
                raise NotFetched(f"{reason}, and there is no Spark to read its rows")
            try:
                self.spark.write(folder, False)
            except ReaderFailed as error:
                raise NotFetched(f"{reason}, and Spark cannot read it: {error}") from error
            self._rows_of_spark = pds.dataset(folder, format="parquet")
        own = (pds.field(PARTITION) == group[0]) & pc.starts_with(pds.field(FILE_NAME), group[1])
        yield from self._rows_of_spark.to_batches(columns=list(columns), filter=own, batch_size=BATCH_ROWS)
