"""The faults of one run and their frequency, drawn from the run's seed, so that runs differ in kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from coordination.planning.offsets import DataLossPolicy, OffsetReset

NO_LIMIT = 10**9


@dataclass(frozen=True)
class Profile:
    """Probabilities are per request, rates per virtual second and fleet; durations are virtual seconds."""

    workers: int
    topics: int
    partitions: int
    in_flight: int
    interval: float
    flush_size: int
    slice_records: int
    write_timeout: float
    write_seconds: float
    session_timeout: float
    busy: float
    """How long the log grows and faults happen; then everything heals."""
    lost: float
    answer_lost: float
    late: float
    failed: float
    crash_at: float
    pause_at: float
    duplicate_answer: float
    slices_fail: float
    lag: float
    torn: bool
    crashes: float
    pauses: float
    expiries: float
    keeper_cuts: float
    table_cuts: float
    log_cuts: float
    drains: float
    wipes: float
    foreign_commits: float
    foreign_rollbacks: float
    new_partitions: float
    data_loss: float
    recreations: float
    hole: float
    policy: DataLossPolicy
    reset: OffsetReset
    one_survivor: bool
    single_writer: bool
    twins: bool
    clock_jumps: float
    restores: float
    poisoned: bool
    """Whether one process can never write anything, like a JVM with a broken class."""
    tampering: float
    """A person puts rubbish or older content into a znode, or deletes one with all below it."""
    truncations: float
    mixed: bool
    """Whether the last worker has another configuration than the others, until everything heals."""
    recovery: float
    """The factor on the failures of requests and processes shortly after a takeover or a start."""
    table_restores: float
    """A person restores the table to an earlier commit; later an operator deletes ZooKeeper's tree."""
    capacity: int
    """The offsets that a worker can write at once before its memory is full; 0: any number."""
    flush_bytes: int | None
    allow_empty: bool
    evolutions: float
    """Producers register a schema with more columns, and use it at once."""
    bad: float
    """The share of bad records; a record's partition and offset determine whether it is bad."""
    errors_max: int
    """The bad records that a transaction may have."""
    operated: float
    """More than 0: an operator answers every halt with a reset, and resets without a halt with this probability at each
    look. Recreated topics then may have fewer or more partitions."""
    cores: int
    """Cores of each worker."""
    task_bytes: int
    small_task_bytes: int
    small_multis: bool
    """Whether ZooKeeper's limits are set so low that plans, statuses and shards need several multis."""
    store_is_known: bool
    """Whether workers that cannot reach the table know that this is the store's fault, and report it."""
    sink_pauses: float
    """Operators pause the sink; the next three: flush it, ask for a switchover, ask a worker to drain."""
    flushes: float
    switchovers: float
    drain_requests: float
    flush_only: bool
    """Whether the interval is longer than the run: only a flush lands records that do not fill a batch."""
    ends_paused: bool
    """Whether the sink is paused when everything heals, until its open transactions have ended."""
    new_topics: float
    """More than 0: the sink reads the topics that match a pattern, and new ones are created."""
    admission: bool
    """Whether other sinks share the processes, so that these admit a transaction only now and then."""
    deletions: float
    """Topics that match the pattern are deleted."""
    planned_restores: float
    """Another writer plans to restore the table. It, or a person much later, carries that out step by step."""
    planned_rollbacks: float
    """Another writer plans to roll back an instant of the sink's. Half of these writers die before they do it."""
    savepoints: float
    """Another writer makes a savepoint, or deletes one, or archives what is beyond it."""
    other_clusters: float
    """A worker's connections lead to another cluster, for a while or until everything heals."""
    is_cloned: bool
    """Whether the other cluster was cloned from this one: its topics have the same ids."""
    trusting_readers: bool
    """Whether readers leave it to the coordinator to find out that they read from another cluster or topic."""
    unclean_elections: float
    """A log loses its end and has grown beyond it before anybody looks."""
    replacements: float
    """A topic is created again, and has as many records before anybody looks."""
    elections: float
    """A partition gets another leader, which has all records."""
    open_transactions: float
    """A producer's transaction stays open for a while: brokers hold back what follows."""
    damages: float
    """Rows of the table are lost, doubled or altered, and an operator repairs them from the log."""


