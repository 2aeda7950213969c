"""Pure functions over an open transaction: is it complete, must it be aborted, which checkpoint would it commit.

Nothing here decides: the coordinator turns an answer into a compare-and-set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.planning import log_continuity, schema_identity, write_tasks
from coordination.state.failures import AWAY, Failure, FailureKind
from coordination.state.log_records import Anchor, ReadRange
from coordination.state.model import (
    Checkpoint,
    Gap,
    Header,
    PartitionCheckpoint,
    PartitionState,
    Phase,
    QuarantinedRecords,
    SliceResult,
    TopicPartition,
)
from coordination.state.tree import KeeperInfo, Ledger, Summary, Transaction, plan_digest

REASON_CHARACTERS = 500
"""The characters of an abort's reason that the history keeps: Java's can be pages."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Slices are still being written."""


@dataclass(frozen=True, slots=True)
class AllReported:
    """Every slice of the plan has its result, and no result is without its slice."""


@dataclass(frozen=True, slots=True)
class MustAbort:
    """`blamed` are the incarnations at fault, to be left out of the next attempts."""

    reason: str
    blamed: tuple[str, ...] = ()
    failure: Failure | None = None


Readiness = Waiting | AllReported | MustAbort


@dataclass(frozen=True, slots=True)
class Written:
    """The results of a transaction, and the last record that it read of each partition."""

    results: tuple[SliceResult, ...]
    last_records: Mapping[TopicPartition, Anchor]


def is_plan_intact(transaction: Transaction) -> bool:
    """Whether the plan in ZooKeeper is the one that the header was written for."""
    return plan_digest(transaction.plan) == transaction.header.plan_digest


def report_mismatch(transaction: Transaction) -> str | None:
    """Tells why the write statuses do not report each planned slice once, by its own incarnation; None if they do."""
    planned = transaction.plan.slices
    for incarnation in sorted({*planned, *transaction.statuses}):
        status = transaction.statuses.get(incarnation)
        results = [result.slice for result in status.results] if status else []
        slices = planned.get(incarnation, ())
        if results == [*slices]:
            continue  # in the order of the plan, as a participant reports
        reported, expected = Counter(results), Counter(slices)
        if reported == expected:
            continue
        if unexpected := sorted(reported - expected):
            piece = unexpected[0]
            problem = "more often than it was planned" if expected[piece] else "which was not to write it"
            return f"{piece} was reported by {incarnation}, {problem}"
        return f"{min(expected - reported)} was planned for {incarnation} and not reported"
    return None


def misread(transaction: Transaction) -> tuple[str, str] | None:
    """Returns the incarnation that read another log than was planned, and how it differs; None if none did."""
    for incarnation in sorted(transaction.statuses):
        tasks, reads = transaction.plan.tasks.get(incarnation, ()), transaction.statuses[incarnation].reads
        if (difference := log_continuity.misread(tasks, reads, transaction.header.cluster)) is not None:
            return incarnation, difference
    return None


def changed_log(transaction: Transaction, states: Mapping[TopicPartition, PartitionState]) -> Failure | None:
    """Returns the failure for a log that is not the one which was read before; None if there is no such evidence."""
    return log_continuity.changed_log(reads(transaction), states)


def changed_schema(transaction: Transaction, newest: Checkpoint | None) -> Failure | None:
    """Returns the failure for a schema id with another fingerprint than in `newest` or in another task; None without
    one."""
    return schema_identity.conflict(newest.schemas if newest else {}, schemas(transaction))


def _names_all_bad_records(transaction: Transaction) -> bool:
    """Whether every counted bad record was kept for the errors table."""
    counted = sum(result.errors for status in transaction.statuses.values() for result in status.results)
    return counted == sum(quarantined.records for quarantined in errors(transaction))


