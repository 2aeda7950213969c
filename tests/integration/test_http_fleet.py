"""A worker tells of the fleet as ZooKeeper has it: sinks, workers that come and go, and unreadable znodes."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import Unavailable
from coordination.state import tree
from coordination.state.model import Member, WorkerState
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.devtools.local.servers import free_ports
from sink.http.fleet import REREAD_SECONDS
from tests.http_fleet import SinkTree, SyntheticFleet
from tests.http_kit import Client
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
_roots = itertools.count()


@pytest.fixture
def served(tmp_path: Path, zookeeper) -> Iterator[tuple[SyntheticFleet, Client]]:
    root = f"/http-{os.getpid()}-{next(_roots)}"
    [port] = free_ports(1)
    with SyntheticFleet(tmp_path, zookeeper.address, port, zookeeper__root=root) as fleet:
        yield fleet, Client("127.0.0.1", port)


def notes(client: Client, sink: str) -> list[str]:
    return [note["kind"] for note in client.ask("/health").json["sinks"][sink]["notes"]]


def status(client: Client, sink: str) -> Any:
    return client.ask(f"/status?sink={sink}").json["sinks"][0]


def drain(orders: SinkTree, incarnation: str) -> None:
    """Drains and leaves in one breath, as a worker does."""
    digest = orders.settings.config_digest
    orders.keeper.join(Member(incarnation, "host", 1, "0.1.0", WorkerState.DRAINING, config=digest))
    orders.keeper.leave(incarnation)


def test_a_worker_that_drains_is_no_news_however_fast_and_one_that_vanishes_is(served) -> None:
    fleet, client = served
    orders = fleet.add("orders", 1, ["w1", "w2", "w3"])
    members = {member.worker: member.incarnation for member in orders.keeper.read().members}
    client.wait("/health", 200)
    drain(orders, members["w1"])
    eventually("w1 is gone", lambda: [m["worker"] for m in status(client, "orders")["members"]] == ["w2", "w3"])
    assert notes(client, "orders") == []
    orders.keeper.leave(members["w3"])
    eventually("it is told", lambda: notes(client, "orders") == ["worker-gone"])
    orders.join("w3")
    eventually("it is back", lambda: notes(client, "orders") == [])


def test_one_sink_that_cannot_be_read_hides_no_other(served) -> None:
    fleet, client = served
    orders, clicks = fleet.add("orders", 1), fleet.add("clicks", 1)
    clicks.produce(5)
    client.wait("/health", 200)
    fleet.client.set(f"{orders.settings.root_znode}/{tree.TRANSACTIONS}", b"not what anybody wrote")
    sinks = client.wait("/health", 503).json["sinks"]
    assert [reason["kind"] for reason in sinks["orders"]["reasons"]] == ["znode"]
    assert "--forget" in sinks["orders"]["reasons"][0]["do"]
    assert sinks["clicks"]["healthy"]
    assert client.ask("/health?sink=clicks").status == 200


def test_kafka_away_is_told_and_what_was_known_of_the_tree_stays(served) -> None:
    fleet, client = served
    orders = fleet.add("orders", 2)
    orders.produce(10)
    orders.commit()
    client.wait("/health", 200)
    fleet.log.error = Unavailable("Kafka at k:9092 gave no answer")
    eventually("it is told", lambda: notes(client, "orders") == ["kafka"])
    sink_status = status(client, "orders")
    assert (sink_status["lag"], sink_status["committed"], sink_status["kafka_error"]) == (
        None,
        1,
        "Kafka at k:9092 gave no answer",
    )
    fleet.log.error = None
    eventually("it is over", lambda: notes(client, "orders") == [])


def test_a_service_that_fails_is_told_though_nothing_else_changes(served, monkeypatch) -> None:
    monkeypatch.setattr("sink.http.fleet.HOSTS_SECONDS", 1.0)
    fleet, client = served
    orders = fleet.add("orders", 1)
    client.wait("/health", 200)
    orders.services(ServiceOutcome("cluster", 2.0, "20260101000000000"))
    eventually("the first run is told", lambda: bool(status(client, "orders")["services"]))
    orders.services(ServiceOutcome("cluster", 2.0, "", "no space left"))
    eventually("it is told", lambda: notes(client, "orders") == ["service-failed"], REREAD_SECONDS / 2)
    orders.services(ServiceOutcome("cluster", 2.0, "", "no space left", time.time() - 86_401))
    client.wait("/health", 503)
    [reason] = client.ask("/health").json["reasons"]
    assert (reason["kind"], reason["page"]) == ("service-overdue", "docs/runbook.md#table-service-overdue")
    assert "cluster has been due for 24.0 h without success; the last attempt failed: no space left" in reason["text"]


def test_sinks_that_come_and_go_are_followed(served) -> None:
    fleet, client = served
    fleet.add("orders", 1)
    client.wait("/health?sink=orders", 200)
    fleet.add("clicks", 1)
    client.wait("/health?sink=clicks", 200)
    fleet.facts.sinks[:] = [hosted for hosted in fleet.facts.sinks if hosted.observed.name != "orders"]
    client.wait("/health?sink=orders", 404)
    assert [sink["sink"] for sink in client.ask("/overview").json["sinks"]] == ["clicks"]


def test_a_stuck_jvm_is_told_beside_the_health_of_the_fleet(served) -> None:
    fleet, client = served
    fleet.add("orders", 1)
    client.wait("/health", 200)
    fleet.facts.not_alive = ("the JVM has not answered for 7 s",)
    eventually("it is told", lambda: notes(client, "orders") == ["silent"])
    assert client.ask("/health").status == 200


def test_status_has_the_ten_newest_transactions_and_history_those_before_them_too(served) -> None:
    fleet, client = served
    orders = fleet.add("orders", 1)
    for _ in range(12):
        orders.produce(1)
        orders.commit()
    client.wait("/health", 200)
    eventually("all are read", lambda: status(client, "orders")["committed"] == 12)
    assert [ended["number"] for ended in status(client, "orders")["history"]] == list(range(12, 2, -1))
    assert [ended["number"] for ended in client.ask("/history").json["sinks"]["orders"]] == list(range(12, 0, -1))
