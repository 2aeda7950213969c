"""Servers of other versions than those that the tests bring: the newest ZooKeeper, and the oldest Kafka of the docs.

Their jars come from where the others come from, once (60 MB).
"""

from __future__ import annotations

from pathlib import Path

from sink.clients.artifacts import fetch, pyspark_jars
from sink.clients.java import BROKER_VERSIONS
from sink.devtools.local.kafka import kafka_answers
from sink.devtools.local.servers import LOOPBACK, Server
from sink.devtools.local.zookeeper import ZooKeeperServer

ZOOKEEPER = "3.9.4"
KAFKA = "2.8.2"
_BESIDE = ("metrics-core", "snappy-java")


class NewestZooKeeper(ZooKeeperServer):
    """ZooKeeper 3.9; PySpark's jars are of 3.6."""

    def _jars(self) -> list[Path]:
        brought = fetch("zookeeper", (f"org.apache.zookeeper:zookeeper:{ZOOKEEPER}",))
        # A server takes them for granted, and its artifact does not ask for them.
        return [*brought, *(jar for name in _BESIDE for jar in pyspark_jars().glob(f"{name}-[0-9]*.jar"))]


class OldestKafka(Server):
    """Brokers give topics ids since 2.8. This one keeps its records in a ZooKeeper."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        super().__init__(directory, 0, f"Kafka {KAFKA}")
        self._zookeeper = zookeeper

    def _command(self) -> list[str]:
        settings = {
            "broker.id": "1",
            "zookeeper.connect": f"{self._zookeeper}/kafka",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
        }
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = fetch("old-kafka", (f"org.apache.kafka:kafka_2.13:{KAFKA}",))
        return self._java("512m", jars, "kafka.Kafka", str(config), versions=BROKER_VERSIONS)

    def _answers(self) -> bool:
        return kafka_answers(self.address, seconds=2.0)
