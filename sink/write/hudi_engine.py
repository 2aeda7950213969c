"""The base of the engines that write through Hudi: Python decodes and counts records, Hudi's Java writer writes rows.

Guarantee: that of `sink.write.engine`; every slice has the count and the digest that the Arrow engine gives it. A
subclass says what a record becomes, and which of Hudi's writers takes it. Voided by `spark.speculation=true`, which
the settings refuse. Raises BadRecord, DataLoss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import AccumulatorParam
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from coordination.errors import BadRecord
from coordination.state.model import WriteTask
from sink.clients.spark_pools import cancel_write, enter_write_pool
from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.options import commit_options
from sink.schema import TableSchema
from sink.write.engine import WriteResult, merged_result, slices_in
from sink.write.inputs import frame_input, inputs_of
from sink.write.quarantine import quarantine, tolerated
from sink.write.record_columns import RowDecoder, RowSpec, separate_bad
from sink.write.source import data_loss
from sink.write.task_errors import failed_task, task_error
from sink.write.task_input import BatchSource, task_numbers
from sink.write.task_report import SliceCounter, TaskReport, complete

_RECONCILED = "hoodie.global.index.reconcile.parallelism"

Decode = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""Turns a batch of records and the name of their topic into rows, one for each record. Raises BadRows."""


@dataclass(frozen=True)
class Decoding:
    """How records become rows. Spark ships it to the executors; `make_decoder` gives each task its own decoder."""

    make_decoder: Callable[[], Decode]
    columns: T.StructType
    """The columns of those rows."""


class HudiEngine(ABC):
    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._hudi = lru_cache(2)(partial(_hudi, spark, settings))
        self._inputs = inputs_of(spark, settings)

    def write(
        self,
        instant: str,
        tasks: Sequence[WriteTask],
        columns: str = "",
        records: DataFrame | None = None,
        attempt: int = 1,
    ) -> WriteResult:
        enter_write_pool(self._spark, self._settings.name, instant, len(tasks))
        reported: Accumulator[Reports] = self._spark.sparkContext.accumulator({}, MergedReports())
        schema = self._with_columns(columns)
        decoding = self._decoding(schema)
        try:
            task_input = self._inputs.of_tasks(tasks, attempt) if records is None else frame_input(records, len(tasks))
            job = DecodeJob(
                tuple(tasks),
                task_input.source,
                task_input.side_by_side,
                decoding.make_decoder,
                tolerated(self._settings),
            )
            rows = task_input.frame.mapInArrow(partial(decode, job, reported), decoding.columns)
            stats = self._write(self._hudi(schema.avro(self._settings.table_name)), rows, instant, len(tasks))
        except (Py4JJavaError, PySparkException) as error:
            self._inputs.failed(slices_in(tasks), error)
            raise task_error(error) or data_loss(error, slices_in(tasks)) or error from error
        reports = complete(reported.value.values(), tasks)
        self._inputs.learn(reports)
        return merged_result(reports, quarantine(self._inputs, self._settings, instant, reports), stats)

    def cancel(self, instant: str) -> None:
        cancel_write(self._spark, self._settings.name, instant)

    def decoding(self, columns: str) -> Decoding:
        """Returns the decoding that `write` uses for the same columns."""
        return self._decoding(self._with_columns(columns))

    def _with_columns(self, columns: str) -> TableSchema:
        return self._schema.with_columns(columns)

    @abstractmethod
    def _decoding(self, schema: TableSchema) -> Decoding: ...

    @abstractmethod
    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, tasks: int) -> list[str]:
        """Writes the rows with one of Hudi's writers. Returns its write stats, one for each file."""


def decoding_of_rows(spec: RowSpec) -> Decoding:
    """Returns the decoding of records that are rows of the table."""
    return Decoding(partial(_decoder_of_rows, spec), spec.schema.spark)


def _decoder_of_rows(spec: RowSpec) -> Decode:
    rows, schema = RowDecoder(spec), spec.schema.arrow

    def decode_rows(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """Casts the columns to the types that the JVM takes: no dictionaries."""
        decoded, _ = rows.decode(batch, topic)
        columns = [column.cast(field.type) for column, field in zip(decoded.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return decode_rows


def _hudi(spark: SparkSession, settings: Settings, avro: str) -> HudiClient:
    # For a global index Hudi's default is 60 tasks, however few cores there are.
    cores = {_RECONCILED: str(spark.sparkContext.defaultParallelism)}
    return HudiClient(spark, settings.base_path, avro, {**cores, **commit_options(settings)})


@dataclass(frozen=True)
class DecodeJob:
    """Everything that the tasks of a job need. Spark ships it to the executors, which import this package."""

    tasks: tuple[WriteTask, ...]
    source: BatchSource
    side_by_side: int
    make_decoder: Callable[[], Decode]
    tolerated: int
    """The number of bad records that a task tolerates."""


Reports = dict[int, TaskReport]
"""Reports by the position of the task in the job."""


class MergedReports(AccumulatorParam[Reports]):
    """Merges reports. If Spark ran a task twice, both reports are equal and one is kept."""

    def zero(self, value: Reports) -> Reports:
        return {**value}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        return {**value1, **value2}


def decode(job: DecodeJob, reported: Accumulator[Reports], arrow: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decodes records to rows, for `mapInArrow`. With too many bad records it raises the first one's coordinates."""
    decode_batch = job.make_decoder()
    for number in task_numbers(len(job.tasks), job.side_by_side):
        counter = SliceCounter(number, job.tasks[number], job.tolerated)
        for batch in job.source.batches(job.tasks[number], arrow):
            _, rows, bad = separate_bad(batch.records, batch.topic, decode_batch)
            try:
                counter.count(batch, bad)
            except BadRecord as error:
                raise failed_task(error) from None
            if rows is not None:
                yield rows
        reported.add({number: counter.report()})
