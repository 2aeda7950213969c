"""Looks at the ends of Kafka's log for all sinks of a process, with one question for all sinks that share a client.

A sink whose topics Kafka refuses or does not have is asked about again after some time. Raises nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from coordination.errors import Unavailable
from coordination.state.model import LogView
from coordination.state.tree import KeeperView
from sink.clients.kafka.shared_log import SharedLog
from sink.http.facts import HostedSink
from sink.operations.log_ends import Ask, LogAnswer, LogQuestion, ask_all, log_question

AGE_SECONDS = 4.0
REFUSED_SECONDS = 30.0
"""Seconds after which Kafka is asked again about refused topics."""


class LogCache:
    """One thread calls `refresh`; any thread may call the other methods."""

    def __init__(self) -> None:
        self._answers: dict[str, LogAnswer] = {}
        self._refused: dict[str, float] = {}
        self._changed = threading.Condition()

    def answer_for(self, sink: str) -> LogAnswer | None:
        """Returns the last view, or the error instead; None before the first refresh."""
        return self._answers.get(sink)

    def wait_for(self, sinks: Collection[str], seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: all(name in self._answers for name in sinks), seconds)

    def refresh(self, sinks: Mapping[str, tuple[HostedSink, KeeperView | None]]) -> None:
        now = time.monotonic()
        by_client: dict[int, tuple[SharedLog, dict[str, LogQuestion]]] = {}
        for name, (hosted, view) in sinks.items():
            if now - self._refused.get(name, -REFUSED_SECONDS) >= REFUSED_SECONDS:
                _, questions = by_client.setdefault(id(hosted.log), (hosted.log, {}))
                questions[name] = log_question(hosted.observed, () if view is None else view.topics)
        for log, questions in by_client.values():
            answers = ask_all(_recent(log), questions)
            errors = {name: error for name, error in answers.items() if not isinstance(error, LogView)}
            self._refused |= {name: now for name, error in errors.items() if not isinstance(error, Unavailable)}
            with self._changed:
                self._answers |= answers
                self._changed.notify_all()
        for removed in self._answers.keys() - sinks.keys():
            del self._answers[removed]
            self._refused.pop(removed, None)


def _recent(log: SharedLog) -> Ask:
    return lambda topics, optional, patterns: log.recent(topics, AGE_SECONDS, optional, patterns)
