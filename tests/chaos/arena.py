"""The parts that a chaos run breaks: real servers, workers with ways of their own to them, a small disk, under load."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from types import TracebackType

from confluent_kafka.admin import AdminClient, NewPartitions

from coordination.errors import Unavailable
from sink.devtools.local.kafka import KafkaServer, Listener
from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.devtools.local.workers import WorkerProcess
from sink.devtools.local.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from sink.operations.reset_writer import workers
from tests.bench.orders import create_topic
from tests.chaos.auditor import ACKNOWLEDGED
from tests.chaos.proxy import Mode, Proxy
from tests.chaos.shape import Shape
from tests.chaos.stores import DISK as ON_DISK
from tests.chaos.stores import a_place
from tests.chaos.watch import Timeline
from tests.chaos.workload import Workload
from tests.disk import mount_small, unmount
from tests.fleet import Fleet
from tests.waiting import eventually

TOPIC = "events"
RATE = 300.0
FLUSH_SIZE = 100_000
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

    def __init__(self, directory: Path, workers: int, shape: Shape, seed: int, points: Iterator[str]) -> None:
        self.directory = directory
        self.shape = shape
        self.points = points
        """Failpoints to come."""
        self.fired: set[str] = set()
        self._seed = seed
        self.names = [f"w{number}" for number in range(1, workers + 1)]
        self.zookeeper = ZooKeeperEnsemble(directory / "zookeeper")
        ports = dict(zip(self.names, free_ports(workers), strict=True))
        self.ways = {name: Ways(self.zookeeper, port) for name, port in ports.items()}
        own = [Listener(f"W{n}", ways.listener, ways.kafka) for n, ways in enumerate(self.ways.values())]
        self.kafka = KafkaServer(directory / "kafka", listeners=own)
        self.disk = directory / "disk"
        self.disk.mkdir(parents=True)
        self.mounted = False
        self._leader = self.coordinator
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
        if self.shape.store == ON_DISK and mount_small(self.disk, DISK):
            self.mounted = True
            ends.callback(unmount, self.disk)
        self.place = ends.enter_context(a_place(self.shape.store, self.directory, self.disk, self.names))
        ends.callback(self.zookeeper.stop)
        self.zookeeper.start()
        ends.callback(self.kafka.stop)
        self.kafka.start()
        create_topic(self.kafka.address, TOPIC, self.shape.partitions)
        events = self.shape.events(self._seed)
        file = self.directory / ACKNOWLEDGED
        self.workload = Workload(self.kafka.address, TOPIC, RATE, events, self.shape.rule, file)
        ends.callback(self.workload.stop)
        self.workload.start()
        self._settings: dict[str, object] = {
            "target.base.path": f"{self.place.base}/table",
            **self.place.settings,
            "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "transaction.interval.ms": 1000,
            "coordinator.writestatus.timeout": 60_000,
            "flush.size": FLUSH_SIZE,
            "slice.records": 10_000,
            # So that a gap can be made, of what nobody counts.
            "on.data.loss": "skip",
            "worker.rehearsal": True,
            **self.shape.settings(),
        }
        place = self.directory / "fleet"
        self.fleet = Fleet(place, self.zookeeper.address, self.kafka.address, TOPIC, self._settings)
        ends.callback(self.fleet.close)
        for name in self.names:
            self.start(name)
        eventually("the table", lambda: bool(self.place.timeline()), PATIENCE, self.fleet.logs)
        self._watch = Timeline(self.place, self.shape.progress)
        ends.enter_context(self._watch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    @property
    def commits(self) -> dict[str, float]:
        """Transactions' instants that were seen complete, and when they became so."""
        return dict(self._watch.seen)

    @property
    def rewritten(self) -> int:
        """How often a table service has rewritten files."""
        return len(self._watch.rewritten)

    @property
    def longest_without_commit(self) -> float:
        """In seconds, from the first commit to the last."""
        seen = sorted(self.commits.values())
        return max((later - earlier for earlier, later in pairwise(seen)), default=0.0)

    def start(self, name: str, failpoint: str = "") -> WorkerProcess:
        ways = self.ways[name]
        places: dict[str, object] = {"zookeeper.connect": ways.zookeeper, "kafka.bootstrap.servers": ways.kafka}
        return self.fleet.start(name, failpoint, **places, **self.place.of_worker(name))

    def worker(self, name: str) -> WorkerProcess:
        return self.fleet.workers[name]

    def coordinator(self) -> str | None:
        """The name of the worker that leads, if one can be seen."""
        try:
            leader = self.fleet.view().coordinator
        except Unavailable:
            return None
        return leader.rpartition(":")[0] if leader else None

    @contextmanager
    def nobody_asked(self) -> Iterator[None]:
        """The first leader still leads: with ZooKeeper away, an answer would come when it is back."""
        leader = self.coordinator()
        self._leader = lambda: leader
        try:
            yield
        finally:
            self._leader = self.coordinator

    def someone(self, chance: Random) -> str:
        """Half of the time the coordinator."""
        leader = self._leader()
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

    def kill_workers(self) -> None:
        for name in self.names:
            self.worker(name).kill()

    def await_nobody(self) -> None:
        """Until the sessions of all workers have ended."""
        eventually("no worker is left", lambda: not workers(self.fleet.client, self.fleet.root))

    def reconfigure(self) -> None:
        """A change of what the whole fleet has to agree on, for workers that are started from now on."""
        self._settings["flush.size"] = FLUSH_SIZE if self._settings["flush.size"] != FLUSH_SIZE else FLUSH_SIZE - 1

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
    """A server's own word on its state; nothing when it does not answer."""
    try:
        with socket.create_connection((LOOPBACK, server.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            return connection.makefile().read()
    except OSError:
        return ""
