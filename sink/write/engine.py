"""The interface of an engine: run these write tasks under that instant, and report.

Guarantee of every engine: it writes all slices or raises. Readers do not see the files before the instant is completed.
A slice gives the same rows, record keys, bad records and digest in every attempt. Voided by a table other than the one
in the settings. Raises BadRecord (more bad records than are tolerated) and DataLoss, with coordinates. After any other
error another attempt may succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from coordination.state.model import QuarantinedRecords, Slice, SliceResult, WriteTask
from sink.write.task_report import TaskReport


@dataclass(frozen=True, slots=True)
class WriteResult:
    """One result for each slice, also without records; one Hudi write stat for each file."""

    results: tuple[SliceResult, ...]
    stats: tuple[str, ...]
    size: int
    """Bytes of the values that were read."""
    errors: tuple[QuarantinedRecords, ...] = ()


def merged_result(
    reports: Sequence[TaskReport], errors: tuple[QuarantinedRecords, ...], stats: Iterable[str] = ()
) -> WriteResult:
    """Merges the reports of the tasks. `stats` are the write stats of Hudi's own writer, if it wrote the files."""
    return WriteResult(
        tuple(result for report in reports for result in report.results),
        tuple(stats) or tuple(stat for report in reports for stat in report.stats),
        sum(report.size for report in reports),
        errors,
    )


def slices_in(tasks: Iterable[WriteTask]) -> tuple[Slice, ...]:
    return tuple(piece for task in tasks for piece in task.slices)


class Engine(Protocol):
    def check(self) -> None:
        """Refuses, with ConfigError, settings that this engine cannot serve."""
        ...

    def write(
        self,
        instant: str,
        tasks: Sequence[WriteTask],
        columns: str = "",
        records: DataFrame | None = None,
        attempt: int = 1,
    ) -> WriteResult:
        """Writes the files of the tasks. `columns` is a `TableSchema.columns_json`; by default the engine's own schema.

        The Spark job runs in the job group of sink and instant. If `records` is given, the engine takes them instead of
        reading Kafka: the columns of `sink.write.read_batches.ReadBatch` and topic, one Spark partition for each task,
        offsets rising in each Kafka partition. Each further `attempt` at a transaction uses less memory.
        """
        ...

    def cancel(self, instant: str) -> None:
        """Cancels the job that writes under the instant, if there is one; its `write` then raises."""
        ...
