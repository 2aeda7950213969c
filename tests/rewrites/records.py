"""The records of a sequence: rows that come, change and are deleted, with the columns of the moment."""

from __future__ import annotations

import json
from collections.abc import Collection
from random import Random
from typing import Any

from tests.rewrites.lab import Record
from tests.rewrites.model import Change, Row
from tests.rewrites.profiles import Profile

KEYS = 8
_FIRST_ID = 1000
_WIDE = 1 << 40
"""No INT holds it."""


class Records:
    """Draws changes. `evolved`: how many steps of the profile's evolution the columns have taken."""

    def __init__(self, profile: Profile, random: Random) -> None:
        self._profile, self._random = profile, random
        self._clock = 0
        self._next_id = _FIRST_ID
        self._deleted: set[int] = set()
        self.evolved = 0

    def evolve(self) -> bool:
        """Takes the next step of the evolution. Returns whether there was one."""
        is_left = self.evolved < len(self._profile.evolution)
        self.evolved += is_left
        return is_left

    def record(self, change: Change) -> Record:
        """Returns key and value for Kafka."""
        key = str(change.row["id"]).encode()
        if change.deletes and self._profile.has_tombstones:
            return key, None
        row = {**change.row, "_hoodie_is_deleted": True} if change.deletes else change.row
        return key, json.dumps(row).encode()

    def changes(self, appends: int, changes: int, known: Collection[Row]) -> list[Change]:
        """Draws so many rows of a table that only grows, or so many changes of one whose rows are `known`."""
        if self._profile.operation == "append":
            self._next_id += appends
            return [Change(self._row(key)) for key in range(self._next_id - appends, self._next_id)]
        if len(known) > KEYS // 3 and self._random.random() < 0.5:
            # Changes of rows that stay where they are: a commit without any other writes log files alone.
            rows = [self._random.choice(list(known)) for _ in range(changes)]
            return [Change({**self._row(row["id"]), "region": row["region"]}) for row in rows]
        return [self._change(self._random.randrange(KEYS)) for _ in range(changes)]

    def _change(self, key: int) -> Change:
        self._clock += 1
        deletes = self._random.random() < 0.2
        row = self._row(key)
        if self._profile.ordered and not deletes and key not in self._deleted and self._random.random() < 0.2:
            row["at"] = max(1, self._clock - self._random.randrange(30))
        if deletes:
            # Of a deleted row Hudi keeps no ordering value that it promises to compare with.
            self._deleted.add(key)
        return Change(row, deletes)

    def _row(self, key: int) -> dict[str, Any]:
        self._clock += 1
        moves = self._profile.index == "record" or self._profile.operation == "append"
        region = self._random.randrange(2) if moves else key % 2
        row: dict[str, Any] = {"id": key, "at": self._clock, "region": f"r{region}", "number": self._clock}
        for column in self._profile.evolution[: self.evolved]:
            name = column.split(" ")[0]
            row[name] = {"note": f"n{self._clock}", "number": _WIDE + self._clock, "ratio": self._clock / 4}[name]
        return row
