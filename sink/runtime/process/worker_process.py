"""Runs a worker process: the parts that live as long as it (ZooKeeper session, Spark and its watchdog, shared threads),
and the sinks that it hosts.

Guarantee: `run` returns after a drain, when `stop` is set, or raises SinkError when no sink can run; when the JVM or a
machine stops answering, or a request that hangs holds a table's lock, it kills this process and all its children with
status 70. A fault of one sink ends that sink
only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from threading import Event

import sdnotify
import structlog
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, SinkError
from sink.clients.java.errors import error_summary
from sink.clients.kafka.groups import GroupCommitter
from sink.clients.kafka.process import LogProcess
from sink.clients.kafka.shared_log import SharedLog
from sink.clients.spark.session import WARM_UP, warm_up
from sink.clients.spark.starting_session import StartingSession
from sink.clients.zookeeper.session import ZooKeeperSession, require_chroot
from sink.config import Configuration, Settings
from sink.http.metrics_port import MetricsPort
from sink.http.server import WorkerHttp
from sink.runtime.process.commit_warmup import CommitWarmup, LeaderSearch
from sink.runtime.process.discovery import TopicDiscovery
from sink.runtime.process.facts import ProcessFacts
from sink.runtime.process.hosting import HostedSinks
from sink.runtime.process.http_settings import http_specification
from sink.runtime.process.presence import Presence
from sink.runtime.process.signals import Signals
from sink.runtime.sinks.life import SinkState
from sink.runtime.sinks.resources import SharedParts, SharedTurns
from sink.runtime.sinks.sink import REQUEST_SECONDS, Sink
from sink.runtime.turns.admission import AdmissionControl
from sink.runtime.turns.pools import CoalescedRun, SerialExecutor, SlotPool, Ticker, new_pool
from sink.runtime.turns.waiting import until_stopped
from sink.runtime.watches.jvm_watchdog import EXIT_JVM_GONE, JvmWatchdog, kill_process_tree
from sink.telemetry.metrics import ProcessMetrics
from sink.telemetry.periodic import Periodic

LOG = structlog.get_logger("sink.worker")
WARMUP_SECONDS = 10.0
ACTOR_SILENT_SECONDS = 60.0
PAUSED_SECONDS = 3.0
ALIVE_SECONDS = 5.0
POLL_SECONDS = 0.5
COMMITS_SIDE_BY_SIDE = 16
"""On an object store a commit waits more than it works."""
COMMIT_SECONDS = 20.0
SERVICES_SIDE_BY_SIDE = 4
SERVICE_SECONDS = 300.0
"""Longer than these, and a commit or a table service gives up its turn to another sink's."""


class KafkaProcesses:
    """Gives two processes for each Kafka cluster and way to reach it, whatever the number of sinks: one for the
    coordinators, and one for metrics and tools.
    """

    def __init__(self) -> None:
        self._by_settings: dict[tuple[tuple[str, str], ...], SharedLog] = {}
        self._groups: dict[tuple[tuple[str, str], ...], GroupCommitter] = {}

    def log_of(self, settings: Settings) -> SharedLog:
        native: Mapping[str, str] = settings.kafka_native
        return self._by_settings.setdefault(tuple(sorted(native.items())), SharedLog(LogProcess(native)))

    def groups(self, settings: Settings) -> GroupCommitter:
        native: Mapping[str, str] = settings.kafka_native
        return self._groups.setdefault(tuple(sorted(native.items())), GroupCommitter(native))

    def close(self) -> None:
        for committer in self._groups.values():
            committer.close()
        for log in self._by_settings.values():
            log.close()


