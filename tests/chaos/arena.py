"""What a chaos run breaks: real servers, workers with their own ways to them, a small disk, all under load."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from types import TracebackType

from confluent_kafka.admin import AdminClient, NewPartitions

from coordination.errors import Unavailable
from sink.local.servers import (
    LOOPBACK,
    KafkaServer,
    Listener,
    WorkerProcess,
    ZooKeeperEnsemble,
    ZooKeeperServer,
    free_ports,
)
from tests.bench.freshness import Watch
from tests.bench.orders import create_topic
from tests.chaos.proxy import Mode, Proxy
from tests.chaos.workload import Workload
from tests.disk import mount_small, unmount
from tests.fleet import Fleet
from tests.waiting import eventually

TOPIC = "events"
PARTITIONS = 4
RATE = 300.0
ACKNOWLEDGED = "acknowledged.txt"
DISK = "1g"
SESSION_SECONDS = 6.0
PATIENCE = 300.0


class Ways:
    """How one worker reaches ZooKeeper and Kafka: through proxies of its own, the broker by its own listener."""

    def __init__(self, ensemble: ZooKeeperEnsemble, listener: int) -> None:
        self.listener = listener
        self._zookeeper = [Proxy(server.address) for server in ensemble.servers]
        self._kafka = Proxy(f"{LOOPBACK}:{listener}")

    @property
    def zookeeper(self) -> str:
        return ",".join(proxy.address for proxy in self._zookeeper)

    @property
    def kafka(self) -> str:
        return self._kafka.address

    def set(self, service: str, mode: Mode) -> None:
        for proxy in self._zookeeper if service == "ZooKeeper" else [self._kafka]:
            proxy.set(mode)

    def close(self) -> None:
        for proxy in (*self._zookeeper, self._kafka):
            proxy.close()


class Arena:
    """`with` starts everything, and ends every process in the end."""

    def __init__(self, directory: Path, workers: int, in_flight: int, points: Iterator[str]) -> None:
        self.directory = directory
        self.points = points
        """Failpoints to come."""
        self.fired: set[str] = set()
        self._in_flight = in_flight
        self.names = [f"w{number}" for number in range(1, workers + 1)]
        self.zookeeper = ZooKeeperEnsemble(directory / "zookeeper")
        ports = dict(zip(self.names, free_ports(workers), strict=True))
        self.ways = {name: Ways(self.zookeeper, port) for name, port in ports.items()}
        own = [Listener(f"W{n}", ways.listener, ways.kafka) for n, ways in enumerate(self.ways.values())]
        self.kafka = KafkaServer(directory / "kafka", listeners=own)
        self.disk = directory / "disk"
        self.disk.mkdir(parents=True)
        self.mounted = False
        self._ends = ExitStack()

    def __enter__(self) -> Arena:
        with ExitStack() as ends:
            self._start(ends)
            self._ends = ends.pop_all()
        return self

    def _start(self, ends: ExitStack) -> None:
        """`ends` undoes it, from the last to the first, also when it was not done to its end."""
        for ways in self.ways.values():
            ends.callback(ways.close)
        if mount_small(self.disk, DISK):
            self.mounted = True
            ends.callback(unmount, self.disk)
        ends.callback(self.zookeeper.stop)
        self.zookeeper.start()
        ends.callback(self.kafka.stop)
        self.kafka.start()
        create_topic(self.kafka.address, TOPIC, PARTITIONS)
        self.workload = Workload(self.kafka.address, TOPIC, PARTITIONS, RATE, self.directory / ACKNOWLEDGED)
        ends.callback(self.workload.stop)
        self.workload.start()
        settings = {
            "target.base.path": str(self.disk / "table"),
            "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "transaction.interval.ms": 1000,
            "transactions.in.flight": self._in_flight,
            "coordinator.writestatus.timeout": 60_000,
            "flush.size": 100_000,
            "slice.records": 10_000,
            "worker.rehearsal": True,
        }
        self.fleet = Fleet(self.directory / "fleet", self.zookeeper.address, self.kafka.address, TOPIC, settings)
        ends.callback(self.fleet.close)
        self.fleet.table = self.disk / "table"
        for name in self.names:
            self.start(name)
        eventually("the table", (self.fleet.table / ".hoodie" / "timeline").exists, PATIENCE, self.fleet.logs)
        self._watch = ends.enter_context(Watch(self.fleet.table))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    @property
    def commits(self) -> dict[str, float]:
        """Instants that were seen complete, and when they became so."""
        return dict(self._watch.seen)

    @property
    def longest_without_commit(self) -> float:
        """In seconds, from the first commit to the last."""
        seen = sorted(self.commits.values())
        return max((later - earlier for earlier, later in pairwise(seen)), default=0.0)

    def start(self, name: str, failpoint: str = "") -> WorkerProcess:
        ways = self.ways[name]
        places = {"zookeeper.connect": ways.zookeeper, "kafka.bootstrap.servers": ways.kafka}
        return self.fleet.start(name, failpoint, **places)

    def worker(self, name: str) -> WorkerProcess:
        return self.fleet.workers[name]

    def coordinator(self) -> str | None:
        """The name of the worker that leads, if one can be seen."""
        try:
            leader = self.fleet.view().coordinator
        except Unavailable:
            return None
        return leader.rpartition(":")[0] if leader else None

    def someone(self, chance: Random) -> str:
        """Half of the time the coordinator."""
        leader = self.coordinator()
        return leader if leader and chance.random() < 0.5 else chance.choice(self.names)

    def leading_zookeeper(self) -> ZooKeeperServer:
        """The ensemble's leader; the first server while there is none."""
        servers = self.zookeeper.servers
        return next((server for server in servers if "Mode: leader" in _status(server)), servers[0])

    def empty_zookeeper(self) -> None:
        self.zookeeper.stop()
        for server in self.zookeeper.servers:
            shutil.rmtree(server.directory / "data")
        self.zookeeper.start()
        self.fleet.reconnect()

    def add_partition(self) -> None:
        """Nothing is sent there."""
        admin = AdminClient({"bootstrap.servers": self.kafka.address})
        count = len(admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)
        admin.create_partitions([NewPartitions(TOPIC, count + 1)])[TOPIC].result(30)

    def stop_workers(self) -> None:
        """The table is left as it is."""
        for name in self.names:
            self.worker(name).kill()

    def epoch(self) -> int:
        return self.fleet.wait("ZooKeeper answers", lambda _: True).epoch

    def revive(self) -> None:
        """Starts whoever is not there. A worker whose JVM or Python has died ends by itself, or is ended."""
        for name in self.names:
            if not self.worker(name).running:
                self.start(name)

    def await_commit(self, since: float) -> float:
        """When the next commit became visible after `since`."""
        eventually("a commit", lambda: any(at > since for at in self.commits.values()), PATIENCE, self.fleet.logs)
        return min(at for at in self.commits.values() if at > since)

    def halted(self) -> str | None:
        halt = self.fleet.wait("ZooKeeper answers", lambda _: True).halt
        return halt.reason if halt else None


def _status(server: ZooKeeperServer) -> str:
    """What a server says of itself; nothing when it does not answer."""
    try:
        with socket.create_connection((LOOPBACK, server.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            return connection.makefile().read()
    except OSError:
        return ""
