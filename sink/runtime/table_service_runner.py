"""Runs the table services on one worker of the fleet, off the commit path.

One worker holds their lock, and not the coordinator's where there is another one. Guarantee: a run neither fails nor
delays a decision. A run that fails is logged, recorded for `sink status`, and tried again after as many transactions. A
worker that dies in a run loses the lock with its session, and the next holder begins with its remains. A worker that
was stopped beyond its session may wake in the middle of a run: it finds under the table lock that it may not complete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from coordination.errors import SinkError, Unavailable
from coordination.zookeeper.table_service_lock import Service, TableServiceLock, TableServiceRun
from sink.clients.java_errors import JAVA_ERRORS, error_summary
from sink.config import Settings
from sink.runtime.catalog_sync import CatalogSync
from sink.runtime.table_reports import TableReports
from sink.telemetry.logs import ContextThread
from sink.telemetry.metrics import SinkMetrics

LOG = structlog.get_logger("sink.worker")
POLL_SECONDS = 2.0
RETRY_SECONDS = 0.5
Run = Callable[[], tuple[Service, ...]]


@dataclass(frozen=True, slots=True)
class MetadataUpkeep:
    """Services of Hudi's metadata table. `run` does nothing until they are due, which they are after `interval`
    transactions. It calls its argument between two services, and ends if that returns true.
    """

    run: Callable[[Callable[[], bool]], tuple[Service, ...]]
    interval: int


class TableServiceRunner:
    """Runs them for one incarnation. `run` performs the services, `leads` says whether this worker coordinates;
    `catalog`, in a thread of its own, works while this worker holds the lock, and so do `reports` and, between two
    runs, `metadata`. `in_turn` runs the services when it is their turn.
    """

    def __init__(
        self,
        settings: Settings,
        lock: TableServiceLock,
        run: Run,
        leads: Callable[[], bool],
        metrics: SinkMetrics,
        catalog: CatalogSync | None,
        reports: TableReports,
        metadata: MetadataUpkeep,
        in_turn: Callable[[Run], tuple[Service, ...]],
    ) -> None:
        self._settings = settings
        self._lock = lock
        self._perform = run
        self._leads = leads
        self._metrics = metrics
        self._catalog = catalog
        self._reports = reports
        self._metadata = metadata
        self._in_turn = in_turn
        self._ended = threading.Event()
        self._thread = ContextThread(target=self._campaign, name="services", daemon=True)

    def start(self) -> None:
        if self._catalog is not None:
            self._catalog.start()
        self._thread.start()

    def end(self) -> None:
        """Begins nothing new; a run under way goes on."""
        self._ended.set()
        if self._catalog is not None:
            self._catalog.stop()
        self._lock.withdraw()

    def join(self, seconds: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _campaign(self) -> None:
        while not self._ended.is_set():
            try:
                if self._may_serve() and self._lock.campaign():
                    self._serve()
            except SinkError as error:
                LOG.debug("services.interrupted", reason=str(error))
            self._ended.wait(POLL_SECONDS)

    def _may_serve(self) -> bool:
        """Whether this worker may run the services: a coordinator leaves them to other workers, if there are any."""
        return not self._leads() or self._lock.is_alone()

    def _serve(self) -> None:
        try:
            if self._catalog is not None:
                self._catalog.follow()
            last_run = self._lock.last()
            last_committed = last_run.committed if last_run else 0
            served = 0
            while not self._ended.is_set() and self._may_serve():
                committed = self._lock.committed()
                if committed < last_committed or committed - last_committed >= self._settings.services_interval:
                    self._run(committed)
                    last_committed = committed
                    self._reports.services_ran()
                else:
                    served = self._kept_up(served)
                self._reports.poll()
                self._ended.wait(POLL_SECONDS)
        finally:
            if self._catalog is not None:
                self._catalog.pause()
            self._metrics.not_serving()
            self._give_back()

    def _kept_up(self, served: int) -> int:
        """Serves the metadata table if that may be due. `served`: the transaction up to which it has been served."""
        committed = self._lock.committed()
        if 0 <= committed - served < self._metadata.interval:
            return served
        # Each takes cores and the table lock from transactions: one at a look.
        wait = partial(self._ended.wait, POLL_SECONDS)
        if self._outcomes("metadata table", partial(self._metadata.run, wait)):
            return self._lock.committed()
        # Too early: some of these transactions were complete before it was served last.
        return committed - self._metadata.interval // 2

    def _give_back(self) -> None:
        """Resigns: a contender that is left behind would keep other workers from the lock while the session lives."""
        while True:
            try:
                self._lock.resign()
                return
            except Unavailable:
                time.sleep(RETRY_SECONDS)

    def _run(self, committed: int) -> None:
        LOG.debug("services.begun", committed=committed)
        services = self._outcomes("table", self._perform)
        self._lock.record(TableServiceRun(self._settings.worker_id, time.time(), committed, services))

    def _outcomes(self, name: str, run: Run) -> tuple[Service, ...]:
        """Runs services when it is their turn. Returns and reports the outcome of each."""
        try:
            services = self._in_turn(lambda: () if self._ended.is_set() else run())
        except (SinkError, *JAVA_ERRORS, OSError) as error:
            services = (Service(name, 0.0, "", error_summary(error)),)
        if self._ended.is_set():
            # Spark is being stopped, so that a failure says nothing of the table.
            services = tuple(service for service in services if not service.reason)
        for service in services:
            self._metrics.served(service)
            if service.reason:
                LOG.warning("services.failed", service=service.name, seconds=service.seconds, reason=service.reason)
            elif service.instant:
                LOG.info("services.done", service=service.name, seconds=service.seconds, instant=service.instant)
            else:
                LOG.debug("services.idle", service=service.name, seconds=service.seconds)
        return services
