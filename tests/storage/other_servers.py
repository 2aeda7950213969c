"""Runs two servers of other versions than the usual test servers: the newest ZooKeeper and the docs' oldest Kafka.

Ivy downloads their jars once (60 MB), as it does those of the usual servers.
"""

from __future__ import annotations

from pathlib import Path

from sink.clients.java.installation import BROKER_VERSIONS, fetch, pyspark_jars
from sink.devtools.local.kafka import kafka_answers
from sink.devtools.local.servers import LOOPBACK, Server
from sink.devtools.local.zookeeper import ZooKeeperServer

ZOOKEEPER = "3.9.4"
KAFKA = "2.8.2"
_EXTRA_JARS = ("metrics-core", "snappy-java")


class NewestZooKeeper(ZooKeeperServer):
    """ZooKeeper 3.9; PySpark's jars are of 3.6."""

    def _jars(self) -> list[Path]:
        jars = fetch("zookeeper", (f"org.apache.zookeeper:zookeeper:{ZOOKEEPER}",))
        # The server needs the extra jars, but its artifact does not depend on them.
        return [*jars, *(jar for name in _EXTRA_JARS for jar in pyspark_jars().glob(f"{name}-[0-9]*.jar"))]


class OldestKafka(Server):
    """Kafka 2.8, the first version with topic ids. It stores its metadata in ZooKeeper."""

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
