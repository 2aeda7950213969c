"""Prometheus gets the machines' notes and readings, by sink, on loopback and nowhere else."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from coordination.state.messages import Note
from coordination.state.model import LogView, Member, OpenRange, PartitionLog, PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import KeeperView, Ledger, Summary
from coordination.zookeeper.table_service_lock import WHOLE_RUN, ServiceOutcome, TableServiceRun
from sink.telemetry.backlog import LOOKS
from sink.telemetry.metrics import ProcessMetrics, SinkMetrics


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def process(clock: Clock) -> ProcessMetrics:
    return ProcessMetrics("w1", clock, lambda: 1_000_000.0 + clock.now)


@pytest.fixture
def metrics(process: ProcessMetrics) -> SinkMetrics:
    return process.sink("orders")


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def send_note(metrics: SinkMetrics, event: str, **fields: Any) -> None:
    metrics.note(Note(event, tuple(fields.items())))


def samples(process: ProcessMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Returns the samples that Prometheus would read from `/metrics`."""
    families = text_string_to_metric_families(process.text().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(process: ProcessMetrics, name: str, **labels: str) -> float | None:
    return samples(process).get((name, frozenset({"sink": "orders", **labels}.items())))


def run_transaction(metrics: SinkMetrics, clock: Clock, number: int, *phases: str) -> None:
    """Runs a transaction: two seconds in PLANNED, three in each further phase."""
    send_note(metrics, "transaction.opened", transaction=number, batch=number, attempt=2, slices=2, offsets=9)
    clock.now += 2
    for phase in phases:
        send_note(metrics, "transaction.entered", transaction=number, phase=phase, instant="1")
        clock.now += 3


def empty_view() -> KeeperView:
    return TreeReader().read({})


def states(**ends: int) -> dict[TopicPartition, PartitionState]:
    return {TopicPartition("orders", int(n[1:])): PartitionState("id", 0, end, 0) for n, end in ends.items()}


def log(start: int = 0, **ends: int) -> LogView:
    return LogView("c", {TopicPartition("orders", int(n[1:])): PartitionLog("id", start, e) for n, e in ends.items()})


def committed(at: float, planned: float) -> Ledger:
    times: Mapping[str, float] = {"PLANNED": planned, "COMMITTED": at}
    return Ledger(7, 7, history=(Summary(7, 7, "COMMITTED", "1", 5, "", times),))


def test_a_committed_transaction_counts_its_phases_its_outcome_its_records_and_its_attempts(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    run_transaction(metrics, clock, 7, "STARTED", "PREPARED", "COMMITTED")
    send_note(metrics, "transaction.ended", transaction=7, outcome="COMMITTED", records=40, errors=2)
    for phase in ("PLANNED", "STARTED", "PREPARED", "COMMITTED"):
        assert value(process, "sink_transactions_total", phase=phase) == 1
    assert value(process, "sink_transactions_ended_total", outcome="COMMITTED") == 1
    assert value(process, "sink_records_total") == 40
    assert value(process, "sink_bad_records_total") == 2
    assert value(process, "sink_transaction_duration_seconds_sum", outcome="COMMITTED") == 2 + 3 * 3
    assert value(process, "sink_transaction_attempts_bucket", le="1.0") == 0
    assert value(process, "sink_transaction_attempts_bucket", le="2.0") == 1


def test_an_aborted_transaction_counts_no_records_and_no_attempt_of_a_commit(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    run_transaction(metrics, clock, 7, "STARTED")
    send_note(metrics, "transaction.aborted", transaction=7, attempt=1, reason="deadline")
    send_note(metrics, "transaction.ended", transaction=7, outcome="ABORTED", records=40, errors=2)
    assert value(process, "sink_transactions_total", phase="ABORTED") == 1
    assert value(process, "sink_transactions_ended_total", outcome="ABORTED") == 1
    assert value(process, "sink_records_total") == 0
    assert value(process, "sink_bad_records_total") == 0
    assert value(process, "sink_transaction_attempts_count") is None


def test_the_time_in_each_phase_is_kept_apart_for_transactions_in_flight(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    run_transaction(metrics, clock, 7, "STARTED")
    run_transaction(metrics, clock, 8, "STARTED", "PREPARED")
    send_note(metrics, "transaction.entered", transaction=7, phase="PREPARED", instant="1")
    name = "sink_transaction_phase_duration_seconds"
    assert value(process, f"{name}_sum", phase="PLANNED") == 4
    assert value(process, f"{name}_count", phase="STARTED") == 2
    assert value(process, f"{name}_sum", phase="STARTED") == 3 + 8 + 3


def test_an_election_sets_the_epoch_and_the_end_of_the_term_clears_only_the_role(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    send_note(metrics, "coordinator.elected", epoch=12)
    assert (value(process, "sink_epoch"), value(process, "sink_coordinator")) == (12, 1)
    metrics.coordinating(False)
    assert (value(process, "sink_epoch"), value(process, "sink_coordinator")) == (12, 0)


def test_a_transaction_of_an_earlier_term_is_not_timed_by_the_next(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    run_transaction(metrics, clock, 7, "STARTED")
    metrics.coordinating(False)
    clock.now += 1_000
    send_note(metrics, "coordinator.elected", epoch=13)
    send_note(metrics, "transaction.aborted", transaction=7, attempt=1, reason="epoch")
    send_note(metrics, "transaction.ended", transaction=7, outcome="ABORTED", records=0, errors=0)
    assert value(process, "sink_transaction_phase_duration_seconds_count", phase="STARTED") is None
    assert value(process, "sink_transaction_duration_seconds_count", outcome="ABORTED") is None


def test_a_halt_a_pause_and_the_bytes_written_show(process: ProcessMetrics, metrics: SinkMetrics) -> None:
    assert (value(process, "sink_halted"), value(process, "sink_paused")) == (0, 0)
    metrics.halted(True)
    metrics.paused(True)
    metrics.wrote(5)
    metrics.wrote(6)
    assert (value(process, "sink_halted"), value(process, "sink_paused")) == (1, 1)
    assert value(process, "sink_written_bytes_total") == 11
    metrics.halted(False)
    metrics.paused(False)
    assert (value(process, "sink_halted"), value(process, "sink_paused")) == (0, 0)


def test_a_sink_that_cannot_be_used_shows_and_waits_for_nothing(process: ProcessMetrics, metrics: SinkMetrics) -> None:
    assert value(process, "sink_refused") == 0
    metrics.refused()
    assert (value(process, "sink_refused"), value(process, "sink_waiting", **{"for": "zookeeper"})) == (1, 0)


def test_an_event_of_no_interest_changes_nothing(process: ProcessMetrics, metrics: SinkMetrics) -> None:
    before = process.text()
    send_note(metrics, "answer.dropped", request=3)
    assert process.text() == before


def test_each_partition_shows_its_offsets_and_its_lag_while_this_worker_coordinates(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    open_range = (OpenRange(20, 40, 3, 10, 0, 10),)
    recorded = {first: PartitionState("id", 0, 20, 0, open=open_range), second: PartitionState("id", 0, 50, 0)}
    metrics.keeper(replace(empty_view(), states=recorded))
    metrics.log(log(start=5, p0=50, p1=50, p2=50))

    def by_partition(name: str) -> list[float | None]:
        return [value(process, name, topic="orders", partition=str(n)) for n in range(3)]

    assert by_partition("sink_partition_lag_offsets") == [30, 0, 45]
    assert by_partition("sink_partition_committed_offset") == [20, 50, 5]
    assert by_partition("sink_partition_log_start_offset") == [5, 5, 5]
    assert by_partition("sink_partition_log_end_offset") == [50, 50, 50]
    metrics.coordinating(False)
    assert by_partition("sink_partition_lag_offsets") == [None] * 3


def test_an_open_kafka_transaction_shows_what_it_holds_back_and_for_how_long(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    source = TopicPartition("orders", 0)
    metrics.keeper(replace(empty_view(), states=states(p0=10)))

    def look(end: int, high_watermark: int) -> list[float | None]:
        metrics.log(LogView("c", {source: PartitionLog("id", 0, end, high_watermark)}))
        labels = {"topic": "orders", "partition": "0"}
        lags = [value(process, f"sink_partition_{name}_offsets", **labels) for name in ("lag", "held_back")]
        return [*lags, value(process, "sink_open_transaction_seconds"), value(process, "sink_freshness_seconds")]

    assert look(10, 10) == [0, 0, 0, 0]
    assert look(10, 40) == [30, 30, 0, 0]
    clock.now += 5
    assert look(10, 50) == [40, 40, 5, 0]
    # Another transaction holds what follows.
    assert look(45, 50) == [40, 5, 0, 0]
    assert look(50, 50) == [40, 0, 0, 0]
    metrics.coordinating(False)
    assert value(process, "sink_open_transaction_seconds") is None


def test_freshness_is_the_time_since_the_oldest_record_that_has_not_landed_was_seen(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    metrics.keeper(replace(empty_view(), states=states(p0=10, p1=10)))
    metrics.log(log(p0=10, p1=10))
    clock.now += 5
    assert value(process, "sink_freshness_seconds") == 0
    metrics.log(log(p0=12, p1=10))
    clock.now += 5
    metrics.log(log(p0=12, p1=30))
    clock.now += 1
    assert value(process, "sink_freshness_seconds") == 6
    metrics.keeper(replace(empty_view(), states=states(p0=12, p1=20)))
    assert value(process, "sink_freshness_seconds") == 1
    metrics.keeper(replace(empty_view(), states=states(p0=12, p1=30)))
    assert value(process, "sink_freshness_seconds") == 0


def test_freshness_remembers_the_oldest_through_a_thousand_looks_at_the_log(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    metrics.keeper(replace(empty_view(), states=states(p0=10)))
    for second in range(1000):
        metrics.log(log(p0=11 + second))
        clock.now += 1
    assert value(process, "sink_freshness_seconds") == 1000
    assert len(metrics.offsets._backlog._looks) <= LOOKS
    metrics.keeper(replace(empty_view(), states=states(p0=510)))
    freshness = value(process, "sink_freshness_seconds")
    assert freshness is not None
    assert 350 <= freshness <= 500, "thinned, and never older than it is"


def test_what_was_planned_before_a_takeover_waits_since_then(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    now = 1_000_000.0 + clock.now
    ledger = committed(at=now - 30, planned=now - 40)
    aborted = Summary(8, 8, "ABORTED", None, 0, "", {"PLANNED": now - 20, "ABORTED": now - 10})
    ledger = replace(ledger, history=(*ledger.history, aborted))
    metrics.keeper(replace(empty_view(), states=states(p0=10), ledger=ledger))
    metrics.log(log(p0=15))
    assert value(process, "sink_freshness_seconds") == 20
    assert value(process, "sink_last_commit_timestamp_seconds") == now - 30
    metrics.coordinating(False)
    assert value(process, "sink_freshness_seconds") is None
    assert value(process, "sink_last_commit_timestamp_seconds") is None


def test_a_record_that_a_new_coordinator_finds_in_a_quiet_topic_has_not_waited_since_the_last_commit(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    days = 5 * 86_400
    ledger = committed(at=1_000_000.0 + clock.now - days, planned=1_000_000.0 + clock.now - days)
    metrics.keeper(replace(empty_view(), states=states(p0=10), ledger=ledger))
    metrics.log(log(p0=11))
    clock.now += 3
    assert value(process, "sink_freshness_seconds") == 3


def test_a_topic_with_short_retention_is_at_no_risk_from_records_that_wait_in_another_topic(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    old, young = TopicPartition("old", 0), TopicPartition("young", 0)
    recorded = {partition: PartitionState("id", 0, 0, 0) for partition in (old, young)}
    metrics.keeper(replace(empty_view(), states=recorded))
    metrics.retention({"old": 100_000.0, "young": 600.0})
    metrics.log(LogView("c", {old: PartitionLog("id", 0, 1), young: PartitionLog("id", 0, 0)}))
    clock.now += 3000
    metrics.log(LogView("c", {old: PartitionLog("id", 0, 1), young: PartitionLog("id", 0, 0)}))
    clock.now += 5
    metrics.log(LogView("c", {old: PartitionLog("id", 0, 1), young: PartitionLog("id", 0, 9)}))
    assert value(process, "sink_retention_left_seconds") == 595


def test_retention_left_is_that_of_a_topic_that_waits(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    metrics.keeper(replace(empty_view(), states=states(p0=10)))
    metrics.log(log(p0=11))
    clock.now += 50
    assert value(process, "sink_retention_left_seconds") is None
    metrics.retention({"orders": 600.0, "other": 5.0})
    assert value(process, "sink_retention_left_seconds") == 550
    metrics.keeper(replace(empty_view(), states=states(p0=11)))
    assert value(process, "sink_retention_left_seconds") is None


def test_a_worker_that_has_started_again_counts_once_though_its_old_session_lives(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    members = tuple(Member(incarnation, "host", 1, "0.1") for incarnation in ("w1:a", "w2:b", "w2:c"))
    metrics.keeper(replace(empty_view(), members=members))
    assert value(process, "sink_workers") == 2


def test_the_allowances_of_a_commit_a_service_and_a_kafka_transaction_show(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    metrics.configured(300, 86_400, 900)
    assert value(process, "sink_commit_allowance_seconds") == 300
    assert value(process, "sink_table_service_allowance_seconds") == 86_400
    assert value(process, "sink_open_transaction_allowance_seconds") == 900


def test_a_scrape_asks_the_jvms_watchdog_the_watches_of_servers_and_the_clock(
    process: ProcessMetrics, metrics: SinkMetrics, clock: Clock
) -> None:
    faulty = False
    metrics.watch(lambda: 95.0, {"storage": lambda: faulty, "registry": lambda: faulty})
    clock.now = 102.0
    assert value(process, "sink_jvm_silent_seconds") == 7
    assert value(process, "sink_worker_time_seconds") == 1_000_102
    assert value(process, "sink_waiting", **{"for": "storage"}) == 0
    faulty = True
    assert value(process, "sink_waiting", **{"for": "storage"}) == 1
    assert value(process, "sink_waiting", **{"for": "registry"}) == 1
    faulty = False
    metrics.waits_for("storage", True)
    assert value(process, "sink_waiting", **{"for": "storage"}) == 1


@pytest.mark.parametrize("cause", ["kafka", "topic", "registry"])
def test_who_leads_no_more_waits_for_nothing_that_a_coordinator_waits_for(
    process: ProcessMetrics, metrics: SinkMetrics, cause: str
) -> None:
    metrics.watch(lambda: 95.0, dict.fromkeys(("storage", "registry"), lambda: False))
    metrics.coordinating(True)
    metrics.waits_for(cause, True)
    assert value(process, "sink_waiting", **{"for": cause}) == 1
    metrics.coordinating(False)
    assert value(process, "sink_waiting", **{"for": cause}) == 0


def test_services_registrations_files_instants_and_the_audit_show(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    metrics.served(ServiceOutcome("cleaning", 2.0, "2026"))
    metrics.served(ServiceOutcome("cleaning", 3.0, "", "no room"))
    metrics.registered(3, 0.5)
    metrics.table(17)
    metrics.table_files(4_000)
    metrics.audited(False, 77.0, 5)
    assert value(process, "sink_table_services_total", service="cleaning", outcome="done") == 1
    assert value(process, "sink_table_services_total", service="cleaning", outcome="failed") == 1
    assert value(process, "sink_table_service_duration_seconds_sum", service="cleaning") == 5
    assert value(process, "sink_catalog_failures") == 3
    assert value(process, "sink_table_instants") == 17
    assert value(process, "sink_table_files") == 4_000
    assert (value(process, "sink_audit_held"), value(process, "sink_audit_timestamp_seconds")) == (0, 77)


def test_the_longest_hold_of_the_table_lock_and_their_sum_show_by_what_it_was_held_for(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    for purpose, seconds in (("complete", 2.0), ("complete", 0.5), ("archiving", 9.0)):
        metrics.lock_held(purpose, seconds)
    held, longest = "sink_table_lock_held_seconds_sum", "sink_table_lock_longest_seconds"
    assert {p: value(process, held, **{"for": p}) for p in ("complete", "archiving")} == {
        "complete": 2.5,
        "archiving": 9,
    }
    assert {p: value(process, longest, **{"for": p}) for p in ("complete", "archiving")} == {
        "complete": 2,
        "archiving": 9,
    }


def service_series(process: ProcessMetrics, name: str) -> dict[str, float]:
    found = {
        dict(labels).get("service", ""): each for (sample, labels), each in samples(process).items() if sample == name
    }
    return dict(sorted(found.items()))


def test_which_services_have_failed_and_since_when_they_are_due_shows_until_they_succeed(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    failed, due = "sink_table_service_failed", "sink_table_service_due_timestamp_seconds"
    metrics.services(TableServiceRun("w", 9.0, 7, (ServiceOutcome(WHOLE_RUN, 0.0, "", "no Spark", 5.0),), 3.0))
    assert (service_series(process, failed), service_series(process, due)) == ({WHOLE_RUN: 1}, {WHOLE_RUN: 3})
    outcomes = (ServiceOutcome("archiving", 1.0), ServiceOutcome("cleaning", 1.0, "", "no room", 4.0))
    metrics.services(TableServiceRun("w", 9.0, 7, outcomes))
    assert service_series(process, failed) == {"archiving": 0, "cleaning": 1}
    assert service_series(process, due) == {"cleaning": 4}
    metrics.services_interrupted("no rights")
    assert (metrics.service_trouble, service_series(process, failed)) == ("no rights", {WHOLE_RUN: 1})
    metrics.not_serving()
    assert metrics.service_trouble == ""
    assert (service_series(process, failed), service_series(process, due)) == ({}, {})


def test_a_defect_in_counting_is_logged_and_goes_no_further(process: ProcessMetrics, metrics: SinkMetrics) -> None:
    with capture_logs() as lines:
        send_note(metrics, "transaction.opened")
        metrics.keeper(cast(KeeperView, None))
        metrics.log(cast(LogView, None))
    assert [line["method"] for line in lines if line["event"] == "metrics.failed"] == ["note", "keeper", "log"]


# `watch` keeps callables, `refresh` runs in the scrape's thread: neither can touch a commit.
UNCOUNTED = {"watch", "refresh"}
COUNTERS = sorted(name for name in vars(SinkMetrics) if not name.startswith("_") and name not in UNCOUNTED)


@pytest.mark.parametrize("method", COUNTERS)
def test_whatever_a_sink_counts_a_defect_goes_no_further(metrics: SinkMetrics, method: str) -> None:
    vars(metrics)["_families"] = vars(metrics)["_children"] = None
    with capture_logs() as lines:
        getattr(metrics, method)(*[None] * len(signature(getattr(metrics, method)).parameters))
    assert [line["method"] for line in lines] == [method]


def test_sinks_of_a_process_are_told_apart_and_one_that_goes_takes_its_series_along(
    process: ProcessMetrics, metrics: SinkMetrics
) -> None:
    payments = process.sink("payments")
    metrics.wrote(1)
    payments.wrote(2)
    payments.keeper(replace(empty_view(), states=states(p0=10)))
    payments.log(log(p0=11))
    assert value(process, "sink_written_bytes_total") == 1
    assert value(process, "sink_written_bytes_total", sink="payments") == 2
    assert process.sink("payments") is payments
    process.remove("payments")
    assert {dict(labels)["sink"] for _, labels in samples(process)} == {"orders"}
    process.remove("payments")


def test_every_sample_has_a_sink_and_every_name_its_unit(process: ProcessMetrics, metrics: SinkMetrics) -> None:
    test_services_registrations_files_instants_and_the_audit_show(process, metrics)
    assert [name for name, labels in samples(process) if "sink" not in dict(labels)] == []
    families = {family.name: family for family in text_string_to_metric_families(process.text().decode())}
    histograms = {name for name, family in families.items() if family.type == "histogram"}
    assert {name for name in histograms if not name.endswith("_seconds")} == {"sink_transaction_attempts"}
    assert all(re.fullmatch(r"sink(_[a-z]+)+", name) for name in families)


def test_labels_of_any_kind_can_be_read_back(process: ProcessMetrics) -> None:
    sink_name = 'a"b\\c\nd'
    process.sink(sink_name).log(log(p0=3))
    assert {dict(labels)["sink"] for _, labels in samples(process)} == {sink_name}
