"""How many bytes a write may hold, and how many of its tasks run side by side: less after each failure.

Guarantee: no attempt at a transaction may hold as much as the one before, down to 1 MiB for a queue, a window and a
batch each, and one record, however large. Every further attempt halves the bytes of queues and batches; a failure for
memory on this worker quarters them at once, halves the tasks that run side by side where these read Kafka themselves,
and is told in one line. Writes that succeed give it back, step by step. What a task keeps for its files stays as it is:
where files roll depends on it. Safe to use from several threads.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from sink.clients.java_errors import error_text

LOG = structlog.get_logger("sink.worker")
_MEMORY = re.compile(
    r"OutOfMemory|MemoryError|ArrowCapacityError|OversizedAllocation|Java heap space|GC overhead limit"
    r"|[Cc]annot allocate memory|Python worker exited|code:? 137|UNABLE_TO_ACQUIRE_MEMORY"
)
_CANCELLED = re.compile(r"Job \d+ cancelled|cancelled job group|No space left on device")
_LEAST = 1 << 20
_MOST = 32 << 20
_MOST_HALVINGS = 6


def from_memory(error: BaseException) -> bool:
    """Whether a job that failed so may have wanted for memory; not when it was cancelled, or the disk was full."""
    text_of_causes = error_text(error)
    is_memory = _MEMORY.search(text_of_causes) is not None and _CANCELLED.search(text_of_causes) is None
    return isinstance(error, MemoryError) or is_memory


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bytes that one task may hold, and tasks side by side."""

    queue_bytes: int = _MOST
    window_bytes: int = _MOST
    batch_bytes: int = _MOST
    tasks: int = 1


class MemoryBudget:
    def __init__(self, cores: Callable[[], int]) -> None:
        """`cores`: that Spark has at the moment; as many tasks run side by side when nothing has failed."""
        self._cores = cores
        self._failures = 0
        self._lock = threading.Lock()

    def limits(self, attempt: int = 1) -> MemoryLimits:
        """For the `attempt`-th attempt at a transaction, counted from 1."""
        with self._lock:
            size = max(_LEAST, _MOST >> min(attempt - 1 + 2 * self._failures, _MOST_HALVINGS))
            return MemoryLimits(size, size, size, max(1, self._cores() >> self._failures))

    @property
    def is_short(self) -> bool:
        """Whether writes failed for memory, and not as many have succeeded since."""
        return self._failures > 0

    def failed(self, error: BaseException) -> None:
        """After a failure of a write. Another cause than memory changes nothing."""
        if not from_memory(error):
            return
        with self._lock:
            self._failures += 1
        limits = self.limits()
        LOG.warning(
            "write.less_memory",
            reason="a write failed for memory; the next ones hold less",
            queue_mib=limits.queue_bytes >> 20,
            batch_mib=limits.batch_bytes >> 20,
            tasks_side_by_side=limits.tasks,
        )

    def succeeded(self) -> None:
        with self._lock:
            self._failures = max(0, self._failures - 1)