class WorkerProcess:
    """A worker's process and its sinks."""

    def __init__(
        self,
        fleet: Configuration,
        signals: Signals,
        starting: StartingSession,
        on_refused: Callable[[str, SinkError], None],
    ) -> None:
        self._settings = fleet.process
        self._signals = signals
        self._stop = signals.stop
        self._starting = starting
        self._shared: Future[SharedParts] = Future()
        self._metrics = ProcessMetrics(self._settings.worker_id)
        self._kafka = KafkaProcesses()
        self._discovery = TopicDiscovery(fleet, self._kafka.log_of)
        self._hosted = HostedSinks(
            fleet,
            self._discovery,
            self._metrics,
            lambda settings: Sink(settings, self._shared, self._metrics.sink(settings.name)),
            on_refused,
        )
        self._sinks = self._hosted.sinks
        self._facts = ProcessFacts(self._settings, self._sinks, self._hosted.misconfigured, self._metrics)
        self._notifier = sdnotify.SystemdNotifier()
        self._is_ready = False
        self._watched = time.monotonic()
        self._grace_start = self._watched

    def run(self) -> None:
        http = WorkerHttp(http_specification(self._settings), self._facts)
        metrics_port = MetricsPort(self._settings.metrics_port, self._facts.metrics, self._settings.http_hosts)
        metrics_port.start()
        http.start()
        session = ZooKeeperSession(self._settings.ensemble, self._hosted.session_changed)
        session.start()
        self._hosted.begin()
        try:
            with self._alive():
                is_connected = self._connect(session)
            if is_connected:
                self._host(session, self._starting.session())
        finally:
            if not self._shared.done():
                self._shared.cancel()
            self._kafka.close()
            http.close()
            metrics_port.close()
            session.close()
        LOG.info("worker.stopped")

    def _connect(self, session: ZooKeeperSession) -> bool:
        """Waits until there is a session with ZooKeeper, and Spark; False when told to stop before."""
        while not session.wait(self._stop, seconds=POLL_SECONDS):
            self._hosted.require_a_sink()
            if self._stop.is_set():
                return False
        self._facts.publish_sinks(session.client, self._kafka.log_of)
        until_stopped(self._stop, "the chroot in ZooKeeper", lambda: require_chroot(session.client))
        while not self._starting.wait(POLL_SECONDS):
            self._hosted.require_a_sink()
        LOG.debug("worker.reached", phase="spark")
        return not self._stop.is_set()

    def _host(self, session: ZooKeeperSession, spark: SparkSession) -> None:
        watchdog, ticker = JvmWatchdog(spark), Ticker()
        watchdog.start()
        self._facts.watchdog = watchdog
        ticker.start()
        try:
            with new_pool() as pool:
                is_warm = Event()
                commits = SlotPool("commits", COMMITS_SIDE_BY_SIDE, COMMIT_SECONDS)
                services = SlotPool("services", SERVICES_SIDE_BY_SIDE, SERVICE_SECONDS)
                admission = AdmissionControl(spark.sparkContext.defaultParallelism)
                ticker.subscribe(admission.sample)
                ticker.subscribe(commits.grant_turns)
                ticker.subscribe(services.grant_turns)
                self._shared.set_result(
                    SharedParts(
                        session,
                        spark,
                        watchdog,
                        SharedTurns(pool=pool, commits=commits, admission=admission, services=services, ticker=ticker),
                        self._kafka.log_of,
                        self._kafka.groups,
                        SerialExecutor(pool),
                        is_warm,
                    )
                )
                self._warm(pool.submit(warm_up, spark), spark)
                is_warm.set()
                presence = Presence(
                    self._settings,
                    session.client,
                    self._sinks,
                    self._hosted.misconfigured,
                    lambda: self._facts.draining,
                )
                if self._hosted.fleet.patterns:
                    self._discovery.start()
                presence_run = CoalescedRun(pool, presence.poll)
                self._supervise(session, watchdog, spark, presence_run, LeaderSearch(pool, self._sinks))
                self._discovery.stop()
                self._notifier.notify("STOPPING=1")
                self._facts.draining = True
                presence_run.trigger()
                with self._alive():
                    self._hosted.drain()
                presence.forget()
        finally:
            ticker.stop()
            watchdog.stop()
        spark.stop()

    def _warm(self, warming: Future[None], spark: SparkSession) -> None:
        """Waits for Spark's first job, and cancels it when told to stop."""
        with self._alive():
            while not wait([warming], timeout=0.2).done:
                if self._stop.is_set():
                    spark.sparkContext.cancelJobGroup(WARM_UP)
        LOG.debug("worker.reached", phase="warm")
        error = warming.exception()
        if isinstance(error, ConfigError):
            raise error
        if error is not None and not self._stop.is_set():
            LOG.warning("worker.cold", reason=error_summary(error))

    def _supervise(
        self,
        session: ZooKeeperSession,
        watchdog: JvmWatchdog,
        spark: SparkSession,
        presence: CoalescedRun,
        leaders: LeaderSearch,
    ) -> None:
        """Runs until `stop` is set, or an operator has asked this worker to leave every sink. Nothing in the loop waits
        for a server: a tick that is late by `PAUSED_SECONDS` would count as a pause of this process.
        """
        self._watched = self._grace_start = time.monotonic()
        warmup: CommitWarmup | None = None
        while not self._stop.wait(POLL_SECONDS):
            session.poll()
            if self._signals.reload.is_set() and not self._hosted.is_reloading:
                self._signals.reload.clear()
                self._hosted.reload()
            self._hosted.take_up_reload()
            for sink in self._sinks.values():
                sink.poll()
                if not self._hosted.fleet.is_one_sink:
                    sink.leave_to_others()
            self._hosted.forget_released()
            self._hosted.begin_missing()
            presence.trigger()
            self._hosted.require_a_sink()
            if self._hosted.have_left():
                self._stop.set()
            self._watch(watchdog)
            self._tell_ready()
            warmup = self._warm_commits(warmup, spark, leaders)
        if warmup is not None:
            warmup.wait(WARMUP_SECONDS)

    def _warm_commits(
        self, warmup: CommitWarmup | None, spark: SparkSession, leaders: LeaderSearch
    ) -> CommitWarmup | None:
        """Warms the commits of a process that does not lead yet: one that leads has them warm, or will soon."""
        if warmup is None:
            opened = next((sink for sink in self._sinks.values() if sink.schema is not None), None)
            if opened is None or opened.schema is None:
                return None
            warmup = CommitWarmup(spark, opened.settings, opened.schema)
        if any(sink.leads for sink in self._sinks.values()):
            warmup.cancel()
        elif warmup.is_due and leaders.has_found:
            warmup.begin()
        elif warmup.is_due:
            leaders.trigger()
        return warmup

    def _tell_ready(self) -> None:
        """Tells systemd once a sink has joined, and every other one has, waits, or was refused."""
        states = {sink.state for sink in self._sinks.values()}
        has_joined = SinkState.JOINED in states or (not states and not self._hosted.fleet.is_one_sink)
        if not self._is_ready and has_joined and not self._hosted.has_more and SinkState.OPENING not in states:
            self._is_ready = True
            self._notifier.notify("READY=1")

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Tells the service manager's watchdog that this process waits, with a bound or for ZooKeeper: it is alive."""
        alive = Periodic("alive", self._tell_alive, lambda: ALIVE_SECONDS, at_once=False)
        alive.start()
        try:
            yield
        finally:
            alive.stop()

    def _watch(self, watchdog: JvmWatchdog) -> None:
        if watchdog.gone:
            LOG.critical("jvm.gone", reason=watchdog.gone, action="ending this process")
            kill_process_tree(EXIT_JVM_GONE)
        now = time.monotonic()
        if now - self._watched > PAUSED_SECONDS:
            # This process itself was stopped: it could not hear the JVM and the machines meanwhile.
            self._grace_start = now
        self._watched = now
        sinks = self._sinks.values()
        jvm_silent = now - max(watchdog.answered_at, self._grace_start)
        machine_silent = now - max(min((sink.last_heartbeat() for sink in sinks), default=now), self._grace_start)
        unanswered = now - max(min((sink.request_started_at() for sink in sinks), default=now), self._grace_start)
        blocked = [name for name, sink in self._sinks.items() if sink.blocks_table]
        if (
            jvm_silent > self._settings.session_timeout_ms / 1000
            or machine_silent > ACTOR_SILENT_SECONDS
            or (unanswered > REQUEST_SECONDS and self._hosted.fleet.is_one_sink)
            or blocked
        ):
            LOG.critical(
                "worker.hangs",
                jvm_silent=round(jvm_silent, 1),
                machine_silent=round(machine_silent, 1),
                unanswered=round(unanswered, 1),
                blocked_tables_of=blocked,
                action="ending this process and its JVM",
            )
            kill_process_tree(EXIT_JVM_GONE)
        self._tell_alive()

    def _tell_alive(self) -> None:
        """Feeds systemd's watchdog, which begins when the worker is ready."""
        if self._is_ready:
            self._notifier.notify("WATCHDOG=1")
