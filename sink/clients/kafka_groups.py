"""Tells Kafka what has landed, as the offsets of a consumer group, so that Kafka's own tools show the lag; and asks how
long Kafka keeps records.

Guarantee: `offer` returns at once, whatever Kafka does, and nothing that happens here reaches its caller. For each sink
the newest offer wins; one that failed is tried again until a newer one comes. One thread and one child process for a
Kafka cluster. Nobody reads the offsets back: the table's checkpoint is the truth. Raises nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import confluent_kafka as ck
import structlog
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from coordination.errors import Unavailable
from coordination.state.model import PartitionState, TopicPartition
from sink.clients.kafka import DEFAULTS, QuietLogger
from sink.clients.kafka_child import KafkaChild, serve
from sink.telemetry.logs import ContextThread

LOG = structlog.get_logger("sink.worker")
TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = 30.0
RETENTION_SECONDS = 300.0
"""Seconds after which a topic's retention is asked for again."""

Commit = tuple[str, tuple[tuple[str, int, int], ...]]
"""A group, and its offsets by topic and partition."""


class Told(Protocol):
    """The metrics of a sink."""

    def group_committed(self, outcome: str) -> None: ...

    def retention(self, seconds: Mapping[str, float]) -> None: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """One sink's recorded ranges. Without a group, only the retention of its topics is asked for."""

    sink: str
    group: str | None
    states: Mapping[TopicPartition, PartitionState]
    told: Told
    not_before: float = field(default=0.0, compare=False)


class GroupCommitter:
    """Works in a thread that begins with the first offer. `ask` is put to Kafka; by default in a child process."""

    def __init__(
        self,
        native: Mapping[str, str],
        ask: Callable[[Any], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._child = KafkaChild(__name__, dict(native), TIMEOUT_SECONDS)
        self._ask = ask or self._child.ask
        self._clock = clock
        self._changed = threading.Condition()
        self._offers: dict[str, Offer] = {}
        self._retention_asked: dict[str, float] = {}
        self._complained: dict[str, str] = {}
        self._ended = False
        self._is_working = False
        self._thread: ContextThread | None = None

    @property
    def pid(self) -> int:
        """The child's process id; 0 if there is none."""
        return self._child.pid

    def offer(self, sink: str, group: str | None, states: Mapping[TopicPartition, PartitionState], told: Told) -> None:
        with self._changed:
            self._offers[sink] = Offer(sink, group, states, told)
            if self._thread is None and not self._ended:
                self._thread = ContextThread(target=self._run, name="kafka-groups", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float = 2.0) -> None:
        """Waits so long for the newest offers; then what is left is dropped."""
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
                    later = Offer(offer.sink, offer.group, offer.states, offer.told, self._clock() + RETRY_SECONDS)
                    self._offers.setdefault(offer.sink, later)
                self._changed.notify_all()

    def _take(self) -> Offer | None:
        """Waits for an offer that is due; None at the end."""
        with self._changed:
            while not self._ended:
                offer = self._next()
                if offer is not None:
                    self._is_working = True
                    return self._offers.pop(offer.sink)
                due = min((each.not_before for each in self._offers.values()), default=None)
                self._changed.wait(None if due is None else max(due - self._clock(), 0.01))
        return None

    def _next(self) -> Offer | None:
        now = self._clock()
        return next((offer for offer in self._offers.values() if offer.not_before <= now), None)

    def _perform(self, offer: Offer) -> bool:
        """Whether all of it was done."""
        try:
            if offer.group is not None and offer.states:
                ends = ((source.topic, source.partition, state.end) for source, state in offer.states.items())
                self._ask((offer.group, tuple(ends)))
                offer.told.group_committed("done")
                self._complained.pop(offer.sink, None)
        except Exception as error:  # noqa: BLE001 (nothing rests on it, and nobody else may meet it)
            offer.told.group_committed("failed")
            self._complain(offer, error)
            return False
        self._look_at_retention(offer)
        return True

    def _look_at_retention(self, offer: Offer) -> None:
        now = self._clock()
        if now - self._retention_asked.get(offer.sink, -RETENTION_SECONDS) < RETENTION_SECONDS:
            return
        self._retention_asked[offer.sink] = now
        try:
            offer.told.retention(self._ask(tuple(sorted({source.topic for source in offer.states}))))
        except Exception as error:  # noqa: BLE001 (as above: many may not describe a topic's settings)
            LOG.debug("kafka.retention_unread", sink=offer.sink, reason=str(error))

    def _complain(self, offer: Offer, error: Exception) -> None:
        """Once for each reason, until it works again."""
        said = str(error)
        is_new = self._complained.get(offer.sink) != said
        self._complained[offer.sink] = said
        level = logging.WARNING if is_new else logging.DEBUG
        LOG.log(level, "kafka.group_not_committed", sink=offer.sink, group=offer.group, reason=said)


class _Admin:
    """In the child: answers a `Commit` with nothing, and names of topics with their retention in seconds."""

    def __init__(self, native: Mapping[str, str]) -> None:
        settings: dict[str, Any] = {**DEFAULTS, **native}
        self._admin = AdminClient(settings, logger=QuietLogger())

    def answer(self, question: Commit | tuple[str, ...]) -> Mapping[str, float] | None:
        try:
            if question and len(question) == 2 and isinstance(question[1], tuple):
                self._commit(question[0], question[1])
                return None
            return self._retention([str(topic) for topic in question])
        except ck.KafkaException as error:
            raise Unavailable(str(error.args[0].str())) from error

    def _commit(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> None:
        asked = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(*offset) for offset in offsets])
        [future] = self._admin.alter_consumer_group_offsets([asked], request_timeout=TIMEOUT_SECONDS).values()
        done = future.result(TIMEOUT_SECONDS)
        refused = [each for each in done.topic_partitions if each.error is not None]
        if refused:
            raise Unavailable(f"{refused[0].topic}-{refused[0].partition}: {refused[0].error.str()}")

    def _retention(self, topics: Sequence[str]) -> Mapping[str, float]:
        """Without topics that keep records for ever, or are only compacted."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, float] = {}
        for resource, future in self._admin.describe_configs(resources, request_timeout=TIMEOUT_SECONDS).items():
            configs = future.result(TIMEOUT_SECONDS)
            milliseconds = int(configs["retention.ms"].value)
            if milliseconds > 0 and "delete" in configs["cleanup.policy"].value:
                found[resource.name] = milliseconds / 1000
        return found


def _prepare(native: Mapping[str, str]) -> Callable[[Any], Any]:
    return _Admin(native).answer


if __name__ == "__main__":
    serve(_prepare)
