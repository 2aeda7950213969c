"""The parts of a sink, and of a process, that outlive the memberships of the sink."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from kazoo.client import KazooClient

from coordination.zookeeper.keeper import Keeper
from sink.bad_records.table import ErrorsTable
from sink.clients.kafka.log import LogSource
from sink.config import Settings
from sink.hudi.table import Table
from sink.runtime.turns.admission import AdmissionControl
from sink.runtime.turns.pools import SerialExecutor, SlotPool, Ticker
from sink.runtime.watches.notes import Observer
from sink.write.engines.engine import Engine


@dataclass(frozen=True, kw_only=True)
class SharedTurns:
    """Where the sinks of a process take turns: threads, and slots for commits, plans and table services."""

    pool: Executor
    commits: SlotPool
    admission: AdmissionControl
    services: SlotPool
    ticker: Ticker


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

    @property
    def root(self) -> str:
        return self.settings.root_znode
