"""Reads what a configuration is made of: a file, or a directory of files, as what sinks share and what each sets.

A file holds what its one sink sets, or `sinks` with the names of several and what each of them sets. A directory holds
one file of what the sinks share, and a file for each sink. Raises nothing on content: what cannot be read is a
`Problem` with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sink.config.build import by_name, without_problems
from sink.config.files import SINKS, Entry, Problem, of_sink, read_environment, read_file, variable_name
from sink.config.model import aliases

SUFFIXES = (".yaml", ".yml", ".properties")
SHARED = tuple(f"fleet{suffix}" for suffix in SUFFIXES)
"""The file of a directory that holds what its sinks share."""


@dataclass(frozen=True)
class Source:
    """One sink, or one pattern of topics: what it sets itself. `place` is where: its file, and its name. `problems`:
    what of it cannot be read.
    """

    name: str | None
    place: str
    own: Mapping[str, Entry]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Sources:
    """`shared`: what stands for every sink that does not set it itself, environment variables among it. Paths are
    relative to `directory`."""

    shared: Mapping[str, Entry]
    sources: tuple[Source, ...]
    directory: Path


def read_sources(path: Path, environ: Mapping[str, str], problems: list[Problem]) -> Sources:
    """Returns the entries of `path`, under the proper names of settings; adds what cannot be used to `problems`."""
    if path.is_dir():
        return _read_directory(path, environ, problems)
    written = list(without_problems(read_file(path), problems))
    shared = [entry for entry in written if entry.sink is None]
    sinks = _sinks_of(written, path)
    if sinks:
        return Sources(_overridden(shared, written, environ, problems), sinks, path.parent)
    if not written and problems:
        return Sources({}, (), path.parent)
    own = _overridden(shared, written, environ, problems)
    return Sources({}, (Source(None, str(path), own),), path.parent)


def _read_directory(path: Path, environ: Mapping[str, str], problems: list[Problem]) -> Sources:
    try:
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != ".")
    except OSError as error:
        problems.append(Problem(str(path), f"cannot be read ({error.strerror}); check its permissions"))
        return Sources({}, (), path)
    shared_files = [file for file in files if file.name in SHARED]
    if len(shared_files) != 1:
        have = f"has {' and '.join(file.name for file in shared_files)}" if shared_files else f"has no {SHARED[0]}"
        problems.append(Problem(str(path), f"{have}; put what all sinks share into one such file"))
    written = [entry for file in shared_files for entry in without_problems(read_file(file), problems)]
    sources = list(_sinks_of(written, path))
    for file in files:
        if file not in shared_files:
            unread: list[Problem] = []
            entries = list(without_problems(read_file(file), unread))
            if entries or unread:
                sources.append(_sink_in(file, entries, unread))
                written += entries
    if not sources and not problems:
        problems.append(Problem(str(path), "has no sinks; add a file for each, beside the one of what they share"))
    shared = [entry for entry in written if entry.sink is None]
    return Sources(_overridden(shared, written, environ, problems), tuple(sources), path)


def _sink_in(file: Path, entries: list[Entry], problems: list[Problem]) -> Source:
    """Returns the sink of a file in a directory."""
    for entry in entries:
        if entry.sink is not None:
            problems.append(Problem(entry.origin, f"{SINKS} stands in {SHARED[0]} only; move it there"))
    names = aliases()
    given = next((entry.text for entry in entries if names.get(entry.key) == "sink.name"), "")
    name = given if given.strip() and "{" not in given else file.stem
    own = [replace(entry, sink=name, origin=of_sink(entry.origin, name)) for entry in entries if entry.sink is None]
    entries[:] = own
    return Source(name, of_sink(str(file), name), by_name(own, problems), tuple(problems))


def _sinks_of(written: list[Entry], path: Path) -> tuple[Source, ...]:
    """Returns the sinks beneath `sinks`, in the order of the file."""
    own: dict[str, list[Entry]] = {}
    for entry in written:
        if entry.sink is not None:
            own.setdefault(entry.sink, []).append(entry)
    return tuple(_source(name, of_sink(str(path), name), entries) for name, entries in own.items())


def _source(name: str, place: str, entries: list[Entry]) -> Source:
    problems: list[Problem] = []
    return Source(name, place, by_name(entries, problems), tuple(problems))


def _overridden(
    shared: list[Entry], written: list[Entry], environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, Entry]:
    """Returns `shared`, overridden by variables: those stand for all sinks, so that what a sink sets itself goes before
    them.
    """
    known = {variable_name(name): name for name in reversed(aliases())}
    overrides = list(read_environment(environ, known, {entry.key for entry in written}))
    return {**by_name(shared, problems), **by_name(overrides, problems)}
