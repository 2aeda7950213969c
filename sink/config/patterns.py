"""Sinks that topics bring about: a pattern of topics, and the settings of the sink that each topic becomes. Pure.

A sink of the configuration whose `kafka.topic.regex` stands beside settings with `{topic}` in them, or with the name of
a group of the expression, is no sink but a pattern: each topic that matches becomes one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sink.config.build import settings_of
from sink.config.claims import Claims
from sink.config.files import Entry, Problem
from sink.config.misconfigured import Misconfigured
from sink.config.model import Settings, is_of_process
from sink.config.values import topic_regex

TOPIC = "topic"
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")
"""A catalogue's names have letters, digits and `_` only."""
_SERVERS = ("kafka.", "bootstrap.servers", "schema.registry.")
_FILES = ("schema.file", "value.schema.file")
_ANY_FILE = __file__


def placeholders(entry: Entry, names: frozenset[str]) -> frozenset[str]:
    """Returns those of `names` that the entry's value has in braces."""
    return frozenset(name for name in names if any(f"{{{name}}}" in value for value in entry.values))


def filled(entry: Entry, values: Mapping[str, str]) -> Entry:
    """Returns `entry` with `values` in the place of their names in braces. Settings that lead to servers are the same
    for all.
    """
    if entry.key.startswith(_SERVERS) or is_of_process(entry.key):
        return entry
    is_catalog = entry.key.startswith("catalog.")

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", _NOT_A_NAME.sub("_", value) if is_catalog else value)
        return text

    return replace(entry, value=tuple(map(fill, entry.value)) if isinstance(entry.value, tuple) else fill(entry.value))


@dataclass(frozen=True)
class TopicPattern:
    """`regex` names the topics, `entries` the settings that each of them gets. `name` is what the configuration calls
    it.

    `probe` are the settings of a made-up topic: Kafka's cluster and the schema registry are the same for all of them.
    """

    name: str
    regex: str
    entries: Mapping[str, Entry] = field(repr=False)
    place: str
    directory: Path
    environ: Mapping[str, str] = field(repr=False)
    probe: Settings
    columns: bool = True

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.regex, topic) is not None and lands(topic, self.probe)


@dataclass(frozen=True)
class TopicProblem:
    """Why a topic that matches a pattern becomes no table, in a sentence."""

    topic: str
    pattern: str
    origin: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.origin}, topic {self.topic}: {self.sentence}"


def pattern_of(
    name: str,
    entries: Mapping[str, Entry],
    place: str,
    directory: Path,
    environ: Mapping[str, str],
    problems: list[Problem],
    columns: bool = True,
) -> TopicPattern | None:
    """Returns the pattern that `entries` describe; adds what is wrong with it, whatever the topic, to `problems`."""
    regex = topic_regex(entries["kafka.topic.regex"].text)
    entries = {"target.table.name": Entry("target.table.name", f"{{{TOPIC}}}", place), **entries}
    known = names_of(regex)
    named = entries.get("sink.name", entries["target.table.name"])
    for entry in filter(None, [entries.get("target.base.path"), named]):
        if not placeholders(entry, known):
            sentence = f"{entry.key} would be the same for every topic of {name}; put {{{TOPIC}}} into it"
            problems.append(Problem(entry.origin, sentence))
    made_up = {key: _made_up(entry, known) for key, entry in entries.items()}
    wrong: list[Problem] = []
    probe = settings_of(_one_topic(made_up, TOPIC), place, directory, environ, wrong, columns)
    stood_in = {entry.origin for key, entry in entries.items() if made_up[key].value == _ANY_FILE}
    problems += [problem for problem in wrong if problem.origin not in stood_in]
    if probe is None:
        return None
    return TopicPattern(name, regex, entries, place, directory, environ, probe, columns)


def names_of(regex: str) -> frozenset[str]:
    """Returns the names that stand for something in the settings of a pattern."""
    return frozenset({TOPIC, *re.compile(regex).groupindex})


