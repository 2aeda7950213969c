"""Runs Hudi's table services, apart from commits, on one worker at a time.

The services are compaction of a merge-on-read table, clustering, cleaning and archiving. They run in this order. A
service that fails does not keep the next from running: its outcome has the reason, and nothing is raised.

Compaction and clustering are rewrites. A rewrite, like a cleaning, has three steps: plan, write or delete files, and
complete. It plans and completes under the table lock, and only while the table may be changed (`sink.hudi.moments`). It
writes or deletes files without the lock. Archiving holds the lock throughout. Just before a service completes, drops or
deletes, it asks ZooKeeper whether it still holds the lock (`sink.hudi.service_moment`), because a paused process may
have lost it.

Guarantee: a rewrite is completed with the columns that the table has then, and only if its plan is still on the
timeline and its files are those of the newest attempt. Otherwise Hudi would add its files to the metadata table first,
and readers would look for files that are gone. Pending plans that a process of this sink left: a compaction is carried
out again under its own instant, a clustering is rolled back and planned anew, and a cleaning is carried out or dropped.
Rewrites that other writers planned are left alone. The pending instant of a transaction is never rolled back here,
however old its heartbeat is: the transaction may be PREPARED.

Late tasks are those that outlive their transaction or rewrite. The files that they leave are deleted before cleaning
and archiving (`sink.hudi.overtaken`, `sink.hudi.leftovers`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager

import structlog

from coordination.errors import Conflict
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.clients.java.errors import JAVA_ERRORS
from sink.hudi import cleaning
from sink.hudi.archiving import Archiving
from sink.hudi.client import HudiClient
from sink.hudi.instants import CLUSTERING, COMPACTION, TIMELINE, ActiveTimeline, Instant
from sink.hudi.leftovers import marked_files, note_rollback, rolled_back, sweep, sweep_unmarked, unfinished
from sink.hudi.lock import Locks
from sink.hudi.metadata_rebuild import MetadataRebuild
from sink.hudi.moments import (
    abandoned,
    require_ended,
    require_moment,
    require_none_moves_rows,
    require_none_replaces,
    restores_that_stay,
)
from sink.hudi.options import commit_options, service_options
from sink.hudi.overtaken import delete_late_files, note_attempt, repeated_attempts, unused_files
from sink.hudi.schema_texts import trim
from sink.hudi.service_moment import Moment
from sink.hudi.service_outcome import run_service
from sink.hudi.specification import TableSpecification
from sink.hudi.timeline import SINK_KEY, HudiTimeline
from sink.hudi.uploads import abort_uploads
from sink.hudi.written_plan import write_plan
from sink.telemetry.failpoints import Failpoints

LOG = structlog.get_logger("sink.hudi")
MERGE_ON_READ = "MERGE_ON_READ"
_ACTIONS = {"Clustering": CLUSTERING, "Compaction": COMPACTION}
"""The actions of pending plans on the timeline, by the names that Hudi and the failpoints use for the services."""


class HudiTableServices:
    """One run of the services on the table of `hudi`, with a Hudi client of its own. `locks` gives the table lock."""

    def __init__(self, hudi: HudiClient, table: TableSpecification, locks: Locks) -> None:
        self._table = table
        self._locks = locks
        self._hudi = hudi.with_options(service_options(table))
        self._timeline = HudiTimeline(self._hudi, table.sink)
        # Makes the metadata table with all its indexes.
        self._writer = hudi.with_options(commit_options(table))
        self._metadata = MetadataRebuild(self._writer, self._timeline)
        self._failpoints = Failpoints.from_environment()

    def run(self) -> tuple[ServiceOutcome, ...]:
        """Runs each service once. Raises Unavailable, or what py4j or the store raises, if no service can begin."""
        with closing(self._hudi), closing(self._writer):
            self._hudi.keep_metadata_table()
            self._writer.keep_metadata_table()
            self._timeline.settled_snapshot(self._locks)
            if self._writer.has_metadata_table and self._writer.metadata_names() is None:
                with self._locks("delete late files") as require_held:
                    self._metadata.names(require_held)
            return tuple(run_service(name, service) for name, service in self._services())

    def _services(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yields the name of each service, and the function that runs it. The function returns the instant of what it
        completed, or an empty text if there was nothing to do.
        """
        if self._table.services.compaction and self._is_merge_on_read():
            yield "compaction", self._compact
        if self._table.services.clustering:
            yield "clustering", self._cluster
        yield "cleaning", self._clean
        yield "archiving", self._archive

    def _is_merge_on_read(self) -> bool:
        return str(self._hudi.meta_client().getTableType().toString()) == MERGE_ON_READ

    def _compact(self) -> str:
        """Carries out this sink's pending plans again, under their own instants. Makes and carries out a new plan if
        there are none. Never drops a plan: a file that a late task writes for it would hide later commits from readers.
        """
        pending = self._own_plans(COMPACTION)
        for instant in pending:
            if self._reopen(instant):
                self._carry_out("Compaction", instant)
        if pending:
            return pending[-1]
        instant = self._plan("Compaction")
        if instant:
            self._carry_out("Compaction", instant)
        self._require_others_ended({COMPACTION, "logcompaction"})
        return instant

    def _cluster(self) -> str:
        """Drops this sink's pending plans, then makes a new one and carries it out. Does not carry out a plan twice,
        because that would write its file groups twice. Drops a plan that fails, because a pending clustering blocks
        updates by other writers.
        """
        self._drop_clusterings(self._own_plans(CLUSTERING))
        instant = self._plan("Clustering")
        if instant:
            try:
                self._carry_out("Clustering", instant)
            except (*JAVA_ERRORS, OSError, Conflict):
                self._drop_clusterings([instant])
                raise
        return instant

    def _plan(self, service: str) -> str:
        """Has Hudi plan the service. Returns the plan's instant, or an empty text if Hudi finds nothing to do."""
        with self._moment(f"plan {service.lower()}") as moment:
            require_none_replaces(self._hudi, moment.snapshot)
            if service == "Clustering":
                self._require_rows_stay(moment.snapshot)
            instant = self._hudi.schedule(service, {SINK_KEY: self._table.sink})
        if instant:
            self._failpoints.reach(f"{service}.scheduled")
        return instant

    def _carry_out(self, service: str, instant: str) -> None:
        """Writes the files of a plan, and completes it.

        The client that writes gets the table's columns as they are now, which include those of every file of the plan:
        a rewrite record by record drops columns that the client lacks. The commit names the columns that the table has
        when the plan is completed.
        """
        columns = self._hudi.table_schema(self._hudi.meta_client())
        with closing(self._hudi.with_options(self._hudi.options, columns)) as hudi:
            try:
                written = write_plan(hudi, service, instant)
            except (*JAVA_ERRORS, OSError):
                # Hudi only says that it misses a file.
                self._require_pending(service, instant)
                raise
            self._failpoints.reach(f"{service}.written")
            with self._moment(f"complete {service.lower()}") as moment:
                try:
                    self._require_current(service, instant, written.paths)
                except Conflict:
                    # No other attempt has files of these names. After the plan's instant is archived, readers without
                    # the metadata table would take them for committed.
                    unused = unused_files(hudi, moment.snapshot, instant, written.paths)
                    self._metadata.delete_late(unused, moment.require_held)
                    raise
                if service == "Clustering":
                    self._require_groups_as_planned(instant, moment.snapshot)
                written.name_columns(hudi.meta_client())
                written.complete(moment.require_held)

    def _require_others_ended(self, actions: Collection[str] = ()) -> None:
        """Raises ServiceBlocked if an instant of another writer has been pending for longer than
        `services.overdue.after`. Only instants with these `actions` count, or all if there are none. A service calls
        this last, when it has done what that instant allows.
        """
        snapshot = self._timeline.snapshot()
        old = abandoned(self._hudi, snapshot, self._table.services.overdue_seconds)
        old = {instant: action for instant, action in old.items() if not actions or action in actions}
        if old:
            own = {
                *self._timeline.view((), snapshot).orphans,
                *self._own_plans(COMPACTION),
                *self._own_plans(CLUSTERING),
            }
            require_ended(self._hudi, old, own)

    @contextmanager
    def _moment(self, purpose: str) -> Iterator[Moment]:
        """Holds the table lock for the purpose that is named. Raises Unavailable if the table must not be changed now,
        because a restore is pending or this host's clock is behind.
        """
        with self._locks(purpose) as require_held:
            snapshot = self._timeline.locked_snapshot(require_held)
            require_moment(self._hudi, snapshot)
            yield Moment(snapshot, require_held)

    def _require_current(self, service: str, instant: str, paths: Sequence[str]) -> None:
        """Raises Conflict unless the plan is pending and these files are of its newest attempt. An attempt begins by
        rolling back the earlier one, with its files and markers: so files without markers are of an earlier attempt.
        """
        self._require_pending(service, instant)
        if not set(paths) <= set(marked_files(self._hudi, instant)):
            raise Conflict(f"{service.lower()} {instant}: another worker has begun to carry out the plan")

    def _require_pending(self, service: str, instant: str) -> None:
        pending, is_rolled_back = self._pending(_ACTIONS[service], instant)
        if pending is None or is_rolled_back:
            raise Conflict(f"{service.lower()} {instant}: another worker has completed or dropped the plan")

    def _require_groups_as_planned(self, instant: str, snapshot: ActiveTimeline) -> None:
        """Raises Conflict if another writer has changed file groups of a clustering since it was planned, or is
        replacing file groups now. The clustering's files would bring their old rows back. A compaction needs no such
        check: it keeps its file groups, and later changes are log files of the new file slices.
        """
        require_none_replaces(self._hudi, snapshot)
        self._require_rows_stay(snapshot)
        groups = {group for group, plan in self._hudi.pending_clusterings().items() if plan == instant}
        if changed := groups & self._timeline.changes_since(snapshot, instant).groups:
            raise Conflict(
                f"clustering {instant}: another writer has changed file groups of the plan: {sorted(changed)}"
            )

    def _require_rows_stay(self, snapshot: ActiveTimeline) -> None:
        """Raises ServiceBlocked while another writer may be looking for rows that a clustering would move."""
        if self._table.key_is_global and self._table.partition_columns:
            require_none_moves_rows(self._hudi, snapshot)

    def _own_plans(self, action: str) -> list[str]:
        """Returns the instants of this sink's pending plans, oldest first. A process that died or failed left them:
        services run on one worker at a time.
        """
        snapshot, meta = self._timeline.snapshot(), self._hudi.meta_client()
        return sorted(
            entry.requested
            for entry in snapshot.instants
            if entry.action == action
            and not entry.done
            and self._hudi.plan_metadata(meta, action, entry.requested).get(SINK_KEY) == self._table.sink
        )

    def _reopen(self, instant: str) -> bool:
        """Rolls back what an earlier attempt at a compaction has written. Returns False if the plan is no longer
        pending: the earlier attempt may complete it before this process has the lock.
        """
        with self._moment("reopen compaction") as moment:
            pending, is_rolled_back = self._pending(COMPACTION, instant)
            if pending is not None:
                note_attempt(self._hudi, instant)
            if pending is not None and (pending.state == "INFLIGHT" or is_rolled_back):
                meta = self._hudi.meta_client()
                self._hudi.reopen_compaction(meta, instant, pending.state, moment.require_held)
        return pending is not None

    def _drop_clusterings(self, plans: Collection[str]) -> None:
        """Rolls back these clusterings of this sink, each under the table lock. Skips one that is no longer pending:
        the process that planned it may complete it before this process has the lock.
        """
        for instant in plans:
            with self._moment("drop clustering") as moment:
                if self._pending(CLUSTERING, instant)[0] is not None:
                    moment.require_held()
                    note_rollback(self._hudi, instant)
                    self._hudi.roll_back_clustering(instant)

    def _pending(self, action: str, instant: str) -> tuple[Instant | None, bool]:
        """Returns the entry of a pending plan on the timeline, and whether a rollback of the plan is pending. The entry
        is None if the plan is complete or gone.
        """
        snapshot = self._timeline.snapshot()
        entries = [entry for entry in snapshot.instants if entry.requested == instant]
        is_done = any(entry.done for entry in entries)
        pending = None if is_done else next((entry for entry in entries if entry.action == action), None)
        return pending, instant in snapshot.rolling_back

    def _clean(self) -> str:
        """Carries out the pending plans, of any writer, or a new plan if there are none. Deletes files of late tasks
        first: without the metadata table, a plan might name such a file instead of the committed one, which would then
        stay.
        """
        attempts = repeated_attempts(self._hudi, self._timeline)
        self._drop_late_entries(attempts)
        delete_late_files(self._hudi, self._timeline, self._moment, attempts, self._metadata.delete_late)
        instants = [instant for instant in cleaning.pending(self._hudi) if self._delete_files(instant)]
        if not instants:
            with self._moment("plan cleaning"):
                planned = cleaning.plan(self._hudi)
            instants = [planned] if planned and self._delete_files(planned) else []
        return instants[-1] if instants else ""

    def _drop_late_entries(self, attempts: Collection[str]) -> None:
        """Drops what late processes wrote into the metadata table: readers would look for files that are gone.
        `attempts` are compactions that have had several.
        """
        gone = rolled_back(self._hudi, self._timeline)
        if gone or attempts:
            with self._moment("drop late entries") as moment:
                self._metadata.require_no_late_files(gone, attempts, moment.require_held)

    def _delete_files(self, instant: str) -> bool:
        """Carries out the plan of a cleaning. Returns False if the plan is gone or obsolete, which may show only after
        its files were deleted: then the next plan names what is left.
        """
        self._failpoints.reach("Cleaning.scheduled")
        with self._moment("begin cleaning") as moment:
            if not self._is_current_cleaning(instant, moment):
                return False
            moment.require_held()
        deleted = cleaning.delete(self._hudi, instant)
        self._failpoints.reach("Cleaning.deleted")
        with self._moment("complete cleaning") as moment:
            if not self._is_current_cleaning(instant, moment):
                return False
            cleaning.complete(self._hudi, instant, deleted, moment)
        return True

    def _is_current_cleaning(self, instant: str, moment: Moment) -> bool:
        """Whether the plan is pending and not obsolete. Drops an obsolete plan."""
        if not moment.snapshot.is_pending(instant, cleaning.CLEAN):
            return False
        if reason := cleaning.obsolete(self._hudi, instant, moment.snapshot):
            cleaning.drop(self._hudi, instant, moment)
            LOG.warning("cleaning.dropped", instant=instant, reason=reason)
        return not reason

    def _named_schemas(self) -> frozenset[str]:
        """Reads the timeline. Returns the fingerprints of the schemas that the newest checkpoint of each sink names."""
        self._timeline.view(())
        return self._timeline.others.fingerprints | frozenset(self._timeline.schemas.values())

    def _finish_rollbacks(self) -> None:
        """Finishes rollbacks of clusterings that died after they had deleted the plan: nothing after one is archived,
        nor compacted in the metadata table."""
        for instant in unfinished(self._hudi, self._timeline.settled_snapshot(self._locks)):
            with self._moment("finish rollback") as moment:
                if instant in unfinished(self._hudi, moment.snapshot):
                    moment.require_held()
                    self._hudi.roll_back_clustering(instant)

    def _archive(self) -> str:
        """Finishes rollbacks, deletes files of late tasks and surplus schema texts, then has Hudi move old instants to
        the archive. A late task's file has to go first: once its instant is older than the active timeline, readers
        without the metadata table take the file for committed.
        """
        self._finish_rollbacks()
        sweep(self._hudi, self._timeline, self._locks, self._metadata.delete_late)
        sweep_unmarked(self._hudi, self._timeline, self._locks, self._metadata.delete_late)
        trim(self._hudi, self._named_schemas)
        with self._moment("archiving") as moment:
            kept = restores_that_stay(self._hudi, moment.snapshot, self._timeline.archive)
            Archiving(self._hudi, self._hudi.table(), TIMELINE, moment.require_held, kept).run()
        self._require_others_ended()
        # Multipart uploads to an object store that killed writers left.
        abort_uploads(self._hudi)
        return ""
