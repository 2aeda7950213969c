"""The bad records in a task report: offsets and reasons only. Imports nothing that an executor need not have.

Raises nothing on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

REASON_CHARACTERS = 500
"""A reason may quote the record; so many of them come from every task."""


@dataclass(frozen=True, slots=True)
class BadOffset:
    offset: int
    kind: str
    reason: str

    @classmethod
    def of(cls, offset: int, kind: str, reason: str) -> BadOffset:
        """With a reason of bounded length."""
        return cls(offset, kind, reason[:REASON_CHARACTERS])


def too_many(reason: str, tolerated: int) -> str:
    """The reason given for the first bad record when a task exceeds the tolerated number."""
    if not tolerated:
        return reason
    return f"the first of more than errors.max.per.transaction={tolerated:,} bad records: {reason}"
