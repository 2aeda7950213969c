"""Every write task has exactly one writer, the load is even, and a retry goes somewhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.planning.assignment import assign, assign_to_one, eligible, split
from coordination.state.model import Member, Plan, Slice, TopicPartition, WorkerState, WriteTask


def worker(name: str, state: WorkerState = WorkerState.ACTIVE, cores: int = 1) -> Member:
    return Member(f"{name}:5f0c", "host", 1, "1", state, cores=cores)


def slice_of(partition: int, size: int, start: int = 0) -> Slice:
    return Slice("orders", partition, start, start + size, "id", 0)


def task_of(partition: int, size: int, start: int = 0) -> WriteTask:
    return WriteTask((slice_of(partition, size, start),))


def loads(plan: Plan) -> dict[str, int]:
    return {name: sum(task.size for task in tasks) for name, tasks in plan.tasks.items()}


def writers(plan: Plan) -> dict[WriteTask, str]:
    return {task: name for name, tasks in plan.tasks.items() for task in tasks}


def ordered(tasks: Iterable[WriteTask]) -> list[WriteTask]:
    return sorted(tasks, key=lambda task: task.slices)


FLEET = [worker("a"), worker("b"), worker("c")]
SLICES = st.lists(
    st.builds(
        slice_of,
        st.integers(0, 30),
        st.just(100) | st.integers(1, 1_000),
        st.integers(0, 9).map(lambda n: n * 1_000),
    ),
    unique_by=lambda planned_slice: (planned_slice.partition, planned_slice.start),
)
TASKS = SLICES.flatmap(
    lambda slices: st.integers(1, 4).map(
        lambda length: [WriteTask(tuple(slices[at : at + length])) for at in range(0, len(slices), length)]
    )
)
FLEETS = st.lists(
    st.builds(worker, st.sampled_from("abcdefgh"), st.sampled_from(WorkerState), st.integers(1, 4)),
    unique_by=lambda member: member.incarnation,
    min_size=1,
).filter(lambda fleet: any(member.state is WorkerState.ACTIVE for member in fleet))
PREVIOUS = st.dictionaries(
    st.builds(TopicPartition, st.just("orders"), st.integers(0, 30)), st.sampled_from("abcdefghxyz")
)


@given(TASKS, FLEETS, PREVIOUS, st.sets(st.sampled_from("abcdefgh")), st.integers(1, 9))
def test_every_task_has_exactly_one_writer_and_it_is_an_eligible_one(  # type: ignore[no-untyped-def]
    tasks, fleet, previous, excluded, attempt
) -> None:
    plan = assign(tasks, fleet, previous, excluded, attempt)
    assert ordered(plan.all_tasks) == ordered(tasks)
    assert set(plan.tasks) <= {member.incarnation for member in eligible(fleet, excluded)}


@given(TASKS, FLEETS, PREVIOUS, st.integers(1, 9))
def test_no_worker_gets_more_than_the_fair_share_of_its_cores_and_the_largest_task(  # type: ignore[no-untyped-def]
    tasks, fleet, previous, attempt
) -> None:
    plan = assign(tasks, fleet, previous, (), attempt)
    cores = {member.incarnation: member.cores for member in eligible(fleet, ())}
    total, largest = sum(task.size for task in tasks), max((task.size for task in tasks), default=0)
    for name, load in loads(plan).items():
        assert load <= -(-total * cores[name] // sum(cores.values())) + largest


@given(TASKS, FLEETS, PREVIOUS, st.randoms())
def test_the_order_of_the_inputs_does_not_matter(tasks, fleet, previous, random) -> None:  # type: ignore[no-untyped-def]
    plan = assign(tasks, fleet, previous, (), 1)
    random.shuffle(tasks)
    random.shuffle(fleet)
    shuffled_plan = assign(tasks, fleet, previous, (), 1)
    assert list(plan.tasks.items()) == list(shuffled_plan.tasks.items())


@given(TASKS, FLEETS, PREVIOUS, st.integers(1, 9))
def test_a_further_attempt_gives_every_task_to_another_worker(tasks, fleet, previous, attempt) -> None:  # type: ignore[no-untyped-def]
    writers_before = writers(assign(tasks, fleet, previous, (), attempt))
    writers_after = writers(assign(tasks, fleet, previous, (), attempt + 1))
    if len(eligible(fleet, ())) > 1:
        assert all(writers_before[task] != writers_after[task] for task in tasks)


def test_a_partition_stays_with_the_worker_that_wrote_it_last() -> None:
    tasks = [task_of(number, 100) for number in range(9)]
    previous = {TopicPartition("orders", number): "cab"[number % 3] for number in range(9)}
    chosen = writers(assign(tasks, FLEET, previous, (), 1))
    assert {task.slices[0].source: name.split(":")[0] for task, name in chosen.items()} == previous


def test_a_worker_that_wrote_everything_shares_it_with_a_new_one() -> None:
    tasks = [task_of(number, 100) for number in range(6)]
    previous = {task.slices[0].source: "a" for task in tasks}
    assert loads(assign(tasks, FLEET, previous, (), 1)) == {"a:5f0c": 200, "b:5f0c": 200, "c:5f0c": 200}


def test_one_huge_partition_is_spread_over_the_fleet() -> None:
    tasks = [task_of(0, 100, start) for start in range(0, 900, 100)]
    plan = assign(tasks, FLEET, {TopicPartition("orders", 0): "b"}, (), 1)
    assert set(loads(plan).values()) == {300}


def test_tasks_of_one_record_each_are_spread_evenly() -> None:
    plan = assign([task_of(number, 1) for number in range(300)], FLEET, {}, (), 1)
    assert [len(tasks) for tasks in plan.tasks.values()] == [100, 100, 100]


def test_a_task_of_several_partitions_stays_with_the_worker_that_wrote_its_first_and_goes_as_a_whole() -> None:
    tasks = [WriteTask((slice_of(0, 50), slice_of(1, 50))), task_of(2, 100)]
    previous = {TopicPartition("orders", number): name for number, name in enumerate("baa")}
    plan = assign(tasks, FLEET[:2], previous, (), 1)
    assert plan.tasks == {"a:5f0c": (tasks[1],), "b:5f0c": (tasks[0],)}


def test_a_worker_of_three_cores_gets_three_times_as_much_as_one_of_one() -> None:
    fleet = [worker("a"), worker("b", cores=3)]
    plan = assign([task_of(number, 10) for number in range(40)], fleet, {}, (), 1)
    assert loads(plan) == {"a:5f0c": 100, "b:5f0c": 300}


def test_draining_members_get_nothing() -> None:
    fleet = [worker("a", WorkerState.DRAINING), worker("b")]
    plan = assign([task_of(0, 5), task_of(1, 5)], fleet, {TopicPartition("orders", 0): "a"}, (), 1)
    assert list(plan.tasks) == ["b:5f0c"]


def test_an_excluded_worker_is_used_only_when_nobody_else_is_left() -> None:
    tasks = [task_of(0, 5), task_of(1, 5)]
    draining = worker("c", WorkerState.DRAINING)
    assert list(assign(tasks, [worker("a"), worker("b")], {}, {"a"}, 1).tasks) == ["b:5f0c"]
    assert list(assign(tasks, [worker("a"), draining], {}, {"a"}, 1).tasks) == ["a:5f0c"]


def test_a_fleet_without_an_active_member_is_an_error() -> None:
    with pytest.raises(ValueError, match="none of 1 members is active"):
        assign([task_of(0, 5)], [worker("a", WorkerState.DRAINING)], {}, (), 1)
    with pytest.raises(ValueError, match="active"):
        assign_to_one([task_of(0, 5)], [], "orders", (), 1)


def test_nothing_to_write_is_an_empty_plan() -> None:
    assert assign([], FLEET, {}, (), 1) == assign_to_one([], FLEET, "orders", (), 1) == Plan({})


@given(TASKS, FLEETS, st.integers(1, 9))
def test_a_single_writer_gets_all_and_the_next_attempt_another(tasks, fleet, attempt) -> None:  # type: ignore[no-untyped-def]
    plan, next_plan = (assign_to_one(tasks, fleet, "orders", (), number) for number in (attempt, attempt + 1))
    assert ordered(plan.all_tasks) == ordered(next_plan.all_tasks) == ordered(tasks)
    assert len(plan.tasks) == (1 if tasks else 0)
    if tasks and len(eligible(fleet, ())) > 1:
        assert plan.tasks.keys() != next_plan.tasks.keys()


def test_sinks_spread_over_single_writers_and_a_leaving_worker_moves_only_its_own() -> None:
    def chosen(fleet: list[Member]) -> dict[str, str]:
        sinks = [f"sink-{number}" for number in range(60)]
        return {sink: next(iter(assign_to_one([task_of(0, 1)], fleet, sink, (), 1).tasks)) for sink in sinks}

    full, without_b = chosen(FLEET), chosen([worker("a"), worker("c")])
    assert set(full.values()) == {"a:5f0c", "b:5f0c", "c:5f0c"}
    assert all(full[sink] == without_b[sink] for sink in full if full[sink] != "b:5f0c")


@given(SLICES.filter(lambda slices: len(slices) > 1))
def test_split_keeps_the_union_and_the_order_within_each_partition(slices: list[Slice]) -> None:
    first, second = split(slices)
    assert first
    assert second
    assert sorted(first + second) == sorted(slices)
    for earlier in first:
        assert all(later.start > earlier.start for later in second if later.source == earlier.source)
    total, largest = sum(part.size for part in slices), max(part.size for part in slices)
    assert abs(2 * sum(part.size for part in first) - total) <= largest


@given(SLICES.filter(bool), st.randoms())
def test_split_does_not_depend_on_the_order_given(slices, random) -> None:  # type: ignore[no-untyped-def]
    halves = split(slices)
    random.shuffle(slices)
    assert split(slices) == halves


def test_split_halves_a_lone_slice_and_leaves_a_single_offset_whole() -> None:
    assert split([slice_of(4, 7, 10)]) == ((slice_of(4, 3, 10),), (slice_of(4, 4, 13),))
    assert split([slice_of(4, 1, 10)]) == ((slice_of(4, 1, 10),), ())


def test_100_000_tasks_over_1_000_workers_are_assigned_in_seconds() -> None:
    tasks = [task_of(number % 50_000, 1 + number * 7919 % 1_000, number // 50_000 * 1_000) for number in range(100_000)]
    fleet = [worker(f"w{number}") for number in range(1_000)]
    previous = {TopicPartition("orders", number): f"w{number % 1_000}" for number in range(50_000)}
    began = time.process_time()
    plan = assign(tasks, fleet, previous, (), 2)
    assert time.process_time() - began < 30
    assert len(plan.tasks) == 1_000


def test_sinks_of_one_task_each_spread_over_the_fleet() -> None:
    plans = [assign([task_of(0, 5)], FLEET, {}, (), 1, f"s{number}") for number in range(300)]
    shares = [sum(member.incarnation in plan.tasks for plan in plans) for member in FLEET]
    assert min(shares) > 70
