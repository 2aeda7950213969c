"""The row engine: slices decoded in Python, then written by Hudi's own bulk-insert row writer.

Guarantee: that of `sink.write.engine`; rows, keys, counts and digests are those of the Arrow engine. File ids are
Hudi's own, fresh in every attempt, so that two attempts never share a file group. Reaches every file system
that Hudi does. Voided by `spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss,
ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coordination.model import Slice
from sink.config import Settings
from sink.schema import TableSchema
from sink.table.gateway import Hudi
from sink.table.options import commit_options
from sink.table.usable import require_usable
from sink.write.bad_records import set_aside, tolerated
from sink.write.batch_sizes import BatchSizes
from sink.write.engine import Written
from sink.write.record_columns import Rows, RowShape, columns_needed
from sink.write.row_counts import Counts, MergedCounts, SliceCounter, bad_of, held, named, written
from sink.write.shape import row_shape
from sink.write.source import read_slices


class RowEngine:
    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._shape = row_shape(settings, schema)
        self._hudi = lru_cache(2)(partial(hudi_of, spark, settings))
        self._batches = BatchSizes(spark, settings)

    def check(self) -> None:
        """Refuses settings that this engine cannot serve."""
        require_usable(self._settings, self._schema, "hudi")
        self._shape.format.decoder(self._schema)

    def write(
        self, instant: str, slices: Sequence[Slice], columns: str = "", records: DataFrame | None = None
    ) -> Written:
        context = self._spark.sparkContext
        context.setJobGroup(instant, f"{self._settings.name}: {len(slices)} slices under {instant}", True)
        counts = context.accumulator({}, MergedCounts())
        task = DecodeTask(tuple(slices), self._shape.with_columns(columns), tolerated(self._settings))
        schema = task.shape.schema
        try:
            if records is None:
                records = read_slices(self._batches.session(slices), self._settings, slices)
            frame = records.select("topic", *columns_needed(schema))
            rows = frame.mapInArrow(partial(decode, task, counts), schema.spark)
            stats = self._hudi(schema.avro(self._settings.table_name)).bulk_insert_rows(rows._jdf, instant)
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


def hudi_of(spark: SparkSession, settings: Settings, avro: str) -> Hudi:
    return Hudi(spark, settings.base_path, avro, commit_options(settings))


@dataclass(frozen=True)
class DecodeTask:
    """All that a task needs to know; it travels to the executors, which import this package."""

    slices: tuple[Slice, ...]
    shape: RowShape
    tolerated: int
    """Most bad records of a slice."""


def decode(
    task: DecodeTask, counts: Accumulator[Counts], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of the table out; fails with the first bad record's coordinates when too many are bad."""
    rows = Rows(task.shape)
    counter = SliceCounter(task.slices, task.tolerated)
    for batch in batches:
        if not batch.num_rows:
            continue
        sifted = rows.sift(batch, batch.column("topic")[0].as_py())
        counter.count(batch, sifted.records, sifted.bad)
        if sifted.rows is not None:
            yield _plain(sifted.rows, task.shape.schema)
    counter.close(counts)


def _plain(rows: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """As the JVM takes them: without dictionaries."""
    columns = [column.cast(field.type) for column, field in zip(rows.columns, schema.arrow, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
