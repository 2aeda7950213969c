"""Batches are bounded by bytes, as far as record sizes are known, and only a lack of memory makes them smaller."""

from __future__ import annotations

import pytest

from coordination.state.model import TopicPartition
from sink.write.batch_sizes import (
    BATCH_BYTES,
    BATCH_ROWS,
    BURST_BYTES,
    MAX_DIVISOR,
    RecordSizes,
    SliceSizes,
    from_memory,
)

ORDERS = [TopicPartition("orders", number) for number in range(6)]
SMALL, LARGE = 130, 10 << 20


def slice_sizes(source: TopicPartition, size: int, records: int = 1000, largest: int = 0) -> SliceSizes:
    return SliceSizes(source, records, size * records, largest or size)


def test_nothing_is_known_before_records_were_seen() -> None:
    sizes = RecordSizes()
    sizes.learn([SliceSizes(ORDERS[0], 0, 0, 0)])
    assert not sizes.knows(ORDERS[0])
    assert sizes.rows_per_batch(ORDERS) == BATCH_ROWS


@pytest.mark.parametrize("size", [1, 130, 10_000, 1 << 20, 10 << 20, 1 << 30])
def test_a_batch_of_mean_records_and_one_of_the_largest_stay_within_their_bounds(size: int) -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], size, largest=4 * size)])
    rows = sizes.rows_per_batch(ORDERS[:1])
    assert rows == 1 or rows * size <= BATCH_BYTES
    assert rows == 1 or rows * 4 * size <= BURST_BYTES
    assert 1 <= rows <= BATCH_ROWS


def test_small_records_are_not_held_back() -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], SMALL)])
    assert sizes.rows_per_batch(ORDERS[:1]) == BATCH_ROWS


@pytest.mark.parametrize("order", [1, -1])
def test_one_partition_of_large_records_bounds_the_batches_whichever_was_learned_last(order: int) -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], LARGE), *(slice_sizes(source, SMALL) for source in ORDERS[1:])][::order])
    assert sizes.rows_per_batch(ORDERS) * LARGE <= BATCH_BYTES
    assert sizes.rows_per_batch(ORDERS[1:]) == BATCH_ROWS


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_slices_of_a_partition_the_one_with_large_records_counts(order: int) -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], LARGE), *(slice_sizes(ORDERS[0], SMALL) for _ in range(9))][::order])
    assert sizes.rows_per_batch(ORDERS[:1]) * LARGE <= BATCH_BYTES


def test_large_records_are_forgotten_slowly() -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], LARGE)])
    batch_rows = []
    for _ in range(40):
        sizes.learn([slice_sizes(ORDERS[0], SMALL)])
        batch_rows.append(sizes.rows_per_batch(ORDERS[:1]))
    assert batch_rows == sorted(batch_rows)
    assert batch_rows[0] * LARGE <= 2 * BATCH_BYTES
    assert batch_rows[-1] == BATCH_ROWS


def test_larger_records_are_believed_at_once() -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], SMALL)])
    sizes.learn([slice_sizes(ORDERS[0], LARGE)])
    assert sizes.rows_per_batch(ORDERS[:1]) * LARGE <= BATCH_BYTES


def test_a_failure_shrinks_batches_and_success_lets_them_grow_again() -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], SMALL)])
    sizes.shrink()
    assert sizes.rows_per_batch(ORDERS) == BATCH_ROWS // 4
    for _ in range(2):
        sizes.learn([slice_sizes(source, SMALL) for source in ORDERS])
    assert sizes.rows_per_batch(ORDERS) == BATCH_ROWS


def test_a_write_of_many_slices_is_one_success() -> None:
    sizes = RecordSizes()
    for _ in range(3):
        sizes.shrink()
    sizes.learn([slice_sizes(source, SMALL) for source in ORDERS])
    assert sizes.rows_per_batch(ORDERS) == 2 * BATCH_ROWS // MAX_DIVISOR


def test_however_many_failures_leave_some_hundred_small_records_to_a_batch() -> None:
    sizes = RecordSizes()
    sizes.learn([slice_sizes(ORDERS[0], SMALL), slice_sizes(ORDERS[1], LARGE)])
    for _ in range(20):
        sizes.shrink()
    assert sizes.rows_per_batch(ORDERS[:1]) == 256
    assert sizes.rows_per_batch(ORDERS[:2]) == 1


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
        ("sink.write.base_file.Abandoned: instant 20240101000000000: rolled back", False),
        ("java.io.IOException: Connection reset by peer", False),
    ],
)
def test_only_what_memory_may_have_caused_counts_as_such(error_text: str, is_memory: bool) -> None:
    assert from_memory(RuntimeError(error_text)) is is_memory
