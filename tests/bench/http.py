"""Measures a worker's addresses and page: `python -m tests.bench.http --sinks 100 --partitions 50`.

A real ZooKeeper has the znodes of all sinks, a real Kafka all their topics; the server runs in a process of its own,
as a worker runs it but without Spark, and reads both as a worker does. Sinks commit all the time, so that its readings
are never those of before. Prints the answers' times, the processor time of the reading, and what the page takes in
Chromium: until it has shown the fleet, and from each refresh's request to its last change.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sink.clients.kafka_process import LogProcess
from sink.clients.shared_log import SharedLog
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from sink.http.facts import HostedSink
from sink.telemetry.metrics import ProcessMetrics
from tests.chromium import Chromium, command
from tests.http_fleet import SyntheticFleet

PATHS = ("/liveness", "/health", "/status", "/status?sink=sink-007", "/overview", "/metrics")
LOOKING_SECONDS = 60.0
COMMIT_SECONDS = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinks", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--requests", type=int, default=200, help="of each address")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--given", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](json.loads(options.given))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-http-") as scratch, _servers(Path(scratch), options) as port:
        process = psutil.Process(port[1])
        print(f"{options.sinks} sinks of {options.partitions} partitions")
        for path in PATHS:
            print(_timed(port[0], path, options.requests))
        print(_looked_at(port[0], process))
        if command() is not None:
            print(_shown(port[0]))
    return 0


@contextmanager
def _servers(place: Path, options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """The port of the server under test, and its process id."""
    [port] = free_ports(1)
    with ZooKeeperServer(place / "zookeeper") as zookeeper, KafkaServer(place / "kafka", heap="1g") as kafka:
        names = [f"sink-{number:03d}" for number in range(options.sinks)]
        _make_topics(kafka.address, names, options.partitions)
        given = {
            "place": str(place / "fleet"), "zookeeper": zookeeper.address, "kafka": kafka.address, "port": port,
            "names": names, "partitions": options.partitions,
        }  # fmt: skip
        with _process("trees", given), _process("serve", given) as server:
            yield port, server.pid


@contextmanager
def _process(role: str, given: Mapping[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    """Returns when it has said that it is ready."""
    command_line = [sys.executable, "-m", "tests.bench.http", "--role", role, "--given", json.dumps(given)]
    process = subprocess.Popen(command_line, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        while (line := process.stdout.readline()) and b"ready" not in line:
            pass
        assert line, f"the process {role} ended"
        yield process
    finally:
        process.kill()
        process.wait()


def _make_topics(bootstrap: str, names: list[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for first in range(0, len(names), 10):
        new = [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names[first : first + 10]]
        for answer in admin.create_topics(new, request_timeout=120).values():
            answer.result(120)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for name in names:
        for number in range(2 * partitions):
            producer.produce(name, b"{}", partition=number % partitions)
        producer.poll(0)
    assert producer.flush(120) == 0


def _fleet(given: Mapping[str, Any], part: str) -> SyntheticFleet:
    more = {"kafka__bootstrap__servers": given["kafka"]}
    return SyntheticFleet(Path(given["place"]) / part, given["zookeeper"], given["port"], **more)


def _trees(given: Mapping[str, Any]) -> None:
    """Makes the znodes of all sinks, and commits in one after the other for as long as it lives."""
    fleet = _fleet(given, "trees")
    for name in given["names"]:
        made = fleet.add(name, given["partitions"], [f"worker-{number}" for number in range(1, 5)])
        made.log.ends.update(dict.fromkeys(made.sources, 2))
        made.commit(share=0.5)
    print("ready", flush=True)
    while True:
        for name in given["names"]:
            fleet.trees[name].commit(share=0.5)
            time.sleep(COMMIT_SECONDS)


def _serve(given: Mapping[str, Any]) -> None:
    """The server under test: a worker's facts, without its Spark."""
    fleet = _fleet(given, "serve")
    log = SharedLog(LogProcess(fleet.settings))
    metrics = ProcessMetrics("worker-1")
    fleet.facts.metrics_text = metrics.text
    for name in given["names"]:
        settings = fleet.settings.model_copy(update={"name": name, "topics": (name,)})
        fleet.facts.sinks.append(HostedSink(settings, fleet.client, log))
        figures = metrics.sink(name)
        figures.coordinating(True)
        figures.offsets.read_states({}, None)
        figures.offsets.read_log(log.recent((name,), 60).partitions)
    fleet.http.start()
    print("ready", flush=True)
    threading.Event().wait()


ROLES = {"serve": _serve, "trees": _trees}


def _timed(port: int, path: str, requests: int) -> str:
    """Requests one after the other, on one connection, with pauses: some meet a reading, some do not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, size = [], 0
    for _ in range(requests):
        began = time.perf_counter()
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        size = len(connection.getresponse().read())
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.05)
    times.sort()
    p50, p99 = statistics.median(times), times[int(0.99 * (len(times) - 1))]
    return f"{path:24} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   longest {times[-1]:6.1f} ms   {size:,} bytes"


@contextmanager
def _connected(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def _looked_at(port: int, process: psutil.Process) -> str:
    """Processor time of the server and its Kafka process while one page refreshes and Prometheus scrapes."""
    family = [process, *process.children(recursive=True)]
    before = sum(sum(one.cpu_times()[:2]) for one in family)
    began = time.monotonic()
    while (now := time.monotonic() - began) < LOOKING_SECONDS:
        for path in ("/overview", "/status?sink=sink-007", *(("/metrics", "/health") if int(now) % 15 < 5 else ())):
            with _connected(port) as connection:
                connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
                connection.getresponse().read()
        time.sleep(5)
    used = sum(sum(one.cpu_times()[:2]) for one in family) - before
    memory = process.memory_info().rss >> 20
    return f"looked at for {LOOKING_SECONDS:.0f} s: {used / LOOKING_SECONDS:.3f} of a core, memory {memory} MB"


def _shown(port: int) -> str:
    url = f"http://127.0.0.1:{port}/"
    firsts, data, refreshes, draws = [], [], [], []
    with Chromium() as browser:
        browser.screen(1200, 900)
        for _ in range(5):
            browser.call("Page.navigate", url="about:blank")
            browser.open(url)
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            browser.until(f"{paint} > 0")
            firsts.append(float(browser.value(paint)))
            data.append(float(browser.value("document.documentElement.dataset.firstMs")))
        for page in ("", "#sink-007"):
            browser.value(f"location.hash = '{page}'")
            for _ in range(6):
                shown = browser.value("Number(document.documentElement.dataset.shown)")
                browser.until(f"document.documentElement.dataset.shown > {shown}")
                refreshes.append(float(browser.value("document.documentElement.dataset.refreshMs")))
                draws.append(float(browser.value("document.documentElement.dataset.shownMs")))
    return (
        f"page: first paint {max(firsts):.0f} ms, the fleet shown {max(data):.0f} ms;"
        f" refresh {max(refreshes):.0f} ms with its requests, {max(draws):.1f} ms of them to draw (the longest of each)"
    )


if __name__ == "__main__":
    sys.exit(main())
