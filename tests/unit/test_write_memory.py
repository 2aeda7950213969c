"""After a failure an attempt holds less; after failures for memory fewer tasks run side by side, for a while."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from sink.write.engines.memory import MemoryBudget, from_memory

MIB = 1 << 20
OUT_OF_HEAP = RuntimeError("java.lang.OutOfMemoryError: Java heap space")


def limits_in_mib(budget: MemoryBudget, attempt: int = 1) -> tuple[int, int]:
    """Returns the MiB of a queue, of a window and of a batch alike, and the tasks side by side."""
    return budget.task_bytes(attempt) // MIB, budget.tasks


def test_each_attempt_halves_what_a_task_holds_down_to_a_mebibyte() -> None:
    budget = MemoryBudget(lambda: 4)
    assert [limits_in_mib(budget, attempt) for attempt in (1, 2, 3, 6, 7, 40)] == [
        (32, 4),
        (16, 4),
        (8, 4),
        (1, 4),
        (1, 4),
        (1, 4),
    ]


def test_a_failure_for_memory_quarters_what_a_task_holds_and_halves_the_tasks_in_one_line() -> None:
    budget = MemoryBudget(lambda: 4)
    with capture_logs() as lines:
        budget.failed(OUT_OF_HEAP)
    assert limits_in_mib(budget) == (8, 2)
    assert [(line["event"], line["queue_mib"], line["batch_mib"], line["tasks_side_by_side"]) for line in lines] == [
        ("write.less_memory", 8, 8, 2)
    ]
    for _ in range(20):
        budget.failed(MemoryError())
    assert limits_in_mib(budget) == (1, 1)


def test_writes_that_succeed_give_it_back_step_by_step() -> None:
    budget = MemoryBudget(lambda: 4)
    budget.failed(OUT_OF_HEAP)
    budget.failed(OUT_OF_HEAP)
    limits = []
    for _ in range(4):
        limits.append(limits_in_mib(budget))
        budget.succeeded()
    assert limits == [(2, 1), (8, 2), (32, 4), (32, 4)]


def test_another_failure_than_for_memory_changes_nothing() -> None:
    budget = MemoryBudget(lambda: 4)
    before = limits_in_mib(budget)
    with capture_logs() as lines:
        for error_text in ("Connection refused", "No space left on device", "t-0 offset 3: no JSON"):
            budget.failed(RuntimeError(error_text))
    assert limits_in_mib(budget) == before
    assert not lines


@pytest.mark.parametrize(
    "error_text",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "java.lang.OutOfMemoryError: GC overhead limit exceeded",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate: MemoryError",
        "pyarrow.lib.ArrowMemoryError: malloc of size 8388608 failed: Cannot allocate memory",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure: Container exited with a non-zero exit code: 137",
        "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory",
    ],
)
def test_a_failure_for_memory_is_known_by_what_java_python_and_arrow_say(error_text: str) -> None:
    assert from_memory(RuntimeError(f"Job aborted due to stage failure: {error_text}\n\tat ..."))


@pytest.mark.parametrize(
    "error_text",
    [
        "Job 7 cancelled part of cancelled job group 20240101000000000: Python worker exited unexpectedly",
        "Python worker exited unexpectedly (crashed); java.io.IOException: No space left on device",
        "t-0 offset 3: no JSON",
    ],
)
def test_a_cancelled_job_and_a_full_disk_are_no_failures_for_memory(error_text: str) -> None:
    assert not from_memory(RuntimeError(error_text))


CANCELLED = "org.apache.spark.SparkException: Job 7 cancelled part of cancelled job group 20240101000000000"


@pytest.mark.parametrize(
    ("error_text", "is_memory"),
    [
        ("Lost task 0.0 in stage 3.0: java.lang.OutOfMemoryError: Java heap space", True),
        ("java.lang.OutOfMemoryError: GC overhead limit exceeded", True),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\nCaused by: EOFException", True),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed", True),
        ("  File 'records.py', line 3\nMemoryError", True),
        ("OSError: [Errno 12] Cannot allocate memory", True),
        ("ExecutorLostFailure: Command exited with code 137", True),
        (CANCELLED, False),
        (f"{CANCELLED}\nPython worker exited unexpectedly (crashed)", False),
        ("OSError: [Errno 28] No space left on device", False),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired", False),
        ("sink.write.files.base_file.Abandoned: instant 20240101000000000: rolled back", False),
        ("java.io.IOException: Connection reset by peer", False),
    ],
)
def test_only_what_memory_may_have_caused_counts_as_such(error_text: str, is_memory: bool) -> None:
    assert from_memory(RuntimeError(error_text)) is is_memory
