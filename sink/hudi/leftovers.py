"""Deletes files that late tasks wrote under instants that this sink had rolled back.

A task may outlive the transaction or clustering that it writes for. A reader without the metadata table takes every
instant that is older than the active timeline for committed: it would show the file of such a task.

Hudi plans a rollback by the markers that it finds, and deletes all markers when it ends. `sweep` deletes the files that
a complete rollback names, if they are there again, and the files whose markers were made after it. A file whose marker
was made between plan and end is named by neither. `sweep_unmarked` finds it by the instant in its name: it lists
storage, once for each instant, before archiving lets the active timeline begin after that instant.

Guarantee: a file is deleted only if this sink rolled its instant back and noted that (`note_rollback`): of a
transaction after the rollback was complete, of a clustering before it began. And only if the instant is neither pending
nor complete, on the active timeline or in the archive. No worker begins such an instant again. So files of pending and
complete instants stay, and so do those of other writers. Void for a task that made its marker between plan and end, and
that writes its file only after storage was listed. Raises what py4j raises, Corrupt and Unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta, timezone

from sink.hudi.client import HudiClient
from sink.hudi.data_files import files_of
from sink.hudi.instants import TIMELINE, WRITES, ActiveTimeline
from sink.hudi.lock import Locks
from sink.hudi.timeline import HudiTimeline
from sink.layout.quarantine import QUARANTINE

TEMP = ".hoodie/.temp"
_MARKER = ".marker."
NOTES = ".hoodie/.sink_rollbacks"
"""A directory of notes: an empty file for each instant that this sink rolled back, named by the instant. It is not
below Hudi's markers. A late writer may make an instant pending again, and a second rollback that finds another file
among the markers deletes none of the instant's files."""
_LISTED = ".listed"
"""The suffix of a second note: storage was listed for files of the instant."""
_NOTE_DAYS = 7
"""Days for which notes are kept: no task of an instant runs longer."""
Delete = Callable[[Collection[str], Callable[[], None]], None]
"""Deletes files of late tasks, which are relative to the table, under the table lock, for which it is told how to ask:
`MetadataRebuild.delete_late`."""


def note_rollback(hudi: HudiClient, instant: str) -> None:
    """Notes that this sink has rolled back a transaction of its own, or is about to roll back a clustering."""
    hudi.storage().create(hudi.path(f"{NOTES}/{instant}"), True).close()


def marked_files(hudi: HudiClient, instant: str) -> list[str]:
    """Returns the paths, relative to the table, of data files with a marker of the instant. A file may be missing."""
    return [_marked(marker) for marker in _markers(hudi, instant)]


def _marked(marker: str) -> str:
    return marker.rpartition(_MARKER)[0]


def _markers(hudi: HudiClient, instant: str) -> list[str]:
    """Returns the paths of the instant's markers, relative to their directory."""
    directory = f"{TEMP}/{instant}"
    if not hudi.storage().exists(hudi.path(directory)):
        return []
    return [name for name in hudi.files_below(directory) if _MARKER in name]


def unfinished(hudi: HudiClient, snapshot: ActiveTimeline) -> list[str]:
    """Returns the noted instants whose rollback is pending, and has deleted what shows them on the timeline: nobody
    comes upon such a clustering again."""
    begun = snapshot.rolling_back - {entry.requested for entry in snapshot.instants}
    return sorted(begun & _notes(hudi)[0]) if begun else []


def rolled_back(hudi: HudiClient, timeline: HudiTimeline) -> frozenset[str]:
    """Returns the instants that this sink rolled back in the last seven days, without those that were begun again."""
    noted, _ = _notes(hudi)
    return frozenset(timeline.gone(timeline.snapshot(), noted))