Maybe = Callable[..., float]
"""Draws a rate from its highest value and the probability that it is not 0."""


def draw(rng: Random) -> Profile:
    """Draws a profile. About half of the kinds of fault are on in any run, each at its own strength."""
    harsh = rng.choice((0.3, 1.0, 2.0))
    maybe = _maybe(rng, harsh)
    slice_records = rng.choice((5, 20, 50))
    # Newer faults have a random source of their own, so that the older faults of a seed stay the same.
    later = Random(rng.getstate()[1][0])
    maybe_later = _maybe(later, harsh)
    drawn = {
        "slice_records": slice_records,
        **_fleet(rng),
        **_at_requests(rng, maybe),
        **_at_any_time(maybe),
        **_circumstances(rng),
        **_newer_faults(later, maybe_later, slice_records),
    }
    if drawn["twins"]:
        # Failing workers are excluded by their id, which twins share: neither twin may be poisoned.
        drawn["poisoned"] = False
    if drawn["tampering"]:
        # After tampering it is undecidable whether ZooKeeper or the table is older.
        drawn["table_restores"] = 0.0
    if later.random() < 0.01:
        drawn |= {"workers": later.randint(8, 20), "partitions": later.randint(20, 60), "topics": 2, "busy": 20.0}
    drawn |= _newest_faults(later, maybe_later)
    drawn["operated"] = later.choice((0.02, 0.1, 0.5)) if later.random() < 0.1 else 0.0
    if drawn["operated"]:
        recreations = max(drawn["recreations"], later.random() * 0.1)
        drawn |= {"tampering": 0.0, "recreations": recreations}
    drawn |= _write_tasks(later)
    later.random()  # drawn for a fault that is gone, so that the faults of a seed stay the same
    drawn["store_is_known"] = later.random() < 0.5
    drawn |= _verbs(later, maybe_later)
    drawn["new_topics"] = maybe_later(0.1, 0.2)
    drawn["admission"] = later.random() < 0.3
    drawn["deletions"] = maybe_later(0.05) if drawn["new_topics"] else 0.0
    drawn |= _other_writers(later, maybe_later)
    drawn |= _identities(later, maybe_later)
    drawn["damages"] = maybe_later(0.2, 0.25)
    if drawn["tampering"]:
        drawn |= {"planned_restores": 0.0, "damages": 0.0}
    return Profile(**drawn)


def _maybe(rng: Random, harsh: float) -> Maybe:
    def maybe(most: float, chance: float = 0.5) -> float:
        return rng.random() * most * harsh if rng.random() < chance else 0.0

    return maybe


def _fleet(rng: Random) -> dict[str, Any]:
    return {
        "workers": rng.choice((1, 2, 3, 3, 4, 6)),
        "topics": rng.choice((1, 1, 2)),
        "partitions": rng.choice((1, 2, 3, 6, 12)),
        "in_flight": rng.choice((1, 2)),
        "interval": rng.choice((0.5, 1.0, 3.0)),
        "flush_size": rng.choice((20, 100, 1000)),
        "write_timeout": rng.choice((4.0, 8.0)),
        "write_seconds": rng.choice((0.2, 1.0, 2.5)),
        "session_timeout": rng.choice((1.5, 3.0)),
        "busy": rng.choice((20.0, 40.0)),
    }


def _at_requests(rng: Random, maybe: Maybe) -> dict[str, Any]:
    return {
        "lost": maybe(0.04),
        "answer_lost": maybe(0.04),
        "late": maybe(0.04),
        "failed": maybe(0.05),
        "crash_at": maybe(0.006),
        "pause_at": maybe(0.006),
        "duplicate_answer": maybe(0.05),
        "slices_fail": maybe(0.1),
        "lag": rng.choice((0.0, 0.3, 2.0)),
        "torn": rng.random() < 0.5,
    }


