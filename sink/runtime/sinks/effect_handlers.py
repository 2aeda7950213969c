"""Performs the machines' requests on ZooKeeper, the table and the log, and names their outcomes.

An exception becomes the outcome that it proves, and `Unknown` where it proves nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence

from coordination.errors import (
    BadRecord,
    Conflict,
    Corrupt,
    DamagedLog,
    DataLoss,
    NotLeader,
    OffsetError,
    OutcomeUnknown,
    SinkError,
    TableError,
    Unavailable,
)
from coordination.planning.continuity import discontinuity
from coordination.state import messages
from coordination.state.failures import Failure, FailureKind, HaltKind
from coordination.state.messages import Done, Failed, FileCheck, Operation, Outcome, Refused, Request, Unknown
from coordination.state.model import NO_TRANSACTION, InstantState, LogView, TableView, WriteStatus
from coordination.state.tree import EPOCH, Check, KeeperView, header_path
from coordination.zookeeper.keeper import Keeper
from sink.bad_records.table import ErrorsTable, QuarantineMissing
from sink.clients.java.errors import JAVA_ERRORS, error_summary
from sink.clients.kafka.log import LogSource, UnknownTopic
from sink.clients.spark.pools import enter_commit_pool
from sink.decode.registry.answers import RegistryUnavailable
from sink.hudi.creation import TableChanged
from sink.hudi.other_sinks import LandedByAnother
from sink.hudi.table import Table, TableOutcome
from sink.layout.column_ranges import within_bounds
from sink.telemetry.failpoints import Failpoints
from sink.telemetry.metrics import SinkMetrics
from sink.write.engines.engine import Engine
from sink.write.engines.memory import from_memory
from sink.write.rows.row_spec import ColumnResolver

DELETED_SECONDS = 30.0
"""Seconds for which a topic is missing before it counts as deleted: a broker that starts may not know it yet."""


class CoordinatorEffectHandler:
    """A coordinator's requests on ZooKeeper, the table and the log."""

    def __init__(
        self,
        keeper: Keeper,
        table: Table,
        errors: ErrorsTable,
        log: LogSource,
        columns: ColumnResolver,
        lock_path: str,
        metrics: SinkMetrics,
        on_view: Callable[[KeeperView], None] = lambda _: None,
        in_turn: Callable[[Callable[[], Outcome]], Outcome] = lambda job: job(),
    ) -> None:
        """`on_view` gets each reading of the tree, and returns at once. `in_turn` runs requests on the table."""
        self._keeper = keeper
        self._table = table
        self._errors = errors
        self._log = log
        self._columns = columns
        self._lock_path = lock_path
        self._metrics = metrics
        self._on_view = on_view
        self._in_turn = in_turn
        self._missing_since: dict[str, float] = {}
        """By topic with planned offsets, since when Kafka has not known it, in monotonic seconds."""
        self._failpoints = Failpoints.from_environment()

    def perform(self, request: Request) -> Outcome:
        operation = request.operation
        if not isinstance(operation, _TABLE_OPERATIONS):
            return self._outcome(operation)

        def job() -> Outcome:
            enter_commit_pool(self._table.spark)
            return self._outcome(operation)

        return self._in_turn(job)

    def _outcome(self, operation: Operation) -> Outcome:
        try:
            match operation:
                case messages.Write():
                    return _write(self._keeper, operation)
                case messages.Begin() | messages.RollBack() | messages.Complete():
                    return self._change_table(operation)
                case _:
                    return Done(self._read(operation))
        except (Corrupt, TableError) as error:
            return Failed(str(error), halts=_halt_kind(error))
        except (SinkError, *JAVA_ERRORS, OSError) as error:
            # Only reads come here: nothing was changed.
            return Failed(error_summary(error))

    def cancel(self, request_id: int) -> None:
        raise AssertionError(f"a coordinator cancels nothing, and was asked to cancel {request_id}")

    def _read(self, operation: Operation) -> object:
        match operation:
            case messages.ReadKeeper():
                view = self._keeper.read()
                self._on_view(view)
                return view
            case messages.ReadTable(instants):
                table_view = self._table.view(instants)
                self._metrics.table(self._table.active_instants)
                return table_view
            case messages.ReadLog():
                return self._read_log(operation)
            case messages.FindExistingFiles(stats=stats, tasks=tasks):
                return FileCheck(self._table.existing_file_ids(stats), self._table.unplanned(stats, tasks))
        raise AssertionError(f"not a coordinator's request: {operation}")

    def _read_log(self, operation: messages.ReadLog) -> LogView:
        """Reads the columns after the log's ends: a record was written after its schema was registered."""
        try:
            view = self._log.view(operation.topics, operation.pattern, operation.unfinished)
        except SinkError as error:
            is_topic = isinstance(error, UnknownTopic)
            self._metrics.waits_for("topic", is_topic)
            self._metrics.waits_for("kafka", not is_topic)
            raise
        self._metrics.waits_for("kafka", False)
        self._require_deleted(view.deleted)
        self._metrics.log(view)
        try:
            view = self._columns.resolve(view)
        except SinkError:
            self._metrics.waits_for("registry", True)
            raise
        self._metrics.waits_for("registry", False)
        return view

    def _require_deleted(self, missing: Sequence[str]) -> None:
        """Raises Unavailable until the topics have been missing for long enough to count as deleted."""
        now = time.monotonic()
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in missing}
        recently_missing = [topic for topic, since in self._missing_since.items() if now - since < DELETED_SECONDS]
        self._metrics.waits_for("topic", bool(recently_missing))
        if recently_missing:
            raise Unavailable(
                f"Kafka has no topic {', '.join(recently_missing)} any more, of which planned offsets are to be read."
                f" It counts as deleted after {DELETED_SECONDS:g} s."
            )

    def _change_table(self, operation: messages.Begin | messages.RollBack | messages.Complete) -> Outcome:
        try:
            match operation:
                case messages.Begin(number, epoch):
                    return Done(self._table.begin(number, epoch))
                case messages.RollBack(instant):
                    self._table.roll_back(instant)
                    return Done()
                case messages.Complete():
                    return self._complete(operation)
        except Disproved as error:
            return Refused(str(error))
        except NotLeader as error:
            return Refused(str(error), fenced=True)
        except (Conflict, Unavailable, TableError) as error:
            return Failed(str(error), halts=_halt_kind(error) if isinstance(error, TableError) else None)
        except (SinkError, *JAVA_ERRORS, OSError) as error:
            return Unknown(error_summary(error))

    def _complete(self, operation: messages.Complete) -> Outcome:
        """Runs the checks inside the table lock, right before the commit.

        Bad records are published before: if the worker dies in between, the next one publishes them again, by their
        keys.
        """

        def guard(view: TableView) -> None:
            newest = view.checkpoint.number if view.checkpoint else NO_TRANSACTION
            if newest != operation.checkpoint.base:
                raise Disproved(
                    f"the table's checkpoint is transaction {newest}, this one extends {operation.checkpoint.base}"
                )
            if (reason := discontinuity(operation.checkpoint, view.checkpoint)) is not None:
                raise Disproved(f"transaction {operation.number} does not go on where the table is: {reason}")
            # Last, for only this check can become false while time passes.
            self._fence(operation)
            self._failpoints.reach("Complete.guarded")

        if (unpublished := self._publish(operation)) is not None:
            return unpublished
        outcome = self._table.complete(
            operation.instant, operation.stats, operation.checkpoint, guard, operation.columns
        )
        self._metrics.table(self._table.active_instants)
        return _COMPLETE_OUTCOMES[outcome](outcome.value)

    def _publish(self, operation: messages.Complete) -> Outcome | None:
        """Returns None when the errors table has the bad records, tolerated now or only when they were found; else the
        outcome. A failure leaves the table untouched.
        """
        if not operation.errors and operation.attempt == 1:
            return None
        try:
            self._errors.publish(operation, lambda: self._fence(operation))
        except QuarantineMissing as error:
            # The quarantine is removed when the instant is completed, or rolled back: then nothing is to be published.
            state = self._table.view((operation.instant,)).instants[operation.instant]
            if state is InstantState.PENDING:
                return Failed(str(error), halts=HaltKind.BAD_RECORDS_GONE)
            completed = state is InstantState.COMPLETED
            return Done() if completed else Failed(f"instant {operation.instant} is {state.value}")
        self._failpoints.reach("Complete.published")
        return None

    def _fence(self, operation: messages.Complete) -> None:
        """Reads lock, epoch and header, linearizably; raises when any of them has changed."""
        self._keeper.write(
            (
                Check(self._lock_path, 0),
                Check(EPOCH, operation.epoch_version),
                Check(header_path(operation.number), operation.header_version),
            )
        )


