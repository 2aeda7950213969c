"""The znodes of a fleet, in a real ZooKeeper, without workers: for tests of the HTTP addresses and the page.

`python -m tests.http_fleet` serves one at http://127.0.0.1:8499/ that changes all the time, for a person to look at.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from coordination.state import tree
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import (
    Header,
    LogView,
    Member,
    PartitionLog,
    PartitionState,
    Phase,
    Plan,
    Slice,
    TopicPartition,
    WriteTask,
)
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.table_service_lock import ServiceOutcome, TableServiceLock, TableServiceRun
from sink.config import Settings
from sink.http.facts import HostedSink, Verb
from sink.http.server import WorkerHttp
from sink.operations.observed_sink import observed_sink
from sink.runtime.process.facts import table_question
from sink.runtime.process.http_settings import http_specification
from tests.one_sink import load

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def settings_in(directory: Path, zookeeper: str, **overrides: object) -> Settings:
    """Loads the settings of one worker. A `__` in a name of `overrides` stands for a dot."""
    properties: dict[str, object] = {
        "worker.id": "worker-1",
        "zookeeper.connect": zookeeper,
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.topic.names": "orders",
        "target.base.path": str(directory / "table"),
        "target.table.name": "orders",
        "schema.ddl": "id BIGINT",
        "transaction.interval.ms": 10_000,
        "coordinator.writestatus.timeout": 60_000,
        **{name.replace("__", "."): value for name, value in overrides.items()},
    }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return load(file, {})


class StubLog:
    """A Kafka log whose ends a test sets."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.error: Exception | None = None

    def recent(
        self, topics: Sequence[str], _age: float, optional: Sequence[str] = (), _patterns: Sequence[str] = (), /
    ) -> LogView:
        if self.error is not None:
            raise self.error
        wanted = {*topics, *optional}
        return LogView(
            "cluster",
            {
                source: PartitionLog(TOPIC_ID, self.starts.get(source, 0), end)
                for source, end in self.ends.items()
                if source.topic in wanted
            },
        )