def _at_any_time(maybe: Maybe) -> dict[str, Any]:
    return {
        "crashes": maybe(0.15),
        "pauses": maybe(0.2),
        "expiries": maybe(0.15),
        "keeper_cuts": maybe(0.15),
        "table_cuts": maybe(0.1),
        "log_cuts": maybe(0.1),
        "drains": maybe(0.1, 0.3),
        "wipes": maybe(0.03, 0.1),
        "foreign_commits": maybe(1.0, 0.3),
        "foreign_rollbacks": maybe(0.3, 0.4),
        "new_partitions": maybe(0.1, 0.3),
        "data_loss": maybe(0.1, 0.15),
        "recreations": maybe(0.02, 0.05),
    }


def _circumstances(rng: Random) -> dict[str, Any]:
    return {
        "hole": rng.choice((0.0, 0.1, 0.5)),
        "policy": rng.choice((DataLossPolicy.SKIP, DataLossPolicy.SKIP, DataLossPolicy.FAIL)),
        "reset": rng.choice((OffsetReset.EARLIEST, OffsetReset.EARLIEST, OffsetReset.LATEST)),
        "one_survivor": rng.random() < 0.3,
        "single_writer": rng.random() < 0.15,
        "twins": rng.random() < 0.1,
        "small_multis": rng.random() < 0.25,
    }


def _newer_faults(later: Random, maybe: Maybe, slice_records: int) -> dict[str, Any]:
    return {
        "clock_jumps": maybe(0.2, 0.3),
        "restores": maybe(0.03, 0.1),
        "poisoned": later.random() < 0.1,
        "tampering": maybe(0.1, 0.15),
        "mixed": later.random() < 0.1,
        "truncations": maybe(0.02, 0.05),
        "recovery": later.choice((1.0, 1.0, 4.0, 8.0)),
        "table_restores": maybe(0.05, 0.15),
        "capacity": later.randint(2 * slice_records, 200) if later.random() < 0.1 else 0,
    }


def _write_tasks(later: Random) -> dict[str, Any]:
    """An offset takes 100 bytes at most; the planner assumes 1,024 until a record was read."""
    return {
        "cores": later.choice((1, 1, 2, 4)),
        "task_bytes": later.choice((1_000, 5_000, 10**9)),
        "small_task_bytes": later.choice((1, 1, 500, 50_000)),
    }


def _verbs(later: Random, maybe: Maybe) -> dict[str, Any]:
    return {
        "sink_pauses": maybe(0.1, 0.2),
        "flushes": maybe(0.3, 0.2),
        "switchovers": maybe(0.1, 0.2),
        "drain_requests": maybe(0.1, 0.2),
        "flush_only": later.random() < 0.1,
        "ends_paused": later.random() < 0.2,
    }


def _other_writers(later: Random, maybe: Maybe) -> dict[str, Any]:
    return {
        "planned_restores": maybe(0.1, 0.25),
        "planned_rollbacks": maybe(0.3, 0.3),
        "savepoints": maybe(0.5, 0.2),
    }


def _identities(later: Random, maybe: Maybe) -> dict[str, Any]:
    return {
        "other_clusters": maybe(0.1, 0.2),
        "is_cloned": later.random() < 0.5,
        "trusting_readers": later.random() < 0.5,
        "unclean_elections": maybe(0.05, 0.1),
        "replacements": maybe(0.03, 0.1),
        "elections": maybe(0.3, 0.3),
        "open_transactions": maybe(0.3, 0.3),
    }


def _newest_faults(later: Random, maybe: Maybe) -> dict[str, Any]:
    return {
        "flush_bytes": later.choice((5_000, 50_000)) if later.random() < 0.2 else None,
        "allow_empty": later.random() < 0.05,
        "evolutions": maybe(1.0, 0.3),
        "bad": later.choice((0.02, 0.2)) if later.random() < 0.3 else 0.0,
        "errors_max": later.randint(5, 40) if later.random() < 0.1 else NO_LIMIT,
    }
