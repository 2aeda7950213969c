"""Limits how many bad records a transaction may have before it halts the sink: pure.

Guarantee: the answer for a transaction depends on its write statuses alone, so that every coordinator gives the same. A
wrong schema, by which every record is bad, halts the sink before it empties a topic into the errors table. Voided by
limits that are so high that they stop nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordination.state.failures import Failure, FailureKind
from coordination.state.model import WriteStatus

FEW = 100
"""Records below which a share says nothing: one bad record on a quiet topic is not half of it."""


@dataclass(frozen=True, slots=True)
class ErrorLimits:
    """Most bad records of a transaction, and their greatest share of its records."""

    count: int
    ratio: float

    def exceeded(self, statuses: Iterable[WriteStatus]) -> Failure | None:
        """Tells why these statuses, all of one transaction, have too many bad records; names the first one. None if
        they have not.
        """
        statuses = tuple(statuses)
        bad_records = sum(result.errors for status in statuses for result in status.results)
        if not bad_records:
            return None
        total = bad_records + sum(result.records for status in statuses for result in status.results)
        if bad_records > self.count:
            limit = f"errors.max.per.transaction={self.count:,}"
        elif total >= FEW and bad_records > self.ratio * total:
            limit = f"errors.max.ratio={self.ratio:g}"
        else:
            return None
        first_error = min((e.topic, e.partition, e.offset, e.reason) for status in statuses for e in status.errors)
        topic, partition, offset, first_reason = first_error
        summary = f"{bad_records:,} of {total:,} records are bad, more than {limit} allows"
        reason = f"{summary}. The first: {topic}-{partition} offset {offset}: {first_reason}"
        return Failure(FailureKind.TOO_MANY_BAD_RECORDS, reason, topic, partition, offset)


NO_ERRORS = ErrorLimits(0, 0.0)
"""With errors.tolerance=none the task fails first: no write status counts a bad record."""
