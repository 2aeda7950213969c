"""Plans and writes an operator's reset: it clears halts, moves partitions, and drops records of intent.

The table's checkpoint is the truth, so a reset never touches the table. It changes ZooKeeper's records, under a raised
generation, and the next commit carries them into the table. Until that commit a reset lives in ZooKeeper alone: if
ZooKeeper is emptied before, the sink goes on from the table's checkpoint without the reset, which loses and repeats
nothing. A generation is raised above any that ZooKeeper or a checkpoint on the timeline ever had for the partition, so
that no file id is used twice. A live worker that is not a member may still try to write. The reset takes the
coordinator's lock and a new epoch, so that ZooKeeper refuses such a write. Errors: ConfigError, Conflict (workers
are alive, or a transaction has to be finished first), TableError, Unavailable, OutcomeUnknown.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from coordination.errors import ConfigError, Conflict
from coordination.machines import recovery, writes
from coordination.state import tree
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import NO_TRANSACTION, Checkpoint, Gap, LogView, PartitionState, Phase, TopicPartition
from coordination.state.phases import enter
from coordination.state.tree import Create, Delete, KeeperView, Ledger, Op, Transaction
from sink.operations.reset_checks import (
    INTERRUPTED,
    refuse_if_interrupted,
    refuse_to_leave_out,
    refuse_to_skip,
    require_no_live_workers,
)


class Position(Enum):
    """The position at which reading resumes."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """The operator's request. Without `to` and `offsets` it only clears a halt. Empty `topics` means all."""

    to: Position | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    topics: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        return self.to is not None or bool(self.offsets)

    @property
    def needs_log(self) -> bool:
        return bool(self.offsets) or self.to in (Position.EARLIEST, Position.LATEST)


def with_offsets(request: ResetRequest, positions: Mapping[TopicPartition, int]) -> ResetRequest:
    """Returns the request to resume at the positions of its topics. Raises ConfigError."""
    require_known(request.topics, {partition.topic for partition in positions})
    chosen = {
        partition: offset
        for partition, offset in positions.items()
        if not request.topics or partition.topic in request.topics
    }
    return replace(request, offsets=chosen)


def require_known(topics: Collection[str], existing: Collection[str]) -> None:
    if unknown := sorted(set(topics) - set(existing)):
        raise ConfigError(f"--topic: nothing is known of {', '.join(unknown)}. See `sink status`.")


@dataclass(frozen=True, slots=True)
class TimelineSnapshot:
    """A sink's part of the table's timeline. `generations`: the highest in any checkpoint, by partition."""

    checkpoint: Checkpoint | None
    generations: Mapping[TopicPartition, int]
    completed: frozenset[str]
    pending: frozenset[str]


