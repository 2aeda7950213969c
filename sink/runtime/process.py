"""Runs a worker of the fleet, from its ZooKeeper session to the end of its last incarnation.

Guarantee: `run` returns after a drain, when `stop` is set, or raises SinkError for settings or a table that cannot be
used; when the JVM or a machine stops answering, it kills this process and all its children with status 70.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TypeVar

import sdnotify
import structlog
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, Corrupt, SinkError, Unavailable
from coordination.zookeeper.keeper import Keeper
from sink.bad_records.table import ErrorsTable
from sink.clients.java_errors import error_summary
from sink.clients.kafka_process import LogProcess
from sink.clients.spark import WARM_UP, StartingSession, use_transaction_pool, warm_up
from sink.clients.zookeeper import ZooKeeperSession, require_chroot
from sink.config import Settings
from sink.hudi import Table
from sink.hudi.lock import TableLocks
from sink.hudi.preflight import require_usable
from sink.operations.adoption import read_foreign_offsets, unadopted_offsets_warning
from sink.runtime.commit_warmup import CommitWarmup
from sink.runtime.incarnation import Incarnation, Resources, new_member
from sink.runtime.jvm_watchdog import EXIT_JVM_SILENT, JvmWatchdog, kill_process_tree
from sink.runtime.notes import Observer
from sink.storage.faults import fault_in
from sink.storage.files import require_answer
from sink.telemetry.logs import ContextThread
from sink.telemetry.version import sink_version
from sink.write.engines import engine_of
from sink.write.row_spec import table_schema

LOG = structlog.get_logger("sink.worker")
DRAIN_SECONDS = 60.0
WARMUP_SECONDS = 10.0
ACTOR_SILENT_SECONDS = 60.0
REQUEST_SECONDS = 900.0
"""Longer than anything that a coordinator asks for can sensibly take: what hangs on storage for so long, holds lock and
session, and nobody else may act."""
PAUSED_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 15.0
ALIVE_SECONDS = 5.0
_Done = TypeVar("_Done")


class Worker:
    """Everything that lives as long as the process, and the incarnations that come and go in it."""

    def __init__(self, settings: Settings, stop: Event, starting: StartingSession) -> None:
        """`stop` is set when the worker has to drain and end."""
        self._settings = settings
        self._stop = stop
        self._starting = starting
        self._membership: Incarnation | None = None
        self._keeper: Keeper | None = None
        self._notifier = sdnotify.SystemdNotifier()
        self._watched = time.monotonic()
        self._grace_start = self._watched

    def run(self) -> None:
        settings = self._settings
        schema = self._until_stopped("the schema registry", lambda: table_schema(settings))
        if schema is None:
            return
        require_usable(settings, schema)
        LOG.debug("worker.reached", phase="schema")
        session = ZooKeeperSession(settings, self._session_changed)
        session.start()
        if not session.wait(self._stop):
            session.close()
            return
        client = session.client
        self._until_stopped("the chroot in ZooKeeper", lambda: require_chroot(client))
        spark = self._starting.session()
        LOG.debug("worker.reached", phase="spark")
        watchdog = JvmWatchdog(spark)
        watchdog.start()
        table = Table(spark, settings, schema, TableLocks(client, settings))
        engine = engine_of(spark, settings, schema)
        engine.check()
        errors = ErrorsTable(spark, settings, client)
        root = settings.root_znode
        self._keeper = Keeper(client, root, self._tree_changed)
        observer = Observer(settings)
        first = partial(use_transaction_pool, spark)
        kafka = LogProcess(settings)
        with (
            ThreadPoolExecutor(1, "coordinating", first) as coordinating,
            ThreadPoolExecutor(1, "participating", first) as writing,
        ):
            resources = Resources(
                settings, client, self._keeper, root, table, errors, engine, kafka, coordinating, writing, observer
            )
            warming = writing.submit(warm_up, spark)
            self._until_stopped("the store", lambda: self._in_store(self._ask_store))
            self._until_stopped("the table", lambda: self._in_store(table.ensure))
            LOG.debug("worker.reached", phase="table")
            self._until_stopped("the errors table", lambda: self._in_store(errors.verify))
            self._warmed(warming, spark)
            self._until_stopped("the process that asks Kafka", kafka.start)
            ContextThread(target=_warn_of_offsets, args=(settings, self._keeper), name="offsets", daemon=True).start()
            warmup = CommitWarmup(spark, settings, schema)
            while not self._stop.is_set():
                self._take_part(resources, session, watchdog, warmup)
        self._notifier.notify("STOPPING=1")
        warmup.wait(WARMUP_SECONDS)
        observer.close()
        kafka.close()
        watchdog.stop()
        spark.stop()
        session.close()
        LOG.info("worker.stopped")

    def _warmed(self, warming: Future[None], spark: SparkSession) -> None:
        """Waits for Spark's first job, as long as nobody asks for the end."""
        while not wait([warming], timeout=0.2).done:
            if self._stop.is_set():
                spark.sparkContext.cancelJobGroup(WARM_UP)
        LOG.debug("worker.reached", phase="warm")
        error = warming.exception()
        if isinstance(error, ConfigError):
            raise error
        if error is not None and not self._stop.is_set():
            LOG.warning("worker.cold", reason=error_summary(error))

    def _take_part(
        self, resources: Resources, session: ZooKeeperSession, watchdog: JvmWatchdog, warmup: CommitWarmup
    ) -> None:
        """One incarnation, from its joining to the end of its session or of the process."""
        settings = self._settings
        with self._alive():
            if not session.wait(self._stop):
                return
        cores = resources.table.spark.sparkContext.defaultParallelism
        member = new_member(settings, socket.gethostname(), os.getpid(), sink_version(), cores)
        membership = Incarnation(resources, member)
        self._membership = membership
        try:
            membership.start()
        except (Corrupt, Unavailable) as error:
            LOG.warning("worker.waits", reason=str(error))
            self._stop.wait(1.0)
            return
        self._notifier.notify("READY=1")
        self._watched = self._grace_start = time.monotonic()
        while not membership.ended and not self._stop.wait(0.5):
            self._watch(membership, watchdog)
            session.look()
            if membership.leads:
                warmup.cancel()
            elif warmup.is_due and membership.follows():
                warmup.begin()
        if self._stop.is_set() and not membership.ended:
            self._notifier.notify("STOPPING=1")
            LOG.info("worker.draining")
            with self._alive():
                if not membership.drain(DRAIN_SECONDS):
                    LOG.warning("drain.abandoned", seconds=DRAIN_SECONDS)
        membership.close(timeout=5.0)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Tells the service manager's watchdog that this process waits, with a bound or for ZooKeeper: no hanging."""
        ended = Event()

        def tell() -> None:
            while not ended.wait(ALIVE_SECONDS):
                self._notifier.notify("WATCHDOG=1")

        ContextThread(target=tell, name="alive", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _watch(self, membership: Incarnation, watchdog: JvmWatchdog) -> None:
        now = time.monotonic()
        if now - self._watched > PAUSED_SECONDS:
            # This process itself was stopped: that the others were silent meanwhile says nothing.
            self._grace_start = now
        self._watched = now
        jvm_silent = now - max(watchdog.answered, self._grace_start)
        machine_silent = now - max(membership.last_heartbeat(), self._grace_start)
        unanswered = now - max(membership.request_started_at(), self._grace_start)
        if (
            jvm_silent > self._settings.session_timeout_ms / 1000
            or machine_silent > ACTOR_SILENT_SECONDS
            or unanswered > REQUEST_SECONDS
        ):
            LOG.critical(
                "worker.hangs",
                jvm_silent=round(jvm_silent, 1),
                machine_silent=round(machine_silent, 1),
                unanswered=round(unanswered, 1),
                action="ending this process and its JVM",
            )
            kill_process_tree(EXIT_JVM_SILENT)
        self._notifier.notify("WATCHDOG=1")

    def _ask_store(self) -> None:
        """With the keys of now: those of before may have expired."""
        require_answer(self._settings.base_path, self._settings.storage)

    def _in_store(self, action: Callable[[], None]) -> None:
        """Says a known fault of the store in its own sentence, and gives up where it lasts."""
        try:
            action()
        except Unavailable as error:
            fault = fault_in(str(error), self._settings.base_path, self._settings.storage_as_set)
            if fault is None:
                raise
            raise (ConfigError if fault.lasts else Unavailable)(fault.sentence) from error

    def _until_stopped(self, what: str, action: Callable[[], _Done]) -> _Done | None:
        told, pause = "", FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            try:
                return action()
            except Unavailable as error:
                reason = str(error)
                if reason != told:
                    LOG.warning("worker.waits", waiting_for=what, reason=reason)
                told = reason
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return None

    def _session_changed(self, state: str) -> None:
        if self._keeper is not None:
            self._keeper.session_changed(state)
        if self._membership is not None:
            self._membership.session_changed(state)

    def _tree_changed(self) -> None:
        if self._membership is not None:
            self._membership.tree_changed()


def _warn_of_offsets(settings: Settings, keeper: Keeper) -> None:
    """Nothing waits for it and nothing rests on it: `sink validate` says the same, before a worker is started."""
    try:
        view = keeper.read()
        if view.states:
            return
        if warning := unadopted_offsets_warning(
            read_foreign_offsets(settings.base_path, settings.storage), settings.name, view
        ):
            LOG.warning("table.not_adopted", reason=warning)
    except SinkError as error:
        LOG.debug("table.offsets_unread", reason=str(error))
