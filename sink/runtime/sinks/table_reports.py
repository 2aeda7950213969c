"""Updates the metrics of the last audit and of the table's files, on the worker that runs the table services.

Guarantee: nothing depends on it; a SinkError is logged, and the metric stays old. Files are counted every quarter of an
hour at most, and only where the metadata table lists them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog

from coordination.errors import SinkError
from coordination.zookeeper.records import AuditRecord
from sink.telemetry.metrics import SinkMetrics

LOG = structlog.get_logger("sink.worker")
AUDIT_SECONDS = 10.0
FILES_SECONDS = 900.0
"""Counting reads the whole list of files of the metadata table."""


class TableMetricsReporter:
    """The loop of the table services calls `poll` at each look, and `services_ran` after each run. `count_files` gives
    None where counting would cost a listing of the storage.
    """

    def __init__(
        self,
        audit: AuditRecord,
        count_files: Callable[[], int | None],
        metrics: SinkMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audit = audit
        self._count_files = count_files
        self._metrics = metrics
        self._clock = clock
        self._reported_at: dict[Callable[[], None], float] = {}

    def poll(self) -> None:
        self._report(self._update_audit, AUDIT_SECONDS)

    def services_ran(self) -> None:
        self._report(self._update_files, FILES_SECONDS)

    def _update_audit(self) -> None:
        if (result := self._audit.last()) is not None:
            self._metrics.audited(result.held, result.ended, result.compared)

    def _update_files(self) -> None:
        if (files := self._count_files()) is not None:
            self._metrics.table_files(files)

    def _report(self, update: Callable[[], None], seconds: float) -> None:
        """Calls `update` unless it was called less than so many seconds ago, even if it failed then."""
        now = self._clock()
        if now - self._reported_at.get(update, -math.inf) < seconds:
            return
        self._reported_at[update] = now
        try:
            update()
        except SinkError as error:
            LOG.debug("table.not_reported", reason=str(error))
