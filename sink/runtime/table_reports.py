"""Tells the metrics of the last audit and of the table's files, on the worker that runs the table services.

Guarantee: nothing rests on it, and nothing fails with it. Files are counted rarely, in pieces, and only where the
metadata table lists them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from coordination.errors import SinkError
from coordination.zookeeper.audit_record import AuditAnswer
from sink.telemetry.metrics import SinkMetrics

LOG = structlog.get_logger("sink.worker")
AUDIT_SECONDS = 10.0
FILES_SECONDS = 900.0


class Record(Protocol):
    def last(self) -> AuditAnswer | None: ...


class TableReports:
    """`poll` is called again and again, `services_ran` after each run of the table services. `count_files` gives None
    where counting would cost a listing of the storage.
    """

    def __init__(
        self,
        audit: Record,
        count_files: Callable[[], int | None],
        metrics: SinkMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audit = audit
        self._count_files = count_files
        self._metrics = metrics
        self._clock = clock
        self._audit_read = self._files_counted = -math.inf

    def poll(self) -> None:
        now = self._clock()
        if now - self._audit_read < AUDIT_SECONDS:
            return
        self._audit_read = now
        try:
            if (answer := self._audit.last()) is not None:
                self._metrics.audited(answer.held, answer.ended)
        except SinkError as error:
            LOG.debug("table.not_reported", reason=str(error))

    def services_ran(self) -> None:
        now = self._clock()
        if now - self._files_counted < FILES_SECONDS:
            return
        self._files_counted = now
        try:
            if (files := self._count_files()) is not None:
                self._metrics.table_files(files)
        except SinkError as error:
            LOG.debug("table.not_reported", reason=str(error))
