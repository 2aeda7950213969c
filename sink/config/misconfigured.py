"""Sinks that cannot be made of a configuration whose other sinks can be, and what they would have had. Pure."""

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
    """A sink, or a pattern of topics. `reason` says all that is wrong, in one line."""

    name: str
    reason: str
    topics: str | None
    """An expression for its topics; None where they cannot be told."""
    place: str

    def claims(self, topic: str, settings: Settings) -> bool:
        """Whether the sink that a pattern would make of `topic` may be this one."""
        is_its = self.topics is not None and re.fullmatch(self.topics, topic) is not None
        return is_its or settings.name == self.name or canonical(settings.base_path) == canonical(self.place)


def misconfigured_of(name: str, reason: str, entries: Mapping[str, Entry]) -> Misconfigured:
    """Describes the sink by `entries`, which stand for it, as far as they can be read."""
    topics = names_in(entries)
    place = entries["target.base.path"].text if "target.base.path" in entries else ""
    if len(topics) == 1:
        place = place.replace("{topic}", topics[0])
    expression = "|".join(map(re.escape, topics)) if topics else regex_in(entries)
    return Misconfigured(name, reason, expression, place)
