"""Three real brokers of one cluster, with elections that may be unclean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sink.devtools.local.kafka import KafkaServer
from tests.waiting import eventually

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
UNCLEAN = {
    "unclean.leader.election.enable": "true",
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "3000",
}


class KafkaCluster:
    """Broker 1 is the controller too; topics are on brokers 2 and 3. A context manager."""

    def __init__(self, directory: Path) -> None:
        first = KafkaServer(directory / "1", settings=UNCLEAN, heap="256m", cluster_id=CLUSTER_ID)
        self.brokers = {1: first}
        for number in (2, 3):
            broker = KafkaServer(directory / str(number), heap="256m", cluster_id=CLUSTER_ID)
            broker.override(
                {
                    **UNCLEAN,
                    "process.roles": "broker",
                    "node.id": str(number),
                    "controller.quorum.voters": f"1@{first.controller}",
                    "listeners": f"PLAINTEXT://{broker.address}",
                }
            )
            self.brokers[number] = broker
        self.address = ",".join(broker.address for broker in self.brokers.values())

    def __enter__(self) -> KafkaCluster:
        for broker in self.brokers.values():
            broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 1})
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def create(self, topic: str) -> None:
        """Creates a topic of one partition on brokers 2 and 3."""
        new = NewTopic(topic, num_partitions=1, replica_assignment=[[2, 3]])

        def created() -> bool:
            try:
                self.admin.create_topics([new])[topic].result(30)
            except KafkaException:
                return False
            return True

        eventually("the topic is created", created)

    def wait(self, description: str, topic: str, condition: Callable[[Any], bool]) -> Any:
        """Waits for a state of the partition, as its metadata describe it. Returns it."""
        found: list[Any] = []

        def reached() -> bool:
            try:
                partition = self.admin.list_topics(topic=topic, timeout=5).topics[topic].partitions[0]
            except (KafkaException, KeyError):
                return False
            found[:] = [partition]
            return condition(partition)

        eventually(description, reached)
        return found[0]
