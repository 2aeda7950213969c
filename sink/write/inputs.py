"""The input of the write jobs of one table.

Guarantee: that of `sink.write.task_input`, with bounded memory in each task. Thread-safe, because transactions in
flight overlap. Raises ConfigError for settings that librdkafka refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from coordination.state.model import Slice, WriteTask
from sink.config import Settings
from sink.decode.formats import WIRE
from sink.write.kafka_consumer import ConsumerSettings, KeptConsumer
from sink.write.kafka_reader import ReadLimits
from sink.write.memory import MemoryBudget
from sink.write.task_input import FrameSource, KafkaSource, TaskInput, TaskReads, records_of


class Inputs:
    """The tasks read Kafka with librdkafka; the JVM sees no record."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.memory = MemoryBudget(lambda: spark.sparkContext.defaultParallelism)
        self._spark = spark
        self._settings = settings

    def of_tasks(self, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        """Returns the input of these tasks. `attempt` counts the attempts at the transaction from 1."""
        # On a cluster Spark may add executors when there is work for them.
        is_bounded = str(self._spark.sparkContext.master).startswith("local") or self.memory.is_short
        task_limit = self.memory.tasks if is_bounded else len(tasks)
        side_by_side = max(1, min(task_limit, len(tasks)))
        source = self._source(attempt, _reads_headers(self._settings))
        frame = self._spark.range(0, side_by_side, 1, side_by_side)
        return TaskInput(frame, TaskReads(tuple(tasks), source, side_by_side))

    def of_frame(self, records: DataFrame, tasks: Sequence[WriteTask], attempt: int) -> TaskInput:
        """Returns the input for records that are in a DataFrame already, one Spark partition for each task."""
        source = FrameSource(self.memory.task_bytes(attempt))
        return TaskInput(records, TaskReads(tuple(tasks), source, len(tasks)))

    def of_records(self, slices: Sequence[Slice]) -> DataFrame:
        """Returns the records of the slices, with key, value and headers."""
        return records_of(self._spark, self._source(1, headers=True), slices)

    def _source(self, attempt: int, headers: bool) -> KafkaSource:
        size = self.memory.task_bytes(attempt)
        return KafkaSource(_consumer_settings(self._settings), ReadLimits(size, size, size), headers)


def require_reader(settings: Settings) -> None:
    """Raises ConfigError for `kafka.*` settings that librdkafka refuses. Connects to no server."""
    KeptConsumer(_consumer_settings(settings).for_reading(1 << 20, 1)).client.close()


def _consumer_settings(settings: Settings) -> ConsumerSettings:
    return ConsumerSettings(settings.kafka_native_consumer, f"sink-{settings.name}")


def _reads_headers(settings: Settings) -> bool:
    """Whether a write needs the headers of records: for the table's column, or for schema ids."""
    return settings.headers or settings.value_format.endswith(WIRE) or settings.delete_key_format.endswith(WIRE)
