"""Tells the fleet what this process hosts, and hands coordinators over to workers that carry less.

Guarantee: no commit waits for it, and nothing fails with it. A hand-over is `sink switchover`: open transactions are
finished first. An idle worker reads the small summaries of the others once a minute, and writes nothing. A change of
one worker costs each other worker a small summary, at most once in `PUBLISH_SECONDS`. Raises nothing.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog
from kazoo.client import KazooClient

from coordination.errors import OtherVersion, SinkError
from coordination.zookeeper.worker_records import HostedRecord, OwnWorkerRecord, WorkerRecord
from coordination.zookeeper.worker_summaries import WorkerSummaries, WorkerSummary
from sink.config import ProcessSettings
from sink.operations.control import SinkControl
from sink.runtime.sinks.life import SinkState
from sink.runtime.sinks.sink import Sink
from sink.runtime.turns.spreading import IMPAIRED_SECONDS, summary_of, to_hand_over, weight
from sink.telemetry.version import sink_version

LOG = structlog.get_logger("sink.worker")
PUBLISH_SECONDS = 1.0
"""From one change that is published to the next: while a worker opens its sinks, every other one reads each change."""
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
        self._own_record = OwnWorkerRecord(client, process.zookeeper_root, process.worker_id)
        self._own_summary: WorkerSummary | None = None
        self._revision = self._joined_revision = 0
        self._own_joined: frozenset[str] = frozenset()
        self.fleet = WorkerSummaries(client, process.zookeeper_root)
        self._record = WorkerRecord(process.worker_id, socket.gethostname(), os.getpid(), sink_version(), False, {})
        self._published: tuple[WorkerRecord, object] | None = None
        self._published_at = -math.inf
        self._joined_at = time.monotonic()
        self._handed_over: dict[str, float] = {}
        self._considered: object = None
        """The facts behind the last decision to hand nothing over."""
        self._impaired_at: dict[str, float] = {}
        """When each sink's coordinator here was kept from its work last."""

    def poll(self) -> None:
        if not self._client.connected:
            return
        try:
            self.fleet.refresh()
            self._publish()
            self._spread()
        except SinkError as error:
            LOG.debug("presence.not_told", reason=str(error))

    def forget(self) -> None:
        """Removes the record at the end of the process, while its session still lives."""
        try:
            if self._client.connected:
                self.fleet.forget(self._own_record.name)
                self._own_record.forget()
        except SinkError as error:
            LOG.debug("presence.not_told", reason=str(error))

    def _publish(self) -> None:
        if self._published is None and self._has_touched_nothing():
            return
        self._update_record()
        now, before = time.monotonic(), self._published
        # The record is gone with its session.
        published = self._record, self._client.client_id
        is_urgent = before is None or before[1] != published[1] or before[0].draining != self._record.draining
        if not is_urgent and now - self._published_at < PUBLISH_SECONDS:
            return
        name = self._own_record.name
        # A session that has ended may take the znodes along after the next one has written them.
        is_missing = not self.fleet.holds(name)
        if published != before or is_missing:
            self._published_at = now
            self._own_record.publish(self._record)
            self._revision += 1
            if self._own_joined != self._record.joined or is_missing:
                self._own_joined = self._record.joined
                self._joined_revision += 1
            if before is None or self._record.joined != before[0].joined:
                self._joined_at = now
        others = [summary for key, summary in self.fleet.by_name.items() if key != name]
        summary = summary_of(self._record, others, self._revision, self._joined_revision)
        if summary != self._own_summary:
            self._published_at = now
            self.fleet.publish(name, summary)
            self._own_summary = summary
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
        name = self._to_hand_over()
        if name is None or name not in self._sinks:
            return
        self._handed_over[name] = now
        SinkControl(self._sinks[name].observed, self._client, f"worker {self._worker}").switchover()
        LOG.info("coordinator.handed_over", sink=name, reason="another worker leads fewer sinks")

    def _to_hand_over(self) -> str | None:
        """Decides again only if something has changed since it last handed nothing over."""
        summaries = dict(self.fleet.by_name)
        inputs = self._record, summaries, frozenset(self._handed_over)
        if inputs == self._considered:
            return None
        name = to_hand_over(self._record, summaries, self._handed_over, self.fleet.joined_by)
        self._considered = inputs if name is None else None
        return name

    def _update_record(self) -> None:
        """Notes the sinks of this process. A sink that has not changed keeps its part of the record."""
        now, before = time.monotonic(), self._record.sinks
        hosted = {
            name: HostedRecord(SinkState.REFUSED.value, leads=False, reason=reason[:REASON_CHARACTERS])
            for name, reason in tuple(self._misconfigured.items())
        }
        for name, sink in tuple(self._sinks.items()):
            leads = sink.leads
            if leads and sink.is_impaired:
                self._impaired_at[name] = now
            is_impaired = name in self._impaired_at and now - self._impaired_at[name] < IMPAIRED_SECONDS
            sink_weight = weight(sink.settings.interval_ms / 1000)
            fields = sink.state.value, leads, sink.reason[:REASON_CHARACTERS], is_impaired, sink_weight
            last = before.get(name)
            is_same = last is not None and fields == (last.state, last.leads, last.reason, last.impaired, last.weight)
            hosted[name] = last if last is not None and is_same else HostedRecord(*fields)
        draining = self._is_draining()
        if draining != self._record.draining or hosted != before:
            self._record = replace(self._record, draining=draining, sinks=hosted)
