"""The sinks that one worker's process hosts, from a file or a directory, and what they share.

A file holds the entries of its one sink, or `sinks` with the names of several and the entries of each. A directory
holds one file of shared entries, and a file for each sink. Unreadable content is a `Problem` with its origin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from coordination.errors import ConfigError, in_sentences
from sink.clients.spark.specification import SessionSpecification
from sink.config.build import by_name, message, sentences, settings_of, without_problems
from sink.config.claims import Claims
from sink.config.every_field import ProcessSettings
from sink.config.files import SINKS, SUFFIXES, Entry, Problem, of_sink, read_environment, read_file, variable_name
from sink.config.groups.endpoints import TOPIC_SETTINGS
from sink.config.groups.records import COLUMN_SETTINGS
from sink.config.model import Settings, aliases, is_of_process
from sink.config.patterns import (
    TOPIC,
    Misconfigured,
    TopicPattern,
    filled,
    merged_by_name,
    misconfigured_of,
    names_in,
    names_of,
    pattern_of,
    placeholders,
    regex_in,
)
from sink.config.unused import without_unused

_EXCLUSIVE_SETTINGS = (TOPIC_SETTINGS, COLUMN_SETTINGS)
"""A sink has one setting of each group. Its own setting replaces all shared ones of the group."""
SHARED = tuple(f"fleet{suffix}" for suffix in SUFFIXES)
"""The file of a directory that holds the shared entries."""


@dataclass(frozen=True)
class Source:
    """One sink, or one pattern of topics. `entries` are those that it sets itself, `origin` its file and name, and
    `problems` its unreadable parts.
    """

    name: str | None
    origin: str
    entries: Mapping[str, Entry]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Sources:
    """`shared` holds for every sink that does not set the same itself; it includes environment variables. Paths are
    relative to `directory`."""

    shared: Mapping[str, Entry]
    sources: tuple[Source, ...]
    directory: Path


def read_sources(path: Path, environ: Mapping[str, str], problems: list[Problem]) -> Sources:
    """Returns the entries of `path`, under the proper names of settings; adds unusable ones to `problems`."""
    if path.is_dir():
        return _read_directory(path, environ, problems)
    written = list(without_problems(read_file(path), problems))
    shared = [entry for entry in written if entry.sink is None]
    sinks = _sinks_of(written, path)
    if sinks:
        return Sources(_overridden(shared, written, environ, problems), sinks, path.parent)
    if not written and problems:
        return Sources({}, (), path.parent)
    overridden = _overridden(shared, written, environ, problems)
    return Sources({}, (Source(None, str(path), overridden),), path.parent)


def _read_directory(path: Path, environ: Mapping[str, str], problems: list[Problem]) -> Sources:
    try:
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != ".")
    except OSError as error:
        problems.append(Problem(str(path), f"cannot be read ({error.strerror}). Check its permissions."))
        return Sources({}, (), path)
    shared_files = [file for file in files if file.name in SHARED]
    if len(shared_files) != 1:
        found_files = (
            f"has {' and '.join(file.name for file in shared_files)}" if shared_files else f"has no {SHARED[0]}"
        )
        problems.append(Problem(str(path), f"{found_files}. Put what all sinks share into one such file."))
    written = [entry for file in shared_files for entry in without_problems(read_file(file), problems)]
    sources = list(_sinks_of(written, path))
    for file in files:
        if file not in shared_files:
            file_problems: list[Problem] = []
            entries = list(without_problems(read_file(file), file_problems))
            if entries or file_problems:
                sources.append(_sink_in(file, entries, file_problems))
                written += entries
    if not sources and not problems:
        problems.append(Problem(str(path), "has no sinks. Add a file for each, beside the one of what they share."))
    shared = [entry for entry in written if entry.sink is None]
    return Sources(_overridden(shared, written, environ, problems), tuple(sources), path)


def _sink_in(file: Path, entries: list[Entry], problems: list[Problem]) -> Source:
    """Returns the sink of a file in a directory."""
    for entry in entries:
        if entry.sink is not None:
            problems.append(Problem(entry.origin, f"{SINKS} stands in {SHARED[0]} only. Move it there."))
    names = aliases()
    written_name = next((entry.text for entry in entries if names.get(entry.key) == "sink.name"), "")
    name = written_name if written_name.strip() and "{" not in written_name else file.stem
    sink_entries = [
        replace(entry, sink=name, origin=of_sink(entry.origin, name)) for entry in entries if entry.sink is None
    ]
    entries[:] = sink_entries
    return Source(name, of_sink(str(file), name), by_name(sink_entries, problems), tuple(problems))


def _sinks_of(written: list[Entry], path: Path) -> tuple[Source, ...]:
    """Returns the sinks beneath `sinks`, in the order of the file."""
    entries_by_sink: dict[str, list[Entry]] = {}
    for entry in written:
        if entry.sink is not None:
            entries_by_sink.setdefault(entry.sink, []).append(entry)
    return tuple(_source(name, of_sink(str(path), name), entries) for name, entries in entries_by_sink.items())


def _source(name: str, origin: str, entries: list[Entry]) -> Source:
    problems: list[Problem] = []
    return Source(name, origin, by_name(entries, problems), tuple(problems))


def _overridden(
    shared: list[Entry], written: list[Entry], environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, Entry]:
    """Returns `shared`, overridden by environment variables. Variables hold for all sinks, so that a sink's own entries
    override them.
    """
    setting_names = {variable_name(name): name for name in reversed(list(aliases()))}
    overrides = list(read_environment(environ, setting_names, {entry.key for entry in written}))
    return {**by_name(shared, problems), **by_name(overrides, problems)}


@dataclass(frozen=True)
class Configuration:
    """`sinks` in the order of the configuration, each complete. Topics that match one of `patterns` become sinks."""

    path: Path
    process: ProcessSettings
    sinks: tuple[Settings, ...]
    patterns: tuple[TopicPattern, ...]
    misconfigured: Mapping[str, Misconfigured] = field(default_factory=dict)
    """Sinks and patterns that cannot be used, by name."""

    def hosts(self, name: str) -> bool:
        """Whether this worker takes part in the sink `name`, by `worker.sinks`."""
        return any(fnmatchcase(name, pattern) for pattern in self.process.hosted)

    @property
    def hosted(self) -> tuple[Settings, ...]:
        return tuple(settings for settings in self.sinks if self.hosts(settings.name))

    @property
    def misconfigured_here(self) -> Mapping[str, str]:
        """The reasons why sinks that this worker would host cannot be used, by name."""
        return {name: sink.reason for name, sink in self.misconfigured.items() if self.hosts(name)}

    @property
    def is_one_sink(self) -> bool:
        """Whether the fleet is one sink and will stay one."""
        return len(self.sinks) == 1 and not self.patterns and not self.misconfigured

    @property
    def all_settings(self) -> tuple[Settings, ...]:
        """Settings of every sink, and of a made-up sink for each pattern. A process has to be ready for all of them."""
        return (*self.sinks, *(pattern.probe for pattern in self.patterns))

    @property
    def session(self) -> SessionSpecification:
        """The Spark session of a process that hosts all of them. Raises Unavailable, like `Settings.storage`."""
        return SessionSpecification(
            self.process.spark_master, self.process.spark, tuple(settings.served_sink for settings in self.all_settings)
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, to keep them out of a text."""
        return tuple(dict.fromkeys(secret for settings in self.all_settings for secret in settings.secrets))


