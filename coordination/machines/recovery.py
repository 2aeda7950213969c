"""Compares ZooKeeper's record with the table's own checkpoint: one pure function.

The table's timeline is the truth. The coordinator advances a ZooKeeper that is behind, and rebuilds one that is empty.
If ZooKeeper is ahead, somebody restored or deleted the table, and only an operator can decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordination.state.failures import HaltKind
from coordination.state.model import NO_TRANSACTION, Checkpoint, PartitionCheckpoint, PartitionState, TopicPartition
from coordination.state.tree import KeeperInfo, Ledger


@dataclass(frozen=True, slots=True)
class InStep:
    """ZooKeeper and the table agree."""


@dataclass(frozen=True, slots=True)
class Advance:
    """ZooKeeper is behind or empty: write these states and this ledger."""

    changed: Mapping[TopicPartition, PartitionState]
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Ahead:
    """ZooKeeper claims more than the table holds, or another fleet does: halt."""

    kind: HaltKind
    reason: str


Comparison = InStep | Advance | Ahead


def compare_with_table(
    states: Mapping[TopicPartition, PartitionState], ledger: Ledger, checkpoint: Checkpoint | None
) -> Comparison:
    """Valid only while no open transaction's instant is complete: such an instant explains any difference by itself."""
    number = checkpoint.number if checkpoint else NO_TRANSACTION
    if number < ledger.committed:
        table_state = f"ends at transaction {number}" if checkpoint else "has no checkpoint of this sink"
        return Ahead(
            HaltKind.TABLE_BEHIND,
            f"ZooKeeper records transaction {ledger.committed} as committed, but the table {table_state}: the table was"
            " restored or deleted. Decide with `sink reset`.",
        )
    changed = followed(states, ledger, checkpoint)
    for source, state in states.items():
        table_end = checkpoint.ends.get(source) if checkpoint else None
        claims = state.end > (table_end.end if table_end else state.start)
        if claims and source not in changed and (table_end is None or state.generation == table_end.generation):
            return Ahead(
                HaltKind.TABLE_BEHIND,
                f"ZooKeeper records {source} as committed up to {state.end}, the table only up to"
                f" {table_end.end if table_end else state.start}: the table was restored. Decide with `sink reset`.",
            )
    if checkpoint is None or (not changed and ledger.committed == number and ledger.last >= number):
        return InStep()
    # A partition that follows the table drops the gaps that only ZooKeeper records.
    committed = set(checkpoint.gaps)
    uncommitted_gaps = (gap for gap in ledger.gaps if gap not in committed)
    kept_gaps = (gap for gap in uncommitted_gaps if TopicPartition(gap.topic, gap.partition) not in changed)
    return Advance(
        changed,
        Ledger(max(ledger.last, number), number, ledger.attempts, (*checkpoint.gaps, *kept_gaps), ledger.history),
    )


def followed(
    states: Mapping[TopicPartition, PartitionState], ledger: Ledger, checkpoint: Checkpoint | None
) -> dict[TopicPartition, PartitionState]:
    """Returns the states of partitions that have to follow the table."""
    if checkpoint is None:
        return {}
    is_behind = checkpoint.number > ledger.committed
    changed: dict[TopicPartition, PartitionState] = {}
    for source, table_end in checkpoint.ends.items():
        state = states.get(source)
        topic_id = checkpoint.topics[source.topic]
        if state is None:
            changed[source] = _settled_at(table_end, topic_id)
        elif _has_to_follow(state, table_end, is_behind):
            changed[source] = _following(state, table_end, topic_id)
    return changed


def foreign(checkpoint: Checkpoint | None, info: KeeperInfo, number_seen: int | None) -> Ahead | None:
    """Tells whether the fleet of another tree has committed since this term's first reading. `number_seen` is the
    number of the checkpoint in that reading. The first reading proves nothing: a lost tree leaves its checkpoints.
    """
    if checkpoint is None or checkpoint.keeper == info.uuid or number_seen in (None, checkpoint.number):
        return None
    return Ahead(
        HaltKind.ANOTHER_FLEET,
        f"another fleet commits under the sink name {checkpoint.sink!r}: transaction {checkpoint.number} of the table"
        f" comes from the keeper {checkpoint.keeper}, ours is {info.uuid}. Stop one of the two, or give it another"
        " sink.name.",
    )


def _has_to_follow(state: PartitionState, table_end: PartitionCheckpoint, is_behind: bool) -> bool:
    """A higher recorded generation is a reset or a skipped gap that no commit carries yet: the record stands. Not so in
    a tree that is behind the table: it is a backup, and the table may have gone on without it.
    """
    recorded, committed = (state.generation, state.end), (table_end.generation, table_end.end)
    return recorded < committed or (is_behind and recorded != committed)


def _following(state: PartitionState, table_end: PartitionCheckpoint, topic_id: str) -> PartitionState:
    """Returns a state that is settled up to the checkpoint, with its open ranges from there on."""
    if state.generation != table_end.generation or state.end > table_end.end:
        return _settled_at(table_end, topic_id)
    kept_ranges = tuple(r for r in state.open if r.start >= table_end.end)
    if kept_ranges and kept_ranges[0].start != table_end.end:
        kept_ranges = ()
    return PartitionState(topic_id, state.end, table_end.end, table_end.generation, kept_ranges, table_end.anchor)


def _settled_at(table_end: PartitionCheckpoint, topic_id: str) -> PartitionState:
    return PartitionState(topic_id, table_end.end, table_end.end, table_end.generation, anchor=table_end.anchor)
