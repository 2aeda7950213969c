"""The Spark task of the Arrow engine: reads and decodes the slices of a write task, and writes them as base files.

Guarantee: rows go to files in the order in which they are read. The report covers all records: counts of the rows, and
offsets and reasons of the bad ones, or the first bad record if there are too many. A task that fails or is cancelled
deletes its files; a file that it cannot delete has a marker. Voided by speculative execution, unless the commit checks
the files. Raises Abandoned; any other error fails the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import BadRecord
from sink.layout.joined_texts import joined
from sink.storage.access import NO_ACCESS, Access
from sink.storage.files import cached_storage
from sink.write.base_file import Attempt
from sink.write.read_batches import ReadBatch
from sink.write.record_columns import RowDecoder, RowSpec, separate_bad
from sink.write.slice_files import FileLimits, SliceFiles
from sink.write.task_errors import TaskFailed, failed_task
from sink.write.task_input import TaskReads, task_context
from sink.write.task_report import SliceCounter, TaskReport

REPORT = "report binary"
_REPORT = pa.schema([("report", pa.binary())])


@dataclass(frozen=True)
class WriteJob:
    """Everything that the tasks of a job need. Spark ships it to the executors, which import this package."""

    base_path: str
    sink: str
    table: str
    instant: str
    reads: TaskReads
    spec: RowSpec
    meta_fields: bool
    codec: str
    limits: FileLimits
    tolerated: int = 0
    """The number of bad records that a task tolerates."""
    access: Access = NO_ACCESS


def run(job: WriteJob, arrow: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs tasks, for `mapInArrow`; yields one row for each task, which `report_of` reads."""
    for number in job.reads.task_numbers():
        outcome = _outcome_of(job, number, arrow)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], schema=_REPORT)


def _outcome_of(job: WriteJob, number: int, arrow: Iterator[pa.RecordBatch]) -> TaskReport | TaskFailed:
    writer = _TaskWriter(job, number)
    try:
        for batch in job.reads.source.batches(job.reads.tasks[number], arrow):
            writer.write(batch)
        return writer.finish()
    except BadRecord as error:
        # Returned, not raised: on a cluster Spark would retry a task that fails.
        writer.files.discard()
        return failed_task(error)
    except BaseException:
        # A cancelled task ends with a BaseException; its files are useless, too.
        writer.files.discard()
        raise


def report_of(report: bytes) -> TaskReport:
    """Returns the report of a task. Raises TaskFailed if the task returned one."""
    outcome = pickle.loads(report)
    if isinstance(outcome, TaskFailed):
        raise outcome
    assert isinstance(outcome, TaskReport)
    return outcome


class _TaskWriter:
    """Decodes and writes the batches of one task."""

    def __init__(self, job: WriteJob, number: int) -> None:
        self._job = job
        task = job.reads.tasks[number]
        self._rows = RowDecoder(job.spec)
        self._counter = SliceCounter(number, task, job.tolerated)
        # A sequence number must be unique in its file.
        self._topics_in_file = len({piece.topic for piece in task.slices})
        context = task_context()
        token = f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"
        attempt = Attempt(job.sink, job.table, job.instant, token, task)
        storage = cached_storage(job.base_path, job.access)
        self.files = SliceFiles(storage, attempt, job.limits, job.codec, job.meta_fields)

    def write(self, batch: ReadBatch) -> None:
        good, decoded, bad = separate_bad(batch.records, batch.topic, self._rows.decode)
        self._counter.count(batch, bad)
        if decoded is not None:
            rows, groups = decoded
            self.files.add(self._with_key(rows, batch, good), groups)

    def finish(self) -> TaskReport:
        return self._counter.report(self.files.close())

    def _with_key(self, rows: pa.RecordBatch, batch: ReadBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        if not self._job.meta_fields:
            return rows
        partitions: pa.Array | pa.Scalar = pc.cast(records.column("partition"), pa.string())
        if len(batch.parts) == 1:
            partitions = partitions[0]
        offsets = pc.cast(records.column("offset"), pa.string())
        key = self._job.spec.keys.column(rows, batch.topic, partitions, offsets)
        source = f"{batch.topic}-" if self._topics_in_file > 1 else ""
        number = joined(pa.scalar(f"{self._job.instant}_{source}"), partitions, pa.scalar("_"), offsets)
        fields = [
            pa.field("_hoodie_commit_seqno", number.type),
            pa.field("_hoodie_record_key", key.type),
            *rows.schema,
        ]
        return pa.RecordBatch.from_arrays([number, key, *rows.columns], schema=pa.schema(fields))
