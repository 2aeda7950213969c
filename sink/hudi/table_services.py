"""Table services by Hudi's own means, off the commit path, on one worker at a time.

Compaction of a merge-on-read table, clustering, cleaning and archiving run in this order, each by itself: one that
fails does not keep the next from running. Guarantee: each is planned and completed under the table lock held here, at a
moment at which a commit would be (`sink.hudi.moments`), and writes or deletes files without it; archiving holds it
throughout. A rewrite (compaction, clustering) is completed with the table's columns of that moment, and only if its
plan is still on the timeline and its files are those of the newest attempt: Hudi would first add its files to the
metadata table, and readers would look for files that are gone. A compaction that a process of this sink has left behind
is carried out again under its own instant; a clustering is rolled back and planned anew. Plans of other writers are
left alone. ZooKeeper is asked last whether the lock is still held (`sink.hudi.service_moment`): a process that stood
still may have lost it. This module never rolls back a pending instant of a transaction, however old its heartbeat is:
the transaction may be PREPARED. Before it cleans and archives, it deletes what late tasks have left
(`sink.hudi.overtaken`, `sink.hudi.leftovers`). Never raises for a service that fails: its outcome says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager

import structlog

from coordination.errors import Conflict
from coordination.zookeeper.table_service_lock import Service
from sink.clients.java.errors import JAVA_ERRORS
from sink.hudi import cleaning
from sink.hudi.archiving import Archiving
from sink.hudi.client import CLUSTERING, COMPACTION, HudiClient
from sink.hudi.instants import TIMELINE, ActiveTimeline, Instant
from sink.hudi.leftovers import marked_files, note_rollback, sweep, sweep_unmarked
from sink.hudi.lock import Locks
from sink.hudi.moments import abandoned, require_ended, require_moment, require_none_replaces, restores_that_stay
from sink.hudi.options import service_options
from sink.hudi.overtaken import delete_late_files, delete_unused, note_attempt
from sink.hudi.schema_texts import trim
from sink.hudi.service_moment import Moment
from sink.hudi.service_outcome import run_service
from sink.hudi.specification import TableSpecification
from sink.hudi.timeline import SINK_KEY, HudiTimeline
from sink.hudi.unreadable_plans import drop_unreadable_plans, unreadable_plans
from sink.hudi.uploads import abort_uploads
from sink.hudi.written_plan import write_plan
from sink.telemetry.failpoints import Failpoints

LOG = structlog.get_logger("sink.hudi")
MERGE_ON_READ = "MERGE_ON_READ"
_ACTIONS = {"Clustering": CLUSTERING, "Compaction": COMPACTION}


class HudiTableServices:
    """One run on the table of `hudi`, with a client of its own. `locks` gives the table lock."""

    def __init__(self, hudi: HudiClient, table: TableSpecification, locks: Locks) -> None:
        self._table = table
        self._locks = locks
        self._hudi = hudi.with_options(service_options(table))
        self._timeline = HudiTimeline(self._hudi, table.sink)
        self._failpoints = Failpoints.from_environment()

    def run(self) -> tuple[Service, ...]:
        with closing(self._hudi):
            self._hudi.keep_metadata_table()
            self._drop_unreadable_plans()
            return tuple(run_service(name, service) for name, service in self._services())

    def _services(self) -> Iterator[tuple[str, Callable[[], str]]]:
        if self._table.services.compaction and self._is_merge_on_read():
            yield "compaction", self._compact
        if self._table.services.clustering:
            yield "clustering", self._cluster
        yield "cleaning", self._clean
        yield "archiving", self._archive

    def _drop_unreadable_plans(self) -> None:
        access = self._table.store.access
        if unreadable_plans(self._hudi.base_path, access, self._timeline.snapshot()):
            with self._moment("drop an unreadable plan") as moment:
                drop_unreadable_plans(self._hudi, access, moment.snapshot, moment.require_held)

    def _is_merge_on_read(self) -> bool:
        return str(self._hudi.meta_client().getTableType().toString()) == MERGE_ON_READ

    def _compact(self) -> str:
        """Carries out this sink's pending plans again, under their own instants, or else a new one. A plan is never
        dropped: files that a late task writes for it would hide from readers what was committed since.
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
        """Drops this sink's pending plans, plans anew and carries that out. Drops a plan that fails: it would block
        updates by other writers. A plan carried out twice would write file groups twice.
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
        with self._moment(f"plan {service.lower()}") as moment:
            require_none_replaces(self._hudi, moment.snapshot)
            instant = self._hudi.schedule(service, {SINK_KEY: self._table.sink})
        if instant:
            self._failpoints.reach(f"{service}.scheduled")
        return instant

    def _carry_out(self, service: str, instant: str) -> None:
        """Writes with the table's columns as they are now: no file of the plan has others. Where Hudi rewrites record
        by record it takes the columns from its client, and would drop those that the client lacks. Completes with the
        columns of that later moment.
        """
        columns = self._hudi.table_schema(self._hudi.meta_client())
        with closing(self._hudi.with_options(self._hudi.options, columns)) as hudi:
            written = write_plan(hudi, service, instant)
            self._failpoints.reach(f"{service}.written")
            with self._moment(f"complete {service.lower()}") as moment:
                try:
                    self._require_current(service, instant, written.paths)
                except Conflict:
                    # No other attempt has files of these names. Once the timeline has forgotten the plan, readers
                    # without the metadata table would show them.
                    delete_unused(hudi, moment, instant, written.paths)
                    raise
                if service == "Clustering":
                    self._require_groups_as_planned(instant, moment.snapshot)
                written.name_columns(hudi.meta_client())
                written.complete(moment.require_held)

    def _require_others_ended(self, actions: Collection[str] = ()) -> None:
        """Raises ServiceBlocked if an instant of another writer, of these actions or of any, has been pending for
        longer than a service may be due.
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
        """Holds the table lock at a moment at which the table may be changed."""
        with self._locks(purpose) as require_held:
            snapshot = self._timeline.snapshot()
            require_moment(self._hudi, snapshot)
            yield Moment(snapshot, require_held)

    def _require_current(self, service: str, instant: str, paths: Sequence[str]) -> None:
        """Raises Conflict unless the plan is pending and these files are of its newest attempt: a later attempt has
        rolled back those of an earlier one, with their markers.
        """
        pending, is_rolled_back = self._pending(_ACTIONS[service], instant)
        if pending is None or is_rolled_back:
            raise Conflict(f"{service.lower()} {instant}: another worker has completed or dropped the plan meanwhile")
        if not set(paths) <= set(marked_files(self._hudi, instant)):
            raise Conflict(f"{service.lower()} {instant}: another worker has begun to carry out the plan again")

    def _require_groups_as_planned(self, instant: str, snapshot: ActiveTimeline) -> None:
        """Raises Conflict if another writer changes or replaces file groups of a clustering, or did so since it was
        planned: their rows would be as they were. Those of a compaction stay the same file groups.
        """
        require_none_replaces(self._hudi, snapshot)
        groups = {group for group, plan in self._hudi.pending_clusterings().items() if plan == instant}
        if changed := groups & self._timeline.changes_since(snapshot, instant).groups:
            raise Conflict(
                f"clustering {instant}: another writer has changed file groups of the plan: {sorted(changed)}"
            )

    def _own_plans(self, action: str) -> list[str]:
        """Returns the instants of this sink's pending plans, oldest first. No other process of the sink carries one
        out now: a process that died or failed left them.
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
        """Rolls back what an earlier attempt at a compaction has written. Returns whether the plan is still pending:
        until the lock is held, that attempt may complete it.
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
        """Rolls back those of these clusterings of this sink that are still pending, each under the table lock. Until
        the lock is held, the process that made the plan may still complete it.
        """
        for instant in plans:
            with self._moment("drop clustering") as moment:
                if self._pending(CLUSTERING, instant)[0] is not None:
                    moment.require_held()
                    self._hudi.roll_back(instant)
                    note_rollback(self._hudi, instant)

    def _pending(self, action: str, instant: str) -> tuple[Instant | None, bool]:
        """Returns the plan's entry on the timeline, None if the plan is complete or gone, and whether a rollback of it
        is planned.
        """
        snapshot = self._timeline.snapshot()
        entries = [entry for entry in snapshot.instants if entry.requested == instant]
        pending = [] if any(entry.done for entry in entries) else [entry for entry in entries if entry.action == action]
        return (pending[0] if pending else None), instant in snapshot.rolling_back

    def _clean(self) -> str:
        """Carries out plans that are pending, or else a new one. Before that, late files go: without the metadata
        table, Hudi's plan might name one in the place of a committed file, which would then stay.
        """
        delete_late_files(self._hudi, self._timeline, self._moment)
        instants = [instant for instant in cleaning.pending(self._hudi) if self._delete_files(instant)]
        if not instants:
            with self._moment("plan cleaning"):
                planned = cleaning.plan(self._hudi)
            instants = [planned] if planned and self._delete_files(planned) else []
        return instants[-1] if instants else ""

    def _delete_files(self, instant: str) -> bool:
        """Carries out a plan of a cleaning. Returns False if it is gone or was obsolete, before or after files were
        deleted: the next plan names what is left.
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
        """Whether the plan is pending. Drops it if it is obsolete."""
        if not moment.snapshot.is_pending(instant, cleaning.CLEAN):
            return False
        if reason := cleaning.obsolete(self._hudi, instant, moment.snapshot):
            cleaning.drop(self._hudi, instant, moment)
            LOG.warning("cleaning.dropped", instant=instant, reason=reason)
        return not reason

    def _named_schemas(self) -> frozenset[str]:
        """Reads the fingerprints of the schemas that the newest checkpoint of each sink names."""
        self._timeline.view(())
        return self._timeline.others.fingerprints | frozenset(self._timeline.schemas.values())

    def _archive(self) -> str:
        sweep(self._hudi, self._timeline)
        sweep_unmarked(self._hudi, self._timeline)
        trim(self._hudi, self._named_schemas)
        with self._moment("archiving") as moment:
            kept = restores_that_stay(self._hudi, moment.snapshot, self._timeline.archive)
            Archiving(self._hudi, self._hudi.table(), TIMELINE, moment.require_held, kept).run()
        self._require_others_ended()
        # Killed writers left them, like the files that are swept.
        abort_uploads(self._hudi)
        return ""
