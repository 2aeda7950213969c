"""Paces a coordinator: back-off by kind of request, workers that planning leaves out for a while, and the size of the
next batch after one was too large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coordination.planning.slicing import Limits
from coordination.state.incarnations import worker_of
from coordination.state.model import Plan, TopicPartition

FIRST_RETRY = 0.2
LAST_RETRY = 10.0
"""Seconds to wait after a first failure, and after many in a row."""
MAX_CONSECUTIVE_FAILURES = 8
"""Failures in a row of one kind of request, half a minute, after which a coordinator lets another worker try."""
STRIKES = 2
"""Failures in a row after which planning leaves a worker out."""
LEFT_OUT = 30.0
"""Seconds for which it does so; for each further failure, as many again."""


def retry_after(failures: int) -> float:
    """Seconds before the next try after `failures` in a row: doubling, bounded."""
    return min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), LAST_RETRY)


class Backoff:
    """Counts failures in a row by kind."""

    def __init__(self) -> None:
        self._failures: dict[type[object], int] = {}

    def failed(self, kind: type[object]) -> float:
        """Counts a failure. Returns the seconds to wait before trying again."""
        self._failures[kind] = self._failures.get(kind, 0) + 1
        return retry_after(self._failures[kind])

    def succeeded(self, kind: type[object]) -> None:
        self._failures.pop(kind, None)

    def exhausted(self) -> str | None:
        """Names a kind that has failed too often."""
        return next(
            (kind.__name__ for kind, failures in self._failures.items() if failures >= MAX_CONSECUTIVE_FAILURES), None
        )


class WorkerHealth:
    """A coordinator's memory of the workers: who wrote a partition last, and who keeps failing."""

    def __init__(self) -> None:
        self.writers: dict[TopicPartition, str] = {}
        """The worker that wrote each partition last."""
        self._strikes: dict[str, int] = {}
        self._left_out: dict[str, float] = {}

    def note_commit(self, plan: Plan) -> None:
        """A transaction of `plan` has committed: its writers are trusted again, and keep their partitions."""
        for incarnation, tasks in plan.tasks.items():
            worker = worker_of(incarnation)
            self._strikes.pop(worker, None)
            for task in tasks:
                for piece in task.slices:
                    self.writers[piece.source] = worker

    def blame(self, incarnations: Iterable[str], at: float) -> None:
        """A second failure in a row leaves a worker out for a while, a further one for longer."""
        for incarnation in incarnations:
            worker = worker_of(incarnation)
            strikes = self._strikes[worker] = self._strikes.get(worker, 0) + 1
            if strikes >= STRIKES:
                self._left_out[worker] = at + LEFT_OUT * (strikes - STRIKES + 1)

    def left_out(self, at: float) -> tuple[str, ...]:
        return tuple(sorted(worker for worker, until in self._left_out.items() if until > at))


class BatchSizeController:
    """Limits a new batch: to the settings' limits, and to less after a batch was too large and had to be divided.

    The limit falls to half of that batch and grows with each commit: by a sixteenth up to the size that was too large
    (each batch that is too large again costs three attempts), and twofold beyond it: then size was not the cause.

    A bound in bytes uses the bytes of an offset in the last transactions.
    """

    _CAREFUL = 16
    _ENOUGH = 10**12
    """A limit that no batch reaches limits nothing."""
    _FIRST_BYTES = 1024.0
    """Bytes of an offset, while nothing has been read in this term."""

    def __init__(self, flush_bytes: int | None = None) -> None:
        self._flush_bytes = flush_bytes
        self._per_offset = self._FIRST_BYTES
        self.bytes_per_offset: float | None = None
        """Bytes of an offset in the last transactions; None while nothing has been read in this term."""
        self._records: int | None = None
        self._too_large = 0

    def note_division(self, size: int) -> None:
        """A batch of so many offsets was too large, or seemed to be."""
        self._records, self._too_large = max(1, size // 2), size

    def note_commit(self, size: int, offsets: int) -> None:
        """A transaction over so many offsets has read so many bytes."""
        if offsets:
            # The mean with the earlier weight: a heavier stretch may follow a light one, or this one may be odd.
            weight = size / offsets
            self._per_offset = (self._per_offset + weight) / 2
            self.bytes_per_offset = weight if self.bytes_per_offset is None else (self.bytes_per_offset + weight) / 2
        if self._records is not None:
            careful = self._records < self._too_large
            grown = self._records + (max(1, self._records // self._CAREFUL) if careful else self._records)
            self._records = grown if grown < self._ENOUGH else None

    def limits(self, configured: Limits) -> Limits:
        bounds = [configured.transaction_records] if configured.transaction_records else []
        if self._records is not None:
            bounds.append(self._records)
        if self._flush_bytes is not None:
            bounds.append(max(1, int(min(self._flush_bytes / max(self._per_offset, 1.0), self._ENOUGH))))
        return replace(configured, transaction_records=min(bounds)) if bounds else configured
