"""Slices become write tasks by what is recorded of them alone, few and about equal, and smaller after a division."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.planning import batches, slicing, write_tasks
from coordination.planning.write_tasks import TaskSizes
from coordination.state.model import Member, OpenRange, PartitionState, TopicPartition, WorkerState, WriteTask

MIB = 1 << 20
SIZES = TaskSizes(target=512 * MIB, least=4 * MIB)
BATCH, REST = 7, 9

States = dict[TopicPartition, PartitionState]


def source(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def recorded(*sizes: int, step: int = 1000, target: int = 100, start: int = 0) -> States:
    """Returns the states of a batch over partitions with so many offsets each."""
    return {
        source(number): PartitionState("id", 0, start, 0, (OpenRange(start, start + size, BATCH, step, 0, target),))
        for number, size in enumerate(sizes)
    }


def slice_bounds(tasks: tuple[WriteTask, ...]) -> list[list[tuple[int, int, int]]]:
    return [[(one_slice.partition, one_slice.start, one_slice.end) for one_slice in task.slices] for task in tasks]


def largest(states: States, batch: int) -> int:
    return max(task.size for task in write_tasks.of_batch(states, batch))


FRESH = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.integers(0, 5_000), st.integers(1, 3_000), st.sampled_from((7, 500, 1_000_000))),
    min_size=1,
    max_size=30,
)


def ranges_of(fresh: dict[TopicPartition, tuple[int, int, int]]) -> dict[TopicPartition, OpenRange]:
    return {s: OpenRange(start, start + size, BATCH, step, 0, step) for s, (start, size, step) in fresh.items()}


def states_of(ranges: dict[TopicPartition, OpenRange]) -> States:
    return {s: PartitionState("id", 0, r.start, 0, (r,)) for s, r in ranges.items()}


def test_slices_are_packed_in_order_until_the_next_one_would_be_too_much() -> None:
    assert slice_bounds(write_tasks.of_batch(recorded(60, 40, 1, 99, 30), BATCH)) == [
        [(0, 0, 60), (1, 0, 40)],
        [(2, 0, 1), (3, 0, 99)],
        [(4, 0, 30)],
    ]


def test_a_slice_that_is_larger_than_the_target_is_a_task_of_its_own() -> None:
    assert slice_bounds(write_tasks.of_batch(recorded(10, 250, 10), BATCH)) == [
        [(0, 0, 10)],
        [(1, 0, 250)],
        [(2, 0, 10)],
    ]


def test_topics_and_partitions_come_in_order_and_a_partitions_slices_by_their_start() -> None:
    ranges = {source(10): (0, 20, 10), source(2): (0, 20, 10), source(0, "a"): (5, 10, 10)}
    states = states_of({s: replace(r, task_records=1_000) for s, r in ranges_of(ranges).items()})
    (task,) = write_tasks.of_batch(states, BATCH)
    assert [(p.topic, p.partition, p.start) for p in task.slices] == [
        ("a", 0, 5), ("a", 0, 10), ("orders", 2, 0), ("orders", 2, 10), ("orders", 10, 0), ("orders", 10, 10),
    ]  # fmt: skip


def test_ranges_with_different_targets_share_no_task() -> None:
    states = recorded(10, 10) | {source(5): PartitionState("id", 0, 0, 0, (OpenRange(0, 10, BATCH, 10, 0, 20),))}
    assert slice_bounds(write_tasks.of_batch(states, BATCH)) == [[(5, 0, 10)], [(0, 0, 10), (1, 0, 10)]]


@given(FRESH, st.integers(1, 20), st.randoms())
def test_grouping_depends_on_nothing_but_what_is_recorded_of_the_batch(fresh, tasks: int, random) -> None:  # type: ignore[no-untyped-def]
    states = states_of(write_tasks.with_task_limit(ranges_of(fresh), tasks))
    other_batches = {
        TopicPartition("z", n): PartitionState("id", 0, 0, 0, (OpenRange(0, 5, 3, 5, 0, 1),)) for n in range(3)
    }
    items = [*states.items(), *other_batches.items()]
    random.shuffle(items)
    assert write_tasks.of_batch(dict(items), BATCH) == write_tasks.of_batch(states, BATCH)


@given(FRESH, st.integers(1, 20))
def test_a_new_batch_has_at_most_so_many_tasks_and_each_slice_is_in_one(
    fresh: dict[TopicPartition, tuple[int, int, int]], tasks: int
) -> None:
    sized = write_tasks.with_task_limit(ranges_of(fresh), tasks)
    batch_tasks = write_tasks.of_batch(states_of(sized), BATCH)
    assert len(batch_tasks) <= tasks
    slices = Counter(one_slice for task in batch_tasks for one_slice in task.slices)
    assert slices == Counter(one_slice for s, r in sized.items() for one_slice in slicing.cut(s, "id", r))
    for s, r in sized.items():
        assert (r.start, r.end, r.batch) == (fresh[s][0], sum(fresh[s][:2]), BATCH)
        assert r.step <= fresh[s][2]


@given(FRESH, st.integers(2, 20))
def test_no_task_is_more_than_a_slice_larger_than_the_average(
    fresh: dict[TopicPartition, tuple[int, int, int]], tasks: int
) -> None:
    sized = write_tasks.with_task_limit(ranges_of(fresh), tasks)
    total = sum(size for _, size, _ in fresh.values())
    step = max(r.step for r in sized.values())
    assert max(task.size for task in write_tasks.of_batch(states_of(sized), BATCH)) <= total // tasks + step


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_the_target_is_the_least_that_makes_so_few_tasks(sizes: list[int], tasks: int) -> None:
    def task_count(target: int) -> int:
        return len(write_tasks.of_batch(recorded(*sizes, target=target), BATCH))

    target = write_tasks.least_target(sizes, tasks)
    assert task_count(target) <= tasks
    assert target == max(sizes) or task_count(target - 1) > tasks


def test_a_topic_of_one_partition_keeps_every_core_busy() -> None:
    sized = write_tasks.with_task_limit({source(0): OpenRange(333, 1_000_333, BATCH, 1_000_000, 0, 1_000_000)}, 8)
    sizes = [task.size for task in write_tasks.of_batch(states_of(sized), BATCH)]
    assert len(sizes) == 8
    assert max(sizes) <= 1.25 * 1_000_000 / 8


def test_a_batch_that_is_one_task_is_cut_as_the_settings_say() -> None:
    sized = write_tasks.with_task_limit({source(0): OpenRange(0, 900, BATCH, 400, 0, 400)}, 1)
    assert sized == {source(0): OpenRange(0, 900, BATCH, 400, 0, 900)}


@pytest.mark.parametrize(
    ("offsets", "weight", "cores", "tasks"),
    [
        (1_000, 100.0, 8, 1),  # a trickle: one file
        (100_000, 100.0, 8, 3),  # 10 MB: no task below 4 MiB
        (10_000_000, 100.0, 8, 8),  # 1 GB: a task for each core
        (100_000_000, 100.0, 4, 16),  # 10 GB: 18 target sizes, in whole rounds of 4 cores
        (1_000_000_000, 100.0, 1, 186),
        (1_000_000_000, None, 4, 4),  # nothing was measured yet
        (1_000, None, 4, 1),
        (1_000, 0.0, 4, 1),
        (1, 5.0 * MIB, 4, 2),
    ],
)
def test_how_many_tasks_follows_bytes_and_cores(offsets: int, weight: float | None, cores: int, tasks: int) -> None:
    assert write_tasks.max_task_count(offsets, weight, cores, SIZES) == tasks


@given(st.integers(1, 10**12), st.none() | st.floats(0, 1e7), st.integers(1, 500))
def test_there_are_never_more_tasks_than_cores_or_target_sizes(offsets: int, weight: float | None, cores: int) -> None:
    tasks = write_tasks.max_task_count(offsets, weight, cores, SIZES)
    assert 1 <= tasks <= max(cores, (weight or 0) * offsets / SIZES.target)


def test_cores_are_those_of_active_members_or_of_the_largest_where_one_writes_alone() -> None:
    fleet = [
        Member("a:1", "host", 1, "1", cores=4),
        Member("b:1", "host", 1, "1", cores=2),
        Member("c:1", "host", 1, "1", WorkerState.DRAINING, cores=16),
    ]
    assert write_tasks.cores(fleet, single_writer=False) == 6
    assert write_tasks.cores(fleet, single_writer=True) == 4
    assert write_tasks.cores([], single_writer=False) == 1


def test_a_size_below_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TaskSizes(target=0)


@given(FRESH, st.integers(1, 12))
def test_no_task_of_a_divided_batch_is_more_than_half_of_the_largest_before(
    fresh: dict[TopicPartition, tuple[int, int, int]], tasks: int
) -> None:
    states = states_of(write_tasks.with_task_limit(ranges_of(fresh), tasks))
    before = largest(states, BATCH)
    offsets = sum(size for _, size, _ in fresh.values())
    changed = batches.divided(states, BATCH, REST)
    assert bool(changed) == (offsets > 1)
    if not changed:
        return
    after = {**states, **changed}
    parts = [task for batch in (BATCH, REST) for task in write_tasks.of_batch(after, batch)]
    assert sum(task.size for task in parts) == offsets
    assert all(task.size <= max(1, before // 2) for task in parts)
    for s, state in after.items():
        assert (state.open[0].start, state.open[-1].end) == (states[s].open[0].start, states[s].open[0].end)


@given(FRESH, st.integers(1, 12))
def test_divided_again_and_again_a_batch_ends_in_lone_records(
    fresh: dict[TopicPartition, tuple[int, int, int]], tasks: int
) -> None:
    states = states_of(write_tasks.with_task_limit(ranges_of(fresh), tasks))
    sizes = [largest(states, BATCH)]
    while changed := batches.divided(states, BATCH, REST):
        states = {
            s: replace(state, open=tuple(r for r in state.open if r.batch == BATCH))
            for s, state in {**states, **changed}.items()
        }
        sizes.append(largest(states, BATCH))
    assert sizes[-1] == 1
    assert len(sizes) < 20


def test_a_range_of_another_batch_keeps_its_target_when_one_is_divided() -> None:
    behind = OpenRange(1_000, 2_000, 8, 1_000, 0, 5_000)
    states = recorded(1_000)
    states[source(0)] = replace(states[source(0)], open=(*states[source(0)].open, behind))
    changed = batches.divided(states, BATCH, REST)
    assert changed[source(0)].open[-1] == behind


def test_100_000_partitions_are_sized_and_grouped_in_seconds() -> None:
    ranges = {source(n): OpenRange(n, n + 20 + n % 50, BATCH, 1_000_000, 0, 1_000_000) for n in range(100_000)}
    began = time.process_time()
    sized = write_tasks.with_task_limit(ranges, 64)
    tasks = write_tasks.of_batch(states_of(sized), BATCH)
    assert time.process_time() - began < 30
    assert len(tasks) <= 64
    assert sum(len(task.slices) for task in tasks) <= 100_000 + 4 * 64 + 64


def test_a_task_without_slices_is_none() -> None:
    with pytest.raises(ValueError, match="at least one slice"):
        WriteTask(())
