"""Decides what the next transaction is, from one reading of ZooKeeper, the table and the log: pure.

The order is the guarantee. A log that is not the recorded one stops everything: `other_cluster` is asked before any
step. Next, a lost prefix is resolved. Next, recorded ranges are re-formed. Only then are new ranges planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordination.planning import batches, write_tasks
from coordination.planning.config import CoordinatorConfig
from coordination.planning.offsets import OffsetReset
from coordination.planning.slicing import Limits, is_full, plan_ranges
from coordination.state.failures import Halt
from coordination.state.model import (
    NO_TRANSACTION,
    Gap,
    Header,
    LogView,
    OpenRange,
    PartitionState,
    Phase,
    Plan,
    TableView,
    TopicPartition,
    WriteTask,
)
from coordination.state.tree import KeeperView, plan_digest

States = Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class SkipGaps:
    changed: States
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class RecordPartitions:
    """New partitions, without a record to read yet."""

    new_partitions: States


@dataclass(frozen=True, slots=True)
class SplitBatch:
    batch: int
    remainder: int
    divided: States
    size: int
    """Offsets of the batch before the division."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """Opens a transaction for `batch`; `changed` are the new states. Without tasks it publishes the checkpoint."""

    batch: int
    attempt: int
    tasks: tuple[WriteTask, ...]
    changed: States
    cluster: str
    columns: str


Step = Halt | SkipGaps | RecordPartitions | SplitBatch | OpenBatch


def next_number(view: KeeperView) -> int:
    """Returns a number above every number of this tree, whose ledger was brought up to the table's before anything is
    planned.
    """
    return max(view.ledger.last, view.highest) + 1


def new_header(
    view: KeeperView,
    table: TableView,
    config: CoordinatorConfig,
    epoch: int,
    wall: float,
    plan: Plan,
    step: OpenBatch | None,
) -> Header:
    """Returns the header of the next transaction, PLANNED; without a step, of one that has no batch but its own."""
    table_number = table.checkpoint.number if table.checkpoint else NO_TRANSACTION
    number = next_number(view)
    attempt = step.attempt if step else 1
    return Header(
        number=number,
        batch=step.batch if step else number,
        attempt=attempt,
        epoch=epoch,
        base=view.transactions[-1].header.number if view.transactions else table_number,
        phase=Phase.PLANNED,
        timeout=config.timeout * 2.0 ** min(attempt - 1, 3),
        plan_digest=plan_digest(plan),
        cluster=step.cluster if step else "",
        columns=step.columns if step else "",
        times={Phase.PLANNED.value: wall},
    )


def other_cluster(view: KeeperView, table: TableView, cluster: str) -> str | None:
    """Returns how this Kafka cluster differs from the one on record; None if it does not, or if none is on record. A
    topic of another cluster would look like one that was created again.
    """
    filled_from = table.checkpoint.cluster if table.checkpoint is not None else ""
    recorded = filled_from or (view.info.cluster if view.info is not None else "")
    if recorded in ("", cluster):
        return None
    remedy = "Correct kafka.bootstrap.servers: a sink does not move to another cluster."
    if filled_from:
        return f"the table was filled from the Kafka cluster {filled_from}, this one is {cluster}. {remedy}"
    return (
        f"the sink began to read the Kafka cluster {recorded}, this one is {cluster}. {remedy} Nothing has landed: if"
        " the first one was wrong, stop all workers and run `sink reset --forget --yes`."
    )


def next_step(
    view: KeeperView,
    table: TableView,
    log: LogView,
    config: CoordinatorConfig,
    limits: Limits,
    due: bool,
    bytes_per_offset: float | None = None,
) -> Step | None:
    """Decides the next step; None: there is nothing to do now. `due`: the interval since the last new batch has passed;
    a batch that is full by `limits` does not wait. `bytes_per_offset` is None while nothing was measured. Nothing is
    planned from an incomplete reading: a batch would be grouped from a part of its ranges.
    """
    if not view.is_complete:
        return None
    topics = {*config.topics, *(log.matching or ())}
    survey = batches.survey(view.states, log, topics, config.on_data_loss, _reset(view.states, log, config))
    if survey.halt is not None or survey.lost:
        # An open transaction may have read its records before the log lost them: let it end first.
        if view.transactions:
            return None
        return survey.halt or SkipGaps(*batches.skipped(view.states, survey.lost))
    batch = batches.next_batch(survey.states, [t.header.batch for t in view.transactions])
    if batch is not None:
        return _re_form(survey.states, batch, view, log, config)
    number = next_number(view)
    ranges = plan_ranges(survey.states, survey.ends, limits, number)
    should_plan = (due or is_full(survey.ends, ranges, limits)) if ranges else (due and config.allow_empty)
    if should_plan or _must_publish(survey.states, table, config):
        tasks = _task_count(view, ranges, config, bytes_per_offset)
        limited = write_tasks.with_task_limit(ranges, tasks)
        changed = {**survey.new_partitions, **batches.extended(survey.states, limited)}
        return _open(number, 1, write_tasks.of_batch({**survey.states, **changed}, number), changed, log)
    return RecordPartitions(survey.new_partitions) if survey.new_partitions else None


def _reset(states: States, log: LogView, config: CoordinatorConfig) -> OffsetReset:
    """Returns where a new topic begins. A topic that came to match later is read whole: its first records are older
    than the reading that found it.
    """
    return OffsetReset.EARLIEST if log.matching is not None and states else config.reset


def _task_count(
    view: KeeperView,
    ranges: Mapping[TopicPartition, OpenRange],
    config: CoordinatorConfig,
    bytes_per_offset: float | None,
) -> int:
    """Counts write tasks once, when the batch is planned: from then on the record decides."""
    offsets = sum(new_range.end - new_range.start for new_range in ranges.values())
    cores = write_tasks.cores(view.members, config.single_writer)
    return write_tasks.max_task_count(offsets, bytes_per_offset, cores, config.task_sizes)


def _must_publish(states: States, table: TableView, config: CoordinatorConfig) -> bool:
    """Whether the checkpoint has to be published again though nothing is new: before archiving goes past it, and when
    it does not carry a reset or a skipped gap yet, which would be lost with ZooKeeper.
    """
    checkpoint = table.checkpoint
    if checkpoint is None:
        return False
    raised = (
        source in checkpoint.ends and state.generation > checkpoint.ends[source].generation
        for source, state in states.items()
    )
    return table.commits_since >= config.republish_after or any(raised)


def _re_form(states: States, batch: int, view: KeeperView, log: LogView, config: CoordinatorConfig) -> Step:
    attempt = view.ledger.attempts.get(batch, 0) + 1
    if attempt > config.divide_after:
        remainder = next_number(view)
        divided = batches.divided(states, batch, remainder)
        if divided:
            return SplitBatch(batch, remainder, divided, sum(piece.size for piece in batches.slices_of(states, batch)))
    return _open(batch, attempt, write_tasks.of_batch(states, batch), {}, log)


def _open(batch: int, attempt: int, tasks: tuple[WriteTask, ...], changed: States, log: LogView) -> Step:
    """Opens no batch that the table's columns cannot hold; a checkpoint alone needs no columns."""
    if tasks and log.schema_conflict is not None:
        return Halt(log.schema_conflict.kind, log.schema_conflict.reason)
    return OpenBatch(batch, attempt, tasks, changed, log.cluster, log.columns)
