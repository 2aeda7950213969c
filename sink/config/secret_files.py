"""The files from which a configuration takes secrets: those that it refers to, and itself where it holds one.

Guarantee: a file is named only if a setting of a secret's name has its value there, or if a setting refers to it.
Contents are never returned. Raises nothing: a file that cannot be read holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sink.config.files import SUFFIXES, Entry, read_file, referred_files
from sink.telemetry.redaction import looks_secret

PATH_SUFFIXES = (".file", ".location", ".keytab")
"""Ends of the names of settings whose value is the path of a secret, and no secret itself."""


def secret_files(config: Path) -> Iterator[tuple[Path, str]]:
    """Yields each file with the first setting that takes a secret from it. `config` is a file or a directory."""
    found: dict[Path, str] = {}
    for file in _configuration_files(config):
        for entry in read_file(file):
            if not isinstance(entry, Entry):
                continue
            referred = [path for value in entry.values for path in referred_files(value, file.parent)]
            is_path = entry.key.lower().endswith(PATH_SUFFIXES)
            holds_it = looks_secret(entry.key) and not is_path and not any("${" in value for value in entry.values)
            for path in (*referred, *([file] if holds_it else [])):
                found.setdefault(path, entry.key)
    yield from found.items()


def _configuration_files(config: Path) -> list[Path]:
    if not config.is_dir():
        return [config]
    return sorted(path for path in config.iterdir() if path.suffix.lower() in SUFFIXES)
