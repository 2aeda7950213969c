"""Reads when a record was written, by its own timestamp: that of the first record of an open Kafka transaction.

Guarantee: it reads at most one record of each partition, whether its transaction is committed or not, and changes
nothing. A partition is left out whose record does not come in time, has no timestamp, or is of another topic id. Raises
ConfigError for settings that librdkafka refuses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

import confluent_kafka as ck

from coordination.errors import WrongLog
from coordination.state.model import LogView, TopicPartition
from sink.clients.kafka.log import QuietLogger
from sink.librdkafka import LogConsumer

GROUP = "sink-status"
"""librdkafka requires a group. No client joins this one or commits to it."""
SECONDS = 3.0
"""The time that reading the records may take."""
PARTITIONS = 20
"""The most partitions that are read."""


def begin_times(native: Mapping[str, str], view: LogView) -> dict[TopicPartition, float]:
    """Returns when open Kafka transactions began, in seconds since 1970, of partitions of the view that they hold back.
    `native` are librdkafka's settings."""
    held_back = sorted(partition for partition, log in view.partitions.items() if log.held_back)[:PARTITIONS]
    if not held_back:
        return {}
    times: dict[TopicPartition, float] = {}
    settings = {**native, "group.id": GROUP, "auto.offset.reset": "error"}
    with (
        closing(LogConsumer(settings, QuietLogger(), "read_uncommitted")) as consumer,
        suppress(WrongLog, ck.KafkaException),
    ):
        _read_times(consumer, view, held_back, times)
    return times


def _read_times(
    consumer: LogConsumer, view: LogView, partitions: Sequence[TopicPartition], times: dict[TopicPartition, float]
) -> None:
    """Adds the times of partitions as they come: one that fails takes none of the others away."""
    consumer.expect(view.cluster, {p.topic: view.partitions[p].topic_id for p in partitions})
    consumer.assign([ck.TopicPartition(p.topic, p.partition, view.partitions[p].end) for p in partitions])
    seen: set[TopicPartition] = set()
    deadline = time.monotonic() + SECONDS
    while len(seen) < len(partitions) and time.monotonic() < deadline:
        for message in consumer.consume(len(partitions), 0.2):
            if message.topic() is None:
                continue  # a failure of the client, not of a partition
            partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
            kind, milliseconds = message.timestamp()
            if partition not in seen and message.error() is None and kind != ck.TIMESTAMP_NOT_AVAILABLE:
                times[partition] = milliseconds / 1000
            seen.add(partition)
