"""The parts of a sink, and of a process, that outlive the memberships of the sink. Making them opens nothing."""

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
    """Where the sinks of a process take turns: threads, and slots for commits, plans and table services."""

    pool: Executor
    commits: SlotPool
    admission: AdmissionControl
    services: SlotPool
    ticker: Ticker


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts that a process has once, for all of its sinks."""

    session: ZooKeeperSession
    spark: SparkSession
    watchdog: JvmWatchdog
    turns: SharedTurns
    kafka: Callable[[Settings], SharedLog]
    groups: Callable[[Settings], GroupCommitter]
    preparing: Executor
    """One new table at a time: they would take the cores from everything else."""
    is_warm: Event
    """Set when Spark has done its first job: a fleet need not wait for a newcomer's."""

    @property
    def client(self) -> KazooClient:
        return self.session.client


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The parts of a sink that outlive a membership. Requests of two memberships never overlap on its executors."""

    settings: Settings
    client: KazooClient
    keeper: Keeper
    table: Table
    errors: ErrorsTable
    engine: Engine
    log: LogSource
    coordinating: SerialExecutor
    participating: SerialExecutor
    turns: SharedTurns
    observer: Observer
    locks: tuple[TableLocks, ...]
    """Those of the table and of the errors table."""

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
    """Makes the parts of one sink. A thread of kazoo's calls `tree_changed` when the sink's znodes have changed."""
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
