"""Reads what the rollbacks on a table's timeline took back: instants, and files. Raises what py4j raises."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sink.hudi.client import HudiClient
from sink.hudi.half_written import HalfWritten
from sink.hudi.instants import Instant


class Rollbacks:
    """Reads each rollback of one table once. In its methods `meta` is Hudi's meta client, and `timeline` its active or
    archived timeline.
    """

    def __init__(self, hudi: HudiClient, half_written: HalfWritten) -> None:
        self._hudi = hudi
        self._half_written = half_written
        self._instants: dict[Instant, frozenset[str]] = {}
        self._removals: dict[Instant, list[str]] = {}

    def instants(self, meta: Any, timeline: Any, entry: Instant) -> frozenset[str]:
        """Returns the instants that a rollback takes back; none for a plan that was cut short: nobody can read it."""
        if entry not in self._instants:
            if entry.done:
                taken_back = timeline.readRollbackMetadata(_java(self._hudi, meta, entry)).getCommitsRollback()
            elif self._half_written.is_plan(entry):
                plan = self._hudi.instant(meta, "REQUESTED", "rollback", entry.requested)
                taken_back = [timeline.readRollbackPlan(plan).getInstantToRollback().getCommitTime()]
            else:
                return frozenset()
            self._instants[entry] = frozenset(str(instant) for instant in taken_back)
        return self._instants[entry]

    def removed_files(self, meta: Any, listed: Collection[Instant], instants: Collection[str]) -> list[str]:
        """Returns the files that completed rollbacks were to remove, by path relative to the table. Only rollbacks in
        `listed` count, and only those that took back nothing but `instants`.
        """
        timeline, paths = meta.getActiveTimeline(), []
        for entry in listed if instants else ():
            if entry.action == "rollback" and entry.done and self.instants(meta, timeline, entry) <= set(instants):
                paths += self._removed(meta, entry)
        return paths

    def forget(self, listed: Collection[Instant]) -> None:
        """Forgets the rollbacks that are not listed."""
        self._instants = {entry: value for entry, value in self._instants.items() if entry in listed}
        self._removals = {entry: value for entry, value in self._removals.items() if entry in listed}

    def _removed(self, meta: Any, entry: Instant) -> list[str]:
        if entry not in self._removals:
            base = str(self._hudi.path().toUri().getPath()).rstrip("/") + "/"
            self._removals[entry] = [
                str(self._hudi.java.storage.StoragePath(path).toUri().getPath()).removeprefix(base)
                for part in meta.getActiveTimeline()
                .readRollbackMetadata(_java(self._hudi, meta, entry))
                .getPartitionMetadata()
                .values()
                for path in (*part.getSuccessDeleteFiles(), *part.getFailedDeleteFiles())
            ]
        return self._removals[entry]


def _java(hudi: HudiClient, meta: Any, entry: Instant) -> Any:
    return hudi.instant(meta, entry.state, entry.action, entry.requested, entry.completed)
