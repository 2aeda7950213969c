"""Prometheus metrics of one sink on one worker, served on loopback; port 0 serves none.

Guarantee: counting never waits, reads nothing and writes nothing, so it can neither fail nor delay a commit.
Counters tell what this worker decided or wrote, from when it started: sum them over the fleet. A phase is
counted when the coordinator asks for it; a request that has to be repeated counts again. Errors: ConfigError
when the port cannot be used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from coordination.errors import ConfigError
from coordination.state.messages import Note
from coordination.state.model import LogView, PartitionState, Phase, TopicPartition
from coordination.zookeeper.table_service_lock import Service

LOOPBACK = "127.0.0.1"
PHASE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """`note` takes what the machines say; the other methods take what only the shell knows."""

    def __init__(self, sink: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry = CollectorRegistry()
        self._clock = clock
        self._sink = sink
        self._entered: dict[int, tuple[Phase, float]] = {}
        self._server: tuple[WSGIServer, Thread] | None = None
        by_sink = ("sink",)
        self._epoch = Gauge("sink_epoch", "Epoch of this worker's newest term", by_sink, registry=registry).labels(sink)
        self._coordinator = Gauge(
            "sink_coordinator", "1 while this worker coordinates the sink", by_sink, registry=registry
        ).labels(sink)
        self._halted = Gauge(
            "sink_halted", "1 while the sink is halted; see `sink status`", by_sink, registry=registry
        ).labels(sink)
        self._records = Counter(
            "sink_records", "Records committed by this coordinator", by_sink, registry=registry
        ).labels(sink)
        self._errors = Counter(
            "sink_errors", "Bad records that this coordinator's commits left aside", by_sink, registry=registry
        ).labels(sink)
        self._bytes = Counter(
            "sink_bytes", "Bytes of data files written by this participant", by_sink, registry=registry
        ).labels(sink)
        self._phases = Counter(
            "sink_transactions", "Transactions by phase entered", ("sink", "phase"), registry=registry
        )
        self._outcomes = Counter(
            "sink_transactions_ended", "Transactions by outcome", ("sink", "outcome"), registry=registry
        )
        self._seconds = Histogram(
            "sink_phase_seconds",
            "Time in a phase",
            ("sink", "phase"),
            buckets=PHASE_SECONDS,
            registry=registry,
        )
        self._services = Counter(
            "sink_services", "Table services run by this worker", ("sink", "service", "outcome"), registry=registry
        )
        self._service_seconds = Gauge(
            "sink_services_seconds", "How long a table service took last", ("sink", "service"), registry=registry
        )
        self._registrations = Counter(
            "sink_catalog_syncs", "Registrations in the catalogue", ("sink", "outcome"), registry=registry
        )
        self._catalog_failures = Gauge(
            "sink_catalog_failures", "Registrations that failed in a row", by_sink, registry=registry
        )
        self._catalog_seconds = Gauge(
            "sink_catalog_seconds", "How long the last registration took", by_sink, registry=registry
        )
        self._lag = Gauge(
            "sink_lag", "Readable offsets not AFTER yet", ("sink", "topic", "partition"), registry=registry
        )

    def serve(self, port: int) -> int | None:
        """Serve on loopback until `close`. Returns the port; None when `port` is 0."""
        if port == 0:
            return None
        try:
            self._server = start_http_server(port, LOOPBACK, self.registry)
        except OSError as error:
            raise ConfigError(
                f"metrics.port {port} cannot be used on {LOOPBACK} ({error.strerror}); "
                "choose another one for each worker of a host, or 0 for none"
            ) from error
        return port

    def close(self) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None

    def note(self, note: Note) -> None:
        """Count what a machine notes; events of no interest here are passed over."""
        fields = dict(note.fields)
        match note.event:
            case "coordinator.elected":
                self._epoch.set(fields["epoch"])
                self.coordinating(True)
            case "transaction.opened":
                self._enter(fields["transaction"], Phase.PLANNED)
            case "transaction.entered":
                self._enter(fields["transaction"], Phase(fields["phase"]))
            case "transaction.aborted":
                self._enter(fields["transaction"], Phase.ABORTED)
            case "transaction.ended":
                self._end(fields["transaction"], fields["outcome"], fields["records"], fields["errors"])

    def coordinating(self, now: bool) -> None:
        """Whether this worker is the coordinator. Transactions of an earlier term are no longer its own."""
        self._coordinator.set(1 if now else 0)
        self._entered.clear()
        if not now:
            # Nobody here looks at the log any more: no figure is better than an old one.
            self._lag.clear()

    def halted(self, now: bool) -> None:
        """Sets whether the tree records a halt, on every worker."""
        self._halted.set(1 if now else 0)

    def wrote(self, size: int) -> None:
        """A participant's data files: their bytes."""
        self._bytes.inc(size)

    def served(self, service: Service) -> None:
        """A table service has ended: `done`, `idle` (nothing to do) or `failed`."""
        outcome = "failed" if service.reason else "done" if service.instant else "idle"
        self._services.labels(self._sink, service.name, outcome).inc()
        self._service_seconds.labels(self._sink, service.name).set(service.seconds)

    def registered(self, failures: int, seconds: float) -> None:
        """A registration in the catalogue has ended; `failures` in a row, this one included."""
        self._registrations.labels(self._sink, "failed" if failures else "done").inc()
        self._catalog_failures.labels(self._sink).set(failures)
        self._catalog_seconds.labels(self._sink).set(seconds)

    def lag(self, states: Mapping[TopicPartition, PartitionState], log: LogView) -> None:
        """From a view of the log and the states recorded then: what is readable, but not AFTER yet."""
        for source, seen in log.partitions.items():
            state = states.get(source)
            landed = seen.start if state is None else state.end
            gauge = self._lag.labels(self._sink, source.topic, source.partition)
            gauge.set(max(seen.end - landed, 0))

    def _enter(self, number: int, phase: Phase) -> None:
        self._leave(number)
        self._entered[number] = phase, self._clock()
        self._phases.labels(self._sink, phase.value).inc()

    def _leave(self, number: int) -> None:
        if number in self._entered:
            phase, since = self._entered.pop(number)
            self._seconds.labels(self._sink, phase.value).observe(self._clock() - since)

    def _end(self, number: int, outcome: str, records: int, errors: int) -> None:
        self._leave(number)
        self._outcomes.labels(self._sink, outcome).inc()
        if outcome == Phase.COMMITTED.value:
            self._records.inc(records)
            self._errors.inc(errors)
