"""The parts that a chaos run breaks: real servers, workers behind proxies of their own, a small disk, under load."""

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
from sink.audit.coverage import Coverage
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import LOOPBACK
from sink.devtools.local.zookeeper import ZooKeeperServer
from sink.operations.reset_writer import live_workers
from tests.bench.orders import create_topic
from tests.chaos.auditor import ACKNOWLEDGED, OTHERS
from tests.chaos.links import OtherCluster, WorkerProxies
from tests.chaos.other_writer import OtherWriter
from tests.chaos.shape import Shape
from tests.chaos.stores import DISK as ON_DISK
from tests.chaos.stores import open_table_store
from tests.chaos.watch import CommitWatch
from tests.chaos.workload import Workload
from tests.disk import mount_small, unmount
from tests.fleet import Fleet
from tests.kafka_cluster import KafkaCluster
from tests.waiting import eventually
from tests.workers import WorkerProcess
from tests.zookeepers import ZooKeeperEnsemble

TOPIC = "events"
FLUSH_SIZE = 100_000
DISK = "1g"
SESSION_SECONDS = 6.0
PATIENCE = 300.0
CONTENTS = "contents.json"
"""The report of `sink audit --content`, in the directory of a run."""


class Arena:
    """`with` starts everything, and at its end ends every process."""

    def __init__(self, directory: Path, workers: int, shape: Shape, seed: int, points: Iterator[str]) -> None:
        self.directory = directory
        self.shape = shape
        self.points = points
        """Yields the next failpoint for a worker to die at."""
        self.fired: set[str] = set()
        self.log_changed_at = ""
        """When the log last lost records that had landed, as an instant; empty if it never did."""
        self._seed = seed
        self.names = [f"w{number}" for number in range(1, workers + 1)]
        self.zookeeper = ZooKeeperEnsemble(directory / "zookeeper")
        self.proxies = {name: WorkerProxies(self.zookeeper, shape.brokers) for name in self.names}
        listeners = [
            [proxies.listener(name.upper(), broker) for name, proxies in self.proxies.items()]
            for broker in range(shape.brokers)
        ]
        self.kafka: KafkaServer | KafkaCluster
        self.other_cluster: OtherCluster | None = None
        """Another cluster, beside one of three brokers."""
        if shape.brokers == 1:
            self.kafka = KafkaServer(directory / "kafka", listeners=listeners[0])
        else:
            self.kafka = KafkaCluster(directory / "kafka", dict(enumerate(listeners, 1)))
            self.other_cluster = OtherCluster(directory / "other-cluster", TOPIC, self.proxies)
        self.disk = directory / "disk"
        self.disk.mkdir(parents=True)
        self.mounted = False
        self._leader = self.coordinator
        self._cleanup = ExitStack()

    def __enter__(self) -> Arena:
        with ExitStack() as cleanup:
            self._start(cleanup)
            self._cleanup = cleanup.pop_all()
        return self

    def _start(self, cleanup: ExitStack) -> None:
        """Starts everything. `cleanup` undoes each step, the last one first, even if a later step fails."""
        for proxies in self.proxies.values():
            cleanup.callback(proxies.close)
        if self.shape.store == ON_DISK and mount_small(self.disk, DISK):
            self.mounted = True
            cleanup.callback(unmount, self.disk)
        self.table_store = cleanup.enter_context(
            open_table_store(self.shape.store, self.directory, self.disk, self.names)
        )
        cleanup.callback(self.zookeeper.stop)
        self.zookeeper.start()
        cleanup.callback(self.kafka.kill)
        self.kafka.start()
        self.create_topic()
        if self.other_cluster is not None:
            cleanup.enter_context(self.other_cluster.server)
            create_topic(self.other_cluster.server.address, TOPIC, self.shape.partitions)
        self.evolution = self.shape.evolution()
        events = self.shape.events(self._seed, self.evolution)
        acknowledged = self.directory / ACKNOWLEDGED
        self.workload = Workload(self.kafka.address, TOPIC, self.shape.rate, events, self.shape.rule, acknowledged)
        cleanup.callback(self.workload.stop)
        self.workload.start()
        self._settings: dict[str, object] = {
            "target.base.path": f"{self.table_store.base}/table",
            # With the 32 KiB of the other tests' fleets a backlog of a minute would be fifty tasks. Where a worker is
            # redirected to another cluster, each has to have something to read.
            "write.task.bytes": (256 if self.other_cluster is None else 32) * 1024,
            **self.table_store.settings,
            "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "transaction.interval.ms": 1000,
            "coordinator.writestatus.timeout": 60_000,
            "flush.size": FLUSH_SIZE,
            "slice.records": 10_000,
            # So that a fault can make a gap, of records that the workload does not count.
            "on.data.loss": "skip",
            "worker.rehearsal": True,
            **self.shape.settings(),
        }
        fleet_directory = self.directory / "fleet"
        self.fleet = Fleet(fleet_directory, self.zookeeper.address, self.kafka.address, TOPIC, self._settings)
        cleanup.callback(self.fleet.close)
        self.other_writer = OtherWriter(fleet_directory, self.directory / OTHERS)
        cleanup.callback(self.other_writer.close)
        for name in self.names:
            self.start(name)
        eventually("the table", lambda: bool(self.table_store.timeline()), PATIENCE, self.fleet.logs)
        self._watch = CommitWatch(self.table_store, self.shape.commit_action)
        cleanup.enter_context(self._watch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def commits(self) -> dict[str, float]:
        """The instants of the transactions that were seen complete, and when each completed."""
        return dict(self._watch.commits)

    @property
    def rewritten(self) -> int:
        """How often a table service has rewritten files."""
        return len(self._watch.rewrites)

    @property
    def longest_without_commit(self) -> float:
        """The longest time between two successive commits, in seconds."""
        times = sorted(self.commits.values())
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def start(self, name: str, failpoint: str = "") -> WorkerProcess:
        proxies = self.proxies[name]
        addresses: dict[str, object] = {
            "zookeeper.connect": proxies.zookeeper,
            "kafka.bootstrap.servers": proxies.kafka,
        }
        return self.fleet.start(name, failpoint, **addresses, **self.table_store.worker_settings(name))

    def worker(self, name: str) -> WorkerProcess:
        return self.fleet.workers[name]

    def coordinator(self) -> str | None:
        """Returns the name of the worker that leads; None without one, or while ZooKeeper does not answer."""
        try:
            leader = self.fleet.view().coordinator
        except Unavailable:
            return None
        return leader.rpartition(":")[0] if leader else None

    @contextmanager
    def coordinator_pinned(self) -> Iterator[None]:
        """Takes the present coordinator for the coordinator: without ZooKeeper, asking would block until it is back."""
        leader = self.coordinator()
        self._leader = lambda: leader
        try:
            yield
        finally:
            self._leader = self.coordinator

    def random_worker(self, chance: Random) -> str:
        """Draws a worker's name: half of the time the coordinator's."""
        leader = self._leader()
        return leader if leader and chance.random() < 0.5 else chance.choice(self.names)

    def leading_zookeeper(self) -> ZooKeeperServer:
        """Returns the ensemble's leader, or the first server while there is none."""
        servers = self.zookeeper.servers
        return next((server for server in servers if "Mode: leader" in _status(server)), servers[0])

    def empty_zookeeper(self) -> None:
        self.zookeeper.stop()
        for server in self.zookeeper.servers:
            shutil.rmtree(server.directory / "data")
        self.zookeeper.start()
        self.fleet.reconnect()

    def create_topic(self) -> None:
        if isinstance(self.kafka, KafkaCluster):
            self.kafka.create(TOPIC, self.shape.partitions)
        else:
            create_topic(self.kafka.address, TOPIC, self.shape.partitions)

    @contextmanager
    def stoppable_broker(self, chance: Random) -> Iterator[KafkaServer]:
        """Yields a broker that may be stopped meanwhile: it never has the only copy of what was acknowledged."""
        if isinstance(self.kafka, KafkaServer):
            yield self.kafka
            return
        self.kafka.wait_in_sync(TOPIC)
        yield self.kafka.brokers[chance.choice((1, 2, 3))]
        self.kafka.wait_in_sync(TOPIC)

    def add_partition(self) -> None:
        """Adds a partition that the workload never sends to."""
        admin = AdminClient({"bootstrap.servers": self.kafka.address})
        count = len(admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)
        admin.create_partitions([NewPartitions(TOPIC, count + 1)])[TOPIC].result(30)

    def kill_workers(self) -> None:
        for name in self.names:
            self.worker(name).kill()

    def await_no_workers(self) -> None:
        """Waits until the sessions of all workers have ended."""
        eventually("no worker is left", lambda: not live_workers(self.fleet.client, self.fleet.root))

    def reconfigure(self) -> None:
        """Changes a setting that the whole fleet has to agree on, for workers that are started from now on."""
        self._settings["flush.size"] = FLUSH_SIZE if self._settings["flush.size"] != FLUSH_SIZE else FLUSH_SIZE - 1

    def evolve(self) -> None:
        """Gives the table the next columns of its evolution, for workers that are started from now on."""
        self._settings["schema.ddl"] = self.shape.columns(self.evolution.columns(self.evolution.taken + 1))

    def write_as_another(self, chance: Random) -> str:
        """Has another job write to the table, as it is now."""
        settings = self.fleet.configure("other", **self.table_store.worker_settings(self.names[0]))
        return self.other_writer.write(settings, self.shape, self.evolution.columns(self.evolution.taken), chance)

    def epoch(self) -> int:
        return self.fleet.wait("ZooKeeper answers", lambda _: True).epoch

    def revive(self) -> None:
        """Starts every worker that is not running. One whose JVM or Python has died ends by itself, or is ended."""
        for name in self.names:
            if not self.worker(name).running:
                self.start(name)

    def await_commit(self, since: float) -> float:
        """Waits for a commit, and returns when the first one after `since` became visible."""
        eventually("a commit", lambda: any(at > since for at in self.commits.values()), PATIENCE, self.fleet.logs)
        return min(at for at in self.commits.values() if at > since)

    def compare_contents(self) -> dict[str, object]:
        """Runs `sink audit --content` on the table. Returns its sentences that contradict the log, and what else it
        counted; `held` is false if anything differs, or was not compared without a reason. After an
        unclean election the log has other records than have landed: then only later commits are compared."""
        report = self.fleet.audit(Coverage(since=self.log_changed_at))
        (self.directory / CONTENTS).write_text(report.to_json())
        contradictions = [f"{finding.kind.label}: {finding.sentence}" for finding in report.failures]
        return {"held": report.held, "contradictions": contradictions, "contents": str(report.content)}

    def halted(self) -> str | None:
        halt = self.fleet.wait("ZooKeeper answers", lambda _: True).halt
        return halt.reason if halt else None


def _status(server: ZooKeeperServer) -> str:
    """Returns what `srvr` says of a server; nothing when the server does not answer."""
    try:
        with socket.create_connection((LOOPBACK, server.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            return connection.makefile().read()
    except OSError:
        return ""
