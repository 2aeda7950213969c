"""Tells the metrics of the last audit and of the table's files, on the worker that runs the table services.

Guarantee: nothing rests on it, and nothing fails with it. Files are counted rarely, in pieces, and only where the
metadata table lists them.
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


class TableMetricsReporter:
    """`poll` is called again and again, `services_ran` after each run of the table services. `count_files` gives None
    where counting would cost a listing of the storage.
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
        self._report(self._tell_audit, AUDIT_SECONDS)

    def services_ran(self) -> None:
        self._report(self._tell_files, FILES_SECONDS)

    def _tell_audit(self) -> None:
        if (answer := self._audit.last()) is not None:
            self._metrics.audited(answer.held, answer.ended, answer.compared)

    def _tell_files(self) -> None:
        if (files := self._count_files()) is not None:
            self._metrics.table_files(files)

    def _report(self, tell: Callable[[], None], seconds: float) -> None:
        """Calls `tell` unless it was called less than so many seconds ago."""
        now = self._clock()
        if now - self._reported_at.get(tell, -math.inf) < seconds:
            return
        self._reported_at[tell] = now
        try:
            tell()
        except SinkError as error:
            LOG.debug("table.not_reported", reason=str(error))
