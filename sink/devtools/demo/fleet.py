"""The demo's cluster: ZooKeeper, Kafka, a topic of order events, workers and the table, in one directory; the table may
be on an S3 server.

All processes are children of this one and end with it, unless `detach` is called. Raises `Unavailable`.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from coordination.errors import Unavailable
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from sink.devtools.demo import orders
from sink.devtools.demo.tables import DemoTable
from sink.devtools.local.child_process import CHILDREN
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.devtools.local.workers import LocalWorker
from sink.devtools.local.zookeeper import ZooKeeperServer

NAME = "orders"
TOPIC = "orders"
PARTITIONS = 6
SESSION_MS = 6000
STOP_SECONDS = 15.0
READ_SECONDS = 20.0


class DemoCluster:
    """Servers and workers in `directory`. Call `start` first; `end` may be called at any time.

    A transaction has at most `transaction_records` records.
    """

    def __init__(self, directory: Path, transaction_records: int, table: DemoTable) -> None:
        self.directory = directory
        self.table = table
        self.logs = directory / "logs"
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.kafka = KafkaServer(directory / "kafka", heap="384m")
        self.workers: dict[str, LocalWorker] = {}
        self.pages: dict[str, str] = {}
        """The address of each worker's page."""
        self._flush_size = max(1, transaction_records // PARTITIONS)
        self._client: KazooClient | None = None
        self._keeper: Keeper | None = None

    def start(self) -> None:
        """Starts the servers and creates the topic. Returns when they answer."""
        self.zookeeper.launch()
        for server in self.table.servers:
            server.launch()
        self.kafka.start()
        self.zookeeper.start()
        self.table.start()
        orders.make_topic(self.kafka.address, TOPIC, PARTITIONS)
        self._client = KazooClient(self.zookeeper.address)
        self._client.start(timeout=READ_SECONDS)
        self._keeper = Keeper(self._client, f"/sink/{NAME}", lambda: None)

    def start_worker(self, name: str) -> LocalWorker:
        worker = LocalWorker(self._write_config(name), self.logs / f"{name}.log", name=name)
        self.workers[name] = worker.start()
        return worker

    def living_pages(self) -> list[str]:
        """Returns the addresses of the pages of running workers."""
        return [f"http://{self.pages[name]}/" for name, worker in self.workers.items() if worker.running]

    def view(self) -> KeeperView:
        """Reads the sink's znodes; before the first worker creates them the view is empty."""
        assert self._keeper is not None
        assert self._client is not None
        deadline = time.monotonic() + READ_SECONDS
        while True:
            try:
                return self._keeper.read()
            except Unavailable:
                if time.monotonic() > deadline or self._client.state == KazooState.LOST:
                    raise
                time.sleep(0.1)

    def stop_workers(self) -> None:
        """Sends SIGTERM to all workers at once, like a service manager, and later kills workers that still run."""
        with ThreadPoolExecutor(len(self.workers) or 1) as pool:
            list(pool.map(lambda worker: worker.stop(STOP_SECONDS), self.workers.values()))

    def detach(self) -> str:
        """Lets servers and workers live on. Returns the command that ends them."""
        tag = CHILDREN.detach()
        return f"{sys.executable} -m sink.devtools.local.process_watchdog {tag} < /dev/null"

    def end(self) -> None:
        """Kills every process."""
        if self._client is not None:
            self._client.stop()
            self._client.close()
        CHILDREN.end()

    def delete_server_data(self) -> None:
        """Removes the servers' data. The logs stay, and so does a table in the directory."""
        for server in (self.zookeeper, self.kafka, *self.table.servers):
            shutil.rmtree(server.directory, ignore_errors=True)

    def _write_config(self, name: str) -> Path:
        self.pages.setdefault(name, f"{LOOPBACK}:{free_ports(1)[0]}")
        settings = {
            "worker.id": name,
            "sink.name": NAME,
            "zookeeper.connect": self.zookeeper.address,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "kafka.bootstrap.servers": self.kafka.address,
            "kafka.topic.names": TOPIC,
            **self.table.settings,
            "target.table.name": NAME,
            "schema.ddl": orders.DDL,
            "transaction.interval.ms": 2000,
            "flush.size": self._flush_size,
            "spark.master": "local[1]",
            "spark.driver.memory": "768m",
            "log.dir": str(self.logs),
            "http.listen": self.pages[name],
        }
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(settings, sort_keys=False))
        return path
