"""Reads a configuration, a file or a directory of files, as the shared entries and the entries of each sink.

A file holds the entries of its one sink, or `sinks` with the names of several and the entries of each. A directory
holds one file of shared entries, and a file for each sink. Raises nothing on content: unreadable content is a
`Problem` with its origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sink.config.build import by_name, without_problems
from sink.config.files import SINKS, SUFFIXES, Entry, Problem, of_sink, read_environment, read_file, variable_name
from sink.config.model import aliases

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
        problems.append(Problem(str(path), f"cannot be read ({error.strerror}); check its permissions"))
        return Sources({}, (), path)
    shared_files = [file for file in files if file.name in SHARED]
    if len(shared_files) != 1:
        found_files = (
            f"has {' and '.join(file.name for file in shared_files)}" if shared_files else f"has no {SHARED[0]}"
        )
        problems.append(Problem(str(path), f"{found_files}; put what all sinks share into one such file"))
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
        problems.append(Problem(str(path), "has no sinks; add a file for each, beside the one of what they share"))
    shared = [entry for entry in written if entry.sink is None]
    return Sources(_overridden(shared, written, environ, problems), tuple(sources), path)


def _sink_in(file: Path, entries: list[Entry], problems: list[Problem]) -> Source:
    """Returns the sink of a file in a directory."""
    for entry in entries:
        if entry.sink is not None:
            problems.append(Problem(entry.origin, f"{SINKS} stands in {SHARED[0]} only; move it there"))
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
    setting_names = {variable_name(name): name for name in reversed(aliases())}
    overrides = list(read_environment(environ, setting_names, {entry.key for entry in written}))
    return {**by_name(shared, problems), **by_name(overrides, problems)}
