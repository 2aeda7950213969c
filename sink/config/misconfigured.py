"""Sinks that cannot be used while other sinks of the configuration can, and the topics and path they claim. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sink.config.claims import canonical
from sink.config.files import Entry
from sink.config.model import Settings
from sink.config.topics import names_in, regex_in


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """A sink, or a pattern of topics, that cannot be used. `reason` gives all problems in one line."""

    name: str
    reason: str
    topics: str | None
    """A regular expression for its topics; None if they are unknown."""
    base_path: str

    def claims(self, topic: str, settings: Settings) -> bool:
        """Whether this sink may be the one that a pattern would create for `topic`."""
        topic_matches = self.topics is not None and re.fullmatch(self.topics, topic) is not None
        return topic_matches or settings.name == self.name or canonical(settings.base_path) == canonical(self.base_path)


def misconfigured_of(name: str, reason: str, entries: Mapping[str, Entry]) -> Misconfigured:
    """Returns the sink of `entries`, as far as they can be read."""
    topics = names_in(entries)
    base_path = entries["target.base.path"].text if "target.base.path" in entries else ""
    if len(topics) == 1:
        base_path = base_path.replace("{topic}", topics[0])
    expression = "|".join(map(re.escape, topics)) if topics else regex_in(entries)
    return Misconfigured(name, reason, expression, base_path)
