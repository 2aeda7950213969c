"""Measures a worker's addresses and page: `python -m tests.bench.http --sinks 100 --partitions 50`.

A real ZooKeeper has the znodes of all sinks, a real Kafka all their topics; the server runs in a process of its own,
as a worker runs it but without Spark, and reads both as a worker does. Sinks commit all the time, so that no reading
equals the one before. Prints the answers' times, the processor time of the reading, and what the page takes in
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

from sink.clients.kafka.process import LogProcess
from sink.clients.kafka.shared_log import SharedLog
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.servers import free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer
from sink.telemetry.metrics import ProcessMetrics
from tests.chromium import Chromium, find_chromium
from tests.http_fleet import SyntheticFleet, hosted_sink

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
    with tempfile.TemporaryDirectory(prefix="bench-http-") as scratch, _servers(Path(scratch), options) as (port, pid):
        process = psutil.Process(pid)
        print(f"{options.sinks} sinks of {options.partitions} partitions")
        for path in PATHS:
            print(_measure_requests(port, path, options.requests))
        print(_measure_load(port, process))
        if find_chromium() is not None:
            print(_measure_page(port))
    return 0


@contextmanager
def _servers(directory: Path, options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Yields the port of the server under test, and its process id."""
    [port] = free_ports(1)
    with ZooKeeperServer(directory / "zookeeper") as zookeeper, KafkaServer(directory / "kafka", heap="1g") as kafka:
        names = [f"sink-{number:03d}" for number in range(options.sinks)]
        _make_topics(kafka.address, names, options.partitions)
        parameters = {
            "place": str(directory / "fleet"), "zookeeper": zookeeper.address, "kafka": kafka.address, "port": port,
            "names": names, "partitions": options.partitions,
        }  # fmt: skip
        with _process("trees", parameters), _process("serve", parameters) as server:
            yield port, server.pid


@contextmanager
def _process(role: str, parameters: Mapping[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the process of this role, and yields it once it has printed `ready`."""
    command_line = [sys.executable, "-m", "tests.bench.http", "--role", role, "--given", json.dumps(parameters)]
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


def _fleet(parameters: Mapping[str, Any], part: str) -> SyntheticFleet:
    settings = {"kafka__bootstrap__servers": parameters["kafka"]}
    return SyntheticFleet(Path(parameters["place"]) / part, parameters["zookeeper"], parameters["port"], **settings)


def _trees(parameters: Mapping[str, Any]) -> None:
    """Makes the znodes of all sinks, and commits in one sink after the other until it is killed."""
    fleet = _fleet(parameters, "trees")
    for name in parameters["names"]:
        sink_tree = fleet.add(name, parameters["partitions"], [f"worker-{number}" for number in range(1, 5)])
        sink_tree.log.ends.update(dict.fromkeys(sink_tree.sources, 2))
        sink_tree.commit(share=0.5)
    print("ready", flush=True)
    while True:
        for name in parameters["names"]:
            fleet.trees[name].commit(share=0.5)
            time.sleep(COMMIT_SECONDS)


def _serve(parameters: Mapping[str, Any]) -> None:
    """Runs the server under test, with a worker's facts and without Spark."""
    fleet = _fleet(parameters, "serve")
    log = SharedLog(LogProcess(fleet.settings.kafka_native))
    metrics = ProcessMetrics("worker-1")
    fleet.facts.metrics_text = metrics.text
    for name in parameters["names"]:
        settings = fleet.settings.model_copy(update={"name": name, "topics": (name,)})
        fleet.facts.sinks.append(hosted_sink(settings, fleet.client, log))
        figures = metrics.sink(name)
        figures.coordinating(True)
        figures.offsets.read_states({}, None)
        figures.offsets.read_log(log.recent((name,), 60).partitions)
    fleet.http.start()
    print("ready", flush=True)
    threading.Event().wait()


ROLES = {"serve": _serve, "trees": _trees}


def _measure_requests(port: int, path: str, requests: int) -> str:
    """Requests the path repeatedly, on one connection, with pauses: some requests meet a reading, some do not."""
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


def _measure_load(port: int, process: psutil.Process) -> str:
    """Measures processor time of the server and its Kafka process while one page refreshes and Prometheus scrapes."""
    processes = [process, *process.children(recursive=True)]
    before = sum(sum(member.cpu_times()[:2]) for member in processes)
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < LOOKING_SECONDS:
        for path in ("/overview", "/status?sink=sink-007", *(("/metrics", "/health") if int(elapsed) % 15 < 5 else ())):
            with _connected(port) as connection:
                connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
                connection.getresponse().read()
        time.sleep(5)
    cpu_seconds = sum(sum(member.cpu_times()[:2]) for member in processes) - before
    memory = process.memory_info().rss >> 20
    return f"looked at for {LOOKING_SECONDS:.0f} s: {cpu_seconds / LOOKING_SECONDS:.3f} of a core, memory {memory} MB"


def _measure_page(port: int) -> str:
    url = f"http://127.0.0.1:{port}/"
    paint_ms, fleet_ms, refresh_ms, draw_ms = [], [], [], []
    with Chromium() as browser:
        browser.screen(1200, 900)
        for _ in range(5):
            browser.call("Page.navigate", url="about:blank")
            browser.open(url)
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            browser.until(f"{paint} > 0")
            paint_ms.append(float(browser.value(paint)))
            fleet_ms.append(float(browser.value("document.documentElement.dataset.firstMs")))
        for page in ("", "#sink-007"):
            browser.value(f"location.hash = '{page}'")
            for _ in range(6):
                shown_before = browser.value("Number(document.documentElement.dataset.shown)")
                browser.until(f"document.documentElement.dataset.shown > {shown_before}")
                refresh_ms.append(float(browser.value("document.documentElement.dataset.refreshMs")))
                draw_ms.append(float(browser.value("document.documentElement.dataset.shownMs")))
    return (
        f"page: first paint {max(paint_ms):.0f} ms, the fleet shown {max(fleet_ms):.0f} ms;"
        f" refresh {max(refresh_ms):.0f} ms with its requests, {max(draw_ms):.1f} ms of them to draw"
        " (the longest of each)"
    )


if __name__ == "__main__":
    sys.exit(main())
