"""Looks at the ends of Kafka's log for all sinks of a process: one question for all that share a client.

A topic that Kafka does not have, or does not show to this user, is asked for again after a while only, and by itself:
it must not hide the others. Raises nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from coordination.state.tree import KeeperView
from sink.http.facts import HostedSink, RecentLog

AGE_SECONDS = 4.0
REFUSED_SECONDS = 30.0
"""Seconds after which Kafka is asked again about topics that it refused."""


class LogLooks:
    """`look` is called by one thread, the rest by any."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[LogView | None, str | None]] = {}
        self._refused: dict[str, float] = {}
        self._first = threading.Condition()

    def of(self, sink: str) -> tuple[LogView | None, str | None]:
        """The last view, or why there is none."""
        return self._views.get(sink, (None, None))

    def wait_for(self, sinks: Collection[str], seconds: float) -> None:
        with self._first:
            self._first.wait_for(lambda: all(name in self._views for name in sinks), seconds)

    def look(self, sinks: Mapping[str, tuple[HostedSink, KeeperView | None]]) -> None:
        by_client: dict[int, dict[str, tuple[RecentLog, tuple[str, ...]]]] = {}
        for name, (hosted, view) in sinks.items():
            topics = tuple(dict.fromkeys([*hosted.settings.topics, *(() if view is None else view.topics)]))
            by_client.setdefault(id(hosted.log), {})[name] = hosted.log, topics
        for group in by_client.values():
            self._look_together(group)
        for gone in self._views.keys() - sinks.keys():
            del self._views[gone]
            self._refused.pop(gone, None)

    def _look_together(self, group: Mapping[str, tuple[RecentLog, tuple[str, ...]]]) -> None:
        now = time.monotonic()
        asked = {
            name: topics for name, (_, topics) in group.items() if now - self._refused.get(name, 0.0) > REFUSED_SECONDS
        }
        if not asked:
            return
        log = next(iter(group.values()))[0]
        try:
            view = log.recent(tuple(dict.fromkeys(t for topics in asked.values() for t in topics)), AGE_SECONDS)
        except Unavailable as error:
            for name in asked:
                self._set(name, None, str(error))
        except SinkError as error:
            if len(asked) > 1:
                self._look_apart(group, asked)
            else:
                (name,) = asked
                self._refused[name] = now
                self._set(name, None, str(error))
        else:
            self._share(view, asked)

    def _look_apart(
        self, group: Mapping[str, tuple[RecentLog, tuple[str, ...]]], asked: Mapping[str, tuple[str, ...]]
    ) -> None:
        for name in asked:
            self._look_together({name: group[name]})

    def _share(self, view: LogView, asked: Mapping[str, tuple[str, ...]]) -> None:
        by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {}
        for source, log in view.partitions.items():
            by_topic.setdefault(source.topic, {})[source] = log
        for name, topics in asked.items():
            logs = {source: log for topic in topics for source, log in by_topic.get(topic, {}).items()}
            self._set(name, LogView(view.cluster, logs), None)

    def _set(self, name: str, view: LogView | None, error: str | None) -> None:
        with self._first:
            self._views[name] = view, error
            self._first.notify_all()