def load_configuration(
    path: Path, environ: Mapping[str, str] = os.environ, columns: bool = True, strict: bool = True
) -> Configuration:
    """Loads all sinks of `path`, a file or a directory, and their shared settings, overridden by `SINK_*` variables.
    Raises ConfigError with all problems.

    Without `columns`, settings of the columns are ignored, even if they are missing or unusable. Unless `strict`,
    unusable sinks are `misconfigured` as long as another sink is usable.
    """
    path = Path(path)
    problems: list[Problem] = []
    sources = read_sources(path, environ, problems)
    if problems and not sources.sources:
        raise ConfigError(message(path, problems))
    problems += _shared_problems(sources)
    loaded = _load_sources(sources, environ, columns)
    _note_conflicts(loaded)
    usable = [entry.result for entry in loaded if not entry.problems]
    sinks = tuple(result for result in usable if isinstance(result, Settings))
    patterns = tuple(result for result in usable if isinstance(result, TopicPattern))
    misconfigured = merged_by_name(_misconfigured(loaded, sources.shared))
    # A pattern would take the topics of an unusable sink, unless these topics are known.
    is_ambiguous = bool(patterns) and any(None in sink.topics for sink in misconfigured.values())
    if problems or not (sinks or patterns) or is_ambiguous or (strict and misconfigured):
        raise ConfigError(message(path, [*problems, *_merged_problems(path, loaded)]))
    process = (sinks[0] if sinks else patterns[0].probe).process
    fleet = Configuration(path, process, sinks, patterns, misconfigured)
    if unhosted_problems := list(_unhosted_patterns(fleet)):
        raise ConfigError(message(path, unhosted_problems))
    return fleet


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The sink, or the pattern of topics, that a source describes. With `problems` it cannot be used."""

    source: Source
    result: Settings | TopicPattern | None
    problems: list[Problem]


def _load_sources(sources: Sources, environ: Mapping[str, str], columns: bool) -> list[_Loaded]:
    entries_by_sink = [_effective_entries(source, sources.shared) for source in sources.sources]
    own_names = [source.entries.keys() for source in sources.sources]
    loaded = []
    for source, entries in zip(sources.sources, without_unused(entries_by_sink, own_names), strict=True):
        problems = list(source.problems)
        is_readable = source.entries or not problems
        result = _build_sink(source, entries, sources.directory, environ, problems, columns) if is_readable else None
        loaded.append(_Loaded(source, result, problems))
    return loaded


def _misconfigured(loaded: Iterable[_Loaded], shared: Mapping[str, Entry]) -> Iterator[Misconfigured]:
    for entry in loaded:
        if entry.problems:
            reason = in_sentences(*sentences(entry.problems))
            yield misconfigured_of(_name(entry.source), reason, _effective_entries(entry.source, shared))


def _name(source: Source) -> str:
    """Returns the name of a sink that cannot be used."""
    name_entry = source.entries.get("sink.name")
    return (
        name_entry.text
        if name_entry is not None and "{" not in name_entry.text
        else source.name or Path(source.origin).stem
    )


def _build_sink(
    source: Source,
    entries: dict[str, Entry],
    directory: Path,
    environ: Mapping[str, str],
    problems: list[Problem],
    columns: bool,
) -> Settings | TopicPattern | None:
    """Returns the sink, or the pattern of topics, that a source describes with its effective `entries`."""
    for key, entry in source.entries.items():
        if source.name is not None and is_of_process(key):
            problems.append(Problem(entry.origin, f"{entry.key} belongs to the whole process. {_MOVE}"))
    regex = regex_in(entries)
    if regex is not None and any(placeholders(entry, names_of(regex)) for entry in entries.values()):
        name = source.name or Path(source.origin).stem
        return pattern_of(name, entries, source.origin, directory, environ, problems, columns)
    entries = _fill_topic(_with_name(entries, source), problems)
    return settings_of(entries, source.origin, directory, environ, problems, columns)


_MOVE = f"Move it to what all sinks share, outside of {SINKS}."


def _effective_entries(source: Source, shared: Mapping[str, Entry]) -> dict[str, Entry]:
    """Returns the entries that the sink sets itself, and the shared ones that they do not replace."""
    replaced = {name for names in _EXCLUSIVE_SETTINGS if source.entries.keys() & set(names) for name in names}
    return {**{key: entry for key, entry in shared.items() if key not in replaced}, **source.entries}


def _with_name(entries: Mapping[str, Entry], source: Source) -> dict[str, Entry]:
    """Adds the sink's name, if the configuration gives it one outside the entries."""
    keys = () if source.name is None else ("sink.name", "target.table.name")
    return {**{key: Entry(key, source.name or "", source.origin) for key in keys}, **entries}


