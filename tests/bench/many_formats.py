"""Topics of four formats that find their tables by patterns in one fleet, beside poisoned sinks; a worker is killed. In
the end each table has every sent event, once.

`python -m tests.bench.many_formats --topics 50 --rate 2 --interval 30 --seconds 420`
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from tests.bench.many_lab import PATIENCE, create_topics, print_event, servers
from tests.bench.topic_formats import PATTERNS, Serialize, event, serializer
from tests.chaos.auditor.tables import rows_of
from tests.many_sinks import ManySinks
from tests.registry_kit import RegistryServer
from tests.waiting import eventually

PARTITIONS = 2
HALTED, REFUSED, WITHHELD, GONE = "avro-1", "protobuf-1", "json-1", "jsonschema-1"
"""Topics with a broken record, an occupied base path, unusable settings, and one that is deleted."""
POISONED = (HALTED, REFUSED, WITHHELD, GONE)
MISSPELT = "misspelt"
PORTS = {"w1": 18_481, "w2": 18_482}


@dataclass(frozen=True)
class Plan:
    """`topics` of each format, at least 2; `rate` in records a second of each; `interval` and `seconds` in seconds."""

    topics: int
    rate: float
    interval: float
    seconds: float


class Sender(threading.Thread):
    """Sends numbered events into topics, at the plan's rate, until it is stopped."""

    def __init__(self, kafka: str, rate: float, topics: dict[str, Serialize]) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "enable.idempotence": True})
        self._rate = rate
        self._topics = topics
        self._ended = threading.Event()
        self.sent = dict.fromkeys(topics, 0)
        self.failed: set[str] = set()

    def run(self) -> None:
        began, produced = time.monotonic(), 0
        while not self._ended.wait(0.2):
            due = int((time.monotonic() - began) * self._rate)
            for topic, serialize in self._topics.copy().items():
                for _ in range(produced, due):
                    value = event(self.sent[topic], int(topic.rpartition("-")[2]))
                    self._producer.produce(topic, serialize(value), on_delivery=self._delivered)
                    self.sent[topic] += 1
                self._producer.poll(0)
            produced = due
        self._producer.flush(60)

    def leave(self, topic: str) -> None:
        self._topics.pop(topic)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.add(str(message.topic()))  # type: ignore[attr-defined]


@dataclass
class Fleet:
    sinks: ManySinks
    sender: Sender
    topics: list[str]
    directory: Path

    @property
    def healthy(self) -> list[str]:
        return [topic for topic in self.topics if topic not in POISONED]

    def table_path(self, topic: str) -> Path:
        return self.directory / "lake" / topic

    def ids(self, topic: str) -> list[int]:
        """Returns the numbers of the events in the topic's table, sorted."""
        return sorted(number for (number,) in rows_of(self.table_path(topic), ["id"]))

    @property
    def handed_over(self) -> int:
        """Hand-overs of coordinators, as counted in the workers' logs."""
        return sum(self.sinks.log(worker).count('"event": "coordinator.handed_over"') for worker in PORTS)

    def behind(self) -> list[str]:
        """Returns the healthy topics whose table does not have every sent event yet."""
        return [topic for topic in self.healthy if self.ids(topic) != list(range(self.sender.sent[topic]))]


@contextmanager
def started(plan: Plan, directory: Path) -> Iterator[Fleet]:
    """Starts two workers, and sends records until the caller's block ends."""
    with servers(directory) as (zookeeper, kafka), RegistryServer(directory / "registry") as registry:
        client = SchemaRegistryClient({"url": registry.url, "timeout": 30})
        topics = {f"{kind}-{number}": kind for kind in PATTERNS for number in range(plan.topics)}
        create_topics(kafka.address, tuple(topics), PARTITIONS)
        serializers = {
            topic: serializer(kind, topic, int(topic.rpartition("-")[2]), client, directory)
            for topic, kind in topics.items()
        }
        shared = {
            "schema.registry.url": registry.url,
            "target.base.path": str(directory / "lake" / "{topic}"),
            "transaction.interval.ms": int(plan.interval * 1000),
            "hoodie.metadata.enable": True,
            "log.level": "info",
        }
        sinks = ManySinks(directory / "fleet", zookeeper.address, kafka.address, shared)
        occupied = directory / "lake" / REFUSED
        occupied.mkdir(parents=True)
        (occupied / "notes.txt").write_text("not a table")
        base_path = {"target.base.path": shared["target.base.path"]}
        for kind, settings in PATTERNS.items():
            sinks.add(kind, **{"kafka.topic.regex": rf"{kind}-\d+", **base_path, **settings})
        sinks.add(MISSPELT, WITHHELD, **{"schema.ddl": "id BIGNIT"})
        fleet = Fleet(sinks, Sender(kafka.address, plan.rate, serializers), list(topics), directory)
        try:
            for worker, port in PORTS.items():
                sinks.start(worker, **{"http.listen": f"127.0.0.1:{port}"})
            fleet.sender.start()
            try:
                yield fleet
            finally:
                fleet.sender.stop()
        finally:
            sinks.close()


