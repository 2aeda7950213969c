"""Chooses the input of write jobs by `kafka.reader`, and keeps what a reader learns from one job for the next.

Guarantee: that of `sink.write.task_input`, with bounded memory in each task. Thread-safe, because transactions in
flight overlap. Raises ConfigError for settings that a reader refuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from coordination.errors import ConfigError
from coordination.state.model import Slice, WriteTask
from sink.config import Settings
from sink.write.batch_sizes import BATCH_BYTES, BatchSizes, SliceSizes
from sink.write.kafka_consumer import ConsumerSettings, KeptConsumer
from sink.write.kafka_reader import ReadLimits
from sink.write.memory import MemoryBudget
from sink.write.source import read_slices, read_tasks, reads_headers
from sink.write.task_input import FrameSource, KafkaSource, TaskInput, TaskReads, records_of
from sink.write.task_report import TaskReport


class Inputs(ABC):
    """The input of the jobs of one table."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.memory = MemoryBudget(lambda: spark.sparkContext.defaultParallelism)
        self._spark = spark
        self._settings = settings

    @abstractmethod
    def of_tasks(self, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        """Returns the input of these tasks. `attempt` counts the attempts at the transaction from 1."""

    @abstractmethod
    def of_records(self, slices: Sequence[Slice]) -> DataFrame:
        """Returns the records of the slices, with key, value and headers."""

    def learn(self, _reports: Sequence[TaskReport]) -> None:
        """Learns from the reports of a write that succeeded."""
        self.memory.succeeded()

    def failed(self, _slices: Sequence[Slice], error: BaseException) -> None:
        """Learns from the error of a write that failed."""
        self.memory.failed(error)


def require_reader(settings: Settings) -> None:
    """Raises ConfigError for `kafka.*` settings that librdkafka refuses. Connects to no server. Spark's Kafka source
    checks its settings when it reads.
    """
    if settings.kafka_reader != "librdkafka":
        return
    try:
        KeptConsumer(_consumer_settings(settings).for_reading(1 << 20, 1)).client.close()
    except ConfigError as error:
        raise ConfigError(
            f"{error} Or set kafka.reader=spark, which reads with Kafka's Java client. The sink still asks for offsets"
            " with librdkafka, and Kerberos needs a confluent-kafka that was built with it."
        ) from error


def _consumer_settings(settings: Settings) -> ConsumerSettings:
    return ConsumerSettings(settings.kafka_native_consumer, f"sink-{settings.name}")


def inputs_of(spark: SparkSession, settings: Settings) -> Inputs:
    return (LibrdkafkaInputs if settings.kafka_reader == "librdkafka" else SparkInputs)(spark, settings)


def frame_input(records: DataFrame, tasks: Sequence[WriteTask], batch_bytes: int = BATCH_BYTES) -> TaskInput:
    """Returns the input for records that are in a DataFrame already, one Spark partition for each task."""
    return TaskInput(records, TaskReads(tuple(tasks), FrameSource(batch_bytes), len(tasks)))


class LibrdkafkaInputs(Inputs):
    """The tasks read Kafka with librdkafka; the JVM sees no record."""

    def of_tasks(self, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        # On a cluster Spark may add executors when there is work for them.
        is_bounded = str(self._spark.sparkContext.master).startswith("local") or self.memory.is_short
        task_limit = self.memory.tasks if is_bounded else len(tasks)
        side_by_side = max(1, min(task_limit, len(tasks)))
        source = self._source(attempt, reads_headers(self._settings))
        frame = self._spark.range(0, side_by_side, 1, side_by_side)
        return TaskInput(frame, TaskReads(tuple(tasks), source, side_by_side))

    def of_records(self, slices: Sequence[Slice]) -> DataFrame:
        return records_of(self._spark, self._source(1, headers=True), slices)

    def _source(self, attempt: int, headers: bool) -> KafkaSource:
        size = self.memory.task_bytes(attempt)
        return KafkaSource(_consumer_settings(self._settings), ReadLimits(size, size, size), headers)


class SparkInputs(Inputs):
    """Spark's Kafka source reads, for settings that librdkafka does not support. `BatchSizes` bounds its batches."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(spark, settings)
        self._sizes = BatchSizes(spark, settings)

    def of_tasks(self, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        session = self._sizes.session([piece for task in tasks for piece in task.slices])
        return frame_input(read_tasks(session, self._settings, tasks), tasks, self.memory.task_bytes(attempt))

    def of_records(self, slices: Sequence[Slice]) -> DataFrame:
        return read_slices(self._sizes.session(slices), self._settings, slices, headers=True)

    def learn(self, reports: Sequence[TaskReport]) -> None:
        super().learn(reports)
        self._sizes.learn(
            SliceSizes(result.slice.source, result.records + result.errors, report.size, report.largest)
            for report in reports
            for result in report.results
        )

    def failed(self, slices: Sequence[Slice], error: BaseException) -> None:
        super().failed(slices, error)
        self._sizes.failed(slices, error)
