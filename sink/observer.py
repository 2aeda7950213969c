"""Turns what the machines note into log lines and metrics. Nothing here can fail or delay a commit."""

from __future__ import annotations

import structlog

from coordination.messages import Note
from sink.config import Settings
from sink.metrics import Metrics

LOG = structlog.get_logger("sink.worker")
LOUD = frozenset({"coordinator.elected", "sink.halted", "log.gap_skipped", "batch.divided", "keeper.advanced"})
WORRYING = frozenset({"transaction.aborted", "request.not_done", "status.not_reported", "sink.halted"})


class Observer:
    """`note` is what the actors call."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics(settings.name)
        self.metrics.serve(settings.metrics_port)

    def note(self, note: Note) -> None:
        self.metrics.note(note)
        fields = dict(note.fields)
        level = "warning" if note.event in WORRYING else "info" if _is_loud(note.event, fields) else "debug"
        getattr(LOG, level)(note.event, **fields)

    def close(self) -> None:
        self.metrics.close()


def _is_loud(event: str, fields: dict[str, object]) -> bool:
    return event in LOUD or (event == "transaction.ended" and fields["outcome"] == "COMMITTED")
