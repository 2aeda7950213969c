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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from coordination.errors import Unavailable
from sink.clients.java.installation import BROKER_VERSIONS, fetch, find_java
from sink.devtools.local.child_process import Child
from sink.devtools.local.servers import LOG4J, LOOPBACK, free_ports
from tests.bench.catalog import DRIVER, postgres
from tests.bench.lab import PATIENCE, Lab, StoreSampler, Window, measured_run
from tests.bench.lake_store import LakeStore
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
ICEBERG_S3 = (
    "org.apache.iceberg:iceberg-aws:1.10.1",
    "org.apache.iceberg:iceberg-aws-bundle:1.10.1",
    DRIVER,
)
"""Added on S3: Iceberg's own client, and a JDBC catalogue, because Hadoop's needs Hadoop's file system for S3."""
# Created before the tasks start: two tasks that create the tables at once conflict.
_CATALOG = """
CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5), PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255), property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key));
INSERT INTO iceberg_namespace_properties VALUES ('iceberg', 'db', 'exists', 'true');
"""
COMMIT_MS = 5000
_DEAD = "Task threw an uncaught and unrecoverable exception"
_ASSIGNED = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}).*(?:Adding newly assigned partitions|Notifying assignor)"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit: its wall-clock second, and all records in the table after it."""

    at: float
    total: int


