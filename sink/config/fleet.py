"""The sinks that one worker's process hosts, from a file or a directory, and what they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from coordination.errors import ConfigError
from sink.config.build import message, sentences, settings_of
from sink.config.claims import Claims
from sink.config.every_field import ProcessSettings
from sink.config.files import SINKS, Entry, Problem
from sink.config.groups.endpoints import TOPICS
from sink.config.groups.records import COLUMNS
from sink.config.misconfigured import Misconfigured, misconfigured_of
from sink.config.model import Settings, is_of_process
from sink.config.patterns import TOPIC, TopicPattern, filled, names_of, pattern_of, placeholders
from sink.config.sources import Source, Sources, read_sources
from sink.config.topics import names_in, regex_in
from sink.config.unused import without_unused

_ALTERNATIVES = (TOPICS, COLUMNS)
"""A sink has one setting of each of them: its own, if it sets one, whichever is shared."""


@dataclass(frozen=True)
class Fleet:
    """`sinks` in the order of the configuration, each complete; `patterns` become sinks by the topics there are."""

    path: Path
    process: ProcessSettings
    sinks: tuple[Settings, ...]
    patterns: tuple[TopicPattern, ...]
    misconfigured: Mapping[str, Misconfigured] = field(default_factory=dict)
    """Sinks and patterns that cannot be used, by name."""

    def hosts(self, name: str) -> bool:
        """Whether this worker takes part in the sink of that name, by `worker.sinks`."""
        return any(fnmatchcase(name, pattern) for pattern in self.process.hosted)

    @property
    def hosted(self) -> tuple[Settings, ...]:
        return tuple(settings for settings in self.sinks if self.hosts(settings.name))

    @property
    def misconfigured_here(self) -> Mapping[str, str]:
        """Why sinks that this worker would host cannot be used, by name."""
        return {name: wrong.reason for name, wrong in self.misconfigured.items() if self.hosts(name)}

    @property
    def is_one_sink(self) -> bool:
        """Whether it is one sink and will stay one."""
        return len(self.sinks) == 1 and not self.patterns and not self.misconfigured

    @property
    def everything(self) -> tuple[Settings, ...]:
        """Settings of every sink, and of a made-up one for each pattern: what a process has to be ready for."""
        return (*self.sinks, *(pattern.probe for pattern in self.patterns))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, to keep them out of a text."""
        return tuple(dict.fromkeys(secret for settings in self.everything for secret in settings.secrets))


def load(path: Path, environ: Mapping[str, str] = os.environ, columns: bool = True) -> Settings:
    """Returns the settings of the one sink of `path`, overridden by `SINK_*` variables. Raises ConfigError with all
    that is wrong.

    Without `columns`, settings of the columns are left aside, whether they are there, and can be used, or not.
    """
    fleet = load_fleet(path, environ, columns)
    if len(fleet.sinks) == 1 and not fleet.patterns:
        return fleet.sinks[0]
    names = ", ".join([settings.name for settings in fleet.sinks][:8])
    patterns = " and patterns of topics" if fleet.patterns else ""
    raise ConfigError(f"{path}: holds {len(fleet.sinks)} sinks{patterns} ({names}); name one")


