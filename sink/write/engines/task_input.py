"""Provides the input of a Spark job's write tasks: each task reads Kafka itself, or gets rows of a DataFrame.

Guarantee: each task runs in one Spark partition of `TaskInput.frame`. A task that reads Kafka gets exactly the
committed records of its slices, each once, in bounded memory. `Inputs` is thread-safe, because transactions in flight
overlap. `require_valid_consumer` raises ConfigError for settings that librdkafka refuses. In a task, DataLoss,
DamagedLog and WrongLog travel as `sink.write.engines.task_errors` says; every other error of the reader passes through.
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

_RAW_SCHEMA = (
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
    spark_partitions: int
    """Spark partitions of the job. Partition `p` runs tasks `p`, `p + spark_partitions`, ..., one after another."""

    def task_numbers(self) -> range:
        """Returns the positions of the tasks that this Spark partition runs."""
        return range(task_context().partitionId(), len(self.tasks), self.spark_partitions)


@dataclass(frozen=True)
class TaskInput:
    frame: DataFrame
    """Has `reads.spark_partitions` partitions. Its rows are the records, or placeholders if the tasks read Kafka."""
    reads: TaskReads


@dataclass(frozen=True)
class KafkaSource:
    """The task reads Kafka itself, from the topic ids of its slices; Spark hands it no records."""

    settings: ConsumerSettings
    limits: ReadLimits
    headers: bool
    cluster: str = ""
    """The id of the only Kafka cluster to read from; empty if the caller knows none."""

    def batches(self, task: WriteTask, arrow: Iterator[pa.RecordBatch], reads: list[ReadRange]) -> Iterator[ReadBatch]:
        # Spark keeps a Python worker, and with it the consumers, only if the task reads its input to the end.
        for _ in arrow:
            pass
        partitions = {slice_.source for slice_ in task.slices}
        consumer = self.settings.for_reading(self.limits.queue_bytes, task.size // len(partitions))
        topic_ids = {slice_.topic: slice_.topic_id for slice_ in task.slices}
        reader = TaskReader(kept_consumer(consumer, self.cluster, topic_ids), task, self.limits, self.headers)
        try:
            yield from reader
            reader.close()
            reads.extend(reader.reads)
        except (DataLoss, DamagedLog, WrongLog) as error:
            drop_consumer(consumer)
            raise failed_task(error) from None
        except BaseException:
            # Fetches may still be under way, which the next task must not get.
            drop_consumer(consumer)
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
                run = records.slice(start, stop - start)
                partition = run.column("partition")[0].as_py()
                yield from builder.add(topic, run, index.parts(topic, partition, run.column("offset").to_numpy()))
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


def _raw(reads: TaskReads, arrow: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in reads.task_numbers():
        for batch in reads.source.batches(reads.tasks[number], arrow, []):
            topic = pa.array([batch.topic] * batch.records.num_rows)
            yield batch.records.append_column("topic", topic)


class Inputs:
    """Makes the input of one table's Spark jobs. `of_tasks` lets the tasks read Kafka, so that no record passes the
    JVM; `of_frame` takes records that Spark has; `of_records` gives Spark the records of slices.
    """

    def __init__(self, spark: SparkSession, specification: RecordSpecification) -> None:
        self.memory = MemoryBudget(lambda: spark.sparkContext.defaultParallelism)
        self._spark = spark
        self._specification = specification

    def of_tasks(self, tasks: Sequence[WriteTask], attempt: int, cluster: str) -> TaskInput:
        """Returns the input of these tasks, from this cluster. `attempt` counts attempts at the transaction from 1."""
        # Outside local mode Spark may add executors for waiting tasks: all are offered, unless memory is short.
        is_bounded = str(self._spark.sparkContext.master).startswith("local") or self.memory.is_short
        task_limit = self.memory.tasks if is_bounded else len(tasks)
        spark_partitions = max(1, min(task_limit, len(tasks)))
        source = self._source(attempt, self._specification.reads_headers, cluster)
        frame = self._spark.range(0, spark_partitions, 1, spark_partitions)
        return TaskInput(frame, TaskReads(tuple(tasks), source, spark_partitions))

    def of_frame(self, records: DataFrame, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        """Returns the input for records that are in a DataFrame already, one Spark partition for each task."""
        source = FrameSource(self.memory.task_bytes(attempt))
        return TaskInput(records, TaskReads(tuple(tasks), source, len(tasks)))

    def of_records(self, slices: Sequence[Slice], cluster: str = "") -> DataFrame:
        """Returns the records of the slices, with key, value and headers; one Spark partition for each slice."""
        source = self._source(1, headers=True, cluster=cluster)
        reads = TaskReads(tuple(WriteTask((slice_,)) for slice_ in slices), source, len(slices))
        return self._spark.range(0, len(slices), 1, len(slices)).mapInArrow(partial(_raw, reads), _RAW_SCHEMA)

    def _source(self, attempt: int, headers: bool, cluster: str) -> KafkaSource:
        size = self.memory.task_bytes(attempt)
        return KafkaSource(self._specification.consumer, ReadLimits(size, size, size), headers, cluster)


def require_valid_consumer(consumer: ConsumerSettings) -> None:
    """Raises ConfigError for `kafka.*` settings that librdkafka refuses. Connects to no server."""
    KeptConsumer(consumer.for_reading(1 << 20, 1)).client.close()
