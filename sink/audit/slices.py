"""Reads the rows of file slices: with hudi-rs, and with Spark where hudi-rs cannot merge log files.

Guarantee: each file group that the commits name is read once, or its stream raises: what hudi-rs raises, or NotFetched
if Spark is needed and is missing or fails. Each group that Spark reads adds a BY_SPARK note to the findings.
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
        """Writes all rows and columns of the table, as Spark reads them, to Parquet files in a new folder. `metadata`:
        whether Spark uses the metadata table. Raises ReaderFailed.
        """


@dataclass
class Slices:
    """The file slices of a table. Each is read when its stream is iterated."""

    state: TableState
    files: NamedFiles
    scratch: Path
    findings: AuditFindings
    spark: SparkRows | None = None
    _rows_of_spark: pds.Dataset | None = None
    _spark_failure: ReaderFailed | None = None
    _noted: set[Group] = field(default_factory=set)

    def streams(
        self, columns: Iterable[str], unshown: Iterable[str] = (), groups: Collection[Group] | None = None
    ) -> Iterator[NamedStream]:
        """Yields table partition, file and rows of each file group (or of `groups` only), and of each base file in
        `unshown`: files on storage that hudi-rs does not list. Groups without a base file are read by path: with a
        metadata table hudi-rs does not list them, and without one it lists them but cannot read them.
        """
        reader = self.state.table.create_file_group_reader_with_options(HudiReadOptions())
        names = list(columns)
        options = HudiReadOptions(projection=names).with_batch_size(BATCH_ROWS)

        def stream(group: Group, base: str, logs: list[str]) -> NamedStream:
            # By path: if a slice's first log file began before its base file, hudi-rs by itself reads only that log. It
            # leaves out log files whose commit is archived.
            read = partial(reader.read_file_slice_from_paths_stream, base, logs, options)
            return group[0], base or logs[0], partial(self._merged, group, names, read) if logs else read

        for found in sorted(self.state.slices, key=lambda found: (found.creation_instant_time, found.file_id)):
            group = found.partition_path, found.file_id
            if (base := found.base_file_relative_path()) and (groups is None or group in groups):
                named = [log.file.path for log in self.files.logs.get(group, ())]
                yield stream(group, base, named if group in self.files.live else found.log_files_relative_paths())
        for path in unshown:
            yield stream((path.rpartition("/")[0], ""), path, [])
        for group, logs in self.files.logs.items():
            if logs and group not in self.files.live and (groups is None or group in groups):
                yield stream(group, "", [log.file.path for log in logs])

    def _merged(
        self, group: Group, columns: Sequence[str], read: Callable[[], Iterable[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a group with log files. Spark reads them if hudi-rs refuses, or fails before any batch."""
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
        if self.spark is None:
            raise NotFetched(f"{reason}, and there is no Spark to read its rows")
        if self._spark_failure is None and self._rows_of_spark is None:
            folder = self.scratch / "by-spark"
            try:
                self.spark.write(folder, False)
                self._rows_of_spark = pds.dataset(folder, format="parquet")
            except ReaderFailed as error:
                self._spark_failure = error
        if self._rows_of_spark is None:
            raise NotFetched(f"{reason}, and Spark cannot read it: {self._spark_failure}") from self._spark_failure
        # Rows of log files name the file id alone. A file id may begin with all of another one.
        own_file = (pds.field(FILE_NAME) == group[1]) | pc.starts_with(pds.field(FILE_NAME), f"{group[1]}_")
        own = (pds.field(PARTITION) == group[0]) & own_file
        yield from self._rows_of_spark.to_batches(columns=list(columns), filter=own, batch_size=BATCH_ROWS)
