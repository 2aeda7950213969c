"""Shares one Kafka client between coordinators, which need the newest offsets, and metrics, which need recent ones.

Guarantee: `view` always asks the brokers. `recent` returns topics of recent views from memory and asks for the rest. It
does not wait for a view that is under way: then it returns the last known offsets. Raises what
`sink.clients.kafka.Log.view` raises.
"""

from __future__ import annotations

import math
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
        """The time of the last view of each topic, its cluster, and its partitions."""
        self._error: Unavailable | None = None
        """Why the last question got no answer."""

    def start(self) -> None:
        """Starts the child process before the first view. Raises Unavailable."""
        with self._asking:
            self._log.start()

    def close(self) -> None:
        self._log.close()

    def view(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        """Takes a view, like `sink.clients.kafka.Log.view`."""
        with self._asking:
            return self._ask(topics, pattern, optional)

    def topics(self, pattern: str | None = None) -> tuple[str, ...]:
        """Lists topics, like `sink.clients.kafka.Log.topics`."""
        with self._asking:
            return self._log.topics(pattern)

    def recent(self, topics: Sequence[str], age: float, optional: Sequence[str] = ()) -> LogView:
        """Returns a view that is at most `age` seconds old, or older if another thread is asking the brokers. Raises
        Unavailable where the last question, of any thread, got no answer.
        """
        oldest = time.monotonic() - age
        optional = tuple(topic for topic in optional if topic not in topics)
        missing = [topic for topic in topics if not self._is_known(topic, oldest)]
        stale = [topic for topic in optional if topic not in self._seen or self._seen[topic][0] < oldest]
        if missing or stale:
            if self._asking.acquire(blocking=False):
                try:
                    self._ask(missing, optional=stale)
                finally:
                    self._asking.release()
            elif (error := self._error) is not None:
                # Each thread that asks now waits for a time-out, one after another, and leaves no moment for this one.
                raise Unavailable(str(error))
            elif any(topic not in self._seen for topic in (*missing, *stale)):
                raise Unavailable("another view of Kafka is under way, and there is no earlier one")
        seen = [self._seen[topic] for topic in (*topics, *optional)]
        logs = {source: log for _, _, partitions in seen for source, log in partitions.items()}
        return LogView(seen[0][1] if seen else "", logs)

    def _is_known(self, topic: str, oldest: float) -> bool:
        """Whether the last view of the topic is not older. One that was deleted has no partitions."""
        at, _, partitions = self._seen.get(topic, (-math.inf, "", {}))
        return at >= oldest and bool(partitions)

    def _ask(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        try:
            view = self._log.view(topics, pattern, optional)
        except Unavailable as error:
            self._error = error
            raise
        self._error = None
        at = time.monotonic()
        asked = (*topics, *optional, *(view.matching or ()))
        seen: dict[str, dict[TopicPartition, PartitionLog]] = {topic: {} for topic in asked}
        for source, log in view.partitions.items():
            seen[source.topic][source] = log
        for topic, partitions in seen.items():
            self._seen[topic] = at, view.cluster, partitions
        return view
