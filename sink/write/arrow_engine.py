"""The Arrow engine: Spark's Python workers read, decode and write the records as Arrow columns.

Guarantee: that of `sink.write.engine`. The files are ordinary Hudi base files, written without Hudi's Java writer.
Voided by `spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss, ConfigError.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coordination.state.model import WriteTask
from sink.clients.spark_pools import cancel_write, enter_write_pool
from sink.config import Settings
from sink.hudi.options import arrow_codec, partition_columns, populate_meta_fields
from sink.hudi.preflight import require_usable
from sink.schema import TableSchema
from sink.storage.files import open_storage
from sink.write.engine import WriteResult, merged_result, slices_in
from sink.write.inputs import frame_input, inputs_of
from sink.write.quarantine import quarantine, tolerated
from sink.write.row_spec import row_spec
from sink.write.slice_files import FileLimits
from sink.write.slice_task import REPORT, WriteJob, report_of, run
from sink.write.source import data_loss
from sink.write.task_errors import TaskFailed, task_error
from sink.write.task_input import TaskInput
from sink.write.task_report import TaskReport, complete

_BUFFER_BYTES = 64 << 20
_SORT_BUFFER_BYTES = 128 << 20


class ArrowEngine:
    """Writes for one table. Thread-safe, because transactions in flight overlap."""

    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._spec = row_spec(settings, schema)
        self._inputs = inputs_of(spark, settings)

    def check(self) -> None:
        """Refuses settings that this engine cannot serve."""
        require_usable(self._settings, self._schema, "arrow")
        self._inputs.check()
        self._spec.format.decoder(self._schema)
        open_storage(self._settings.base_path, self._settings.storage)

    def write(
        self,
        instant: str,
        tasks: Sequence[WriteTask],
        columns: str = "",
        records: DataFrame | None = None,
        attempt: int = 1,
    ) -> WriteResult:
        enter_write_pool(self._spark, self._settings.name, instant, len(tasks))
        try:
            reports = self._reports(instant, tasks, columns, records, attempt)
        except (Py4JJavaError, PySparkException, TaskFailed) as error:
            self._inputs.failed(slices_in(tasks), error)
            raise task_error(error) or data_loss(error, slices_in(tasks)) or error from error
        self._inputs.learn(reports)
        return merged_result(reports, quarantine(self._inputs, self._settings, instant, reports))

    def cancel(self, instant: str) -> None:
        cancel_write(self._spark, self._settings.name, instant)

    def _reports(
        self, instant: str, tasks: Sequence[WriteTask], columns: str, records: DataFrame | None, attempt: int
    ) -> tuple[TaskReport, ...]:
        """Returns one report for each task, in the order of the tasks."""
        task_input = self._inputs.of_tasks(tasks, attempt) if records is None else frame_input(records, len(tasks))
        job = self._job(instant, tasks, columns, task_input)
        rows = task_input.frame.mapInArrow(partial(run, job), REPORT).collect()
        return complete((report_of(bytes(row["report"])) for row in rows), tasks)

    def _job(self, instant: str, tasks: Sequence[WriteTask], columns: str, task_input: TaskInput) -> WriteJob:
        settings = self._settings
        partitioned = bool(partition_columns(settings))
        buffer = _SORT_BUFFER_BYTES if partitioned else min(_BUFFER_BYTES, max(1 << 20, settings.file_max_bytes))
        return WriteJob(
            base_path=settings.base_path,
            sink=settings.name,
            table=settings.table_name,
            instant=instant,
            tasks=tuple(tasks),
            source=task_input.source,
            side_by_side=task_input.side_by_side,
            spec=self._spec.with_columns(columns),
            meta_fields=populate_meta_fields(settings),
            codec=arrow_codec(settings),
            limits=FileLimits(settings.file_max_bytes, settings.open_files_max, buffer),
            tolerated=tolerated(settings),
            access=settings.storage,
        )
