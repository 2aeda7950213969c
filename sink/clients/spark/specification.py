"""A Spark session's share of the settings: its master, its options, and the sinks that it serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sink.storage.access import Access


@dataclass(frozen=True, slots=True)
class ServedSink:
    """`base_paths` are those of the sink's table and of its errors table. `only_commits`: its records are written by
    Python, not by the JVM. `in_flight`: how many of its transactions may be open at once."""

    base_paths: tuple[str, ...]
    access: Access
    only_commits: bool
    in_flight: int


@dataclass(frozen=True, slots=True)
class SessionSpecification:
    """`options` are the user's settings of Spark, which may be secret."""

    master: str
    options: Mapping[str, str]
    sinks: tuple[ServedSink, ...]

    @property
    def base_paths(self) -> tuple[str, ...]:
        """The base paths of all tables and errors tables."""
        return tuple(path for sink in self.sinks for path in sink.base_paths)


def is_one_process(master: str) -> bool:
    """Returns whether the driver runs all tasks of this Spark master in its own process."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None
