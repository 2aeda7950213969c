"""The Arrow engine: slices decoded and written as columns by Spark's Python workers, one task per slice.

Guarantee: that of `sink.write.engine`. The files are ordinary Hudi base files; Hudi's Java writer takes no
part. Voided by `spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss,
ConfigError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from coordination.errors import BadRecord, SinkError
from coordination.model import SetAside, Slice, SliceResult
from sink.config import Settings
from sink.schema import TableSchema
from sink.table.options import arrow_codec, partition_columns, populate_meta_fields
from sink.table.usable import require_usable
from sink.write.bad_offsets import BadOffset
from sink.write.bad_records import Found, set_aside, tolerated
from sink.write.batch_sizes import BatchSizes, Held
from sink.write.engine import DIGEST_MASK, Written
from sink.write.record_columns import columns_needed
from sink.write.shape import row_shape
from sink.write.slice_files import Limits
from sink.write.slice_task import NO_RECORDS, REPORT, WriteTask, run
from sink.write.source import data_loss, read_slices
from sink.write.storage import access_of, open_storage

_BUFFER_BYTES = 64 << 20
_SORT_BUFFER_BYTES = 128 << 20


class ArrowEngine:
    """Writes for one table. Safe to use from several threads, for transactions in flight overlap."""

    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._shape = row_shape(settings, schema)
        self._batches = BatchSizes(spark, settings)

    def check(self) -> None:
        """Refuses settings that this engine cannot serve."""
        require_usable(self._settings, self._schema, "arrow")
        self._shape.format.decoder(self._schema)
        open_storage(self._settings.base_path, access_of(self._settings.spark))

    def write(
        self, instant: str, slices: Sequence[Slice], columns: str = "", records: DataFrame | None = None
    ) -> Written:
        context = self._spark.sparkContext
        context.setJobGroup(instant, f"{self._settings.name}: {len(slices)} slices under {instant}", True)
        try:
            if records is None:
                records = read_slices(self._batches.session(slices), self._settings, slices)
            reports = self._run(records, self._task(instant, tuple(slices), columns))
        except (Py4JJavaError, PySparkException) as error:
            self._batches.failed(slices, error)
            lost = data_loss(error, slices)
            if lost is None:
                raise
            raise lost from error
        written = self._collect(reports, tuple(slices))
        found = {slices[each["slice"]]: [BadOffset(*bad) for bad in each["bad"]] for each in reports if each["bad"]}
        return replace(written, errors=self._keep(instant, slices, found)) if found else written

    def _keep(self, instant: str, slices: Sequence[Slice], found: Found) -> tuple[SetAside, ...]:
        return set_aside(self._batches.session(slices), self._settings, instant, found)

    def cancel(self, instant: str) -> None:
        self._spark.sparkContext.cancelJobGroup(instant)

    def _run(self, frame: DataFrame, task: WriteTask) -> list[Row]:
        columns = columns_needed(task.shape.schema)
        if len({each.topic for each in task.slices}) > 1:
            columns.append("topic")
        return frame.select(*columns).mapInArrow(partial(run, task), REPORT).collect()

    def _task(self, instant: str, slices: tuple[Slice, ...], columns: str) -> WriteTask:
        settings = self._settings
        partitioned = bool(partition_columns(settings))
        buffer = _SORT_BUFFER_BYTES if partitioned else min(_BUFFER_BYTES, max(1 << 20, settings.file_max_bytes))
        return WriteTask(
            base_path=settings.base_path,
            sink=settings.name,
            table=settings.table_name,
            instant=instant,
            slices=slices,
            shape=self._shape.with_columns(columns),
            meta_fields=populate_meta_fields(settings),
            codec=arrow_codec(settings),
            limits=Limits(settings.file_max_bytes, settings.open_files_max, buffer),
            tolerated=tolerated(settings),
            access=access_of(settings.spark),
        )

    def _collect(self, reports: Sequence[Row], slices: tuple[Slice, ...]) -> Written:
        bad = [report for report in reports if report["bad_offset"] is not None]
        if bad:
            raise min((_bad_record(slices[report["slice"]], report) for report in bad), key=_place)
        found = {report["slice"]: report for report in reports if report["slice"] != NO_RECORDS}
        silent = sum(report["slice"] == NO_RECORDS for report in reports)
        # A report for every slice: those that could not tell their slice are as many as the slices left over.
        if len(reports) != len(slices) or len(found) + silent != len(slices):
            raise SinkError(
                f"{len(slices)} slices were to be written, {len(reports)} tasks reported; none can be trusted"
            )
        self._batches.learn(
            Held(slices[index].source, report["records"] + len(report["bad"]), report["bytes"], report["largest"])
            for index, report in found.items()
        )
        results = []
        for index, each in enumerate(slices):
            mine = found.get(index)
            digest = mine["digest"] & DIGEST_MASK if mine else 0
            counts = (mine["records"], digest, len(mine["bad"])) if mine else (0, digest)
            results.append(SliceResult(each, *counts))
        stats = tuple(stat for report in reports for stat in report["stats"])
        return Written(tuple(results), stats, sum(report["bytes"] for report in reports))


def _bad_record(each: Slice, report: Row) -> BadRecord:
    return BadRecord(each.topic, each.partition, report["bad_offset"], report["reason"])


def _place(error: BadRecord) -> tuple[str, int, int]:
    return error.topic, error.partition, error.offset
