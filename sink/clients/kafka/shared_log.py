"""Shares one Kafka client between coordinators, which need the newest offsets, and metrics, which need recent ones.

Guarantee: `view` always asks the brokers. `recent` returns topics of recent views from memory and asks for the others.
While another thread asks the brokers, it returns the last known offsets instead of waiting. A thread that waits for its
topics to settle lets the others ask. Raises the errors of `sink.clients.kafka.log.Log.view`.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from coordination.errors import Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka.log import TIMEOUT_SECONDS, Unsettled, settled
from sink.clients.kafka.process import LogProcess

_Answer = TypeVar("_Answer")


class SharedLog:
    """A `LogSource` for several threads, and for all sinks of a process that read from one cluster."""

    def __init__(self, log: LogProcess) -> None:
        self._log = log
        self._ask_lock = threading.Lock()
        self._views: dict[str, tuple[float, str, dict[TopicPartition, PartitionLog]]] = {}
        """The time of the last view of each topic, its cluster, and its partitions."""
        self._listed: tuple[float, tuple[str, ...]] = (-math.inf, ())
        """The time of the last list of topics, and their names."""
        self._error: Unavailable | None = None
        """The reason why the last question got no answer, or None."""

    def start(self) -> None:
        """Starts the child process before the first view. Raises Unavailable."""
        with self._ask_lock:
            self._log.start()

    def close(self) -> None:
        self._log.close()

    def view(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        """Takes a view, like `sink.clients.kafka.log.Log.view`."""

        def view_once() -> LogView:
            with self._ask_lock:
                return self._ask(topics, pattern, optional)

        return settled(view_once, TIMEOUT_SECONDS)

    def topics(self, pattern: str | None = None) -> tuple[str, ...]:
        """Lists topics, like `sink.clients.kafka.log.Log.topics`."""
        with self._ask_lock:
            return self._log.topics(pattern)

    def recent(
        self, topics: Sequence[str], age: float, optional: Sequence[str] = (), patterns: Sequence[str] = ()
    ) -> LogView:
        """Returns a view that is at most `age` seconds old, or older if another thread is asking the brokers: of
        `topics`, of the `optional` topics that the brokers know, and of the topics whose whole name matches one of
        `patterns`. Does not wait for topics to settle. Raises Unavailable if the last question of any thread got no
        answer.
        """
        oldest = time.monotonic() - age
        listed_at, names = self._listed
        is_list_old = bool(patterns) and listed_at < oldest
        chosen = _chosen(optional, patterns, names, topics)
        if is_list_old or any(self._outdated(topics, chosen, oldest)):
            if self._ask_lock.acquire(blocking=False):
                try:
                    if is_list_old:
                        chosen = _chosen(optional, patterns, self._list(), topics)
                    missing, stale = self._outdated(topics, chosen, oldest)
                    if missing or stale:
                        self._ask(missing, optional=stale)
                finally:
                    self._ask_lock.release()
            elif (error := self._error) is not None:
                # The threads that ask now wait for one time-out after another, and leave no moment for this one.
                raise Unavailable(str(error))
            elif (patterns and not names) or any(topic not in self._views for topic in (*topics, *chosen)):
                raise Unavailable("another view of Kafka is under way, and there is no earlier one")
        topic_views = [self._views[topic] for topic in (*topics, *chosen)]
        log_ranges = {
            partition: log_range for _, _, partitions in topic_views for partition, log_range in partitions.items()
        }
        return LogView(topic_views[0][1] if topic_views else "", log_ranges)

    def _outdated(self, topics: Sequence[str], optional: Sequence[str], oldest: float) -> tuple[list[str], list[str]]:
        """Returns the topics of each kind that have no recent view."""
        missing = [topic for topic in topics if not self._is_known(topic, oldest)]
        stale = [topic for topic in optional if topic not in self._views or self._views[topic][0] < oldest]
        return missing, stale

    def _is_known(self, topic: str, oldest: float) -> bool:
        """Whether the last view of the topic is recent and has partitions. A deleted topic has none."""
        seen_at, _, partitions = self._views.get(topic, (-math.inf, "", {}))
        return seen_at >= oldest and bool(partitions)

    def _list(self) -> tuple[str, ...]:
        """Lists all topics. The child process asks the brokers for them less often."""
        names = self._answer(lambda: self._log.topics())
        self._listed = time.monotonic(), names
        return names

    def _answer(self, ask: Callable[[], _Answer]) -> _Answer:
        """Remembers whether the brokers answered."""
        try:
            answer = ask()
        except Unavailable as error:
            # Topics that do not settle are an answer: they say nothing of another sink's topics.
            self._error = None if isinstance(error, Unsettled) else error
            raise
        self._error = None
        return answer

    def _ask(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        view = self._answer(lambda: self._log.view_once(topics, pattern, optional))
        seen_at = time.monotonic()
        asked_topics = (*topics, *optional, *(view.matching or ()))
        partitions_by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {topic: {} for topic in asked_topics}
        for partition, log_range in view.partitions.items():
            partitions_by_topic[partition.topic][partition] = log_range
        for topic, partitions in partitions_by_topic.items():
            self._views[topic] = seen_at, view.cluster, partitions
        return view


def _chosen(
    optional: Iterable[str], patterns: Iterable[str], names: Iterable[str], topics: Iterable[str]
) -> tuple[str, ...]:
    """Returns the optional topics and those of `names` that match a pattern, without `topics`."""
    named = set(topics)
    matching = (name for pattern in patterns for name in names if re.fullmatch(pattern, name))
    return tuple(dict.fromkeys(topic for topic in (*optional, *matching) if topic not in named))