def inconsistency(transaction: Transaction, states: Mapping[TopicPartition, PartitionState]) -> str | None:
    """Tells which of the transaction's znodes are gone since they were written; None if they all are there."""
    if not is_plan_intact(transaction):
        return "its plan is not the one that its header names"
    if (missing := report_mismatch(transaction)) is not None:
        return f"its write statuses do not make up its plan: {missing}"
    if (difference := misread(transaction)) is not None:
        return f"{difference[0]} read another log than was planned: {difference[1]}"
    if not _names_all_bad_records(transaction):
        return "its write statuses do not name all its bad records"
    if not _matches_the_record(transaction, states):
        return "its write tasks are not those on record"
    return None


def _matches_the_record(transaction: Transaction, states: Mapping[TopicPartition, PartitionState]) -> bool:
    """Whether the plan has the ranges that the states record for its batch, next in line in each partition. A plan that
    was grouped from a part of its ranges has not.
    """
    recorded = write_tasks.group_into_tasks(
        (source, state, state.open[0])
        for source, state in states.items()
        if state.open and state.open[0].batch == transaction.header.batch
    )
    return Counter(transaction.plan.all_tasks) == Counter(recorded)


def readiness(transaction: Transaction, members: Collection[str], waited: float) -> Readiness:
    """Tells how far a STARTED transaction is; `waited` is seconds since this coordinator saw it STARTED."""
    planned = {i: slices for i, slices in transaction.plan.slices.items() if slices}
    for incarnation, status in sorted(transaction.statuses.items()):
        if status.failure is not None:
            # A server that is away for one worker only is reached by another.
            retryable = status.failure.kind in {FailureKind.RETRYABLE, *AWAY}
            blamed = (incarnation,) if retryable else ()
            return MustAbort(f"{incarnation}: {status.failure.reason}", blamed, status.failure)
    missing = sorted(set(planned) - set(transaction.statuses))
    if not missing:
        if (missing_report := report_mismatch(transaction)) is not None:
            return MustAbort(f"what was written is not what was planned: {missing_report}")
        if (difference := misread(transaction)) is not None:
            return MustAbort(": ".join(difference), (difference[0],))
        if not _names_all_bad_records(transaction):
            return MustAbort("bad records were counted that nobody has set aside")
        return AllReported()
    departed = [incarnation for incarnation in missing if incarnation not in members]
    if departed:
        return MustAbort(f"participant {', '.join(departed)} left the fleet", tuple(departed))
    if waited > transaction.header.timeout:
        return MustAbort(
            f"no write status of {', '.join(missing)} within {transaction.header.timeout:g} s", tuple(missing)
        )
    return Waiting()


def ran_out_of_memory(transaction: Transaction) -> bool:
    failures = (status.failure for status in transaction.statuses.values() if status.failure is not None)
    return any(failure.kind is FailureKind.OUT_OF_MEMORY for failure in failures)


def failed_by_a_server(transaction: Transaction) -> bool:
    """Whether it failed only because servers were away."""
    failures = [status.failure for status in transaction.statuses.values() if status.failure is not None]
    return bool(failures) and all(failure.kind in AWAY for failure in failures)


def results(transaction: Transaction) -> tuple[SliceResult, ...]:
    return tuple(sorted((r for status in transaction.statuses.values() for r in status.results), key=lambda r: r.slice))


def reads(transaction: Transaction) -> tuple[ReadRange, ...]:
    """Returns what the transaction's tasks read of the log."""
    return tuple(read for status in transaction.statuses.values() for read in status.reads)


def schemas(transaction: Transaction) -> tuple[tuple[str, str], ...]:
    """Returns id and fingerprint of the registered schemas that decoded the transaction's records."""
    return tuple(pair for status in transaction.statuses.values() for pair in status.schemas)


def size(transaction: Transaction) -> int:
    """Returns the bytes of the values that the transaction read."""
    return sum(status.size for status in transaction.statuses.values())


def stats(transaction: Transaction) -> tuple[str, ...]:
    return tuple(
        stat for incarnation in sorted(transaction.statuses) for stat in transaction.statuses[incarnation].stats
    )


