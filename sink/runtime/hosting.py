"""Keeps the sinks of a process: begins those of its configuration and of its patterns, lets go of removed ones, and
reports refused ones.

Guarantee: a sink that is refused, or whose settings cannot be used, leaves the others as they were. `require_a_sink`
raises SinkError when no sink can run; nothing else raises. One thread calls all methods but `session_changed`; others
may read `sinks` and `misconfigured`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from coordination.errors import ConfigError, SinkError
from sink.config import Fleet, Settings, load_fleet
from sink.runtime.discovery import TopicDiscovery
from sink.runtime.reloading import changes_of
from sink.runtime.sink import DRAIN_SECONDS, Sink
from sink.telemetry.logs import hide
from sink.telemetry.metrics import ProcessMetrics

LOG = structlog.get_logger("sink.worker")
CLOSE_SECONDS = 10.0


class HostedSinks:
    """The sinks of one process. `new_sink` makes a sink from its settings; it is started here. `on_refused` gets each
    sink that runs no longer, with the reason.
    """

    def __init__(
        self,
        fleet: Fleet,
        discovery: TopicDiscovery,
        metrics: ProcessMetrics,
        new_sink: Callable[[Settings], Sink],
        on_refused: Callable[[str, SinkError], None],
    ) -> None:
        self.fleet = fleet
        """The configuration that the process has."""
        self.sinks: dict[str, Sink] = {}
        self.misconfigured: dict[str, str] = {}
        """Why sinks of the configuration cannot be made, by name."""
        self._discovery = discovery
        self._metrics = metrics
        self._new_sink = new_sink
        self._on_refused = on_refused
        self._leaving: list[Sink] = []
        self._reported: dict[str, SinkError] = {}
        """The refusal of each sink that was reported last."""

    def begin(self) -> None:
        """Begins the sinks that are configured."""
        self.begin_missing()
        self._report_misconfigured(self.fleet.misconfigured_here)

    def begin_missing(self) -> None:
        """Begins the sinks that this worker hosts and does not run: those that were configured or discovered since. A
        sink whose predecessor still drains waits for its end. The topic of a misconfigured sink is no pattern's.
        """
        draining = {sink.settings.name for sink in self._leaving}
        discovered = {settings.name: settings for settings in self._discovery.sinks}
        configured = {settings.name: settings for settings in self.fleet.sinks}
        for name, settings in {**discovered, **configured}.items():
            if name in self.sinks or name in draining or not self.fleet.hosts(name):
                continue
            if name not in configured:
                unusable = self.fleet.misconfigured.values()
                if any(sink.claims(topic, settings) for sink in unusable for topic in settings.topics):
                    continue
                LOG.info("discovery.sink", sink=name, topics=list(settings.topics))
            hide(settings.secrets)
            self.sinks[name] = self._new_sink(settings)
            self.sinks[name].start()

    def _report_misconfigured(self, misconfigured: Mapping[str, str]) -> None:
        """Reports sinks that cannot be made from the configuration. A running one goes on as it was."""
        for name in tuple(self.misconfigured):
            del self.misconfigured[name]
            self._metrics.remove(name)
        for name, reason in misconfigured.items():
            if name not in self.sinks:
                self.misconfigured[name] = reason
                self._metrics.sink(name).refused()
                LOG.error("sink.refused", sink=name, reason=reason)

    def _release(self, sink: Sink) -> None:
        """Drains the sink in a thread of its own; the process goes on meanwhile."""
        del self.sinks[sink.settings.name]
        self._leaving.append(sink)
        sink.leave()

    def forget_released(self) -> None:
        for sink in [sink for sink in self._leaving if sink.ended.is_set()]:
            self._leaving.remove(sink)
            self._metrics.remove(sink.settings.name)
            LOG.info("sink.released", sink=sink.settings.name)

    def reload(self) -> None:
        """Takes up new sinks and lets go of removed ones; refused ones begin again. A configuration that cannot be used
        changes nothing.
        """
        try:
            fleet = load_fleet(self.fleet.path, strict=False)
        except ConfigError as error:
            LOG.error("reload.refused", reason=str(error))
            return
        for name in self._refusals():
            del self.sinks[name]
            self._metrics.remove(name)
        running = {name: sink.settings for name, sink in self.sinks.items()}
        changes = changes_of(self.fleet, fleet, running, self._discovery.sinks)
        for name in changes.removed:
            self._release(self.sinks[name])
        self._report_misconfigured(fleet.misconfigured_here)
        self.fleet = changes.fleet
        self._discovery.update_fleet(self.fleet)
        for name, reason in changes.refused.items():
            LOG.error("reload.sink_refused", sink=name, reason=reason)
        if changes.process:
            LOG.error("reload.process_refused", settings=list(changes.process), action="restart the worker for them")
        LOG.info("reload.done", added=list(changes.added), removed=list(changes.removed))

    def drain(self) -> None:
        """Drains all sinks side by side."""
        LOG.info("worker.draining")
        deadline = time.monotonic() + DRAIN_SECONDS
        sinks = [*self.sinks.values(), *self._leaving]
        with ThreadPoolExecutor(max(1, len(sinks)), "draining") as draining:
            list(draining.map(lambda sink: sink.drain(DRAIN_SECONDS), sinks))
        for sink in sinks:
            sink.ended.wait(max(CLOSE_SECONDS, deadline - time.monotonic()))

    def require_a_sink(self) -> None:
        """Reports each refusal once. Raises SinkError when every sink was refused or is misconfigured, none drains, and
        no other one can come.
        """
        refusals = self._refusals()
        can_go_on = bool(self._leaving or self.fleet.patterns)
        if self.fleet.is_one_sink and refusals and not can_go_on:
            raise next(iter(refusals.values()))
        for name, error in refusals.items():
            if self._reported.get(name) is not error:
                self._reported[name] = error
                self._metrics.sink(name).refused()
                LOG.error("sink.refused", sink=name, reason=str(error))
                self._on_refused(name, error)
        everything = {**self.misconfigured, **refusals}
        if everything and len(refusals) == len(self.sinks) and not can_go_on:
            raise ConfigError(
                "no sink can run:\n" + "\n".join(f"{name}: {problem}" for name, problem in everything.items())
            )

    def _refusals(self) -> dict[str, SinkError]:
        return {name: sink.refusal for name, sink in self.sinks.items() if sink.refusal is not None}

    def have_left(self) -> bool:
        """Whether an operator has asked this worker to leave, and no sink of it runs any more."""
        sinks = self.sinks.values()
        return all(sink.ended.is_set() for sink in sinks) and any(sink.is_asked_to_drain for sink in sinks)

    def session_changed(self, state: str) -> None:
        for sink in (*tuple(self.sinks.values()), *self._leaving):
            sink.session_changed(state)
