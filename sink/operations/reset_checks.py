"""Refuses resets that would lose or repeat offsets in silence. Errors: ConfigError, Conflict."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coordination.errors import ConfigError, Conflict
from coordination.planning.planner import other_cluster
from coordination.state.failures import HaltKind
from coordination.state.model import NO_TRANSACTION, Checkpoint, Gap, LogView, TableView, TopicPartition
from coordination.state.tree import KeeperView, Ledger

MAX_NAMED_PARTITIONS = 5
"""A message names so many partitions: there may be thousands."""
INTERRUPTED = "a `sink reset` or `sink adopt` was interrupted: run it again, as it was"


def require_no_live_workers(workers: Sequence[str]) -> None:
    """Raises Conflict while there are live workers."""
    if workers:
        raise Conflict(
            f"workers are alive ({', '.join(workers)}). Stop them first, and wait until their sessions have ended."
        )


def require_same_cluster(view: KeeperView, checkpoint: Checkpoint | None, log: LogView) -> None:
    """Raises ConfigError if the sink has read another Kafka cluster than this log's."""
    if difference := other_cluster(view, TableView(checkpoint, {}), log.cluster):
        raise ConfigError(difference)


def refuse_if_interrupted(view: KeeperView) -> None:
    """Raises ConfigError if an interrupted reset has moved partitions and not declared what it leaves out yet."""
    if is_interrupted(view):
        raise ConfigError(
            "an earlier reset was interrupted: it moved some partitions and has not recorded what they leave out. Run"
            " it again, as it was."
        )


def refuse_to_skip(
    view: KeeperView, checkpoint: Checkpoint | None, changed: Collection[TopicPartition], ledger: Ledger
) -> None:
    """Raises ConfigError if a partition that an interrupted reset moved would go on beyond the table's end without a
    gap."""
    if not is_interrupted(view) or checkpoint is None:
        return
    skipping = []
    for partition, state in sorted(view.states.items()):
        committed = checkpoint.ends.get(partition)
        if partition in changed or committed is None or checkpoint.topics[partition.topic] != state.topic_id:
            continue
        gap = Gap(partition.topic, partition.partition, committed.end, state.start)
        if state.start > committed.end and not any(declared.covers(gap) for declared in ledger.gaps):
            skipping.append(partition)
    if skipping:
        raise ConfigError(
            f"an earlier reset was interrupted: it moved {_listed(skipping)}, and has not recorded what they leave out."
            " Run it again, as it was, or move them, too."
        )


def is_interrupted(view: KeeperView) -> bool:
    """Whether the sink is halted because a reset or an adoption has written its first multis only."""
    return view.halt is not None and view.halt.kind is HaltKind.RESET_INTERRUPTED


def _listed(partitions: Sequence[TopicPartition]) -> str:
    more = ", ..." if len(partitions) > MAX_NAMED_PARTITIONS else ""
    return ", ".join(map(str, partitions[:MAX_NAMED_PARTITIONS])) + more


def refuse_to_leave_out(view: KeeperView, checkpoint: Checkpoint | None, moved: Collection[TopicPartition]) -> None:
    """Raises ConfigError if the table was restored and a partition is not moved: it would go on beyond the table's
    rows. Its higher generation proves nothing then.
    """
    number, checkpoint_ends = (checkpoint.number, checkpoint.ends) if checkpoint else (NO_TRANSACTION, {})
    if number >= view.ledger.committed:
        return
    table_ends = {
        partition: checkpoint_ends[partition].end if partition in checkpoint_ends else 0 for partition in view.states
    }
    unmoved = sorted(
        partition
        for partition, state in view.states.items()
        if partition not in moved and state.end > table_ends[partition]
    )
    if unmoved:
        if checkpoint is None:
            fix = "Move all partitions (--to earliest, --to latest), or, where their topic is gone, use --forget"
        else:
            fix = "Move all partitions (--to checkpoint), or, where one was first read later, use --forget"
        raise ConfigError(
            f"the table was restored or deleted: it ends at transaction {number}, ZooKeeper at {view.ledger.committed},"
            f" and {_listed(unmoved)} would go on beyond what it holds. {fix}, which begins anew."
        )