def expand(
    topics: Iterable[tuple[TopicPattern, Collection[str]]],
    existing: Iterable[Settings],
    misconfigured: Collection[Misconfigured] = (),
) -> tuple[tuple[Settings, ...], tuple[TopicProblem, ...]]:
    """Settings of the sinks that the topics of each pattern's cluster bring about beside the `existing` ones, and why
    others cannot be.

    A sink of that name that reads that topic already is the one: a sink of the configuration can so stand for a topic
    that needs settings of its own, and of two patterns the first decides. Topics that would have to share a name or a
    place become no tables, none of them: which one came first is not the same for all workers. Nor does one that has
    settings of its own in the configuration, which cannot be used.
    """
    taken, wanted = Claims(), Claims()
    done: set[tuple[str, str, str]] = set()
    for settings in existing:
        taken.add(settings)
        done.update((settings.name, settings.bootstrap, topic) for topic in settings.topics)
    problems: list[TopicProblem] = []
    made: list[tuple[TopicPattern, str, Settings]] = []
    for pattern, names in topics:
        for topic in sorted(set(names)):
            sink, wrong = _sink_of(pattern, topic)
            problems += wrong
            if sink is None or (sink.name, sink.bootstrap, topic) in done:
                continue
            if own := next((other.name for other in misconfigured if other.claims(topic, sink)), None):
                sentence = f"it may be that of sink {own} of the configuration, which cannot be used; mend that first"
                problems.append(TopicProblem(topic, pattern.name, pattern.place, sentence))
                continue
            done.add((sink.name, sink.bootstrap, topic))
            wanted.add(sink)
            made.append((pattern, topic, sink))
    new: list[Settings] = []
    for pattern, topic, sink in made:
        conflicts = list(dict.fromkeys([*taken.conflicts(sink), *wanted.conflicts(sink)]))
        problems += [TopicProblem(topic, pattern.name, pattern.place, sentence) for sentence in conflicts]
        if not conflicts:
            new.append(sink)
    return tuple(new), tuple(problems)


def _sink_of(pattern: TopicPattern, topic: str) -> tuple[Settings | None, list[TopicProblem]]:
    """Returns the settings of a topic's sink; None where it does not match, or cannot be one."""
    match = re.fullmatch(pattern.regex, topic)
    if match is None or not lands(topic, pattern.probe):
        return None, []
    values = {**match.groupdict(default=""), TOPIC: topic}
    used = frozenset().union(*(placeholders(entry, frozenset(values)) for entry in pattern.entries.values()))
    if empty := sorted(name for name in used if not values[name]):
        sentence = f"the group {empty[0]} of kafka.topic.regex is empty in it; write an expression that fills it"
        return None, [TopicProblem(topic, pattern.name, pattern.place, sentence)]
    entries = {key: filled(entry, values) for key, entry in pattern.entries.items()}
    problems: list[Problem] = []
    settings = settings_of(
        _one_topic(entries, topic), pattern.place, pattern.directory, pattern.environ, problems, pattern.columns
    )
    wrong = [TopicProblem(topic, pattern.name, problem.origin, problem.sentence) for problem in problems]
    return (None if wrong else settings), wrong


def lands(topic: str, settings: Settings) -> bool:
    """Whether a topic whose name matches is one: Kafka's own are not, nor that of the sink's bad records."""
    return not topic.startswith("__") and topic != settings.errors_topic


def _one_topic(entries: Mapping[str, Entry], topic: str) -> dict[str, Entry]:
    """Returns `entries` of one topic's sink: its name in the place of the expression."""
    own = {key: entry for key, entry in entries.items() if key != "kafka.topic.regex"}
    own["kafka.topic.names"] = Entry("kafka.topic.names", topic, entries["kafka.topic.regex"].origin)
    return own


def _made_up(entry: Entry, known: frozenset[str]) -> Entry:
    """Returns `entry` for a made-up topic. A file that depends on the topic is not there: any other stands in."""
    if placeholders(entry, known) and (entry.key in _FILES or "${" in entry.text):
        return replace(entry, value=_ANY_FILE)
    return filled(entry, dict.fromkeys(known, TOPIC))