NO_TABLE = TimelineSnapshot(None, {}, frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that resumes elsewhere. `committed_end` is that of this topic id, None without any; `is_gone`: the
    topic no longer has the partition. `abandoned_offsets`: planned offsets of a deleted topic.
    """

    source: TopicPartition
    committed_end: int | None
    after: PartitionState
    is_gone: bool = False
    abandoned_offsets: int = 0

    @property
    def effect(self) -> str:
        if self.abandoned_offsets:
            return f"is no more; gives up {self.abandoned_offsets:,} planned offsets"
        if self.is_gone:
            return "is no more; starts here if it is added again"
        to = self.after.end
        if self.committed_end is None:
            return "starts here"
        if to < self.committed_end:
            return f"reads {self.committed_end - to:,} offsets again: their rows will be in the table twice"
        return (
            f"leaves out {to - self.committed_end:,} offsets, recorded as a gap"
            if to > self.committed_end
            else "as before"
        )


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset, ready to be written on top of the view that it was planned from."""

    halt: Halt | None
    moves: tuple[Move, ...]
    aborted: tuple[Transaction, ...]
    changed: Mapping[TopicPartition, PartitionState]
    ledger: Ledger | None

    @property
    def is_empty(self) -> bool:
        return self.halt is None and not self.moves and not self.aborted and self.ledger is None


def plan_reset(view: KeeperView, request: ResetRequest, table: TimelineSnapshot, log: LogView | None) -> Reset:
    """Plans the reset that `request` asks for. Pure, except for the wall clock in the records."""
    require_no_live_workers([member.worker for member in view.members])
    if not request.moves:
        refuse_if_interrupted(view)
        return Reset(view.halt, (), (), {}, None)
    aborted = tuple(_transactions_to_abort(view.transactions, table))
    positions = _requested_positions(request, table, log)
    gone_partitions = (
        _gone_partitions(view, table, log, {partition.topic for partition in positions}) if log is not None else {}
    )
    deleted_partitions = _deleted_partitions(view, request, log) if log is not None else {}
    moves = tuple(
        Move(
            partition,
            _committed_end(view, table, partition, topic_id),
            _state_after_move(view, table, partition, topic_id, offset),
            partition in gone_partitions,
            view.states[partition].planned_end - offset if partition in deleted_partitions else 0,
        )
        for partition, (topic_id, offset) in sorted((positions | gone_partitions | deleted_partitions).items())
    )
    moved_states = {move.source: move.after for move in moves}
    refuse_to_leave_out(view, table.checkpoint, moved_states)
    # This brings the ledger level with the table: unmoved partitions of a tree that was behind follow the table.
    changed = {**recovery.followed_states(view.states, view.ledger, table.checkpoint), **moved_states}
    ledger = _ledger(view, table, moves, changed)
    refuse_to_skip(view, table.checkpoint, changed, ledger)
    return Reset(view.halt, moves, aborted, changed, ledger)


def _transactions_to_abort(transactions: Sequence[Transaction], table: TimelineSnapshot) -> Iterator[Transaction]:
    """Yields the transactions to abort, which the next coordinator rolls back. Raises Conflict for a decided one."""
    for transaction in transactions:
        header = transaction.header
        if header.phase is Phase.COMMITTED or header.instant in table.completed:
            raise Conflict(
                f"transaction {header.number} is in the table but not settled. Start a worker, wait until"
                " `sink status` shows no open transaction, stop it, then reset."
            )
        if header.phase is Phase.PREPARED and header.instant in table.pending:
            raise Conflict(
                f"transaction {header.number} is decided (PREPARED) and can still be committed. Start a"
                " worker, wait until `sink status` shows no open transaction, stop it, then reset."
            )
        if header.phase is not Phase.ABORTED:
            yield transaction


def _requested_positions(
    request: ResetRequest, table: TimelineSnapshot, log: LogView | None
) -> dict[TopicPartition, tuple[str, int]]:
    """Returns topic id and offset by partition."""
    if request.to is Position.CHECKPOINT:
        if table.checkpoint is None:
            raise ConfigError("the table has no checkpoint of this sink. Use --to earliest, --to latest or --forget.")
        positions = {
            partition: (table.checkpoint.topics[partition.topic], committed.end)
            for partition, committed in table.checkpoint.ends.items()
        }
    else:
        assert log is not None
        logs = log.partitions
        if request.offsets:
            for partition, offset in request.offsets.items():
                log_range = logs.get(partition)
                if log_range is None:
                    raise ConfigError(f"{partition} is not a partition of the topics. See `sink status`.")
                if not log_range.start <= offset <= log_range.end:
                    raise ConfigError(
                        f"{partition}: offset {offset} is outside the log, [{log_range.start}, {log_range.end}]"
                    )
            return {partition: (logs[partition].topic_id, offset) for partition, offset in request.offsets.items()}
        is_earliest = request.to is Position.EARLIEST
        positions = {
            partition: (log_range.topic_id, min(log_range.start, log_range.end) if is_earliest else log_range.end)
            for partition, log_range in logs.items()
        }
    chosen_positions = {
        partition: position
        for partition, position in positions.items()
        if not request.topics or partition.topic in request.topics
    }
    require_known(
        request.topics,
        {*(partition.topic for partition in chosen_positions), *(log.deleted if log is not None else ())},
    )
    return chosen_positions


def _gone_partitions(
    view: KeeperView, table: TimelineSnapshot, log: LogView, topics: set[str]
) -> dict[TopicPartition, tuple[str, int]]:
    """Returns partitions that `topics` no longer have, with the present id and offset 0. The checkpoint has one id for
    a topic, and a partition that is added again is read from offset 0. A partition that was read under the present id
    is only missing.
    """
    ids = {
        partition.topic: log_range.topic_id
        for partition, log_range in log.partitions.items()
        if partition.topic in topics
    }
    checkpoint = table.checkpoint
    last_positions: dict[TopicPartition, tuple[str, int]] = {}
    if checkpoint is not None:
        last_positions = {
            partition: (checkpoint.topics[partition.topic], committed.end)
            for partition, committed in checkpoint.ends.items()
        }
    last_positions |= {partition: (state.topic_id, state.planned_end) for partition, state in view.states.items()}
    return {
        partition: (ids[partition.topic], 0)
        for partition, (topic_id, end) in last_positions.items()
        if partition.topic in ids and partition not in log.partitions and (topic_id != ids[partition.topic] or end == 0)
    }


def _deleted_partitions(view: KeeperView, request: ResetRequest, log: LogView) -> dict[TopicPartition, tuple[str, int]]:
    """Returns partitions of deleted topics with planned offsets; they stay at the committed end."""
    if request.offsets:
        return {}
    return {
        partition: (state.topic_id, state.end)
        for partition, state in view.states.items()
        if state.open and partition.topic in log.deleted and (not request.topics or partition.topic in request.topics)
    }


def _committed_end(view: KeeperView, table: TimelineSnapshot, partition: TopicPartition, topic_id: str) -> int | None:
    """Returns the committed end of a partition under a topic id: by the checkpoint, else by ZooKeeper."""
    checkpoint = table.checkpoint
    if checkpoint is not None and partition in checkpoint.ends:
        return checkpoint.ends[partition].end if checkpoint.topics[partition.topic] == topic_id else None
    state = view.states.get(partition)
    return state.end if state is not None and state.end > state.start and state.topic_id == topic_id else None


def _state_after_move(
    view: KeeperView, table: TimelineSnapshot, partition: TopicPartition, topic_id: str, offset: int
) -> PartitionState:
    state = view.states.get(partition)
    used_generations = [table.generations.get(partition, -1)]
    if state is not None:
        used_generations += [state.generation, *(open_range.generation for open_range in state.open)]
    return PartitionState(topic_id, offset, offset, max(used_generations) + 1)


def _ledger(
    view: KeeperView, table: TimelineSnapshot, moves: Sequence[Move], changed: Collection[TopicPartition]
) -> Ledger:
    checkpoint = table.checkpoint
    number = checkpoint.number if checkpoint else NO_TRANSACTION
    committed = dict.fromkeys(checkpoint.gaps if checkpoint else ())
    # A gap without a commit is dropped if its partition moves: the offsets are read, or a new gap is declared.
    uncommitted_gaps = (gap for gap in view.ledger.gaps if gap not in committed)
    kept_gaps = [gap for gap in uncommitted_gaps if TopicPartition(gap.topic, gap.partition) not in changed]
    known_gaps = committed | dict.fromkeys(kept_gaps)
    new_gaps = [
        Gap(move.source.topic, move.source.partition, move.committed_end, move.after.end)
        for move in moves
        if move.committed_end is not None and move.after.end > move.committed_end
    ]
    return replace(
        view.ledger,
        last=max(view.ledger.last, view.highest, number),
        committed=number,
        attempts={},
        gaps=(*known_gaps, *(gap for gap in new_gaps if gap not in known_gaps)),
    )


def write_plans(view: KeeperView, reset: Reset) -> tuple[tuple[Op, ...], ...]:
    """Returns the multis that write `reset`, without the fence. The sink is halted until the last one is written."""
    wall = time.time()
    ops: list[Op] = [
        tree.header_op(
            enter(transaction.header, Phase.ABORTED, wall, reason="abandoned by an operator's reset"),
            transaction.version,
        )
        for transaction in reset.aborted
    ]
    ops += tree.shard_ops(view, reset.changed) if reset.changed else ()
    clear = () if reset.halt is None else (Delete(tree.HALT),)
    if reset.ledger is None:
        return tree.batched(ops, clear)
    multis = tree.batched(ops, clear)
    if len(multis) > 1:
        # The reset declares its gaps last. No coordinator may go on from half of it, and no reset that moves nothing
        # may end this halt, as it may end the one before.
        mark = Create(tree.HALT, tree.halt_data(Halt(HaltKind.RESET_INTERRUPTED, INTERRUPTED, at=wall)))
        multis = ((*clear, mark), *tree.batched(ops, [Delete(tree.HALT)]))
    return writes.ordered(view, "reset", multis, reset.ledger).multis
