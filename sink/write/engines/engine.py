"""The engines of a table: run these write tasks under that instant, and report.

Guarantee of every engine: it writes all slices or raises. Readers do not see the files before the instant is completed.
A slice gives the same rows, record keys, bad records and digest in every attempt. Voided by a table other than the one
in the settings, and by `spark.speculation=true`, which the settings refuse. Raises BadRecord (more bad records than are
tolerated) and DataLoss, with coordinates, and ConfigError. After any other error another attempt may succeed.

In the Arrow engine Spark's Python workers read, decode and write the records as Arrow columns: ordinary Hudi base
files, without Hudi's Java writer. In the others Python decodes and counts records, and Hudi's Java writer writes rows.
An upsert differs in files: each attempt changes the file groups that it finds, so the same slices give the same rows,
not the same files. The coordinator gives an upsert to one worker, and runs one at a time. Of the changes of a key the
one with the greatest ordering value is kept, else that with the highest topic, partition and offset: the result does
not depend on the order in which Spark brings them. Two changes have one key if, and only if, Hudi's key generator gives
them one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import Lock
from time import monotonic

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import AccumulatorParam, accumulators
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from coordination.errors import BadRecord
from coordination.state.log_records import ReadRange
from coordination.state.model import QuarantinedRecords, SliceResult, WriteTask
from sink.clients.spark.pools import cancel_write, enter_write_pool
from sink.clients.spark.privacy import collect_binary
from sink.decode.registry.answers import RegistryUnavailable
from sink.hudi.begun import require_begun
from sink.hudi.client import HudiClient
from sink.hudi.options import (
    commit_options,
    require_usable,
)
from sink.hudi.specification import TableSpecification
from sink.layout.partition_paths import NULL_PARTITION
from sink.layout.record_keys import EMPTY
from sink.schema.table_schema import TableSchema
from sink.write.engines.kept_schemas import KeptSchemas
from sink.write.engines.quarantine import quarantine
from sink.write.engines.slice_task import REPORT, WriteJob, report_of, run
from sink.write.engines.task_errors import TaskFailed, failed_task, task_error
from sink.write.engines.task_input import Inputs, TaskInput, TaskReads, require_valid_consumer
from sink.write.engines.task_report import SliceCounter, TaskReport, complete
from sink.write.files.slice_files import FileLimits
from sink.write.rows.changes import LOG_POSITION
from sink.write.rows.filled_topics import FilledTopics, UnfilledWarnings
from sink.write.rows.record_columns import RowSpec, separate_bad
from sink.write.rows.row_spec import spec_of
from sink.write.rows.specification import RecordSpecification

_RECONCILED = "hoodie.global.index.reconcile.parallelism"

Reports = dict[int, TaskReport]
"""Reports by the position of the task in the job."""
_KEY = "_sink_key"
_PARTITION = "_sink_partition"
_RANK = "_sink_rank"
LATE_SECONDS = 120.0
"""How long after its transaction a task may still report."""
_released: deque[tuple[float, int]] = deque()
"""Accumulators of PySpark that a late task may still update: when each was let go, and its id. Under `_releasing`."""
_releasing = Lock()
_BUFFER_BYTES = 64 << 20
_SORT_BUFFER_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class WriteResult:
    """One result for each slice, also without records; one Hudi write stat for each file."""

    results: tuple[SliceResult, ...]
    stats: tuple[str, ...]
    size: int
    """Bytes of the values that were read."""
    errors: tuple[QuarantinedRecords, ...] = ()
    reads: tuple[ReadRange, ...] = ()
    """The ranges of the log that the tasks read, in their order; empty for records that were given to them."""
    schemas: tuple[tuple[str, str], ...] = ()
    """Id and fingerprint of each registered schema that decoded values, sorted."""


class Engine(ABC):
    """Writes for one table. A subclass says how the files are written. Thread-safe, because transactions in flight
    overlap.
    """

    def __init__(
        self, spark: SparkSession, table: TableSpecification, records: RecordSpecification, schema: TableSchema
    ) -> None:
        self._spark = spark
        self._table = table
        self._records = records
        self._schema = schema
        self._spec = spec_of(table, records, schema)
        self._inputs = Inputs(spark, records)
        self._kept = KeptSchemas(spark, table.base_path, self._spec.format, records.registry)
        self._warnings = UnfilledWarnings(schema.value_struct.names)

    def check(self) -> None:
        """Refuses, with ConfigError, settings that this engine cannot serve."""
        require_usable(self._table, self._schema)
        require_valid_consumer(self._records.consumer)
        self._spec.decoder()

    def write(
        self,
        instant: str,
        tasks: Sequence[WriteTask],
        columns: str = "",
        records: DataFrame | None = None,
        attempt: int = 1,
        cluster: str = "",
    ) -> WriteResult:
        """Writes the files of the tasks. `columns` is a `TableSchema.columns_json`; by default the engine's own schema.

        The Spark job runs in the job group of sink and instant. If `records` is given, the engine takes them instead of
        reading Kafka: the columns of `sink.write.reading.read_batches.ReadBatch` and topic, one Spark partition for
        each task, offsets rising in each Kafka partition. Each further `attempt` at a transaction uses less memory.
        Raises WrongLog, and writes nothing, if a topic's id is not that of its slices, or if `cluster` is not empty and
        the records come from another one.
        """
        enter_write_pool(self._spark, self._table.sink, instant, len(tasks))
        try:
            inputs = self._inputs
            task_input = (
                inputs.of_tasks(tasks, attempt, cluster)
                if records is None
                else inputs.of_frame(records, tasks, attempt)
            )
            unordered_reports, stats = self._run(instant, task_input, self.spec(columns))
        except (Py4JJavaError, PySparkException, TaskFailed) as error:
            self._inputs.memory.failed(error)
            if (known_error := task_error(error)) is None:
                raise
            raise known_error from error
        reports = complete(unordered_reports, tasks)
        self._inputs.memory.succeeded()
        self._warnings.warn(report.topics for report in reports)
        schemas = tuple(sorted({pair for report in reports for pair in report.schemas}))
        self._kept.keep(schemas)
        return WriteResult(
            tuple(result for report in reports for result in report.results),
            (*stats, *(stat for report in reports for stat in report.stats)),
            sum(report.size for report in reports),
            quarantine(self._inputs, self._table.base_path, self._records.tolerated, instant, reports),
            tuple(read for report in reports for read in report.reads),
            schemas,
        )

    def cancel(self, instant: str) -> None:
        """Cancels the job that writes under the instant, if there is one; its `write` then raises."""
        cancel_write(self._spark, self._table.sink, instant)

    def spec(self, columns: str) -> RowSpec:
        """Returns how records become rows with these columns, as in `write`."""
        return self._spec.of_schema(self._schema.with_columns(columns))

    @abstractmethod
    def _run(self, instant: str, task_input: TaskInput, spec: RowSpec) -> tuple[Iterable[TaskReport], Sequence[str]]:
        """Runs the Spark job. Returns the reports of its tasks, and the write stats that are in no report."""


class HudiEngine(Engine):
    def __init__(
        self, spark: SparkSession, table: TableSpecification, records: RecordSpecification, schema: TableSchema
    ) -> None:
        super().__init__(spark, table, records, schema)
        self._hudi = lru_cache(2)(partial(_hudi, spark, table))
        self._looks_for_instants = True

    def _run(self, instant: str, task_input: TaskInput, spec: RowSpec) -> tuple[Iterable[TaskReport], Sequence[str]]:
        # The Arrow engine's tasks look themselves, before a file counts.
        if self._looks_for_instants:
            self._looks_for_instants = require_begun(self._table.store, self._table.merges_on_read, instant)
        reported: Accumulator[Reports] = self._spark.sparkContext.accumulator({}, MergedReports())
        reads = task_input.reads
        decode_tasks = partial(decode, reads, spec, self._records.tolerated, reported)
        rows = task_input.frame.mapInArrow(decode_tasks, spec.columns)
        hudi = self._hudi(spec.schema.avro(self._table.name))
        try:
            stats = self._write(hudi, rows, instant, len(reads.tasks))
            return reported.value.values(), stats
        finally:
            release(reported)

    @abstractmethod
    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, tasks: int) -> list[str]:
        """Writes the rows with one of Hudi's writers. Returns its write stats, one for each file."""


