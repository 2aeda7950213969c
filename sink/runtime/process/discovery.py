"""Finds the topics that become sinks: asks Kafka again and again, reports new topics, missing ones and unusable ones.

Guarantee: a topic that matches a pattern has its sink in `sinks` within `POLL_SECONDS` and the age that a list of
topics may have (`sink.clients.kafka.log.LIST_SECONDS`). A topic that cannot become a sink is named with the reason, as
long as that lasts, and stops no other one. A missing topic is reported; its sink stays as it is. A cluster that does
not answer is asked again, and delays no topic of another cluster. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import structlog

from coordination.errors import SinkError
from sink.clients.kafka.shared_log import SharedLog
from sink.config import Configuration, Settings, TopicPattern, TopicProblem, expand
from sink.config.record_formats import registry_access
from sink.decode.registry.client import Registry
from sink.telemetry.logs import hide
from sink.telemetry.periodic import Periodic

LOG = structlog.get_logger("sink.worker")
POLL_SECONDS = 15.0
REGISTRY_SECONDS = 5.0
"""A registry that answers no sooner is asked again at the next look."""


class TopicDiscovery(Periodic):
    """Reports what it finds to the log, each finding once. Any thread may read its attributes."""

    def __init__(self, fleet: Configuration, kafka: Callable[[Settings], SharedLog]) -> None:
        super().__init__("discovery", self._look, lambda: POLL_SECONDS)
        self.sinks: tuple[Settings, ...] = ()
        """The sinks of all topics that have been found, hosted by this worker or not."""
        self.missing: frozenset[str] = frozenset()
        """Topics that have become sinks and are gone from Kafka."""
        self.problems: tuple[TopicProblem, ...] = ()
        """All topics that cannot become sinks."""
        self._fleet = fleet
        self._kafka = kafka
        self._waits_for = ""

    def update_fleet(self, fleet: Configuration) -> None:
        """Takes the configuration that was read again; its patterns are the same."""
        self._fleet = fleet

    def poll(self) -> None:
        """Looks once. Raises what Kafka's client raises, after it has reported the topics of the other clusters."""
        topics, unreachable = self._listed()
        fleet = self._fleet
        configured = {settings.name for settings in fleet.sinks}
        known = tuple(settings for settings in self.sinks if settings.name not in configured)
        new_sinks, problems = expand(topics, [*fleet.sinks, *known], fleet.misconfigured.values())
        hide(secret for settings in new_sinks for secret in settings.secrets)
        usable, unregistered = _with_schema(new_sinks)
        self.sinks = (*known, *usable)
        self._report_missing(topics)
        if (found_problems := (*problems, *unregistered)) != self.problems:
            self.problems = found_problems
            for problem in found_problems:
                LOG.warning("discovery.no_sink", topic=problem.topic, reason=str(problem))
        if unreachable:
            raise unreachable[0]

    def _listed(self) -> tuple[list[tuple[TopicPattern, tuple[str, ...]]], list[SinkError]]:
        """Returns the topics of each pattern's cluster, and the errors of clusters that do not answer."""
        topics: list[tuple[TopicPattern, tuple[str, ...]]] = []
        unreachable: dict[str, SinkError] = {}
        for pattern in self._fleet.patterns:
            cluster = pattern.probe.bootstrap
            if cluster in unreachable:
                continue
            try:
                topics.append((pattern, self._kafka(pattern.probe).topics()))
            except SinkError as error:
                unreachable[cluster] = error
        return topics, list(unreachable.values())

    def _report_missing(self, topics: Sequence[tuple[TopicPattern, Collection[str]]]) -> None:
        clusters: dict[str, set[str]] = {}
        for pattern, names in topics:
            clusters.setdefault(pattern.probe.bootstrap, set()).update(names)
        missing = frozenset(
            topic
            for settings in self.sinks
            for topic in settings.topics
            if settings.bootstrap in clusters and topic not in clusters[settings.bootstrap]
        )
        if newly_missing := sorted(missing - self.missing):
            LOG.warning("discovery.topics_gone", topics=newly_missing, action="their sinks stay")
        self.missing = missing

    def _look(self) -> None:
        try:
            self.poll()
        except SinkError as error:
            if str(error) != self._waits_for:
                LOG.warning("discovery.waits", reason=str(error))
            self._waits_for = str(error)
        else:
            self._waits_for = ""


def _with_schema(new_sinks: Sequence[Settings]) -> tuple[list[Settings], list[TopicProblem]]:
    """Returns the sinks whose columns can be looked up, and the problems of the other sinks: a sink without columns
    would be refused for good.
    """
    usable: list[Settings] = []
    problems: list[TopicProblem] = []
    subjects: dict[object, Collection[str] | SinkError] = {}
    for settings in new_sinks:
        access = registry_access(settings) if settings.schema_subject else None
        if access is None:
            usable.append(settings)
            continue
        if access not in subjects:
            try:
                subjects[access] = frozenset(Registry(replace(access, patience_seconds=REGISTRY_SECONDS)).subjects())
            except SinkError as error:
                subjects[access] = error
        known_subjects = subjects[access]
        if isinstance(known_subjects, SinkError):
            problems.append(_problem(settings, f"schema.subject {settings.schema_subject}: {known_subjects}"))
        elif settings.schema_subject not in known_subjects:
            sentence = f"schema.subject: the registry has no {settings.schema_subject}. Register a schema for it."
            problems.append(_problem(settings, sentence))
        else:
            usable.append(settings)
    return usable, problems


def _problem(settings: Settings, sentence: str) -> TopicProblem:
    return TopicProblem(settings.topics[0], settings.name, f"sink {settings.name}", sentence)
