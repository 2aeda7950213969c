"""Commits the landed offsets to a consumer group, so that Kafka's tools show the lag, and reads the topics' retention.

Guarantee: `offer` returns at once and never fails, whatever Kafka does. For each sink the newest offer wins; a failed
offer is retried until a newer one comes. A Kafka cluster has one thread and one child process. The sink never reads
these offsets: the table's checkpoint is the truth. Raises nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import confluent_kafka as ck
import structlog
from confluent_kafka.admin import ConfigResource, ResourceType

from coordination.errors import SinkError, Unavailable, WrongLog
from coordination.state.model import PartitionState, TopicPartition
from sink.clients.kafka.child import KafkaChild, serve
from sink.clients.kafka.log import QuietLogger
from sink.librdkafka import make_admin, url_safe
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = 30.0
RETENTION_SECONDS = 300.0
"""Seconds between two requests for a topic's retention."""

Commit = tuple[str, tuple[tuple[str, int, int, str], ...]]
"""A group, and its offsets: topic, partition, offset, topic id."""


class GroupMetrics(Protocol):
    """The metrics of a sink."""

    def group_committed(self, outcome: str) -> None: ...

    def retention(self, seconds: Mapping[str, float]) -> None: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """The recorded ranges of a sink. Without a group only the retention of its topics is read."""

    sink: str
    group: str | None
    states: Mapping[TopicPartition, PartitionState]
    metrics: GroupMetrics
    not_before: float = field(default=0.0, compare=False)


