"""Opens transactions: the next batch, once the log was read; and, for an instant that no transaction names, one that is
ABORTED from the start, so that its rollback is on record.

`coordination.planning.planner` decides what the next batch is. This module assigns its tasks and writes the plan.
"""

from __future__ import annotations

from dataclasses import replace

from coordination.machines import control, housekeeping, recovery, writes
from coordination.machines.term import Term
from coordination.planning import assignment, batches, planner
from coordination.state.failures import Halt, HaltKind
from coordination.state.messages import Operation, ReadLog
from coordination.state.model import Header, Phase, Plan
from coordination.state.phases import enter

STAND_BACK_SECONDS = 30.0
"""A coordinator on another cluster is not a candidate for so long: longer than all others need to find the same."""


def plan_ahead(term: Term) -> Operation | None:
    """Plans the next transaction before the written one commits. A commit takes long, and the coordinator does nothing
    else until it has ended: meanwhile workers write the planned one."""
    open_transactions = term.open_transactions()
    if open_transactions and all(t.header.phase is Phase.STARTED for t in open_transactions):
        return housekeeping.sync_with_table(term) or plan(term)
    return None


def plan(term: Term) -> Operation | None:
    if (reason := control.reason_to_yield(term)) is not None:
        control.end_term(term, reason)
        return None
    started = (Phase.STARTED, Phase.PREPARED, Phase.COMMITTED)
    if (
        term.keeper_view.halt is not None
        or term.keeper_view.control.paused is not None
        or len(term.open_transactions()) >= term.config.in_flight
        or any(t.header.phase not in started for t in term.open_transactions())
        or not assignment.eligible(term.keeper_view.members, ())
    ):
        term.waits_for_admission = False
        return _watch_log(term)
    if term.waits_for_admission and not term.is_admitted:
        return None
    log, term.log = term.log, None
    if log is None:
        if term.at < term.next_poll:
            return None
        term.flush_seen = term.keeper_view.control.flush.asked
        return _read_log(term)
    if (difference := planner.other_cluster(term.keeper_view, term.table_view, log.cluster)) is not None:
        return _stand_back(term, difference)
    term.note_topics(log)
    control.set_flush_target(term, log)
    if (answer := control.answer_requests(term)) is not None:
        return answer
    # A transaction behind an open one would wait for it: it is planned early only if it could not become larger.
    due = not term.open_transactions() and (term.at >= term.next_plan or control.is_flushing(term))
    limits = term.batch_sizes.limits(term.config.limits)
    weight = term.batch_sizes.bytes_per_offset
    step = planner.next_step(term.keeper_view, term.table_view, log, term.config, limits, due, weight)
    if isinstance(step, planner.OpenBatch) and not term.open_transactions() and not term.is_admitted:
        term.log, term.waits_for_admission = log, True
        return None
    term.waits_for_admission = False
    return _carry_out(term, step, log.cluster)


def _stand_back(term: Term, reason: str) -> Operation | None:
    """Leaves the sink to the other candidates, whose brokers may be of the right cluster; halts it if there are none.
    A fleet that is led to another cluster as a whole halts, too: each worker that stands back is not a candidate for a
    while, and the last one is alone.
    """
    if len(term.keeper_view.contenders) < 2:
        return term.halt(Halt(HaltKind.ANOTHER_CLUSTER, reason, at=term.wall))
    term.note("coordinator.stood_back", reason=reason, seconds=STAND_BACK_SECONDS)
    term.resign(reason, STAND_BACK_SECONDS)
    return None


def _read_log(term: Term) -> Operation:
    configured = tuple(sorted(term.config.topics))
    unfinished = batches.unfinished_topics(term.keeper_view.states, configured)
    return ReadLog(configured, term.config.topic_pattern, unfinished)


def _watch_log(term: Term) -> Operation | None:
    """Reads the log while the sink is halted or paused: operators want to know how many records wait, and how long
    Kafka keeps them.
    """
    view = term.keeper_view
    # A paused sink completes its open transactions first: a reading of the log would keep them waiting.
    stands_still = view.halt is not None or (view.control.paused is not None and not view.transactions)
    if not stands_still or term.at < term.next_poll:
        return None
    term.log = None
    return _read_log(term)


def _carry_out(term: Term, step: planner.Step | None, cluster: str) -> Operation | None:
    """Carries out a step. The first write about the log also records its cluster."""
    view = term.keeper_view
    match step:
        case Halt():
            return term.halt(replace(step, at=term.wall))
        case planner.SkipGaps(changed, gaps):
            gap_texts = [f"{gap.topic}-{gap.partition}[{gap.start}, {gap.end})" for gap in gaps]
            term.note("log.gap_skipped", gaps=gap_texts)
            return term.fence_and_queue(writes.skip(term.keeper_view, changed, gaps))
        case planner.RecordPartitions(new_partitions):
            return term.fence_and_queue(
                writes.with_cluster(writes.record_partitions(view, new_partitions), view, cluster)
            )
        case planner.SplitBatch(batch, remainder, divided, size):
            term.note("batch.divided", batch=batch, rest=remainder)
            term.batch_sizes.note_division(size)
            return term.fence_and_queue(writes.divide(term.keeper_view, divided, batch, remainder))
        case planner.OpenBatch():
            if step.attempt == 1:
                term.interval_planned()
            return _open_batch(term, step)
        case None:
            return None


def _open_batch(term: Term, step: planner.OpenBatch) -> Operation:
    term.has_open = True
    plan = batches.assigned(
        step.tasks,
        term.keeper_view.members,
        term.worker_health.writers,
        term.worker_health.left_out(term.at),
        step.attempt,
        term.config.sink,
        term.config.single_writer,
    )
    header = _new_header(term, plan, step)
    term.note(
        "transaction.opened",
        transaction=header.number,
        batch=header.batch,
        attempt=header.attempt,
        tasks=len(step.tasks),
        slices=sum(len(task.slices) for task in step.tasks),
        offsets=sum(task.size for task in step.tasks),
    )
    write_plan = writes.open_transaction(term.keeper_view, header, plan, step.changed)
    return term.fence_and_queue(writes.with_cluster(write_plan, term.keeper_view, step.cluster))


def abort_orphans(term: Term) -> Operation | None:
    """Gives a pending instant of this sink that no transaction names an ABORTED record, before its rollback."""
    named_instants = {t.header.instant for t in term.open_transactions()} | {m.begun for m in term.progress.values()}
    orphan = next((instant for instant in term.table_view.orphans if instant not in named_instants), None)
    if orphan is None or isinstance(term.comparison(), recovery.Ahead):
        # What the table has lost since may be the orphan's own commit: an operator decides before its files go.
        return None
    # Whether or not the record is written, the timeline has to be read again before another one is made.
    term.table = term.table_view.without_orphans((orphan,))
    header = _new_header(term, Plan({}))
    reason = "no transaction names this instant"
    aborted = enter(replace(header, instant=orphan), Phase.ABORTED, term.wall, reason=reason)
    return term.fence_and_queue(writes.open_transaction(term.keeper_view, aborted, Plan({}), {}))


def _new_header(term: Term, plan: Plan, step: planner.OpenBatch | None = None) -> Header:
    return planner.new_header(term.keeper_view, term.table_view, term.config, term.raised_epoch, term.wall, plan, step)
