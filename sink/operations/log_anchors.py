"""Reads the records before the positions at which a reset or an adoption resumes, so that the next reader can tell the
log from another one.

Guarantee: an anchor is a record of the topic with the id of its state, before the position; the last of the
`LOOK_BACK` offsets before it. Where there is none (the log's start, a longer run of transaction markers, of compacted
or of aborted records), or Kafka does not answer, the partition has no anchor, and its next reader compares nothing.
Raises ConfigError for settings that librdkafka refuses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from coordination.errors import ConfigError, SinkError, Unavailable
from coordination.state.log_records import Anchor
from coordination.state.model import PartitionState, TopicPartition
from sink.config import Settings
from sink.librdkafka import LogConsumer
from sink.operations.reset import Reset
from sink.write.reading.anchors import LastMessage

LOOK_BACK = 64
QUIET_SECONDS = 10.0
BATCH = 1000
_QUIET = logging.getLogger("sink.anchors.librdkafka")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class FoundAnchors:
    """The anchors of the moved partitions. `problem` says why Kafka was not asked to the end; empty if it was."""

    anchors: Mapping[TopicPartition, Anchor]
    problem: str = ""

    def applied_to(self, reset: Reset) -> Reset:
        """Returns the reset with the anchors of the partitions that it moves."""
        changed = dict(reset.changed)
        for move in reset.moves:
            anchor = self.anchors.get(move.source)
            if anchor is not None and anchor.offset < move.after.end:
                changed[move.source] = replace(move.after, anchor=anchor)
        return replace(reset, changed=changed)

    def sentence(self, reset: Reset) -> str:
        """Says which partitions have no record before their position; empty if all begin at offset 0."""
        moved = [move.source for move in reset.moves if move.after.end > 0]
        if not moved:
            return ""
        without = [str(source) for source in moved if source not in self.anchors]
        if not without:
            return "The log has the record before each position: the next read compares it."
        names = ", ".join(without[:5]) + (", ..." if len(without) > 5 else "")
        reason = f" ({self.problem})" if self.problem else ""
        return f"No record before the position of {names}{reason}: the next read compares nothing there."


def find_anchors(settings: Settings, reset: Reset) -> FoundAnchors:
    """Reads the records before the positions of the moved partitions."""
    states = {move.source: move.after for move in reset.moves if not move.is_gone and move.after.end > 0}
    if not states:
        return FoundAnchors({})
    options = {
        **settings.kafka_native_consumer,
        "group.id": f"sink-{settings.name}",
        # The log may begin after the first offset that is asked for.
        "auto.offset.reset": "earliest",
    }
    found: dict[TopicPartition, LastMessage] = {}
    with closing(LogConsumer(options, _QUIET)) as consumer:
        try:
            for source, last in _last_before(consumer, states):
                found[source] = last
        except ConfigError:
            raise
        except (SinkError, KafkaException) as error:
            problem = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            return FoundAnchors({source: last.anchor() for source, last in found.items()}, problem)
    return FoundAnchors({source: last.anchor() for source, last in found.items()})


def _last_before(
    consumer: LogConsumer, states: Mapping[TopicPartition, PartitionState]
) -> Iterator[tuple[TopicPartition, LastMessage]]:
    """Yields each record before the position of its partition, the last one last."""
    pending = dict(states)
    consumer.expect("", {source.topic: state.topic_id for source, state in states.items()})
    consumer.assign(
        [KafkaPartition(s.topic, s.partition, max(0, state.end - LOOK_BACK)) for s, state in states.items()]
    )
    last_message_at = time.monotonic()
    while pending:
        messages = consumer.consume(BATCH, 0.1)
        if messages:
            last_message_at = time.monotonic()
        elif time.monotonic() - last_message_at > QUIET_SECONDS:
            raise Unavailable(f"Kafka gave nothing of {min(pending)} for {QUIET_SECONDS:.0f} s")
        for message in messages:
            source = TopicPartition(str(message.topic()), int(message.partition() or 0))
            if source not in pending:
                continue
            if _is_record(message) and int(message.offset() or 0) < pending[source].end:
                yield source, LastMessage(message, None, has_headers=False)
            if int(message.offset() or 0) + 1 >= pending[source].end or _is_end(message):
                del pending[source]


def _is_record(message: Message) -> bool:
    """Raises KafkaException for a lasting error."""
    error = message.error()
    if error is not None and not error.retriable() and not _is_end(message):
        raise KafkaException(error)
    return error is None


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF
