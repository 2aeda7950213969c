"""Every Prometheus metric except those of partitions: name, unit, labels.

Names follow Prometheus' conventions: the prefix `sink_`, the unit in the name, `_total` for a counter, `_seconds` for a
duration, `_timestamp_seconds` for a moment. Each metric has a `sink` label: one process may host many sinks.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PHASE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TRANSACTION_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
SERVICE_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
ATTEMPTS = (1, 2, 3, 4, 6, 10)


class Families:
    """The metrics of a process. The first label of each is the sink."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.labels: dict[str, tuple[str, ...]] = {}
        """The other labels, by the metric's name."""
        self._worker()
        self._coordinator()
        self._transactions()
        self._table()

    def _worker(self) -> None:
        self.build_info = self._gauge(
            "sink_build_info", "1, with the versions of this worker", "worker", "version", "python", "hudi", "pyspark"
        )
        self.worker_time = self._gauge(
            "sink_worker_time_seconds", "Unix time by this worker's clock: Prometheus compares it with its own"
        )
        self.jvm_silent = self._gauge("sink_jvm_silent_seconds", "For how long this worker's JVM has given no answer")
        self.waiting = self._gauge(
            "sink_waiting", "1 while this worker waits for it: kafka, registry, storage, topic, zookeeper", "for"
        )
        self.refused = self._gauge(
            "sink_refused",
            "1 where this worker cannot use its settings of the sink, or the table; see `sink status`",
        )
        self.halted = self._gauge("sink_halted", "1 while the sink is halted; see `sink status`")
        self.paused = self._gauge("sink_paused", "1 while an operator has paused the sink")
        self.written_bytes = self._counter("sink_written_bytes", "Bytes of data files written by this participant")

    def _coordinator(self) -> None:
        self.epoch = self._gauge("sink_epoch", "Epoch of this worker's newest term")
        self.coordinator = self._gauge("sink_coordinator", "1 while this worker coordinates the sink")
        self.workers = self._gauge("sink_workers", "Live workers of the fleet, as the coordinator sees them")
        self.last_commit = self._gauge(
            "sink_last_commit_timestamp_seconds", "Unix time of the newest commit that the coordinator knows of"
        )
        self.commit_allowance = self._gauge(
            "sink_commit_allowance_seconds",
            "How long a commit may take: the longer of three intervals and `coordinator.writestatus.timeout`",
        )
        self.freshness = self._gauge(
            "sink_freshness_seconds",
            "For how long the oldest record that has not landed has been known to wait; after a takeover from its plan",
        )
        self.open_transaction = self._gauge(
            "sink_open_transaction_seconds",
            "For how long an open Kafka transaction has been seen that holds records back; 0 without any",
        )
        self.open_transaction_allowance = self._gauge(
            "sink_open_transaction_allowance_seconds", "After how long an open Kafka transaction is a fault"
        )
        self.retention_left = self._gauge(
            "sink_retention_left_seconds", "Time until Kafka's retention deletes the oldest record that has not landed"
        )
        self.retention_seconds = self._gauge(
            "sink_retention_seconds", "How long Kafka keeps a record of the sink's topics, the shortest of them"
        )
        self.group_commits = self._counter(
            "sink_group_offset_commits", "Commits of offsets to the consumer group: `done`, `failed`", "outcome"
        )

    def _transactions(self) -> None:
        self.records = self._counter("sink_records", "Records committed by this coordinator")
        self.bad_records = self._counter("sink_bad_records", "Bad records that this coordinator's commits left aside")
        self.logs_compared = self._counter(
            "sink_logs_compared",
            "Partitions whose log was compared with the record that was read last: `same`, or `no record` there",
            "outcome",
        )
        self.phases = self._counter("sink_transactions", "Transactions by phase entered", "phase")
        self.outcomes = self._counter("sink_transactions_ended", "Transactions ended: COMMITTED, ABORTED", "outcome")
        self.phase_seconds = self._histogram(
            "sink_transaction_phase_duration_seconds", "Time in a phase", PHASE_SECONDS, "phase"
        )
        self.transaction_seconds = self._histogram(
            "sink_transaction_duration_seconds",
            "From planning a transaction to its end",
            TRANSACTION_SECONDS,
            "outcome",
        )
        self.attempts = self._histogram("sink_transaction_attempts", "Attempts that a committed batch took", ATTEMPTS)

    def _table(self) -> None:
        self.services = self._counter(
            "sink_table_services", "Table services of this worker: `done`, `idle` or `failed`", "service", "outcome"
        )
        self.service_seconds = self._histogram(
            "sink_table_service_duration_seconds", "How long a table service took", SERVICE_SECONDS, "service"
        )
        self.service_failed = self._gauge(
            "sink_table_service_failed",
            "1 if the last run of the table service failed; `table` is all of them, where none could begin",
            "service",
        )
        self.service_due = self._gauge(
            "sink_table_service_due_timestamp_seconds",
            "Unix time since when the table service has been due and has not succeeded; absent if it is not due",
            "service",
        )
        self.service_allowance = self._gauge(
            "sink_table_service_allowance_seconds", "How long a table service may be due without success"
        )
        self.lock_seconds = self._histogram(
            "sink_table_lock_held_seconds",
            "How long this worker held the table lock, by purpose",
            PHASE_SECONDS,
            "for",
        )
        self.lock_longest = self._gauge(
            "sink_table_lock_longest_seconds", "The longest of these since the worker's start", "for"
        )
        self.registrations = self._counter("sink_catalog_syncs", "Registrations in the catalogue", "outcome")
        self.catalog_failures = self._gauge("sink_catalog_failures", "Registrations that failed in a row")
        self.catalog_seconds = self._histogram(
            "sink_catalog_sync_duration_seconds", "How long a registration took", SERVICE_SECONDS
        )
        self.instants = self._gauge(
            "sink_table_instants", "Completed instants on the table's active timeline, as the coordinator saw them last"
        )
        self.files = self._gauge(
            "sink_table_files", "Data files that readers of the table open, as the table services saw them last"
        )
        self.audit_time = self._gauge(
            "sink_audit_timestamp_seconds", "Unix time of the last `sink audit`, on the worker with the table services"
        )
        self.audit_compared = self._gauge("sink_audit_compared_rows", "Rows whose cells the last `sink audit` compared")
        self.audit_held = self._gauge("sink_audit_held", "1 if the last `sink audit` held, 0 if it did not")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, self._all(name, labels), registry=self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, self._all(name, labels), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, self._all(name, labels), buckets=buckets, registry=self._registry)

    def _all(self, name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        self.labels[name] = labels
        return ("sink", *labels)
