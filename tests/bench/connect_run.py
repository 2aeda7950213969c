"""Runs the peer that a user would pick instead: Kafka Connect with the Iceberg sink, two tasks, commits
every 5 s.

Two figures come out. End to end: from the moment its first task was given partitions to its last commit,
all records of the topic, the JVM still cold. Steady: between two commits, records by snapshot metadata,
from the first commit that is past the lead of the topic (what other peers warm up with) to the last but
one, which is the last that was full; only this one is compared. Raises `Unavailable`.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from coordination.errors import Unavailable
from sink.local.java import BROKER_VERSIONS, find_java
from sink.local.packages import fetch
from sink.local.process import Child
from sink.local.servers import LOG4J, LOOPBACK, free_ports
from tests.bench.lab import PATIENCE, Lab, Window, measured
from tests.bench.orders import create_topic
from tests.bench.results import Run
from tests.bench.sampler import Sampler

CONNECT = (
    "org.apache.kafka:connect-runtime:4.3.0",
    "org.apache.kafka:connect-json:4.3.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
ICEBERG = (
    "org.apache.iceberg:iceberg-kafka-connect:1.10.1",
    "org.apache.iceberg:iceberg-parquet:1.10.1",
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
)
COMMIT_MS = 5000
_ASSIGNED = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}).*(?:Adding newly assigned partitions|Notifying assignor)"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit: its wall-clock second, and all records in the table after it."""

    at: float
    total: int


def run(lab: Lab, peer: str, number: int) -> Run:
    place = lab.place(f"{peer}-{number}")
    name = f"bench-{peer}-{number}-{int(time.time())}"
    create_topic(lab.kafka.address, f"control-{name}", 1)
    child = Child(peer, _command(lab, place, name), place / "peer.log")
    child.start()
    try:
        with Sampler([child.pid]) as own, Sampler([lab.kafka.pid]) as broker:
            snapshots = _until_landed(child, place / "warehouse", lab.load.total)
    finally:
        child.kill()
    assigned = _assigned(child.log)
    steady = _steady(snapshots, lab.load.lead)
    shutil.rmtree(place / "warehouse")
    last = snapshots[-1]
    details = {"end_to_end_seconds": last.at - assigned, "end_to_end_records": float(last.total)}
    return measured(lab, peer, number, steady, (own, broker), details=details)


def _command(lab: Lab, place: Path, name: str) -> list[str]:
    plugins = place / "plugins" / "iceberg"
    plugins.mkdir(parents=True)
    for jar in fetch("iceberg", ICEBERG):
        (plugins / jar.name).symlink_to(jar)
    (place / "log4j2.properties").write_text(LOG4J)
    worker = {
        "bootstrap.servers": lab.kafka.address,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": place / "offsets",
        "offset.flush.interval.ms": 10000,
        "plugin.path": place / "plugins",
        "listeners": f"http://{LOOPBACK}:{free_ports(1)[0]}",
        "consumer.auto.offset.reset": "earliest",
        "consumer.max.poll.records": 5000,
        "consumer.max.partition.fetch.bytes": 16 << 20,
    }
    connector = {
        "name": name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": 2,
        "topics": lab.topic,
        "iceberg.tables": "db.orders",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.catalog.type": "hadoop",
        "iceberg.catalog.warehouse": (place / "warehouse").as_uri(),
        "iceberg.control.topic": f"control-{name}",
        "iceberg.control.commit.interval-ms": COMMIT_MS,
        "iceberg.control.commit.timeout-ms": 60000,
        "iceberg.tables.write-props.write.parquet.compression-codec": "zstd",
    }
    files = [
        _properties(place / "worker.properties", worker),
        _properties(place / "sink.properties", connector),
    ]
    return [
        str(find_java(BROKER_VERSIONS).binary),
        f"-Xmx{lab.heap}",
        f"-Dlog4j2.configurationFile={place / 'log4j2.properties'}",
        "-cp",
        ":".join(map(str, fetch("connect", CONNECT))),
        "org.apache.kafka.connect.cli.ConnectStandalone",
        *files,
    ]


def _properties(path: Path, settings: dict[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def _until_landed(child: Child, warehouse: Path, records: int) -> Sequence[Snapshot]:
    deadline = time.monotonic() + PATIENCE
    while True:
        snapshots = _snapshots(warehouse)
        if snapshots and snapshots[-1].total >= records:
            return snapshots
        if not child.running or time.monotonic() > deadline:
            landed = snapshots[-1].total if snapshots else 0
            raise Unavailable(f"Kafka Connect landed {landed} of {records}: {child.tail()} (log: {child.log})")
        time.sleep(0.5)


def _snapshots(warehouse: Path) -> Sequence[Snapshot]:
    newest = max((warehouse / "db" / "orders" / "metadata").glob("v*.metadata.json"), key=_version, default=None)
    if newest is None:
        return ()
    found = json.loads(newest.read_text())["snapshots"]
    return [Snapshot(each["timestamp-ms"] / 1000, int(each["summary"]["total-records"])) for each in found]


def _version(path: Path) -> int:
    return int(path.name[1:].partition(".")[0])


def _assigned(log: Path) -> float:
    """When the first task got partitions of the topic."""
    for line in log.read_text(errors="replace").splitlines():
        if match := _ASSIGNED.match(line):
            return datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S,%f").timestamp()
    raise Unavailable(f"{log}: no line tells when partitions were assigned")


def _steady(snapshots: Sequence[Snapshot], lead: int) -> Window:
    """Without the commits at the end, when a task had run dry: the very last, and those that waited for one."""
    full = list(snapshots[:-1])
    while len(full) > 2 and full[-1].at - full[-2].at > 2 * COMMIT_MS / 1000:
        full.pop()
    first = next((each for each in full[:-1] if each.total >= lead), full[0] if full else None)
    if first is None or len(full) < 2:
        raise Unavailable(f"{len(snapshots)} commits are too few to take a rate from: raise --records")
    return Window(first.at, full[-1].at, full[-1].total - first.total)
