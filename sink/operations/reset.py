"""Plans what an operator's reset changes, and writes it: clears halts, moves partitions, drops records of intent.

The table's checkpoint is the truth, so a reset never touches the table: it changes what ZooKeeper records, under a
raised generation, and the next commit carries that into the table. Until that commit a reset lives in ZooKeeper alone:
if ZooKeeper is emptied before, the sink goes on from the table's checkpoint as if there had been no reset, which loses
and repeats nothing. A generation is raised above any that ZooKeeper or a checkpoint on the timeline ever had for the
partition, so that no file id is used twice. A worker that is alive but no member may still try to write: the reset
takes the coordinator's own lock and a new epoch, so that ZooKeeper refuses that. Errors: ConfigError, Conflict (workers
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
from coordination.state.model import (
    NO_TRANSACTION,
    Checkpoint,
    Gap,
    LogView,
    PartitionState,
    Phase,
    TopicPartition,
)
from coordination.state.phases import enter
from coordination.state.tree import Create, Delete, Halt, KeeperView, Ledger, Op, Transaction

NAMED = 5
"""Partitions in a message: there may be thousands."""
INTERRUPTED = "a `sink reset` or `sink adopt` was interrupted: run it again, as it was"


class Position(Enum):
    """Where to resume reading."""

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
    """Returns the request to resume at these positions, where they are of its topics. Raises ConfigError."""
    require_known(request.topics, {source.topic for source in positions})
    chosen = {s: offset for s, offset in positions.items() if not request.topics or s.topic in request.topics}
    return replace(request, offsets=chosen)


def require_known(topics: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(topics) - set(known)):
        raise ConfigError(f"--topic: nothing is known of {', '.join(unknown)}; see `sink status`")


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
    """A partition that resumes elsewhere. `reached` is the committed end of this topic id, None without any; `gone`:
    the topic no longer has the partition. `given_up`: planned offsets of a deleted topic.
    """

    source: TopicPartition
    reached: int | None
    after: PartitionState
    gone: bool = False
    given_up: int = 0

    @property
    def effect(self) -> str:
        if self.given_up:
            return f"is no more; gives up {self.given_up:,} planned offsets"
        if self.gone:
            return "is no more; starts here if it is added again"
        to = self.after.end
        if self.reached is None:
            return "starts here"
        if to < self.reached:
            return f"reads {self.reached - to:,} offsets again: their rows will be in the table twice"
        return f"leaves out {to - self.reached:,} offsets, recorded as a gap" if to > self.reached else "as before"


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


def require_no_live_workers(workers: Sequence[str]) -> None:
    """Raises Conflict while there are live workers."""
    if workers:
        raise Conflict(
            f"workers are alive ({', '.join(workers)}); stop them first, and wait until their sessions have ended"
        )


def plan_reset(view: KeeperView, request: ResetRequest, table: TimelineSnapshot, log: LogView | None) -> Reset:
    """Plans the reset that `request` asks for. Pure, except for the wall clock in the records."""
    require_no_live_workers([member.worker for member in view.members])
    if not request.moves:
        return Reset(view.halt, (), (), {}, None)
    aborted = tuple(_abandoned(view.transactions, table))
    positions = _positions(request, table, log)
    gone = _gone(view, table, log, {source.topic for source in positions}) if log is not None else {}
    deleted = _deleted(view, request, log) if log is not None else {}
    moves = tuple(
        Move(
            source,
            _reached(view, table, source, topic_id),
            _moved(view, table, source, topic_id, offset),
            source in gone,
            view.states[source].planned_end - offset if source in deleted else 0,
        )
        for source, (topic_id, offset) in sorted((positions | gone | deleted).items())
    )
    moved = {move.source: move.after for move in moves}
    _refuse_to_leave_out(view, table, moved)
    # After this the ledger is level with the table: what is not moved, in a tree that was behind, follows it now.
    changed = {**recovery.followed(view.states, view.ledger, table.checkpoint), **moved}
    return Reset(view.halt, moves, aborted, changed, _ledger(view, table, moves, changed))


def _refuse_to_leave_out(view: KeeperView, table: TimelineSnapshot, moved: Collection[TopicPartition]) -> None:
    """Raises ConfigError where the table is older than it was, and a partition is not moved: it would go on beyond what
    the table holds. Its higher generation proves nothing then.
    """
    number, ends = (table.checkpoint.number, table.checkpoint.ends) if table.checkpoint else (NO_TRANSACTION, {})
    if number >= view.ledger.committed:
        return
    table_ends = {source: ends[source].end if source in ends else 0 for source in view.states}
    left = sorted(
        source for source, state in view.states.items() if source not in moved and state.end > table_ends[source]
    )
    if left:
        named = ", ".join(map(str, left[:NAMED])) + (", ..." if len(left) > NAMED else "")
        raise ConfigError(
            f"the table was restored or deleted: it ends at transaction {number}, ZooKeeper at {view.ledger.committed};"
            f" {named} would go on beyond what it holds. Move all partitions (--to checkpoint); where one was read"
            " first after that transaction, use --forget, which begins there anew"
        )


def _abandoned(transactions: Sequence[Transaction], table: TimelineSnapshot) -> Iterator[Transaction]:
    """Yields transactions to be aborted, so that the next coordinator rolls them back. Raises Conflict for a decided
    one.
    """
    for t in transactions:
        header = t.header
        if header.phase is Phase.COMMITTED or header.instant in table.completed:
            raise Conflict(
                f"transaction {header.number} is in the table but not settled; start a worker, wait until"
                " `sink status` shows no open transaction, stop it, then reset"
            )
        if header.phase is Phase.PREPARED and header.instant in table.pending:
            raise Conflict(
                f"transaction {header.number} is decided (PREPARED) and can still be committed; start a"
                " worker, wait until `sink status` shows no open transaction, stop it, then reset"
            )
        if header.phase is not Phase.ABORTED:
            yield t


def _positions(
    request: ResetRequest, table: TimelineSnapshot, log: LogView | None
) -> dict[TopicPartition, tuple[str, int]]:
    """Returns topic id and offset by partition."""
    if request.to is Position.CHECKPOINT:
        if table.checkpoint is None:
            raise ConfigError("the table has no checkpoint of this sink; use --to earliest, --to latest or --forget")
        positions = {
            source: (table.checkpoint.topics[source.topic], reached.end)
            for source, reached in table.checkpoint.ends.items()
        }
    else:
        assert log is not None
        logs = log.partitions
        if request.offsets:
            for source, offset in request.offsets.items():
                log_range = logs.get(source)
                if log_range is None:
                    raise ConfigError(f"{source} is not a partition of the topics; see `sink status`")
                if not log_range.start <= offset <= log_range.end:
                    raise ConfigError(
                        f"{source}: offset {offset} is outside the log, [{log_range.start}, {log_range.end}]"
                    )
            return {source: (logs[source].topic_id, offset) for source, offset in request.offsets.items()}
        earliest = request.to is Position.EARLIEST
        positions = {
            source: (log_range.topic_id, min(log_range.start, log_range.end) if earliest else log_range.end)
            for source, log_range in logs.items()
        }
    chosen = {s: p for s, p in positions.items() if not request.topics or s.topic in request.topics}
    require_known(request.topics, {*(source.topic for source in chosen), *(log.deleted if log is not None else ())})
    return chosen


def _gone(
    view: KeeperView, table: TimelineSnapshot, log: LogView, topics: set[str]
) -> dict[TopicPartition, tuple[str, int]]:
    """Returns partitions that these topics no longer have, with the present id and offset 0: the checkpoint has one id
    for a topic, and a partition that is added again is read from there. A partition that was read under this id is only
    missing.
    """
    ids = {source.topic: log_range.topic_id for source, log_range in log.partitions.items() if source.topic in topics}
    checkpoint = table.checkpoint
    known: dict[TopicPartition, tuple[str, int]] = {}
    if checkpoint is not None:
        known = {source: (checkpoint.topics[source.topic], at.end) for source, at in checkpoint.ends.items()}
    known |= {source: (state.topic_id, state.planned_end) for source, state in view.states.items()}
    return {
        source: (ids[source.topic], 0)
        for source, (topic_id, end) in known.items()
        if source.topic in ids and source not in log.partitions and (topic_id != ids[source.topic] or end == 0)
    }


def _deleted(view: KeeperView, request: ResetRequest, log: LogView) -> dict[TopicPartition, tuple[str, int]]:
    """Returns partitions of deleted topics with planned offsets, which stay at what is committed."""
    if request.offsets:
        return {}
    return {
        source: (state.topic_id, state.end)
        for source, state in view.states.items()
        if state.open and source.topic in log.deleted and (not request.topics or source.topic in request.topics)
    }


def _reached(view: KeeperView, table: TimelineSnapshot, source: TopicPartition, topic_id: str) -> int | None:
    """Returns the end of what the table holds of a topic id: by the checkpoint, else by ZooKeeper."""
    checkpoint = table.checkpoint
    if checkpoint is not None and source in checkpoint.ends:
        return checkpoint.ends[source].end if checkpoint.topics[source.topic] == topic_id else None
    state = view.states.get(source)
    return state.end if state is not None and state.end > state.start and state.topic_id == topic_id else None


def _moved(
    view: KeeperView, table: TimelineSnapshot, source: TopicPartition, topic_id: str, offset: int
) -> PartitionState:
    state = view.states.get(source)
    used = [table.generations.get(source, -1)]
    if state is not None:
        used += [state.generation, *(r.generation for r in state.open)]
    return PartitionState(topic_id, offset, offset, max(used) + 1)


def _ledger(
    view: KeeperView, table: TimelineSnapshot, moves: Sequence[Move], changed: Collection[TopicPartition]
) -> Ledger:
    checkpoint = table.checkpoint
    number = checkpoint.number if checkpoint else NO_TRANSACTION
    committed = dict.fromkeys(checkpoint.gaps if checkpoint else ())
    # What was to be left out of a partition that is moved before a commit says so is read, or declared again.
    own = (gap for gap in view.ledger.gaps if gap not in committed)
    kept = [gap for gap in own if TopicPartition(gap.topic, gap.partition) not in changed]
    known = committed | dict.fromkeys(kept)
    gaps = [
        Gap(move.source.topic, move.source.partition, move.reached, move.after.end)
        for move in moves
        if move.reached is not None and move.after.end > move.reached
    ]
    return replace(
        view.ledger,
        last=max(view.ledger.last, view.highest, number),
        committed=number,
        attempts={},
        gaps=(*known, *(gap for gap in gaps if gap not in known)),
    )


def write_plans(view: KeeperView, reset: Reset) -> tuple[tuple[Op, ...], ...]:
    """Returns the multis that write `reset`, without the fence. The sink is halted until the last one is written."""
    wall = time.time()
    ops: list[Op] = [
        tree.header_op(enter(t.header, Phase.ABORTED, wall, reason="abandoned by an operator's reset"), t.version)
        for t in reset.aborted
    ]
    ops += tree.shard_ops(view, reset.changed) if reset.changed else ()
    clear = () if reset.halt is None else (Delete(tree.HALT),)
    if reset.ledger is None:
        return tree.batched(ops, clear)
    multis = tree.batched(ops, clear)
    if reset.halt is None and len(multis) > 1:
        # The gaps that it makes are declared last: no coordinator may go on from the half of it.
        mark = Create(tree.HALT, tree.halt_data(Halt(INTERRUPTED, at=wall)))
        multis = ((mark,), *tree.batched(ops, [Delete(tree.HALT)]))
    return writes.ordered(view, "reset", multis, reset.ledger).multis
