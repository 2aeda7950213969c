"""Limits the memory of a write, and how many of its tasks run side by side: less after each failure.

Guarantee: each attempt at a transaction uses less memory than the one before, down to 1 MiB each for queue, window and
batch, and one record, however large. Every further attempt halves the bytes of queue, window and batch. An
out-of-memory failure on this worker quarters them, halves the tasks that run side by side, and logs one warning. Each
write that succeeds undoes one such failure. The buffer for files keeps its size, because it decides where files roll.
Thread-safe.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import structlog

from sink.clients.java.errors import error_text

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
    """Returns whether the job may have failed for lack of memory. A cancelled job and a full disk do not count."""
    text_of_causes = error_text(error)
    is_memory = _MEMORY.search(text_of_causes) is not None and _CANCELLED.search(text_of_causes) is None
    return isinstance(error, MemoryError) or is_memory


class MemoryBudget:
    def __init__(self, cores: Callable[[], int]) -> None:
        """`cores` returns the cores that Spark has now: so many tasks run side by side without failures."""
        self._cores = cores
        self._failures = 0
        self._lock = threading.Lock()

    def task_bytes(self, attempt: int = 1) -> int:
        """Returns the bytes that a task may use for its queue, for its window, and for a batch, in the `attempt`-th
        attempt at a transaction, counted from 1.
        """
        return max(_LEAST, _MOST >> min(attempt - 1 + 2 * self._failures, _MOST_HALVINGS))

    @property
    def tasks(self) -> int:
        """How many tasks may run side by side."""
        return max(1, self._cores() >> self._failures)

    @property
    def is_short(self) -> bool:
        """Whether more writes ran out of memory than have succeeded since."""
        return self._failures > 0

    def failed(self, error: BaseException) -> None:
        """Lowers the limits if the write failed for lack of memory."""
        if not from_memory(error):
            return
        with self._lock:
            self._failures += 1
        size_mib = self.task_bytes() >> 20
        LOG.warning(
            "write.less_memory",
            reason="a write ran out of memory. The next ones use less.",
            queue_mib=size_mib,
            batch_mib=size_mib,
            tasks_side_by_side=self.tasks,
        )

    def succeeded(self) -> None:
        with self._lock:
            self._failures = max(0, self._failures - 1)
