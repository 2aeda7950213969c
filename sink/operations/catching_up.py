"""Waits until a sink has committed what was in Kafka at a moment.

The moment is now, or a time of records. A target is a set of offsets that stays as it is while records keep coming, so
that a busy topic cannot keep a wait from ending. Commits of every worker count. Errors: Conflict (the sink is halted or
paused, or a topic was deleted), Overdue, Unavailable; those of Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event

from coordination.errors import Conflict
from coordination.planning.batches import unfinished_topics
from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from coordination.state.tree import KeeperView
from sink.clients.kafka import Log, UnknownTopic
from sink.config import Settings
from sink.operations.control import SinkControl, described

ASK_SECONDS = 10.0
"""A wait asks Kafka whether the topics still exist after so long without progress, and then this often."""


@dataclass(frozen=True, slots=True)
class Target:
    """The offsets to be committed of each partition: `[start, end)`, for those that have any."""

    logs: Mapping[TopicPartition, PartitionLog]

    def missing(self, states: Mapping[TopicPartition, PartitionState]) -> int:
        """Counts offsets that are not committed yet: an upper bound of the records."""
        return sum(
            max(0, log.end - max(log.start, _committed(states.get(source), log.topic_id)))
            for source, log in self.logs.items()
        )

    def topics_behind(self, states: Mapping[TopicPartition, PartitionState]) -> Sequence[str]:
        """Returns the topics that still have offsets to be committed."""
        behind = {
            source.topic for source, log in self.logs.items() if _committed(states.get(source), log.topic_id) < log.end
        }
        return sorted(behind)

    def is_reached(self, states: Mapping[TopicPartition, PartitionState]) -> bool:
        return not self.topics_behind(states)


def _committed(state: PartitionState | None, topic_id: str) -> int:
    return state.end if state is not None and state.topic_id == topic_id else 0


def target_of(log: Log, settings: Settings, view: KeeperView, at: float | None = None) -> Target:
    """Returns where each partition ends now, or where its records of the time `at` begin."""
    unfinished = unfinished_topics(view.states, settings.topics)
    seen = log.view(settings.topics, settings.topic_pattern, unfinished)
    offsets = {} if at is None else positions_at(log, seen, at)
    logs = {source: replace(known, end=offsets.get(source, known.end)) for source, known in seen.partitions.items()}
    return Target({source: known for source, known in logs.items() if known.end > known.start})


def positions_at(log: Log, seen: LogView, at: float) -> dict[TopicPartition, int]:
    """Returns where the records of that time and later begin in each partition: at its end, where there are none."""
    offsets = log.offsets_at(sorted(seen.partitions), at)
    positions = {}
    for source, known in seen.partitions.items():
        offset = offsets[source]
        positions[source] = known.end if offset is None else min(max(offset, known.start), known.end)
    return positions


def wait_for(
    control: SinkControl, target: Target, seconds: float, hurry: bool = False, stop: Event | None = None
) -> str:
    """Waits until the target is reached, or `stop` is set. With `hurry` it asks the sink to commit at once, whatever
    its interval.
    """
    missing = target.missing({})
    is_asked = not hurry
    next_question = time.monotonic() + ASK_SECONDS

    def reached(view: KeeperView) -> str | None:
        nonlocal missing, is_asked, next_question
        before, missing = missing, target.missing(view.states)
        if target.is_reached(view.states):
            return f"sink {control.name} has committed what was there, up to transaction {view.ledger.committed}"
        if view.halt is not None:
            raise Conflict(f"sink {control.name} is halted, {missing:,} offsets before the end: {view.halt.reason}")
        if view.control.paused is not None:
            raise Conflict(
                f"sink {control.name} is paused, {missing:,} offsets before the end,"
                f" {described(view.control.paused)}; run `sink resume`"
            )
        if not is_asked and view.members:
            control.flush()
            is_asked = True
        if missing < before:
            next_question = time.monotonic() + ASK_SECONDS
        elif time.monotonic() >= next_question:
            next_question = time.monotonic() + ASK_SECONDS
            _require_topics(control, target.topics_behind(view.states), missing)
        return None

    return control.wait(reached, seconds, lambda: f"sink {control.name} is {missing:,} offsets before the end", stop)


def _require_topics(control: SinkControl, topics: Sequence[str], missing: int) -> None:
    """Raises Conflict for a topic that Kafka no longer has: its records will never be committed."""
    log = Log(control.settings.kafka_native)
    try:
        log.view(topics)
    except UnknownTopic as error:
        raise Conflict(
            f"sink {control.name} is {missing:,} offsets before the end, and cannot reach it: Kafka has no topic"
            f" {', '.join(error.topics)} any more. Run the command again, for what is there now"
        ) from error
    finally:
        log.close()
