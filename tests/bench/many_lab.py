"""Shared parts of the benchmarks of many sinks: a trickle into many topics, when it landed, what processes cost.

Freshness is the time from a record's production until ZooKeeper shows its offset as settled. The bench looks once a
second, so up to a second is the measurement's own. All clocks are this machine's. Memory is resident size, which counts
pages that processes share more than once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from urllib.request import urlopen

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.errors import SinkError
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.many_sinks import ManySinks
from tests.waiting import eventually

PATIENCE = 900.0
LOOK_SECONDS = 1.0
BATCH_SECONDS = 0.1


class Trickle(threading.Thread):
    """Produces `rate` records a second into each topic, of one partition, and notes when."""

    def __init__(self, address: str, topics: Sequence[str], rate: float) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 20})
        self._topics = topics
        self._rate = rate
        self._ended = threading.Event()
        self.sent: dict[str, list[tuple[int, float]]] = {topic: [] for topic in topics}
        """Offsets reached, and when, by topic."""

    def run(self) -> None:
        began, produced = time.time(), 0
        while not self._ended.wait(BATCH_SECONDS):
            due = int((time.time() - began) * self._rate)
            for topic in self._topics:
                for number in range(produced, due):
                    self._producer.produce(topic, json.dumps({"id": number, "kind": "buy", "amount": 1.5}).encode())
                self.sent[topic].append((due, time.time()))
            produced = due
            self._producer.poll(0)
        self._producer.flush(60)

    def stop(self) -> None:
        self._ended.set()
        self.join()


class HttpPoller(threading.Thread):
    """Asks the workers at these ports as a page, a Prometheus and a health check do, every so many seconds."""

    def __init__(self, ports: Sequence[int], seconds: float) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._seconds = seconds
        self._ended = threading.Event()
        self._answers = 0

    def run(self) -> None:
        while self._ports and not self._ended.wait(self._seconds):
            for port, path in product(self._ports, ("health", "overview", "status", "metrics")):
                # A worker that starts, or was killed, does not answer; an unhealthy one answers 503.
                with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
                    self._answers += bool(answer.read())

    def stop(self) -> int:
        """Returns how many answers there were with status 200."""
        self._ended.set()
        self.join()
        return self._answers


class Landings(threading.Thread):
    """Notes when each sink had settled how many offsets."""

    def __init__(self, fleet: ManySinks) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._ended = threading.Event()
        self.seen: dict[str, list[tuple[int, float]]] = {name: [(0, 0.0)] for name in fleet.sinks}

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for name, seen in self.seen.items():
                try:
                    landed = self._fleet.landed(name)
                except SinkError:
                    continue
                if landed > seen[-1][0]:
                    seen.append((landed, time.time()))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def freshness(
    sent: Mapping[str, Sequence[tuple[int, float]]],
    landed: Mapping[str, Sequence[tuple[int, float]]],
    topics: Mapping[str, str],
    since: float,
    until: float = float("inf"),
) -> list[float]:
    """Returns the seconds from production to settling of each settled batch produced between the two moments. Raises
    AssertionError if there is none."""
    seconds = []
    for sink, topic in topics.items():
        landings, index = landed[sink], 0
        for offset, produced in sent[topic]:
            while index < len(landings) and landings[index][0] < offset:
                index += 1
            if index == len(landings):
                break
            if since <= produced < until and offset > 0:
                seconds.append(landings[index][1] - produced)
    assert seconds, "no record that was produced in the measured time has landed"
    return seconds


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def cpu(process: psutil.Process) -> float:
    """Returns CPU seconds of a process and its descendants, ended ones included."""
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
    return total


def memory(process: psutil.Process) -> dict[str, int]:
    """Returns MB by kind of process."""
    kinds: dict[str, int] = {"worker's Python": process.memory_info().rss >> 20}
    for child in process.children(recursive=True):
        try:
            kind = "JVM" if "java" in child.name() else "other Pythons"
            kinds[kind] = kinds.get(kind, 0) + (child.memory_info().rss >> 20)
        except psutil.NoSuchProcess:
            continue
    return kinds


@contextmanager
def servers(directory: Path) -> Iterator[tuple[ZooKeeperServer, KafkaServer]]:
    zookeeper = ZooKeeperServer(directory / "zookeeper").start()
    try:
        kafka = KafkaServer(directory / "kafka", heap="512m").start()
        try:
            yield zookeeper, kafka
        finally:
            kafka.stop()
    finally:
        zookeeper.stop()


def create_topics(kafka: str, topics: Sequence[str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        created.result(60)


def wait_joined(fleet: ManySinks, workers: int) -> None:
    def joined() -> bool:
        return all(len(fleet.view(sink).members) == workers for sink in fleet.sinks)

    eventually("every worker has joined every sink", joined, PATIENCE, fleet.logs)


def print_event(event: str, **figures: object) -> None:
    print(json.dumps({"event": event, **figures}), flush=True)
