"""Waits until a sink has committed the records that Kafka had at a moment.

The moment is now, or a time of records. A target is a fixed set of offsets, so that the records that keep coming into a
busy topic cannot delay the end of a wait. Commits of every worker count. Errors: Conflict (the sink is halted or
paused, or a topic was deleted), Overdue, Unavailable; those of Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event

from coordination.errors import Conflict
from coordination.planning.batches import unfinished_topics
from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from coordination.state.tree import KeeperView
from sink.clients.kafka.log import Log, UnknownTopic
from sink.operations.control import SinkControl, describe_request
from sink.operations.observed_sink import ObservedSink
from sink.operations.reset_checks import require_same_cluster

TOPIC_GONE = "Kafka no longer has its topic. There is nothing to wait for."
ASK_SECONDS = 10.0
"""After so long without progress, and then this often, a wait asks Kafka whether the topics still exist."""


@dataclass(frozen=True, slots=True)
class CatchUpTarget:
    """The offsets to be committed of each partition, `[start, end)`, without empty ranges. Those of open Kafka
    transactions belong to it: they are acknowledged. `held_back` has the offset of each such transaction.
    """

    logs: Mapping[TopicPartition, PartitionLog]
    held_back: Mapping[TopicPartition, int] = field(default_factory=dict)

    def waits_for(self, states: Mapping[TopicPartition, PartitionState]) -> str:
        """Returns the open Kafka transactions, as of when the target was set, that nothing can be committed beyond;
        empty without any.
        """
        blocking = [
            f"{partition} (offset {offset})"
            for partition, offset in sorted(self.held_back.items())
            if _committed(states.get(partition), self.logs[partition].topic_id) <= offset
        ]
        return f". It waits for the end of open Kafka transactions: {', '.join(blocking[:5])}" if blocking else ""

    def missing(self, states: Mapping[TopicPartition, PartitionState]) -> int:
        """Returns the number of uncommitted offsets: an upper bound of the records."""
        return sum(
            max(0, log_range.end - max(log_range.start, _committed(states.get(partition), log_range.topic_id)))
            for partition, log_range in self.logs.items()
        )

    def topics_behind(self, states: Mapping[TopicPartition, PartitionState]) -> Sequence[str]:
        """Returns the topics that have uncommitted offsets."""
        behind = {
            partition.topic
            for partition, log_range in self.logs.items()
            if _committed(states.get(partition), log_range.topic_id) < log_range.end
        }
        return sorted(behind)

    def is_reached(self, states: Mapping[TopicPartition, PartitionState]) -> bool:
        return not self.topics_behind(states)


def _committed(state: PartitionState | None, topic_id: str) -> int:
    return state.end if state is not None and state.topic_id == topic_id else 0


def target_of(log: Log, sink: ObservedSink, view: KeeperView, at: float | None = None) -> CatchUpTarget:
    """Returns the offsets up to the present high watermark of each partition, or up to its first record of the time
    `at`: records of open Kafka transactions are acknowledged, and waited for. Raises ConfigError for another cluster
    than the sink reads.
    """
    unfinished = unfinished_topics(view.states, sink.topics)
    log_view = log.view(sink.topics, sink.topic_pattern, unfinished)
    require_same_cluster(view, None, log_view)
    offsets = {} if at is None else positions_at(log, log_view, at)
    log_ranges = {
        partition: replace(log_range, end=_target_end(log_range, offsets.get(partition)))
        for partition, log_range in log_view.partitions.items()
    }
    logs = {partition: log_range for partition, log_range in log_ranges.items() if log_range.end > log_range.start}
    readable = {partition: log_view.partitions[partition].end for partition in logs}
    return CatchUpTarget(logs, {partition: end for partition, end in readable.items() if end < logs[partition].end})


def _target_end(log_range: PartitionLog, first_later: int | None) -> int:
    """Returns the end of a partition's target. `first_later`: its first readable record that is too late."""
    if first_later is not None and first_later < log_range.end:
        return first_later
    return max(log_range.end, log_range.high_watermark)


def positions_at(log: Log, log_view: LogView, at: float) -> dict[TopicPartition, int]:
    """Returns each partition's first offset of the time `at` or later; the end of the partition if there is none."""
    offsets = log.offsets_at(sorted(log_view.partitions), at)
    positions = {}
    for partition, log_range in log_view.partitions.items():
        offset = offsets[partition]
        positions[partition] = log_range.end if offset is None else min(max(offset, log_range.start), log_range.end)
    return positions


def wait_for(
    control: SinkControl, target: CatchUpTarget, seconds: float, hurry: bool = False, stop: Event | None = None
) -> str:
    """Waits until the target is reached, or `stop` is set. With `hurry` it asks the sink to commit at once, without
    regard to its interval.
    """
    missing, waits_for = target.missing({}), ""
    is_flush_asked = not hurry
    next_question = time.monotonic() + ASK_SECONDS

    def outcome(view: KeeperView) -> str | None:
        nonlocal missing, waits_for, is_flush_asked, next_question
        missing_before, missing = missing, target.missing(view.states)
        waits_for = target.waits_for(view.states)
        if target.is_reached(view.states):
            return f"sink {control.name} has committed what was there, up to transaction {view.ledger.committed}"
        if view.halt is not None:
            raise Conflict(f"sink {control.name} is halted, {missing:,} offsets before the end: {view.halt.reason}")
        if view.control.paused is not None:
            raise Conflict(
                f"sink {control.name} is paused, {missing:,} offsets before the end,"
                f" {describe_request(view.control.paused)}. Run `sink resume`."
            )
        if not is_flush_asked and view.members:
            control.flush()
            is_flush_asked = True
        if missing < missing_before:
            next_question = time.monotonic() + ASK_SECONDS
        elif time.monotonic() >= next_question:
            next_question = time.monotonic() + ASK_SECONDS
            _require_topics(control, target.topics_behind(view.states), missing)
        return None

    def late() -> str:
        return f"sink {control.name} is {missing:,} offsets before the end{waits_for}"

    return control.wait(outcome, seconds, late, stop)


def _require_topics(control: SinkControl, topics: Sequence[str], missing: int) -> None:
    """Raises Conflict for a topic that Kafka no longer has: its records will never be committed."""
    try:
        with closing(Log(control.sink.kafka)) as log:
            log.view(topics)
    except UnknownTopic as error:
        raise Conflict(
            f"sink {control.name} is {missing:,} offsets before the end, and cannot reach it: Kafka has no topic"
            f" {', '.join(error.topics)} any more. Run the command again, for what is there now."
        ) from error
