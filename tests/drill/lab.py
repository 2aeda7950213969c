"""A fleet of two workers with all that it depends on, each part of which can be taken away.

Sink `events` reads Avro whose schemas a registry has, sink `short` reads JSON of a topic whose retention is short. Both
tables lie on an S3 server behind a proxy. Records trickle into both topics.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.http_kit import Client
from tests.many_sinks import ManySinks
from tests.registry_kit import RegistryRequest, RegistryResponse, RegistryServer, StubRegistry, forward
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import MotoServer, Store
from tests.waiting import eventually
from tests.workers import WorkerProcess

WORKERS = ("w1", "w2")
EVENTS, SHORT = "events", "short"
RETENTION_SECONDS = 120
PARTITIONS = 2
RATE = 5
"""Records a second into each topic."""
FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "int"}, {"name": "kind", "type": "string"}]
AMOUNT: dict[str, Any] = {"name": "amount", "type": ["null", "double"], "default": None}
PATIENCE = 180.0
SESSION_SECONDS = 20
"""ZooKeeper's session time-out. A worker ends a JVM that is stuck for so long: less leaves no time to look at it."""


class Lab:
    """`with` starts the servers and the workers, and ends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()
        self.ports = dict(zip(WORKERS, free_ports(len(WORKERS)), strict=True))
        self._ended = threading.Event()
        self._trickle = threading.Thread(target=self._feed, name="feed", daemon=True)
        self._fields = FIELDS

    def __enter__(self) -> Lab:
        enter = self._stack.enter_context
        self.zookeeper = enter(ZooKeeperServer(self.directory / "zookeeper"))
        self.kafka = enter(KafkaServer(self.directory / "kafka", heap="512m"))
        store = Store(enter(MotoServer(self.directory / "s3")).url)
        self.store = enter(S3Proxy(self.directory / "proxy", store.url))
        registry = enter(RegistryServer(self.directory / "registry"))
        self._registry, self._answer = registry.url, forward(registry.url)
        self.registry = enter(StubRegistry(self._answer))
        self._lake = f"s3a://{store.make_bucket()}"
        self.admin = AdminClient({"bootstrap.servers": self.kafka.address})
        short = NewTopic(SHORT, PARTITIONS, config={"retention.ms": str(RETENTION_SECONDS * 1000)})
        for created in self.admin.create_topics([NewTopic(EVENTS, PARTITIONS), short]).values():
            created.result()
        shared = {
            **Store(self.store.url, store.access_key, store.secret_key).settings,
            "zookeeper.session.timeout.ms": SESSION_SECONDS * 1000,
            "transaction.interval.ms": 2000,
            "coordinator.writestatus.timeout": "20s",
            "errors.tolerance": "all",
            "log.level": "info",
        }
        self.fleet = ManySinks(self.directory / "fleet", self.zookeeper.address, self.kafka.address, shared)
        self._stack.callback(self.fleet.close)
        registered = {"value.format": "avro-confluent", "schema.registry.url": self.registry.url}
        self.add(EVENTS, **registered)
        self.add(SHORT)
        for worker in WORKERS:
            self.start(worker)
        self._trickle.start()
        self._stack.callback(self._end_trickle)
        for sink in (EVENTS, SHORT):
            self.landed_more(sink)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # Sinks and workers

    def add(self, sink: str, **settings: object) -> None:
        topic = sink if sink in (EVENTS, SHORT) else SHORT
        self.fleet.add(sink, topic, **{"target.base.path": f"{self._lake}/{sink}", **settings})

    def start(self, worker: str, environment: Mapping[str, str] | None = None) -> WorkerProcess:
        return self.fleet.start(worker, environment, **self._worker_settings(worker))

    def configure(self) -> None:
        for worker in WORKERS:
            self.fleet.configure(worker, **self._worker_settings(worker))

    def _worker_settings(self, worker: str) -> dict[str, object]:
        return {"http.listen": f"127.0.0.1:{self.ports[worker]}"}

    def client(self, worker: str) -> Client:
        return Client("127.0.0.1", self.ports[worker])

    def wait_ready(self, worker: str) -> None:
        self.client(worker).wait("/readiness", 200, PATIENCE)

    def landed_more(self, sink: str) -> None:
        before = self.fleet.landed(sink)
        eventually(f"{sink} lands", lambda: self.fleet.landed(sink) > before, PATIENCE, self.fleet.logs)

    def has_logged(self, event: str) -> bool:
        return any(event in self.fleet.log(worker) for worker in WORKERS)

    def log_end(self, topic: str) -> int:
        """Returns the sum of the end offsets of all partitions."""
        latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        return sum(future.result().offset for future in self.admin.list_offsets(latest).values())

    def command(self, *arguments: str) -> None:
        """Runs a command of `sink`, as an operator types it."""
        config = self.fleet.directory / WORKERS[0] / "fleet.yaml"
        command = [sys.executable, "-m", "sink.cli", *arguments, "--config", str(config)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert completed.returncode == 0, f"{arguments}: {completed.stdout}{completed.stderr}"

    def audit(self) -> None:
        """Ends the trickle, waits until all has landed, and audits the contents of every table, as an operator does."""
        self._end_trickle()
        for sink, settings in self.fleet.sinks.items():
            end = self.log_end(str(settings["kafka.topic.names"]))
            self.fleet.wait_landed([sink], end, PATIENCE)
            self.command("audit", "--content", "--sink", sink)

    # Records

    def _end_trickle(self) -> None:
        self._ended.set()
        self._trickle.join()

    def use_a_new_schema(self) -> None:
        """Changes the schema, so that the registry hands out an id that no worker knows."""
        self._fields = [*FIELDS, {**AMOUNT, "doc": str(len(self._fields))}]

    def close_the_registry(self) -> None:
        def closed(_: RegistryRequest) -> RegistryResponse:
            return RegistryResponse(503, "maintenance")

        self.registry.answer = closed

    def open_the_registry(self) -> None:
        self.registry.answer = self._answer

    def produce(self, topic: str, value: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.address})
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0

    def _feed(self) -> None:
        """Produces records. Asks the registry itself: only workers go through the proxy."""
        producer = Producer({"bootstrap.servers": self.kafka.address, "linger.ms": 20, "log_level": 0})
        client = SchemaRegistryClient({"url": self._registry, "timeout": 30})
        first, schema_fields, serialize = 0, None, None
        while not self._ended.wait(1.0):
            if self._fields is not schema_fields:
                schema_fields = self._fields
                schema = {"type": "record", "name": "Event", "fields": schema_fields}
                serialize = AvroSerializer(client, json.dumps(schema))
            assert serialize is not None
            for number in range(first, first + RATE):
                event = {"id": number, "kind": "buy", "amount": number / 4}
                value = serialize(event, SerializationContext(EVENTS, MessageField.VALUE))
                producer.produce(EVENTS, value, partition=number % PARTITIONS)
                producer.produce(SHORT, json.dumps(event).encode(), partition=number % PARTITIONS)
            producer.poll(0)
            first += RATE
        producer.flush(60)
