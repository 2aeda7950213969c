"""Workers that host many sinks, for tests: their configuration, their start, and the audit of each table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from kazoo.client import KazooClient

from coordination.errors import Unavailable
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.worker_records import HostedRecord, worker_records
from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from tests.fleet import PATIENCE, SCHEMA
from tests.waiting import eventually
from tests.workers import WorkerProcess


@dataclass
class ManySinks:
    """`shared` overrides the settings that all sinks share. `program` as for `WorkerProcess`."""

    directory: Path
    zookeeper: str
    kafka: str
    shared: Mapping[str, object] = field(default_factory=dict)
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    program: Sequence[str] = ("sink.worker",)

    def __post_init__(self) -> None:
        self.client = KazooClient(self.zookeeper)
        self.client.start()
        self._keepers: dict[str, Keeper] = {}
        self.sinks: dict[str, dict[str, object]] = {}

    def add(self, name: str, topic: str = "", **settings: object) -> None:
        """Adds a sink, from the next `configure` on. Without a topic, the settings have to name a pattern."""
        has_columns = not {"schema.ddl", "schema.file", "schema.subject"}.isdisjoint({*settings, *self.shared})
        self.sinks[name] = {
            **({"kafka.topic.names": topic} if topic else {}),
            **({} if has_columns else {"schema.ddl": SCHEMA}),
            "target.base.path": str(self.directory / "lake" / name),
            **settings,
        }

    def configure(self, worker: str, **overrides: object) -> Path:
        """Writes the worker's configuration anew. `overrides` are settings of this worker alone."""
        directory = self.directory / worker
        directory.mkdir(parents=True, exist_ok=True)
        shared = {**self._defaults(), "worker.id": worker, **self.shared, **overrides, "sinks": self.sinks}
        config = directory / "fleet.yaml"
        config.write_text(yaml.safe_dump(shared))
        return config

    def start(self, worker: str, environment: Mapping[str, str] | None = None, **overrides: object) -> WorkerProcess:
        config, log = self.configure(worker, **overrides), self.directory / f"{worker}.log"
        process = WorkerProcess(config, log, environment or {}, worker, self.program)
        process.start()
        self.workers[worker] = process
        return process

    def view(self, sink: str) -> KeeperView:
        return self._keeper(sink).read()

    def hosts(self, sink: str) -> dict[str, HostedRecord]:
        """Returns the sink's record in each process that hosts it, by worker."""
        records = worker_records(self.client, self.shared.get("zookeeper.root", "/sink"))
        return {record.worker: record.sinks[sink] for record in records if sink in record.sinks}

    def _keeper(self, sink: str) -> Keeper:
        root = self.shared.get("zookeeper.root", "/sink")
        return self._keepers.setdefault(sink, Keeper(self.client, f"{root}/{sink}", lambda: None))

    def leader(self, sink: str) -> str:
        """Returns the worker that leads the sink; empty without one."""
        try:
            coordinator = self.view(sink).coordinator
        except Unavailable:
            return ""
        return coordinator.rpartition(":")[0] if coordinator else ""

    def landed(self, sink: str) -> int:
        """Returns the sink's settled end offsets in ZooKeeper, summed; 0 while ZooKeeper does not answer."""
        try:
            return sum(state.end for state in self.view(sink).states.values())
        except Unavailable:
            return 0

    def wait_landed(self, sinks: Iterable[str], records: int, seconds: float = PATIENCE) -> None:
        for sink in sinks:
            eventually(f"{sink} has {records}", lambda s=sink: self.landed(s) >= records, seconds, self.logs)  # type: ignore[misc]

    def assert_exactly_once(self, sink: str, records: int) -> None:
        report = audit(str(self.sinks[sink]["target.base.path"]), sink, TopicAccess(self.kafka), content=True)
        assert report.held, report.to_json()
        assert report.complete, report.to_json()
        assert report.rows == records, report.to_json()

    def log(self, worker: str) -> str:
        log = self.directory / f"{worker}.log"
        return log.read_text() if log.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n" + "\n".join(self.log(name).splitlines()[-30:]) for name in self.workers)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        self.client.stop()
        self.client.close()

    def _defaults(self) -> dict[str, object]:
        return {
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": 6000,
            "kafka.bootstrap.servers": self.kafka,
            "transaction.interval.ms": 1000,
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "worker.rehearsal": False,
            "http.listen": "none",
            "log.level": "debug",
            "log.dir": str(self.directory),
            "hoodie.metadata.enable": False,
        }
