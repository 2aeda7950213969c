"""The parts of a worker process that all of its sinks share, and the parts of one sink.

Both outlive a membership: the time from a sink's joining its fleet to the end of that ZooKeeper session. Making the
parts of a sink connects to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Event

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.zookeeper.keeper import Keeper
from sink.bad_records.table import ErrorsTable
from sink.clients.kafka.groups import GroupCommitter
from sink.clients.kafka.log import LogSource
from sink.clients.kafka.shared_log import SharedLog
from sink.clients.zookeeper.session import ZooKeeperSession
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table
from sink.runtime.turns.admission import AdmissionControl
from sink.runtime.turns.pools import SerialExecutor, SlotPool, Ticker
from sink.runtime.watches.jvm_watchdog import JvmWatchdog
from sink.runtime.watches.notes import LandedOffsets, Observer
from sink.schema.table_schema import TableSchema
from sink.telemetry.metrics import SinkMetrics
from sink.write.engines.engine import Engine, engine_of


@dataclass(frozen=True, kw_only=True)
class SharedTurns:
    """The threads, limits and ticker by which the sinks of a process share its cores."""

    pool: Executor
    """The threads on which the sinks' actors run."""
    commits: SlotPool
    """Runs commits to tables."""
    admission: AdmissionControl
    """Admits coordinators that want to open a transaction."""
    services: SlotPool
    """Runs table services."""
    ticker: Ticker
    """Calls each actor again and again, so that it sees its deadlines."""


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts that a process has once for all of its sinks."""

    session: ZooKeeperSession
    spark: SparkSession
    watchdog: JvmWatchdog
    turns: SharedTurns
    kafka: Callable[[Settings], SharedLog]
    """Returns the client that sinks of the same Kafka cluster share."""
    groups: Callable[[Settings], GroupCommitter]
    """Returns the committer of consumer group offsets for the sink's Kafka cluster."""
    preparing: Executor
    """Prepares one new table at a time: a preparation uses all cores."""
    is_warm: Event
    """Set once Spark has run its first job, which is slow. A sink joins its fleet only then, so that the fleet does not
    wait for a new worker's first slices."""

    @property
    def client(self) -> KazooClient:
        return self.session.client


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The parts of one sink. Successive memberships use the same executors, which run one job at a time: so their
    requests never overlap.
    """

    settings: Settings
    client: KazooClient
    keeper: Keeper
    table: Table
    errors: ErrorsTable
    engine: Engine
    log: LogSource
    coordinating: SerialExecutor
    """Runs the requests of the coordinator's actor, if this worker coordinates the sink."""
    participating: SerialExecutor
    """Runs the requests of the participant's actor."""
    turns: SharedTurns
    observer: Observer
    """Makes logs, metrics and health of what the actors note and read."""
    locks: tuple[TableLocks, ...]
    """The locks of the table and of the errors table."""

    @property
    def root(self) -> str:
        return self.settings.root_znode


def make_resources(
    shared: SharedParts,
    settings: Settings,
    schema: TableSchema,
    metrics: SinkMetrics,
    tree_changed: Callable[[], None],
) -> Resources:
    """Makes the parts of one sink. A thread of kazoo calls `tree_changed` when a znode of the sink has changed."""
    specification, client = settings.table, shared.client
    locks = TableLocks(client, specification.lock, note_held=metrics.lock_held)
    errors = ErrorsTable(shared.spark, settings.errors, client)
    return Resources(
        settings=settings,
        client=client,
        keeper=Keeper(client, settings.root_znode, tree_changed),
        table=Table(shared.spark, specification, schema, locks),
        errors=errors,
        engine=engine_of(shared.spark, specification, settings.records, schema),
        log=shared.kafka(settings),
        coordinating=SerialExecutor(shared.turns.pool),
        participating=SerialExecutor(shared.turns.pool),
        turns=shared.turns,
        observer=Observer(settings, metrics, LandedOffsets(settings, shared.groups(settings), metrics)),
        locks=(locks, errors.locks),
    )
