"""Three real brokers of one cluster, with elections that may be unclean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sink.devtools.local.kafka import KafkaServer, Listener
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

    def __init__(self, directory: Path, listeners: Mapping[int, Sequence[Listener]] | None = None) -> None:
        """`listeners`: more listeners, by the broker's number."""
        more = listeners or {}
        first = KafkaServer(directory / "1", 0, UNCLEAN, "256m", more.get(1, ()), CLUSTER_ID)
        self.brokers = {1: first}
        for number in (2, 3):
            own = more.get(number, ())
            broker = KafkaServer(directory / str(number), heap="256m", listeners=own, cluster_id=CLUSTER_ID)
            broker.override(
                {
                    **UNCLEAN,
                    "process.roles": "broker",
                    "node.id": str(number),
                    "controller.quorum.voters": f"1@{first.controller}",
                    "listeners": ",".join(
                        (f"PLAINTEXT://{broker.address}", *(f"{listener.name}://{listener.bound}" for listener in own))
                    ),
                }
            )
            self.brokers[number] = broker
        self.address = ",".join(broker.address for broker in self.brokers.values())

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the brokers that do not run."""
        for broker in self.brokers.values():
            broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 1})

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Creates a topic, each of whose partitions is on brokers 2 and 3."""
        assignment = [[2, 3] if number % 2 == 0 else [3, 2] for number in range(partitions)]
        new = NewTopic(topic, num_partitions=partitions, replica_assignment=assignment)

        def created() -> bool:
            try:
                self.admin.create_topics([new])[topic].result(30)
            except KafkaException:
                return False
            return True

        eventually("the topic is created", created)

    def wait(self, description: str, topic: str, condition: Callable[[Any], bool]) -> Any:
        """Waits until each partition is in a state, as its metadata describe it. Returns the first one."""
        found: list[Any] = []

        def reached() -> bool:
            try:
                found[:] = self.admin.list_topics(topic=topic, timeout=5).topics[topic].partitions.values()
            except (KafkaException, KeyError):
                return False
            return bool(found) and all(map(condition, found))

        eventually(description, reached)
        return found[0]

    def wait_in_sync(self, topic: str) -> Any:
        """Waits until both brokers have all of a topic, so that one of them may be lost. Returns partition 0."""
        return self.wait("both brokers are in sync", topic, lambda partition: len(partition.isrs) == 2)
