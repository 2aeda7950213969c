"""The bad records in a task report: offsets and reasons only. Imports only what every executor has."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.errors import BadRecord
from coordination.state.model import Slice

REASON_CHARACTERS = 500
"""A reason may quote the record, and a task reports many reasons: each is cut to this length."""


@dataclass(frozen=True, slots=True)
class BadOffset:
    offset: int
    kind: str
    reason: str


def too_many(piece: Slice, first: BadOffset, tolerated: int) -> BadRecord:
    """Returns the error for more bad records than are tolerated, of which `first` is the first one."""
    prefix = f"the first of more than errors.max.per.transaction={tolerated:,} bad records: " if tolerated else ""
    return BadRecord(piece.topic, piece.partition, first.offset, f"{prefix}{first.reason}")
