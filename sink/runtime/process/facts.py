"""Tells the HTTP server of this process: whether it is alive, takes part and leads, and which sinks it hosts.

Guarantee: every question is answered at once, from what this process knows. Raises nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kazoo.client import KazooClient

from sink.clients.kafka.shared_log import SharedLog
from sink.config import ProcessSettings, Settings
from sink.http.facts import HostedSink, Verb
from sink.http.table_process import TableQuestion
from sink.operations.control import VERBS
from sink.runtime.sinks.life import SinkState
from sink.runtime.sinks.sink import Sink
from sink.runtime.watches.jvm_watchdog import JvmWatchdog
from sink.telemetry.metrics import ProcessMetrics

ACTOR_SECONDS = 20.0
"""A machine is stepped once a second or more often; the process ends itself after a minute of silence."""


class ProcessFacts:
    """Implements `sink.http.facts.WorkerFacts`. `sinks` and `misconfigured` are the process's own mappings, which
    change as sinks come and go.
    """

    def __init__(
        self,
        process: ProcessSettings,
        sinks: Mapping[str, Sink],
        misconfigured: Mapping[str, str],
        metrics: ProcessMetrics,
    ) -> None:
        self._settings = process
        self._sinks = sinks
        self._misconfigured = misconfigured
        self._metrics = metrics
        self._client: KazooClient | None = None
        self._log: Callable[[Settings], SharedLog] | None = None
        self.watchdog: JvmWatchdog | None = None
        self.draining = False

    @property
    def worker(self) -> str:
        return self._settings.worker_id

    @property
    def sinks(self) -> Sequence[HostedSink]:
        client, log = self._client, self._log
        if client is None or log is None:
            return ()
        return tuple(
            HostedSink(
                sink.observed,
                client,
                log(sink.settings),
                partial(table_question, sink.settings),
                sink.leads,
                sink.retention,
                self._troubles(sink),
            )
            for sink in tuple(self._sinks.values())
        )

    def _troubles(self, sink: Sink) -> tuple[str, ...]:
        services = self._metrics.sink(sink.settings.name).service_trouble
        return (*sink.troubles, services) if services else sink.troubles

    @property
    def misconfigured(self) -> Mapping[str, str]:
        return dict(self._misconfigured)

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return VERBS

    def publish_sinks(self, client: KazooClient, log: Callable[[Settings], SharedLog]) -> None:
        """Makes the sinks visible. `log` gives the log of a sink's Kafka cluster."""
        self._client, self._log = client, log

    def metrics(self) -> bytes:
        return self._metrics.text()

    def liveness(self) -> Sequence[str]:
        now, reasons = time.monotonic(), []
        jvm_seconds = self._settings.session_timeout_ms / 2000
        if self.watchdog is not None and now - self.watchdog.answered_at > jvm_seconds:
            reasons.append(f"the JVM has not answered for {now - self.watchdog.answered_at:.0f} s")
        for name, sink in tuple(self._sinks.items()):
            silent = now - sink.last_heartbeat()
            if silent > ACTOR_SECONDS:
                reasons.append(f"a machine of sink {name} has been silent for {silent:.0f} s")
        return reasons

    def readiness(self) -> Sequence[str]:
        if self.draining:
            return ("it drains",)
        sinks = tuple(self._sinks.values())
        if any(sink.state is SinkState.JOINED for sink in sinks):
            return ()
        reasons = [f"{sink.settings.name}: {sink.reason}" for sink in sinks if sink.reason]
        return reasons or ["it has not joined the fleet yet"]


def table_question(settings: Settings) -> TableQuestion:
    return TableQuestion(settings.name, settings.base_path, settings.errors_base_path, settings.storage)