class Directory:
    """A warehouse on the disk. `latest_metadata`: the table's metadata as it is now."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.settings: Mapping[str, object] = {"type": "hadoop", "warehouse": directory.as_uri()}

    def latest_metadata(self) -> str | None:
        versions = (self._directory / "db" / "orders" / "metadata").glob("v*.metadata.json")
        latest = max(versions, key=lambda path: int(path.name[1:].partition(".")[0]), default=None)
        return latest.read_text() if latest else None


class Bucket:
    """A warehouse on an S3 server, by Iceberg's own client. `catalog`: JDBC's address, to which no delay is added."""

    def __init__(self, store: LakeStore, catalog: str) -> None:
        self._direct = store.direct
        self._bucket = store.store.make_bucket()
        self.settings: Mapping[str, object] = {
            "type": "jdbc",
            "uri": catalog,
            "jdbc.user": "bench",
            "jdbc.schema-version": "V1",
            "warehouse": f"s3://{self._bucket}/warehouse",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": store.store.url,
            "s3.path-style-access": "true",
            "s3.access-key-id": store.store.access_key,
            "s3.secret-access-key": store.store.secret_key,
            "client.region": "us-east-1",
        }

    def latest_metadata(self) -> str | None:
        names = [key for key in self._direct.keys(self._bucket) if key.endswith(".metadata.json")]
        latest = max(names, key=lambda key: key.rpartition("/")[2], default=None)
        if latest is None:
            return None
        return str(self._direct.client.get_object(Bucket=self._bucket, Key=latest)["Body"].read().decode())


def run(lab: Lab, peer: str, number: int) -> Run:
    directory = lab.run_directory(f"{peer}-{number}")
    if lab.store is None:
        return _run(lab, peer, number, directory, Directory(directory / "warehouse"))
    with postgres(directory / "catalog.log", _CATALOG) as catalog:
        return _run(lab, peer, number, directory, Bucket(lab.store, catalog))


def _run(lab: Lab, peer: str, number: int, directory: Path, warehouse: Directory | Bucket) -> Run:
    name = f"bench-{peer}-{number}-{int(time.time())}"
    create_topic(lab.kafka.address, f"control-{name}", 1)
    child = Child(peer, _command(lab, directory, name, warehouse.settings), directory / "peer.log")
    child.start()
    try:
        with (
            Sampler([child.pid]) as peer_sampler,
            Sampler([lab.kafka.pid]) as broker_sampler,
            StoreSampler(lab.store) as store_sampler,
        ):
            snapshots = _until_landed(child, warehouse.latest_metadata, lab.load.total)
    finally:
        child.kill()
    if _DEAD in child.log.read_text(errors="replace"):
        raise Unavailable(f"peer {peer}: a task died, and its partitions went to the other one (log: {child.log})")
    assigned_at = _assigned_at(child.log)
    steady = _steady(snapshots, lab.load.lead)
    shutil.rmtree(directory / "warehouse", ignore_errors=True)
    last = snapshots[-1]
    details = {
        "end_to_end_seconds": last.at - assigned_at,
        "end_to_end_records": float(last.total),
        **store_sampler.details(steady),
    }
    return measured_run(lab, peer, number, steady, (peer_sampler, broker_sampler), details=details)


def _command(lab: Lab, directory: Path, name: str, catalog: Mapping[str, object]) -> list[str]:
    plugins = directory / "plugins" / "iceberg"
    plugins.mkdir(parents=True)
    for jar in fetch("iceberg-s3", (*ICEBERG, *ICEBERG_S3)) if lab.store else fetch("iceberg", ICEBERG):
        (plugins / jar.name).symlink_to(jar)
    (directory / "log4j2.properties").write_text(LOG4J)
    worker = {
        "bootstrap.servers": lab.kafka.address,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": directory / "offsets",
        "offset.flush.interval.ms": 10000,
        "plugin.path": directory / "plugins",
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
        **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
        "iceberg.control.topic": f"control-{name}",
        "iceberg.control.commit.interval-ms": COMMIT_MS,
        "iceberg.control.commit.timeout-ms": 60000,
        "iceberg.tables.write-props.write.parquet.compression-codec": "zstd",
    }
    files = [
        _properties(directory / "worker.properties", worker),
        _properties(directory / "sink.properties", connector),
    ]
    return [
        str(find_java(BROKER_VERSIONS).binary),
        f"-Xmx{lab.heap}",
        f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
        "-cp",
        ":".join(map(str, fetch("connect", CONNECT))),
        "org.apache.kafka.connect.cli.ConnectStandalone",
        *files,
    ]


def _properties(path: Path, settings: dict[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def _until_landed(child: Child, latest_metadata: Callable[[], str | None], records: int) -> Sequence[Snapshot]:
    deadline = time.monotonic() + PATIENCE
    while True:
        snapshots = _snapshots(latest_metadata())
        if snapshots and snapshots[-1].total >= records:
            return snapshots
        if not child.running or time.monotonic() > deadline:
            landed = snapshots[-1].total if snapshots else 0
            raise Unavailable(f"Kafka Connect landed {landed} of {records}: {child.tail()} (log: {child.log})")
        time.sleep(0.5)


def _snapshots(metadata: str | None) -> Sequence[Snapshot]:
    entries = json.loads(metadata)["snapshots"] if metadata else ()
    return [Snapshot(entry["timestamp-ms"] / 1000, int(entry["summary"]["total-records"])) for entry in entries]


def _assigned_at(log: Path) -> float:
    """Returns when the first task got partitions of the topic."""
    for line in log.read_text(errors="replace").splitlines():
        if match := _ASSIGNED.match(line):
            return datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S,%f").timestamp()
    raise Unavailable(f"{log}: no line tells when partitions were assigned")


def _steady(snapshots: Sequence[Snapshot], lead: int) -> Window:
    """Returns the window of full commits. Leaves out the last commit, and those before it that waited for a task
    which had no more records."""
    full = list(snapshots[:-1])
    while len(full) > 2 and full[-1].at - full[-2].at > 2 * COMMIT_MS / 1000:
        full.pop()
    first = next((snapshot for snapshot in full[:-1] if snapshot.total >= lead), full[0] if full else None)
    if first is None or len(full) < 2:
        raise Unavailable(f"{len(snapshots)} commits are too few to take a rate from: raise --records")
    return Window(first.at, full[-1].at, full[-1].total - first.total)
