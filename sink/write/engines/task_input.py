"""The input of a Spark job's write tasks: the tasks read Kafka themselves, or Spark hands them records that it has.

Guarantee: each task runs in one Spark partition of `TaskInput.frame` and gets exactly the committed records of its
slices, each once, in bounded memory. `Inputs` makes it for the jobs of one table, and is thread-safe, because
transactions in flight overlap. Raises ConfigError for settings that librdkafka refuses. In a task it raises what the
reader raises; DataLoss travels as in `sink.write.engines.task_errors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from coordination.errors import DamagedLog, DataLoss, WrongLog
from coordination.state.log_records import ReadRange
from coordination.state.model import Slice, WriteTask
from sink.write.engines.memory import MemoryBudget
from sink.write.engines.task_errors import failed_task
from sink.write.reading.kafka_consumer import ConsumerSettings, KeptConsumer, drop_consumer, kept_consumer
from sink.write.reading.kafka_reader import ReadLimits, TaskReader
from sink.write.reading.read_batches import BatchBuilder, ReadBatch, SliceIndex
from sink.write.rows.specification import RecordSpecification

_RAW = (
    "value binary, key binary, partition int, offset long, timestamp timestamp, digest long,"
    " headers array<struct<key: string, value: binary>>, topic string"
)


class BatchSource(Protocol):
    """Gives a task its records. Spark ships it to the executors."""

    def batches(self, task: WriteTask, arrow: Iterator[pa.RecordBatch], reads: list[ReadRange]) -> Iterator[ReadBatch]:
        """Yields the records of the task, and adds to `reads` what it read of the log. `arrow` are the batches that
        Spark hands to it."""
        ...


@dataclass(frozen=True)
class TaskReads:
    """The tasks of a job and what they read. Spark ships it to the executors, which import this package."""

    tasks: tuple[WriteTask, ...]
    source: BatchSource
    side_by_side: int
    """Spark partitions of the job; each runs its tasks one after another."""

    def task_numbers(self) -> range:
        """Returns the positions of the tasks that this Spark partition runs."""
        return range(task_context().partitionId(), len(self.tasks), self.side_by_side)


@dataclass(frozen=True)
class TaskInput:
    frame: DataFrame
    """Has a Spark partition for each of `reads.side_by_side`."""
    reads: TaskReads


@dataclass(frozen=True)
class KafkaSource:
    """The task reads Kafka itself, from the topic ids of its slices; Spark hands it no records."""

    settings: ConsumerSettings
    limits: ReadLimits
    headers: bool
    cluster: str = ""
    """The only cluster to read from; empty for any. A topic id is of one cluster alone."""

    def batches(self, task: WriteTask, arrow: Iterator[pa.RecordBatch], reads: list[ReadRange]) -> Iterator[ReadBatch]:
        for _ in arrow:
            pass
        partitions = {piece.source for piece in task.slices}
        settings = self.settings.for_reading(self.limits.queue_bytes, task.size // len(partitions))
        topic_ids = {piece.topic: piece.topic_id for piece in task.slices}
        reader = TaskReader(kept_consumer(settings, self.cluster, topic_ids), task, self.limits, self.headers)
        try:
            yield from reader
            reader.close()
            reads.extend(reader.reads)
        except (DataLoss, DamagedLog, WrongLog) as error:
            drop_consumer(settings)
            raise failed_task(error) from None
        except BaseException:
            # Fetches may still be under way, which the next task must not get.
            drop_consumer(settings)
            raise


@dataclass(frozen=True)
class FrameSource:
    """Spark hands the records to the task, with the topic as a column."""

    batch_bytes: int

    def batches(
        self,
        task: WriteTask,
        arrow: Iterator[pa.RecordBatch],
        reads: list[ReadRange],  # noqa: ARG002 - not from a log
    ) -> Iterator[ReadBatch]:
        index, builder = SliceIndex(task.slices), BatchBuilder(self.batch_bytes)
        for batch in arrow:
            records = batch.drop_columns(["topic"])
            for topic, start, stop in _runs(batch):
                piece = records.slice(start, stop - start)
                partition = piece.column("partition")[0].as_py()
                yield from builder.add(topic, piece, index.parts(topic, partition, piece.column("offset").to_numpy()))
        yield from builder.flush()


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
    """Yields topic, first row and end row of each run of rows of one partition."""
    if not batch.num_rows:
        return
    partitions = batch.column("partition").to_numpy()
    topics = batch.column("topic").dictionary_encode()
    names = topics.indices.to_numpy()
    changes = (np.diff(partitions) != 0) | (np.diff(names) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for start, stop in pairwise(bounds):
        yield topics.dictionary[names[start]].as_py(), start, stop


def task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def records_of(spark: SparkSession, source: KafkaSource, slices: Sequence[Slice]) -> DataFrame:
    """Returns the records of the slices with topic and headers, unchanged: for the bad records to quarantine."""
    reads = TaskReads(tuple(WriteTask((piece,)) for piece in slices), source, len(slices))
    return spark.range(0, len(slices), 1, len(slices)).mapInArrow(partial(_raw, reads), _RAW)


def _raw(reads: TaskReads, arrow: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in reads.task_numbers():
        for batch in reads.source.batches(reads.tasks[number], arrow, []):
            topic = pa.array([batch.topic] * batch.records.num_rows)
            yield batch.records.append_column("topic", topic)


class Inputs:
    """The tasks read Kafka with librdkafka; the JVM sees no record."""

    def __init__(self, spark: SparkSession, specification: RecordSpecification) -> None:
        self.memory = MemoryBudget(lambda: spark.sparkContext.defaultParallelism)
        self._spark = spark
        self._specification = specification

    def of_tasks(self, tasks: Sequence[WriteTask], attempt: int, cluster: str) -> TaskInput:
        """Returns the input of these tasks, from this cluster. `attempt` counts attempts at the transaction from 1."""
        # On a cluster Spark may add executors when there is work for them.
        is_bounded = str(self._spark.sparkContext.master).startswith("local") or self.memory.is_short
        task_limit = self.memory.tasks if is_bounded else len(tasks)
        side_by_side = max(1, min(task_limit, len(tasks)))
        source = self._source(attempt, self._specification.reads_headers, cluster)
        frame = self._spark.range(0, side_by_side, 1, side_by_side)
        return TaskInput(frame, TaskReads(tuple(tasks), source, side_by_side))

    def of_frame(self, records: DataFrame, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        """Returns the input for records that are in a DataFrame already, one Spark partition for each task."""
        source = FrameSource(self.memory.task_bytes(attempt))
        return TaskInput(records, TaskReads(tuple(tasks), source, len(tasks)))

    def of_records(self, slices: Sequence[Slice], cluster: str = "") -> DataFrame:
        """Returns the records of the slices, with key, value and headers; one Spark partition for each slice."""
        return records_of(self._spark, self._source(1, headers=True, cluster=cluster), slices)

    def _source(self, attempt: int, headers: bool, cluster: str = "") -> KafkaSource:
        size = self.memory.task_bytes(attempt)
        return KafkaSource(self._specification.consumer, ReadLimits(size, size, size), headers, cluster)


def require_reader(consumer: ConsumerSettings) -> None:
    """Raises ConfigError for `kafka.*` settings that librdkafka refuses. Connects to no server."""
    KeptConsumer(consumer.for_reading(1 << 20, 1)).client.close()
