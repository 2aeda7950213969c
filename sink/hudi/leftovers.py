"""Deletes files that late tasks wrote under instants of this sink that were rolled back.

A task may outlive the transaction or clustering that it wrote for. A reader without the metadata table takes an instant
that is older than the active timeline for committed, and would show such a file. Most have a marker, or are named by
the rollback. But Hudi plans a rollback by the markers that are there, and deletes all of them in the end: a file whose
marker was made in between is known by its name alone. So storage is listed, once for each instant, before archiving
lets the active timeline begin later. Guarantee: a file is deleted only if
this sink rolled its instant back, noted that when the rollback was complete (`note_rollback`), and the instant is
neither pending nor complete, on the active timeline or in the archive. Such an instant is never begun again. So files
of complete and pending instants stay, and those of other writers. Void for a task that was stopped in that moment and
writes its file after the listing. Raises what py4j raises, Corrupt and Unavailable.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import structlog

from sink.hudi.client import HudiClient
from sink.hudi.data_files import files_of
from sink.hudi.instants import TIMELINE, WRITES, ActiveTimeline
from sink.hudi.timeline import HudiTimeline
from sink.layout.quarantine import QUARANTINE

LOG = structlog.get_logger("sink.hudi")
TEMP = ".hoodie/.temp"
_MARKER = ".marker."
NOTES = ".hoodie/.sink_rollbacks"
"""A directory with a file for each instant that this sink rolled back. Not in the directory of Hudi's markers: with
another file there, a second rollback of an instant, which a late writer has made pending again, leaves all files."""
_LISTED = ".listed"
"""Follows the name of a note, if storage was listed for files of its instant."""
_NOTE_DAYS = 7
"""No task of an instant runs longer."""


def note_rollback(hudi: HudiClient, instant: str) -> None:
    """Notes that this sink's rollback of its instant is complete."""
    hudi.storage().create(hudi.path(f"{NOTES}/{instant}"), True).close()


def marked_files(hudi: HudiClient, instant: str) -> list[str]:
    """Returns the paths, relative to the table, of the data files that have a marker of the instant."""
    return [marker.rpartition(_MARKER)[0] for marker in _markers(hudi, instant)]


def _markers(hudi: HudiClient, instant: str) -> list[str]:
    directory = f"{TEMP}/{instant}"
    if not hudi.storage().exists(hudi.path(directory)):
        return []
    return [name for name in hudi.files_below(directory) if _MARKER in name]


def sweep(hudi: HudiClient, timeline: HudiTimeline) -> None:
    """Removes files of this sink's instants whose rollback is complete: those that the rollback removed and a late task
    wrote again, and those that a late task has marked since. Also removes quarantined bad records of transactions that
    have ended.
    """
    # Listed before the timeline: what is listed belongs to an instant that was begun before.
    quarantined, (noted, listed) = hudi.names(QUARANTINE), _notes(hudi)
    storage = hudi.storage()
    for name in _revived(hudi, timeline.snapshot()):
        storage.deleteFile(hudi.path(f"{TIMELINE}/{name}"))
    snapshot = timeline.snapshot()
    gone = timeline.gone(snapshot, noted)
    for path in timeline.removed_files(snapshot, gone):
        if storage.exists(hudi.path(path)):
            storage.deleteFile(hudi.path(path))
    for instant in gone:
        for marker in _markers(hudi, instant):
            storage.deleteFile(hudi.path(marker.rpartition(_MARKER)[0]))
            storage.deleteFile(hudi.path(f"{TEMP}/{instant}/{marker}"))
        if is_old(instant):
            storage.deleteDirectory(hudi.path(f"{TEMP}/{instant}"))
    pending = {entry.requested for entry in snapshot.instants if not entry.done}
    for instant in noted:
        if is_old(instant) and instant not in pending:
            for suffix in ("", _LISTED) if instant in listed else ("",):
                storage.deleteFile(hudi.path(f"{NOTES}/{instant}{suffix}"))
    for instant in quarantined:
        if not any(not entry.done for entry in snapshot.writes_at(instant)):
            storage.deleteDirectory(hudi.path(f"{QUARANTINE}/{instant}"))


def sweep_unmarked(hudi: HudiClient, timeline: HudiTimeline) -> None:
    """Removes files of instants that archiving is about to let the active timeline forget, whatever names them."""
    noted, listed = _notes(hudi)
    if noted <= listed:
        return
    snapshot = timeline.snapshot()
    writes = sorted(entry.requested for entry in snapshot.instants if entry.done and entry.action in WRITES)
    if len(writes) <= int(hudi.config.getMaxCommitsToKeep()):
        return
    kept = writes[-int(hudi.config.getMinCommitsToKeep())]
    due = timeline.gone(snapshot, {instant for instant in noted - listed if instant < kept})
    if not due:
        return
    # Listed before the timeline is looked at again: what is listed belongs to an instant that was begun before.
    found = files_of(hudi, due)
    gone = timeline.gone(timeline.snapshot(), due)
    storage = hudi.storage()
    for instant in sorted(gone):
        late = found.get(instant, [])
        for path in late:
            storage.deleteFile(hudi.path(path))
        storage.create(hudi.path(f"{NOTES}/{instant}{_LISTED}"), True).close()
        if late:
            LOG.warning("late_files.deleted", instant=instant, files=late, in_use=[])


def _notes(hudi: HudiClient) -> tuple[set[str], set[str]]:
    """Returns the instants that have a note, and those of them for which storage was listed."""
    names = set(hudi.names(NOTES))
    listed = {name.removesuffix(_LISTED) for name in names if name.endswith(_LISTED)}
    return {name for name in names if not name.endswith(_LISTED)}, listed


def _revived(hudi: HudiClient, snapshot: ActiveTimeline) -> list[str]:
    """Returns inflight files of rolled back instants that a late writer has made again, where the requested files are
    gone: Hudi's writer notes its plan there.
    """
    pending = {
        entry.requested for entry in snapshot.instants if entry.requested in snapshot.rolled_back and not entry.done
    }
    names = hudi.names(TIMELINE) if pending else []
    begun = {name.partition(".")[0] for name in names if name.endswith(".requested")}
    return [name for name in names if name.endswith(".inflight") and name.partition(".")[0] in pending - begun]


def is_old(instant: str) -> bool:
    """Whether no task of what began at this instant can still run."""
    begun = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    return datetime.now(timezone.utc) - begun > timedelta(days=_NOTE_DAYS)
