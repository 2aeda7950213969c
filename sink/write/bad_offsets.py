"""What a task reports of bad records: offsets and reasons, no more. Imports nothing that an executor need not have.

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
    """What is said of the first bad record when there is one more than may be."""
    if not tolerated:
        return reason
    return f"the first of more than errors.max.per.transaction={tolerated:,} bad records: {reason}"
