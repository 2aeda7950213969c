"""Writes new versions of file groups: base files that readers take in the place of the earlier ones.

Guarantee: the new file of a group has exactly the rows that the job brings for it, with Hudi's own columns unchanged
but for the name of the file. It is of the same file group, as after an update by Hudi: the index finds its rows where
they were. The marker is there before the file, so that a rollback removes it. Raises what the storage raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sink.layout.column_ranges import KEY, nan_columns, ranges_of
from sink.storage.access import NO_ACCESS, Access
from sink.storage.files import cached_storage
from sink.write.engines.task_input import task_context
from sink.write.files.parquet_layout import PAGES

GROUP = "_sink_group"
"""The column that names the file group of a row: the job's rows come sorted by it."""
STAT = "stat string"
_STAT = pa.schema([("stat", pa.string())])
_FOOTER = {"org.apache.spark.version": "3.5.7"}


@dataclass(frozen=True)
class FileVersion:
    """A file group that gets a new base file. `earlier` is the name of the present one, empty if storage has none, and
    `commit` the instant that wrote it. `footer` is what that file says of its keys. `deletes` and `inserts` count rows
    for the write stat."""

    path: str
    file_id: str
    earlier: str = ""
    commit: str = ""
    deletes: int = 0
    inserts: int = 0
    footer: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RewriteJob:
    """The tasks need these. Spark ships it to the executors. `groups` by the value of `GROUP`."""

    base_path: str
    instant: str
    codec: str
    groups: Mapping[str, FileVersion]
    access: Access = NO_ACCESS


def rewrite(job: RewriteJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes a file for each group of rows, for `mapInArrow`; yields its write stat."""
    context = task_context()
    token = f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"
    name: str = ""
    file: NewVersion | None = None
    for batch in batches:
        column = batch.column(GROUP)
        rows = batch.drop_columns([GROUP])
        start = 0
        while start < batch.num_rows:
            group = column[start].as_py()
            count = int(pc.sum(pc.equal(column.slice(start), group)).as_py())
            if group != name or file is None:
                if file is not None:
                    yield _row(file.close())
                name, file = group, NewVersion(job, job.groups[group], token, rows.schema)
            file.write(rows.slice(start, count))
            start += count
    if file is not None:
        yield _row(file.close())


def _row(stat: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([stat])], schema=_STAT)


class NewVersion:
    """The new base file of one group. `close` returns its write stat."""

    def __init__(self, job: RewriteJob, group: FileVersion, token: str, schema: pa.Schema) -> None:
        self._job, self._group = job, group
        storage = cached_storage(job.base_path, job.access)
        self._name = f"{group.file_id}_{token}_{job.instant}.parquet"
        path = f"{group.path}/{self._name}" if group.path else self._name
        self._path = path
        storage.create(f".hoodie/.temp/{job.instant}/{path}.marker.MERGE").close()
        self._stream = storage.create(path)
        self._footers: list[pq.FileMetaData] = []
        self._with_nan: set[int] = set()
        self._rows = 0
        self._parquet = pq.ParquetWriter(
            self._stream, schema, compression=job.codec, store_schema=False, metadata_collector=self._footers, **PAGES
        )

    def write(self, rows: pa.RecordBatch) -> None:
        position = rows.schema.get_field_index("_hoodie_file_name")
        if position >= 0:
            names = pa.repeat(pa.scalar(self._name), rows.num_rows)
            rows = rows.set_column(position, rows.schema.field(position), names)
        table = pa.Table.from_batches([rows])
        self._parquet.write_table(table, row_group_size=max(1, rows.num_rows))
        self._with_nan |= nan_columns(table)
        self._rows += rows.num_rows

    def close(self) -> str:
        self._parquet.add_key_value_metadata({**_FOOTER, **self._group.footer})
        self._parquet.close()
        size = int(self._stream.tell())
        self._stream.close()
        group = self._group
        stat = {
            "fileId": group.file_id,
            "path": self._path,
            "partitionPath": group.path,
            "prevCommit": group.commit or "null",
            "prevBaseFile": group.earlier or None,
            "numWrites": self._rows,
            "numInserts": group.inserts,
            "numDeletes": group.deletes,
            "totalWriteBytes": size,
            "fileSizeInBytes": size,
        }
        ranges = ranges_of(self._footers[0], self._with_nan) if self._rows else None
        return json.dumps(stat if ranges is None else {**stat, KEY: ranges})
