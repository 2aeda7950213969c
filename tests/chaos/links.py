"""The proxies between a worker and the servers, and another cluster, to which they may be redirected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sink.devtools.local.kafka import KafkaServer, Listener
from sink.devtools.local.servers import LOOPBACK, free_ports
from tests.chaos.auditor.appended import FIRST_OTHER_ID
from tests.chaos.proxy import Mode, Proxy
from tests.zookeepers import ZooKeeperEnsemble


class WorkerProxies:
    """The proxies between one worker and the servers: one for each ZooKeeper, and one for its own listener of each
    broker.
    """

    def __init__(self, ensemble: ZooKeeperEnsemble, brokers: int) -> None:
        self._zookeeper = [Proxy(server.address) for server in ensemble.servers]
        self._ports = free_ports(brokers)
        self._kafka = [Proxy(f"{LOOPBACK}:{port}") for port in self._ports]

    @property
    def zookeeper(self) -> str:
        return ",".join(proxy.address for proxy in self._zookeeper)

    @property
    def kafka(self) -> str:
        return ",".join(proxy.address for proxy in self._kafka)

    def listener(self, name: str, broker: int) -> Listener:
        """Returns the worker's listener of a broker, counted from 0."""
        return Listener(name, self._ports[broker], self._kafka[broker].address)

    def listener_in_other_cluster(self, name: str) -> Listener:
        """Returns the worker's listener of another cluster's broker, which has the address of the first one here."""
        return Listener(name, free_ports(1)[0], self._kafka[0].address)

    def redirect(self, listener: Listener) -> None:
        """Redirects the worker to another cluster, as an alias does that comes to name another host."""
        for proxy in self._kafka:
            proxy.switch(listener.bound)

    def undo_redirect(self) -> None:
        for proxy, port in zip(self._kafka, self._ports, strict=True):
            proxy.switch(f"{LOOPBACK}:{port}")

    def set(self, service: str, mode: Mode) -> None:
        for proxy in self._zookeeper if service == "ZooKeeper" else self._kafka:
            proxy.set(mode)

    def close(self) -> None:
        for proxy in (*self._zookeeper, *self._kafka):
            proxy.close()


class OtherCluster:
    """Another cluster with a topic of the same name, to which a worker may be redirected."""

    def __init__(self, directory: Path, topic: str, proxies: Mapping[str, WorkerProxies]) -> None:
        self._topic = topic
        self.listeners = {name: each.listener_in_other_cluster(name.upper()) for name, each in proxies.items()}
        self.server = KafkaServer(directory, heap="256m", listeners=[*self.listeners.values()])
        self._sent: Counter[int] = Counter()

    def fill(self, ends: Mapping[int, int]) -> None:
        """Sends events that the auditor looks for, until each partition reaches its offset here."""
        producer = Producer({"bootstrap.servers": self.server.address, "queue.buffering.max.messages": 2_000_000})
        for partition, end in ends.items():
            while self._sent[partition] < end:
                self._sent[partition] += 1
                number = FIRST_OTHER_ID + self._sent[partition]
                event = {"id": number, "at": number, "number": number, "amount": 0.0}
                producer.produce(self._topic, json.dumps(event).encode(), partition=partition)
        assert producer.flush(60) == 0

    @property
    def cluster_id(self) -> str:
        return AdminClient({"bootstrap.servers": self.server.address}).list_topics(timeout=30).cluster_id