def load_fleet(path: Path, environ: Mapping[str, str] = os.environ, columns: bool = True, strict: bool = True) -> Fleet:
    """Loads all sinks of `path`, a file or a directory, and what they share, as `load`.

    Unless it is `strict`, sinks that cannot be used are `misconfigured` as long as another one can be.
    """
    path = Path(path)
    problems: list[Problem] = []
    sources = read_sources(path, environ, problems)
    if problems and not sources.sources:
        raise ConfigError(message(path, problems))
    problems += _shared_problems(sources)
    loaded = _loaded(sources, environ, columns)
    _note_conflicts(loaded)
    usable = [entry.result for entry in loaded if not entry.problems]
    sinks = tuple(result for result in usable if isinstance(result, Settings))
    patterns = tuple(result for result in usable if isinstance(result, TopicPattern))
    misconfigured = {sink.name: sink for sink in _misconfigured(loaded, sources.shared)}
    # A pattern would take the topics of a sink that cannot be used, unless they are known.
    is_ambiguous = bool(patterns) and any(sink.topics is None for sink in misconfigured.values())
    if problems or not (sinks or patterns) or is_ambiguous or (strict and misconfigured):
        raise ConfigError(message(path, [*problems, *_merged(path, loaded)]))
    process = (sinks[0] if sinks else patterns[0].probe).process
    fleet = Fleet(path, process, sinks, patterns, misconfigured)
    if unhosted := list(_unhosted(fleet)):
        raise ConfigError(message(path, unhosted))
    return fleet


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The sink, or the pattern of topics, that a source describes. If there are `problems`, it cannot be used."""

    source: Source
    result: Settings | TopicPattern | None
    problems: list[Problem]


def _loaded(sources: Sources, environ: Mapping[str, str], columns: bool) -> list[_Loaded]:
    chosen = [_chosen(source, sources.shared) for source in sources.sources]
    own = [source.own.keys() for source in sources.sources]
    loaded = []
    for source, entries in zip(sources.sources, without_unused(chosen, own), strict=True):
        problems = list(source.problems)
        is_readable = source.own or not problems
        result = _made(source, entries, sources.directory, environ, problems, columns) if is_readable else None
        loaded.append(_Loaded(source, result, problems))
    return loaded


def _misconfigured(loaded: Iterable[_Loaded], shared: Mapping[str, Entry]) -> Iterator[Misconfigured]:
    for entry in loaded:
        if entry.problems:
            reason = "; ".join(sentences(entry.problems))
            yield misconfigured_of(_name(entry.source), reason, _chosen(entry.source, shared))


def _name(source: Source) -> str:
    """Names a sink that cannot be used."""
    given = source.own.get("sink.name")
    return given.text if given is not None and "{" not in given.text else source.name or Path(source.place).stem


def _made(
    source: Source,
    chosen: dict[str, Entry],
    directory: Path,
    environ: Mapping[str, str],
    problems: list[Problem],
    columns: bool,
) -> Settings | TopicPattern | None:
    """Returns the sink, or the pattern of topics, that a source describes, of the settings that stand for it."""
    for key, entry in source.own.items():
        if source.name is not None and is_of_process(key):
            problems.append(Problem(entry.origin, f"{entry.key} belongs to the whole process; {_MOVE}"))
    regex = regex_in(chosen)
    if regex is not None and any(placeholders(entry, names_of(regex)) for entry in chosen.values()):
        name = source.name or Path(source.place).stem
        return pattern_of(name, chosen, source.place, directory, environ, problems, columns)
    chosen = _of_one_topic(_named(chosen, source), problems)
    return settings_of(chosen, source.place, directory, environ, problems, columns)


_MOVE = f"move it to what all sinks share, outside of {SINKS}"


def _chosen(source: Source, shared: Mapping[str, Entry]) -> dict[str, Entry]:
    """Returns the entries that the sink sets itself, and the shared ones beside them."""
    replaced = {name for names in _ALTERNATIVES if source.own.keys() & set(names) for name in names}
    return {**{key: entry for key, entry in shared.items() if key not in replaced}, **source.own}


def _named(chosen: Mapping[str, Entry], source: Source) -> dict[str, Entry]:
    """Adds the sink's name, if the configuration gives it one and no entry does."""
    keys = () if source.name is None else ("sink.name", "target.table.name")
    return {**{key: Entry(key, source.name or "", source.place) for key in keys}, **chosen}


def _of_one_topic(chosen: dict[str, Entry], problems: list[Problem]) -> dict[str, Entry]:
    """Puts the sink's one topic in the place of `{topic}`; adds a problem where it has several."""
    topics = names_in(chosen)
    if not topics:
        return chosen
    filled_in = {key: filled(entry, {TOPIC: topics[0]}) for key, entry in chosen.items()}
    if len(topics) > 1 and (differ := [entry for key, entry in chosen.items() if entry != filled_in[key]]):
        sentence = "has {topic}, and the sink reads several; name one, or write kafka.topic.regex for a table for each"
        problems += [Problem(entry.origin, f"{entry.key} {sentence}") for entry in differ]
    return filled_in


def _shared_problems(sources: Sources) -> Iterable[Problem]:
    entry = sources.shared.get("sink.name")
    if entry is not None and "{" not in entry.text:
        yield Problem(entry.origin, f"{entry.key} names one sink, but stands for all; move it beneath {SINKS}")


def _merged(path: Path, loaded: Sequence[_Loaded]) -> Iterable[Problem]:
    """Yields problems of all sources; one that all of them share is told once."""
    sources = [entry.source for entry in loaded]
    where: dict[Problem, list[Source]] = {}
    for entry in loaded:
        for problem in dict.fromkeys(entry.problems):
            general = replace(problem, origin=str(path)) if problem.origin == entry.source.place else problem
            where.setdefault(general, []).append(entry.source)
    for problem, those in where.items():
        if len(those) == len(sources) and (len(those) > 1 or sources[0].name is None):
            yield problem
        elif problem.origin == str(path):
            yield from (replace(problem, origin=source.place) for source in those)
        elif problem in those[0].problems or any(problem.origin == e.origin for e in those[0].own.values()):
            yield problem
        else:
            yield replace(problem, origin=f"{problem.origin} ({_list(those)})")


def _list(sources: Sequence[Source]) -> str:
    names = [f"sink {source.name}" for source in sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _note_conflicts(loaded: Iterable[_Loaded]) -> None:
    """Adds a problem to each sink that claims a name or place of another one: neither of two is the right one."""
    sinks = [(entry, entry.result) for entry in loaded if isinstance(entry.result, Settings) and not entry.problems]
    claims = Claims()
    for _, settings in sinks:
        claims.add(settings)
    for entry, settings in sinks:
        entry.problems.extend(Problem(entry.source.place, sentence) for sentence in claims.conflicts(settings))


def _unhosted(fleet: Fleet) -> Iterable[Problem]:
    """Yields names in `worker.sinks` that no sink has. The sinks of patterns are not known yet."""
    if fleet.patterns:
        return
    for pattern in fleet.process.hosted:
        known = [*(settings.name for settings in fleet.sinks), *fleet.misconfigured]
        if not any(fnmatchcase(name, pattern) for name in known):
            names = ", ".join(known[:8])
            yield Problem(str(fleet.path), f"worker.sinks: no sink is called {pattern}; there are {names}")
