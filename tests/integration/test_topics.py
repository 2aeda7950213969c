"""Topics with aborted, compacted or deleted records or changing partitions, and records that cannot be decoded."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from coordination.state.model import TopicPartition
from coordination.state.tree import KeeperView
from sink import cli
from tests.fleet import produce
from tests.http_kit import client_on_free_port
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def test_aborted_records_of_producers_never_land_and_partitions_that_are_added_are_read_from_their_beginning(
    make_fleet: MakeFleet, topic
) -> None:
    name = topic(partitions=1)
    fleet = make_fleet(name=name, **{"auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": fleet.kafka, "transactional.id": name})
    producer.init_transactions()
    for number in range(40):
        producer.begin_transaction()
        for position in range(50):
            event = {"id": number * 50 + position, "kind": "abort" if number % 2 else "commit", "amount": 1.0}
            producer.produce(name, json.dumps(event).encode(), partition=0)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    fleet.start("w1")
    fleet.wait_landed({0: 2000})
    fleet.assert_exactly_once(1000)

    admin = AdminClient({"bootstrap.servers": fleet.kafka})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    # The controller has answered; the broker's own metadata follows a moment later.
    eventually("the new partition", lambda: 1 in producer.list_topics(name).topics[name].partitions)
    producer.begin_transaction()
    for number in range(2000, 2500):
        producer.produce(name, json.dumps({"id": number, "kind": "buy", "amount": 0.5}).encode(), partition=1)
    producer.commit_transaction()
    fleet.wait_landed({0: 2000, 1: 500})
    fleet.assert_exactly_once(1500)


def test_the_holes_of_a_compacted_topic_are_no_loss(make_fleet: MakeFleet, topic) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "200",
        "delete.retention.ms": "0",
    }
    name = topic(partitions=1, config=config)
    fleet = make_fleet(name=name)
    producer = Producer({"bootstrap.servers": fleet.kafka})
    for round_number in range(20):
        for key in range(100):
            event = {"id": round_number * 100 + key, "kind": "buy", "amount": 1.0}
            producer.produce(name, json.dumps(event).encode(), key=str(key), partition=0)
        producer.flush()
    fleet.start("w1")
    fleet.wait_landed({0: 2000})
    report = fleet.audit()
    assert report.held, report.to_json()
    assert 100 <= report.rows <= 2000


def test_records_deleted_before_they_were_read_and_one_that_cannot_be_decoded_halt_with_their_coordinates(
    make_fleet: MakeFleet,
) -> None:
    """The first until the gap is allowed, the second with nothing of its transaction to be seen."""
    fleet = make_fleet()
    fleet.start("w1")
    fleet.wait_landed(ENDS)
    config = ["--config", str(fleet.directory / "w1.yaml")]
    assert cli.main(["pause", *config]) == 0
    produce(fleet.kafka, fleet.topic, 3000, PARTITIONS, first=RECORDS)
    first_kept = RECORDS // PARTITIONS + 400
    deletion = KafkaPartition(fleet.topic, 0, first_kept)
    admin = AdminClient({"bootstrap.servers": fleet.kafka})
    admin.delete_records([deletion])[deletion].result(30)
    assert cli.main(["resume", *config]) == 0
    halt = fleet.wait("the sink halts", lambda view: view.halt is not None).halt
    assert halt is not None
    assert (halt.topic, halt.partition) == (fleet.topic, 0)
    fleet.assert_exactly_once(RECORDS)

    fleet.workers["w1"].stop()
    assert cli.main(["reset", "--yes", *config]) == 0
    fleet.start("w2", **{"on.data.loss": "skip"})
    fleet.wait_landed({partition: end + 1000 for partition, end in ENDS.items()})
    fleet.assert_exactly_once(RECORDS + 3000 - 400)

    producer = Producer({"bootstrap.servers": fleet.kafka})
    producer.produce(fleet.topic, b'{"id": "not a number"}', partition=1)
    producer.produce(fleet.topic, b'{"id": 1, "kind": "buy", "amount": 0.5}', partition=1)
    producer.flush()
    halt = fleet.wait("the sink halts again", lambda view: view.halt is not None).halt
    assert halt is not None
    assert (halt.topic, halt.partition, halt.offset) == (fleet.topic, 1, ENDS[1] + 1000)
    fleet.wait("the transaction is rolled back", lambda view: not view.transactions)
    fleet.assert_exactly_once(RECORDS + 3000 - 400)


@pytest.mark.thorough
def test_a_topic_created_again_with_fewer_partitions_halts_and_after_a_reset_all_that_it_has_is_read(
    make_fleet: MakeFleet, topic
) -> None:
    fleet = make_fleet()
    fleet.start("w1")
    landed_view = fleet.wait_landed(ENDS)
    admin = AdminClient({"bootstrap.servers": fleet.kafka})
    admin.delete_topics([fleet.topic])[fleet.topic].result(30)
    fleet.wait_for_log("w1", "ReadLog")
    fewer = PARTITIONS - 1
    topic(partitions=fewer, name=fleet.topic)
    halt = fleet.wait("the sink halts", lambda view: view.halt is not None).halt
    assert halt is not None
    assert all(state.topic_id in halt.reason for state in landed_view.states.values())
    assert "but the broker has topic id" in halt.reason
    fleet.workers["w1"].stop()
    assert cli.main(["reset", "--to", "earliest", "--yes", "--config", str(fleet.directory / "w1.yaml")]) == 0

    fleet.start("w2")
    produce(fleet.kafka, fleet.topic, 100 * fewer, fewer, first=RECORDS)
    fleet.wait_landed(dict.fromkeys(range(fewer), 100))
    assert "is no longer in Kafka" not in fleet.audit().to_json()
    admin.create_partitions([NewPartitions(fleet.topic, PARTITIONS)])[fleet.topic].result(30)
    eventually(
        "all partitions", lambda: len(admin.list_topics(fleet.topic).topics[fleet.topic].partitions) == PARTITIONS
    )
    produce(fleet.kafka, fleet.topic, 100 * PARTITIONS, PARTITIONS, first=RECORDS + 100 * fewer)
    fleet.wait_landed({**dict.fromkeys(range(fewer), 200), fewer: 100})
    fleet.assert_exactly_once(RECORDS + 100 * (fewer + PARTITIONS))


def test_a_topic_that_comes_to_match_lands_in_the_same_table_without_a_restart(
    make_fleet: MakeFleet, topic, kafka
) -> None:
    first = topic(partitions=1)
    produce(kafka.address, first, 500, 1)
    pattern = {"kafka.topic.names": None, "kafka.topic.regex": f"{first}.*", "auto.offset.reset": "latest"}
    fleet, http = make_fleet(name=first, **pattern), client_on_free_port()
    fleet.start("w1", **{"http.listen": f"{http.host}:{http.port}"})
    fleet.wait("the first topic is on record", lambda view: TopicPartition(first, 0) in view.states)
    second = topic(name=f"{first}-b", partitions=2)
    produce(kafka.address, second, 400, 2)
    sources = [TopicPartition(second, partition) for partition in (0, 1)]

    def landed(view: KeeperView) -> bool:
        return all(source in view.states and view.states[source].end == 200 for source in sources)

    fleet.wait("the second topic lands from its beginning", landed, 90)
    assert "topics.found" in fleet.log("w1")
    admin = AdminClient({"bootstrap.servers": fleet.kafka})
    admin.delete_topics([second])[second].result(30)
    fleet.wait_for_log("w1", "topics.gone")
    eventually("the lag of the other topic is known", lambda: http.ask("/status").json["sinks"][0]["lag"] == 0, 60)
    assert http.ask("/health").json["sinks"][fleet.name] == {"healthy": True, "reasons": [], "notes": []}
    produce(kafka.address, first, 100, 1, first=500)
    fleet.wait_landed({0: 600})
    assert fleet.audit().rows == 500
    assert cli.main(["status", "--config", str(fleet.workers["w1"].config)]) == 0


@pytest.mark.thorough
def test_a_topic_that_is_deleted_with_planned_offsets_halts_the_sink_until_a_reset_gives_them_up(
    make_fleet: MakeFleet, topic, kafka
) -> None:
    first = topic(partitions=1)
    second = topic(name=f"{first}-b", partitions=1)
    for name in (first, second):
        produce(kafka.address, name, 500, 1)
    pattern = {"kafka.topic.names": None, "kafka.topic.regex": f"{first}.*", "auto.offset.reset": "earliest"}
    fleet = make_fleet(name=first, **pattern)
    fleet.start("w1", failpoint="Write:STARTED.after=kill")
    fleet.wait_fired("Write:STARTED.after")
    admin = AdminClient({"bootstrap.servers": fleet.kafka})
    admin.delete_topics([second])[second].result(30)
    fleet.start("w2")
    halt = fleet.wait("the sink halts", lambda view: view.halt is not None).halt
    assert halt is not None
    assert (halt.topic, "[0, 500) was planned and can no longer be read" in halt.reason) == (second, True)
    fleet.workers["w2"].stop()
    reset_command = ["reset", "--to", "earliest", "--topic", second, "--yes"]
    assert cli.main([*reset_command, "--config", str(fleet.workers["w2"].config)]) == 0
    fleet.start("w3")
    fleet.wait("the other topic has landed", lambda view: view.states[TopicPartition(first, 0)].end == 500)
    fleet.assert_exactly_once(500)
