"""Asks Kafka for the ends of many sinks' logs, with one question for all sinks of a cluster.

A topic that is missing, refused or unsettled hides no other sink: the sinks are then asked about in halves, down to the
one. Guarantee: a cluster that does not answer is waited for once. Raises nothing: an error of Kafka is the answer for
the sink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka.log import Log, Unsettled
from sink.operations.observed_sink import ObservedSink

LogAnswer = LogView | SinkError
"""The view of one sink's log, or the reason why there is none."""
Ask = Callable[[Sequence[str], Sequence[str], Sequence[str]], LogView]
"""Takes a view of topics, of the optional ones that exist, and of those that match patterns, without waiting for topics
to settle. Raises SinkError."""


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """One sink's topics. `optional` topics may be missing."""

    topics: tuple[str, ...]
    pattern: str | None
    optional: tuple[str, ...]

    def answer_in(self, view: LogView, by_topic: Mapping[str, Mapping[TopicPartition, PartitionLog]]) -> LogView:
        """Returns this sink's part of a view of many, whose partitions are `by_topic`."""
        pattern = self.pattern
        matching = () if pattern is None else tuple(topic for topic in by_topic if re.fullmatch(pattern, topic))
        topics = _united((self.topics, self.optional, matching))
        ranges = {partition: ends for topic in topics for partition, ends in by_topic.get(topic, {}).items()}
        return LogView(view.cluster, ranges, deleted=tuple(topic for topic in view.deleted if topic in self.optional))


def log_question(sink: ObservedSink, recorded_topics: Collection[str]) -> LogQuestion:
    """Asks for the configured topics. A recorded topic that is not configured by name may have been deleted."""
    unconfigured = sorted(set(recorded_topics).difference(sink.topics))
    return LogQuestion(sink.topics, sink.topic_pattern, tuple(unconfigured))


def ask_fresh(log: Log, questions: Mapping[str, LogQuestion]) -> dict[str, LogAnswer]:
    """Answers the questions of sinks that share a cluster, by the names of the sinks. Waits for the topics of one sink
    to settle, not for those of many.
    """
    view = log.view if len(questions) == 1 else log.view_once

    def ask(topics: Sequence[str], optional: Sequence[str], patterns: Sequence[str]) -> LogView:
        # The log lists topics for the first pattern, and answers for the others from that list.
        matching = (topic for pattern in patterns[1:] for topic in log.topics(pattern) if topic not in topics)
        return view(topics, patterns[0] if patterns else None, _united((optional, matching)))

    return ask_all(ask, questions)


def ask_all(ask: Ask, questions: Mapping[str, LogQuestion]) -> dict[str, LogAnswer]:
    """Answers the questions of sinks that share a cluster, by the names of the sinks."""
    topics = _united(question.topics for question in questions.values())
    optional = _united(question.optional for question in questions.values())
    patterns = _united((question.pattern,) for question in questions.values() if question.pattern is not None)
    try:
        view = ask(topics, optional, patterns)
    except SinkError as error:
        is_away = isinstance(error, Unavailable) and not isinstance(error, Unsettled)
        if is_away or len(questions) == 1:
            return dict.fromkeys(questions, error)
        return {name: answer for half in _halves(questions) for name, answer in ask_all(ask, half).items()}
    by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {}
    for partition, ends in view.partitions.items():
        by_topic.setdefault(partition.topic, {})[partition] = ends
    return {name: question.answer_in(view, by_topic) for name, question in questions.items()}


def _halves(questions: Mapping[str, LogQuestion]) -> Iterator[dict[str, LogQuestion]]:
    items = list(questions.items())
    middle = len(items) // 2
    yield dict(items[:middle])
    yield dict(items[middle:])


def _united(topics: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topic for names in topics for topic in names))
