"""A fleet of real workers for fault tests: start them, wait for a state of the tree, break things, audit the table.

Every wait has a generous deadline and returns as soon as its condition holds; nothing sleeps for a fixed time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import yaml
from confluent_kafka import Producer
from kazoo.client import KazooClient

from coordination.errors import Unavailable
from coordination.state.model import Phase, TopicPartition
from coordination.state.tree import KeeperView, Transaction
from coordination.zookeeper.keeper import Keeper
from sink.audit.audit import audit
from sink.audit.coverage import WHOLE, Coverage
from sink.audit.log import TopicAccess
from sink.audit.report import Report
from sink.telemetry.failpoints import ARMED, DIRECTORY, VARIABLE
from tests.one_sink import load
from tests.waiting import eventually
from tests.workers import WorkerProcess

PATIENCE = 240.0
SCHEMA = "id BIGINT, kind STRING, amount DOUBLE"


def produce(bootstrap: str, topic: str, records: int, partitions: int, first: int = 0) -> None:
    """Sends `records` JSON events, spread evenly over the partitions. Returns when Kafka has acknowledged all."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1000000})
    for number in range(first, first + records):
        event = {"id": number, "kind": ("buy", "view", "click")[number % 3], "amount": number / 4}
        producer.produce(topic, json.dumps(event).encode(), key=str(number), partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


@dataclass
class Fleet:
    directory: Path
    zookeeper: str
    kafka: str
    topic: str
    settings: Mapping[str, object] = field(default_factory=dict)
    name: str = "orders"
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    dying: dict[str, WorkerProcess] = field(default_factory=dict)
    """The worker that is to die at each failpoint."""

    def __post_init__(self) -> None:
        self.table = self.directory / "table"
        self.points = self.directory / "failpoints"
        self.points.mkdir(parents=True, exist_ok=True)
        self.root = f"/sink/{self.name}"
        self._connect()

    def _connect(self) -> None:
        self.client = KazooClient(self.zookeeper)
        self.client.start()
        self._keeper = Keeper(self.client, self.root, lambda: None)

    def reconnect(self) -> None:
        """Connects anew after ZooKeeper was emptied: it refuses a client that has seen a later zxid."""
        self._disconnect()
        self._connect()

    def start(self, name: str, failpoint: str = "", **settings: object) -> WorkerProcess:
        config = self.configure(name, **settings)
        environment = {VARIABLE: failpoint, DIRECTORY: str(self.points), **self.environment}
        worker = WorkerProcess(config, self.directory / f"{name}.log", environment, name)
        worker.start()
        self.workers[name] = worker
        self._expect(*failpoint.partition("=")[::2], worker)
        return worker

    def configure(self, name: str, **settings: object) -> Path:
        config = self.directory / f"{name}.yaml"
        merged = {**self._defaults(), "worker.id": name, **self.settings, **settings}
        config.write_text(yaml.safe_dump({key: value for key, value in merged.items() if value is not None}))
        return config

    def arm(self, name: str, point: str, action: str) -> None:
        """Arms a failpoint of a worker that runs, as `start` does for a new one, even if it has fired before."""
        unfinished = self.points / f"{point}.part"
        unfinished.write_text(f"{self.workers[name].pid} {action}")
        for stale in (point, f"{point}.go"):
            (self.points / stale).unlink(missing_ok=True)
        unfinished.rename(self.points / f"{point}{ARMED}")
        self._expect(point, action, self.workers[name])

    def _expect(self, point: str, action: str, worker: WorkerProcess) -> None:
        if action == "kill":
            self.dying[point] = worker

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        self._disconnect()

    def _disconnect(self) -> None:
        self.client.stop()
        self.client.close()

    def view(self) -> KeeperView:
        return self._keeper.read()

    def wait(self, description: str, condition: Callable[[KeeperView], bool], seconds: float = PATIENCE) -> KeeperView:
        latest: KeeperView | Unavailable | None = None

        def reached() -> bool:
            nonlocal latest
            try:
                latest = self.view()
            except Unavailable as error:
                latest = error
                return False
            return condition(latest)

        eventually(description, reached, seconds, lambda: f"{latest}\n{self.logs()}")
        assert isinstance(latest, KeeperView)
        return latest

    def wait_landed(self, ends: Mapping[int, int], seconds: float = PATIENCE) -> KeeperView:
        """Waits until each partition is AFTER up to the given end, and no transaction is open."""

        def landed(view: KeeperView) -> bool:
            states = {p: view.states.get(TopicPartition(self.topic, p)) for p in ends}
            return all(state is not None and not state.open and state.end >= ends[p] for p, state in states.items())

        return self.wait(f"landed up to {dict(ends)}", lambda v: landed(v) and not v.transactions, seconds)

    def lose_coordinator(self) -> None:
        """Starts two workers. The first one coordinates, and is killed when it has committed."""
        self.start("w1", "Complete.after=kill")
        self.coordinator()
        self.start("w2")
        self.wait_fired("Complete.after")

    def wait_fired(self, point: str) -> None:
        """Waits for a failpoint. Its file appears before it acts: if it kills, this waits for the worker's end too."""
        eventually(f"failpoint {point} fired", (self.points / point).exists, PATIENCE, self.logs)
        if point in self.dying:
            eventually(f"who is killed at {point} is dead", lambda: not self.dying[point].running, PATIENCE, self.logs)

    def wait_for_log(self, worker: str, text: str, since: int = 0) -> None:
        """Waits for a text in the worker's log, after its first `since` characters."""
        eventually(f"{worker} logged {text!r}", lambda: text in self.log(worker)[since:], PATIENCE, self.logs)

    def release(self, point: str) -> None:
        (self.points / f"{point}.go").touch()

    def coordinator(self) -> WorkerProcess:
        view = self.wait("a coordinator", lambda v: v.coordinator is not None and v.epoch > 0)
        assert view.coordinator is not None
        return self.workers[view.coordinator.rpartition(":")[0]]

    def audit(self, coverage: Coverage = WHOLE) -> Report:
        """Audits the table as `sink audit` does, with the settings of one worker; contents where rows have offsets."""
        settings = load(next(iter(self.workers.values())).config, {})
        access, global_keys = TopicAccess(self.kafka), settings.key_is_global
        storage, base_path = settings.storage, settings.base_path
        content = settings.provenance
        return audit(
            base_path,
            self.name,
            access,
            storage=storage,
            global_keys=global_keys,
            content=content,
            coverage=coverage,
        )

    def assert_exactly_once(self, records: int) -> None:
        report = self.audit()
        assert report.held, report.to_json()
        assert report.complete, report.to_json()
        assert report.rows == records, report.to_json()

    def largest(self, column: str) -> int:
        """Returns the largest value of a column in the data files of the table, which has no replaced ones."""
        files = [str(path) for path in self.table.rglob("*.parquet") if ".hoodie" not in path.parts]
        [(value,)] = duckdb.sql(f"SELECT max({column}) FROM read_parquet({files!r})").fetchall()
        return int(value)

    def log(self, worker: str) -> str:
        """Returns all that the worker has logged; empty before its first line."""
        log = self.directory / f"{worker}.log"
        return log.read_text() if log.exists() else ""

    def has_rehearsed(self, name: str) -> bool:
        return "worker.rehearsed" in self.log(name)

    def logs(self) -> str:
        """Returns the end of every log, for an error message."""
        return "\n".join(f"--- {name}\n" + "\n".join(self.log(name).splitlines()[-30:]) for name in self.workers)

    def _defaults(self) -> dict[str, object]:
        return {
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": 6000,
            "kafka.bootstrap.servers": self.kafka,
            "kafka.topic.names": self.topic,
            "target.base.path": str(self.table),
            "target.table.name": self.name,
            "schema.ddl": SCHEMA,
            "transaction.interval.ms": 500,
            "flush.size": 2000,
            "slice.records": 1000,
            # So small that every worker writes some of a test's few records.
            "write.task.bytes": 32 * 1024,
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            # A rehearsal takes most workers five seconds, and few tests need it.
            "worker.rehearsal": False,
            # Several workers of a host would ask for the same port.
            "http.listen": "none",
            "log.level": "debug",
            "log.dir": str(self.directory),
        }


def in_phase(phase: Phase) -> Callable[[KeeperView], bool]:
    return lambda view: any(t.header.phase is phase for t in view.transactions)


def transaction_in(view: KeeperView, phase: Phase) -> Transaction:
    return next(t for t in view.transactions if t.header.phase is phase)
