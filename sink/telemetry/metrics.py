"""Prometheus metrics of a worker process, and of each sink in it.

Guarantee: counting never waits, reads nothing, writes nothing and raises nothing, so it can neither fail nor delay a
commit. Counters count the decisions and writes of this worker since its start: sum them over the fleet. A phase is
counted when the coordinator asks for it; a repeated request counts again.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, disable_created_metrics

from coordination.state.messages import Note
from coordination.state.model import LogView, Phase
from coordination.state.tree import KeeperView
from coordination.zookeeper.table_service_lock import WHOLE_RUN, ServiceOutcome, TableServiceRun
from sink.telemetry.backlog import last_commit
from sink.telemetry.exposition import Exposition
from sink.telemetry.harmless import harmless
from sink.telemetry.metric_families import Families
from sink.telemetry.partition_metrics import PartitionOffsets, partition_lines
from sink.telemetry.version import dependency_versions, sink_version

disable_created_metrics()  # type: ignore[no-untyped-call]
WAITS = ("kafka", "registry", "storage", "topic", "zookeeper")


class ProcessMetrics:
    """The registry of a process. `sink` returns the metrics of one sink. Any thread may call both classes."""

    def __init__(
        self, worker: str = "", clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        """`clock` returns monotonic seconds, `wall` Unix time."""
        self.worker = worker
        self.clock = clock
        self.wall = wall
        self._registry = CollectorRegistry()
        self.families = Families(self._registry)
        self._exposition = Exposition(self._registry)
        self._sinks: dict[str, SinkMetrics] = {}

    def sink(self, name: str) -> SinkMetrics:
        """Returns the metrics of a sink, which it creates if there are none."""
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
        """Returns the answer to `/metrics`."""
        sinks = list(self._sinks.values())
        for sink in sinks:
            sink.refresh()
        lines = [*self._exposition.texts(), *partition_lines([sink.offsets for sink in sinks])]
        return "".join(lines).encode()


class SinkMetrics:
    """The metrics of one sink. `note` takes the notes of the machines, the other methods the facts of the runtime."""

    def __init__(self, process: ProcessMetrics, sink: str) -> None:
        self._process = process
        self._families = process.families
        self._clock = process.clock
        self._sink = sink
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        self._phases: dict[int, tuple[Phase, float]] = {}
        self._opened: dict[int, tuple[float, int]] = {}
        self.retention_by_topic: Mapping[str, float] = {}
        """The last value of `retention`, in seconds; empty if this worker does not coordinate."""
        self._longest_holds: dict[str, float] = {}
        self.service_trouble = ""
        """The reason why this worker cannot run the table services; empty without one."""
        self._jvm_answered: Callable[[], float] | None = None
        self._is_away: Mapping[str, Callable[[], bool]] = {}
        self._waiting: set[str] = set()
        self.offsets = PartitionOffsets(sink, process.wall)
        self._begin()

    def _begin(self) -> None:
        """Creates the series that every worker has from the start."""
        families, versions = self._families, dependency_versions()
        self._child(
            families.build_info,
            self._process.worker,
            sink_version(),
            platform.python_version(),
            versions.get("hudi", ""),
            versions.get("pyspark", ""),
        ).set(1)
        for family in (families.epoch, families.coordinator, families.refused, families.halted, families.paused):
            self._child(family).set(0)
        for counter in (families.records, families.bad_records, families.written_bytes):
            self._child(counter)
        for outcome in (Phase.COMMITTED, Phase.ABORTED):
            # Start at 0, so that the first transaction is an increase.
            self._child(families.outcomes, outcome.value)
        for wait in WAITS:
            self._child(families.waiting, wait).set(0)

    @harmless
    def clear(self) -> None:
        """Removes all series of the sink."""
        for family, labels in list(self._children):
            family.remove(self._sink, *labels)
        self._children.clear()
        self.offsets.clear()

    @harmless
    def configured(self, commit: float, service: float, open_transaction: float) -> None:
        """Takes the seconds after which each is a fault: a commit that waits, a service, an open Kafka transaction."""
        self._child(self._families.commit_allowance).set(commit)
        self._child(self._families.service_allowance).set(service)
        self._child(self._families.open_transaction_allowance).set(open_transaction)

    @harmless
    def note(self, note: Note) -> None:
        """Counts a note of a machine; ignores events without a metric."""
        fields = dict(note.fields)
        match note.event:
            case "coordinator.elected":
                self._child(self._families.epoch).set(fields["epoch"])
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
            case "log.compared":
                self._child(self._families.logs_compared, "same").inc(fields["partitions"])
                self._child(self._families.logs_compared, "no record").inc(fields["without_record"])

    @harmless
    def coordinating(self, is_coordinator: bool) -> None:
        """Sets whether this worker is the coordinator. Forgets the transactions of an earlier term."""
        self._child(self._families.coordinator).set(1 if is_coordinator else 0)
        self._phases.clear()
        self._opened.clear()
        if not is_coordinator:
            self.offsets.clear()
            for cause in ("kafka", "topic", "registry"):
                self.waits_for(cause, False)
            families = self._families
            for family in (families.workers, families.last_commit, families.instants):
                self._drop(family)
            self.retention({})

    @harmless
    def refused(self) -> None:
        """Records that this process cannot run the sink: its settings or its table cannot be used."""
        self._child(self._families.refused).set(1)
        self.waits_for("zookeeper", False)

    @harmless
    def halted(self, is_halted: bool) -> None:
        """Sets whether the tree records a halt, on every worker that takes part."""
        self._child(self._families.halted).set(1 if is_halted else 0)

    @harmless
    def paused(self, is_paused: bool) -> None:
        """Sets whether the tree records that an operator paused the sink."""
        self._child(self._families.paused).set(1 if is_paused else 0)

    @harmless
    def left(self) -> None:
        """Resets what the tree recorded: this worker has left, and does not read it any more."""
        for family in (self._families.halted, self._families.paused):
            self._child(family).set(0)

    @harmless
    def keeper(self, view: KeeperView) -> None:
        """Takes the coordinator's reading of the tree."""
        # A restarted worker is a member twice until its old session ends.
        self._child(self._families.workers).set(len({member.worker for member in view.members}))
        committed = last_commit(view)
        if committed is not None:
            self._child(self._families.last_commit).set(committed)
        self.offsets.read_tree(view)

    @harmless
    def log(self, view: LogView) -> None:
        """Takes the coordinator's reading of the log."""
        self.offsets.read_log(view.partitions)

    @harmless
    def retention(self, seconds: Mapping[str, float]) -> None:
        """Takes Kafka's retention in seconds, by topic, without topics whose retention is unlimited or unknown."""
        self.retention_by_topic = seconds
        self._show(self._families.retention_seconds, min(seconds.values(), default=None))

    @harmless
    def group_committed(self, outcome: str) -> None:
        """Counts a commit of offsets to the consumer group: `done` or `failed`."""
        self._child(self._families.group_commits, outcome).inc()

    @harmless
    def table(self, instants: int) -> None:
        """Takes the number of completed instants on the active timeline."""
        self._child(self._families.instants).set(instants)

    @harmless
    def table_files(self, files: int) -> None:
        """Takes the number of data files of the newest version of the table."""
        self._child(self._families.files).set(files)

    @harmless
    def audited(self, held: bool, at: float, compared: int) -> None:
        """Takes the outcome of the last audit, its end in Unix time, and of how many rows it compared the cells."""
        self._child(self._families.audit_compared).set(compared)
        self._child(self._families.audit_held).set(1 if held else 0)
        self._child(self._families.audit_time).set(at)

    @harmless
    def not_serving(self) -> None:
        """Drops the series of the table services: another worker runs them."""
        families = self._families
        audit = families.audit_time, families.audit_held, families.audit_compared
        for family in (families.files, *audit, families.catalog_failures):
            self._drop(family)
        self.services(TableServiceRun())

    @harmless
    def wrote(self, size: int) -> None:
        """Counts the bytes of a participant's data files."""
        self._child(self._families.written_bytes).inc(size)

    @harmless
    def served(self, service: ServiceOutcome) -> None:
        """Counts a table service that has ended: `done`, `idle` (nothing to do) or `failed`."""
        outcome = "failed" if service.reason else "done" if service.instant else "idle"
        self._child(self._families.services, service.name, outcome).inc()
        self._child(self._families.service_seconds, service.name).observe(service.seconds)

    @harmless
    def services(self, run: TableServiceRun) -> None:
        """Takes the record of the table services: which have failed, and since when each is due."""
        self.service_trouble = ""
        failed = {service.name: 1.0 if service.reason else 0.0 for service in run.services}
        self._show_each(self._families.service_failed, failed)
        self._show_each(self._families.service_due, run.due_since)

    @harmless
    def services_interrupted(self, trouble: str) -> None:
        """Takes what keeps this worker from running the table services, until it reads their record or serves."""
        self.service_trouble = trouble
        self._show_each(self._families.service_failed, {WHOLE_RUN: 1.0})

    @harmless
    def lock_held(self, purpose: str, seconds: float) -> None:
        """Counts a hold of the table lock that has ended."""
        self._child(self._families.lock_seconds, purpose).observe(seconds)
        longest = self._longest_holds[purpose] = max(seconds, self._longest_holds.get(purpose, 0.0))
        self._child(self._families.lock_longest, purpose).set(longest)

    @harmless
    def registered(self, failures: int, seconds: float) -> None:
        """Counts a registration in the catalogue that has ended; `failures` in a row, this one included."""
        self._child(self._families.registrations, "failed" if failures else "done").inc()
        self._child(self._families.catalog_failures).set(failures)
        self._child(self._families.catalog_seconds).observe(seconds)

    @harmless
    def waits_for(self, cause: str, is_waiting: bool) -> None:
        """Sets whether this worker waits for `cause`, one of `WAITS`."""
        if is_waiting:
            self._waiting.add(cause)
        else:
            self._waiting.discard(cause)
        self._set_waiting(cause, is_waiting)

    def watch(self, jvm_answered: Callable[[], float], is_away: Mapping[str, Callable[[], bool]]) -> None:
        """Takes callables for each scrape. `jvm_answered` returns the time of the JVM's last sign of life, in monotonic
        seconds; those of `is_away`, for some of `WAITS`, return whether requests fail for it."""
        self._jvm_answered, self._is_away = jvm_answered, is_away

    def refresh(self) -> None:
        """Computes the figures that change with time, before a scrape."""
        families = self._families
        self._child(families.worker_time).set(self._process.wall())
        if self._jvm_answered is not None:
            self._child(families.jvm_silent).set(max(self._clock() - self._jvm_answered(), 0.0))
        for cause, is_away in self._is_away.items():
            self._set_waiting(cause, cause in self._waiting or is_away())
        if not self.offsets.is_known:
            self._drop(families.freshness)
            self._drop(families.retention_left)
            self._drop(families.open_transaction)
            return
        self._child(families.open_transaction).set(self.offsets.open_transaction_seconds())
        self._child(families.freshness).set(self.offsets.freshness())
        retention = self.retention_by_topic
        seconds_left = [retention[topic] - age for topic, age in self.offsets.ages(retention)]
        self._show(families.retention_left, min(seconds_left, default=None))

    def _child(self, family: Any, *labels: str) -> Any:
        """Returns the sink's child of the family, which it creates if there is none."""
        key = (family, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(self._sink, *labels)
        return child

    def _drop(self, family: Any, *labels: str) -> None:
        if self._children.pop((family, labels), None) is not None:
            family.remove(self._sink, *labels)

    def _show(self, family: Any, value: float | None) -> None:
        """Sets the sink's child of the family; None drops it."""
        if value is None:
            self._drop(family)
        else:
            self._child(family).set(value)

    def _show_each(self, family: Any, values: Mapping[str, float]) -> None:
        """Sets the sink's children of a family with one label, and drops those without a value."""
        for child_family, labels in list(self._children):
            if child_family is family and labels[0] not in values:
                self._drop(family, *labels)
        for label, value in values.items():
            self._child(family, label).set(value)

    def _set_waiting(self, cause: str, is_waiting: bool) -> None:
        self._child(self._families.waiting, cause).set(1 if is_waiting else 0)

    def _enter(self, number: int, phase: Phase) -> None:
        self._leave(number)
        self._phases[number] = phase, self._clock()
        self._child(self._families.phases, phase.value).inc()

    def _leave(self, number: int) -> None:
        if number in self._phases:
            phase, since = self._phases.pop(number)
            self._child(self._families.phase_seconds, phase.value).observe(self._clock() - since)

    def _end(self, number: int, outcome: str, records: int, errors: int) -> None:
        self._leave(number)
        self._child(self._families.outcomes, outcome).inc()
        opened_at, attempt = self._opened.pop(number, (None, 0))
        if opened_at is not None:
            self._child(self._families.transaction_seconds, outcome).observe(self._clock() - opened_at)
        if outcome == Phase.COMMITTED.value:
            self._child(self._families.records).inc(records)
            self._child(self._families.bad_records).inc(errors)
            if opened_at is not None:
                self._child(self._families.attempts).observe(attempt)
