"""Sinks that cannot be used while other sinks of the configuration can, and the topics and path they claim. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sink.config.claims import canonical
from sink.config.files import Entry
from sink.config.model import Settings
from sink.config.topics import names_in, regex_in


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
            reasons = f"{first.reason}; {sink.reason}"
            sink = Misconfigured(sink.name, reasons, first.topics + sink.topics, first.base_paths + sink.base_paths)
        merged[sink.name] = sink
    return merged
