"""Has Hudi make the metadata table anew, where it may be wrong.

After a restore: if the metadata table was compacted since the savepoint, Hudi's restore deletes it, and makes it anew
from the files of the table before it removes those that go. It corrects the list of files then, not the other indexes:
the record index names file groups that are gone, so that keys are upserted into them, where some readers miss them, and
come twice after a clustering. And it lists files that an attempt at a pending compaction has left, which the next
attempt deletes. Guarantee: no transaction begins after a restore before the metadata table was made from what the
restore has left. A transaction that names the restore shows that.

After a compaction whose process stood still while it wrote the metadata table, and woke when another one had carried
the plan out again: the metadata table has the instant twice, and the files of both, of which one's are gone. Guarantee:
no transaction begins while the metadata table's active timeline has such an instant.

After a process that stood still while it wrote the metadata table, woke when another one had rolled its instant back or
carried it out again, and failed or died before it completed the instant: its log files name data files that are gone.
Guarantee: table services delete such log files, or make the metadata table anew if a reader or a compaction may have
read them.

And when it is made, by whomever: Hudi lists all files of storage then but those of pending instants, so that it takes
the files of late tasks for committed ones. Guarantee: this sink deletes them before it has Hudi make the metadata
table; if another writer's lists one that is to be deleted, it is made anew.

Voided by another Hudi writer that upserts in between, and by a process that is stopped while it deletes and wakes when
another holds the lock. Raises what py4j raises, and Unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any

import structlog

from sink.hudi.client import HudiClient
from sink.hudi.data_files import files_of, instants_of, listed_by_metadata
from sink.hudi.index_names import RECORD_INDEX, RECORD_INDEX_ENABLED
from sink.hudi.instants import ActiveTimeline
from sink.hudi.leftovers import rolled_back
from sink.hudi.metadata_timeline import METADATA_TABLE, completed_commits, completed_twice, log_files, written_twice
from sink.hudi.moments import restores_known_to
from sink.hudi.overtaken import repeated_attempts, unused_files
from sink.hudi.timeline import HudiTimeline

LOG = structlog.get_logger("sink.hudi")


class MetadataRebuild:
    """Has the metadata table of the table of `hudi` made anew."""

    def __init__(self, hudi: HudiClient, timeline: HudiTimeline) -> None:
        self._hudi = hudi
        self._timeline = timeline
        self._restores: frozenset[str] = frozenset()
        """Those since which the metadata table is right."""

    def names(self, require_held: Callable[[], None]) -> Collection[str] | None:
        """Lists the metadata table's timeline, as `HudiClient.metadata_names`. If there is none, Hudi makes it from the
        files of the table: those of late tasks are deleted before. The caller holds the table lock, for which
        `require_held` asks.
        """
        names = self._hudi.metadata_names()
        if names is None and self._hudi.has_metadata_table:
            self._delete(self._late_files(), require_held)
        return names

    def delete_late(self, paths: Collection[str], require_held: Callable[[], None]) -> None:
        """Deletes these files of late tasks, relative to the table. Has the metadata table made anew if it lists one,
        because readers would look for it. The caller holds the table lock, for which `require_held` asks.
        """
        meta = self._hudi.meta_client()
        partitions = self._partitions(meta)
        if paths and partitions and (listed := listed_by_metadata(self._hudi, paths)):
            self._make_anew(meta, instants_of(listed), partitions, require_held, paths)
        else:
            self._delete(paths, require_held)

    def require_since_restores(self, snapshot: ActiveTimeline, require_held: Callable[[], None]) -> None:
        """Sees to a metadata table that is right since each restore of the snapshot. The caller holds the table lock,
        for which `require_held` asks, and then begins an instant that names the restores.
        """
        if snapshot.restores <= self._restores:
            return
        # The properties of a meta client stay as they were when it was made.
        meta = self._hudi.meta_client()
        if not snapshot.restores <= self._known_to_newest(meta, snapshot):
            partitions = self._partitions(meta)
            # A process that died while it deleted the metadata table leaves files that the table does not name.
            if partitions or self._hudi.names(METADATA_TABLE):
                self._make_anew(meta, snapshot.restores, partitions, require_held)
        self._restores = snapshot.restores

    def require_completed_once(self, names: Collection[str], require_held: Callable[[], None]) -> None:
        """Sees to a metadata table without an instant that was completed twice. `names`: the files of its timeline. The
        caller holds the table lock, for which `require_held` asks.
        """
        if twice := completed_twice(names):
            meta = self._hudi.meta_client()
            self._make_anew(meta, twice, self._partitions(meta), require_held)

    def require_no_late_files(
        self, rolled_back: Collection[str], repeated: Collection[str], require_held: Callable[[], None]
    ) -> None:
        """Sees to a metadata table without log files that late processes wrote. `rolled_back`: instants that were
        rolled back; `repeated`: complete ones that had several attempts. The caller holds the table lock, for which
        `require_held` asks.
        """
        names = self._hudi.metadata_names() or ()
        commits = completed_commits(names)
        if not commits:
            return
        meta = self._hudi.meta_client()
        partitions = self._partitions(meta)
        directories = [f"{METADATA_TABLE}/{partition}" for partition in sorted(partitions)]
        files = [f"{directory}/{name}" for directory in directories for name in self._hudi.names(directory)]
        late = log_files(files, rolled_back)
        # Readers take the instants before the timeline for complete.
        seen = {instant for instant in late if instant in commits or instant < min(commits)}
        seen |= {instant for instant, paths in log_files(files, repeated).items() if written_twice(paths)}
        if seen:
            self._make_anew(meta, seen, partitions, require_held)
            return
        self._delete([path for paths in late.values() for path in paths], require_held)

    def _partitions(self, meta: Any) -> set[str]:
        return set(self._hudi.json(meta.getTableConfig().getMetadataPartitions()))

    def _make_anew(
        self,
        meta: Any,
        instants: Collection[str],
        partitions: Collection[str],
        require_held: Callable[[], None],
        late: Collection[str] = (),
    ) -> None:
        """`instants` are the reason: restores, or instants that a late process has written. `late`: files to delete."""
        LOG.warning("metadata_table.made_anew", instants=sorted(instants))
        options = dict(self._hudi.options)
        if RECORD_INDEX in partitions:
            # Other writers may look keys up in it, even if this sink does not.
            options[RECORD_INDEX_ENABLED] = "true"
        require_held()
        self._hudi.delete_metadata_table(meta)
        # Hudi lists all files but those of pending instants.
        self._delete({*late, *self._late_files()}, require_held)
        require_held()
        with closing(self._hudi.with_options(options)) as hudi:
            hudi.init_table()
        require_held()

    def _late_files(self) -> set[str]:
        """Lists storage, all partitions of it, for files that late tasks have left: of instants that this sink rolled
        back, and of compactions that it carried out again.
        """
        gone, attempts = rolled_back(self._hudi, self._timeline), repeated_attempts(self._hudi, self._timeline)
        if not gone and not attempts:
            return set()
        late: set[str] = set()
        for instant, files in files_of(self._hudi, {*gone, *attempts}).items():
            if instant in gone:
                late.update(files)
                continue
            snapshot = self._timeline.snapshot()
            if committed := self._timeline.committed_files(snapshot, instant):
                late |= unused_files(self._hudi, snapshot, instant, set(files) - committed)
        return late

    def _delete(self, paths: Collection[str], require_held: Callable[[], None]) -> None:
        if not paths:
            return
        require_held()
        for path in sorted(paths):
            self._hudi.storage().deleteFile(self._hudi.path(path))
        LOG.warning("late_files.deleted", files=sorted(paths))

    def _known_to_newest(self, meta: Any, snapshot: ActiveTimeline) -> frozenset[str]:
        """Returns the restores that the newest transaction of a sink names."""
        for entry in sorted(snapshot.instants, reverse=True):
            if entry.action == self._hudi.action:
                known = restores_known_to(self._hudi, meta, entry.requested)
                if known is not None:
                    return known
        return frozenset()
