"""The servers, the hosts and the disk of a run, which its sequences share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.kafka_tools import ask_topic_id
from tests.rewrites.host import FENCE, Host
from tests.rewrites.places import InStore, OnDisk, Place, SmallDisk
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import Store, a_store

Record = tuple[bytes, bytes | None]
_TOPIC_SECONDS = 30


class Lab:
    """`directory` is for logs and settings; the tables are on a disk of their own, or in a store."""

    def __init__(self, directory: Path, zookeeper: str, kafka: str) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.kafka = kafka
        self._disk = SmallDisk(directory / "disk")
        self._servers = ExitStack()
        self._store: tuple[Store, S3Proxy] | None = None
        self.client = KazooClient(zookeeper)
        self.client.start()
        quiet: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka, "log_level": 0}
        self._producer = Producer({**quiet, "linger.ms": 0})
        self._admin = AdminClient(quiet)
        self._cpu_of_the_dead = 0.0
        self._started = 0
        self._properties = directory / "host.properties"
        settings = {
            "zookeeper.connect": zookeeper,
            "kafka.bootstrap.servers": kafka,
            "kafka.topic.names": "none",
            # An s3a path puts the jars for S3 on the class path.
            "target.base.path": "s3a://none/table",
            "target.table.name": "none",
            "schema.ddl": "id long",
            "spark.master": "local[1]",
            "spark.driver.memory": "768m",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            # Of a few rows: code costs more to generate than it saves.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.hosts: list[Host] = [self._start()]

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
        self.client.stop()
        self.client.close()
        self._disk.close()
        self._servers.close()

    def place(self, name: str, on_s3: bool) -> Place:
        """Returns where a new table shall be. The store starts when it is first needed."""
        if not on_s3:
            return OnDisk(self._disk, name)
        if self._store is None:
            store = self._servers.enter_context(a_store(self.directory / "s3"))
            self._store = store, self._servers.enter_context(S3Proxy(self.directory / "proxy", store.url))
        return InStore(*self._store)

    def trace(self, line: str) -> None:
        with (self.directory / "trace.log").open("a") as file:
            file.write(line + "\n")

    def other(self, host: Host) -> Host:
        """Returns a host that is not this one, and that runs."""
        for one in self.hosts:
            if one is not host and not one.paused:
                return one
        self.hosts.append(self._start())
        return self.hosts[-1]

    def replace(self, host: Host) -> None:
        """Kills a host; another one starts in its place, in its own time."""
        self.end(host)
        if len(self.hosts) < 2:
            self.hosts.append(self._start())

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all hosts so far, and of this process."""
        own = time.process_time()
        return own + self._cpu_of_the_dead + sum(host.count_cpu() for host in self.hosts)

    def end(self, host: Host) -> None:
        host.kill()
        self._cpu_of_the_dead += host.cpu_seconds
        self.hosts.remove(host)

    def _start(self) -> Host:
        self._started += 1
        return Host(self._properties, self.directory, f"host{self._started}")

    def expire(self, session: Sequence[Any]) -> None:
        """Ends the ZooKeeper session of another process, with its locks."""
        client = KazooClient(self.zookeeper, client_id=(session[0], bytes.fromhex(session[1])))
        with suppress(Exception):
            client.start(timeout=10)
        client.stop()
        client.close()

    def set_epoch(self, sink: str, epoch: int) -> None:
        self.client.ensure_path(f"{FENCE}/{sink}")
        self.client.set(f"{FENCE}/{sink}", str(epoch).encode())

    @contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[tuple[str, str, str]]:
        """Yields name, id and cluster id of a new topic."""
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_TOPIC_SECONDS)
        cluster = self._admin.list_topics(timeout=_TOPIC_SECONDS).cluster_id
        yield name, ask_topic_id(self._admin, name), cluster or ""
        with suppress(Exception):
            self._admin.delete_topics([name])[name].result(_TOPIC_SECONDS)

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        for key, value in records:
            self._producer.produce(topic, value=value, key=key, partition=partition)
        assert self._producer.flush(60) == 0


@contextmanager
def a_lab(directory: Path) -> Iterator[Lab]:
    """Starts the servers that a run needs."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
        kafka = stack.enter_context(KafkaServer(directory / "kafka", heap="256m"))
        lab = Lab(directory, zookeeper.address, kafka.address)
        stack.callback(lab.close)
        yield lab
