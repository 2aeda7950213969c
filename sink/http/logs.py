"""Looks at the ends of Kafka's log for all sinks of a process: one question for all that share a client.

A topic that Kafka does not have, or does not show to this user, is asked for again after a while only, and by itself:
it must not hide the others. One that is recorded, but configured by no name, may be gone. Raises nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from coordination.state.tree import KeeperView
from sink.http.facts import HostedSink, RecentLog

AGE_SECONDS = 4.0
REFUSED_SECONDS = 30.0
"""Seconds after which Kafka is asked again about topics that it refused."""


@dataclass(frozen=True, slots=True)
class _Question:
    """`recorded` topics may be configured, too."""

    log: RecentLog
    configured: tuple[str, ...]
    recorded: tuple[str, ...]


class LogLooks:
    """`look` is called by one thread, the rest by any."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[LogView | None, str | None]] = {}
        self._refused: dict[str, float] = {}
        self._first = threading.Condition()

    def of(self, sink: str) -> tuple[LogView | None, str | None]:
        """Returns the last view, or why there is none."""
        return self._views.get(sink, (None, None))

    def wait_for(self, sinks: Collection[str], seconds: float) -> None:
        with self._first:
            self._first.wait_for(lambda: all(name in self._views for name in sinks), seconds)

    def look(self, sinks: Mapping[str, tuple[HostedSink, KeeperView | None]]) -> None:
        by_client: dict[int, dict[str, _Question]] = {}
        for name, (hosted, view) in sinks.items():
            question = _Question(hosted.log, tuple(hosted.settings.topics), () if view is None else view.topics)
            by_client.setdefault(id(hosted.log), {})[name] = question
        for group in by_client.values():
            self._look_together(group)
        for gone in self._views.keys() - sinks.keys():
            del self._views[gone]
            self._refused.pop(gone, None)

    def _look_together(self, group: Mapping[str, _Question]) -> None:
        now = time.monotonic()
        asked = {name: each for name, each in group.items() if now - self._refused.get(name, 0.0) > REFUSED_SECONDS}
        if not asked:
            return
        log = next(iter(asked.values())).log
        configured = _united(question.configured for question in asked.values())
        recorded = _united(question.recorded for question in asked.values())
        try:
            view = log.recent(configured, AGE_SECONDS, recorded)
        except Unavailable as error:
            for name in asked:
                self._set(name, None, str(error))
        except SinkError as error:
            if len(asked) > 1:
                for name, question in asked.items():
                    self._look_together({name: question})
            else:
                (name,) = asked
                self._refused[name] = now
                self._set(name, None, str(error))
        else:
            self._share(view, asked)

    def _share(self, view: LogView, asked: Mapping[str, _Question]) -> None:
        by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {}
        for source, log in view.partitions.items():
            by_topic.setdefault(source.topic, {})[source] = log
        for name, question in asked.items():
            topics = _united((question.configured, question.recorded))
            logs = {source: log for topic in topics for source, log in by_topic.get(topic, {}).items()}
            self._set(name, LogView(view.cluster, logs), None)

    def _set(self, name: str, view: LogView | None, error: str | None) -> None:
        with self._first:
            self._views[name] = view, error
            self._first.notify_all()


def _united(topics: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topic for each in topics for topic in each))