def _fill_topic(entries: dict[str, Entry], problems: list[Problem]) -> dict[str, Entry]:
    """Replaces `{topic}` by the sink's one topic; adds a problem if it has several."""
    topics = names_in(entries)
    if not topics:
        return entries
    filled_in = {key: filled(entry, {TOPIC: topics[0]}) for key, entry in entries.items()}
    if len(topics) > 1 and (changed := [entry for key, entry in entries.items() if entry != filled_in[key]]):
        sentence = "has {topic}, and the sink reads several. Name one, or write kafka.topic.regex for a table for each."
        problems += [Problem(entry.origin, f"{entry.key} {sentence}") for entry in changed]
    return filled_in


def _shared_problems(sources: Sources) -> Iterable[Problem]:
    entry = sources.shared.get("sink.name")
    if entry is not None and "{" not in entry.text:
        yield Problem(entry.origin, f"{entry.key} names one sink, but stands for all. Move it beneath {SINKS}.")


def _merged_problems(path: Path, loaded: Sequence[_Loaded]) -> Iterable[Problem]:
    """Yields problems of all sources, and a problem that all of them share once."""
    sources = [entry.source for entry in loaded]
    sources_by_problem: dict[Problem, list[Source]] = {}
    for entry in loaded:
        for problem in dict.fromkeys(entry.problems):
            general = replace(problem, origin=str(path)) if problem.origin == entry.source.origin else problem
            sources_by_problem.setdefault(general, []).append(entry.source)
    for problem, affected in sources_by_problem.items():
        if len(affected) == len(sources) and (len(affected) > 1 or sources[0].name is None):
            yield problem
        elif problem.origin == str(path):
            yield from (replace(problem, origin=source.origin) for source in affected)
        elif problem in affected[0].problems or any(
            problem.origin == source_entry.origin for source_entry in affected[0].entries.values()
        ):
            yield problem
        else:
            yield replace(problem, origin=f"{problem.origin} ({_sink_list(affected)})")


