"""Records get to their slices, however a reader cuts them into pieces and batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.errors import SinkError
from coordination.state.model import Slice
from sink.write.reading import read_batches
from sink.write.reading.read_batches import BatchBuilder, BatchPart, ReadBatch, SliceIndex

Run = tuple[str, int, list[int]]
"""Topic, partition, and rising offsets of it."""


@st.composite
def tasks(draw: st.DrawFn) -> tuple[list[Slice], list[Run]]:
    """Draws the slices of a task, in any order, with or without holes between those of a partition, and its records."""
    slices: list[Slice] = []
    for topic in draw(st.sampled_from([["a"], ["a", "b"]])):
        for partition in range(draw(st.integers(1, 3))):
            start = draw(st.integers(0, 5))
            for _ in range(draw(st.integers(1, 4))):
                end = start + draw(st.integers(1, 9))
                slices.append(Slice(topic, partition, start, end, f"id-{topic}", 0))
                start = end + draw(st.sampled_from([0, 0, 3]))
    slices = draw(st.permutations(slices))
    runs = [
        (one_slice.topic, one_slice.partition, sorted(draw(st.sets(st.integers(one_slice.start, one_slice.end - 1)))))
        for one_slice in slices
    ]
    return slices, [run for run in runs if run[2]]


def piece_of(partition: int, offsets: Sequence[int]) -> pa.RecordBatch:
    values = [b"v" * (offset % 5) for offset in offsets]
    columns = {"value": pa.array(values, pa.binary()), "partition": pa.array([partition] * len(offsets), pa.int32())}
    return pa.RecordBatch.from_pydict({**columns, "offset": pa.array(offsets, pa.int64())})


def batches_of(
    slices: Sequence[Slice], runs: Sequence[Run], bytes_max: int, cuts: Sequence[int] = (1 << 20,)
) -> list[ReadBatch]:
    index, builder, batches = SliceIndex(slices), BatchBuilder(bytes_max), []
    turn = 0
    for topic, partition, offsets in runs:
        remaining = offsets
        while remaining:
            size = cuts[turn % len(cuts)]
            turn += 1
            chunk, remaining = remaining[:size], remaining[size:]
            parts = index.parts(topic, partition, np.array(chunk, np.int64))
            batches += builder.add(topic, piece_of(partition, chunk), parts)
    return [*batches, *builder.flush()]


def by_slice(batches: Sequence[ReadBatch]) -> dict[int, list[tuple[str, int, int]]]:
    """Returns topic, partition and offset of each row, by the slice that its part names."""
    rows_by_slice: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for batch in batches:
        partitions, offsets = (batch.records.column(name).to_pylist() for name in ("partition", "offset"))
        for part in batch.parts:
            rows = range(part.start, part.stop)
            rows_by_slice[part.slice] += [(batch.topic, partitions[row], offsets[row]) for row in rows]
    return dict(rows_by_slice)


@given(tasks(), st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from([1, 40, 200, 1 << 20]))
def test_the_same_records_get_to_the_same_slices_however_they_are_cut(
    task: tuple[list[Slice], list[Run]], cuts: list[int], bytes_max: int
) -> None:
    slices, runs = task
    expected = {
        slices.index(next(s for s in slices if (s.topic, s.partition) == run[:2] and s.start <= run[2][0] < s.end)): [
            (*run[:2], offset) for offset in run[2]
        ]
        for run in runs
    }
    assert by_slice(batches_of(slices, runs, bytes_max, cuts)) == expected


@given(tasks(), st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from([1, 40, 200, 1 << 20]))
def test_the_parts_of_a_batch_cover_it_and_follow_one_another(
    task: tuple[list[Slice], list[Run]], cuts: list[int], bytes_max: int
) -> None:
    for batch in batches_of(*task, bytes_max, cuts):
        bounds = [0, *(part.stop for part in batch.parts)]
        assert [part.start for part in batch.parts] == bounds[:-1]
        assert bounds[-1] == batch.records.num_rows
        assert all(first.slice != second.slice for first, second in zip(batch.parts, batch.parts[1:], strict=False))


@given(tasks(), st.lists(st.integers(1, 3), min_size=1, max_size=5))
def test_a_batch_is_bounded_by_bytes_unless_one_piece_is_larger(
    task: tuple[list[Slice], list[Run]], cuts: list[int]
) -> None:
    for batch in batches_of(*task, 120, cuts):
        assert batch.records.nbytes <= 120 or batch.records.num_rows <= max(cuts)


def test_a_batch_is_bounded_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_batches, "BATCH_ROWS", 10)
    slices = [Slice("t", 0, 0, 100, "id", 0)]
    batches = batches_of(slices, [("t", 0, list(range(100)))], 1 << 30, cuts=(3,))
    assert [batch.records.num_rows for batch in batches] == [9] * 10 + [10]


def test_a_batch_has_records_of_one_topic() -> None:
    slices = [Slice(topic, 0, 0, 10, topic, 0) for topic in ("a", "b")]
    batches = batches_of(slices, [("a", 0, [1, 2]), ("b", 0, [1, 2])], 1 << 30)
    assert [(batch.topic, batch.parts) for batch in batches] == [
        ("a", (BatchPart(0, 0, 2),)),
        ("b", (BatchPart(1, 0, 2),)),
    ]


@pytest.mark.parametrize("offset", [4, 10, 14, 25])
def test_a_record_of_no_slice_is_refused(offset: int) -> None:
    index = SliceIndex([Slice("t", 0, 5, 10, "id", 0), Slice("t", 0, 15, 25, "id", 0)])
    with pytest.raises(SinkError, match=r"t-0: the reader returned offsets outside its slices"):
        list(index.parts("t", 0, np.array([offset], np.int64)))


@pytest.mark.parametrize(("topic", "partition"), [("t", 1), ("u", 0)])
def test_a_record_of_another_partition_is_refused(topic: str, partition: int) -> None:
    index = SliceIndex([Slice("t", 0, 5, 10, "id", 0)])
    with pytest.raises(SinkError, match=f"{topic}-{partition}: the reader returned offsets"):
        list(index.parts(topic, partition, np.array([7], np.int64)))
