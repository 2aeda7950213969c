"""The row engine: slices decoded in Python, then written by Hudi's own bulk-insert row writer.

Guarantee: that of `sink.write.engine`; rows, keys, counts and digests are those of the Arrow engine. File ids are
Hudi's own, fresh in every attempt, so that two attempts never share a file group. Reaches every file system
that Hudi does. Voided by `spark.speculation=true`, which the settings refuse. Raises BadRecord, DataLoss,
ConfigError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import AccumulatorParam
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coordination.errors import BadRecord, SinkError
from coordination.model import Slice, SliceResult
from sink.config import Settings
from sink.java_errors import everything
from sink.schema import TableSchema
from sink.table.gateway import Hudi
from sink.table.options import commit_options
from sink.table.usable import require_usable
from sink.write.bad_offsets import BadOffset, bad_offsets, too_many
from sink.write.bad_records import set_aside, tolerated
from sink.write.batch_sizes import BatchSizes, Held
from sink.write.engine import DIGEST_MASK, Written
from sink.write.record_columns import Rows, RowShape, columns_needed
from sink.write.shape import row_shape
from sink.write.source import data_loss, read_slices

_BAD = "sink-bad-record:"


class Count(NamedTuple):
    """What a slice held: good records, the digest of all, bytes of their values, bytes of the largest, bad ones."""

    records: int
    digest: int
    size: int
    largest: int
    bad: tuple[BadOffset, ...] = ()


Counts = dict[int, Count]
"""By position of the slice."""


class RowEngine:
    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._shape = row_shape(settings, schema)
        self._hudi = lru_cache(2)(partial(_hudi, spark, settings))
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
        counts = context.accumulator({}, _MergedCounts())
        task = DecodeTask(tuple(slices), self._shape.with_columns(columns), tolerated(self._settings))
        schema = task.shape.schema
        try:
            if records is None:
                records = read_slices(self._batches.session(slices), self._settings, slices)
            frame = records.select("topic", *columns_needed(schema))
            rows = frame.mapInArrow(partial(decode, task, counts), schema.spark)
            stats = self._hudi(schema.avro(self._settings.table_name)).bulk_insert_rows(rows._jdf, instant)
        except (Py4JJavaError, PySparkException) as error:
            named = _named(error, slices)
            if named is None:
                self._batches.failed(slices, error)
            raise named or error from error
        self._batches.learn(
            Held(slices[index].source, count.records + len(count.bad), count.size, count.largest)
            for index, count in counts.value.items()
        )
        size = sum(count.size for count in counts.value.values())
        found = {slices[index]: count.bad for index, count in counts.value.items() if count.bad}
        errors = set_aside(self._batches.session(slices), self._settings, instant, found) if found else ()
        return Written(_results(slices, counts.value), tuple(stats), size, errors)

    def cancel(self, instant: str) -> None:
        self._spark.sparkContext.cancelJobGroup(instant)

def _hudi(spark: SparkSession, settings: Settings, avro: str) -> Hudi:
    return Hudi(spark, settings.base_path, avro, commit_options(settings))


@dataclass(frozen=True)
class DecodeTask:
    """All that a task needs to know; it travels to the executors, which import this package."""

    slices: tuple[Slice, ...]
    shape: RowShape
    tolerated: int
    """Most bad records of a slice."""


class _MergedCounts(AccumulatorParam[Counts]):
    """A task that ran twice says the same of its slice twice."""

    def zero(self, value: Counts) -> Counts:
        return {**value}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        return {**value1, **value2}


def decode(
    task: DecodeTask, counts: Accumulator[Counts], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of the table out; fails with the first bad record's coordinates when too many are bad."""
    rows = Rows(task.shape)
    index, records, digest, size, largest = -1, 0, 0, 0, 0
    bad: list[BadOffset] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if index < 0:
            index = _slice_of(task.slices, batch)
        sifted = rows.sift(batch, task.slices[index].topic)
        bad += bad_offsets(batch, sifted.bad)
        if len(bad) > task.tolerated:
            _fail(task.slices[index], bad[0], task.tolerated)
        if sifted.rows is not None:
            yield _plain(sifted.rows, task.shape.schema)
        records += sifted.records.num_rows
        digest += int(batch.column("digest").to_numpy().view(np.uint64).sum(dtype=np.uint64))
        sizes = pc.binary_length(batch.column("value"))
        size += pc.sum(sizes).as_py() or 0
        largest = max(largest, pc.max(sizes).as_py() or 0)
    if index >= 0:
        counts.add({index: Count(records, digest & DIGEST_MASK, size, largest, tuple(bad))})


def _plain(rows: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """As the JVM takes them: without dictionaries."""
    columns = [column.cast(field.type) for column, field in zip(rows.columns, schema.arrow, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _fail(each: Slice, first: BadOffset, tolerated: int) -> NoReturn:
    said = [each.topic, each.partition, first.offset, too_many(first.reason, tolerated)]
    raise ValueError(f"{_BAD}{json.dumps(said)}")


def _slice_of(slices: Sequence[Slice], batch: pa.RecordBatch) -> int:
    topic, partition, offset = (batch.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
    for index, each in enumerate(slices):
        if (each.topic, each.partition) == (topic, partition) and each.start <= offset < each.end:
            return index
    raise SinkError(
        f"{topic}-{partition} offset {offset} was read, but is in none of the slices that were asked for"
    )


def _results(slices: Sequence[Slice], counts: Mapping[int, Count]) -> tuple[SliceResult, ...]:
    found = (counts.get(index, Count(0, 0, 0, 0)) for index in range(len(slices)))
    return tuple(
        SliceResult(each, count.records, count.digest, len(count.bad))
        for each, count in zip(slices, found, strict=True)
    )


def _named(error: Exception, slices: Sequence[Slice]) -> SinkError | None:
    """The error as what it says of a record or a log; None for any other."""
    text = everything(error)
    _, found, rest = text.partition(_BAD)
    if not found:
        return data_loss(error, slices)
    topic, partition, offset, reason = json.JSONDecoder().raw_decode(rest)[0]
    return BadRecord(topic, partition, offset, reason)
