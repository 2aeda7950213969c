"""Asks Kafka for the ends of many sinks' logs, with one question for all sinks of a cluster.

A topic that is missing, refused or unsettled hides no other sink: the sinks are then asked about in halves, down to the
one. A sink whose topics match a pattern is asked about alone. Guarantee: a cluster that does not answer is waited for
once. Raises nothing: an error of Kafka is the answer for the sink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from coordination.errors import SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.clients.kafka import Log, Unsettled
from sink.config import Settings

LogAnswer = tuple[LogView | None, str | None]
"""The view of one sink's log, or the reason why there is none."""


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """One sink's topics. `optional` topics may be missing."""

    topics: tuple[str, ...]
    pattern: str | None
    optional: tuple[str, ...]


def log_question(settings: Settings, recorded_topics: Collection[str]) -> LogQuestion:
    """Asks for the configured topics. A recorded topic that is not configured by name may have been deleted."""
    unconfigured = sorted(set(recorded_topics).difference(settings.topics))
    return LogQuestion(tuple(settings.topics), settings.topic_pattern, tuple(unconfigured))


def ask_one(log: Log, question: LogQuestion) -> LogAnswer:
    try:
        return log.view(question.topics, question.pattern, question.optional), None
    except SinkError as error:
        return None, str(error)


def ask_all(log: Log, questions: Mapping[str, LogQuestion]) -> dict[str, LogAnswer]:
    """Answers the questions of sinks that share a cluster, by the names of the sinks."""
    if len(questions) == 1:
        return {name: ask_one(log, question) for name, question in questions.items()}
    alone = {name: question for name, question in questions.items() if question.pattern is not None}
    answers = _ask_together(log, {name: question for name, question in questions.items() if name not in alone})
    for name, question in alone.items():
        answers |= _ask_together(log, {name: question})
    return answers


def _ask_together(log: Log, questions: Mapping[str, LogQuestion]) -> dict[str, LogAnswer]:
    if not questions:
        return {}
    pattern = next(iter(questions.values())).pattern if len(questions) == 1 else None
    topics = _united(question.topics for question in questions.values())
    optional = _united(question.optional for question in questions.values())
    try:
        # Once: `Log.view` would wait for the topics of one sink, and all sinks with it.
        view = log.view_once(topics, pattern, optional)
    except SinkError as error:
        is_away = isinstance(error, Unavailable) and not isinstance(error, Unsettled)
        if is_away or len(questions) == 1:
            return {name: (None, str(error)) for name in questions}
        return {name: answer for half in _halves(questions) for name, answer in _ask_together(log, half).items()}
    if len(questions) == 1:
        return dict.fromkeys(questions, (view, None))
    return dict(_distributed(view, questions))


def _distributed(view: LogView, questions: Mapping[str, LogQuestion]) -> Iterator[tuple[str, LogAnswer]]:
    by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {}
    for partition, log_range in view.partitions.items():
        by_topic.setdefault(partition.topic, {})[partition] = log_range
    for name, question in questions.items():
        topics = _united((question.topics, question.optional))
        ranges = {partition: ends for topic in topics for partition, ends in by_topic.get(topic, {}).items()}
        deleted = tuple(topic for topic in view.deleted if topic in question.optional)
        yield name, (LogView(view.cluster, ranges, deleted=deleted), None)


def _halves(questions: Mapping[str, LogQuestion]) -> Iterator[dict[str, LogQuestion]]:
    items = list(questions.items())
    middle = len(items) // 2
    yield dict(items[:middle])
    yield dict(items[middle:])


def _united(topics: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topic for names in topics for topic in names))