def errors(transaction: Transaction) -> tuple[QuarantinedRecords, ...]:
    """Returns where the transaction's bad records are quarantined."""
    return tuple(
        quarantined
        for incarnation in sorted(transaction.statuses)
        for quarantined in transaction.statuses[incarnation].errors
    )


def written(transaction: Transaction, newest: Checkpoint | None) -> Written:
    """Takes what a transaction wrote from its commit, the table's `newest`: after it the write statuses may be gone. A
    transaction that has no commit, or whose table was restored since, has only these.
    """
    if newest is None or newest.number != transaction.header.number:
        return Written(results(transaction), log_continuity.last_records(reads(transaction)))
    last_records = {source: end.anchor for source, end in newest.ends.items() if end.anchor is not None}
    return Written(newest.results, last_records)


def settled(
    states: Mapping[TopicPartition, PartitionState], header: Header, last_records: Mapping[TopicPartition, Anchor]
) -> dict[TopicPartition, PartitionState]:
    """Returns the states that a transaction's end changes: the ranges of a committed batch become AFTER, those of an
    aborted one stay BEFORE. `last_records` are those that the transaction read, where it read any.
    """
    changed: dict[TopicPartition, PartitionState] = {}
    if header.phase is Phase.ABORTED:
        return changed
    for source, state in states.items():
        if state.open and state.open[0].batch == header.batch:
            open_range = state.open[0]
            changed[source] = PartitionState(
                state.topic_id,
                open_range.start,
                open_range.end,
                open_range.generation,
                state.open[1:],
                last_records.get(source, state.anchor),
            )
    return changed


def checkpoint(
    transaction: Transaction,
    states: Mapping[TopicPartition, PartitionState],
    info: KeeperInfo,
    gaps: tuple[Gap, ...],
    sink: str,
    epoch: int,
    newest: Checkpoint | None,
) -> Checkpoint:
    """Returns the checkpoint for the commit of `transaction`: cumulative, idle partitions included. `newest` is the one
    that it follows."""
    last_records = log_continuity.last_records(reads(transaction))
    after = {**states, **settled(states, transaction.header, last_records)}
    return Checkpoint(
        sink=sink,
        keeper=info.uuid,
        cluster=transaction.header.cluster,
        epoch=epoch,
        number=transaction.header.number,
        base=transaction.header.base,
        config=info.config,
        topics={source.topic: state.topic_id for source, state in after.items()},
        ends={source: PartitionCheckpoint(s.end, s.generation, s.anchor) for source, s in after.items()},
        results=results(transaction),
        gaps=gaps,
        schemas=schema_identity.remembered(newest.schemas if newest else {}, schemas(transaction)),
    )


def drop_incomplete_plans(
    states: Mapping[TopicPartition, PartitionState], last: int
) -> dict[TopicPartition, PartitionState]:
    """Returns the states without open ranges of batches that never counted (above `last`): always the last ones.

    If a range that counts follows one, `last` was read just before a batch was divided: no decision uses that reading.
    """
    changed = {}
    for source, state in states.items():
        kept_count = len(state.open)
        while kept_count and state.open[kept_count - 1].batch > last:
            kept_count -= 1
        if kept_count < len(state.open):
            changed[source] = replace(state, open=state.open[:kept_count])
    return changed


def ended(ledger: Ledger, header: Header, results: Sequence[SliceResult], wall: float) -> Ledger:
    """Returns the ledger once a transaction has ended: a committed one moves the checkpoint on."""
    outcome, committed = header.phase.value, header.phase is Phase.COMMITTED
    times = {**header.times, "ENDED": wall}
    records, errors = sum(result.records for result in results), sum(result.errors for result in results)
    reason = header.reason[:REASON_CHARACTERS]
    summary = Summary(
        header.number, header.batch, outcome, header.instant, records, reason, times, errors, header.attempt
    )
    attempts = {b: n for b, n in ledger.attempts.items() if not (committed and b == header.batch)}
    return replace(
        ledger,
        committed=header.number if committed else ledger.committed,
        attempts=attempts,
        history=(*ledger.history, summary),
    )
