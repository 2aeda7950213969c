"""Reads slices of the log again, and decodes them by the present settings.

Guarantee: exactly the committed records of the slices, from topics with their ids in the cluster that is named. Raises
what the reader raises: DataLoss, WrongLog, DamagedLog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from coordination.planning.relanding import CommittedSlice, Surveyed
from coordination.state.model import Slice, SliceResult, WriteTask
from sink.write.engines.engine import MergedReports, Reports, decode_tasks, release
from sink.write.engines.task_input import Inputs, TaskReads
from sink.write.rows.record_columns import RowSpec

NUMBER = "_sink_number"
"""The number of the transaction that committed a change."""
_TOLERATED = 1 << 31


class RepairSurvey:
    """The records of slices. `frame` has the columns of the spec, and `NUMBER`. After an action on it `found` says what
    the log has; `close` lets go of what it holds."""

    def __init__(
        self,
        spark: SparkSession,
        inputs: Inputs,
        spec: RowSpec,
        needed: Sequence[CommittedSlice],
        pieces: Sequence[Slice],
        cluster: str,
    ) -> None:
        self._parts = {entry.slice: _cut(entry.slice, pieces) for entry in needed}
        numbers = tuple(sorted({entry.number for entry in needed}))
        tasks = tuple(
            WriteTask(tuple(part for entry in needed if entry.number == number for part in self._parts[entry.slice]))
            for number in numbers
        )
        task_input = inputs.of_tasks(tasks, 1, cluster)
        self._reported: Accumulator[Reports] = spark.sparkContext.accumulator({}, MergedReports())
        columns = T.StructType([*spec.columns.fields, T.StructField(NUMBER, T.LongType())])
        decoding = partial(_numbered, task_input.reads, spec, numbers, self._reported)
        self.frame: DataFrame = task_input.frame.mapInArrow(decoding, columns)

    def found(self) -> dict[Slice, Surveyed]:
        results, bad = self._results(), self._bad()
        found: dict[Slice, Surveyed] = {}
        for slice_, parts in self._parts.items():
            of_parts = [results[part] for part in parts]
            result = SliceResult(
                slice_,
                sum(part.records for part in of_parts),
                sum(part.digest for part in of_parts) % (1 << 64),
                sum(part.errors for part in of_parts),
            )
            found[slice_] = Surveyed(result, {k: v for part in parts for k, v in bad.get(part, {}).items()})
        return found

    def landed(self, pieces: Sequence[Slice]) -> tuple[int, int]:
        """Returns the number of the records of the pieces, bad ones included, and their digest."""
        results = [
            result for part, result in self._results().items() if any(_is_within(part, piece) for piece in pieces)
        ]
        return sum(r.records + r.errors for r in results), sum(r.digest for r in results) % (1 << 64)

    def _results(self) -> dict[Slice, SliceResult]:
        return {result.slice: result for report in self._reported.value.values() for result in report.results}

    def _bad(self) -> dict[Slice, Mapping[int, str]]:
        return {
            slice_: {bad.offset: bad.reason for bad in offsets}
            for report in self._reported.value.values()
            for slice_, offsets in report.bad.items()
        }

    @property
    def schemas(self) -> tuple[tuple[str, str], ...]:
        """Id and fingerprint of each registered schema that decoded values."""
        return tuple(sorted({pair for report in self._reported.value.values() for pair in report.schemas}))

    def close(self) -> None:
        release(self._reported)


def _cut(slice_: Slice, pieces: Sequence[Slice]) -> tuple[Slice, ...]:
    """Cuts a slice where pieces begin and end."""
    ends = {
        at
        for piece in pieces
        if piece.source == slice_.source
        for at in (piece.start, piece.end)
        if slice_.start < at < slice_.end
    }
    bounds = [slice_.start, *sorted(ends), slice_.end]
    return tuple(replace(slice_, start=start, end=end, anchor=-1) for start, end in pairwise(bounds))


def _is_within(part: Slice, piece: Slice) -> bool:
    is_same = (part.source, part.topic_id, part.generation) == (piece.source, piece.topic_id, piece.generation)
    return is_same and piece.start <= part.start and part.end <= piece.end


def _numbered(
    reads: TaskReads,
    spec: RowSpec,
    numbers: Sequence[int],
    reported: Accumulator[Reports],
    arrow: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for task, rows in decode_tasks(reads, spec, _TOLERATED, reported, arrow):
        number = pa.repeat(pa.scalar(numbers[task], pa.int64()), rows.num_rows)
        yield pa.RecordBatch.from_arrays([*rows.columns, number], names=[*rows.schema.names, NUMBER])
