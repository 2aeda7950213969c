"""Assigns write tasks to workers: deterministic, sticky, balanced by offsets and cores.

Guarantee: every task goes to exactly one active member, whole. No worker gets more than its fair share (all offsets,
in proportion to its cores, rounded up) plus the largest task. Each further attempt gives every task to another worker
than the attempt before, if there is one; void if anything but `attempt`, counted up by one, has changed.
Raises ValueError when no member is active: ask `eligible` first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from heapq import heapify, heapreplace
from itertools import accumulate

from coordination.state.model import Member, Plan, Slice, TopicPartition, WorkerState, WriteTask

FIRST_ATTEMPT = 1


def eligible(members: Sequence[Member], excluded: Collection[str]) -> tuple[Member, ...]:
    """Returns active members in order of incarnation, without the excluded workers unless no other is left."""
    active = sorted(m for m in members if m.state is WorkerState.ACTIVE)
    return tuple(member for member in active if member.worker not in excluded) or tuple(active)


def assign(
    tasks: Iterable[WriteTask],
    members: Sequence[Member],
    previous: Mapping[TopicPartition, str],
    excluded: Collection[str],
    attempt: int,
    sink: str = "",
) -> Plan:
    """Spreads tasks over the fleet. `previous` names the worker that wrote a partition last.

    Largest first, each task stays with the previous writer of its first slice while that has room in its fair share, or
    else goes to the worker that has the least to do for its cores; of several, to the first in a ranking by a hash of
    sink and worker, so that sinks of one task each spread over the fleet. A further attempt hands every worker's bundle
    to the next worker in line.
    """
    writers = _writers(members, excluded)
    bundles = _balance(tasks, writers, previous, sink)
    shift = max(attempt - FIRST_ATTEMPT, 0)
    plan = {
        writers[(position + shift) % len(writers)].incarnation: tuple(sorted(bundle, key=_order))
        for position, bundle in enumerate(bundles)
        if bundle
    }
    return Plan(dict(sorted(plan.items())))


def assign_to_one(
    tasks: Iterable[WriteTask], members: Sequence[Member], sink: str, excluded: Collection[str], attempt: int
) -> Plan:
    """Assigns all tasks to a single writer, for tables whose file groups are updated: two drivers must never write one
    file group in one instant.

    Workers are ranked by a hash of sink and worker (rendezvous hashing): sinks spread over the fleet, a worker that
    comes or goes moves only its own sinks, and a further attempt takes the next in the ranking.
    """
    ranking = sorted(_writers(members, excluded), key=lambda writer: _rank(sink, writer))
    chosen = ranking[max(attempt - FIRST_ATTEMPT, 0) % len(ranking)]
    ordered = tuple(sorted(tasks, key=_order))
    return Plan({chosen.incarnation: ordered} if ordered else {})


def split(slices: Iterable[Slice]) -> tuple[tuple[Slice, ...], tuple[Slice, ...]]:
    """Splits a plan into two smaller ones, about equal in records; the first must commit first. Within each partition
    the first plan's slices come before the second's, so that each leaves settled ranges without a hole. A lone slice is
    halved; one of a single offset cannot be, and the second plan is empty.
    """
    ordered = tuple(sorted(slices, key=_coordinates))
    if len(ordered) == 1:
        return _halve(ordered[0])
    cumulative_sizes = list(accumulate(piece.size for piece in ordered))
    split_at = min(
        range(1, len(ordered)), key=lambda count: abs(2 * cumulative_sizes[count - 1] - cumulative_sizes[-1]), default=0
    )
    return ordered[:split_at], ordered[split_at:]


def _writers(members: Sequence[Member], excluded: Collection[str]) -> tuple[Member, ...]:
    writers = eligible(members, excluded)
    if not writers:
        raise ValueError(f"none of {len(members)} members is active: nothing can be assigned")
    return writers


def _balance(
    tasks: Iterable[WriteTask], writers: Sequence[Member], previous: Mapping[TopicPartition, str], sink: str
) -> list[list[WriteTask]]:
    """Returns bundles of tasks by position in `writers`."""
    sizes = {task: task.size for task in tasks}
    ordered = sorted(sizes, key=lambda task: (-sizes[task], _order(task)))
    bundles: list[list[WriteTask]] = [[] for _ in writers]
    if not ordered:
        return bundles
    cores = [max(writer.cores, 1) for writer in writers]
    total, largest = sum(sizes.values()), sizes[ordered[0]]
    fair_shares = [max(-(-total * worker_cores // sum(cores)), largest) for worker_cores in cores]
    home_positions = {writer.worker: position for position, writer in enumerate(writers)}
    loads = [0] * len(writers)
    unplaced = []
    for task in ordered:
        position = home_positions.get(previous.get(task.slices[0].source, ""), -1)
        if position >= 0 and loads[position] + sizes[task] <= fair_shares[position]:
            bundles[position].append(task)
            loads[position] += sizes[task]
        else:
            unplaced.append(task)
    ranks = {
        index: rank
        for rank, index in enumerate(sorted(range(len(writers)), key=lambda index: _rank(sink, writers[index])))
    }
    idlest = [
        (load / cores[index], len(bundles[index]) / cores[index], ranks[index], index)
        for index, load in enumerate(loads)
    ]
    heapify(idlest)
    for task in unplaced:
        position = idlest[0][3]
        bundles[position].append(task)
        loads[position] += sizes[task]
        worker_cores = cores[position]
        heapreplace(
            idlest, (loads[position] / worker_cores, len(bundles[position]) / worker_cores, ranks[position], position)
        )
    return bundles


def _halve(piece: Slice) -> tuple[tuple[Slice, ...], tuple[Slice, ...]]:
    if piece.size == 1:
        return (piece,), ()
    middle = piece.start + piece.size // 2
    return (replace(piece, end=middle),), (replace(piece, start=middle),)


def _order(task: WriteTask) -> tuple[str, int, int]:
    return _coordinates(task.slices[0])


def _coordinates(piece: Slice) -> tuple[str, int, int]:
    return piece.topic, piece.partition, piece.start


def _rank(sink: str, writer: Member) -> tuple[bytes, str]:
    return blake2b(f"{sink}/{writer.worker}".encode(), digest_size=16).digest(), writer.incarnation
