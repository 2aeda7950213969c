"""The sink's Hudi table: create or verify, begin, complete, roll back, and read the timeline.

Guarantee: an instant that `complete` completed was pending, and passed the guard on the timeline as it was under the
table lock, which nothing else may change meanwhile; an instant that `roll_back` returned for can never complete. After
an exception, the caller reads back what is not known, or gets OutcomeUnknown. Voided by writers of the same table
without the table lock, and by clocks that differ by more than `options.CLOCK_SKEW_MS`. Raises TableError, Unavailable
(nothing was changed), OutcomeUnknown, Conflict, Corrupt. One thread at a time, `prepare`, `services`, `register` and
`stop_heartbeats` excepted.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from enum import Enum

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from coordination.errors import ConfigError, Conflict, Corrupt, OutcomeUnknown, TableError, Unavailable
from coordination.state.codec import encode_checkpoint
from coordination.state.model import Checkpoint, InstantState, TableView, WriteTask
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.clients.java.errors import JAVA_ERRORS, causes, message
from sink.hudi.catalog import register
from sink.hudi.client import HudiClient
from sink.hudi.conflicts import TableChanges, table_changes
from sink.hudi.creation import columns_of_table, create_missing, require_fit, share_identity, verify
from sink.hudi.data_files import DataFiles
from sink.hudi.instants import Instant
from sink.hudi.leftovers import note_rollback, sweep
from sink.hudi.lock import Locks
from sink.hudi.metadata_rebuild import MetadataRebuild
from sink.hudi.metadata_services import MetadataTableServices
from sink.hudi.metadata_timeline import compaction_interval
from sink.hudi.moments import is_restored_since, known_restores, require_moment
from sink.hudi.options import commit_options
from sink.hudi.other_sinks import CHECKPOINT_KEY, SPECIFICATION_KEY, LandedByAnother
from sink.hudi.pending_clusterings import resolve_pending_clusterings
from sink.hudi.shared_lock import LockIdentity
from sink.hudi.specification import TableSpecification
from sink.hudi.table_services import HudiTableServices
from sink.hudi.timeline import EPOCH_KEY, NUMBER_KEY, SINK_KEY, HudiTimeline
from sink.layout.file_ids import unplanned
from sink.schema.avro import avro_schema
from sink.schema.evolution import Compatibility, IncompatibleSchema, evolved
from sink.schema.table_schema import TableSchema

_METADATA_SERVICE_FACTOR = 2
"""A transaction serves the metadata table itself when it has twice as many commits as a compaction waits for: no worker
has run `metadata_services`."""
_DATA_FILE = re.compile(r"([^/]+)_[^_/]+_([0-9]+)\.parquet\Z")


class TableOutcome(Enum):
    """How `complete` ended for certain. All but COMPLETED and ALREADY_COMPLETE: the instant can never complete as it
    is.
    """

    COMPLETED = "completed"
    ALREADY_COMPLETE = "the instant is already complete"
    ROLLED_BACK = "a rollback of the instant stands on the timeline"
    ABSENT = "the instant is not on the timeline"
    CONFLICT = (
        "the table was restored meanwhile, or another commit has changed the same file groups or keys, or has a later"
        " instant that names fewer columns: found while the table lock was held"
    )
    LANDED_BY_ANOTHER = "another sink has landed these offsets into the table: found while the table lock was held"


_SETTLED = {
    InstantState.COMPLETED: TableOutcome.ALREADY_COMPLETE,
    InstantState.ROLLED_BACK: TableOutcome.ROLLED_BACK,
    InstantState.ABSENT: TableOutcome.ABSENT,
}
"""Outcomes for instants that are not pending."""


class Table:
    """`locks` gives the table lock."""

    def __init__(
        self,
        spark: SparkSession,
        specification: TableSpecification,
        schema: TableSchema,
        locks: Locks,
    ) -> None:
        self.spark = spark
        self._specification = specification
        self._schema = schema
        self._locks = locks
        self._changes_rows = specification.operation != "append"
        avro = schema.avro(specification.name)
        self.steps = self._hudi = HudiClient(spark, specification.store, avro, commit_options(specification))
        """Hudi's own steps, for files that are written under an instant of this table."""
        self._hudi.metadata_service_factor = _METADATA_SERVICE_FACTOR
        self._timeline = HudiTimeline(self._hudi, specification.sink)
        access = specification.store.current_access if specification.engine == "arrow" else None
        self._data_files = DataFiles(self._hudi, access)
        self._metadata = MetadataRebuild(self._hudi, self._timeline)
        self.columns = schema.spark
        """As last read, without Hudi's meta columns."""
        self._looked_at: frozenset[Instant] | None = None
        self._completed = ""
        """The instant that this process completed last, with these columns."""
        self._serving = threading.Lock()
        self._lock_identity = ""
        self._landed_by_another = ""
        """Which sink has landed offsets of the last transaction that was refused for it."""

    def ensure(self) -> bool:
        """Creates the table, or verifies the one at the base path against the settings. Any number at a time. Returns
        whether it was created here. Raises OtherVersion, and has changed nothing, if another release writes the table.
        """
        with self._reading():
            is_new = create_missing(self._hudi, self._specification, self._schema, self._locks)
            if not is_new:
                # Also where only Spark reaches the table. The coordinator reports a checkpoint that cannot be read.
                with suppress(Corrupt):
                    self._timeline.view((), self._timeline.settled_snapshot(self._locks))
            self.columns = verify(self._hudi, self._specification, self._schema, self._locks)
        return is_new

    def share_lock(self, identity: LockIdentity) -> None:
        """Requires that the table lock is the one that all sinks of the table hold. Raises TableError. Asks ZooKeeper
        once, and the table only if the identity is not that of the last call.
        """
        if self._lock_identity and identity.read() == self._lock_identity:
            return
        with self._locks("note placements"), self._reading():
            is_known = self._timeline.view(()).checkpoint is not None or not self._timeline.others
            self._lock_identity = share_identity(self._hudi, identity, is_known)

    def prepare(self) -> None:
        """Makes the metadata table of a new table: the first transaction would have to wait for it."""
        hudi = self._hudi.with_options(self._hudi.options)
        with closing(hudi), self._locks("prepare") as require_held, self._reading():
            # Hudi may compact its metadata table here, too.
            self._timeline.locked_snapshot(require_held)
            self._metadata.names(require_held)
            hudi.init_table()

    def view(self, instants: Collection[str] = ()) -> TableView:
        view = self._timeline.view(instants, self._timeline.settled_snapshot(self._locks))
        self._look_at_columns()
        return view

    @property
    def known_schemas(self) -> Mapping[str, str]:
        """The fingerprints of registered schemas by id, as the checkpoint has them that was read last."""
        return self._timeline.schemas

    @property
    def active_instants(self) -> int:
        """Completed instants on the active timeline, as last read, and the one completed here since."""
        completed = {entry.requested for entry in self._timeline.completed}
        return len(completed | {self._completed} - {""})

    def begin(self, number: int, epoch: int) -> str:
        """Begins an instant. Its first file carries the sink's name and the transaction's number. Raises TableError
        after another sink was found to land the same offsets.
        """
        if self._landed_by_another:
            raise LandedByAnother(self._landed_by_another)
        owner = {SINK_KEY: self._specification.sink, NUMBER_KEY: str(number), EPOCH_KEY: str(epoch)}
        with self._locks("begin") as require_held:
            snapshot = self._timeline.locked_snapshot(require_held)
            owner |= known_restores(snapshot)
            with self._reading():
                require_moment(self._hudi, snapshot)
                self._hudi.keep_metadata_table()
                self._metadata.require_since_restores(snapshot, require_held)
                metadata_names = self._metadata.names(require_held)
                self._metadata.require_completed_once(metadata_names or (), require_held)
            with self._changing(f"beginning an instant for transaction {number}"):
                instant = self._hudi.begin(owner, self._timeline.meta, metadata_names)
            self._timeline.note_begun(instant)
        return instant

    def complete(
        self,
        instant: str,
        stats: Sequence[str],
        checkpoint: Checkpoint,
        guard: Callable[[TableView], None],
        columns: str = "",
        extra_metadata: Mapping[str, str] | None = None,
    ) -> TableOutcome:
        """Completes the instant with stats, checkpoint and `extra_metadata`. `guard` raises to refuse; the instant
        stays pending. The table's columns grow to hold `columns` too, with which the stats' files were written."""
        with self._reading():
            self._hudi.save_partition_metafiles(instant, sorted({json.loads(stat)["partitionPath"] for stat in stats}))
        extra = {CHECKPOINT_KEY + self._specification.sink: encode_checkpoint(checkpoint), **(extra_metadata or {})}
        if columns:
            extra[SPECIFICATION_KEY + self._specification.sink] = self._schema.with_columns(columns).specification_json
        changes = table_changes(stats, self._specification.upserts)
        with self._locks("complete") as require_held:
            snapshot = self._timeline.locked_snapshot(require_held)
            view = self._timeline.view((instant,), snapshot)
            if (settled := _SETTLED.get(view.instants[instant])) is not None:
                return settled
            if instant in snapshot.rolling_back:
                # Another writer planned the rollback, and may be dead. Until it is complete, nothing is decided.
                self._roll_back(instant)
                return TableOutcome.ROLLED_BACK
            with self._reading():
                require_moment(self._hudi, snapshot)
                if is_restored_since(self._hudi, self._timeline.meta, snapshot, instant):
                    return TableOutcome.CONFLICT
            if twice := self._timeline.others.conflict(checkpoint):
                self._landed_by_another = f"{self._specification.base_path}: {twice}"
                return TableOutcome.LANDED_BY_ANOTHER
            if changes != TableChanges() and changes.conflicts_with(
                self._timeline.changes_since(snapshot, instant), self._specification.key_is_global
            ):
                return TableOutcome.CONFLICT
            widened = self._columns_with(columns)
            if widened != self.columns and snapshot.has_later_write(instant):
                # Readers take the columns from the newest instant, which does not name those of this one.
                return TableOutcome.CONFLICT
            self.columns = widened
            avro = avro_schema(widened, self._specification.name)
            with self._reading():
                self._hudi.keep_metadata_table()
                patience = self._specification.services.overdue_seconds
                resolve_pending_clusterings(self._hudi, snapshot, changes.groups, patience)
                self._hudi.ensure_heartbeat(instant)
                names = None if self._hudi.has_begun(instant) else self._metadata.names(require_held)
                self._hudi.refresh_conflict_baseline(instant, self._timeline.meta, names)
                parsed = self._hudi.write_stats(stats, avro)
            guard(view)
            try:
                self._hudi.commit_stats(instant, parsed, extra, require_held, avro)
            except (*JAVA_ERRORS, OSError) as error:
                return self._outcome(instant, error)
        self._timeline.note_completed(instant, checkpoint)
        self._completed = instant
        return TableOutcome.COMPLETED

    def roll_back(self, instant: str) -> None:
        """Rolls the instant back; confirmed when it returns. Does nothing for one that is not on the timeline."""
        with self._locks("roll back") as require_held:
            self._timeline.locked_snapshot(require_held)
            self._roll_back(instant)

    def existing_file_ids(self, stats: Sequence[str]) -> tuple[str, ...]:
        """Returns the file ids of these stats that the table already has, those of replaced file groups included.
        Removes files that a late task wrote under an instant that was rolled back: dividing a batch gives its files
        other ids. Returns none where the operation changes rows in existing file groups.
        """
        if not stats or self._changes_rows:
            return ()
        parsed = [json.loads(stat) for stat in stats]
        ids = {stat["fileId"] for stat in parsed}
        with self._reading():
            snapshot = self._timeline.snapshot()
            names = self._data_files.names(sorted({stat["partitionPath"] for stat in parsed}))
            files = [m.groups() for m in map(_DATA_FILE.fullmatch, names) if m]
            gone_instants = self._timeline.gone(snapshot, {instant for _, instant in files} & snapshot.rolled_back)
            if gone_instants:
                # Readers would take a file of an instant before the active timeline for committed.
                sweep(self._hudi, self._timeline, self._locks, self._metadata.delete_late)
        existing = {
            file for file, instant in files if file in ids and instant not in gone_instants and snapshot.shows(instant)
        }
        return tuple(sorted(existing | (ids & self._timeline.replaced(snapshot))))

    def unplanned(self, stats: Sequence[str], tasks: Sequence[WriteTask]) -> tuple[str, ...]:
        """Returns file ids of these stats that derive from none of the tasks. Hudi's own writers choose ids by
        themselves.
        """
        if self._changes_rows or self._specification.engine != "arrow":
            return ()
        return unplanned(self._specification.name, self._specification.namespace, tasks, stats)

    def services(self) -> tuple[ServiceOutcome, ...]:
        """Compacts, clusters, cleans, archives, off the commit path. Safe beside all but another run of this sink."""
        with self._serving, self._reading():
            return HudiTableServices(self._hudi, self._specification, self._locks).run()

    def metadata_services(self, wait: Callable[[], bool] = lambda: False) -> tuple[ServiceOutcome, ...]:
        """Serves the metadata table, off the commit path, if that is due: as `services`, and never beside it. `wait` is
        called between two services, and says whether to end there.
        """
        with self._serving, self._reading():
            return MetadataTableServices(self._hudi, self._specification, self._locks).run(wait)

    @property
    def metadata_interval(self) -> int:
        """Returns after how many transactions the services of the metadata table are due."""
        return compaction_interval(self._hudi.options)

    def register(self) -> str:
        """Registers the table in the catalogue. Returns the newest instant that it knows then. Always safe."""
        with self._reading():
            assert self._specification.catalog is not None
            return register(self._hudi, self._specification.catalog, self._specification)

    def file_count(self) -> int | None:
        """Counts data files, off the commit path; None where that would cost a listing. Safe beside everything."""
        with self._reading():
            return self._data_files.count()

    def stop_heartbeats(self) -> None:
        """Stops the heartbeats of this process: another coordinator keeps its instants alive now."""
        with self._reading():
            self._hudi.stop_heartbeats()

    def _look_at_columns(self) -> None:
        """Reads the table's columns, unless no other writer has completed an instant since the last read. Verifies its
        properties and indexes, too, unless only sinks have: they change neither.
        """
        new_instants = self._timeline.completed - (self._looked_at or frozenset())
        if self._looked_at is not None and {entry.requested for entry in new_instants} <= {self._completed}:
            self._looked_at = self._timeline.completed
            return
        with self._reading():
            avro = self._hudi.table_schema(self._timeline.meta)
            if not self._timeline.are_of_sinks(new_instants):
                require_fit(self._hudi, self._specification)
        if avro is not None:
            try:
                self.columns = columns_of_table(avro)
            except ConfigError as error:
                raise TableError(
                    f"{self._specification.base_path}: the table has columns that the sink cannot write: {error}"
                ) from error
        self._looked_at = self._timeline.completed

    def _columns_with(self, columns: str) -> T.StructType:
        """Returns the table's columns, widened by `columns`. The caller holds the table lock, so no other writer
        changes them meanwhile.
        """
        self._look_at_columns()
        try:
            required = self._schema.with_columns(columns).spark if columns else self.columns
            return evolved(self.columns, required, Compatibility.BACKWARD)
        except IncompatibleSchema as error:
            raise TableError(f"{self._specification.base_path}: the table was changed by others: {error}") from error

    def _roll_back(self, instant: str) -> None:
        state = self._timeline.state(instant)
        snapshot = self._timeline.snapshot()
        if state is InstantState.COMPLETED:
            raise Conflict(f"{self._specification.base_path}: instant {instant} is complete and is never rolled back")
        if (
            state is not InstantState.PENDING
            and instant not in snapshot.rolling_back
            and not snapshot.writes_at(instant)
        ):
            if state is InstantState.ROLLED_BACK:
                self._note_rollback(instant)
            return
        with self._changing(f"rolling back instant {instant}"):
            self._hudi.roll_back(instant)
        snapshot = self._timeline.snapshot()
        if instant not in snapshot.rolled_back or snapshot.writes_at(instant):
            raise OutcomeUnknown(
                f"{self._specification.base_path}: no completed rollback of {instant} stands on the timeline"
            )
        self._note_rollback(instant)

    def _note_rollback(self, instant: str) -> None:
        with self._changing(f"noting the rollback of instant {instant}"):
            note_rollback(self._hudi, instant)

    def _outcome(self, instant: str, error: Exception) -> TableOutcome:
        """Tells the outcome of a failed commit from the timeline. The caller still holds the table lock."""
        summary = f"{self._specification.base_path}: completing instant {instant}: {message(error)}"
        try:
            state = self._timeline.state(instant)
        except Unavailable:
            raise OutcomeUnknown(summary) from error
        if state is InstantState.COMPLETED:
            return TableOutcome.COMPLETED
        conflict = isinstance(error, Py4JJavaError) and any("HoodieWriteConflict" in name for name in causes(error))
        if state is InstantState.PENDING and conflict:
            return TableOutcome.CONFLICT
        raise OutcomeUnknown(summary) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (*JAVA_ERRORS, OSError) as error:
            raise Unavailable(f"{self._specification.base_path}: {message(error)}") from error

    @contextmanager
    def _changing(self, action: str) -> Iterator[None]:
        try:
            yield
        except (*JAVA_ERRORS, OSError) as error:
            raise OutcomeUnknown(f"{self._specification.base_path}: {action}: {message(error)}") from error
