"""Topics of four formats that find their tables by patterns in one fleet, beside sinks that are poisoned; a worker is
killed. In the end each table has what was sent, once.

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
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from sink.audit import TopicAccess, audit
from tests.bench.many_lab import PATIENCE, create_topics, servers, tell
from tests.bench.topic_formats import PATTERNS, Serialize, event, serializer
from tests.chaos.auditor.tables import rows_of
from tests.many_sinks import ManySinks
from tests.registry_kit import RegistryServer
from tests.waiting import eventually

PARTITIONS = 2
HALTED, REFUSED, WITHHELD, GONE = "avro-1", "protobuf-1", "json-1", "jsonschema-1"
"""Topics with a broken record, a place that is taken, settings that cannot be used, and one that is deleted."""
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
        began, made = time.monotonic(), 0
        while not self._ended.wait(0.2):
            due = int((time.monotonic() - began) * self._rate)
            for topic, serialize in self._topics.copy().items():
                for _ in range(made, due):
                    value = event(self.sent[topic], int(topic.rpartition("-")[2]))
                    self._producer.produce(topic, serialize(value), on_delivery=self._delivered)
                    self.sent[topic] += 1
                self._producer.poll(0)
            made = due
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

    def place_of(self, topic: str) -> Path:
        return self.directory / "lake" / topic

    def ids(self, topic: str) -> list[int]:
        """Numbers of the events in the topic's table, sorted."""
        return sorted(number for (number,) in rows_of(self.place_of(topic), ["id"]))

    @property
    def handed_over(self) -> int:
        """Hand-overs of coordinators that the workers' logs tell of."""
        return sum(self.sinks.log(worker).count('"event": "coordinator.handed_over"') for worker in PORTS)

    def behind(self) -> list[str]:
        """Healthy topics whose table has not all that was sent yet."""
        return [topic for topic in self.healthy if self.ids(topic) != list(range(self.sender.sent[topic]))]


@contextmanager
def started(plan: Plan, directory: Path) -> Iterator[Fleet]:
    """Two workers, and records that keep coming."""
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
        it = ManySinks(directory / "fleet", zookeeper.address, kafka.address, shared)
        taken = directory / "lake" / REFUSED
        taken.mkdir(parents=True)
        (taken / "notes.txt").write_text("not a table")
        place = {"target.base.path": shared["target.base.path"]}
        for kind, settings in PATTERNS.items():
            it.add(kind, **{"kafka.topic.regex": rf"{kind}-\d+", **place, **settings})
        it.add(MISSPELT, WITHHELD, **{"schema.ddl": "id BIGNIT"})
        fleet = Fleet(it, Sender(kafka.address, plan.rate, serializers), list(topics), directory)
        try:
            for worker, port in PORTS.items():
                it.start(worker, **{"http.listen": f"127.0.0.1:{port}"})
            fleet.sender.start()
            yield fleet
        finally:
            fleet.sender.stop()
            it.close()


def run(plan: Plan, directory: Path) -> Fleet:
    """Poisons after the first commits, kills a worker, and waits until the healthy tables have all; the servers are
    gone when it returns. Raises AssertionError where something is missing or there twice.
    """
    with started(plan, directory) as fleet:
        it = fleet.sinks
        first = [topic for topic in (*fleet.healthy, HALTED, GONE) if topic.endswith(("-0", "-1"))]
        eventually("first commits", lambda: all(map(it.landed, first)), PATIENCE, it.logs)
        began = time.monotonic()
        tell("first commits", handed_over=fleet.handed_over)
        producer = Producer({"bootstrap.servers": it.kafka})
        producer.produce(HALTED, b"broken")
        producer.flush(30)
        fleet.sender.leave(GONE)
        admin = AdminClient({"bootstrap.servers": it.kafka})
        admin.delete_topics([GONE])[GONE].result(60)
        time.sleep(plan.seconds / 3)
        it.workers["w1"].kill()
        time.sleep(plan.seconds / 3)
        it.start("w1", **{"http.listen": f"127.0.0.1:{PORTS['w1']}"})
        time.sleep(max(0.0, plan.seconds - (time.monotonic() - began)))
        fleet.sender.stop()
        assert fleet.sender.failed <= {GONE}, fleet.sender.failed
        eventually("every healthy table has all", lambda: not fleet.behind(), PATIENCE, it.logs)
        records = sum(fleet.sender.sent[topic] for topic in fleet.healthy)
        tell("landed", tables=len(fleet.healthy), records=records, handed_over=fleet.handed_over)
        eventually("the halt shows", lambda: it.view(HALTED).halt is not None, PATIENCE, it.logs)
        for topic in (HALTED, GONE):
            assert fleet.ids(topic) == list(range(len(fleet.ids(topic)))), topic
        assert {host.state for host in it.hosts(REFUSED).values()} == {"refused"}
        assert {host.state for host in it.hosts(MISSPELT).values()} == {"refused"}
        assert not fleet.place_of(WITHHELD).exists()
        began = time.monotonic()
        for topic in fleet.healthy[:: max(1, len(fleet.healthy) // 20)]:
            assert audit(str(fleet.place_of(topic)), topic, TopicAccess(it.kafka)).held, topic
        tell("audit", held=True, seconds=round(time.monotonic() - began, 1), handed_over=fleet.handed_over)
        for name, worker in it.workers.items():
            worker.terminate()
            assert worker.wait(120) == 0, f"{name}\n{it.logs()}"
        return fleet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--topics", type=int, default=50, help="of each of the four formats")
    parser.add_argument("--rate", type=float, default=2, help="records a second of each topic")
    parser.add_argument("--interval", type=float, default=30, help="seconds")
    parser.add_argument("--seconds", type=float, default=420, help="from the poisons to the end of the records")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-formats-") as directory:
        run(Plan(given.topics, given.rate, given.interval, given.seconds), Path(directory))


if __name__ == "__main__":
    main()
