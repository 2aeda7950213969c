"""Looks at the ends of Kafka's log for all sinks of a process, with one question for all sinks that share a client.

If Kafka refuses a topic, does not have it, or a partition of it has no leader, its sink is asked about alone and after
some time, so that it does not hide other sinks. A topic that is recorded or matches, but is not configured by name, may
be missing. Raises nothing.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from coordination.state.tree import KeeperView
from sink.clients.kafka import Unsettled
from sink.clients.shared_log import SharedLog
from sink.http.facts import HostedSink

AGE_SECONDS = 4.0
REFUSED_SECONDS = 30.0
"""Seconds after which Kafka is asked again about refused topics."""


@dataclass(frozen=True, slots=True)
class _Question:
    """`recorded` topics may be configured, too."""

    log: SharedLog
    configured: tuple[str, ...]
    recorded: tuple[str, ...]
    pattern: str | None

    def topics_in(self, log_topics: Iterable[str]) -> tuple[str, ...]:
        """Returns the sink's topics; of a pattern, those in `log_topics` that match."""
        pattern = self.pattern
        matching = () if pattern is None else tuple(topic for topic in log_topics if re.fullmatch(pattern, topic))
        return _united((self.configured, self.recorded, matching))


class LogCache:
    """One thread calls `refresh`; any thread may call the other methods."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[LogView | None, str | None]] = {}
        self._refused: dict[str, float] = {}
        self._changed = threading.Condition()

    def view_of(self, sink: str) -> tuple[LogView | None, str | None]:
        """Returns the last view, or the error instead; neither before the first refresh."""
        return self._views.get(sink, (None, None))

    def wait_for(self, sinks: Collection[str], seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: all(name in self._views for name in sinks), seconds)

    def refresh(self, sinks: Mapping[str, tuple[HostedSink, KeeperView | None]]) -> None:
        by_client: dict[int, dict[str, _Question]] = {}
        for name, (hosted, view) in sinks.items():
            settings, recorded = hosted.settings, () if view is None else view.topics
            question = _Question(hosted.log, tuple(settings.topics), recorded, settings.topic_pattern)
            by_client.setdefault(id(hosted.log), {})[name] = question
        for group in by_client.values():
            self._refresh_together(group)
        for removed in self._views.keys() - sinks.keys():
            del self._views[removed]
            self._refused.pop(removed, None)

    def _refresh_together(self, group: Mapping[str, _Question]) -> None:
        now = time.monotonic()
        questions = {
            name: question for name, question in group.items() if now - self._refused.get(name, 0.0) > REFUSED_SECONDS
        }
        if not questions:
            return
        log = next(iter(questions.values())).log
        configured = _united(question.configured for question in questions.values())
        recorded = _united(question.recorded for question in questions.values())
        patterns = tuple({question.pattern for question in questions.values() if question.pattern is not None})
        try:
            view = log.recent(configured, AGE_SECONDS, recorded, patterns)
        except SinkError as error:
            if isinstance(error, Unavailable) and not isinstance(error, Unsettled):
                for name in questions:
                    self._set(name, None, str(error))
            elif len(questions) > 1:
                for name, question in questions.items():
                    self._refresh_together({name: question})
            else:
                (name,) = questions
                self._refused[name] = now
                self._set(name, None, str(error))
        else:
            self._distribute(view, questions)

    def _distribute(self, view: LogView, questions: Mapping[str, _Question]) -> None:
        by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {}
        for partition, log_range in view.partitions.items():
            by_topic.setdefault(partition.topic, {})[partition] = log_range
        for name, question in questions.items():
            log_ranges = {
                partition: log_range
                for topic in question.topics_in(by_topic)
                for partition, log_range in by_topic.get(topic, {}).items()
            }
            self._set(name, LogView(view.cluster, log_ranges), None)

    def _set(self, name: str, view: LogView | None, error: str | None) -> None:
        with self._changed:
            self._views[name] = view, error
            self._changed.notify_all()


def _united(topics: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topic for names in topics for topic in names))