def sweep(hudi: HudiClient, timeline: HudiTimeline, locks: Locks, delete: Delete) -> None:
    """Deletes the files of rolled-back instants that the rollback names, and those that have a marker. Deletes what no
    longer serves: their markers and notes after seven days, and quarantined bad records of transactions that have
    ended.
    """
    # Listed before the timeline is read: the timeline then shows what became of each instant that is listed.
    quarantined, (noted, listed) = hudi.names(QUARANTINE), _notes(hudi)
    storage = hudi.storage()
    for name in _revived(hudi, timeline.snapshot()):
        storage.deleteFile(hudi.path(f"{TIMELINE}/{name}"))
    snapshot = timeline.snapshot()
    gone = timeline.gone(snapshot, noted)
    markers = {instant: _markers(hudi, instant) for instant in gone}
    named = {*timeline.removed_files(snapshot, gone), *(file for of in markers.values() for file in map(_marked, of))}
    if late := [path for path in sorted(named) if storage.exists(hudi.path(path))]:
        with locks("delete late files") as require_held:
            delete(late, require_held)
    for instant in gone:
        for marker in markers[instant]:
            storage.deleteFile(hudi.path(f"{TEMP}/{instant}/{marker}"))
        if is_old(instant):
            storage.deleteDirectory(hudi.path(f"{TEMP}/{instant}"))
    pending = {entry.requested for entry in snapshot.instants if not entry.done}
    for instant in noted:
        if is_old(instant) and instant not in pending:
            # The note itself goes last: a sweep that dies here finds the instant again.
            for suffix in (_LISTED, "") if instant in listed else ("",):
                storage.deleteFile(hudi.path(f"{NOTES}/{instant}{suffix}"))
    for instant in quarantined:
        if not any(not entry.done for entry in snapshot.writes_at(instant)):
            storage.deleteDirectory(hudi.path(f"{QUARANTINE}/{instant}"))


def sweep_unmarked(hudi: HudiClient, timeline: HudiTimeline, locks: Locks, delete: Delete) -> None:
    """Deletes the files of rolled-back instants that the next archiving may let the active timeline forget. Lists all
    partitions for them, once for each instant.
    """
    noted, listed = _notes(hudi)
    if noted <= listed:
        return
    snapshot = timeline.snapshot()
    writes = sorted(entry.requested for entry in snapshot.instants if entry.done and entry.action in WRITES)
    if len(writes) <= int(hudi.config.getMaxCommitsToKeep()):
        return  # the next archiving archives nothing
    oldest_kept = writes[-int(hudi.config.getMinCommitsToKeep())]
    due = timeline.gone(snapshot, {instant for instant in noted - listed if instant < oldest_kept})
    if not due:
        return
    # Listed before the timeline is read again: it then shows whether an instant has become pending or complete.
    found = files_of(hudi, due)
    gone = timeline.gone(timeline.snapshot(), due)
    storage = hudi.storage()
    for instant in sorted(gone):
        if late := found.get(instant):
            with locks("delete late files") as require_held:
                delete(late, require_held)
        storage.create(hudi.path(f"{NOTES}/{instant}{_LISTED}"), True).close()


def _notes(hudi: HudiClient) -> tuple[set[str], set[str]]:
    """Returns the instants that have a note, and the instants for which storage was listed."""
    names = set(hudi.names(NOTES))
    listed = {name.removesuffix(_LISTED) for name in names if name.endswith(_LISTED)}
    return {name for name in names if not name.endswith(_LISTED)}, listed


def _revived(hudi: HudiClient, snapshot: ActiveTimeline) -> list[str]:
    """Returns inflight files that a late writer has made again after the rollback: Hudi's writer of upserts keeps its
    plan there. Without the requested file, which the rollback deleted, Hudi cannot roll the instant back at once.
    """
    pending = {
        entry.requested for entry in snapshot.instants if entry.requested in snapshot.rolled_back and not entry.done
    }
    names = hudi.names(TIMELINE) if pending else []
    begun = {name.partition(".")[0] for name in names if name.endswith(".requested")}
    return [name for name in names if name.endswith(".inflight") and name.partition(".")[0] in pending - begun]


def is_old(instant: str) -> bool:
    """Returns whether the instant began so long ago that no task of it can still run."""
    begun = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    return datetime.now(timezone.utc) - begun > timedelta(days=_NOTE_DAYS)
