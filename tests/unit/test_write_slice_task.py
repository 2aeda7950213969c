"""A task hands on the right part of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from coordination.state.model import Slice, WriteTask
from sink.decode.formats import ValueFormat
from sink.layout.partition_paths import PartitionPaths
from sink.layout.record_keys import RecordKeys
from sink.schema.table_schema import parse_ddl
from sink.write.engines import slice_task, task_input
from sink.write.engines.slice_task import WriteJob, report_of, run
from sink.write.engines.task_input import FrameSource, TaskReads
from sink.write.files.slice_files import FileLimits
from sink.write.rows.record_columns import RowSpec

COUNT = 1000


def kafka_batch() -> pa.RecordBatch:
    """Returns a batch as Spark sends it: all columns in one piece of memory."""
    numbers = np.arange(COUNT)
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b'{"id":%d}' % number for number in numbers], pa.binary()),
            "partition": pa.array(np.zeros(COUNT, np.int32)),
            "offset": pa.array(numbers),
            "timestamp": pa.array(numbers, pa.timestamp("us", "UTC")),
            "digest": pa.array(numbers),
            "topic": pa.array(["t"] * COUNT),
        }
    )
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(buffer.getvalue()).read_next_batch()


def memory_ranges(rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    for column in rows.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address, buffer.address + buffer.size


def test_rows_that_wait_to_be_written_keep_nothing_of_the_batch_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waiting: list[pa.RecordBatch] = []
    ids = SimpleNamespace(partitionId=lambda: 0, stageId=lambda: 0, taskAttemptId=lambda: 0)
    monkeypatch.setattr(task_input, "TaskContext", SimpleNamespace(get=lambda: ids))
    files = SimpleNamespace(add=lambda rows, _groups: waiting.append(rows), close=list, discard=lambda: None)
    monkeypatch.setattr(slice_task, "SliceFiles", lambda *_, **__: files)
    job = WriteJob(
        base_path=str(tmp_path),
        namespace="sink",
        table="table",
        instant="20240101000000000",
        reads=TaskReads((WriteTask((Slice("t", 0, 0, COUNT, "id", 0),)),), FrameSource(1 << 20), 1),
        spec=RowSpec(
            parse_ddl("id bigint", True), ValueFormat(), RecordKeys((), False), PartitionPaths((), True, False)
        ),
        meta_fields=True,
        codec="zstd",
        limits=FileLimits(1 << 30, 8, 1 << 20),
    )
    batch = kafka_batch()
    (report,) = run(job, iter([batch]))
    assert [result.records for result in report_of(report["report"][0].as_py()).results] == [COUNT]
    assert waiting[0].column("_kafka_offset").to_pylist() == list(range(COUNT))
    low, high = min(start for start, _ in memory_ranges(batch)), max(end for _, end in memory_ranges(batch))
    assert not [start for start, end in memory_ranges(waiting[0]) if start < high and end > low]
