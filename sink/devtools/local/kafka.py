"""A real Kafka broker as a child process."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordination.errors import Unavailable
from sink.clients.java.installation import BROKER_VERSIONS
from sink.devtools.jars import kafka_jars
from sink.devtools.local.servers import LOOPBACK, PROBE_LOG, Server, free_ports

LARGEST_MESSAGE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a broker: it tells clients on `port` to use the address `advertised`."""

    name: str
    port: int
    advertised: str
    protocol: str = "PLAINTEXT"

    @property
    def bound(self) -> str:
        return f"{LOOPBACK}:{self.port}"


class KafkaServer(Server):
    """One Kafka broker that is its own controller (KRaft)."""

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        listeners: Sequence[Listener] = (),
        cluster_id: str = "",
    ) -> None:
        """Brokers of one cluster are given the same `cluster_id`; the first one is the controller of all."""
        super().__init__(directory, port, "Kafka")
        self._cluster_id = cluster_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._controller = Listener("CONTROLLER", free_ports(1)[0], "")
        self._listeners = (Listener("PLAINTEXT", self.port, self.address), *listeners)
        self._settings = dict(settings or {})
        self._heap = heap

    def override(self, settings: Mapping[str, str]) -> None:
        """Adds settings that can only be known once the server has its address. Call it before the start."""
        self._settings |= settings

    @property
    def controller(self) -> str:
        """The address of its controller."""
        return self._controller.bound

    def _command(self) -> list[str]:
        data = self.directory / "data"
        config = self.directory / "server.properties"
        all_listeners = (*self._listeners, self._controller)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._controller.bound}",
            "listeners": ",".join(f"{listener.name}://{listener.bound}" for listener in all_listeners),
            "advertised.listeners": ",".join(
                f"{listener.name}://{listener.advertised}" for listener in self._listeners
            ),
            "controller.listener.names": self._controller.name,
            "listener.security.protocol.map": ",".join(
                f"{listener.name}:{listener.protocol}" for listener in all_listeners
            ),
            "log.dirs": str(data),
            "metric.reporters": "",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "message.max.bytes": str(LARGEST_MESSAGE),
            "log.retention.ms": "-1",
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
            "log.segment.delete.delay.ms": "1000",
            **self._settings,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = kafka_jars()
        if not (data / "meta.properties").is_file():
            self._format(jars, config)
        return self._java(self._heap, jars, "kafka.Kafka", str(config), versions=BROKER_VERSIONS)

    def _format(self, jars: Sequence[Path], config: Path) -> None:
        arguments = ("kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster_id}", "-c", str(config))
        command = self._java("128m", jars, "-XX:TieredStopAtLevel=1", *arguments, versions=BROKER_VERSIONS)
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise Unavailable(f"Kafka's storage cannot be formatted: {(result.stderr or result.stdout).strip()[-500:]}")

    def _answers(self) -> bool:
        return kafka_answers(self.address, seconds=2.0)


def kafka_answers(address: str, seconds: float) -> bool:
    """Returns whether a broker returns its cluster's metadata within `seconds`."""
    admin = AdminClient({"bootstrap.servers": address}, logger=PROBE_LOG)
    try:
        return bool(admin.list_topics(timeout=seconds).brokers)
    except KafkaException:
        return False
