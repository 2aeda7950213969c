"""Turns the machines' notes into log lines and metrics. Nothing here can fail or delay a commit.

A request that fails because of the table's store is logged at level debug: `sink.runtime.watches.storage_watch` warns
once for all of them.
"""

from __future__ import annotations

import structlog

from coordination.state.failures import HaltKind
from coordination.state.messages import Note
from coordination.state.tree import KeeperView
from sink.clients.kafka.groups import GroupCommitter
from sink.config import Settings
from sink.operations.remedies import RUNBOOK, halt_remedy
from sink.runtime.watches.storage_watch import RegistryWatch, StorageWatch
from sink.telemetry.harmless import harmless
from sink.telemetry.metrics import SinkMetrics

LOG = structlog.get_logger("sink.worker")
INFO_EVENTS = frozenset(
    {"coordinator.elected", "sink.halted", "log.gap_skipped", "batch.divided", "keeper.advanced", "topics.found"}
)
WARNING_EVENTS = frozenset(
    {
        "transaction.aborted",
        "request.not_done",
        "status.not_reported",
        "sink.halted",
        "topics.gone",
        "coordinator.stood_back",
    }
)
REPEATED = frozenset({"request.not_done", "status.not_reported"})
"""Noted at each try, for as long as the fault lasts."""


class LandedOffsets:
    """The landed offsets of one sink. `observe` gets the coordinator's readings of the tree, and returns at once."""

    def __init__(self, settings: Settings, committer: GroupCommitter, metrics: SinkMetrics) -> None:
        self._sink = settings.name
        self._group = f"sink-{settings.name}" if settings.group_offsets else None
        self._committer = committer
        self._metrics = metrics
        self._offered: tuple[int, int] | None = None

    @harmless
    def observe(self, view: KeeperView) -> None:
        settled = view.epoch, view.ledger.committed
        if view.states and settled != self._offered:
            self._offered = settled
            self._committer.offer(self._sink, self._group, view.states, self._metrics)


class Observer:
    """The actors call `note`."""

    def __init__(self, settings: Settings, metrics: SinkMetrics, landed: LandedOffsets | None = None) -> None:
        """`landed` offers landed offsets to Kafka."""
        self.metrics = metrics
        self._landed = landed
        self.storage = StorageWatch(settings)
        self.registry = RegistryWatch()

    def observe(self, view: KeeperView) -> None:
        """Takes the coordinator's reading of the tree."""
        self.metrics.keeper(view)
        if self._landed is not None:
            self._landed.observe(view)

    def note(self, note: Note) -> None:
        self.metrics.note(note)
        fields = dict(note.fields)
        if note.event == "coordinator.elected":
            # In the actor's own thread: its later lines, and those of its requests, name the epoch.
            structlog.contextvars.bind_contextvars(epoch=fields["epoch"])
        level = "warning" if note.event in WARNING_EVENTS else "info" if _is_loud(note.event, fields) else "debug"
        if note.event in REPEATED and self.storage.fault(str(fields.get("reason"))):
            level = "debug"
        if note.event == "sink.halted":
            fields["runbook"] = f"{RUNBOOK}#{halt_remedy(HaltKind(fields['kind'])).section}"
        getattr(LOG, level)(note.event, **fields)


def _is_loud(event: str, fields: dict[str, object]) -> bool:
    return event in INFO_EVENTS or (event == "transaction.ended" and fields["outcome"] == "COMMITTED")
