"""The bad records in a task report: offsets and reasons only. Imports only what every executor has."""

from __future__ import annotations

from dataclasses import dataclass

REASON_CHARACTERS = 500
"""A reason may quote the record, and a task reports many reasons: each is cut to this length."""


@dataclass(frozen=True, slots=True)
class BadOffset:
    offset: int
    kind: str
    reason: str

    @classmethod
    def of(cls, offset: int, kind: str, reason: str) -> BadOffset:
        """Cuts the reason to `REASON_CHARACTERS`."""
        return cls(offset, kind, reason[:REASON_CHARACTERS])


def too_many(reason: str, tolerated: int) -> str:
    """Returns the reason for the first bad record of a task that exceeds the tolerated number."""
    if not tolerated:
        return reason
    return f"the first of more than errors.max.per.transaction={tolerated:,} bad records: {reason}"
