"""Deletes files that an attempt at a compaction wrote after another attempt had completed the plan.

A compaction that a process leaves behind is carried out again under its own instant. The process may go on later, write
its files and die before it can delete them. Their instant is complete: a reader without the metadata table takes each
of them for committed, and shows old rows once a clustering has replaced the file group and the timeline has forgotten
that. Guarantee: a file is deleted only if its name has the instant of a compaction that is complete, on the active
timeline or in the archive, and that a sink has noted before it carried the plan out again (`note_attempt`); if the
commit does not name the file; and if no pending plan and no savepoint can name it. It need not have a marker: Hudi
deletes those of all attempts when one is complete. Voided by a late file that a cleaning takes for the commit's, where
there is no metadata table. Raises what py4j raises, Corrupt and Unavailable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from py4j.protocol import Py4JJavaError

from sink.clients.java.errors import causes
from sink.hudi.client import HudiClient
from sink.hudi.instants import COMPACTION, ActiveTimeline
from sink.hudi.leftovers import TEMP, Delete, is_old
from sink.hudi.service_moment import Moments
from sink.hudi.timeline import HudiTimeline

NOTES = ".hoodie/.sink_attempts"
"""A directory with a file for each compaction that was begun again: instant and newest attempt. Hudi deletes the
directory of the markers."""


def note_attempt(hudi: HudiClient, instant: str) -> None:
    """Notes that another attempt at this sink's compaction begins. The caller holds the table lock."""
    earlier = [name for name in hudi.names(NOTES) if name.startswith(instant)]
    hudi.storage().create(hudi.path(f"{NOTES}/{instant}_{hudi.instant_now()}"), True).close()
    for name in earlier:
        hudi.storage().deleteFile(hudi.path(f"{NOTES}/{name}"))


def repeated_attempts(hudi: HudiClient, timeline: HudiTimeline) -> dict[str, list[str]]:
    """Returns the notes of each compaction that has had several attempts, the newest in the last seven days, and is not
    pending, by its instant.
    """
    attempts: dict[str, list[str]] = {}
    for name in hudi.names(NOTES):
        attempts.setdefault(name.partition("_")[0], []).append(name)
    if not attempts:
        return {}
    snapshot = timeline.snapshot()
    return {instant: notes for instant, notes in attempts.items() if not snapshot.is_pending(instant, COMPACTION)}


def delete_late_files(
    hudi: HudiClient,
    timeline: HudiTimeline,
    moments: Moments,
    attempts: Mapping[str, Collection[str]],
    delete: Delete,
) -> None:
    """Deletes late files of these compactions: `repeated_attempts`."""
    if not attempts:
        return
    snapshot = timeline.snapshot()
    for instant, notes in sorted(attempts.items()):
        committed = timeline.committed_files(snapshot, instant)
        late = _files(hudi, instant, committed) - committed
        if late:
            with moments("delete late files") as moment:
                unused = unused_files(hudi, moment.snapshot, instant, late)
                delete(unused, moment.require_held)
            late -= unused
        if not late and is_old(max(notes).partition("_")[2]):
            if committed:
                hudi.storage().deleteDirectory(hudi.path(f"{TEMP}/{instant}"))
            for note in notes:
                hudi.storage().deleteFile(hudi.path(f"{NOTES}/{note}"))


def unused_files(hudi: HudiClient, snapshot: ActiveTimeline, instant: str, paths: Collection[str]) -> set[str]:
    """Returns those of these files of a rewrite that is complete without them, or was dropped, which no pending plan
    and no savepoint can name. Without the metadata table Hudi may have planned with a late file in the place of the
    commit's, which has the same rows. The caller holds the table lock.
    """
    plans = [*hudi.pending_compactions().items(), *hudi.pending_clusterings().items()]
    groups = {group for group, plan in plans if plan != instant}
    names = {path: path.rpartition("/")[2] for path in paths}
    saved = _saved_files(hudi, snapshot)
    return {path for path, name in names.items() if name not in saved and name.partition("_")[0] not in groups}


def _files(hudi: HudiClient, instant: str, committed: Collection[str]) -> set[str]:
    """Lists the files of the instant in the partitions of these files: each attempt has written into the same."""
    pattern, found = re.compile(rf"[\w-]+_{instant}\.parquet"), set()
    for partition in {path.rpartition("/")[0] for path in committed}:
        try:
            listing = str(hudi.storage().listDirectEntries(hudi.path(partition)).toString())
        except Py4JJavaError as error:
            if "java.io.FileNotFoundException" in causes(error):
                continue
            raise
        found |= {f"{partition}/{name}".lstrip("/") for name in pattern.findall(listing)}
    return found


def _saved_files(hudi: HudiClient, snapshot: ActiveTimeline) -> set[str]:
    """Returns the names of the files that savepoints keep."""
    meta = hudi.meta_client()
    saved: set[str] = set()
    for entry in snapshot.savepoints:
        instant = hudi.instant(meta, entry.state, entry.action, entry.requested, entry.completed)
        for partition in meta.getActiveTimeline().readSavepointMetadata(instant).getPartitionMetadata().values():
            saved.update(str(name) for name in partition.getSavepointDataFile())
    return saved
