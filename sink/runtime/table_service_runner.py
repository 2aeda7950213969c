"""A worker's part in the table services: stands for the office, and runs them in it, off the commit path.

One worker of the fleet holds the office, one that does not lead where there is one. Guarantee: what happens here
neither fails nor delays a decision; a run that fails is logged, recorded for `sink status`, and tried again after as
many transactions. Who dies in a run loses the office with its session, and the next one begins with what was left. Who
was stopped beyond its session may wake in the middle of a run: Hudi refuses to complete what was taken off its timeline
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from coordination.errors import SinkError, Unavailable
from coordination.zookeeper.table_service_lock import Service, TableServiceLock, TableServiceRun
from sink.clients.java_errors import JAVA_ERRORS, said
from sink.config import Settings
from sink.runtime.catalog_sync import CatalogSync
from sink.telemetry.logs import ContextThread
from sink.telemetry.metrics import Metrics

LOG = structlog.get_logger("sink.worker")
LOOK_SECONDS = 2.0
RETRY_SECONDS = 0.5


class Services:
    """One incarnation's. `run` performs the services, `leads` says whether this worker coordinates; `catalog`, in a
    thread of its own, works while this worker holds the office.
    """

    def __init__(
        self,
        settings: Settings,
        office: TableServiceLock,
        run: Callable[[], tuple[Service, ...]],
        leads: Callable[[], bool],
        metrics: Metrics,
        catalog: CatalogSync | None = None,
    ) -> None:
        self._settings = settings
        self._office = office
        self._perform = run
        self._leads = leads
        self._metrics = metrics
        self._catalog = catalog
        self._ended = threading.Event()
        self._thread = ContextThread(target=self._stand, name="services", daemon=True)

    def start(self) -> None:
        if self._catalog is not None:
            self._catalog.start()
        self._thread.start()

    def end(self) -> None:
        """Nothing new is begun; what is under way goes on."""
        self._ended.set()
        if self._catalog is not None:
            self._catalog.end()
        self._office.withdraw()

    def join(self, seconds: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _stand(self) -> None:
        while not self._ended.is_set():
            try:
                if self._may_serve() and self._office.campaign():
                    self._serve()
            except Unavailable as error:
                LOG.debug("services.interrupted", reason=str(error))
            self._ended.wait(LOOK_SECONDS)

    def _may_serve(self) -> bool:
        """A coordinator has other things to do, as long as there is anybody else."""
        return not self._leads() or self._office.is_alone()

    def _serve(self) -> None:
        try:
            if self._catalog is not None:
                self._catalog.follow()
            last = self._office.last()
            done = last.committed if last else 0
            while not self._ended.is_set() and self._may_serve():
                committed = self._office.committed()
                if committed < done or committed - done >= self._settings.services_interval:
                    self._run(committed)
                    done = committed
                self._ended.wait(LOOK_SECONDS)
        finally:
            if self._catalog is not None:
                self._catalog.pause()
            self._give_back()

    def _give_back(self) -> None:
        """A contender that is left behind would keep everybody else from the office, as long as the session lives."""
        while True:
            try:
                self._office.resign()
                return
            except Unavailable:
                time.sleep(RETRY_SECONDS)

    def _run(self, committed: int) -> None:
        LOG.debug("services.begun", committed=committed)
        try:
            services = self._perform()
        except (SinkError, *JAVA_ERRORS, OSError) as error:
            services = (Service("table", 0.0, "", said(error)),)
        for each in services:
            self._metrics.served(each)
            if each.reason:
                LOG.warning("services.failed", service=each.name, seconds=each.seconds, reason=each.reason)
            elif each.instant:
                LOG.info("services.done", service=each.name, seconds=each.seconds, instant=each.instant)
            else:
                LOG.debug("services.idle", service=each.name, seconds=each.seconds)
        self._office.record(TableServiceRun(self._settings.worker_id, time.time(), committed, services))
