"""What a task reports of bad records: offsets and reasons, no more. Imports nothing that an executor need not have.

Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sink.write.record_columns import BadRow

REASON_CHARACTERS = 500
"""A reason may quote the record; so many of them come from every task."""


@dataclass(frozen=True, slots=True)
class BadOffset:
    offset: int
    kind: str
    reason: str


def bad_offsets(batch: pa.RecordBatch, bad: Sequence[BadRow]) -> list[BadOffset]:
    offsets = batch.column("offset")
    return [BadOffset(offsets[each.row].as_py(), each.kind, each.reason[:REASON_CHARACTERS]) for each in bad]


def too_many(reason: str, tolerated: int) -> str:
    """What is said of the first bad record when there is one more than may be."""
    if not tolerated:
        return reason
    return f"the first of more than errors.max.per.transaction={tolerated:,} bad records: {reason}"
