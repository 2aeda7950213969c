"""The base of the engines: run these write tasks under that instant, and report.

Guarantee of every engine: it writes all slices or raises. Readers do not see the files before the instant is completed.
A slice gives the same rows, record keys, bad records and digest in every attempt. Voided by a table other than the one
in the settings, and by `spark.speculation=true`, which the settings refuse. Raises BadRecord (more bad records than are
tolerated) and DataLoss, with coordinates, and ConfigError. After any other error another attempt may succeed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coordination.state.model import QuarantinedRecords, SliceResult, WriteTask
from sink.clients.spark_pools import cancel_write, enter_write_pool
from sink.config import Settings
from sink.hudi.preflight import require_usable
from sink.schema import TableSchema
from sink.write.inputs import frame_input, inputs_of, require_reader
from sink.write.quarantine import quarantine
from sink.write.record_columns import RowSpec
from sink.write.row_spec import change_spec, row_spec
from sink.write.source import data_loss
from sink.write.task_errors import TaskFailed, task_error
from sink.write.task_input import TaskInput
from sink.write.task_report import TaskReport, complete


@dataclass(frozen=True, slots=True)
class WriteResult:
    """One result for each slice, also without records; one Hudi write stat for each file."""

    results: tuple[SliceResult, ...]
    stats: tuple[str, ...]
    size: int
    """Bytes of the values that were read."""
    errors: tuple[QuarantinedRecords, ...] = ()


class Engine(ABC):
    """Writes for one table. A subclass says how the files are written. Thread-safe, because transactions in flight
    overlap.
    """

    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._spec = (change_spec if settings.operation == "upsert" else row_spec)(settings, schema)
        self._inputs = inputs_of(spark, settings)

    def check(self) -> None:
        """Refuses, with ConfigError, settings that this engine cannot serve."""
        require_usable(self._settings, self._schema)
        require_reader(self._settings)
        self._spec.decoder()

    def write(
        self,
        instant: str,
        tasks: Sequence[WriteTask],
        columns: str = "",
        records: DataFrame | None = None,
        attempt: int = 1,
    ) -> WriteResult:
        """Writes the files of the tasks. `columns` is a `TableSchema.columns_json`; by default the engine's own schema.

        The Spark job runs in the job group of sink and instant. If `records` is given, the engine takes them instead of
        reading Kafka: the columns of `sink.write.read_batches.ReadBatch` and topic, one Spark partition for each task,
        offsets rising in each Kafka partition. Each further `attempt` at a transaction uses less memory.
        """
        enter_write_pool(self._spark, self._settings.name, instant, len(tasks))
        try:
            task_input = self._inputs.of_tasks(tasks, attempt) if records is None else frame_input(records, tasks)
            unordered_reports, stats = self._run(instant, task_input, self.spec(columns))
        except (Py4JJavaError, PySparkException, TaskFailed) as error:
            slices = [piece for task in tasks for piece in task.slices]
            self._inputs.failed(slices, error)
            raise task_error(error) or data_loss(error, slices) or error from error
        reports = complete(unordered_reports, tasks)
        self._inputs.learn(reports)
        return WriteResult(
            tuple(result for report in reports for result in report.results),
            (*stats, *(stat for report in reports for stat in report.stats)),
            sum(report.size for report in reports),
            quarantine(self._inputs, self._settings, instant, reports),
        )

    def cancel(self, instant: str) -> None:
        """Cancels the job that writes under the instant, if there is one; its `write` then raises."""
        cancel_write(self._spark, self._settings.name, instant)

    def spec(self, columns: str) -> RowSpec:
        """Returns how records become rows with these columns, as in `write`."""
        return replace(self._spec, schema=self._schema.with_columns(columns))

    @abstractmethod
    def _run(self, instant: str, task_input: TaskInput, spec: RowSpec) -> tuple[Iterable[TaskReport], Sequence[str]]:
        """Runs the Spark job. Returns the reports of its tasks, and the write stats that are in no report."""
