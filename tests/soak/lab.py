"""A fleet at a trickle, with servers whose data outlives a stop: a soak can be resumed.

The sinks are of three kinds in turn: changes of rows in a table that is merged on read, with a record index and
compactions; Avro rows of a registry whose schema gets a column now and then, clustered; and changes of rows in a
copy-on-write table. A record has about 1 kB of text that does not compress.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.many_sinks import ManySinks
from tests.registry_kit import RegistryRequest, RegistryResponse, StubRegistry
from tests.waiting import eventually

PARTITIONS = 2
NOTE_BYTES = 500
"""Each is two characters of the text."""
COLUMNS = 12
"""After so many the schema stays as it is."""
SESSION_SECONDS = 6.0
PATIENCE = 600.0
SETTLE_SECONDS = 5.0
"""Table services, and what follows a commit, go on for so long."""
KINDS = ("changes", "rows", "copies")


@dataclass
class Progress:
    """The state of a soak, which the next run goes on from. `soaked` is in seconds."""

    sinks: int
    heap: str
    rate: float
    interval: float
    leak: float = 0.0
    workers: int = 2
    keys: int = 20_000
    zookeeper_port: int = 0
    kafka_port: int = 0
    soaked: float = 0.0
    life: int = 0
    sent: int = 0
    columns: int = 0
    ended: int = 0
    """Workers that ended by themselves."""

    @classmethod
    def load(cls, file: Path) -> Progress:
        return cls(**json.loads(file.read_text()))

    def save(self, file: Path) -> None:
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1))
        new.replace(file)


class Lab:
    """`with` starts servers, workers and the trickle, and ends them."""

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._directory, self.progress = directory, progress
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._feed = threading.Thread(target=self._produce, name="feed", daemon=True)
        self._workers = [f"w{number + 1}" for number in range(progress.workers)]
        self.kinds = {f"s{number:02d}": KINDS[number % len(KINDS)] for number in range(progress.sinks)}

    def __enter__(self) -> Lab:
        progress, enter = self.progress, self._stack.enter_context
        if not progress.kafka_port:
            progress.zookeeper_port, progress.kafka_port = free_ports(2)
        whitelist = {"4lw.commands.whitelist": "ruok,srvr,mntr"}
        self.zookeeper = enter(ZooKeeperServer(self._directory / "zookeeper", progress.zookeeper_port, whitelist))
        # The trickle is kept for the audit.
        self.kafka = enter(KafkaServer(self._directory / "kafka", progress.kafka_port))
        registry = enter(StubRegistry(_answer))
        self._admin = AdminClient({"bootstrap.servers": self.kafka.address, "log_level": 0})
        missing = self.kinds.keys() - self._admin.list_topics(timeout=30).topics.keys()
        for created in (
            self._admin.create_topics([NewTopic(name, PARTITIONS) for name in missing]).values() if missing else ()
        ):
            created.result(60)
        self.fleet = ManySinks(self._directory / "fleet", self.zookeeper.address, self.kafka.address, self._shared())
        if progress.leak:
            self.fleet.program = ("tests.soak.leaking_worker", str(progress.leak))
        self._stack.callback(self.fleet.close)
        for name, kind in self.kinds.items():
            self.fleet.add(name, name, **_settings(kind, registry.url))
        for name in self._workers:
            self._start(name)
        self._stack.callback(self._feed.join)
        self._stack.callback(self._ended.set)
        self._feed.start()
        eventually("every sink lands", lambda: all(map(self.fleet.landed, self.kinds)), PATIENCE, self.fleet.logs)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _shared(self) -> Mapping[str, object]:
        return {
            "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "spark.driver.memory": self.progress.heap,
            "transaction.interval.ms": int(self.progress.interval * 1000),
            "worker.rehearsal": True,
            "hoodie.metadata.enable": True,
            "log.level": "info",
        }

    def _start(self, name: str) -> None:
        temporary = self._directory / "tmp" / name
        temporary.mkdir(parents=True, exist_ok=True)
        self.fleet.start(name, {"TMPDIR": str(temporary)})

    def start_ended(self) -> None:
        """Starts workers again that have ended by themselves, as their supervisor does, and shows their last words."""
        for name in [name for name, worker in self.fleet.workers.items() if not worker.running]:
            self.progress.ended += 1
            last = "".join(self.fleet.log(name).splitlines(keepends=True)[-1:])
            print(f"worker {name} has ended, and is started again: {last}", flush=True)
            self._start(name)

    @property
    def temporary(self) -> Path:
        return self._directory / "tmp"

    @property
    def lake(self) -> Path:
        return self.fleet.directory / "lake"

    def take_over(self) -> None:
        """Stops the worker that leads most sinks until its session has ended, and lets it go on."""
        led = [self.fleet.leader(sink) for sink in self.kinds]
        worker = self.fleet.workers[max(self._workers, key=led.count)]
        worker.pause()
        time.sleep(2 * SESSION_SECONDS)
        worker.resume()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Pauses the sinks until nothing is open: what a worker holds then, it holds for good."""
        try:
            self._ask("pause")
            time.sleep(SETTLE_SECONDS)
            yield
        finally:
            self._ask("resume")

    def _ask(self, verb: str) -> None:
        config = str(self.fleet.workers[self._workers[0]].config)
        subprocess.run((sys.executable, "-m", "sink.cli", verb, "--config", config), check=True, capture_output=True)

    def add_column(self) -> None:
        self.progress.columns = min(COLUMNS, self.progress.columns + 1)

    def finish(self) -> None:
        """Ends the trickle, waits until all has landed, and audits every table."""
        self._ended.set()
        self._feed.join()
        for sink in self.kinds:
            latest = {TopicPartition(sink, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
            end = sum(future.result().offset for future in self._admin.list_offsets(latest).values())
            self.fleet.wait_landed([sink], end, PATIENCE)
            access = TopicAccess(self.kafka.address)
            report = audit(str(self.fleet.sinks[sink]["target.base.path"]), sink, access, content=True)
            assert report.held, report.to_json()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.address, "linger.ms": 20, "log_level": 0})
        progress = self.progress
        if not progress.sent:
            progress.sent = progress.keys
            for number in range(progress.keys):
                self._send(producer, number)
                producer.poll(0)
            producer.flush(60)
        began, before = time.monotonic(), progress.sent
        while not self._ended.wait(0.1):
            while progress.sent < before + (time.monotonic() - began) * progress.rate:
                self._send(producer, progress.sent)
                progress.sent += 1
            producer.poll(0)
        producer.flush(60)

    def _send(self, producer: Producer, number: int) -> None:
        chance = random.Random(number)
        row: dict[str, Any] = {"id": number, "note": chance.randbytes(NOTE_BYTES).hex()}
        keys = self.progress.keys
        change = json.dumps({**row, "id": number if number < keys else chance.randrange(keys), "at": number}).encode()
        avro = _framed(row, self.progress.columns)
        for sink, kind in self.kinds.items():
            while True:
                try:
                    producer.produce(sink, avro if kind == "rows" else change, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.5)


