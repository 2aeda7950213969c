"""Notes when each commit of a table appeared, apart for commits that land records and for table services."""

from __future__ import annotations

import re

from tests.chaos.stores import TableStore
from tests.looking import Poller

_COMPLETED = re.compile(r"(\d{17})_\d{17}\.(commit|deltacommit|replacecommit)")


LOOK_SECONDS = 0.5


class CommitWatch(Poller):
    """`with` reads the timeline again and again, before archiving can take an instant away."""

    def __init__(self, table_store: TableStore, commit_action: str) -> None:
        super().__init__(LOOK_SECONDS)
        self.commits: dict[str, float] = {}
        """Instants of commits that land records, and when each appeared."""
        self.rewrites: set[str] = set()
        """Instants of clusterings and compactions."""
        self._table_store = table_store
        self._commit_action = commit_action

    def _poll(self) -> None:
        for name, at in self._table_store.timeline().items():
            match = _COMPLETED.fullmatch(name)
            if match is None or match[1] in self.commits:
                continue
            if match[2] == self._commit_action:
                self.commits[match[1]] = at
            else:
                self.rewrites.add(match[1])
