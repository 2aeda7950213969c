"""What the HTTP server is told of this process: whether it is alive, takes part and leads, and which sinks it hosts.

The worker fills it in as it comes up. Guarantee: every question is answered at once, from what this process knows.
Raises nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from sink.config import Settings
from sink.http.facts import HostedSink, RecentLog, Verb
from sink.runtime.incarnation import Incarnation
from sink.runtime.jvm_watchdog import JvmWatchdog
from sink.runtime.notes import Observer

ACTOR_SECONDS = 20.0
"""A machine comes round once a second; the process ends itself after a minute of silence."""


class ProcessFacts:
    """Implements `sink.http.facts.WorkerFacts` for a process with one sink."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hosted: tuple[HostedSink, ...] = ()
        self.watchdog: JvmWatchdog | None = None
        self.observer: Observer | None = None
        self.membership: Incarnation | None = None
        """The one that has joined and has not ended."""
        self.draining = False
        self.waits_for = ""
        """What the worker waits for before it can join, with the reason."""

    @property
    def worker(self) -> str:
        return self._settings.worker_id

    @property
    def registries(self) -> Sequence[CollectorRegistry]:
        return () if self.observer is None else (self.observer.metrics.registry,)

    @property
    def sinks(self) -> Sequence[HostedSink]:
        return self._hosted

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {}

    def hosts(self, client: KazooClient, log: RecentLog) -> None:
        """From now on the sink can be looked at."""
        self._hosted = (HostedSink(self._settings, client, log),)

    def liveness(self) -> Sequence[str]:
        now, reasons = time.monotonic(), []
        jvm_seconds = self._settings.session_timeout_ms / 2000
        if self.watchdog is not None and now - self.watchdog.answered > jvm_seconds:
            reasons.append(f"the JVM has not answered for {now - self.watchdog.answered:.0f} s")
        membership = self.membership
        if membership is not None and now - membership.last_heartbeat() > ACTOR_SECONDS:
            reasons.append(f"a machine has been silent for {now - membership.last_heartbeat():.0f} s")
        return reasons

    def readiness(self) -> Sequence[str]:
        if self.draining:
            return ("it drains",)
        if self.membership is None or self.membership.ended:
            return (self.waits_for or "it has not joined the fleet yet",)
        return ()

    def leads(self, sink: str) -> bool:
        return sink == self._settings.name and self.membership is not None and self.membership.leads

    def troubles(self, _sink: str) -> Sequence[str]:
        troubles = [self.waits_for] if self.waits_for else []
        if self.observer is not None and self.observer.storage.trouble:
            troubles.append(self.observer.storage.trouble)
        return troubles
