"""Tells the fleet what this process hosts, and hands coordinators over to workers that carry less.

Guarantee: no commit waits for it, and nothing fails with it. A hand-over is `sink switchover`: open transactions are
finished first. Raises nothing.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Mapping

import structlog
from kazoo.client import KazooClient

from coordination.errors import OtherVersion, SinkError
from coordination.zookeeper.worker_records import HostedRecord, OwnWorkerRecord, WorkerRecord, worker_records
from sink.config import ProcessSettings
from sink.operations.control import SinkControl
from sink.runtime.sink import AILING_SECONDS, Sink, SinkState
from sink.runtime.spreading import to_hand_over, weight
from sink.telemetry.version import sink_version

LOG = structlog.get_logger("sink.worker")
SPREAD_SECONDS = 0.5
"""From one hand-over to the next: each costs another worker a takeover."""
SETTLE_SECONDS = 5.0
"""A worker that has just joined some of its sinks has so much time to join the others."""
FORGET_SECONDS = 60.0
"""A hand-over that has not happened by then is requested again."""
REASON_CHARACTERS = 300


class Presence:
    """`poll` is called every second or so, never twice at once. `sinks` and `misconfigured` are the process's own
    mappings; the latter says why sinks of its configuration cannot be made.
    """

    def __init__(
        self,
        process: ProcessSettings,
        client: KazooClient,
        sinks: Mapping[str, Sink],
        misconfigured: Mapping[str, str],
        is_draining: Callable[[], bool],
    ) -> None:
        self._worker = process.worker_id
        self._client = client
        self._sinks = sinks
        self._misconfigured = misconfigured
        self._is_draining = is_draining
        self._root = process.zookeeper_root
        self._own_record = OwnWorkerRecord(client, process.zookeeper_root, process.worker_id)
        self._published: tuple[WorkerRecord, object] | None = None
        self._joined_at = time.monotonic()
        self._handed_over: dict[str, float] = {}
        self._ailed: dict[str, float] = {}
        """When each sink's coordinator here was kept from its work last."""

    def poll(self) -> None:
        try:
            self._publish()
            self._spread()
        except SinkError as error:
            LOG.debug("presence.not_told", reason=str(error))

    def forget(self) -> None:
        """Removes the record at the end of the process, while its session still lives."""
        try:
            if self._client.connected:
                self._own_record.forget()
        except SinkError as error:
            LOG.debug("presence.not_told", reason=str(error))

    def _publish(self) -> None:
        if self._published is None and self._has_touched_nothing():
            return
        record = self._record()
        # The record is gone with its session.
        published = record, self._client.client_id
        if published != self._published and self._client.connected:
            self._own_record.publish(record)
            if self._published is None or record.joined != self._published[0].joined:
                self._joined_at = time.monotonic()
            self._published = published

    def _has_touched_nothing(self) -> bool:
        """Whether each sink here is still looked at, or belongs to another version: such a process leaves no record."""
        states = [isinstance(s.refusal, OtherVersion) or s.state is SinkState.OPENING for s in self._sinks.values()]
        return bool(states) and all(states)

    def _spread(self) -> None:
        now = time.monotonic()
        self._handed_over = {
            name: asked_at
            for name, asked_at in self._handed_over.items()
            if now - asked_at < FORGET_SECONDS and name in self._sinks and self._sinks[name].leads
        }
        if len(self._sinks) < 2 or (now - self._joined_at < SETTLE_SECONDS and not self._handed_over):
            return
        if any(now - asked_at < SPREAD_SECONDS for asked_at in self._handed_over.values()):
            return
        name = to_hand_over(self._worker, worker_records(self._client, self._root), self._handed_over)
        if name is None or name not in self._sinks:
            return
        self._handed_over[name] = now
        SinkControl(self._sinks[name].settings, self._client, f"worker {self._worker}").switchover()
        LOG.info("coordinator.handed_over", sink=name, reason="another worker leads fewer sinks")

    def _record(self) -> WorkerRecord:
        now = time.monotonic()
        hosted = {
            name: HostedRecord(SinkState.REFUSED.value, leads=False, reason=reason[:REASON_CHARACTERS])
            for name, reason in tuple(self._misconfigured.items())
        }
        for name, sink in sorted(self._sinks.items()):
            if sink.leads and sink.is_ailing:
                self._ailed[name] = now
            ails = now - self._ailed.get(name, -math.inf) < AILING_SECONDS
            reason = sink.reason[:REASON_CHARACTERS]
            sink_weight = weight(sink.settings.interval_ms / 1000)
            hosted[name] = HostedRecord(sink.state.value, sink.leads, reason, ails, sink_weight)
        draining = self._is_draining()
        return WorkerRecord(self._worker, socket.gethostname(), os.getpid(), sink_version(), draining, hosted)
