"""One Hudi base file: its name, its marker, its Parquet and its write stat.

Guarantee: the writer creates the marker before the file, so that a rollback or a commit can remove a file that no
write stat names. The file id depends only on write task, table partition and roll: another attempt forms the same
file group again. Once the writer sees that the instant is over, it creates no file and returns no write stat. Raises
Abandoned.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from coordination.errors import SinkError
from coordination.state.model import WriteTask
from sink.layout.column_ranges import KEY, nan_columns, ranges_of
from sink.layout.file_ids import file_id
from sink.storage.files import Storage
from sink.write.files.parquet_layout import PAGES, ParquetLayout

TIMELINE = ".hoodie/timeline"
# Without this version Spark refuses dates before 1582 and times before 1900: it cannot know in which calendar they
# are. Arrow writes the proleptic calendar, as Spark does since 3.0.
_FOOTER = {"org.apache.spark.version": "3.5.7"}


class Abandoned(SinkError):
    """The instant is rolled back or complete: no coordinator will commit the files of this task."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Identifies one attempt at a write task, for names and markers of its files. `token` tells attempts apart."""

    sink: str
    table: str
    instant: str
    token: str
    task: WriteTask


class InstantGuard:
    """Checks in the timeline that the instant is still pending."""

    def __init__(self, storage: Storage, instant: str) -> None:
        self._storage = storage
        self._instant = instant

    def check(self, completed_too: bool = False) -> None:
        """Raises Abandoned if the instant was rolled back. With `completed_too` also if it is complete: that needs a
        listing of the timeline, because a completed instant keeps its inflight file."""
        inflight = f"{self._instant}.inflight"
        names = self._storage.names(TIMELINE) if completed_too else []
        if not (inflight in names if completed_too else self._storage.exists(f"{TIMELINE}/{inflight}")):
            raise Abandoned(f"instant {self._instant}: {TIMELINE}/{inflight} is gone: rolled back. Nothing was kept.")
        if any(name.startswith(f"{self._instant}_") for name in names):
            raise Abandoned(f"instant {self._instant} is already completed. Nothing was kept.")


def base_file_stat(
    file_id: str, path: str, name: str, records: int, size: int, footer: pq.FileMetaData, with_nan: Collection[int] = ()
) -> str:
    """Returns Hudi's write stat of a new file as JSON, with the column statistics of `ranges_of`."""
    stat = {
        "fileId": file_id,
        "path": f"{path}/{name}" if path else name,
        "partitionPath": path,
        "prevCommit": "null",
        "numWrites": records,
        "numInserts": records,
        "totalWriteBytes": size,
        "fileSizeInBytes": size,
    }
    ranges = ranges_of(footer, with_nan)
    return json.dumps(stat if ranges is None else {**stat, KEY: ranges})


class BaseFile:
    """An open base file. `close` returns its write stat; `discard` deletes the file and leaves the marker."""

    def __init__(self, storage: Storage, instant_guard: InstantGuard, attempt: Attempt, path: str, roll: int) -> None:
        self.path = path
        self.records = 0
        self.id = file_id(attempt.table, attempt.sink, attempt.task, path, roll)
        self.name = f"{self.id}_{attempt.token}_{attempt.instant}.parquet"
        self._storage = storage
        self._instant_guard = instant_guard
        self._file_path = f"{path}/{self.name}" if path else self.name
        self._marker = f".hoodie/.temp/{attempt.instant}/{self._file_path}.marker.CREATE"
        self._stream: pa.NativeFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []
        """Parquet footers; pyarrow adds one when the file is closed."""
        self._with_nan: set[int] = set()

    @property
    def is_open(self) -> bool:
        return self._parquet is not None

    def open(self, layout: ParquetLayout, codec: str) -> None:
        self._storage.create(self._marker).close()
        self._stream = self._storage.create(self._file_path)
        self._parquet = pq.ParquetWriter(
            self._stream,
            layout.schema,
            compression=codec,
            use_dictionary=list(layout.dictionary),
            column_encoding=dict(layout.encodings),
            store_schema=False,
            metadata_collector=self._footers,
            **PAGES,
        )

    def write(self, rows: pa.Table) -> int:
        """Writes one row group. Returns the size of the file so far."""
        assert self._parquet is not None
        assert self._stream is not None
        self._parquet.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._with_nan |= nan_columns(rows)
        self.records += rows.num_rows
        return int(self._stream.tell())

    def close(self) -> str:
        assert self._parquet is not None
        assert self._stream is not None
        self._parquet.add_key_value_metadata(_FOOTER)
        self._parquet.close()
        size = int(self._stream.tell())
        self._stream.close()
        self._instant_guard.check()
        if not self._storage.exists(self._marker):
            raise Abandoned(f"{self._marker} is gone: the instant is over, and {self._file_path} was not kept")
        return base_file_stat(self.id, self.path, self.name, self.records, size, self._footers[0], self._with_nan)

    def discard(self) -> None:
        """Deletes the file if it can. A file that stays has a marker, by which the rollback finds it."""
        for handle in (self._parquet, self._stream):
            try:
                if handle is not None:
                    handle.close()
            except (OSError, pa.ArrowException):
                continue
        if self._stream is not None and self._storage.exists(self._file_path):
            self._storage.delete(self._file_path)
