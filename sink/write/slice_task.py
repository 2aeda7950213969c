"""The Spark task of the Arrow writer: record batches of one slice in, base files and one report row out.

Guarantee: rows go to files in offset order, and the report covers all records: the rows, and the bad ones with their
reasons, or the first of these where there are more than may be.
When the task fails or is cancelled its files are removed; what cannot be removed has its marker. Voided by
speculative execution without the checks at commit. Raises Abandoned; anything else fails the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from coordination.errors import SinkError
from coordination.model import Slice
from sink.write.bad_offsets import BadOffset, bad_offsets, too_many
from sink.write.base_file import Attempt
from sink.write.engine import DIGEST_MASK
from sink.write.record_columns import Rows, RowShape
from sink.write.slice_files import Limits, SliceFiles
from sink.write.storage import NO_ACCESS, Access, open_storage

REPORT = (
    "slice int, records long, digest long, bytes long, largest long, stats array<string>,"
    " bad array<struct<offset: long, kind: string, reason: string>>, bad_offset long, reason string"
)
_REPORT = pa.schema(
    [
        ("slice", pa.int32()),
        ("records", pa.int64()),
        ("digest", pa.int64()),
        ("bytes", pa.int64()),
        ("largest", pa.int64()),
        ("stats", pa.list_(pa.string())),
        ("bad", pa.list_(pa.struct([("offset", pa.int64()), ("kind", pa.string()), ("reason", pa.string())]))),
        ("bad_offset", pa.int64()),
        ("reason", pa.string()),
    ]
)
NO_RECORDS = -1
"""The slice number in the report of a task that saw no record: it cannot tell which slice was its own."""


@dataclass(frozen=True)
class WriteTask:
    """All that a task needs to know; it travels to the executors, which import this package."""

    base_path: str
    sink: str
    table: str
    instant: str
    slices: tuple[Slice, ...]
    shape: RowShape
    meta_fields: bool
    codec: str
    limits: Limits
    tolerated: int = 0
    """Most bad records of a slice."""
    access: Access = NO_ACCESS


class BadValues(Exception):
    """The first record of a slice that cannot go into the table, where that, or so many of them, are not tolerated."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def run(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, with the columns that `columns_needed` names, and topic if there are several."""
    writer: _SliceWriter | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = _SliceWriter(task, batch)
            writer.write(batch)
        report = _report(NO_RECORDS) if writer is None else writer.finish()
    except BadValues as error:
        assert writer is not None
        writer.files.discard()
        report = _report(writer.index, bad_offset=error.offset, reason=error.reason)
    except BaseException:
        # A cancelled task ends by an exception that is no Exception; its files are as useless.
        if writer is not None:
            writer.files.discard()
        raise
    yield report


def _report(index: int, **columns: object) -> pa.RecordBatch:
    row = {"slice": index, "records": 0, "digest": 0, "bytes": 0, "largest": 0, "stats": [], "bad": [], **columns}
    return pa.RecordBatch.from_pylist([row], schema=_REPORT)


class _SliceWriter:
    """Decodes and writes the batches of the slice that the first batch belongs to."""

    def __init__(self, task: WriteTask, first: pa.RecordBatch) -> None:
        self.index = _find(task.slices, first)
        self._task = task
        self._slice = task.slices[self.index]
        self._rows = Rows(task.shape)
        self._records = self._digest = self._bytes = self._largest = 0
        self._bad: list[BadOffset] = []
        context = TaskContext.get()
        assert context is not None
        token = f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"
        attempt = Attempt(task.sink, task.table, task.instant, token, self._slice)
        storage = open_storage(task.base_path, task.access)
        self.files = SliceFiles(storage, attempt, task.limits, task.codec, task.meta_fields)

    def write(self, batch: pa.RecordBatch) -> None:
        sifted = self._rows.sift(batch, self._slice.topic)
        if sifted.bad:
            self._bad += bad_offsets(batch, sifted.bad)
            if len(self._bad) > self._task.tolerated:
                raise BadValues(self._bad[0].offset, too_many(self._bad[0].reason, self._task.tolerated))
        if sifted.rows is not None:
            self.files.add(self._with_key(sifted.rows, sifted.records.column("offset")), sifted.groups)
        self._count(batch, sifted.records.num_rows)

    def finish(self) -> pa.RecordBatch:
        stats = self.files.close()
        digest = self._digest & DIGEST_MASK
        signed = digest - (1 << 64) if digest >> 63 else digest
        return _report(
            self.index,
            records=self._records,
            digest=signed,
            bytes=self._bytes,
            largest=self._largest,
            stats=stats,
            bad=[asdict(each) for each in self._bad],
        )

    def _count(self, batch: pa.RecordBatch, good: int) -> None:
        lengths = pc.binary_length(batch.column("value"))
        self._records += good
        self._digest += int(batch.column("digest").to_numpy().view(np.uint64).sum(dtype=np.uint64))
        self._bytes += pc.sum(lengths).as_py() or 0
        self._largest = max(self._largest, pc.max(lengths).as_py() or 0)

    def _with_key(self, rows: pa.RecordBatch, offsets: pa.Array) -> pa.RecordBatch:
        if not self._task.meta_fields:
            return rows
        each = self._slice
        key = self._task.shape.keys.column(rows, each.topic, each.partition, offsets)
        prefix = pa.scalar(f"{self._task.instant}_{each.partition}_")
        number = pc.binary_join_element_wise(prefix, pc.cast(offsets, pa.string()), pa.scalar(""))
        fields = [
            pa.field("_hoodie_commit_seqno", number.type),
            pa.field("_hoodie_record_key", key.type),
            *rows.schema,
        ]
        return pa.RecordBatch.from_arrays([number, key, *rows.columns], schema=pa.schema(fields))


def _find(slices: tuple[Slice, ...], batch: pa.RecordBatch) -> int:
    """Spark does not say which slice a task reads, its rows do."""
    topic = batch.column("topic")[0].as_py() if "topic" in batch.schema.names else slices[0].topic
    partition, offset = batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py()
    for index, each in enumerate(slices):
        if each.topic == topic and each.partition == partition and each.start <= offset < each.end:
            return index
    raise SinkError(f"{topic}-{partition} offset {offset} was read, but is in none of the slices that were asked for")
