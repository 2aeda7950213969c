"""Measures what many small commits cost a table, with table services and without: `python -m tests.bench.services`.

Two workers land `COMMITS` small transactions, once with every service (clustering too, on the worker that does not
lead) and once with none. Then: data files that a reader opens, their size, files on storage, instants on the active
timeline, how long reading takes, and how long transactions took meanwhile. It prints a table in Markdown.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession

from sink.clients.spark.session import start_session
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.fleet import Fleet, produce
from tests.one_sink import load

COMMITS = 200
PARTITIONS = 2
RECORDS = 500
"""Records of one partition in one transaction."""
SCANS = 5
TOPIC = "events"
EVERY: Mapping[str, object] = {
    "services.clustering": True,
    "services.interval.commits": 20,
    "hoodie.clean.commits.retained": 10,
    "hoodie.keep.min.commits": 20,
    "hoodie.keep.max.commits": 30,
}
NONE: Mapping[str, object] = {"services.interval.commits": 1_000_000}


@dataclass(frozen=True)
class Measurement:
    shown: int
    mib: float
    stored: int
    instants: int
    spark: float
    spark_listing: float
    rust: float
    median: float
    slowest: float
    runs: int

    def cells(self) -> list[str]:
        return [
            f"{self.shown:,}",
            f"{self.mib / self.shown:.3f} MiB",
            f"{self.stored:,}",
            f"{self.instants:,}",
            f"{self.spark:.2f} s",
            f"{self.spark_listing:.2f} s",
            f"{self.rust:.2f} s",
            f"{self.median:.2f} s",
            f"{self.slowest:.2f} s",
            f"{self.runs}",
        ]


NAMES = [
    "data files that a reader opens",
    "a file's size",
    "data files on storage",
    "instants on the active timeline",
    "Spark, sum of a column",
    "Spark without the metadata table",
    "hudi-rs and DuckDB, sum of a column",
    "a transaction, median",
    "a transaction, 95 %",
    "runs of the services",
]


def land(directory: Path, zookeeper: str, kafka: str, settings: Mapping[str, object]) -> Fleet:
    """Runs a fleet until it has landed every record. Returns it after its workers have ended."""
    defaults = {
        "flush.size": RECORDS,
        "slice.records": RECORDS,
        "transaction.interval.ms": 10_000,
        "transactions.in.flight": 2,
        "hoodie.metadata.index.column.stats.enable": False,
    }
    chroot = f"{zookeeper}/{uuid.uuid4().hex}"
    fleet = Fleet(directory, chroot, kafka, TOPIC, {**defaults, **settings})
    fleet.client.ensure_path("/")
    with closing(fleet):
        for name in ("w1", "w2"):
            fleet.start(name)
        fleet.wait_landed(dict.fromkeys(range(PARTITIONS), COMMITS * RECORDS), 3600)
    return fleet


def seconds_of(action: Callable[[], object]) -> float:
    """Returns the seconds of the fastest run: other work on the machine can only add to it."""
    durations = []
    for _ in range(SCANS):
        began = time.monotonic()
        action()
        durations.append(time.monotonic() - began)
    return min(durations)


def transactions(fleet: Fleet) -> Iterator[float]:
    """Yields the seconds from plan to end of each committed transaction."""
    opened_at: dict[int, float] = {}
    for line in fleet.log("w1").splitlines() + fleet.log("w2").splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        at = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
        if event["event"] == "transaction.opened":
            opened_at[event["transaction"]] = at
        elif event["event"] == "transaction.ended" and event["outcome"] == "COMMITTED":
            yield at - opened_at[event["transaction"]]


def measure(spark: SparkSession, fleet: Fleet) -> Measurement:
    base = str(fleet.table)

    def by_spark(metadata: bool) -> int:
        reader = spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
        total: int = reader.load(base).selectExpr("sum(id)").collect()[0][0]
        return total

    def by_rust() -> int:
        rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(fleet.table.as_uri()).build().read())
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            [[total]] = connection.sql("SELECT sum(id) FROM rows").fetchall()
        return int(total)

    count = COMMITS * RECORDS * PARTITIONS
    assert {by_spark(True), by_spark(False), by_rust()} == {count * (count - 1) // 2}
    opened_files = {Path(uri.removeprefix("file:")) for uri in spark.read.format("hudi").load(base).inputFiles()}
    durations = sorted(transactions(fleet))
    return Measurement(
        shown=len(opened_files),
        mib=sum(path.stat().st_size for path in opened_files) / 1024**2,
        stored=len(list(fleet.table.glob("*.parquet"))),
        instants=len(list((fleet.table / ".hoodie" / "timeline").glob("2*_*.*"))),
        spark=seconds_of(lambda: by_spark(True)),
        spark_listing=seconds_of(lambda: by_spark(False)),
        rust=seconds_of(by_rust),
        median=statistics.median(durations),
        slowest=durations[int(len(durations) * 0.95)],
        runs=sum(fleet.log(name).count('"services.begun"') for name in ("w1", "w2")),
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sink-services-") as directory:
        for name in ("zookeeper", "kafka"):
            Path(directory, name).mkdir()
        with ZooKeeperServer(Path(directory, "zookeeper")) as zookeeper, KafkaServer(Path(directory, "kafka")) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.address})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
            produce(kafka.address, TOPIC, COMMITS * RECORDS * PARTITIONS, PARTITIONS)
            fleets = [
                land(Path(directory, name), zookeeper.address, kafka.address, settings)
                for name, settings in (("none", NONE), ("every", EVERY))
            ]
            spark = start_session(
                load(fleets[0].directory / "w1.yaml", {}).session, "services", Path(directory, "spark.log")
            )
            none, every = (measure(spark, fleet) for fleet in fleets)
            spark.stop()
    print("| | without | with |\n|---|---:|---:|")
    for name, without, with_ in zip(NAMES, none.cells(), every.cells(), strict=True):
        print(f"| {name} | {without} | {with_} |")


if __name__ == "__main__":
    main()
