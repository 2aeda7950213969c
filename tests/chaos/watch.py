"""Notes when each commit of a table appeared: those that land records, and those of table services apart."""

from __future__ import annotations

import re

from tests.chaos.stores import Place
from tests.looking import Looking

_COMPLETED = re.compile(r"(\d{17})_\d{17}\.(commit|deltacommit|replacecommit)")


LOOK_SECONDS = 0.5


class Timeline(Looking):
    """`with` looks again and again, before archiving can take an instant away."""

    def __init__(self, place: Place, progress: str) -> None:
        super().__init__(LOOK_SECONDS)
        self.seen: dict[str, float] = {}
        self.rewritten: set[str] = set()
        """Instants of clusterings and compactions."""
        self._place = place
        self._progress = progress

    def _look(self) -> None:
        for name, at in self._place.timeline().items():
            match = _COMPLETED.fullmatch(name)
            if match is None or match[1] in self.seen:
                continue
            if match[2] == self._progress:
                self.seen[match[1]] = at
            else:
                self.rewritten.add(match[1])
