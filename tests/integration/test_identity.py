"""A worker whose brokers are another cluster lands nothing, and both clusters are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.errors import WrongLog
from coordination.state.model import TopicPartition
from sink.devtools.local.kafka import KafkaServer, Listener
from sink.devtools.local.servers import free_ports
from sink.operations.control import SinkControl
from sink.operations.observed_sink import observed_sink
from sink.write.reading.kafka_reader import ReadLimits
from tests.chaos.proxy import Proxy
from tests.fleet import Fleet, produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.integration.reader_kit import SentRecord, rows_of, send, task_reader
from tests.integration.sinktable import slices_of
from tests.kafka_cluster import KafkaCluster
from tests.kafka_tools import ask_topic_id, note_topic_id
from tests.one_sink import load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
RECORDS = 600


@pytest.fixture(scope="module")
def other_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker of another cluster."""
    with KafkaServer(tmp_path_factory.mktemp("kafka-other"), heap="256m") as server:
        yield server


def start_on_two_clusters(fleet: Fleet, other_kafka: KafkaServer) -> AdminClient:
    """Starts `w1`, which lands what there is, and `w2`, whose brokers are another cluster with a topic of that name.
    Returns a client of that cluster.
    """
    other = AdminClient({"bootstrap.servers": other_kafka.address})
    other.create_topics([NewTopic(fleet.topic, PARTITIONS, 1)])[fleet.topic].result(30)
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    fleet.start("w2", **{"kafka.bootstrap.servers": other_kafka.address})
    return other


def test_a_second_worker_whose_brokers_are_another_cluster_lands_nothing_and_both_are_named(
    make_fleet: MakeFleet, other_kafka: KafkaServer
) -> None:
    """Both clusters have a topic of that name, with the same offsets."""
    fleet = make_fleet(records=RECORDS, **{"write.task.bytes": 2048, "flush.size": 200, "slice.records": 50})
    other = start_on_two_clusters(fleet, other_kafka)
    fleet.wait("both are members", lambda view: len(view.members) == 2)
    # Events with other ids, so that a row of the other cluster shows.
    produce(other_kafka.address, fleet.topic, 2 * RECORDS, PARTITIONS, first=1_000_000 * PARTITIONS)
    produce(fleet.kafka, fleet.topic, RECORDS, PARTITIONS, first=RECORDS)
    ends = dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS)
    view = fleet.wait_landed(ends)
    aborted = [summary.reason for summary in view.ledger.history if summary.outcome == "ABORTED"]
    topic_id = view.states[TopicPartition(fleet.topic, 0)].topic_id
    other_id = ask_topic_id(other, fleet.topic)
    assert [reason for reason in aborted if topic_id in reason and other_id in reason], aborted
    assert "kafka.bootstrap.servers" in aborted[0]
    fleet.assert_exactly_once(2 * RECORDS)
    assert fleet.largest("id") < 2 * RECORDS


def test_a_coordinator_on_another_cluster_stands_back_and_the_rest_of_the_fleet_goes_on(
    make_fleet: MakeFleet, other_kafka: KafkaServer
) -> None:
    fleet = make_fleet(records=RECORDS)
    other = start_on_two_clusters(fleet, other_kafka)
    fleet.wait("both are candidates", lambda view: len(view.contenders) == 2)
    SinkControl(observed_sink(load(fleet.workers["w1"].config, {})), fleet.client, "the test").switchover()
    fleet.wait_for_log("w2", "coordinator.stood_back")
    produce(fleet.kafka, fleet.topic, RECORDS, PARTITIONS, first=RECORDS)
    view = fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS))
    assert view.halt is None
    assert view.coordinator is not None
    assert view.coordinator.startswith("w1:")
    reason = next(line for line in fleet.log("w2").splitlines() if "coordinator.stood_back" in line)
    admins = (AdminClient({"bootstrap.servers": fleet.kafka}), other)
    clusters = [admin.describe_cluster().result(30).cluster_id for admin in admins]
    assert f"filled from the Kafka cluster {clusters[0]}, this one is {clusters[1]}" in reason
    assert "kafka.bootstrap.servers" in reason
    fleet.assert_exactly_once(2 * RECORDS)


@pytest.mark.thorough
def test_a_connection_that_comes_to_another_cluster_in_mid_read_gives_none_of_its_records(tmp_path: Path) -> None:
    """Both brokers tell clients to use one address, which leads to the first and then to the second."""
    proxy = Proxy("127.0.0.1:1")
    ports = free_ports(2)
    first, second = (
        KafkaServer(tmp_path / str(port), heap="256m", listeners=[Listener("SHARED", port, proxy.address)])
        for port in ports
    )
    with first, second:
        ids = []
        for server, value in ((first, b"first"), (second, b"second")):
            admin = AdminClient({"bootstrap.servers": server.address})
            admin.create_topics([NewTopic("shared", 1, 1)])["shared"].result(30)
            ids.append(ask_topic_id(admin, "shared"))
            send(server.address, "shared", [SentRecord(value + b"v" * 200)] * 20_000)
            if server is first:
                note_topic_id(admin, "shared")
        proxy.switch(f"127.0.0.1:{ports[0]}")
        reader = task_reader(
            proxy.address, slices_of("shared", (0, 0, 20_000)), ReadLimits(64 << 10, 64 << 10, 64 << 10)
        )
        batches = iter(reader)
        rows = rows_of([next(batches)])
        proxy.switch(f"127.0.0.1:{ports[1]}")
        with pytest.raises(WrongLog) as refusal:
            for batch in batches:
                rows += rows_of([batch])
        assert [refusal.value.planned[1], refusal.value.found[1]] == ids
        assert len(rows) < 20_000
        assert all(row[4] is not None and row[4].startswith(b"first") for row in rows)
    proxy.close()


@pytest.mark.thorough
def test_an_unclean_election_that_loses_records_which_were_read_halts_the_sink(chroot: str, tmp_path: Path) -> None:
    """The sink stands still while the log loses its end, and grows beyond it again."""
    with KafkaCluster(tmp_path / "brokers") as cluster:
        cluster.create("elected")
        fleet = Fleet(tmp_path / "fleet", chroot, cluster.address, "elected", {"hoodie.metadata.enable": False})
        fleet.start("w1")
        produce(cluster.address, "elected", 300, 1)
        fleet.wait_landed({0: 300})
        partition = cluster.wait_in_sync("elected")
        leader, follower = partition.leader, 5 - partition.leader
        cluster.brokers[follower].kill()
        cluster.wait("the leader is alone", "elected", lambda found: found.isrs == [leader])
        produce(cluster.address, "elected", 200, 1, first=300)
        fleet.wait_landed({0: 500})
        fleet.workers["w1"].terminate()
        assert fleet.workers["w1"].wait(120) == 0
        cluster.brokers[leader].kill()
        cluster.brokers[follower].start()
        cluster.wait("the one that is behind leads", "elected", lambda found: found.leader == follower)
        produce(cluster.address, "elected", 400, 1, first=10_000)
        fleet.start("w2")
        halt = fleet.wait("the sink halts", lambda view: view.halt is not None).halt
        assert halt is not None
        assert (halt.topic, halt.partition, halt.offset) == ("elected", 0, 499)
        assert "the log is not the one that was read" in halt.reason
        fleet.wait("what was written from it is rolled back", lambda view: not view.transactions)
        assert fleet.largest("id") == 499
        fleet.close()
