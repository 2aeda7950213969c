"""Chooses sinks of a configuration by name, those that topics have brought about among them.

A pattern's sinks are those of the topics that Kafka has now, and of those that ZooKeeper has on record: one whose topic
is gone can still be looked at, and so can all of them while Kafka does not answer. Errors: ConfigError for a name that
no sink has; Unavailable when neither answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
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
    """`problems`: why topics that match a pattern are no sinks."""

    sinks: tuple[Settings, ...]
    problems: tuple[TopicProblem, ...] = ()


def known_sinks(fleet: Fleet) -> KnownSinks:
    """All sinks that there are now."""
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
    new, problems = expand(_with_recorded(fleet, found, recorded), fleet.sinks)
    hide(secret for settings in new for secret in settings.secrets)
    return KnownSinks((*fleet.sinks, *new), problems)


def _with_recorded(
    fleet: Fleet, found: Sequence[tuple[TopicPattern, set[str]]], recorded: Mapping[str, Collection[str]]
) -> list[tuple[TopicPattern, set[str]]]:
    """`found`, and the topics that the sink of each has on record itself: below the same root may be other fleets."""
    anywhere = {topic for topics in recorded.values() for topic in topics}
    both = []
    for pattern, names in found:
        gone, _ = expand([(pattern, anywhere - names)], fleet.sinks)
        own = {topic for sink in gone for topic in sink.topics if topic in recorded.get(sink.name, ())}
        both.append((pattern, names | own))
    return both


def _topics_of_kafka(fleet: Fleet) -> list[tuple[str, ...] | SinkError]:
    """By pattern: the names of its cluster's topics, or why they are not known."""
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
    """The topics of which each sink below this fleet's root has partitions on record. Raises Unavailable."""
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
    """Those that one of `names` names, which may be patterns with `*` and `?`; without names all of them."""
    fixed = [settings for settings in fleet.sinks if any(settings.name == name for name in names)]
    if names and len(fixed) == len(set(names)):
        return KnownSinks(tuple(fixed))
    known = known_sinks(fleet)
    for name in names:
        if not any(fnmatchcase(settings.name, name) for settings in known.sinks):
            there = f"there are {shown(known.sinks)}" if known.sinks else "there are none"
            raise ConfigError(f"--sink {name}: no sink of {fleet.path} is called so; {there}")
    if not names:
        return known
    chosen = (settings for settings in known.sinks if any(fnmatchcase(settings.name, name) for name in names))
    return KnownSinks(tuple(chosen))


def choose_one(fleet: Fleet, names: Sequence[str]) -> Settings:
    """The one that is named; without a name the only one."""
    sinks = choose(fleet, names).sinks
    if len(sinks) == 1:
        return sinks[0]
    if not sinks:
        raise ConfigError(f"{fleet.path}: no topic matches yet, so that there is no sink")
    which = f"--sink names {len(sinks)} sinks" if names else f"{fleet.path} has {len(sinks)} sinks"
    raise ConfigError(f"{which} ({shown(sinks)}), and this command takes one; name it with --sink")


def shown(sinks: Sequence[Settings]) -> str:
    more = f" and {len(sinks) - SHOWN_NAMES} more" if len(sinks) > SHOWN_NAMES else ""
    return ", ".join(settings.name for settings in sinks[:SHOWN_NAMES]) + more


@dataclass(frozen=True, slots=True)
class Answer(Generic[_Result]):
    """The outcome for one sink; `error` where it could not be done."""

    settings: Settings
    result: _Result | None = None
    error: SinkError | None = None


def side_by_side(
    sinks: Iterable[Settings], act: Callable[[Settings], _Result], at_once: int = SIDE_BY_SIDE
) -> list[Answer[_Result]]:
    """Acts for each of the sinks, some at once; the answers have the order of the sinks."""

    def answer(settings: Settings) -> Answer[_Result]:
        try:
            return Answer(settings, act(settings))
        except SinkError as error:
            return Answer(settings, error=error)

    with ThreadPoolExecutor(at_once, "sinks") as pool:
        return list(pool.map(answer, sinks))
