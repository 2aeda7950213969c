"""Prometheus metrics of a worker process, and of each sink in it, served on loopback; port 0 serves none.

Guarantee: counting never waits, reads nothing, writes nothing and raises nothing, so it can neither fail nor delay
a commit.
Counters tell what this worker decided or wrote, from when it started: sum them over the fleet. A phase is
counted when the coordinator asks for it; a request that has to be repeated counts again. Errors: ConfigError
when the port cannot be used.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, disable_created_metrics

from coordination.state.messages import Note
from coordination.state.model import LogView, Phase
from coordination.state.tree import KeeperView, Summary
from coordination.zookeeper.table_service_lock import Service
from sink.telemetry.exposition import Exposition, MetricsServer
from sink.telemetry.harmless import harmless
from sink.telemetry.metric_families import OLD_NAMES, Families
from sink.telemetry.partition_metrics import PartitionOffsets, partition_lines
from sink.telemetry.version import parts, sink_version

LOOPBACK = "127.0.0.1"
disable_created_metrics()  # type: ignore[no-untyped-call]
WAITS = ("kafka", "registry", "storage", "topic", "zookeeper")


class ProcessMetrics:
    """One registry a process. `sink` gives the metrics of one sink; both can be called from any thread."""

    def __init__(
        self, worker: str = "", clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives monotonic seconds, `wall` Unix time."""
        self.worker = worker
        self.clock = clock
        self.wall = wall
        self._registry = CollectorRegistry()
        self.families = Families(self._registry)
        self._exposition = Exposition(self._registry, OLD_NAMES)
        self._sinks: dict[str, SinkMetrics] = {}
        self._server: MetricsServer | None = None

    def sink(self, name: str) -> SinkMetrics:
        """Makes the metrics of a sink, or gives those that there are."""
        if name not in self._sinks:
            self._sinks[name] = SinkMetrics(self, name)
        return self._sinks[name]

    def remove(self, name: str) -> None:
        """Ends the series of a sink that this process no longer hosts."""
        metrics = self._sinks.pop(name, None)
        if metrics is not None:
            metrics.clear()
            self._exposition.forget()

    def text(self) -> bytes:
        """Gives the answer to `/metrics`."""
        sinks = list(self._sinks.values())
        for sink in sinks:
            sink.refresh()
        lines = [*self._exposition.texts(), *partition_lines([sink.offsets for sink in sinks])]
        return "".join(lines).encode()

    def serve(self, port: int) -> int | None:
        """Serves on loopback until `close`. Returns the port; None when `port` is 0."""
        if port == 0:
            return None
        self._server = MetricsServer(LOOPBACK, port, self.text)
        return port

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


