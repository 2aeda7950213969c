"""The base of the engines that write through Hudi: Python decodes and counts records, Hudi's Java writer writes rows.

Guarantee: that of `sink.write.engine`; every slice has the count and the digest that the Arrow engine gives it. A
subclass says which of Hudi's writers takes the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from coordination.errors import BadRecord
from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.options import commit_options
from sink.schema import TableSchema
from sink.write.engine import Engine
from sink.write.quarantine import tolerated
from sink.write.record_columns import RowSpec, separate_bad
from sink.write.task_errors import failed_task
from sink.write.task_input import TaskInput, TaskReads
from sink.write.task_report import SliceCounter, TaskReport

_RECONCILED = "hoodie.global.index.reconcile.parallelism"

Reports = dict[int, TaskReport]
"""Reports by the position of the task in the job."""


class HudiEngine(Engine):
    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        super().__init__(spark, settings, schema)
        self._hudi = lru_cache(2)(partial(_hudi, spark, settings))

    def _run(self, instant: str, task_input: TaskInput, spec: RowSpec) -> tuple[Iterable[TaskReport], Sequence[str]]:
        reported: Accumulator[Reports] = self._spark.sparkContext.accumulator({}, MergedReports())
        reads = task_input.reads
        decode_tasks = partial(decode, reads, spec, tolerated(self._settings), reported)
        rows = task_input.frame.mapInArrow(decode_tasks, spec.columns)
        stats = self._write(self._hudi(spec.schema.avro(self._settings.table_name)), rows, instant, len(reads.tasks))
        return reported.value.values(), stats

    @abstractmethod
    def _write(self, hudi: HudiClient, rows: DataFrame, instant: str, tasks: int) -> list[str]:
        """Writes the rows with one of Hudi's writers. Returns its write stats, one for each file."""


def _hudi(spark: SparkSession, settings: Settings, avro: str) -> HudiClient:
    # For a global index Hudi's default is 60 tasks, however few cores there are.
    cores = {_RECONCILED: str(spark.sparkContext.defaultParallelism)}
    return HudiClient(spark, settings.base_path, avro, {**cores, **commit_options(settings)})


class MergedReports(AccumulatorParam[Reports]):
    """Merges reports. If Spark ran a task twice, both reports are equal and one is kept."""

    def zero(self, value: Reports) -> Reports:
        return {**value}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        return {**value1, **value2}


def decode(
    reads: TaskReads, spec: RowSpec, tolerated: int, reported: Accumulator[Reports], arrow: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decodes records to rows, for `mapInArrow`. With more bad records in a task than are tolerated it raises the first
    one's coordinates.
    """
    decode_batch = spec.decoder()
    for number in reads.task_numbers():
        counter = SliceCounter(number, reads.tasks[number], tolerated)
        for batch in reads.source.batches(reads.tasks[number], arrow):
            _, rows, bad = separate_bad(batch.records, batch.topic, decode_batch)
            try:
                counter.count(batch, bad)
            except BadRecord as error:
                raise failed_task(error) from None
            if rows is not None:
                yield rows
        reported.add({number: counter.report()})
