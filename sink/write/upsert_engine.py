"""The engine of tables whose rows are changed: slices decoded in Python, then written by Hudi's index and merge.

Guarantee: that of `sink.write.engine`, but for the files: an attempt changes file groups as it finds them, so that the
same slices give the same rows in the table, in whatever files. One writer for a transaction, and one transaction at a
time, which the coordinator sees to. Neither begins, completes nor rolls back anything. Voided by
`spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss, ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from coordination.model import Slice
from sink.config import Settings
from sink.schema import TableSchema
from sink.table.changes import key_is_global, ordering_fields
from sink.table.options import partition_columns, record_key_fields
from sink.table.usable import require_usable
from sink.write.bad_records import set_aside, tolerated
from sink.write.batch_sizes import BatchSizes
from sink.write.changes import Changes, ChangeShape
from sink.write.engine import Written
from sink.write.last_changes import last_changes
from sink.write.record_columns import columns_needed, sift
from sink.write.row_counts import Counts, MergedCounts, SliceCounter, bad_of, held, named, written
from sink.write.row_engine import DecodeTask, decode, hudi_of
from sink.write.shape import change_shape, row_shape
from sink.write.source import read_slices


class UpsertEngine:
    """For write.operation=upsert and insert."""

    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._hudi = lru_cache(2)(partial(hudi_of, spark, settings))
        self._batches = BatchSizes(spark, settings)

    def check(self) -> None:
        """Refuses settings that this engine cannot serve."""
        require_usable(self._settings, self._schema)
        if self._settings.operation == "upsert":
            Changes(change_shape(self._settings, self._schema))
        else:
            row_shape(self._settings, self._schema).format.decoder(self._schema)

    def write(
        self, instant: str, slices: Sequence[Slice], columns: str = "", records: DataFrame | None = None
    ) -> Written:
        context = self._spark.sparkContext
        context.setJobGroup(instant, f"{self._settings.name}: {len(slices)} slices under {instant}", True)
        counts = context.accumulator({}, MergedCounts())
        schema = self._with_columns(columns)
        try:
            if records is None:
                records = read_slices(self._batches.session(slices), self._settings, slices)
            rows = self._rows(records, tuple(slices), schema, counts)
            stats = self._hudi(schema.avro(self._settings.table_name)).write_records(rows._jdf, instant)
        except (Py4JJavaError, PySparkException) as error:
            told = named(error, slices)
            if told is None:
                self._batches.failed(slices, error)
            raise told or error from error
        self._batches.learn(held(slices, counts.value))
        errors = set_aside(self._batches.session(slices), self._settings, instant, bad_of(slices, counts.value))
        return written(slices, counts.value, stats, errors)

    def cancel(self, instant: str) -> None:
        self._spark.sparkContext.cancelJobGroup(instant)

    def _with_columns(self, columns: str) -> TableSchema:
        """In an upsert table every column may be null: that one may not is known from the settings alone."""
        schema = self._schema.with_columns(columns)
        strict = {field.name for field in self._schema.values.fields if not field.nullable}
        fields = (T.StructField(f.name, f.dataType, f.nullable and f.name not in strict) for f in schema.values.fields)
        return replace(schema, values=T.StructType(list(fields)))

    def _rows(
        self, records: DataFrame, slices: tuple[Slice, ...], schema: TableSchema, counts: Accumulator[Counts]
    ) -> DataFrame:
        settings = self._settings
        needed = columns_needed(schema)
        if settings.operation == "insert":
            task = DecodeTask(slices, row_shape(settings, schema), tolerated(settings))
            return records.select("topic", *needed).mapInArrow(partial(decode, task, counts), schema.spark)
        shape = change_shape(settings, schema)
        if "key" not in needed:
            needed.append("key")
        changes = ChangeTask(slices, shape, tolerated(settings))
        found = records.select("topic", *needed).mapInArrow(partial(decode_changes, changes, counts), shape.columns)
        key = record_key_fields(settings)
        if not key_is_global(settings):
            key = tuple(dict.fromkeys([*key, *partition_columns(settings)]))
        parts = max(self._spark.sparkContext.defaultParallelism, len(slices))
        return last_changes(found, key, ordering_fields(settings), parts)


@dataclass(frozen=True)
class ChangeTask:
    """All that a task needs to know; it travels to the executors, which import this package."""

    slices: tuple[Slice, ...]
    shape: ChangeShape
    tolerated: int
    """Most bad records of a slice."""


def decode_changes(
    task: ChangeTask, counts: Accumulator[Counts], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: changes out; fails with the first bad record's coordinates when too many are bad."""
    changes = Changes(task.shape)
    counter = SliceCounter(task.slices, task.tolerated)
    for batch in batches:
        if not batch.num_rows:
            continue
        good, rows, bad = sift(batch, partial(changes.of, topic=batch.column("topic")[0].as_py()))
        counter.count(batch, good, bad)
        if rows is not None:
            yield rows
    counter.close(counts)
