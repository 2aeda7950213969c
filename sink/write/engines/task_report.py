"""The report of a write task: counts and digests of its slices, and its bad records.

Guarantee: a report covers every slice of its task, also without records, and every record, good or bad. Both engines
count alike. Imports only what every executor has. Raises BadRecord.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from coordination.errors import BadRecord, SinkError
from coordination.state.log_records import ReadRange
from coordination.state.model import Slice, SliceResult, WriteTask
from sink.write.reading.read_batches import ReadBatch
from sink.write.rows.filled_topics import NONE_SEEN, TopicsSeen
from sink.write.rows.record_columns import BadRow

REASON_CHARACTERS = 500
"""A reason may quote the record, and a task reports many reasons: each is cut to this length."""

NO_SCHEMAS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class BadOffset:
    """A bad record in a task report."""

    offset: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of one task. `task` is its position in the job, `size` the bytes of all values that it read."""

    task: int
    results: tuple[SliceResult, ...]
    size: int
    bad: Mapping[Slice, tuple[BadOffset, ...]] = field(default_factory=dict)
    stats: tuple[str, ...] = ()
    """Hudi's write stats, one for each file, if the task writes files."""
    reads: tuple[ReadRange, ...] = ()
    """The ranges of the log that the task read, one for each of `WriteTask.ranges`."""
    schemas: frozenset[tuple[str, str]] = frozenset()
    """Id and fingerprint of each registered schema that decoded values."""
    topics: TopicsSeen = NONE_SEEN


class SliceCounter:
    """Counts the records of one task, which tolerates `tolerated` bad ones."""

    def __init__(self, number: int, task: WriteTask, tolerated: int) -> None:
        self._number = number
        self._slices = task.slices
        self._tolerated = tolerated
        self._records = np.zeros(len(task.slices), np.int64)
        self._digests = np.zeros(len(task.slices), np.uint64)
        self._bad: dict[int, list[BadOffset]] = {}
        self._bad_count = self._size = 0

    def count(self, batch: ReadBatch, bad: Sequence[BadRow]) -> None:
        """Counts a batch. Raises BadRecord, for the first one, if too many are bad."""
        digests = batch.records.column("digest").to_numpy().view(np.uint64)
        for part in batch.parts:
            self._records[part.slice] += part.stop - part.start
            # As a slice: numpy warns if a scalar overflows, and digests overflow by design.
            self._digests[part.slice : part.slice + 1] += digests[part.start : part.stop].sum(dtype=np.uint64)
        self._size += pc.sum(pc.binary_length(batch.records.column("value"))).as_py() or 0
        if bad:
            self._count_bad(batch, bad)

    def _count_bad(self, batch: ReadBatch, bad: Sequence[BadRow]) -> None:
        starts = [part.start for part in batch.parts]
        offsets = batch.records.column("offset")
        for bad_row in bad:
            position = batch.parts[bisect_right(starts, bad_row.row) - 1].slice
            reason = bad_row.reason[:REASON_CHARACTERS]
            bad_offset = BadOffset(offsets[bad_row.row].as_py(), bad_row.kind, reason)
            self._bad.setdefault(position, []).append(bad_offset)
            self._records[position] -= 1
        self._bad_count += len(bad)
        if self._bad_count > self._tolerated:
            position = min(self._bad)
            raise too_many(self._slices[position], self._bad[position][0], self._tolerated)

    def report(
        self,
        reads: Iterable[ReadRange],
        stats: Iterable[str] = (),
        schemas: Mapping[str, str] = NO_SCHEMAS,
        topics: TopicsSeen = NONE_SEEN,
    ) -> TaskReport:
        results = tuple(
            SliceResult(piece, int(records), int(digest), len(self._bad.get(position, ())))
            for position, (piece, records, digest) in enumerate(
                zip(self._slices, self._records, self._digests, strict=True)
            )
        )
        bad = {self._slices[position]: tuple(offsets) for position, offsets in self._bad.items()}
        pairs = frozenset(schemas.items())
        return TaskReport(self._number, results, self._size, bad, tuple(stats), tuple(reads), pairs, topics)


def too_many(piece: Slice, first: BadOffset, tolerated: int) -> BadRecord:
    """Returns the error for more bad records than are tolerated, of which `first` is the first one."""
    prefix = f"the first of more than errors.max.per.transaction={tolerated:,} bad records: " if tolerated else ""
    return BadRecord(piece.topic, piece.partition, first.offset, f"{prefix}{first.reason}")


def complete(reports: Iterable[TaskReport], tasks: Sequence[WriteTask]) -> tuple[TaskReport, ...]:
    """Returns the reports in the order of the tasks. Raises SinkError unless every task has exactly one."""
    ordered = tuple(sorted(reports, key=lambda report: report.task))
    if [report.task for report in ordered] != list(range(len(tasks))):
        numbers = [report.task for report in ordered]
        raise SinkError(f"of {len(tasks)} write tasks these reported: {numbers}. The sink uses none of their files.")
    return ordered
