"""Runs the table services on one worker of the fleet, off the commit path.

One worker holds their lock, and not the coordinator's where there is another one. Guarantee: a run neither fails nor
delays a decision. Whatever keeps a service from its work (a fault of ZooKeeper, of the store, of Hudi, or a defect) is
logged, recorded for status and health, and counted; it is tried again after as many transactions, or after
`RETRY_SECONDS`. A worker that dies in a run loses the lock with its session, and the next holder begins at once, with
its remains. A worker that was stopped beyond its session may wake in the middle of a run: it finds under the table lock
that it may not complete. A coordinator that does not serve sees to it that a run which nobody begins is known to be
due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from coordination.errors import SinkError, Unavailable
from coordination.zookeeper.table_service_lock import WHOLE_RUN, ServiceOutcome, TableServiceLock, TableServiceRun
from sink.clients.java.errors import error_summary
from sink.config import Settings
from sink.runtime.sinks.table_reports import TableMetricsReporter
from sink.runtime.turns.pools import ServiceThread
from sink.telemetry.metrics import SinkMetrics
from sink.telemetry.periodic import Periodic

LOG = structlog.get_logger("sink.worker")
POLL_SECONDS = 2.0
WATCH_SECONDS = 60.0
RETRY_SECONDS = 900.0
RESIGN_SECONDS = 0.5
METADATA_TABLE = "metadata table"
Run = Callable[[], tuple[ServiceOutcome, ...]]


@dataclass(frozen=True, slots=True)
class MetadataServices:
    """Services of Hudi's metadata table. `run` does nothing until they are due, which they are after `interval`
    transactions. It calls its argument between two services, and ends if that returns true.
    """

    run: Callable[[Callable[[], bool]], tuple[ServiceOutcome, ...]]
    interval: int


class TableServiceRunner:
    """Runs them for one incarnation. `run` performs the services, `leads` says whether this worker coordinates;
    `others`, in threads of their own, work while this worker holds the lock, and so do `reports` and, between two
    runs, `metadata`. `in_turn` runs the services when it is their turn.
    """

    def __init__(
        self,
        settings: Settings,
        lock: TableServiceLock,
        run: Run,
        leads: Callable[[], bool],
        metrics: SinkMetrics,
        others: Sequence[ServiceThread],
        reports: TableMetricsReporter,
        metadata: MetadataServices,
        in_turn: Callable[[Run], tuple[ServiceOutcome, ...]],
    ) -> None:
        self._settings = settings
        self._lock = lock
        self._perform = run
        self._leads = leads
        self._metrics = metrics
        self._others = others
        self._reports = reports
        self._metadata = metadata
        self._in_turn = in_turn
        self._interruptions = 0
        """Attempts in a row that failed before a service could begin."""
        self._watched = -math.inf
        self._last = TableServiceRun()
        self._campaigns = Periodic("services", self._campaign, lambda: POLL_SECONDS)
        self._ended = self._campaigns.ended

    def start(self) -> None:
        for other in self._others:
            other.start()
        self._campaigns.start()

    def end(self) -> None:
        """Begins nothing new; a run under way goes on."""
        self._campaigns.stop()
        for other in self._others:
            other.stop()
        self._lock.withdraw()

    def join(self, seconds: float) -> None:
        self._campaigns.join(seconds)

    def _campaign(self) -> None:
        try:
            if self._may_serve():
                # Until it serves, this worker knows nothing: it may wait for the lock for long.
                self._metrics.not_serving()
                if self._lock.campaign():
                    self._serve()
            else:
                self._watch()
            self._interruptions = 0
        except Exception as error:  # noqa: BLE001 (a defect, too: else nothing would serve the table, in silence)
            self._interrupted(error_summary(error))

    def _may_serve(self) -> bool:
        """Whether this worker may run the services: a coordinator leaves them to other workers, if there are any."""
        return not self._leads() or self._lock.is_alone()

    def _interrupted(self, reason: str) -> None:
        """Reports what keeps this worker from the services, if something does so twice in a row. A lost connection ends
        by itself, and ZooKeeper's state shows it.
        """
        LOG.debug("services.interrupted", reason=reason)
        if self._ended.is_set() or not self._lock.is_connected:
            return
        self._interruptions += 1
        if self._interruptions == 1:
            return
        failed = ServiceOutcome(WHOLE_RUN, 0.0, "", reason)
        if self._interruptions == 2:
            self._count((failed,))
        self._metrics.services_interrupted(f"table services: {reason}")
        with suppress(SinkError):
            run, is_due = self._look()
            if is_due:
                self._lock.record(lambda last: last.after_failed_start(time.time(), failed) if last == run else last)
        self._ended.wait(WATCH_SECONDS)

    def _watch(self) -> None:
        """Records that a run is due, where the worker that should have begun it has not: one that does so has recorded
        that itself. Shows how long services have been due, on any worker.
        """
        if time.monotonic() - self._watched < WATCH_SECONDS:
            return
        self._watched = time.monotonic()
        run, is_due = self._look()
        if is_due and not run.due:
            run = self._lock.record(lambda last: last.marked_due(time.time()) if last == run else last)
        self._metrics.services(run)

    def _look(self) -> tuple[TableServiceRun, bool]:
        """Returns the record, and whether a run is due."""
        run = self._lock.last() or TableServiceRun()
        return run, run.is_due(self._lock.committed(), self._settings.services_interval)

    def _serve(self) -> None:
        try:
            for other in self._others:
                other.follow()
            self._last = self._lock.last() or TableServiceRun()
            self._metrics.services(self._last)
            served = 0
            while not self._ended.is_set() and self._may_serve():
                committed = self._lock.committed()
                if self._last.is_due(committed, self._settings.services_interval) or self._is_tried_again():
                    self._run(committed)
                    self._reports.services_ran()
                    served = 0 if self._last.failed else served
                else:
                    served = self._serve_metadata_if_due(served)
                self._reports.poll()
                self._ended.wait(POLL_SECONDS)
        finally:
            for other in self._others:
                other.pause()
            self._metrics.not_serving()
            self._give_back()

    def _is_tried_again(self) -> bool:
        """Whether a run that failed is due again though no transaction has come since."""
        return bool(self._last.failed) and not 0 <= time.time() - self._last.ended < RETRY_SECONDS

    def _serve_metadata_if_due(self, served: int) -> int:
        """Serves the metadata table if that may be due. `served`: the transaction up to which it has been served."""
        committed = self._lock.committed()
        if 0 <= committed - served < self._metadata.interval:
            return served
        # Each takes cores and the table lock from transactions: one at a look.
        wait = partial(self._ended.wait, POLL_SECONDS)
        services = self._outcomes(METADATA_TABLE, partial(self._metadata.run, wait))
        if not self._ended.is_set() and (services or self._last.failed):
            self._note(lambda last: last.after_metadata_run(time.time(), services))
        if services:
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
                time.sleep(RESIGN_SECONDS)

    def _run(self, committed: int) -> None:
        """Runs the services. A run that this process does not live to record stays due, since it began."""
        LOG.debug("services.begun", committed=committed)
        self._note(lambda last: last.marked_due(time.time()))
        services = self._outcomes(WHOLE_RUN, self._perform)
        is_cut_short = self._ended.is_set() and (not services or any(service.reason for service in services))
        if not is_cut_short:
            worker = self._settings.worker_id
            self._note(lambda last: last.after_run(worker, time.time(), committed, services))

    def _note(self, change: Callable[[TableServiceRun], TableServiceRun]) -> None:
        self._last = self._lock.record(change)
        self._metrics.services(self._last)

    def _outcomes(self, name: str, run: Run) -> tuple[ServiceOutcome, ...]:
        """Runs services when it is their turn. Returns and counts the outcome of each."""
        try:
            services = self._in_turn(lambda: () if self._ended.is_set() else run())
        except Exception as error:  # noqa: BLE001 (a defect is the reason as well)
            services = (ServiceOutcome(name, 0.0, "", error_summary(error)),)
        # When Spark is being stopped, a failure says nothing of the table.
        self._count(service for service in services if not (service.reason and self._ended.is_set()))
        return services

    def _count(self, services: Iterable[ServiceOutcome]) -> None:
        for service in services:
            self._metrics.served(service)
            if service.reason:
                LOG.warning("services.failed", service=service.name, seconds=service.seconds, reason=service.reason)
            elif service.instant:
                LOG.info("services.done", service=service.name, seconds=service.seconds, instant=service.instant)
            else:
                LOG.debug("services.idle", service=service.name, seconds=service.seconds)
