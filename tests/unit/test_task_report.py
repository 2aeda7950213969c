"""A task's report counts each slice by itself, the empty and the bad ones too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from coordination.errors import BadRecord, SinkError
from coordination.state.model import Slice, WriteTask
from sink.write.engines.task_report import BadOffset, SliceCounter, TaskReport, complete
from sink.write.reading.read_batches import BatchPart, ReadBatch
from sink.write.rows.record_columns import BadRow

SLICES = tuple(Slice("t", partition, 0, 100, "id", 0) for partition in range(4))
TASK = WriteTask(SLICES)


def batch(rows: dict[int, list[int]], digest: int = 1, value: bytes | None = b"four") -> ReadBatch:
    """Returns records of this digest and value: `rows` has their offsets by the position of their slice."""
    parts, offsets = [], []
    for position, slice_offsets in rows.items():
        parts.append(BatchPart(position, len(offsets), len(offsets) + len(slice_offsets)))
        offsets += slice_offsets
    columns = {
        "value": pa.array([value] * len(offsets), pa.binary()),
        "offset": pa.array(offsets, pa.int64()),
        "digest": pa.array(np.full(len(offsets), digest, np.uint64).view(np.int64)),
    }
    return ReadBatch(pa.RecordBatch.from_pydict(columns), "t", tuple(parts))


def test_each_slice_has_its_own_count_and_digest_and_one_without_records_has_none() -> None:
    counter = SliceCounter(7, TASK, 0)
    counter.count(batch({0: [1, 2], 3: [5]}, digest=10), [])
    counter.count(batch({3: [6, 7]}, digest=100), [])
    report = counter.report((), ["stat"])
    assert (report.task, report.stats, report.bad) == (7, ("stat",), {})
    counts = [(result.slice, result.records, result.digest, result.errors) for result in report.results]
    assert counts == [(SLICES[0], 2, 20, 0), (SLICES[1], 0, 0, 0), (SLICES[2], 0, 0, 0), (SLICES[3], 3, 210, 0)]


@pytest.mark.filterwarnings("error")
def test_a_digest_is_a_sum_modulo_two_to_the_power_of_64_without_a_warning() -> None:
    counter = SliceCounter(0, TASK, 0)
    counter.count(batch({1: [1, 2]}, digest=2**64 - 1), [])
    counter.count(batch({1: [3]}, digest=5), [])
    assert counter.report(()).results[1].digest == 3


def test_bytes_are_those_of_the_values_tombstones_are_none() -> None:
    counter = SliceCounter(0, TASK, 0)
    counter.count(batch({0: [1, 2]}, value=b"x" * 9), [])
    counter.count(batch({0: [3]}, value=None), [])
    assert counter.report(()).size == 18


def test_bad_records_are_counted_at_their_slices_and_are_in_the_digest() -> None:
    counter = SliceCounter(0, TASK, 3)
    counter.count(batch({0: [10, 11], 1: [20, 21], 2: [30]}), [BadRow(1, "value", "a"), BadRow(2, "key", "b")])
    counter.count(batch({2: [31]}), [BadRow(0, "value", "c")])
    report = counter.report(())
    assert [(result.records, result.errors, result.digest) for result in report.results] == [
        (1, 1, 2),
        (1, 1, 2),
        (1, 1, 2),
        (0, 0, 0),
    ]
    assert report.bad == {
        SLICES[0]: (BadOffset(11, "value", "a"),),
        SLICES[1]: (BadOffset(20, "key", "b"),),
        SLICES[2]: (BadOffset(31, "value", "c"),),
    }


def test_one_bad_record_more_than_tolerated_ends_the_task_with_the_first_of_them() -> None:
    counter = SliceCounter(0, TASK, 1)
    counter.count(batch({2: [30, 31]}), [BadRow(1, "value", "first")])
    with pytest.raises(BadRecord, match=r"errors\.max\.per\.transaction=1 bad records: second") as bad:
        counter.count(batch({1: [20, 21]}), [BadRow(0, "value", "second")])
    assert (bad.value.partition, bad.value.offset) == (1, 20)


def test_reports_come_in_the_order_of_the_tasks() -> None:
    reports = [TaskReport(number, (), 0) for number in (2, 0, 1)]
    assert [report.task for report in complete(reports, [TASK] * 3)] == [0, 1, 2]


@pytest.mark.parametrize("numbers", [(0, 1), (0, 1, 1), (0, 1, 2, 2), (0, 1, 3), ()])
def test_a_task_without_a_report_or_with_two_leaves_none_to_be_trusted(numbers: tuple[int, ...]) -> None:
    with pytest.raises(SinkError, match="of 3 write tasks these reported"):
        complete([TaskReport(number, (), 0) for number in numbers], [TASK] * 3)