def _hudi(spark: SparkSession, table: TableSpecification, avro: str) -> HudiClient:
    # For a global index Hudi's default is 60 tasks, however few cores there are.
    cores = {_RECONCILED: str(spark.sparkContext.defaultParallelism)}
    return HudiClient(spark, table.store, avro, {**cores, **commit_options(table)})


class MergedReports(AccumulatorParam[Reports]):
    """Merges reports. If Spark ran a task twice, both reports are equal and one is kept."""

    def zero(self, value: Reports) -> Reports:
        return {**value}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        return {**value1, **value2}


def release(accumulator: Accumulator[Reports]) -> None:
    """Lets go what an accumulator holds: PySpark keeps each, with its value, until the process ends. An update of one
    that it does not know ends the thread that takes all updates; so each stays for a while, empty, for tasks that are
    late.
    """
    accumulator.value = {}
    with _releasing:
        now = monotonic()
        _released.append((now, accumulator.aid))
        while now - _released[0][0] > LATE_SECONDS:
            accumulators._accumulatorRegistry.pop(_released.popleft()[1], None)


def decode(
    reads: TaskReads, spec: RowSpec, tolerated: int, reported: Accumulator[Reports], arrow: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decodes records to rows, for `mapInArrow`. With more bad records in a task than are tolerated it raises the first
    one's coordinates.
    """
    for _, rows in decode_tasks(reads, spec, tolerated, reported, arrow):
        yield rows


def decode_tasks(
    reads: TaskReads, spec: RowSpec, tolerated: int, reported: Accumulator[Reports], arrow: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields rows as `decode` does, with the position of their task."""
    schemas: dict[str, str] = {}
    decode_batch = spec.recording(schemas).decoder()
    for number in reads.task_numbers():
        counter, topics = SliceCounter(number, reads.tasks[number], tolerated), FilledTopics(spec)
        read_ranges: list[ReadRange] = []
        for batch in reads.source.batches(reads.tasks[number], arrow, read_ranges):
            try:
                _, rows, bad = separate_bad(batch.records, batch.topic, decode_batch)
                counter.count(batch, bad)
            except (BadRecord, RegistryUnavailable) as error:
                raise failed_task(error) from None
            if rows is not None:
                topics.add(batch.topic, rows)
                yield number, rows
        reported.add({number: counter.report(read_ranges, schemas=schemas, topics=topics.seen())})


def last_changes(changes: DataFrame, keys: Mapping[str, Column], ordering: Sequence[str], parts: int) -> DataFrame:
    """Returns the last change of each key, without the log position, in `parts` Spark partitions."""
    newest = [F.col(name).desc() for name in (*ordering, *LOG_POSITION.names)]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest))
    keyed = changes.withColumns(dict(keys)).repartition(parts, *keys)
    rows = keyed.withColumn(_RANK, rank).where(F.col(_RANK) == 1)
    return rows.select(*(name for name in changes.columns if name not in LOG_POSITION.names))


