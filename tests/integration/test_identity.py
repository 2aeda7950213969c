"""A worker whose brokers are another cluster lands nothing, and both clusters are named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.state.model import TopicPartition
from sink.devtools.local.kafka import KafkaServer
from tests.fleet import produce
from tests.integration.conftest import PARTITIONS, MakeFleet
from tests.kafka_tools import ask_topic_id

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
RECORDS = 600


@pytest.fixture(scope="module")
def other_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker of another cluster."""
    with KafkaServer(tmp_path_factory.mktemp("kafka-other"), heap="256m") as server:
        yield server


def test_a_second_worker_whose_brokers_are_another_cluster_lands_nothing_and_both_are_named(
    make_fleet: MakeFleet, other_kafka: KafkaServer
) -> None:
    """Both clusters have a topic of that name, with the same offsets."""
    fleet = make_fleet(records=RECORDS, **{"write.task.bytes": 2048, "flush.size": 200, "slice.records": 50})
    other = AdminClient({"bootstrap.servers": other_kafka.address})
    other.create_topics([NewTopic(fleet.topic, PARTITIONS, 1)])[fleet.topic].result(30)
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS))
    fleet.start("w2", **{"kafka.bootstrap.servers": other_kafka.address})
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
