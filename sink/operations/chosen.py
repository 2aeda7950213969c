"""Chooses sinks of a configuration by name, also those that a pattern has made of topics.

A pattern's sinks are those of the topics that Kafka has now, and of those that ZooKeeper has on record: so a command
can look at a sink whose topic is gone, and at all of them while Kafka does not answer. Errors: ConfigError for a name
that no sink has, and where no chosen sink can be used; Unavailable when neither Kafka nor ZooKeeper answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from coordination.errors import ConfigError, SinkError, Unavailable
from coordination.state.tree import PARTITIONS
from sink.clients.kafka import Log
from sink.clients.zookeeper import connected
from sink.config import Fleet, ProcessSettings, Settings, TopicPattern, TopicProblem, expand
from sink.telemetry.logs import hide

SIDE_BY_SIDE = 8
"""Sinks that a command looks after at once, at most."""
SHOWN_NAMES = 8
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class KnownSinks:
    """`problems`: why topics that match a pattern are no sinks. `misconfigured`: why sinks of the configuration cannot
    be used, by name.
    """

    sinks: tuple[Settings, ...]
    problems: tuple[TopicProblem, ...] = ()
    misconfigured: Mapping[str, str] = field(default_factory=dict)


def known_sinks(fleet: Fleet) -> KnownSinks:
    """Returns all sinks that there are now."""
    if not fleet.patterns:
        return KnownSinks(fleet.sinks)
    topics, reason = _topics_of_kafka(fleet), ""
    recorded: Mapping[str, Collection[str]] = {}
    try:
        with connected(fleet.process) as client:
            recorded = _recorded_topics(client, fleet.process)
    except SinkError as error:
        reason = str(error)
    if not recorded and (errors := [names for names in topics if isinstance(names, SinkError)]):
        raise Unavailable(f"which sinks the topics have brought about is not known: {errors[0]} {reason}".strip())
    found = [
        (pattern, set(() if isinstance(names, SinkError) else names))
        for pattern, names in zip(fleet.patterns, topics, strict=True)
    ]
    new, problems = expand(_with_recorded(fleet, found, recorded), fleet.sinks, fleet.misconfigured.values())
    hide(secret for settings in new for secret in settings.secrets)
    return KnownSinks((*fleet.sinks, *new), problems)


def _with_recorded(
    fleet: Fleet, found: Sequence[tuple[TopicPattern, set[str]]], recorded: Mapping[str, Collection[str]]
) -> list[tuple[TopicPattern, set[str]]]:
    """Adds to `found` the topics that each sink's own tree records: below the same root may be other fleets."""
    anywhere = {topic for topics in recorded.values() for topic in topics}
    both = []
    for pattern, names in found:
        gone, _ = expand([(pattern, anywhere - names)], fleet.sinks)
        own = {topic for sink in gone for topic in sink.topics if topic in recorded.get(sink.name, ())}
        both.append((pattern, names | own))
    return both


def _topics_of_kafka(fleet: Fleet) -> list[tuple[str, ...] | SinkError]:
    """Returns for each pattern the names of its cluster's topics, or the error."""
    asked: dict[str, tuple[str, ...] | SinkError] = {}
    for pattern in fleet.patterns:
        if pattern.probe.bootstrap not in asked:
            log = Log(pattern.probe)
            try:
                asked[pattern.probe.bootstrap] = log.topics()
            except SinkError as error:
                asked[pattern.probe.bootstrap] = error
            finally:
                log.close()
    return [asked[pattern.probe.bootstrap] for pattern in fleet.patterns]


def _recorded_topics(client: KazooClient, process: ProcessSettings) -> dict[str, Collection[str]]:
    """Returns the topics whose partitions each sink below this fleet's root records. Raises Unavailable."""
    root = process.zookeeper_root
    topics: dict[str, Collection[str]] = {}
    try:
        try:
            sinks = client.get_children(root or "/")
        except NoNodeError:
            return topics
        asked = {name: client.get_children_async(f"{root}/{name}/{PARTITIONS}") for name in sinks}
        for name, answer in asked.items():
            with suppress(NoNodeError):
                topics[name] = answer.get()
    except KazooException as error:
        raise Unavailable(f"ZooKeeper at {process.zookeeper} stopped answering ({error!r}); try again") from error
    return topics


def choose(fleet: Fleet, names: Sequence[str]) -> KnownSinks:
    """Chooses those that one of `names` names, which may be patterns with `*` and `?`; without names all of them.
    Raises ConfigError where all that are chosen are misconfigured.
    """
    fixed = [settings for settings in fleet.sinks if any(settings.name == name for name in names)]
    if names and len(fixed) == len(set(names)):
        return KnownSinks(tuple(fixed))
    wanted = names or ("*",)
    wrong = {sink.name: sink.reason for sink in fleet.misconfigured.values() if _is_named(sink.name, wanted)}
    known = known_sinks(fleet) if not names or not all(name in wrong for name in names) else KnownSinks(())
    for name in names:
        if not any(fnmatchcase(sink, name) for sink in (*wrong, *(settings.name for settings in known.sinks))):
            there = f"there are {shown(known.sinks)}" if known.sinks else "there are none"
            raise ConfigError(f"--sink {name}: no sink of {fleet.path} is called so; {there}")
    chosen = tuple(settings for settings in known.sinks if _is_named(settings.name, wanted))
    if wrong and not chosen:
        raise ConfigError("\n".join(f"sink {name} cannot be used: {reason}" for name, reason in wrong.items()))
    return KnownSinks(chosen, known.problems if not names else (), wrong)


def _is_named(name: str, names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in names)


def choose_one(fleet: Fleet, names: Sequence[str]) -> Settings:
    """Returns the sink that is named; without a name the only one."""
    known = choose(fleet, names)
    sinks = known.sinks
    if len(sinks) == 1 and not known.misconfigured:
        return sinks[0]
    if not sinks:
        raise ConfigError(f"{fleet.path}: no topic matches yet, so that there is no sink")
    count = len(sinks) + len(known.misconfigured)
    which = f"--sink names {count} sinks" if names else f"{fleet.path} has {count} sinks"
    raise ConfigError(f"{which} ({shown(sinks, known.misconfigured)}), and this command takes one; name it with --sink")


def shown(sinks: Sequence[Settings], others: Iterable[str] = ()) -> str:
    names = [*(settings.name for settings in sinks), *others]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


@dataclass(frozen=True, slots=True)
class Answer(Generic[_Result]):
    """The outcome for one sink; `error` where it could not be done. One that is misconfigured has no settings."""

    name: str
    settings: Settings | None = None
    result: _Result | None = None
    error: SinkError | None = None


def side_by_side(
    known: KnownSinks, act: Callable[[Settings], _Result], at_once: int = SIDE_BY_SIDE
) -> list[Answer[_Result]]:
    """Acts for each of the sinks, some at once; the answers have the order of the sinks."""

    def answer(settings: Settings) -> Answer[_Result]:
        try:
            return Answer(settings.name, settings, act(settings))
        except SinkError as error:
            return Answer(settings.name, settings, error=error)

    wrong: list[Answer[_Result]] = [
        Answer(name, error=ConfigError(reason)) for name, reason in known.misconfigured.items()
    ]
    with ThreadPoolExecutor(at_once, "sinks") as pool:
        return [*pool.map(answer, known.sinks), *wrong]
