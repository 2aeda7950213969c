"""Turns what the machines note into log lines and metrics, and starts table services between commits.

Nothing here can fail or delay a commit: services run on a thread of their own, and what goes wrong in them is
logged and tried again after a later commit.
"""

from __future__ import annotations

import threading

import structlog
from py4j.protocol import Py4JError

from coordination.errors import SinkError
from coordination.messages import Note
from sink.config import Settings
from sink.metrics import Metrics
from sink.runtime import said
from sink.table import Table

LOG = structlog.get_logger("sink.worker")
COMMITS_BETWEEN_SERVICES = 10
LOUD = frozenset({"coordinator.elected", "sink.halted", "log.gap_skipped", "batch.divided", "keeper.advanced"})
WORRYING = frozenset({"transaction.aborted", "request.not_done", "status.not_reported", "sink.halted"})


class Observer:
    """`note` is what the actors call; `close` waits for a service that is under way."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self._table = table
        self.metrics = Metrics(settings.name)
        self.metrics.serve(settings.metrics_port)
        self._commits = 0
        self._services = threading.Lock()
        self._last: threading.Thread | None = None

    def note(self, note: Note) -> None:
        self.metrics.note(note)
        fields = dict(note.fields)
        level = "warning" if note.event in WORRYING else "info" if _is_loud(note.event, fields) else "debug"
        getattr(LOG, level)(note.event, **fields)
        if note.event == "transaction.ended" and fields["outcome"] == "COMMITTED":
            self._commits += 1
            if self._commits % COMMITS_BETWEEN_SERVICES == 0:
                self._last = threading.Thread(target=self._serve, name="services", daemon=True)
                self._last.start()

    def close(self) -> None:
        if self._last is not None:
            self._last.join(10.0)
        self.metrics.close()

    def _serve(self) -> None:
        if not self._services.acquire(blocking=False):
            return
        try:
            self._table.services()
        except (SinkError, Py4JError, OSError) as error:
            LOG.warning("services.failed", reason=said(error))
        finally:
            self._services.release()


def _is_loud(event: str, fields: dict[str, object]) -> bool:
    return event in LOUD or (event == "transaction.ended" and fields["outcome"] == "COMMITTED")
