"""One Hudi base file: its name, its marker, its Parquet and its write stat.

Guarantee: the marker stands before the file, so that a rollback or a commit can remove what no stat
names. The file id depends on the slice, the table partition and the roll alone: another attempt re-forms
the same file group. Nothing is created, and no stat given, once the instant is seen to be over. Raises
Abandoned.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordination.errors import SinkError
from coordination.model import Slice
from sink.write.column_ranges import KEY, ranges_of
from sink.write.storage import Storage

_FILE_IDS = uuid.UUID("6f0e6a3c-6f0d-5d0b-9c55-0a3a1e0b7c11")
TIMELINE = ".hoodie/timeline"
_SAMPLE = 4096
_FEW = 0.05
"""A text or integer column with fewer distinct values than this share of a sample gets a dictionary."""
# Without the Spark version Spark refuses dates before 1582 and times before 1900: it cannot know which
# calendar wrote them. Arrow writes the proleptic one, as Spark has since 3.0.
_FOOTER = {"org.apache.spark.version": "3.5.7"}


class Abandoned(SinkError):
    """The transaction is over as far as this task can see; what it would write, nobody would commit."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where files of one task attempt belong. `token` tells attempts of one slice apart."""

    sink: str
    table: str
    instant: str
    token: str
    slice: Slice


@dataclass(frozen=True, slots=True)
class Layout:
    """How columns are laid down: with a dictionary, with deltas, or plainly."""

    schema: pa.Schema
    dictionary: tuple[str, ...]
    encodings: Mapping[str, str]


def file_id(attempt: Attempt, path: str, roll: int) -> str:
    """UUIDv5 over everything that tells two file groups apart, and nothing that differs between attempts."""
    each = attempt.slice
    name = [
        attempt.table,
        attempt.sink,
        each.topic_id,
        each.generation,
        each.topic,
        each.partition,
        each.start,
    ]
    return f"{uuid.uuid5(_FILE_IDS, json.dumps([*name, path, roll]))}-0"


def choose_layout(rows: pa.Table, delta: Sequence[str], prefixed: Sequence[str]) -> Layout:
    """`delta` columns rise from row to row; `prefixed` ones are texts that begin alike. Both need no
    dictionary.
    """
    sample = rows.slice(0, _SAMPLE)
    chosen = []
    for field in rows.schema:
        if field.name in delta or field.name in prefixed:
            continue
        if pa.types.is_dictionary(field.type):
            chosen.append(field.name)
            continue
        countable = pa.types.is_string(field.type) or pa.types.is_integer(field.type)
        few = max(1, sample.num_rows * _FEW)
        if countable and pc.count_distinct(sample.column(field.name)).as_py() <= few:
            chosen.append(field.name)
    encodings = dict.fromkeys(delta, "DELTA_BINARY_PACKED") | dict.fromkeys(prefixed, "DELTA_BYTE_ARRAY")
    return Layout(
        rows.schema,
        tuple(chosen),
        {name: kind for name, kind in encodings.items() if name in rows.schema.names},
    )


class Pulse:
    """Whether the instant is still open, as far as the timeline shows it."""

    def __init__(self, storage: Storage, instant: str) -> None:
        self._storage = storage
        self._instant = instant

    def check(self, completed_too: bool = False) -> None:
        """A completed instant keeps its inflight file; to see it costs a listing, so that is asked for."""
        inflight = f"{TIMELINE}/{self._instant}.inflight"
        if not self._storage.exists(inflight):
            raise Abandoned(f"instant {self._instant}: {inflight} is gone: rolled back; nothing was kept")
        if completed_too:
            prefix = f"{self._instant}_"
            if any(name.startswith(prefix) for name in self._storage.names(TIMELINE)):
                raise Abandoned(f"instant {self._instant} is already completed; nothing was kept")


def base_file_stat(file_id: str, path: str, name: str, records: int, size: int, footer: pq.FileMetaData) -> str:
    """Hudi's write stat of a new file, as JSON, with the column statistics of its footer."""
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
    ranges = ranges_of(footer)
    return json.dumps(stat if ranges is None else {**stat, KEY: ranges})


class BaseFile:
    """An open base file. `close` gives its stat; `discard` removes what was written and leaves the marker."""

    def __init__(self, storage: Storage, pulse: Pulse, attempt: Attempt, path: str, roll: int) -> None:
        self.path = path
        self.records = 0
        self.id = file_id(attempt, path, roll)
        self.name = f"{self.id}_{attempt.token}_{attempt.instant}.parquet"
        self._storage = storage
        self._pulse = pulse
        self._place = f"{path}/{self.name}" if path else self.name
        self._marker = f".hoodie/.temp/{attempt.instant}/{self._place}.marker.CREATE"
        self._stream: pa.NativeFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []
        """Of the file that was written, when it is closed."""

    @property
    def is_open(self) -> bool:
        return self._parquet is not None

    def open(self, layout: Layout, codec: str) -> None:
        self._storage.create(self._marker).close()
        self._stream = self._storage.create(self._place)
        self._parquet = pq.ParquetWriter(
            self._stream,
            layout.schema,
            compression=codec,
            use_dictionary=list(layout.dictionary),
            column_encoding=dict(layout.encodings),
            store_schema=False,
            metadata_collector=self._footers,
        )

    def write(self, rows: pa.Table) -> int:
        """One row group. Returns the bytes that the file has now."""
        assert self._parquet is not None
        assert self._stream is not None
        self._parquet.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.records += rows.num_rows
        return int(self._stream.tell())

    def close(self) -> str:
        assert self._parquet is not None
        assert self._stream is not None
        self._parquet.add_key_value_metadata(_FOOTER)
        self._parquet.close()
        self._stream.close()
        self._pulse.check()
        if not self._storage.exists(self._marker):
            raise Abandoned(f"{self._marker} is gone: the instant is over; {self._place} was not kept")
        size = self._storage.size(self._place)
        return base_file_stat(self.id, self.path, self.name, self.records, size, self._footers[0])

    def discard(self) -> None:
        """Best effort: what stays has a marker, by which the rollback finds it."""
        for handle in (self._parquet, self._stream):
            try:
                if handle is not None:
                    handle.close()
            except (OSError, pa.ArrowException):
                continue
        if self._stream is not None and self._storage.exists(self._place):
            self._storage.delete(self._place)
