"""Chooses sinks of a configuration by name, including the sinks of patterns.

A pattern has a sink for each matching topic that Kafka has now, or that ZooKeeper has on record. So a command can show
a sink whose topic is gone, and the recorded sinks while Kafka does not answer. Raises ConfigError for a name that no
sink has, and if no chosen sink can be used. Raises Unavailable if a Kafka cluster does not answer and ZooKeeper lists
no topics either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from coordination.errors import ConfigError, SinkError, Unavailable
from coordination.state.tree import PARTITIONS
from sink.clients.kafka.log import Log
from sink.clients.zookeeper.session import connected
from sink.config import Configuration, ProcessSettings, Settings, TopicPattern, TopicProblem, expand
from sink.telemetry.logs import hide

SIDE_BY_SIDE = 8
"""The most sinks that a command handles at once."""
SHOWN_NAMES = 8
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class KnownSinks:
    """`problems`: the reasons why matching topics are not sinks. `misconfigured`: the reasons why configured sinks
    cannot be used, by name. `gone`: the names of the sinks of patterns whose topics Kafka no longer has.
    """

    sinks: tuple[Settings, ...]
    problems: tuple[TopicProblem, ...] = ()
    misconfigured: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()


def known_sinks(fleet: Configuration) -> KnownSinks:
    """Returns the configured sinks and those of patterns, also if their topics are gone. Omits misconfigured sinks."""
    if not fleet.patterns:
        return KnownSinks(fleet.sinks)
    topics_by_cluster, errors = _topics_of_kafka(fleet)
    reason = ""
    recorded: Mapping[str, Collection[str]] = {}
    try:
        with connected(fleet.process.ensemble) as client:
            recorded = _recorded_topics(client, fleet.process)
    except SinkError as error:
        reason = str(error)
    if errors and not recorded:
        raise Unavailable(f"cannot list the sinks of topic patterns: {errors[0]} {reason}".strip())
    topics_by_pattern = [
        (pattern, set(topics_by_cluster.get(pattern.probe.bootstrap, ()))) for pattern in fleet.patterns
    ]
    pattern_sinks, problems = expand(
        _with_recorded_topics(fleet, topics_by_pattern, recorded), fleet.sinks, fleet.misconfigured.values()
    )
    # The log redacts these secrets from now on.
    hide(secret for settings in pattern_sinks for secret in settings.secrets)
    # A cluster that has not answered may still have the topics.
    gone = frozenset(
        settings.name
        for settings in pattern_sinks
        if settings.bootstrap in topics_by_cluster and topics_by_cluster[settings.bootstrap].isdisjoint(settings.topics)
    )
    return KnownSinks((*fleet.sinks, *pattern_sinks), problems, gone=gone)


def _with_recorded_topics(
    fleet: Configuration,
    topics_by_pattern: Sequence[tuple[TopicPattern, set[str]]],
    recorded: Mapping[str, Collection[str]],
) -> list[tuple[TopicPattern, set[str]]]:
    """Adds to each pattern the recorded topics of its own sinks. Only the tree of the sink that the pattern makes of a
    topic counts: sinks of other configurations may lie below the same root."""
    all_recorded = {topic for topics in recorded.values() for topic in topics}
    combined = []
    for pattern, names in topics_by_pattern:
        absent_sinks, _ = expand([(pattern, all_recorded - names)], fleet.sinks)
        recorded_names = {
            topic for sink in absent_sinks for topic in sink.topics if topic in recorded.get(sink.name, ())
        }
        combined.append((pattern, names | recorded_names))
    return combined


def _topics_of_kafka(fleet: Configuration) -> tuple[dict[str, frozenset[str]], list[SinkError]]:
    """Returns the topics of each cluster that answers, and the errors of the others."""
    topics: dict[str, frozenset[str]] = {}
    errors: dict[str, SinkError] = {}
    for pattern in fleet.patterns:
        cluster = pattern.probe.bootstrap
        if cluster not in topics and cluster not in errors:
            try:
                with closing(Log(pattern.probe.kafka_native)) as log:
                    topics[cluster] = frozenset(log.topics())
            except SinkError as error:
                errors[cluster] = error
    return topics, list(errors.values())


def _recorded_topics(client: KazooClient, process: ProcessSettings) -> dict[str, Collection[str]]:
    """Returns the topics whose partitions each sink below this fleet's root records. Raises Unavailable."""
    root = process.zookeeper_root
    topics: dict[str, Collection[str]] = {}
    try:
        try:
            sinks = client.get_children(root or "/")
        except NoNodeError:
            return topics
        pending = {name: client.get_children_async(f"{root}/{name}/{PARTITIONS}") for name in sinks}
        for name, response in pending.items():
            with suppress(NoNodeError):
                topics[name] = response.get()
    except KazooException as error:
        raise Unavailable(f"ZooKeeper at {process.zookeeper} stopped answering ({error!r}). Try again.") from error
    return topics


