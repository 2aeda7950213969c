"""Keeps the sinks of a process: begins those of its configuration and of its patterns, lets go of removed ones, and
reports refused ones.

Guarantee: a sink that is refused, or whose settings cannot be used, leaves the others as they were. `require_a_sink`
raises SinkError when no sink can run; nothing else raises. One thread calls all methods but `session_changed`; others
may read `sinks` and `misconfigured`. `changes_of` compares two configurations, and is pure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import structlog

from coordination.errors import ConfigError, SinkError
from sink.config import Configuration, ProcessSettings, Settings, load_configuration
from sink.runtime.process.discovery import TopicDiscovery
from sink.runtime.sinks.sink import DRAIN_SECONDS, Sink
from sink.storage.access import schemes_of
from sink.telemetry.logs import ContextThread, hide
from sink.telemetry.metrics import ProcessMetrics

LOG = structlog.get_logger("sink.worker")
CLOSE_SECONDS = 10.0
STEP_SECONDS = 0.2
"""The most that beginning new sinks, or letting go of removed ones, may keep the main loop; the rest follows."""


@dataclass(frozen=True)
class FleetChanges:
    """`fleet` is the configuration that the process has from now on: the new one, without the refused changes."""

    fleet: Configuration
    added: tuple[str, ...]
    removed: tuple[str, ...]
    refused: Mapping[str, str]
    """By sink, why its change is not taken up."""
    process: tuple[str, ...]
    """Names of the process's settings that have changed, and need a restart."""


_MISSING = "it is missing, but a part of the configuration cannot be used. Fix that part, and reload again."


def changes_of(
    old: Configuration, new: Configuration, running: Mapping[str, Settings], discovered: Sequence[Settings] = ()
) -> FleetChanges:
    """Compares two configurations. `running`: the sinks of the process; `discovered`: those of topics that match a
    pattern, hosted or not.

    A sink that is hosted before and after keeps the settings it has: another configuration of the same sink would be
    refused by its fleet, and one that only this worker has would hold for half of its threads. While a part of the new
    configuration cannot be used, no sink is removed: that part may be it.
    """
    process = tuple(
        field.alias or name
        for name, field in ProcessSettings.model_fields.items()
        if name != "hosted" and getattr(old.process, name) != getattr(new.process, name)
    )
    configured_before = {settings.name for settings in old.sinks}
    of_patterns = {settings.name: settings for settings in discovered if settings.name not in configured_before}
    hosted_after = {name: settings for name, settings in of_patterns.items() if new.hosts(name)}
    hosted_after |= {settings.name: settings for settings in new.hosted}
    removed = running.keys() - hosted_after.keys()
    kept_names = set(filter(new.hosts, removed)) if new.misconfigured else set()
    refused = {name: new.misconfigured[name].reason if name in new.misconfigured else _MISSING for name in kept_names}
    for name in running.keys() & hosted_after.keys():
        changed = _changed(running[name], hosted_after[name])
        if changed:
            refused[name] = (
                f"{', '.join(changed)} may not change while the sink runs. Undo it, or stop all workers of the sink and"
                " start them again."
            )
    if [pattern.definition for pattern in new.patterns] != [pattern.definition for pattern in old.patterns]:
        refused["patterns"] = "patterns of topics may not change while the worker runs. Restart it for them."
    reachable = schemes_of(path for settings in old.all_settings for path in settings.base_paths)
    added = [name for name in hosted_after if name not in running]
    unreachable = {
        name: unknown for name in added if (unknown := schemes_of(hosted_after[name].base_paths) - reachable)
    }
    for name, unknown in unreachable.items():
        refused[name] = (
            f"this process was started without the jars of {', '.join(sorted(unknown))}://. Restart the worker."
        )
    # An unreachable sink is new to the next reload, too. The running sink of a pattern stays that.
    left_out = {*unreachable, *(running.keys() & of_patterns.keys())}
    sinks = tuple(running.get(settings.name, settings) for settings in new.sinks if settings.name not in left_out)
    sinks += tuple(running[name] for name in sorted(kept_names))
    hosted = old.process.model_copy(update={"hosted": new.process.hosted})
    return FleetChanges(
        replace(new, process=hosted, sinks=sinks, patterns=old.patterns),
        tuple(name for name in added if name not in unreachable),
        tuple(sorted(removed - kept_names)),
        dict(sorted(refused.items())),
        process,
    )


def _changed(before: Settings, after: Settings) -> tuple[str, ...]:
    """Returns the names of the sink's own settings that differ."""
    return tuple(
        field.alias or name
        for name, field in Settings.model_fields.items()
        if name not in ProcessSettings.model_fields and getattr(before, name) != getattr(after, name)
    )


class HostedSinks:
    """The sinks of one process. `new_sink` makes a sink from its settings; it is started here. `on_refused` gets each
    sink that runs no longer, with the reason.
    """

    def __init__(
        self,
        fleet: Configuration,
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
        self.has_more = False
        """Whether sinks are still to be begun or let go."""
        self._removed: list[Sink] = []
        """Sinks that are no longer configured, to be let go."""
        self._loading: Future[Configuration] | None = None

    def begin(self) -> None:
        """Begins the sinks that are configured."""
        self.begin_missing(math.inf)
        self._report_misconfigured(self.fleet.misconfigured_here)

    def begin_missing(self, seconds: float = STEP_SECONDS) -> None:
        """Lets go of removed sinks, and begins the sinks that this worker hosts and does not run: those that were
        configured or discovered since. A sink whose predecessor still drains waits for its end. The topic of a
        misconfigured sink is not a pattern's. What it has not reached after `seconds` follows with the next call.
        """
        deadline = time.monotonic() + seconds
        self._release_removed(deadline)
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
            if time.monotonic() >= deadline:
                self.has_more = True
                return
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

    def _release_removed(self, deadline: float) -> None:
        while self._removed and time.monotonic() < deadline:
            self._release(self._removed.pop())
        self.has_more = bool(self._removed)

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

    @property
    def is_reloading(self) -> bool:
        return self._loading is not None

    def reload(self) -> None:
        """Begins to read the configuration again, in a thread of its own: a thousand sinks take seconds."""
        loading: Future[Configuration] = Future()

        def load() -> None:
            try:
                loading.set_result(load_configuration(self.fleet.path, strict=False))
            except BaseException as error:  # noqa: BLE001 (the future raises it again)
                loading.set_exception(error)

        self._loading = loading
        ContextThread(target=load, name="reload", daemon=True).start()

    def take_up_reload(self) -> None:
        """Takes up new sinks and lets go of removed ones, once the configuration has been read; refused ones begin
        again. A configuration that cannot be used changes nothing.
        """
        if self._loading is None or not self._loading.done():
            return
        loading, self._loading = self._loading, None
        try:
            fleet = loading.result(0)
        except ConfigError as error:
            LOG.error("reload.refused", reason=str(error))
            return
        for name in self._refusals():
            del self.sinks[name]
            self._metrics.remove(name)
        running = {name: sink.settings for name, sink in self.sinks.items()}
        changes = changes_of(self.fleet, fleet, running, self._discovery.sinks)
        self._removed = [self.sinks[name] for name in changes.removed]
        self._release_removed(time.monotonic() + STEP_SECONDS)
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
        can_go_on = bool(self._leaving or self.fleet.patterns or self.has_more)
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
        has_left = all(sink.ended.is_set() for sink in sinks) and any(sink.is_asked_to_drain for sink in sinks)
        return has_left and not self.has_more

    def session_changed(self, state: str) -> None:
        for sink in (*tuple(self.sinks.values()), *self._leaving):
            sink.session_changed(state)
