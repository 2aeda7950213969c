"""Makes the next transaction from recorded states and the log, or says why there is none. Pure.

A survey reconciles every partition with its log; a proposal is the next batch with its tasks assigned. Recorded ranges
come first and keep their shape; new ranges are planned after them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.planning import assignment, offsets, slicing, write_tasks
from coordination.planning.offsets import DataLossPolicy, Invalid, LostPrefix, New, OffsetReset
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import (
    Gap,
    LogView,
    Member,
    OpenRange,
    PartitionState,
    Plan,
    Slice,
    TopicPartition,
    WriteTask,
)

States = Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class Survey:
    """Every partition reconciled with its log. `states` includes new partitions, `new_partitions` only those; `ends`
    are readable ends. `lost` holds skippable gaps; `halt` is set when the sink has to halt.
    """

    states: States
    new_partitions: States
    ends: Mapping[TopicPartition, int]
    lost: tuple[LostPrefix, ...]
    halt: Halt | None


def unfinished_topics(states: States, configured: Collection[str]) -> tuple[str, ...]:
    """Returns the topics that are not configured by name, and have a range to re-form."""
    return tuple(sorted({source.topic for source, state in states.items() if state.open}.difference(configured)))


def survey(states: States, log: LogView, topics: Collection[str], policy: DataLossPolicy, reset: OffsetReset) -> Survey:
    known_topics = {source.topic for source in states}
    topics_read = {source.topic for source, state in states.items() if state.open or state.end > state.start}
    ids = {source.topic: log_range.topic_id for source, log_range in log.partitions.items()}
    recorded = {s for s in states if s.topic in topics and not _is_awaited(states[s], ids.get(s.topic))}
    lost_while_planned = {s for s in states if s.topic in log.deleted and states[s].open}
    watched = recorded | lost_while_planned | set(log.partitions)
    new_partitions: dict[TopicPartition, PartitionState] = {}
    ends: dict[TopicPartition, int] = {}
    lost: list[LostPrefix] = []
    halt: Halt | None = None
    for source in sorted(watched):
        start = OffsetReset.EARLIEST if source.topic in known_topics else reset
        decision = offsets.reconcile(source, states.get(source), log.partitions.get(source), policy, start)
        match decision:
            case Invalid(kind, reason):
                halt = halt or Halt(kind, reason, source.topic, source.partition)
            case LostPrefix(gap=gap, halt=True, reason=reason):
                halt = halt or Halt(HaltKind.OFFSETS_DELETED, reason, source.topic, source.partition, gap.start)
            case LostPrefix():
                lost.append(decision)
            case New(state) if state.start > 0 and source.topic in topics_read:
                # The topic was read when it was added: what expired before anybody looked is a gap of the next survey.
                new_partitions[source] = replace(state, start=0, end=0)
            case New(state, readable_to):
                new_partitions[source], ends[source] = state, readable_to
            case _:
                ends[source] = decision.readable_to
    return Survey({**states, **new_partitions}, new_partitions, ends, tuple(lost), halt)


def _is_awaited(state: PartitionState, topic_id: str | None) -> bool:
    """Whether nothing of the partition was ever planned: then the topic need not have it. If a topic comes back with
    fewer partitions, a reset leaves the missing ones in this state: one that is added again is read whole.
    """
    return state.topic_id == topic_id and state.planned_end == 0


def skipped(states: States, lost: Iterable[LostPrefix]) -> tuple[dict[TopicPartition, PartitionState], tuple[Gap, ...]]:
    """Returns the states changed by skipping gaps: the gaps' own partitions go on behind them, and every other
    partition of an abandoned batch drops its range, to be planned anew.
    """
    abandoned = {open_range.batch for loss in lost for open_range in loss.abandoned}
    changed: dict[TopicPartition, PartitionState] = {}
    for source, state in states.items():
        first_abandoned = next((i for i, r in enumerate(state.open) if r.batch in abandoned), None)
        if first_abandoned is not None:
            changed[source] = replace(state, open=state.open[:first_abandoned])
    for loss in lost:
        changed[TopicPartition(loss.gap.topic, loss.gap.partition)] = loss.state
    return changed, tuple(loss.gap for loss in lost)


def next_batch(states: States, open_batches: Collection[int]) -> int | None:
    """Returns the recorded batch to be re-formed next: in no open transaction, and first in each of its partitions.
    Order is the order in the partitions, not of the numbers: the rest of a divided batch has a late number.
    """
    waiting: set[int] = set()
    behind: set[int] = set()
    for state in states.values():
        queue = [r.batch for r in state.open if r.batch not in open_batches]
        waiting.update(queue[:1])
        behind.update(batch for batch in queue[1:] if batch != queue[0])
    return min(waiting - behind, default=None)


def slices_of(states: States, batch: int) -> tuple[Slice, ...]:
    """Returns the slices of a batch: cut from its recorded ranges, always the same."""
    return tuple(
        piece
        for source, state in sorted(states.items())
        for recorded in state.open
        if recorded.batch == batch
        for piece in slicing.cut(source, state.topic_id, recorded)
    )


def extended(states: States, ranges: Mapping[TopicPartition, OpenRange]) -> dict[TopicPartition, PartitionState]:
    """Returns the states changed by recording new ranges as BEFORE."""
    return {source: replace(states[source], open=(*states[source].open, planned)) for source, planned in ranges.items()}


def assigned(
    tasks: Sequence[WriteTask],
    members: Sequence[Member],
    writers: Mapping[TopicPartition, str],
    left_out: Collection[str],
    attempt: int,
    sink: str,
    single_writer: bool,
) -> Plan:
    """Assigns the tasks of a batch. `single_writer`: whether one worker must write alone."""
    if single_writer:
        return assignment.assign_to_one(tasks, members, sink, left_out, attempt)
    return assignment.assign(tasks, members, writers, left_out, attempt, sink)


def divided(states: States, batch: int, remainder: int) -> dict[TopicPartition, PartitionState]:
    """Returns the states changed by dividing a batch that keeps failing: about half of it keeps its number, the rest
    becomes batch `remainder`; empty when there is nothing left to divide. The caller has confirmed the rollback first.

    No task of either part reads more than half of the largest before, lone records excepted.
    """
    first, second = assignment.split(slices_of(states, batch))
    if not second:
        return {}
    task_limit = max(1, max(task.size for task in write_tasks.of_batch(states, batch)) // 2)
    kept_ends: dict[TopicPartition, int] = {}
    for piece in first:
        kept_ends[piece.source] = max(kept_ends.get(piece.source, 0), piece.end)
    changed: dict[TopicPartition, PartitionState] = {}
    for source, state in states.items():
        parts = [
            _lowered(part, task_limit) if r.batch == batch else part
            for r in state.open
            for part in _divide(r, batch, remainder, kept_ends.get(source, r.start))
        ]
        if tuple(parts) != state.open:
            changed[source] = replace(state, open=tuple(parts))
    return changed


def _divide(recorded: OpenRange, batch: int, remainder: int, split_at: int) -> tuple[OpenRange, ...]:
    if recorded.batch != batch or split_at >= recorded.end:
        return (recorded,)
    tail = replace(recorded, start=max(split_at, recorded.start), batch=remainder)
    return (tail,) if split_at <= recorded.start else (replace(recorded, end=split_at), tail)


def _lowered(part: OpenRange, task_limit: int) -> OpenRange:
    return replace(part, step=min(part.step, task_limit), task_records=min(part.task_records, task_limit))
