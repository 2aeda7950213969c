"""Shares one Kafka client between the coordinator, who needs the newest offsets, and those who only look.

Guarantee: `view` always asks the brokers. `recent` answers topics that were seen a moment ago from memory, asks for the
others, and waits for no view that is under way: it answers with what was seen last, if anything was. Errors as
`sink.clients.kafka.Log.view`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from coordination.errors import Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka_process import LogProcess


class SharedLog:
    """A `LogSource` for several threads, and for all sinks of a process that read from one cluster."""

    def __init__(self, log: LogProcess) -> None:
        self._log = log
        self._asking = threading.Lock()
        self._seen: dict[str, tuple[float, str, dict[TopicPartition, PartitionLog]]] = {}
        """By topic: when it was seen, in which cluster, and its partitions."""

    def start(self) -> None:
        """Makes the first view quick. Raises Unavailable."""
        with self._asking:
            self._log.start()

    def close(self) -> None:
        self._log.close()

    def view(self, topics: Sequence[str], pattern: str | None = None) -> LogView:
        """Asks the brokers about these topics now, and about those that match `pattern`."""
        with self._asking:
            return self._ask(topics, pattern)

    def topics(self, pattern: str | None = None) -> tuple[str, ...]:
        """As `sink.clients.kafka.Log.topics`."""
        with self._asking:
            return self._log.topics(pattern)

    def recent(self, topics: Sequence[str], age: float) -> LogView:
        """Asks only for topics that no view of the last `age` seconds has, and only while nobody else asks."""
        now = time.monotonic()
        missing = [topic for topic in topics if topic not in self._seen or self._seen[topic][0] < now - age]
        if missing:
            if self._asking.acquire(blocking=False):
                try:
                    self._ask(missing)
                finally:
                    self._asking.release()
            elif any(topic not in self._seen for topic in missing):
                raise Unavailable("Kafka is being asked by the coordinator; its answer is not there yet")
        seen = [self._seen[topic] for topic in topics]
        logs = {source: log for _, _, partitions in seen for source, log in partitions.items()}
        return LogView(seen[0][1], logs)

    def _ask(self, topics: Sequence[str], pattern: str | None = None) -> LogView:
        view = self._log.view(topics, pattern)
        at = time.monotonic()
        seen: dict[str, dict[TopicPartition, PartitionLog]] = {topic: {} for topic in (*topics, *(view.matching or ()))}
        for source, log in view.partitions.items():
            seen[source.topic][source] = log
        for topic, partitions in seen.items():
            self._seen[topic] = at, view.cluster, partitions
        return view