def change_keys(table: TableSpecification) -> Mapping[str, Column]:
    """Returns the columns by name; some are columns of the changes themselves."""
    key = _record_key(table.record_key)
    return key if table.key_is_global else {**key, **_partition(table.partition_columns)}


def _record_key(fields: Sequence[str]) -> dict[str, Column]:
    """Joins the fields as Hudi does, for which ("1,b:2", "3") and ("1", "2,b:3") are one key."""
    if len(fields) == 1:
        return {fields[0]: F.col(fields[0])}
    return {_KEY: F.concat_ws(",", *(F.concat(F.lit(f"{name}:"), _key_text(name, EMPTY)) for name in fields))}


def _partition(columns: Sequence[str]) -> dict[str, Column]:
    """Maps null and the empty string to one partition, as Hudi does."""
    return {f"{_PARTITION}_{name}": _key_text(name, NULL_PARTITION) for name in columns}


def _key_text(name: str, empty: str) -> Column:
    as_string = F.col(name).cast("string")
    return F.coalesce(F.nullif(as_string, F.lit("")), F.lit(empty))


class UpsertEngine(HudiEngine):
    """For write.operation=upsert and insert."""

    def spec(self, columns: str) -> RowSpec:
        """Keeps columns NOT NULL that the settings declare so: in an upsert table every column is nullable."""
        spec = super().spec(columns)
        strict = {field.name for field in self._schema.value_struct.fields if not field.nullable}
        fields = [
            T.StructField(field.name, field.dataType, field.nullable and field.name not in strict)
            for field in spec.schema.value_struct.fields
        ]
        return replace(spec, schema=replace(spec.schema, value_struct=T.StructType(fields)))

    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, tasks: int) -> list[str]:
        if self._table.upserts:
            parts = max(self._spark.sparkContext.defaultParallelism, tasks)
            rows = last_changes(rows, change_keys(self._table), self._table.ordering, parts)
        return hudi.write_records(rows._jdf, instant)


class RowEngine(HudiEngine):
    """For write.operation=append with write.engine=hudi."""

    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, _tasks: int) -> list[str]:
        return hudi.bulk_insert_rows(rows._jdf, instant)


class ArrowEngine(Engine):
    """For write.operation=append with write.engine=arrow."""

    def check(self) -> None:
        super().check()
        self._table.store.open()

    def _run(self, instant: str, task_input: TaskInput, spec: RowSpec) -> tuple[Iterable[TaskReport], Sequence[str]]:
        job = self._job(instant, task_input, spec)
        reports = collect_binary(task_input.frame.mapInArrow(partial(run, job), REPORT))
        return [report_of(report) for report in reports], ()

    def _job(self, instant: str, task_input: TaskInput, spec: RowSpec) -> WriteJob:
        table, partitioned = self._table, bool(self._table.partition_columns)
        buffer = _SORT_BUFFER_BYTES if partitioned else min(_BUFFER_BYTES, max(1 << 20, table.file_bytes))
        return WriteJob(
            base_path=table.base_path,
            namespace=table.namespace,
            table=table.name,
            instant=instant,
            reads=task_input.reads,
            spec=spec,
            meta_fields=table.has_meta_fields,
            codec=table.arrow_codec,
            limits=FileLimits(table.file_bytes, table.open_files, buffer),
            tolerated=self._records.tolerated,
            access=table.store.access,
        )


ENGINES: Mapping[str, Callable[[SparkSession, TableSpecification, RecordSpecification, TableSchema], Engine]] = {
    "arrow": ArrowEngine,
    "hudi": RowEngine,
    "upsert": UpsertEngine,
}


def engine_of(
    spark: SparkSession, table: TableSpecification, records: RecordSpecification, schema: TableSchema
) -> Engine:
    """Makes the engine for the table."""
    return ENGINES[table.engine if table.operation == "append" else "upsert"](spark, table, records, schema)
