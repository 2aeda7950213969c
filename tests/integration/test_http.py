"""The HTTP addresses of real workers: their status codes tell the truth."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import Producer

from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.fleet import Fleet, produce
from tests.http_kit import Client, client_on_free_port
from tests.integration.commands_kit import command
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet
from tests.waiting import eventually
from tests.workers import Part

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LANDED = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def listen(client: Client) -> dict[str, object]:
    return {"http.listen": f"{client.host}:{client.port}"}


def test_a_worker_tells_of_itself_and_of_the_fleet_from_its_start_to_its_end(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**{"errors.tolerance": "all", "kafka.open.transaction.limit": "5s"})
    client = client_on_free_port()
    worker = fleet.start("w1", **listen(client))
    # Before Spark is up: a slow start is no reason to start the worker again.
    assert client.wait("/liveness", 200).json["reasons"] == []
    client.wait("/readiness", 200)
    client.wait("/coordinator", 200)
    assert client.ask(f"/coordinator?sink={fleet.name}").json == {"worker": "w1", "leads": [fleet.name]}
    fleet.wait_landed(LANDED)
    client.wait("/health", 200)
    eventually("all is told to have landed", lambda: client.ask("/status").json["sinks"][0]["lag"] == 0)
    status = client.ask(f"/status?sink={fleet.name}").json["sinks"][0]
    assert [(p["partition"], p["committed"], p["log_end"], p["lag"]) for p in status["partitions"]] == [
        (partition, end, end, 0) for partition, end in LANDED.items()
    ]
    assert [member["worker"] for member in status["members"]] == ["w1"]
    history = client.ask("/history").json["sinks"][fleet.name]
    assert sum(ended["records"] for ended in history) == RECORDS
    assert f'sink_coordinator{{sink="{fleet.name}"}} 1.0' in client.ask("/metrics").body.decode()
    assert_files_and_bad_records_are_told(fleet, client)
    assert_an_open_transaction_is_told(fleet, client)
    worker.pause_part(Part.JVM)
    assert "JVM" in client.wait("/liveness", 503).json["reasons"][0]
    worker.signal(signal.SIGCONT, Part.JVM)
    client.wait("/liveness", 200)
    worker.signal(signal.SIGTERM, Part.PYTHON)
    assert worker.wait(120) == 0
    assert client.status_of("/liveness") == 0


def assert_files_and_bad_records_are_told(fleet: Fleet, client: Client) -> None:
    """Bad records are told with the command that replays them."""
    producer = Producer({"bootstrap.servers": fleet.kafka})
    for _ in range(2):
        producer.produce(fleet.topic, b"no json", partition=1)
    assert producer.flush(30) == 0
    fleet.wait_landed({**LANDED, 1: LANDED[1] + 2})
    report = client.wait(f"/table?sink={fleet.name}", 200).json
    assert report["table"]["files"] >= PARTITIONS
    assert report["table"]["bytes"] > 0
    assert report["table"]["instants"] >= 1
    [group] = report["bad_records"]["groups"]
    assert (group["records"], group["first"]["offset"]) == (2, LANDED[1])
    assert group["replay"].startswith("sink errors replay --config FILE --reason=")
    client.wait("/health", 200)

    def noted() -> bool:
        notes = client.ask("/health").json["sinks"][fleet.name]["notes"]
        return any(note["kind"] == "bad-records" for note in notes)

    eventually("the bad records are noted", noted)


def assert_an_open_transaction_is_told(fleet: Fleet, client: Client) -> None:
    """Records behind it are acknowledged and cannot land: a note, then ill health, and never a lag of 0."""
    start = LANDED[2]
    producer = Producer({"bootstrap.servers": fleet.kafka, "transactional.id": fleet.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(fleet.topic, b'{"id": 1, "kind": "held", "amount": 1.0}', partition=2)
    assert producer.flush(30) == 0
    produce(fleet.kafka, fleet.topic, PARTITIONS, PARTITIONS, first=RECORDS)

    def findings(group: str) -> list[str]:
        told = client.ask("/health").json["sinks"][fleet.name][group]
        return [finding["text"] for finding in told if finding["kind"] == "open-transaction"]

    eventually("the open transaction is noted", lambda: findings("notes"))
    [note] = findings("notes")
    assert f"{fleet.topic}-2: a Kafka transaction is open at offset {start}, since 20" in note
    waited = command(fleet, "wait", "--caught-up", "--timeout", "1", fails=True)
    assert f"It waits for the end of open Kafka transactions: {fleet.topic}-2 (offset {start})" in waited.stderr
    assert client.wait("/health", 503).json["reasons"][0]["kind"] == "open-transaction"
    eventually("all that can be read has landed", lambda: lag_of(client) == 2)
    labels = f'{{sink="{fleet.name}",topic="{fleet.topic}",partition="2"}}'
    metrics = client.ask("/metrics").body.decode()
    assert f"sink_partition_held_back_offsets{labels} 2\n" in metrics
    assert f"sink_partition_lag_offsets{labels} 2\n" in metrics
    producer.commit_transaction(30)
    client.wait("/health", 200)
    eventually("all has landed", lambda: lag_of(client) == 0)


def lag_of(client: Client) -> int:
    lag: int = client.ask("/status").json["sinks"][0]["lag"]
    return lag


def test_of_two_workers_one_leads_and_both_tell_the_same_of_the_fleet(make_fleet: MakeFleet) -> None:
    fleet, first, second = make_fleet(), client_on_free_port(), client_on_free_port()
    first_worker = fleet.start("w1", **listen(first))
    first.wait("/coordinator", 200)
    fleet.start("w2", **listen(second))
    second.wait("/readiness", 200)
    assert second.ask("/coordinator").status == 503
    fleet.wait_landed(LANDED)
    for client in (first, second):
        client.wait("/health", 200)
        assert {m["worker"] for m in client.ask("/status").json["sinks"][0]["members"]} == {"w1", "w2"}
    first_worker.kill()
    second.wait("/coordinator", 200)
    second.wait("/health", 200)

    def worker_gone_notes() -> list[str]:
        notes = second.ask("/health").json["sinks"][fleet.name]["notes"]
        return [note["text"] for note in notes if note["kind"] == "worker-gone"]

    eventually("it is told who has left", lambda: worker_gone_notes() == ["w1 has left the fleet without draining"])
    fleet.start("w1", **listen(first))
    first.wait("/readiness", 200)
    eventually("it is back", lambda: worker_gone_notes() == [])


@pytest.mark.thorough
def test_a_service_that_has_been_due_for_too_long_is_a_fault_until_it_succeeds_whoever_is_restarted(
    make_fleet: MakeFleet,
) -> None:
    unusable = {"hoodie.clustering.plan.strategy.partition.regex.pattern": "[", "services.overdue.after": "3s"}
    often = {"services.interval.commits": 1, "hoodie.clustering.async.max.commits": 1}
    fleet = make_fleet(**{"services.clustering": True, **often, **unusable})
    client = client_on_free_port()

    def overdue() -> list[str]:
        # A run that takes longer than that is one as well.
        found = [reason for reason in client.ask("/health").json["reasons"] if reason["kind"] == "service-overdue"]
        return [reason["text"] for reason in found if "clustering" in reason["text"]]

    def clustering_since() -> float:
        services = client.ask("/status").json["sinks"][0]["services"]["services"]
        return next(service["since"] for service in services if service["name"] == "clustering")

    worker = fleet.start("w1", **listen(client))
    fleet.wait_landed(LANDED)
    eventually("it is a fault", lambda: bool(overdue()))
    [text] = overdue()
    assert text.startswith("the table service clustering has been due for")
    assert "Unclosed character class" in text
    since = clustering_since()
    series = f'sink_table_service_due_timestamp_seconds{{sink="{fleet.name}",service="clustering"}}'
    eventually("its metric shows", lambda: series in client.ask("/metrics").body.decode())
    worker.kill()
    worker = fleet.start("w1", **listen(client))
    client.wait("/readiness", 200)
    eventually("it still is a fault", lambda: bool(overdue()))
    assert clustering_since() == since
    worker.kill()
    fleet.start("w1", **listen(client), **{"services.clustering": False})
    produce(fleet.kafka, fleet.topic, PARTITIONS, PARTITIONS, first=RECORDS)
    client.wait("/health", 200)


def test_a_halt_is_told_with_its_remedy_and_is_no_reason_to_start_the_worker_again(
    make_fleet: MakeFleet, topic
) -> None:
    fleet, client = make_fleet(), client_on_free_port()
    fleet.start("w1", **listen(client))
    fleet.wait_landed(LANDED)
    client.wait("/health", 200)
    producer = Producer({"bootstrap.servers": fleet.kafka})
    producer.produce(fleet.topic, b"no json", partition=1)
    assert producer.flush(30) == 0
    [reason] = client.wait("/health", 503).json["reasons"]
    assert (reason["sink"], reason["kind"]) == (fleet.name, "halted")
    assert f"{fleet.topic}-1 offset {LANDED[1]}" in reason["text"]
    assert "errors.tolerance=all" in reason["do"]
    assert reason["page"] == "docs/runbook.md#a-bad-record"
    assert client.ask("/liveness").status == 200
    assert client.ask("/readiness").status == 200


def test_a_zookeeper_that_is_away_is_ill_health_and_nothing_else(make_fleet: MakeFleet, tmp_path) -> None:
    with ZooKeeperServer(tmp_path / "own") as server:
        fleet, client = make_fleet(zookeeper=server.address), client_on_free_port()
        fleet.start("w1", **listen(client))
        fleet.wait_landed(LANDED)
        client.wait("/health", 200)
        server.kill()
        [reason] = client.wait("/health", 503, 30).json["reasons"]
        assert reason["kind"] == "zookeeper"
        assert client.ask("/liveness").status == 200
        # The worker still tells what it read last.
        assert client.ask("/status").json["sinks"][0]["committed"] > 0
        server.start()
        client.wait("/health", 200)
