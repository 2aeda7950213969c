"""Table services by Hudi's own means, off the commit path, on one worker at a time.

Compaction of a merge-on-read table, clustering, cleaning and archiving run in this order, each by itself: one that
fails does not keep the next from running. Guarantee: Hudi takes the table lock itself, through ZooKeeper, as for any
writer. A rewrite (compaction, clustering) is completed under the table lock held here, and only if its plan is still on
the timeline: Hudi would first add its files to the metadata table, and readers would look for files that are gone.
This module never rolls back a pending instant of a transaction, however old its heartbeat is: the transaction may be
PREPARED. It drops a plan that an earlier run of this sink left behind before it plans a new one, so that a worker that
was stopped in that run finds no instant to complete when it wakes; it leaves plans of other writers alone. Before it
archives, it removes files that a late task wrote under an instant that was rolled back: a reader without the metadata
table takes an instant that is older than the active timeline for committed. Never raises for a service that fails: its
outcome says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing

from coordination.errors import Conflict
from coordination.zookeeper.table_service_lock import Service
from sink.clients.java_errors import JAVA_ERRORS
from sink.config import Settings
from sink.hudi.client import CLUSTERING, COMPACTION, HudiClient
from sink.hudi.options import IN_PROCESS_LOCK, LOCK_PROVIDER, commit_options, service_options
from sink.hudi.service_outcome import run_service
from sink.hudi.timeline import SINK_KEY, ActiveTimeline, HudiTimeline, Instant
from sink.hudi.torn_manifests import delete_torn_manifests
from sink.hudi.uploads import abort_uploads
from sink.layout.quarantine import QUARANTINE
from sink.telemetry.failpoints import Failpoints

TEMP = ".hoodie/.temp"
TIMELINE = ".hoodie/timeline"
MERGE_ON_READ = "MERGE_ON_READ"
_MARKER = ".marker."
_ACTIONS = {"Clustering": CLUSTERING, "Compaction": COMPACTION}


class HudiTableServices:
    """One run on the table of `hudi`, with clients of its own. `locks` gives the table lock, for steps that Hudi has no
    call for.
    """

    def __init__(self, hudi: HudiClient, settings: Settings, locks: Callable[[], AbstractContextManager[None]]) -> None:
        self._settings = settings
        self._locks = locks
        self._hudi = hudi.with_options(service_options(settings))
        self._locked = hudi.with_options(commit_options(settings))
        """The client for steps under the table lock held here."""
        self._timeline = HudiTimeline(self._hudi, settings.name)
        self._failpoints = Failpoints.from_environment()

    def run(self) -> tuple[Service, ...]:
        with closing(self._locked), closing(self._hudi):
            self._hudi.keep_metadata_table()
            self._locked.keep_metadata_table()
            return tuple(run_service(name, service) for name, service in self._services())

    def _services(self) -> Iterator[tuple[str, Callable[[], str]]]:
        if self._settings.services_compaction and self._is_merge_on_read():
            yield "compaction", lambda: self._rewrite("Compaction")
        if self._settings.services_clustering:
            yield "clustering", lambda: self._rewrite("Clustering")
        yield "cleaning", self._clean
        yield "archiving", self._archive

    def _is_merge_on_read(self) -> bool:
        return str(self._hudi.meta_client().getTableType().toString()) == MERGE_ON_READ

    def _rewrite(self, service: str) -> str:
        """Plans a service and carries it out. Removes a plan that fails: it would block updates by other writers."""
        self._drop_leftovers(service)
        instant = self._hudi.schedule(service, {SINK_KEY: self._settings.name})
        if not instant:
            return ""
        self._failpoints.reach(f"{service}.scheduled")
        try:
            self._execute(service, instant)
        except (*JAVA_ERRORS, OSError):
            self._drop_leftovers(service)
            raise
        return instant

    def _execute(self, service: str, instant: str) -> None:
        """Executes the plan with the table's columns as they are now: no file of the plan has others. Where Hudi
        rewrites record by record it takes the columns from its client, and would drop those that the client lacks.
        """
        columns = self._hudi.table_schema(self._hudi.meta_client())
        options = {**self._hudi.options, LOCK_PROVIDER: IN_PROCESS_LOCK}
        with closing(self._hudi.with_options(options, columns)) as hudi:
            written = hudi.execute(service, instant)
            self._failpoints.reach(f"{service}.written")
            with self._locks():
                if not self._pending(_ACTIONS[service], instant):
                    raise Conflict(f"{service.lower()} {instant}: another worker has dropped the plan meanwhile")
                hudi.complete_service(service, instant, written)

    def _drop_leftovers(self, service: str) -> None:
        """Drops this sink's pending plans. No other process of the sink executes one now: a process that died or failed
        left them.
        """
        action = _ACTIONS[service]
        snapshot, meta = self._timeline.snapshot(), self._hudi.meta_client()
        for entry in snapshot.instants:
            if entry.action == action and not entry.done:
                owner = self._hudi.plan_metadata(meta, action, entry.requested).get(SINK_KEY)
                if owner == self._settings.name:
                    self._drop(action, entry.requested)

    def _drop(self, action: str, instant: str) -> None:
        """Drops a pending plan under the table lock. Until the lock is held, the process that made the plan may still
        complete it.
        """
        with self._locks():
            pending = self._pending(action, instant)
            if not pending:
                return
            if action == CLUSTERING:
                self._locked.roll_back(instant)
            else:
                # A rollback by Hudi would only put the plan back. Files first: only the plan tells whose they are.
                _remove_marked(self._locked, instant)
                self._locked.drop_compaction(self._locked.meta_client(), instant, pending[0].state == "INFLIGHT")

    def _pending(self, action: str, instant: str) -> list[Instant]:
        """Returns the plan's entries on the timeline; none if the plan is complete or gone."""
        entries = [entry for entry in self._timeline.snapshot().instants if entry.requested == instant]
        return [] if any(entry.done for entry in entries) else [entry for entry in entries if entry.action == action]

    def _clean(self) -> str:
        cleaned = self._hudi.client.clean()
        return "" if cleaned is None else str(cleaned.getStartCleanTime())

    def _archive(self) -> str:
        sweep(self._hudi, self._timeline)
        with self._locks():
            delete_torn_manifests(self._hudi, TIMELINE)
        self._hudi.client.archive()
        # Killed writers left them, like the files that are swept.
        abort_uploads(self._hudi)
        return ""