_TABLE_OPERATIONS = (messages.Complete, messages.Begin, messages.RollBack, messages.FindExistingFiles)
_COMPLETE_OUTCOMES: Mapping[TableOutcome, Callable[[str], Outcome]] = {
    TableOutcome.COMPLETED: lambda _: Done(),
    TableOutcome.ALREADY_COMPLETE: lambda _: Done(),
    TableOutcome.ROLLED_BACK: Refused,
    TableOutcome.CONFLICT: Refused,
    TableOutcome.LANDED_BY_ANOTHER: Refused,
    TableOutcome.ABSENT: Failed,
}


_OFFSET_FAILURES: Mapping[type[OffsetError], FailureKind] = {
    BadRecord: FailureKind.BAD_RECORD,
    DamagedLog: FailureKind.LOG_DAMAGED,
    DataLoss: FailureKind.DATA_LOSS,
}


_HALTS: Mapping[type[SinkError], HaltKind] = {
    LandedByAnother: HaltKind.LANDED_BY_ANOTHER,
    TableChanged: HaltKind.TABLE_CHANGED,
}


def _halt_kind(error: SinkError) -> HaltKind:
    return _HALTS.get(type(error), HaltKind.OTHER)


class Disproved(SinkError):
    """Proof, under the table lock, that a prepared instant can no longer complete as it is."""


