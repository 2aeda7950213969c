"""Prometheus gets the machines' notes, on loopback and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from coordination.errors import ConfigError
from coordination.state.messages import Note
from coordination.state.model import LogView, OpenRange, PartitionLog, PartitionState, TopicPartition
from sink.telemetry.metrics import Metrics


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Iterator[Metrics]:
    metrics = Metrics("orders", clock)
    yield metrics
    metrics.close()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tell(metrics: Metrics, event: str, **fields: Any) -> None:
    metrics.note(Note(event, tuple(fields.items())))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"sink": "orders", **labels})


def run(metrics: Metrics, clock: Clock, number: int, *phases: str) -> None:
    """Two seconds in PLANNED, three in each further phase."""
    tell(metrics, "transaction.opened", transaction=number, batch=number, attempt=1, slices=2, offsets=9)
    clock.now += 2
    for phase in phases:
        tell(metrics, "transaction.entered", transaction=number, phase=phase, instant="1")
        clock.now += 3


def test_a_committed_transaction_counts_its_phases_its_outcome_and_its_records(metrics: Metrics, clock: Clock) -> None:
    run(metrics, clock, 7, "STARTED", "PREPARED", "COMMITTED")
    tell(metrics, "transaction.ended", transaction=7, outcome="COMMITTED", records=40, errors=2)
    for phase in ("PLANNED", "STARTED", "PREPARED", "COMMITTED"):
        assert value(metrics, "sink_transactions_total", phase=phase) == 1
    assert value(metrics, "sink_transactions_ended_total", outcome="COMMITTED") == 1
    assert value(metrics, "sink_records_total") == 40
    assert value(metrics, "sink_errors_total") == 2


def test_an_aborted_transaction_counts_no_records(metrics: Metrics, clock: Clock) -> None:
    run(metrics, clock, 7, "STARTED")
    tell(metrics, "transaction.aborted", transaction=7, attempt=1, reason="deadline")
    tell(metrics, "transaction.ended", transaction=7, outcome="ABORTED", records=40, errors=2)
    assert value(metrics, "sink_transactions_total", phase="ABORTED") == 1
    assert value(metrics, "sink_transactions_ended_total", outcome="ABORTED") == 1
    assert value(metrics, "sink_records_total") == 0
    assert value(metrics, "sink_errors_total") == 0


def test_the_time_in_each_phase_is_kept_apart_for_transactions_in_flight(metrics: Metrics, clock: Clock) -> None:
    run(metrics, clock, 7, "STARTED")
    run(metrics, clock, 8, "STARTED", "PREPARED")
    tell(metrics, "transaction.entered", transaction=7, phase="PREPARED", instant="1")
    assert value(metrics, "sink_phase_seconds_sum", phase="PLANNED") == 4
    assert value(metrics, "sink_phase_seconds_count", phase="STARTED") == 2
    assert value(metrics, "sink_phase_seconds_sum", phase="STARTED") == 3 + 8 + 3


def test_an_election_sets_the_epoch_and_the_end_of_the_term_clears_only_the_role(metrics: Metrics) -> None:
    tell(metrics, "coordinator.elected", epoch=12)
    assert (value(metrics, "sink_epoch"), value(metrics, "sink_coordinator")) == (12, 1)
    metrics.coordinating(False)
    assert (value(metrics, "sink_epoch"), value(metrics, "sink_coordinator")) == (12, 0)


def test_a_phase_of_an_earlier_term_is_not_timed_by_the_next(metrics: Metrics, clock: Clock) -> None:
    run(metrics, clock, 7, "STARTED")
    metrics.coordinating(False)
    clock.now += 1_000
    tell(metrics, "coordinator.elected", epoch=13)
    tell(metrics, "transaction.aborted", transaction=7, attempt=1, reason="epoch")
    assert value(metrics, "sink_phase_seconds_count", phase="STARTED") is None


def test_a_halt_and_the_bytes_written_show(metrics: Metrics) -> None:
    assert value(metrics, "sink_halted") == 0
    metrics.halted(True)
    metrics.wrote(5)
    metrics.wrote(6)
    assert (value(metrics, "sink_halted"), value(metrics, "sink_bytes_total")) == (1, 11)
    metrics.halted(False)
    assert value(metrics, "sink_halted") == 0


def test_an_event_of_no_interest_changes_nothing(metrics: Metrics) -> None:
    before = list(metrics.registry.collect())
    tell(metrics, "answer.dropped", request=3)
    assert list(metrics.registry.collect()) == before


def test_lag_counts_what_is_readable_but_not_after(metrics: Metrics) -> None:
    first, second, third = (TopicPartition("orders", number) for number in range(3))
    log = LogView("c", {source: PartitionLog("id", 5, 50) for source in (first, second, third)})
    states = {
        first: PartitionState("id", 0, 20, 0, open=(OpenRange(20, 40, 3, 10, 0),)),
        second: PartitionState("id", 0, 50, 0),
    }
    metrics.lag(states, log)
    assert [value(metrics, "sink_lag", topic="orders", partition=str(n)) for n in range(3)] == [30, 0, 45]
    metrics.coordinating(False)
    assert value(metrics, "sink_lag", topic="orders", partition="0") is None


def test_it_is_served_on_loopback_only_and_no_more_once_closed(metrics: Metrics, port: int) -> None:
    tell(metrics, "coordinator.elected", epoch=12)
    assert metrics.serve(port) == port
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert b'sink_epoch{sink="orders"} 12.0' in answer.read()
    listening = [
        place.laddr.ip
        for place in psutil.Process().net_connections("inet")
        if place.status == psutil.CONN_LISTEN and place.laddr.port == port
    ]
    assert listening == ["127.0.0.1"]
    metrics.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_port_0_serves_nothing(metrics: Metrics) -> None:
    assert metrics.serve(0) is None


def test_a_port_in_use_is_a_config_error_that_names_the_setting(metrics: Metrics, port: int) -> None:
    metrics.serve(port)
    with pytest.raises(ConfigError, match=f"metrics.port {port}"):
        Metrics("orders").serve(port)
