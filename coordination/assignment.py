"""Assigns slices to workers: deterministic, sticky, balanced by records.

Guarantee: every slice goes to exactly one active member. No worker gets more than its fair share (all records
over all workers, rounded up) plus the largest slice. Each further attempt gives every slice to another worker
than the attempt before, if there is one; void if anything but `attempt`, counted up by one, has changed.
Raises ValueError when no member is active: ask `eligible` first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heapreplace
from itertools import accumulate

from coordination.model import Member, Plan, Slice, TopicPartition, WorkerState

FIRST_ATTEMPT = 1


def eligible(members: Sequence[Member], excluded: Collection[str]) -> tuple[Member, ...]:
    """Active members in order of incarnation, without the excluded workers unless nobody else is left."""
    active = sorted(member for member in members if member.state is WorkerState.ACTIVE)
    return tuple(member for member in active if member.worker not in excluded) or tuple(active)


def assign(
    slices: Iterable[Slice],
    members: Sequence[Member],
    previous: Mapping[TopicPartition, str],
    excluded: Collection[str],
    attempt: int,
) -> Plan:
    """Spread slices over the fleet. `previous` names the worker that wrote a partition last.

    Largest first, each slice stays with its previous writer while that has room in its fair share, or else
    goes to whoever has the least. A further attempt hands every worker's bundle to the next worker in line.
    """
    writers = _writers(members, excluded)
    bundles = _balance(slices, [writer.worker for writer in writers], previous)
    shift = max(attempt - FIRST_ATTEMPT, 0)
    plan = {
        writers[(position + shift) % len(writers)].incarnation: tuple(sorted(bundle, key=_coordinates))
        for position, bundle in enumerate(bundles)
        if bundle
    }
    return Plan(dict(sorted(plan.items())))


def assign_to_one(
    slices: Iterable[Slice], members: Sequence[Member], sink: str, excluded: Collection[str], attempt: int
) -> Plan:
    """All slices to a single writer, for tables whose file groups are updated: two drivers must never write
    one file group in one instant.

    Workers are ranked by a hash of sink and worker (rendezvous hashing): sinks spread over the fleet, a
    worker that comes or goes moves only its own sinks, and a further attempt takes the next in the ranking.
    """
    ranking = sorted(_writers(members, excluded), key=lambda writer: _rank(sink, writer))
    chosen = ranking[max(attempt - FIRST_ATTEMPT, 0) % len(ranking)]
    ordered = tuple(sorted(slices, key=_coordinates))
    return Plan({chosen.incarnation: ordered} if ordered else {})


def split(slices: Iterable[Slice]) -> tuple[tuple[Slice, ...], tuple[Slice, ...]]:
    """Two smaller plans with the same union, about equal in records; the first must commit first.

    Within each partition the first plan's slices come before the second's, so that each leaves settled ranges
    without a hole. A lone slice is halved; one of a single offset cannot be, and the second plan is empty.
    """
    ordered = tuple(sorted(slices, key=_coordinates))
    if len(ordered) == 1:
        return _halve(ordered[0])
    reached = list(accumulate(piece.size for piece in ordered))
    at = min(range(1, len(ordered)), key=lambda count: abs(2 * reached[count - 1] - reached[-1]), default=0)
    return ordered[:at], ordered[at:]


def _writers(members: Sequence[Member], excluded: Collection[str]) -> tuple[Member, ...]:
    writers = eligible(members, excluded)
    if not writers:
        raise ValueError(f"none of {len(members)} members is active: nothing can be assigned")
    return writers


def _balance(
    slices: Iterable[Slice], workers: Sequence[str], previous: Mapping[TopicPartition, str]
) -> list[list[Slice]]:
    """Bundles of slices by position in `workers`."""
    ordered = sorted(slices, key=lambda piece: (-piece.size, _coordinates(piece)))
    bundles: list[list[Slice]] = [[] for _ in workers]
    if not ordered:
        return bundles
    fair = max(-(-sum(piece.size for piece in ordered) // len(workers)), ordered[0].size)
    home = {worker: position for position, worker in enumerate(workers)}
    loads = [0] * len(workers)
    homeless = []
    for piece in ordered:
        position = home.get(previous.get(piece.source, ""), -1)
        if position >= 0 and loads[position] + piece.size <= fair:
            bundles[position].append(piece)
            loads[position] += piece.size
        else:
            homeless.append(piece)
    idlest = [(load, len(bundles[position]), position) for position, load in enumerate(loads)]
    heapify(idlest)
    for piece in homeless:
        load, count, position = idlest[0]
        bundles[position].append(piece)
        heapreplace(idlest, (load + piece.size, count + 1, position))
    return bundles


def _halve(piece: Slice) -> tuple[tuple[Slice, ...], tuple[Slice, ...]]:
    if piece.size == 1:
        return (piece,), ()
    middle = piece.start + piece.size // 2
    first = Slice(piece.topic, piece.partition, piece.start, middle, piece.topic_id, piece.generation)
    second = Slice(piece.topic, piece.partition, middle, piece.end, piece.topic_id, piece.generation)
    return (first,), (second,)


def _coordinates(piece: Slice) -> tuple[str, int, int]:
    return piece.topic, piece.partition, piece.start


def _rank(sink: str, writer: Member) -> tuple[bytes, str]:
    return blake2b(f"{sink}/{writer.worker}".encode(), digest_size=16).digest(), writer.incarnation