def sweep(hudi: HudiClient, timeline: HudiTimeline) -> None:
    """Removes files of instants whose rollback is complete: those that the rollback removed and a late task wrote
    again, and those that a late task has marked since. Also removes quarantined bad records of transactions that have
    ended.
    """
    # Listed before the timeline: quarantined records belong to an instant that was begun before.
    quarantined = hudi.names(QUARANTINE)
    storage = hudi.storage()
    for name in _revived(hudi, timeline.snapshot()):
        storage.deleteFile(hudi.path(f"{TIMELINE}/{name}"))
    snapshot = timeline.snapshot()
    for path in timeline.removed_files(snapshot):
        if storage.exists(hudi.path(path)):
            storage.deleteFile(hudi.path(path))
    for instant in hudi.names(TEMP):
        if snapshot.is_gone(instant):
            _remove_marked(hudi, instant)
    for instant in quarantined:
        if not any(not entry.done for entry in snapshot.writes_at(instant)):
            storage.deleteDirectory(hudi.path(f"{QUARANTINE}/{instant}"))


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


def _remove_marked(hudi: HudiClient, instant: str) -> None:
    """Removes the instant's data files that have a marker, then the markers."""
    directory, storage = f"{TEMP}/{instant}", hudi.storage()
    if not storage.exists(hudi.path(directory)):
        return
    for marker in hudi.files_below(directory):
        if _MARKER in marker:
            storage.deleteFile(hudi.path(marker.rpartition(_MARKER)[0]))
    storage.deleteDirectory(hudi.path(directory))