class GroupCommitter:
    """Works in a thread, which the first offer starts. `ask` asks Kafka, by default in a child process."""

    def __init__(self, native: Mapping[str, str], ask: Callable[[Any], Any] | None = None) -> None:
        self._child = KafkaChild(__name__, dict(native), TIMEOUT_SECONDS)
        self._ask = ask or self._child.ask
        self._changed = threading.Condition()
        self._offers: dict[str, Offer] = {}
        self._retention_asked: dict[str, float] = {}
        self._last_reason: dict[str, str] = {}
        self._ended = False
        self._is_working = False
        self._thread: ContextThread | None = None

    def offer(
        self, sink: str, group: str | None, states: Mapping[TopicPartition, PartitionState], metrics: GroupMetrics
    ) -> None:
        with self._changed:
            self._offers[sink] = Offer(sink, group, states, metrics)
            if self._thread is None and not self._ended:
                self._thread = ContextThread(target=self._run, name="kafka-groups", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float = 2.0) -> None:
        """Waits `seconds` for the newest offers, and drops the remaining ones."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_working and self._next() is None, seconds)
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)
        self._child.close()

    def _run(self) -> None:
        while (offer := self._take()) is not None:
            failed = not self._perform(offer)
            with self._changed:
                self._is_working = False
                if failed:
                    self._offers.setdefault(offer.sink, replace(offer, not_before=time.monotonic() + RETRY_SECONDS))
                self._changed.notify_all()

    def _take(self) -> Offer | None:
        """Waits for an offer that is due. Returns None after `close`."""
        with self._changed:
            while not self._ended:
                offer = self._next()
                if offer is not None:
                    self._is_working = True
                    return self._offers.pop(offer.sink)
                due_at = min((waiting_offer.not_before for waiting_offer in self._offers.values()), default=None)
                self._changed.wait(None if due_at is None else max(due_at - time.monotonic(), 0.01))
        return None

    def _next(self) -> Offer | None:
        now = time.monotonic()
        return next((offer for offer in self._offers.values() if offer.not_before <= now), None)

    def _perform(self, offer: Offer) -> bool:
        """Returns whether the offer was committed."""
        is_committed = self._commit(offer)
        self._look_at_retention(offer)
        return is_committed

    def _commit(self, offer: Offer) -> bool:
        try:
            if offer.group is not None and offer.states:
                ends = ((p.topic, p.partition, state.end, state.topic_id) for p, state in offer.states.items())
                self._ask((offer.group, tuple(ends)))
                offer.metrics.group_committed("done")
                self._last_reason.pop(offer.sink, None)
        except Exception as error:  # noqa: BLE001 (commits must not fail with it)
            offer.metrics.group_committed("failed")
            self._warn(offer, error)
            return False
        return True

    def _look_at_retention(self, offer: Offer) -> None:
        now = time.monotonic()
        if now - self._retention_asked.get(offer.sink, -RETENTION_SECONDS) < RETENTION_SECONDS:
            return
        self._retention_asked[offer.sink] = now
        try:
            offer.metrics.retention(self._ask(tuple(sorted({partition.topic for partition in offer.states}))))
        except Exception as error:  # noqa: BLE001 (many users have no right to describe a topic's settings)
            LOG.debug("kafka.retention_unread", sink=offer.sink, reason=str(error))

    def _warn(self, offer: Offer, error: Exception) -> None:
        """Warns once for each reason, until a commit succeeds."""
        reason = str(error)
        is_new = self._last_reason.get(offer.sink) != reason
        self._last_reason[offer.sink] = reason
        level = logging.WARNING if is_new else logging.DEBUG
        LOG.log(level, "kafka.group_not_committed", sink=offer.sink, group=offer.group, reason=reason)


class GroupsAdmin:
    """Answers questions in the child: a `Commit` with None, names of topics with their retention in seconds."""

    def __init__(self, native: Mapping[str, str]) -> None:
        self._admin = make_admin(native, QuietLogger())

    def __call__(self, question: Commit | tuple[str, ...]) -> Mapping[str, float] | None:
        try:
            if question and len(question) == 2 and isinstance(question[1], tuple):
                self._commit(question[0], question[1])
                return None
            return self._retention([str(topic) for topic in question])
        except ck.KafkaException as error:
            raise Unavailable(str(error.args[0].str())) from error

    def _commit(self, group: str, offsets: Sequence[tuple[str, int, int, str]]) -> None:
        """Commits the offsets of the topics that have the same id here: others would be those of another log. Raises
        WrongLog and Unavailable for the rest, afterwards; a topic that was deleted counts only if none is left."""
        expected = {topic: topic_id for topic, _, _, topic_id in offsets}
        problems: dict[str, SinkError] = {}
        deleted: set[str] = set()
        described = self._admin.describe_topics(ck.TopicCollection(list(expected)), request_timeout=TIMEOUT_SECONDS)
        for topic, future in described.items():
            try:
                found = url_safe(future.result(TIMEOUT_SECONDS).topic_id)
            except ck.KafkaException as error:
                problems[topic] = Unavailable(f"topic {topic}: {error.args[0].str()}")
                if error.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    deleted.add(topic)
                continue
            if found != expected[topic]:
                problems[topic] = WrongLog(topic, ("", expected[topic]), ("", found))
        same = [ck.TopicPartition(topic, number, end) for topic, number, end, _ in offsets if topic not in problems]
        if same:
            self._alter(group, same)
            problems = {topic: problem for topic, problem in problems.items() if topic not in deleted}
        if problems:
            raise next(iter(problems.values()))

    def _alter(self, group: str, partitions: list[ck.TopicPartition]) -> None:
        request = ck.ConsumerGroupTopicPartitions(group, partitions)
        [future] = self._admin.alter_consumer_group_offsets([request], request_timeout=TIMEOUT_SECONDS).values()
        answer = future.result(TIMEOUT_SECONDS)
        failed_partitions = [partition for partition in answer.topic_partitions if partition.error is not None]
        if failed_partitions:
            raise Unavailable(
                f"{failed_partitions[0].topic}-{failed_partitions[0].partition}: {failed_partitions[0].error.str()}"
            )

    def _retention(self, topics: Sequence[str]) -> Mapping[str, float]:
        """Returns the retention, without topics that keep records for ever, are only compacted or cannot be described.
        Raises KafkaException if none can be."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        seconds: dict[str, float] = {}
        problems: list[ck.KafkaException] = []
        for resource, future in self._admin.describe_configs(resources, request_timeout=TIMEOUT_SECONDS).items():
            try:
                configs = future.result(TIMEOUT_SECONDS)
            except ck.KafkaException as problem:
                problems.append(problem)
                continue
            milliseconds = int(configs["retention.ms"].value)
            if milliseconds > 0 and "delete" in configs["cleanup.policy"].value:
                seconds[resource.name] = milliseconds / 1000
        if topics and len(problems) == len(topics):
            raise problems[0]
        return seconds


if __name__ == "__main__":
    serve(GroupsAdmin)