def _is_refused(sinks: ManySinks, sink: str) -> bool:
    return {host.state for host in sinks.hosts(sink).values()} == {"refused"}


def run(plan: Plan, directory: Path) -> Fleet:
    """Poisons topics after the first commits, kills a worker, and waits until the healthy tables have all events. The
    servers have stopped when it returns. Raises AssertionError where an event is missing or there twice.
    """
    with started(plan, directory) as fleet:
        sinks = fleet.sinks
        first_topics = [topic for topic in (*fleet.healthy, HALTED, GONE) if topic.endswith(("-0", "-1"))]
        eventually("first commits", lambda: all(map(sinks.landed, first_topics)), PATIENCE, sinks.logs)
        began = time.monotonic()
        print_event("first commits", handed_over=fleet.handed_over)
        producer = Producer({"bootstrap.servers": sinks.kafka})
        producer.produce(HALTED, b"broken")
        producer.flush(30)
        fleet.sender.leave(GONE)
        admin = AdminClient({"bootstrap.servers": sinks.kafka})
        admin.delete_topics([GONE])[GONE].result(60)
        time.sleep(plan.seconds / 3)
        sinks.workers["w1"].kill()
        time.sleep(plan.seconds / 3)
        sinks.start("w1", **{"http.listen": f"127.0.0.1:{PORTS['w1']}"})
        time.sleep(max(0.0, plan.seconds - (time.monotonic() - began)))
        fleet.sender.stop()
        assert fleet.sender.failed <= {GONE}, fleet.sender.failed
        eventually("every healthy table has all", lambda: not fleet.behind(), PATIENCE, sinks.logs)
        records = sum(fleet.sender.sent[topic] for topic in fleet.healthy)
        print_event("landed", tables=len(fleet.healthy), records=records, handed_over=fleet.handed_over)
        eventually("the halt shows", lambda: sinks.view(HALTED).halt is not None, PATIENCE, sinks.logs)
        for topic in (HALTED, GONE):
            assert fleet.ids(topic) == list(range(len(fleet.ids(topic)))), topic
        # A worker that has just been started again says so a little later.
        for sink in (REFUSED, MISSPELT):
            eventually(f"{sink} is refused", partial(_is_refused, sinks, sink), PATIENCE, sinks.logs)
        assert not fleet.table_path(WITHHELD).exists()
        began = time.monotonic()
        for topic in fleet.healthy[:: max(1, len(fleet.healthy) // 20)]:
            assert audit(str(fleet.table_path(topic)), topic, TopicAccess(sinks.kafka), content=True).held, topic
        print_event("audit", held=True, seconds=round(time.monotonic() - began, 1), handed_over=fleet.handed_over)
        for name, worker in sinks.workers.items():
            worker.terminate()
            assert worker.wait(120) == 0, f"{name}\n{sinks.logs()}"
        return fleet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--topics", type=int, default=50, help="of each of the four formats")
    parser.add_argument("--rate", type=float, default=2, help="records a second of each topic")
    parser.add_argument("--interval", type=float, default=30, help="seconds")
    parser.add_argument("--seconds", type=float, default=420, help="from the poisons to the end of the records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-formats-") as directory:
        run(Plan(options.topics, options.rate, options.interval, options.seconds), Path(directory))


if __name__ == "__main__":
    main()