def choose(fleet: Configuration, names: Sequence[str]) -> KnownSinks:
    """Chooses the sinks that match `names`, which may be patterns with `*` and `?`; without names all sinks. Raises
    ConfigError if all chosen sinks are misconfigured.
    """
    configured = [settings for settings in fleet.sinks if settings.name in names]
    if names and len(configured) == len(set(names)):
        return KnownSinks(tuple(configured))
    patterns = names or ("*",)
    misconfigured = {
        sink.name: sink.reason for sink in fleet.misconfigured.values() if _matches_any(sink.name, patterns)
    }
    candidates = KnownSinks(()) if names and all(name in misconfigured for name in names) else known_sinks(fleet)
    known_names = [*misconfigured, *(settings.name for settings in candidates.sinks)]
    for name in names:
        if not any(fnmatchcase(known_name, name) for known_name in known_names):
            available = f"There are {listed_names(candidates.sinks)}." if candidates.sinks else "There are none."
            raise ConfigError(f"--sink {name}: no such sink in {fleet.path}. {available}")
    chosen = tuple(settings for settings in candidates.sinks if _matches_any(settings.name, patterns))
    if misconfigured and not chosen:
        raise ConfigError("\n".join(f"sink {name} cannot be used: {reason}" for name, reason in misconfigured.items()))
    if names:
        # A command acts on a named sink even if its topic is gone, and need not report other topics.
        return KnownSinks(chosen, (), misconfigured)
    return KnownSinks(chosen, candidates.problems, misconfigured, candidates.gone)


def _matches_any(name: str, names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in names)


def choose_one(fleet: Configuration, names: Sequence[str]) -> Settings:
    """Returns the named sink, or the only sink if no name is given. Raises ConfigError unless it is exactly one."""
    chosen_sinks = choose(fleet, names)
    sinks = chosen_sinks.sinks
    if len(sinks) == 1 and not chosen_sinks.misconfigured:
        return sinks[0]
    if not sinks:
        raise ConfigError(f"{fleet.path}: no topic matches yet, so there is no sink. Create a matching topic.")
    count = len(sinks) + len(chosen_sinks.misconfigured)
    subject = f"--sink names {count} sinks" if names else f"{fleet.path} has {count} sinks"
    raise ConfigError(
        f"{subject} ({listed_names(sinks, chosen_sinks.misconfigured)}), and this command takes one. Name it with"
        " --sink."
    )


def listed_names(sinks: Sequence[Settings], more_names: Iterable[str] = ()) -> str:
    """Returns the names for a message, at most `SHOWN_NAMES` of them."""
    names = [*(settings.name for settings in sinks), *more_names]
    suffix = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + suffix


@dataclass(frozen=True, slots=True)
class SinkResult(Generic[_Result]):
    """The outcome for one sink; `error` if it failed. A misconfigured sink has no settings."""

    name: str
    settings: Settings | None = None
    result: _Result | None = None
    error: SinkError | None = None


def side_by_side(
    chosen_sinks: KnownSinks, act: Callable[[Settings], _Result], at_once: int = SIDE_BY_SIDE
) -> list[SinkResult[_Result]]:
    """Calls `act` for each sink, `at_once` in parallel. The answers have the order of the sinks."""

    def answer(settings: Settings) -> SinkResult[_Result]:
        try:
            return SinkResult(settings.name, settings, act(settings))
        except SinkError as error:
            return SinkResult(settings.name, settings, error=error)

    failures: list[SinkResult[_Result]] = [
        SinkResult(name, error=ConfigError(reason)) for name, reason in chosen_sinks.misconfigured.items()
    ]
    with ThreadPoolExecutor(at_once, "sinks") as pool:
        return [*pool.map(answer, chosen_sinks.sinks), *failures]
