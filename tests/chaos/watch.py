"""Notes when each commit of a table appeared: those that land records, and those of table services apart."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bench.freshness import Watch

_COMPLETED = re.compile(r"(\d{17})_\d{17}\.(commit|deltacommit|replacecommit)")


class Timeline(Watch):
    def __init__(self, table: Path, progress: str) -> None:
        super().__init__(table)
        self.rewritten: set[str] = set()
        """Instants of clusterings and compactions."""
        self._progress = progress

    def _look(self) -> None:
        for path in self._timeline.iterdir():
            match = _COMPLETED.fullmatch(path.name)
            if match is None or match[1] in self.seen:
                continue
            if match[2] == self._progress:
                self.seen[match[1]] = path.stat().st_mtime
            else:
                self.rewritten.add(match[1])