class ParticipantEffectHandler:
    """A participant's requests: writing slices with an engine, and reporting over ZooKeeper."""

    def __init__(self, keeper: Keeper, engine: Engine, incarnation: str, metrics: SinkMetrics) -> None:
        self._keeper = keeper
        self._engine = engine
        self._incarnation = incarnation
        self._metrics = metrics
        self._writing: tuple[int, str] | None = None

    def perform(self, request: Request) -> Outcome:
        operation = request.operation
        if isinstance(operation, messages.Write):
            return _write(self._keeper, operation)
        assert isinstance(operation, messages.WriteTasks)
        self._writing = (request.id, operation.instant)
        try:
            return self._write_tasks(operation)
        finally:
            self._writing = None

    def cancel(self, request_id: int | None = None) -> None:
        """Ends the write of that request; without one, any write under way."""
        writing = self._writing
        if writing is not None and request_id in (None, writing[0]):
            self._engine.cancel(writing[1])

    def _write_tasks(self, operation: messages.WriteTasks) -> Outcome:
        started = time.monotonic()
        try:
            report = self._engine.write(
                operation.instant,
                operation.tasks,
                operation.columns,
                attempt=operation.attempt,
                cluster=operation.cluster,
            )
        except OffsetError as error:
            kind = _OFFSET_FAILURES[type(error)]
            return Failed(str(error), Failure(kind, str(error), error.topic, error.partition, error.offset))
        except RegistryUnavailable as error:
            return Failed(str(error), Failure(FailureKind.REGISTRY_AWAY, str(error)))
        except (SinkError, *JAVA_ERRORS, OSError, MemoryError) as error:
            if from_memory(error):
                return Failed(error_summary(error), Failure(FailureKind.OUT_OF_MEMORY, error_summary(error)))
            return Failed(error_summary(error))
        self._metrics.wrote(sum(json.loads(stat)["fileSizeInBytes"] for stat in report.stats))
        seconds = round(time.monotonic() - started, 3)
        return Done(
            WriteStatus(
                operation.number,
                self._incarnation,
                report.results,
                within_bounds(report.stats),
                seconds=seconds,
                size=report.size,
                errors=report.errors,
                reads=report.reads,
                schemas=report.schemas,
            )
        )


def _write(keeper: Keeper, operation: messages.Write) -> Outcome:
    try:
        keeper.write(operation.ops)
        return Done()
    except NotLeader as error:
        return Refused(str(error), fenced=True)
    except Conflict as error:
        return Refused(str(error))
    except OutcomeUnknown as error:
        return Unknown(str(error))
