"""Fleets land every row once while ZooKeeper or Kafka is away or comes back empty, and beside other writers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordination.state import tree
from coordination.state.model import Phase, TopicPartition
from sink import cli
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from sink.operations.reset_writer import live_workers
from tests.fleet import Fleet, in_phase, produce, transaction_in
from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.kafka_log import lose_end
from tests.waiting import eventually
from tests.zookeepers import empty

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
QUICK_HEARTBEAT = {
    "hoodie.client.heartbeat.interval_in_ms": 1000,
    "hoodie.client.heartbeat.tolerable.misses": 2,
}


def land_more(fleet: Fleet, landed: int) -> None:
    produce(fleet.kafka, fleet.topic, 3000, PARTITIONS, first=landed)
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), (landed + 3000) // PARTITIONS))
    fleet.assert_exactly_once(landed + 3000)


def test_zookeeper_gone_for_longer_than_the_session_and_the_heartbeat_or_emptied_is_rebuilt_from_the_timeline(
    make_fleet: MakeFleet, tmp_path
) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        fleet = make_fleet(zookeeper=server.address, **METADATA, **QUICK_HEARTBEAT)
        fleet.start("w1", "Complete.before=wait")
        fleet.wait_fired("Complete.before")
        prepared = transaction_in(fleet.wait("PREPARED", in_phase(Phase.PREPARED)), Phase.PREPARED)
        server.stop()
        fleet.release("Complete.before")
        fleet.wait_for_log("w1", "session.lost")
        server.start()
        landed_view = fleet.wait_landed(ENDS)
        assert prepared.header.instant in [
            summary.instant for summary in landed_view.ledger.history if summary.outcome == "COMMITTED"
        ]

        fleet.start("w2")
        fleet.wait("both are members", lambda view: len(view.members) == 2)
        empty(server)
        fleet.reconnect()
        rebuilt_view = fleet.wait("the tree is there again", lambda view: view.info is not None and view.epoch > 0)
        assert rebuilt_view.info is not None
        assert landed_view.info is not None
        assert rebuilt_view.info.uuid != landed_view.info.uuid
        land_more(fleet, RECORDS)
        last_view = fleet.view()
        assert last_view.epoch > landed_view.epoch
        assert last_view.ledger.committed > landed_view.ledger.committed
        fleet.close()


@pytest.mark.thorough
def test_a_backup_with_a_reset_that_the_table_went_on_without_makes_no_row_come_twice(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    data, backup = tmp_path / "zookeeper" / "data", tmp_path / "backup"
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        fleet = make_fleet(zookeeper=server.address)

        def run(worker: str, landed: int) -> None:
            fleet.start(worker)
            fleet.wait_landed(ENDS)
            if landed:
                land_more(fleet, landed)
            fleet.workers[worker].kill()
            eventually("its session has ended", lambda: not live_workers(fleet.client, fleet.root))

        run("w1", 0)
        reset_command = [
            "reset",
            "--offset",
            f"{fleet.topic}:0=5",
            "--yes",
            "--config",
            str(fleet.directory / "w1.yaml"),
        ]
        assert cli.main(reset_command) == 0
        server.stop()
        shutil.copytree(data, backup)
        server.start()

        empty(server)
        fleet.reconnect()
        run("w2", RECORDS)

        server.stop()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        server.start()
        fleet.reconnect()
        assert fleet.view().states[TopicPartition(fleet.topic, 0)].generation == 1
        run("w3", RECORDS + 3000)
        fleet.close()


@pytest.mark.thorough
def test_content_put_back_by_hand_is_never_believed_and_can_be_forgotten(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start("w1")
    fleet.wait_landed(ENDS)
    shard = f"{fleet.root}/{tree.shard_path(TopicPartition(fleet.topic, 0))}"
    old_content = fleet.client.get(shard)[0]
    land_more(fleet, RECORDS)
    fleet.client.set(shard, old_content)
    fleet.wait_for_log("w1", "no worker put it there")
    fleet.start("w2")
    fleet.wait_for_log("w2", "no worker put it there")
    produce(fleet.kafka, fleet.topic, 3000, PARTITIONS, first=RECORDS + 3000)
    for worker in fleet.workers.values():
        assert worker.running
        worker.kill()
    eventually("its session has ended", lambda: not live_workers(fleet.client, fleet.root))
    fleet.assert_exactly_once(RECORDS + 3000)
    assert cli.main(["reset", "--forget", "--yes", "--config", str(fleet.directory / "w1.yaml")]) == 0
    fleet.start("w1")
    land_more(fleet, RECORDS + 6000)


@pytest.mark.thorough
def test_kafka_gone_halts_nothing_but_a_log_that_lost_its_end_does(make_fleet: MakeFleet, tmp_path) -> None:
    with KafkaServer(tmp_path / "kafka") as broker:
        fleet = make_fleet(name="away", **QUICK_HEARTBEAT)
        fleet.kafka = broker.address
        broker_topic(broker.address, "away")
        produce(broker.address, "away", RECORDS, PARTITIONS)
        fleet.start("w1", "Complete.before=wait")
        fleet.wait_fired("Complete.before")
        prepared = transaction_in(fleet.wait("PREPARED", in_phase(Phase.PREPARED)), Phase.PREPARED)
        broker.stop()
        fleet.release("Complete.before")
        fleet.wait_for_log("w1", "ReadLog")
        fleet.wait(
            "the transaction is settled",
            lambda view: prepared.header.instant in {summary.instant for summary in view.ledger.history},
        )
        broker.start()
        fleet.wait_landed(ENDS)
        land_more(fleet, RECORDS)
        assert fleet.view().halt is None
        lose_end(broker, fleet.topic, 0, kept=0.5)
        halt = fleet.wait("the sink halts", lambda view: view.halt is not None).halt
        assert halt is not None
        assert (halt.topic, halt.partition) == (fleet.topic, 0)
        assert "truncated" in halt.reason
        assert fleet.audit().rows == RECORDS + 3000


@pytest.mark.thorough
def test_a_second_fleet_on_another_zookeeper_is_found_out_by_the_table(make_fleet: MakeFleet, tmp_path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as second_zookeeper:
        first = make_fleet()
        first.start("w1")
        first.wait_landed(ENDS)
        second = make_fleet(
            name=first.topic, zookeeper=second_zookeeper.address, **{"target.base.path": str(first.table)}
        )
        second.table = first.table
        second.start("w2")
        second.wait("the second fleet has rebuilt", lambda view: view.ledger.committed > 0)
        produce(first.kafka, first.topic, 3000, PARTITIONS, first=RECORDS)
        ends = {partition: end + 1000 for partition, end in ENDS.items()}
        first.wait("one of the fleets halts", lambda view: view.halt is not None or second.view().halt is not None)
        running = second if first.view().halt is not None else first
        running.wait_landed(ends)
        running.assert_exactly_once(RECORDS + 3000)
        second.close()


@pytest.mark.thorough
def test_a_clustering_by_somebody_else_between_our_commits(make_fleet: MakeFleet, spark) -> None:
    fleet = make_fleet(**METADATA)
    fleet.start("w1")
    fleet.wait_landed(ENDS)
    spark.sql(f"call run_clustering(path => '{fleet.table}')").collect()
    land_more(fleet, RECORDS)
    assert spark.read.format("hudi").load(str(fleet.table)).count() == RECORDS + 3000


def broker_topic(bootstrap: str, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