class SinkTree:
    """One sink's znodes."""

    def __init__(self, client: KazooClient, settings: Settings, log: StubLog, partitions: int) -> None:
        self.settings = settings
        self.client = client
        self.log = log
        self.topic = settings.topics[0]
        self.sources = [TopicPartition(self.topic, partition) for partition in range(partitions)]
        self.keeper = Keeper(client, settings.root_znode, lambda: None)
        self.keeper.bootstrap(settings.config_digest)
        self.number = 0
        self.states = {source: PartitionState(TOPIC_ID, 0, 0, 1) for source in self.sources}
        view = self.keeper.read()
        self.keeper.write((*tree.shard_ops(view, self.states), tree.ledger_op(view, tree.Ledger())))
        log.ends.update(dict.fromkeys(self.sources, 0))

    def join(self, worker: str, leads: bool = False) -> str:
        incarnation = f"{worker}:{len(worker):012x}"
        digest = self.settings.config_digest
        self.keeper.join(Member(incarnation, f"{worker}.example", 4000, "0.1.0", config=digest, cores=2))
        if leads:
            self.lead(incarnation)
        return incarnation

    def lead(self, incarnation: str) -> None:
        path = f"{self.settings.root_znode}/{tree.ELECTION}/lock-"
        self.client.create(path, incarnation.encode(), ephemeral=True, sequence=True)
        view = self.keeper.read()
        self.keeper.write((tree.epoch_op(view, view.epoch + 1, incarnation),))

    def produce(self, records: int) -> None:
        """Adds records to each partition."""
        for source in self.sources:
            self.log.ends[source] += records

    def commit(self, at: float | None = None, share: float = 1.0, bad: int = 0, reason: str = "") -> None:
        """Lands a share of the records that have not landed; with a reason, aborts instead."""
        wall = time.time() if at is None else at
        view = self.keeper.read()
        self.number += 1
        outcome = Phase.ABORTED if reason else Phase.COMMITTED
        landed = 0
        for source in self.sources if not reason else ():
            state = self.states[source]
            end = state.end + int((self.log.ends[source] - state.end) * share)
            landed += end - state.end
            self.states[source] = replace(state, start=state.end, end=end)
        entered = {"PLANNED": wall - 6, "STARTED": wall - 5.5, "PREPARED": wall - 2.5}
        entered = {**entered, outcome.value: wall - 0.7, "ENDED": wall - 0.2}
        if reason:
            del entered["PREPARED"]
        instant = time.strftime("%Y%m%d%H%M%S000", time.gmtime(wall))
        summary = tree.Summary(self.number, self.number, outcome.value, instant, landed, reason, entered, bad)
        ledger = replace(
            view.ledger,
            last=self.number,
            committed=view.ledger.committed if reason else self.number,
            history=(*view.ledger.history, summary),
        )
        self.keeper.write((*tree.shard_ops(view, self.states), tree.ledger_op(view, ledger)))

    def open(self, participants: Sequence[str], attempt: int = 1) -> None:
        """Opens a transaction that is being written."""
        wall = time.time()
        number = self.number + 1
        pieces = [Slice(self.topic, source.partition, 0, 1000, TOPIC_ID, 1) for source in self.sources[:40]]
        share = -(-len(pieces) // len(participants))
        tasks = {
            name: tuple(WriteTask((piece,)) for piece in pieces[index * share : (index + 1) * share])
            for index, name in enumerate(participants)
        }
        plan = Plan(tasks)
        header = Header(
            number, number, attempt, 1, 0, Phase.STARTED, 60.0, tree.plan_digest(plan),
            times={"PLANNED": wall - 4.0, "STARTED": wall - 3.2}, instant="20260101000000000",
        )  # fmt: skip
        self.keeper.write((*tree.plan_ops(number, plan), tree.header_op(header)))

    def settle(self) -> None:
        """Deletes the open transactions."""
        for transaction in self.keeper.read().transactions:
            path = f"{self.settings.root_znode}/{tree.transaction_path(transaction.header.number)}"
            self.client.delete(path, recursive=True)

    def halt(self, reason: str, partition: int | None = None, offset: int | None = None) -> None:
        topic = None if partition is None else self.topic
        halt = Halt(HaltKind.BAD_RECORD, reason, topic, partition, offset, time.time())
        self.keeper.write((tree.Create(tree.HALT, tree.halt_data(halt)),))

    def services(self, *services: ServiceOutcome) -> None:
        lock = TableServiceLock(self.client, self.settings.root_znode, "worker-2:1")
        lock.record(lambda _: TableServiceRun("worker-2", time.time(), self.number, services))


@dataclass
class StubFacts:
    """Facts of a worker process, as a test sets them."""

    worker: str = "worker-1"
    sinks: list[HostedSink] = field(default_factory=list)
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    metrics_text: Callable[[], bytes] = lambda: b""
    not_alive: tuple[str, ...] = ()
    not_ready: tuple[str, ...] = ()
    misconfigured: Mapping[str, str] = field(default_factory=dict)

    def metrics(self) -> bytes:
        return self.metrics_text()

    def liveness(self) -> Sequence[str]:
        return self.not_alive

    def readiness(self) -> Sequence[str]:
        return self.not_ready


def hosted_sink(settings: Settings, client: Any, log: Any) -> HostedSink:
    return HostedSink(observed_sink(settings), client, log, partial(table_question, settings))


class SyntheticFleet:
    """Sinks in a ZooKeeper, and a worker's HTTP server that shows them."""

    def __init__(self, directory: Path, zookeeper: str, port: int, **settings: object) -> None:
        self.facts = StubFacts()
        self.log = StubLog()
        self.trees: dict[str, SinkTree] = {}
        self.settings = settings_in(directory, zookeeper, http__listen=port, **settings)
        self.client = KazooClient(zookeeper)
        self.client.start()
        self.http = WorkerHttp(http_specification(self.settings), self.facts)

    def __enter__(self) -> SyntheticFleet:
        self.http.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()
        self.client.stop()
        self.client.close()

    def add(self, name: str, partitions: int, workers: Sequence[str] = ("worker-1", "worker-2")) -> SinkTree:
        update = {"name": name, "topics": (name,), "base_path": f"/lake/{name}"}
        settings = self.settings.model_copy(update=update)
        sink_tree = self.trees[name] = SinkTree(self.client, settings, self.log, partitions)
        for index, worker in enumerate(workers):
            sink_tree.join(worker, leads=index == len(self.trees) % len(workers))
        self.facts.sinks.append(hosted_sink(settings, self.client, self.log))
        return sink_tree


def show(fleet: SyntheticFleet) -> None:
    """Adds sinks in every state that an operator may meet."""
    orders = fleet.add("orders", 12)
    for _ in range(4):
        orders.produce(1000)
        orders.commit()
    orders.commit(reason="participant worker-2 did not report within 60 s")
    orders.produce(1000)
    orders.commit(bad=17)
    orders.open(["worker-1:00000000000a", "worker-2:00000000000b"])
    orders.services(
        ServiceOutcome("clean", 1.2, "20260101000000000"),
        ServiceOutcome("archive", 0.4),
        ServiceOutcome("cluster", 9.0, "", "no space left"),
    )
    clicks = fleet.add("clicks", 64)
    clicks.produce(50_000)
    clicks.commit(share=0.3)
    payments = fleet.add("payments", 6)
    payments.produce(300)
    payments.commit()
    payments.produce(40)
    payments.halt('payments-3 offset 312: field amount: "<b>twelve</b>" is not a DOUBLE', 3, 312)
    for name in ("customers", "shipments", "returns", "stock"):
        sink_tree = fleet.add(name, 8)
        sink_tree.produce(200)
        sink_tree.commit()
    fleet.log.ends.update(dict.fromkeys(fleet.trees["stock"].sources, 500))


def move(fleet: SyntheticFleet, ended: threading.Event) -> None:
    """Lets records come and land, until `ended` is set."""
    chance = random.Random(1)
    orders_rounds = 0
    while not ended.wait(2.0):
        for name, sink_tree in fleet.trees.items():
            if name == "payments":
                continue
            sink_tree.produce(chance.randrange(100))
            if name == "orders":
                orders_rounds += 1
                if orders_rounds % 4 == 0:
                    sink_tree.settle()
                    sink_tree.commit()
                    sink_tree.open(["worker-1:00000000000a", "worker-2:00000000000b"])
            elif chance.random() < 0.3:
                sink_tree.commit(share=chance.choice((1.0, 1.0, 0.5)))


def main() -> None:
    from sink.devtools.local.zookeeper import ZooKeeperServer

    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with (
            ZooKeeperServer(directory / "zookeeper") as server,
            SyntheticFleet(directory, server.address, 8499) as fleet,
        ):
            show(fleet)
            print(fleet.http.url, flush=True)
            move(fleet, threading.Event())


if __name__ == "__main__":
    main()