def _sink_list(sources: Sequence[Source]) -> str:
    names = [f"sink {source.name}" for source in sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _note_conflicts(loaded: Iterable[_Loaded]) -> None:
    """Adds a problem to both sinks of a conflict over a name or path: neither takes precedence. A sink that cannot be
    used has its name, too.
    """
    sinks = [(entry, entry.result) for entry in loaded if isinstance(entry.result, Settings) and not entry.problems]
    claims = Claims(_name(entry.source) for entry in loaded if entry.problems)
    for _, settings in sinks:
        claims.add(settings)
    for entry, settings in sinks:
        entry.problems.extend(Problem(entry.source.origin, sentence) for sentence in claims.conflicts(settings))


def _unhosted_patterns(fleet: Configuration) -> Iterable[Problem]:
    """Yields a problem for each pattern in `worker.sinks` that no sink matches. Sinks of patterns are not known yet."""
    if fleet.patterns:
        return
    for pattern in fleet.process.hosted:
        sink_names = [*(settings.name for settings in fleet.sinks), *fleet.misconfigured]
        if not any(fnmatchcase(name, pattern) for name in sink_names):
            names = ", ".join(sink_names[:8])
            yield Problem(str(fleet.path), f"worker.sinks: no sink is called {pattern}. There are {names}.")
