"""Offers landed offsets to Kafka's consumer group, after each commit and when a term begins."""

from __future__ import annotations

from coordination.state.tree import KeeperView
from sink.clients.kafka_groups import GroupCommitter
from sink.config import Settings
from sink.telemetry.harmless import harmless
from sink.telemetry.metrics import SinkMetrics


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
