"""Compares what ZooKeeper records with the table's own checkpoint. Pure functions that raise nothing.

The table's timeline is the truth. The coordinator advances a ZooKeeper that is behind, and rebuilds one that is empty.
If ZooKeeper is ahead, somebody restored or deleted the table: the sink halts, and an operator decides. It also halts if
the fleet of another ZooKeeper tree commits to the table under the same sink name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordination.state.failures import HaltKind
from coordination.state.model import NO_TRANSACTION, Checkpoint, PartitionCheckpoint, PartitionState, TopicPartition
from coordination.state.tree import KeeperInfo, Ledger


@dataclass(frozen=True, slots=True)
class InStep:
    """ZooKeeper and the table agree: there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Advance:
    """ZooKeeper is behind or empty: write these states and this ledger."""

    changed: Mapping[TopicPartition, PartitionState]
    """The new states of the partitions that differ."""
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Ahead:
    """ZooKeeper records commits that the table does not have, or another fleet commits: halt with this reason."""

    kind: HaltKind
    reason: str


Comparison = InStep | Advance | Ahead


def compare_with_table(
    states: Mapping[TopicPartition, PartitionState], ledger: Ledger, checkpoint: Checkpoint | None
) -> Comparison:
    """Compares the recorded states and ledger with the newest checkpoint, None if the table has none of this sink.

    Valid only while no open transaction's instant is complete. Such a transaction has committed to the table and is not
    settled in ZooKeeper yet, so that the two differ without a fault.
    """
    number = checkpoint.number if checkpoint else NO_TRANSACTION
    if number < ledger.committed:
        table_state = f"ends at transaction {number}" if checkpoint else "has no checkpoint of this sink"
        return Ahead(
            HaltKind.TABLE_BEHIND,
            f"ZooKeeper records transaction {ledger.committed} as committed, but the table {table_state}: the table was"
            " restored or deleted. Decide with `sink reset`.",
        )
    changed = followed_states(states, ledger, checkpoint)
    for partition, state in states.items():
        table_end = checkpoint.ends.get(partition) if checkpoint else None
        is_ahead = state.end > (table_end.end if table_end else state.start)
        # Another generation that does not follow the table is an operator's reset: its end need not be committed.
        is_same_generation = table_end is None or state.generation == table_end.generation
        if is_ahead and is_same_generation and partition not in changed:
            return Ahead(
                HaltKind.TABLE_BEHIND,
                f"ZooKeeper records {partition} as committed up to {state.end}, the table only up to"
                f" {table_end.end if table_end else state.start}: the table was restored. Decide with `sink reset`.",
            )
    if checkpoint is None or (not changed and ledger.committed == number and ledger.last >= number):
        return InStep()
    # Gaps that no commit carries yet stay, except those of partitions that follow the table.
    committed_gaps = set(checkpoint.gaps)
    uncommitted_gaps = (gap for gap in ledger.gaps if gap not in committed_gaps)
    kept_gaps = (gap for gap in uncommitted_gaps if TopicPartition(gap.topic, gap.partition) not in changed)
    return Advance(
        changed,
        Ledger(max(ledger.last, number), number, ledger.attempts, (*checkpoint.gaps, *kept_gaps), ledger.history),
    )


def followed_states(
    states: Mapping[TopicPartition, PartitionState], ledger: Ledger, checkpoint: Checkpoint | None
) -> dict[TopicPartition, PartitionState]:
    """Returns the new states of the partitions whose record has to follow the table."""
    if checkpoint is None:
        return {}
    is_behind = checkpoint.number > ledger.committed
    changed: dict[TopicPartition, PartitionState] = {}
    for partition, table_end in checkpoint.ends.items():
        state = states.get(partition)
        topic_id = checkpoint.topics[partition.topic]
        if state is None:
            changed[partition] = _settled_at(table_end, topic_id)
        elif _has_to_follow(state, table_end, is_behind):
            changed[partition] = _following(state, table_end, topic_id)
    return changed


def foreign(checkpoint: Checkpoint | None, info: KeeperInfo, number_seen: int | None) -> Ahead | None:
    """Returns a halt if the fleet of another ZooKeeper tree has committed since this term last found ZooKeeper and the
    table in step, else None. `number_seen` is the checkpoint's number at that time; None before it. A checkpoint of
    another tree proves nothing by itself: a tree that was lost leaves its checkpoints in the table.
    """
    if checkpoint is None or checkpoint.keeper == info.uuid or number_seen in (None, checkpoint.number):
        return None
    return Ahead(
        HaltKind.ANOTHER_FLEET,
        f"another fleet commits under the sink name {checkpoint.sink!r}: transaction {checkpoint.number} of the table"
        f" comes from the ZooKeeper tree {checkpoint.keeper}, and ours is {info.uuid}. Stop one of the two fleets, or"
        " give it another sink.name.",
    )


def _has_to_follow(state: PartitionState, table_end: PartitionCheckpoint, is_behind: bool) -> bool:
    """Returns whether the record of a partition has to follow the table. A record with a higher generation is a reset
    or a skipped gap that no commit carries yet: it stands. In a tree that `is_behind` the table, any difference follows
    the table: such a tree was restored from a backup, and the table may have gone on without it.
    """
    recorded, committed = (state.generation, state.end), (table_end.generation, table_end.end)
    return recorded < committed or (is_behind and recorded != committed)


def _following(state: PartitionState, table_end: PartitionCheckpoint, topic_id: str) -> PartitionState:
    """Returns the state settled up to the table's end. Open ranges stay if they continue there without a hole."""
    if state.generation != table_end.generation or state.end > table_end.end:
        return _settled_at(table_end, topic_id)
    kept_ranges = tuple(open_range for open_range in state.open if open_range.start >= table_end.end)
    if kept_ranges and kept_ranges[0].start != table_end.end:
        kept_ranges = ()
    return PartitionState(topic_id, state.end, table_end.end, table_end.generation, kept_ranges, table_end.anchor)


def _settled_at(table_end: PartitionCheckpoint, topic_id: str) -> PartitionState:
    """Returns the state of a partition that has nothing open and is settled at the table's end."""
    return PartitionState(topic_id, table_end.end, table_end.end, table_end.generation, anchor=table_end.anchor)