def _settings(kind: str, registry: str) -> dict[str, object]:
    if kind == "rows":
        return {
            "schema.ddl": "id BIGINT, note STRING",
            "value.format": "avro-confluent",
            "schema.registry.url": registry,
            "services.clustering": True,
        }
    settings: dict[str, object] = {
        "schema.ddl": "id BIGINT, at BIGINT, note STRING",
        "write.operation": "upsert",
        "record.key.fields": "id",
        "ordering.field.name": "at",
    }
    if kind == "copies":
        return {**settings, "target.table.type": "copy_on_write"}
    return {
        **settings,
        "target.table.type": "merge_on_read",
        "index.type": "record",
        "hoodie.metadata.global.record.level.index.min.filegroup.count": 1,
    }


def _schema(columns: int) -> dict[str, Any]:
    added = [{"name": f"c{number}", "type": ["null", "long"], "default": None} for number in range(columns)]
    return {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}, *added],
    }


def _framed(row: Mapping[str, Any], columns: int) -> bytes:
    """Returns the row as Avro behind Confluent's prefix; the schema with n added columns has id n + 1."""
    buffer = io.BytesIO(b"\0" + (columns + 1).to_bytes(4, "big"))
    buffer.seek(5)
    values = {**row, **{f"c{number}": row["id"] + number for number in range(columns)}}
    fastavro.schemaless_writer(buffer, _schema(columns), values)
    return buffer.getvalue()


def _answer(request: RegistryRequest) -> RegistryResponse:
    path = request.path.partition("?")[0]
    if path.startswith("/schemas/ids/"):
        return RegistryResponse(200, {"schema": json.dumps(_schema(int(path.rpartition("/")[2]) - 1))})
    return RegistryResponse(404, {"error_code": 40401, "message": "no such subject"})
