"""The Spark task of the Arrow engine: reads and decodes the slices of a write task, and writes them as base files.

Guarantee: rows go to files in the order in which they are read. The report covers all records: counts of the rows, and
offsets and reasons of the bad ones, or the first bad record if there are too many. A task that fails or is cancelled
deletes its files; a file that it cannot delete has a marker. Voided by speculative execution, unless the commit checks
the files. Raises Abandoned; any other error fails the task.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import BadRecord
from coordination.state.log_records import ReadRange
from sink.decode.registry.answers import RegistryUnavailable
from sink.layout.joined_texts import joined
from sink.storage.access import NO_ACCESS, Access
from sink.storage.files import cached_storage
from sink.write.engines.task_errors import TaskFailed, failed_task
from sink.write.engines.task_input import TaskReads, task_context
from sink.write.engines.task_report import SliceCounter, TaskReport
from sink.write.files.base_file import Attempt
from sink.write.files.slice_files import FileLimits, SliceFiles
from sink.write.reading.read_batches import ReadBatch
from sink.write.rows.filled_topics import FilledTopics
from sink.write.rows.record_columns import RowDecoder, RowSpec, separate_bad

REPORT = "report binary"
_REPORT = pa.schema([("report", pa.binary())])


@dataclass(frozen=True)
class WriteJob:
    """Everything that the tasks of a job need. Spark ships it to the executors, which import this package."""

    base_path: str
    namespace: str
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
        yield pa.RecordBatch.from_arrays([pa.array([_packed(outcome)], pa.binary())], schema=_REPORT)


def _packed(outcome: TaskReport | TaskFailed) -> bytes:
    """Packs a report, since that of thousands of files has megabytes that repeat one another."""
    return zlib.compress(pickle.dumps(outcome), 1)


def _outcome_of(job: WriteJob, number: int, arrow: Iterator[pa.RecordBatch]) -> TaskReport | TaskFailed:
    task = job.reads.tasks[number]
    several_topics = len({piece.topic for piece in task.slices}) > 1
    schemas: dict[str, str] = {}
    decoder, counter = RowDecoder(job.spec.recording(schemas)), SliceCounter(number, task, job.tolerated)
    topics = FilledTopics(job.spec)
    context = task_context()
    token = f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"
    attempt = Attempt(job.namespace, job.table, job.instant, token, task)
    files = SliceFiles(cached_storage(job.base_path, job.access), attempt, job.limits, job.codec, job.meta_fields)
    try:
        reads: list[ReadRange] = []
        for batch in job.reads.source.batches(task, arrow, reads):
            good, decoded, bad = separate_bad(batch.records, batch.topic, decoder.decode)
            counter.count(batch, bad)
            if decoded is not None:
                rows, groups = decoded
                topics.add(batch.topic, rows)
                files.add(_with_key(job, batch, good, rows, several_topics) if job.meta_fields else rows, groups)
        return counter.report(reads, files.close(), schemas, topics.seen())
    except (BadRecord, RegistryUnavailable) as error:
        # Returned, not raised: on a cluster Spark would retry a task that fails.
        files.discard()
        return failed_task(error)
    except BaseException:
        # A cancelled task ends with a BaseException; its files are useless, too.
        files.discard()
        raise


def _with_key(
    job: WriteJob, batch: ReadBatch, records: pa.RecordBatch, rows: pa.RecordBatch, several_topics: bool
) -> pa.RecordBatch:
    """Returns the rows of good records with sequence number and record key before them."""
    partitions: pa.Array | pa.Scalar = pc.cast(records.column("partition"), pa.string())
    if len(batch.parts) == 1:
        partitions = partitions[0]
    offsets = pc.cast(records.column("offset"), pa.string())
    key = job.spec.keys.column(rows, batch.topic, partitions, offsets)
    # A sequence number must be unique in its file.
    topic = f"{batch.topic}-" if several_topics else ""
    number = joined(pa.scalar(f"{job.instant}_{topic}"), partitions, pa.scalar("_"), offsets)
    fields = [pa.field("_hoodie_commit_seqno", number.type), pa.field("_hoodie_record_key", key.type), *rows.schema]
    return pa.RecordBatch.from_arrays([number, key, *rows.columns], schema=pa.schema(fields))


def report_of(report: bytes) -> TaskReport:
    """Returns the report of a task. Raises TaskFailed if the task returned one."""
    outcome = pickle.loads(zlib.decompress(report))
    if isinstance(outcome, TaskFailed):
        raise outcome
    assert isinstance(outcome, TaskReport)
    return outcome
