"""Keeps the catalogue up with the table's commits, on the worker that runs the table services, off the commit path.

Guarantee: this module neither fails nor delays a commit or the table services, and a catalogue that hangs delays only
itself. Each transaction is registered within `catalog.interval.ms` of its commit and the time that Hudi takes. A
failure is logged, recorded for `sink status`, and tried again with back-off, whether or not there are commits. Two
workers may register at once, when one has lost the lock and does not know yet: both register the table's own state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog

from coordination.zookeeper.records import CatalogRecord, CatalogState
from sink.clients.java.errors import error_summary
from sink.config import Settings
from sink.runtime.turns.pools import ServiceThread
from sink.telemetry.metrics import SinkMetrics

LOG = structlog.get_logger("sink.worker")
FIRST_RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 300.0


def retry_seconds(failures: int) -> float:
    """Returns the seconds from one attempt to the next, after so many failures in a row."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), LAST_RETRY_SECONDS)


def seconds_to_next(state: CatalogState, committed: int, interval: float) -> float | None:
    """Returns the seconds from the last attempt to the next one; None while there is nothing to register. `committed`:
    the sink's newest transaction.
    """
    if state.failures:
        return retry_seconds(state.failures)
    # Fewer than before: ZooKeeper was emptied, or the sink begun anew.
    return interval if committed and committed != state.committed else None


def catalog_sync(
    settings: Settings,
    record: CatalogRecord,
    register: Callable[[], str],
    committed: Callable[[], int],
    metrics: SinkMetrics,
) -> list[ServiceThread]:
    """Returns the sync of a membership; none where the settings name no catalogue."""
    return [CatalogSync(settings, record, register, committed, metrics)] if settings.catalogued else []


class CatalogSync(ServiceThread):
    """Syncs for one incarnation. `register` registers the table and returns the newest instant that the catalogue knows
    then; `committed` is the sink's newest transaction.
    """

    def __init__(
        self,
        settings: Settings,
        record: CatalogRecord,
        register: Callable[[], str],
        committed: Callable[[], int],
        metrics: SinkMetrics,
    ) -> None:
        super().__init__("catalog", self._read_record, self._sync_if_due)
        self._record = record
        self._register = register
        self._committed = committed
        self._metrics = metrics
        self._worker = settings.worker_id
        self._interval = settings.catalog_interval_ms / 1000
        self._state = CatalogState(settings.catalog_name)
        self._tried = -math.inf

    def _read_record(self) -> None:
        """Reads the record again: another worker may have registered meanwhile, or have tried. A record of another
        catalogue counts for nothing.
        """
        state = self._record.last()
        if state is not None and state.catalog == self._state.catalog:
            self._state = state

    def _sync_if_due(self) -> None:
        committed = self._committed()
        wait = seconds_to_next(self._state, committed, self._interval)
        if wait is not None and time.monotonic() - self._tried >= wait:
            self._sync(committed)

    def _sync(self, committed: int) -> None:
        began = time.monotonic()
        try:
            instant = self._register()
        except Exception as error:  # noqa: BLE001 (nothing depends on it, and no caller would log it)
            if self.ended.is_set():
                return  # Spark may be stopped already
            reason = error_summary(error)
            self._state = self._state.after_failure(self._worker, time.time(), reason)
            LOG.warning(
                "catalog.failed",
                catalog=self._state.catalog,
                failures=self._state.failures,
                again_in=retry_seconds(self._state.failures),
                reason=reason,
            )
        else:
            if self._state.failures:
                LOG.info("catalog.recovered", catalog=self._state.catalog, failures=self._state.failures)
            self._state = self._state.after_success(self._worker, time.time(), committed, instant)
            seconds = round(time.monotonic() - began, 3)
            LOG.debug("catalog.synced", catalog=self._state.catalog, instant=instant, seconds=seconds)
        self._tried = time.monotonic()
        self._metrics.registered(self._state.failures, self._tried - began)
        self._record.record(self._state)