class SinkMetrics:
    """`note` takes what the machines say; the other methods take what only the shell knows."""

    def __init__(self, process: ProcessMetrics, sink: str) -> None:
        self._process = process
        self._families = process.families
        self._clock = process.clock
        self._sink = sink
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        self._phases: dict[int, tuple[Phase, float]] = {}
        self._opened: dict[int, tuple[float, int]] = {}
        self._retention: Mapping[str, float] = {}
        self._jvm_answered: Callable[[], float] | None = None
        self._is_away: Mapping[str, Callable[[], bool]] = {}
        self._waiting: set[str] = set()
        self.offsets = PartitionOffsets(sink, process.clock)
        self._begin()

    def _begin(self) -> None:
        """Makes the series that every worker has from the start."""
        families, versions = self._families, parts()
        self._of(
            families.build_info,
            self._process.worker,
            sink_version(),
            platform.python_version(),
            versions.get("hudi", ""),
            versions.get("pyspark", ""),
        ).set(1)
        for family in (families.epoch, families.coordinator, families.refused, families.halted, families.paused):
            self._of(family).set(0)
        for counter in (families.records, families.bad_records, families.written_bytes):
            self._of(counter)
        for outcome in (Phase.COMMITTED, Phase.ABORTED):
            # From 0, so that the first one is an increase.
            self._of(families.outcomes, outcome.value)
        for wait in WAITS:
            self._of(families.waiting, wait).set(0)

    def clear(self) -> None:
        """Takes all series of the sink away."""
        for family, labels in list(self._children):
            family.remove(self._sink, *labels)
        self._children.clear()
        self.offsets.clear()

    def configured(self, interval: float, write_deadline: float) -> None:
        """Takes seconds from the settings."""
        self._of(self._families.commit_allowance).set(max(3 * interval, write_deadline))

    @harmless
    def note(self, note: Note) -> None:
        """Counts what a machine notes; passes over events of no interest here."""
        fields = dict(note.fields)
        match note.event:
            case "coordinator.elected":
                self._of(self._families.epoch).set(fields["epoch"])
                self.coordinating(True)
            case "transaction.opened":
                self._opened[fields["transaction"]] = self._clock(), fields["attempt"]
                self._enter(fields["transaction"], Phase.PLANNED)
            case "transaction.entered":
                self._enter(fields["transaction"], Phase(fields["phase"]))
            case "transaction.aborted":
                self._enter(fields["transaction"], Phase.ABORTED)
            case "transaction.ended":
                self._end(fields["transaction"], fields["outcome"], fields["records"], fields["errors"])

    @harmless
    def coordinating(self, now: bool) -> None:
        """Takes whether this worker is the coordinator. Transactions of an earlier term are no longer its own."""
        self._of(self._families.coordinator).set(1 if now else 0)
        self._phases.clear()
        self._opened.clear()
        if not now:
            self.offsets.clear()
            self._waits("kafka", False)
            self._waits("topic", False)
            self._waits("registry", False)
            families = self._families
            for family in (families.workers, families.last_commit, families.instants):
                self._drop(family)
            self.retention({})

    @harmless
    def refused(self) -> None:
        """Shows that this process cannot run the sink: its settings or its table cannot be used."""
        self._of(self._families.refused).set(1)
        self.waits_for("zookeeper", False)

    @harmless
    def halted(self, now: bool) -> None:
        """Sets whether the tree records a halt, on every worker."""
        self._of(self._families.halted).set(1 if now else 0)

    @harmless
    def paused(self, now: bool) -> None:
        """Sets whether the tree records that an operator paused the sink."""
        self._of(self._families.paused).set(1 if now else 0)

    @harmless
    def keeper(self, view: KeeperView) -> None:
        """Takes the coordinator's reading of the tree."""
        # Until its old session ends, a worker that died and has started again is a member twice.
        self._of(self._families.workers).set(len({member.worker for member in view.members}))
        last = _last_commit(view)
        if last is not None:
            self._of(self._families.last_commit).set(max(last.times.values(), default=0.0))
        self.offsets.read_states(view.states, self._planned_at(last))

    @harmless
    def log(self, view: LogView) -> None:
        """Takes the coordinator's reading of the log: what is readable there."""
        self.offsets.read_log(view.partitions)

    @property
    def retention_by_topic(self) -> Mapping[str, float]:
        """In seconds, as `retention` was told last; empty where this worker does not coordinate."""
        return self._retention

    @harmless
    def retention(self, seconds: Mapping[str, float]) -> None:
        """Takes how long Kafka keeps a record, by topic; without topics whose retention is unlimited or unknown."""
        self._retention = seconds
        if seconds:
            self._of(self._families.retention_seconds).set(min(seconds.values()))
        else:
            self._drop(self._families.retention_seconds)

    @harmless
    def group_committed(self, outcome: str) -> None:
        """Counts a commit of offsets to the consumer group: `done` or `failed`."""
        self._of(self._families.group_commits, outcome).inc()

    @harmless
    def table(self, instants: int) -> None:
        """Takes the number of completed instants on the active timeline."""
        self._of(self._families.instants).set(instants)

    def table_files(self, files: int) -> None:
        """Takes the number of data files of the newest version of the table."""
        self._of(self._families.files).set(files)

    def audited(self, held: bool, at: float) -> None:
        """Takes the last audit: whether it held, and when it ended, in Unix time."""
        self._of(self._families.audit_held).set(1 if held else 0)
        self._of(self._families.audit_time).set(at)

    def not_serving(self) -> None:
        """Drops the series of the table services: another worker runs them."""
        families = self._families
        for family in (families.files, families.audit_time, families.audit_held, families.catalog_failures):
            self._drop(family)
        for family, labels in list(self._children):
            if family is families.service_failed:
                self._drop(family, *labels)

    @harmless
    def wrote(self, size: int) -> None:
        """Counts the bytes of a participant's data files."""
        self._of(self._families.written_bytes).inc(size)

    @harmless
    def served(self, service: Service) -> None:
        """Counts a table service that has ended: `done`, `idle` (nothing to do) or `failed`."""
        outcome = "failed" if service.reason else "done" if service.instant else "idle"
        self._of(self._families.services, service.name, outcome).inc()
        self._of(self._families.service_seconds, service.name).observe(service.seconds)
        self._of(self._families.service_failed, service.name).set(1 if service.reason else 0)
        self._of(self._families.last_service_seconds, service.name).set(service.seconds)

    @harmless
    def registered(self, failures: int, seconds: float) -> None:
        """Counts a registration in the catalogue that has ended; `failures` in a row, this one included."""
        self._of(self._families.registrations, "failed" if failures else "done").inc()
        self._of(self._families.catalog_failures).set(failures)
        self._of(self._families.catalog_seconds).observe(seconds)
        self._of(self._families.last_catalog_seconds).set(seconds)

    @harmless
    def waits_for(self, what: str, now: bool) -> None:
        """Takes whether this worker waits for one of `WAITS`."""
        if now:
            self._waiting.add(what)
        else:
            self._waiting.discard(what)
        self._waits(what, now)

    def watch(self, jvm_answered: Callable[[], float], is_away: Mapping[str, Callable[[], bool]]) -> None:
        """`jvm_answered` tells when the JVM gave its last sign of life, in monotonic seconds; `is_away`, of some of
        `WAITS`, whether requests fail for it. All are asked at each scrape."""
        self._jvm_answered, self._is_away = jvm_answered, is_away

    def refresh(self) -> None:
        """Computes figures that change by themselves, before a scrape."""
        families = self._families
        self._of(families.worker_time).set(self._process.wall())
        if self._jvm_answered is not None:
            self._of(families.jvm_silent).set(max(self._clock() - self._jvm_answered(), 0.0))
        for what, is_away in self._is_away.items():
            self._waits(what, what in self._waiting or is_away())
        if not self.offsets.is_known:
            self._drop(families.freshness)
            self._drop(families.retention_left)
            return
        freshness = self.offsets.freshness()
        self._of(families.freshness).set(freshness)
        waiting = self.offsets.waiting_topics() if self._retention else ()
        left = [self._retention[topic] - freshness for topic in waiting if topic in self._retention]
        if left:
            self._of(families.retention_left).set(min(left))
        else:
            self._drop(families.retention_left)

    def _of(self, family: Any, *labels: str) -> Any:
        """The sink's child of that family."""
        key = (family, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(self._sink, *labels)
        return child

    def _drop(self, family: Any, *labels: str) -> None:
        if self._children.pop((family, labels), None) is not None:
            family.remove(self._sink, *labels)

    def _waits(self, what: str, now: bool) -> None:
        self._of(self._families.waiting, what).set(1 if now else 0)

    def _planned_at(self, last: Summary | None) -> float | None:
        """When that transaction was planned, by the monotonic clock."""
        planned = None if last is None else last.times.get(Phase.PLANNED.value)
        return None if planned is None else self._clock() - max(self._process.wall() - planned, 0.0)

    def _enter(self, number: int, phase: Phase) -> None:
        self._leave(number)
        self._phases[number] = phase, self._clock()
        self._of(self._families.phases, phase.value).inc()

    def _leave(self, number: int) -> None:
        if number in self._phases:
            phase, since = self._phases.pop(number)
            self._of(self._families.phase_seconds, phase.value).observe(self._clock() - since)

    def _end(self, number: int, outcome: str, records: int, errors: int) -> None:
        self._leave(number)
        self._of(self._families.outcomes, outcome).inc()
        opened_at, attempt = self._opened.pop(number, (None, 0))
        if opened_at is not None:
            self._of(self._families.transaction_seconds, outcome).observe(self._clock() - opened_at)
        if outcome == Phase.COMMITTED.value:
            self._of(self._families.records).inc(records)
            self._of(self._families.bad_records).inc(errors)
            if opened_at is not None:
                self._of(self._families.attempts).observe(attempt)


def _last_commit(view: KeeperView) -> Summary | None:
    """The newest one that committed, among the last transactions."""
    history = view.ledger.history
    return next((summary for summary in reversed(history) if summary.outcome == Phase.COMMITTED.value), None)
