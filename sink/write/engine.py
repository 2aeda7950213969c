"""The interface of an engine: run these write tasks under that instant, and report.

Guarantee of every engine: all slices or an error; the files are invisible until the instant is completed; the
same slice gives the same rows, record keys, bad records and digest in every attempt. Voided by a table that is not the
one the settings name. Errors: BadRecord (one, or more than are tolerated) and DataLoss with coordinates; anything else
is worth another attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from coordination.state.model import QuarantinedRecords, Slice, SliceResult, WriteTask
from sink.write.task_report import TaskReport


@dataclass(frozen=True, slots=True)
class Written:
    """One result per slice, those without records included; one Hudi write stat per file."""

    results: tuple[SliceResult, ...]
    stats: tuple[str, ...]
    size: int
    """Bytes of the values that were read."""
    errors: tuple[QuarantinedRecords, ...] = ()


def written(
    reports: Sequence[TaskReport], errors: tuple[QuarantinedRecords, ...], stats: Iterable[str] = ()
) -> Written:
    """Together what the tasks report; `stats` where Hudi's own writer made them."""
    return Written(
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
    ) -> Written:
        """Writes the tasks' files, with the columns that `TableSchema.columns_json` names, by default those it was made
        with. The Spark job runs in the job group named by the instant. `records` are taken instead of Kafka's: the
        columns of `sink.write.read_batches.ReadBatch` and topic, and a Spark partition for each task, by rising offset
        in each Kafka partition. Each further `attempt` at a transaction holds less in memory.
        """
        ...

    def cancel(self, instant: str) -> None:
        """Ends the job that writes under the instant, if there is one; its `write` then raises."""
        ...
