"""What the engines have in common that write through Hudi: slices decoded in Python, counted, and handed to the JVM.

Guarantee: that of `sink.write.engine`; every slice has the count and the digest that the Arrow engine gives it. An
engine adds what is made of a record, and which of Hudi's writers takes it. Voided by `spark.speculation=true`, which
the settings refuse. Raises BadRecord, DataLoss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from sink.table.gateway import Hudi
from sink.table.options import commit_options
from sink.write.bad_records import set_aside, tolerated
from sink.write.batch_sizes import BatchSizes
from sink.write.engine import Written
from sink.write.record_columns import Rows, RowShape, columns_needed, sift
from sink.write.row_counts import Counts, MergedCounts, SliceCounter, bad_of, held, named, written
from sink.write.source import read_slices

_RECONCILED = "hoodie.global.index.reconcile.parallelism"

Decode = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""Of a batch of records of one topic, and its name, a row for each; raises BadRows."""


@dataclass(frozen=True)
class Decoding:
    """What is made of records. `make` gives each task a decoder of its own; it travels to the executors."""

    make: Callable[[], Decode]
    needed: tuple[str, ...]
    """Of a record, besides its topic."""
    columns: T.StructType
    """What comes of it."""


class HudiEngine(ABC):
    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._hudi = lru_cache(2)(partial(_hudi, spark, settings))
        self._batches = BatchSizes(spark, settings)

    def write(
        self, instant: str, slices: Sequence[Slice], columns: str = "", records: DataFrame | None = None
    ) -> Written:
        context = self._spark.sparkContext
        context.setJobGroup(instant, f"{self._settings.name}: {len(slices)} slices under {instant}", True)
        counts = context.accumulator({}, MergedCounts())
        schema = self._with_columns(columns)
        decoding = self._decoding(schema)
        task = DecodeTask(tuple(slices), decoding.make, tolerated(self._settings))
        try:
            if records is None:
                records = read_slices(self._batches.session(slices), self._settings, slices)
            rows = records.select("topic", *decoding.needed).mapInArrow(partial(decode, task, counts), decoding.columns)
            stats = self._write(self._hudi(schema.avro(self._settings.table_name)), rows, instant, len(slices))
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

    def decoding(self, columns: str) -> Decoding:
        """As `write` with the same columns decodes."""
        return self._decoding(self._with_columns(columns))

    def _with_columns(self, columns: str) -> TableSchema:
        return self._schema.with_columns(columns)

    @abstractmethod
    def _decoding(self, schema: TableSchema) -> Decoding: ...

    @abstractmethod
    def _write(self, hudi: Hudi, rows: DataFrame, instant: str, slices: int) -> list[str]:
        """Hudi's write stats, one a file."""


def decoding_of_rows(shape: RowShape) -> Decoding:
    """Each record as the row that it is."""
    return Decoding(partial(_decoder_of_rows, shape), tuple(columns_needed(shape.schema)), shape.schema.spark)


def _decoder_of_rows(shape: RowShape) -> Decode:
    rows, schema = Rows(shape), shape.schema.arrow

    def of(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """As the JVM takes them: without dictionaries."""
        found, _ = rows.of(batch, topic)
        columns = [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return of


def _hudi(spark: SparkSession, settings: Settings, avro: str) -> Hudi:
    # Of a global index Hudi's own is 60, however few cores there are: as many tasks with next to nothing to do.
    cores = {_RECONCILED: str(spark.sparkContext.defaultParallelism)}
    return Hudi(spark, settings.base_path, avro, {**cores, **commit_options(settings)})


@dataclass(frozen=True)
class DecodeTask:
    """All that a task needs to know; it travels to the executors, which import this package."""

    slices: tuple[Slice, ...]
    make: Callable[[], Decode]
    tolerated: int
    """Most bad records of a slice."""


def decode(
    task: DecodeTask, counts: Accumulator[Counts], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows out; fails with the first bad record's coordinates when too many are bad."""
    of, counter = task.make(), SliceCounter(task.slices, task.tolerated)
    for batch in batches:
        if not batch.num_rows:
            continue
        good, rows, bad = sift(batch, batch.column("topic")[0].as_py(), of)
        counter.count(batch, good, bad)
        if rows is not None:
            yield rows
    counter.close(counts)
