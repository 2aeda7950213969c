"""Sinks that are created from topics: a pattern of topics, and the settings of each topic's sink. Pure.

A configured sink is a pattern if it has `kafka.topic.regex` and settings with `{topic}` in them, or with the name of a
group of the expression in braces. Each topic that matches becomes a sink. A sink that cannot be used keeps the topics
and the path that it claims.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sink.config.build import settings_of
from sink.config.claims import Claims
from sink.config.files import Entry, Problem
from sink.config.model import Settings, is_of_process
from sink.config.values import topic_names, topic_regex
from sink.storage.access import canonical

TOPIC = "topic"
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")
"""A catalogue's names have letters, digits and `_` only."""
_SERVERS = ("kafka.", "bootstrap.servers", "schema.registry.")
_FILES = ("schema.file", "value.schema.file")
_STAND_IN_FILE = __file__


def names_in(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """Returns `kafka.topic.names`, or nothing if it is missing or malformed."""
    try:
        return topic_names(entries["kafka.topic.names"].value)
    except (KeyError, ValueError):
        return ()


def regex_in(entries: Mapping[str, Entry]) -> str | None:
    """Returns `kafka.topic.regex`, or None if it is missing or malformed."""
    try:
        return topic_regex(entries["kafka.topic.regex"].value)
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """A sink, or a pattern of topics, that cannot be used; all of them that have one name. `reason` gives all problems
    in one line.
    """

    name: str
    reason: str
    topics: tuple[str | None, ...]
    """Regular expressions for its topics; None if they are unknown."""
    base_paths: tuple[str, ...]

    def claims(self, topic: str, settings: Settings) -> bool:
        """Whether this sink may be the one that a pattern would create for `topic`."""
        topic_matches = any(topics is not None and re.fullmatch(topics, topic) is not None for topics in self.topics)
        is_its_path = canonical(settings.base_path) in map(canonical, self.base_paths)
        return topic_matches or settings.name == self.name or is_its_path


def misconfigured_of(name: str, reason: str, entries: Mapping[str, Entry]) -> Misconfigured:
    """Returns the sink of `entries`, as far as they can be read."""
    topics = names_in(entries)
    base_path = entries["target.base.path"].text if "target.base.path" in entries else ""
    if len(topics) == 1:
        base_path = base_path.replace("{topic}", topics[0])
    expression = "|".join(map(re.escape, topics)) if topics else regex_in(entries)
    return Misconfigured(name, reason, (expression,), (base_path,))


def merged_by_name(misconfigured: Iterable[Misconfigured]) -> dict[str, Misconfigured]:
    """Returns them by name. Those of one name become one, with all that they claim."""
    merged: dict[str, Misconfigured] = {}
    for sink in misconfigured:
        if (first := merged.get(sink.name)) is not None:
            reasons = f"{first.reason} {sink.reason}"
            sink = Misconfigured(sink.name, reasons, first.topics + sink.topics, first.base_paths + sink.base_paths)
        merged[sink.name] = sink
    return merged


def placeholders(entry: Entry, names: frozenset[str]) -> frozenset[str]:
    """Returns those of `names` that the entry's value has in braces."""
    return frozenset(name for name in names if any(f"{{{name}}}" in value for value in entry.values))


def filled(entry: Entry, values: Mapping[str, str]) -> Entry:
    """Returns `entry` with the names in braces replaced by `values`. Settings of servers stay as they are: all topics
    share them.
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
    """`regex` selects the topics, `entries` are the settings of each topic's sink. `name` is the pattern's name in the
    configuration.

    `probe` holds the settings of a made-up topic: Kafka's cluster and the schema registry are the same for all topics.
    """

    name: str
    regex: str
    entries: Mapping[str, Entry] = field(repr=False)
    origin: str
    directory: Path
    environ: Mapping[str, str] = field(repr=False)
    probe: Settings
    columns: bool = True

    @property
    def definition(self) -> tuple[str, str, Mapping[str, str]]:
        """All that decides about its sinks, besides settings of the process."""
        settings = {key: entry.text for key, entry in self.entries.items() if not is_of_process(key)}
        return self.name, self.regex, settings

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.regex, topic) is not None and can_land(topic, self.probe)


@dataclass(frozen=True)
class TopicProblem:
    """One sentence: why a topic that matches a pattern becomes no table."""

    topic: str
    pattern: str
    origin: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.origin}, topic {self.topic}: {self.sentence}"


def pattern_of(
    name: str,
    entries: Mapping[str, Entry],
    origin: str,
    directory: Path,
    environ: Mapping[str, str],
    problems: list[Problem],
    columns: bool = True,
) -> TopicPattern | None:
    """Returns the pattern that `entries` describe; adds its problems that do not depend on the topic to `problems`."""
    regex = topic_regex(entries["kafka.topic.regex"].text)
    entries = {"target.table.name": Entry("target.table.name", f"{{{TOPIC}}}", origin), **entries}
    placeholder_names = names_of(regex)
    name_entry = entries.get("sink.name", entries["target.table.name"])
    for entry in filter(None, [entries.get("target.base.path"), name_entry]):
        if not placeholders(entry, placeholder_names):
            sentence = f"{entry.key} would be the same for every topic of {name}. Put {{{TOPIC}}} into it."
            problems.append(Problem(entry.origin, sentence))
    probe_entries = {key: _probe_entry(entry, placeholder_names) for key, entry in entries.items()}
    probe_problems: list[Problem] = []
    probe = settings_of(_entries_of_topic(probe_entries, TOPIC), origin, directory, environ, probe_problems, columns)
    stand_in_origins = {entry.origin for key, entry in entries.items() if probe_entries[key].value == _STAND_IN_FILE}
    problems += [problem for problem in probe_problems if problem.origin not in stand_in_origins]
    if probe is None:
        return None
    return TopicPattern(name, regex, entries, origin, directory, environ, probe, columns)


def names_of(regex: str) -> frozenset[str]:
    """Returns the names that may stand in braces in the settings of a pattern."""
    return frozenset({TOPIC, *re.compile(regex).groupindex})


def expand(
    topics: Iterable[tuple[TopicPattern, Collection[str]]],
    existing: Iterable[Settings],
    misconfigured: Collection[Misconfigured] = (),
) -> tuple[tuple[Settings, ...], tuple[TopicProblem, ...]]:
    """Returns the settings of new sinks for the topics of each pattern's cluster, and the problems of other topics.

    An `existing` sink of that name that reads the topic already takes precedence: a configured sink can so give a topic
    its own settings, and the first of two patterns decides. Topics that would share a name or a path all become no
    tables, because workers may see them in different orders. A topic whose configured sink is `misconfigured` becomes
    no table either.
    """
    existing_claims, new_claims = Claims(), Claims()
    covered: set[tuple[str, str, str]] = set()
    for settings in existing:
        existing_claims.add(settings)
        covered.update((settings.name, settings.bootstrap, topic) for topic in settings.topics)
    problems: list[TopicProblem] = []
    candidates: list[tuple[TopicPattern, str, Settings]] = []
    for pattern, names in topics:
        for topic in sorted(set(names)):
            sink, topic_problems = _sink_of(pattern, topic)
            problems += topic_problems
            if sink is None or (sink.name, sink.bootstrap, topic) in covered:
                continue
            if owner := next((unusable.name for unusable in misconfigured if unusable.claims(topic, sink)), None):
                sentence = f"it may be that of sink {owner} of the configuration, which cannot be used. Fix that first."
                problems.append(TopicProblem(topic, pattern.name, pattern.origin, sentence))
                continue
            covered.add((sink.name, sink.bootstrap, topic))
            new_claims.add(sink)
            candidates.append((pattern, topic, sink))
    new_sinks: list[Settings] = []
    for pattern, topic, sink in candidates:
        conflicts = list(dict.fromkeys([*existing_claims.conflicts(sink), *new_claims.conflicts(sink)]))
        problems += [TopicProblem(topic, pattern.name, pattern.origin, sentence) for sentence in conflicts]
        if not conflicts:
            new_sinks.append(sink)
    return tuple(new_sinks), tuple(problems)


def _sink_of(pattern: TopicPattern, topic: str) -> tuple[Settings | None, list[TopicProblem]]:
    """Returns the settings of a topic's sink, or None if the topic does not match or has problems; and its problems."""
    match = re.fullmatch(pattern.regex, topic)
    if match is None or not can_land(topic, pattern.probe):
        return None, []
    values = {**match.groupdict(default=""), TOPIC: topic}
    used_names = frozenset().union(*(placeholders(entry, frozenset(values)) for entry in pattern.entries.values()))
    if empty_names := sorted(name for name in used_names if not values[name]):
        sentence = f"the group {empty_names[0]} of kafka.topic.regex is empty in it. Write an expression that fills it."
        return None, [TopicProblem(topic, pattern.name, pattern.origin, sentence)]
    entries = {key: filled(entry, values) for key, entry in pattern.entries.items()}
    problems: list[Problem] = []
    settings = settings_of(
        _entries_of_topic(entries, topic), pattern.origin, pattern.directory, pattern.environ, problems, pattern.columns
    )
    topic_problems = [TopicProblem(topic, pattern.name, problem.origin, problem.sentence) for problem in problems]
    return (None if topic_problems else settings), topic_problems


def can_land(topic: str, settings: Settings) -> bool:
    """Whether a topic can land in a table. Kafka's internal topics and the topic of the sink's bad records cannot."""
    return not topic.startswith("__") and topic != settings.errors_topic


def _entries_of_topic(entries: Mapping[str, Entry], topic: str) -> dict[str, Entry]:
    """Returns `entries` with the topic's name instead of the expression."""
    topic_entries = {key: entry for key, entry in entries.items() if key != "kafka.topic.regex"}
    topic_entries["kafka.topic.names"] = Entry("kafka.topic.names", topic, entries["kafka.topic.regex"].origin)
    return topic_entries


def _probe_entry(entry: Entry, placeholder_names: frozenset[str]) -> Entry:
    """Returns `entry` for a made-up topic. `_STAND_IN_FILE` replaces a file whose name depends on the topic."""
    if placeholders(entry, placeholder_names) and (entry.key in _FILES or "${" in entry.text):
        return replace(entry, value=_STAND_IN_FILE)
    return filled(entry, dict.fromkeys(placeholder_names, TOPIC))
