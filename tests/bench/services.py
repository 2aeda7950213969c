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

from sink.clients.spark import start_session
from sink.config import load
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.fleet import Fleet, produce

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
class Measured:
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


def land(place: Path, zookeeper: str, kafka: str, settings: Mapping[str, object]) -> Fleet:
    """A fleet that has landed everything and is gone."""
    each = {
        "flush.size": RECORDS,
        "slice.records": RECORDS,
        "transaction.interval.ms": 10_000,
        "transactions.in.flight": 2,
        "hoodie.metadata.index.column.stats.enable": False,
    }
    chroot = f"{zookeeper}/{uuid.uuid4().hex}"
    it = Fleet(place, chroot, kafka, TOPIC, {**each, **settings})
    it.client.ensure_path("/")
    with closing(it):
        for name in ("w1", "w2"):
            it.start(name)
        it.wait_landed(dict.fromkeys(range(PARTITIONS), COMMITS * RECORDS), 3600)
    return it


def seconds_of(action: Callable[[], object]) -> float:
    """Seconds of the fastest run: other work on the machine can only add to it."""
    taken = []
    for _ in range(SCANS):
        began = time.monotonic()
        action()
        taken.append(time.monotonic() - began)
    return min(taken)


def transactions(it: Fleet) -> Iterator[float]:
    """Seconds from planning to the end of those that committed."""
    opened: dict[int, float] = {}
    for line in it.log("w1").splitlines() + it.log("w2").splitlines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        at = datetime.fromisoformat(said["timestamp"].replace("Z", "+00:00")).timestamp()
        if said["event"] == "transaction.opened":
            opened[said["transaction"]] = at
        elif said["event"] == "transaction.ended" and said["outcome"] == "COMMITTED":
            yield at - opened[said["transaction"]]


def measure(spark: SparkSession, it: Fleet) -> Measured:
    base = str(it.table)

    def by_spark(metadata: bool) -> int:
        reader = spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
        found: int = reader.load(base).selectExpr("sum(id)").collect()[0][0]
        return found

    def by_rust() -> int:
        rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(it.table.as_uri()).build().read())
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            [[found]] = connection.sql("SELECT sum(id) FROM rows").fetchall()
        return int(found)

    count = COMMITS * RECORDS * PARTITIONS
    assert {by_spark(True), by_spark(False), by_rust()} == {count * (count - 1) // 2}
    shown = {Path(uri.removeprefix("file:")) for uri in spark.read.format("hudi").load(base).inputFiles()}
    took = sorted(transactions(it))
    return Measured(
        shown=len(shown),
        mib=sum(path.stat().st_size for path in shown) / 1024**2,
        stored=len(list(it.table.glob("*.parquet"))),
        instants=len(list((it.table / ".hoodie" / "timeline").glob("2*_*.*"))),
        spark=seconds_of(lambda: by_spark(True)),
        spark_listing=seconds_of(lambda: by_spark(False)),
        rust=seconds_of(by_rust),
        median=statistics.median(took),
        slowest=took[int(len(took) * 0.95)],
        runs=sum(it.log(name).count('"services.begun"') for name in ("w1", "w2")),
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sink-services-") as place:
        for name in ("zookeeper", "kafka"):
            Path(place, name).mkdir()
        with ZooKeeperServer(Path(place, "zookeeper")) as zookeeper, KafkaServer(Path(place, "kafka")) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.address})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
            produce(kafka.address, TOPIC, COMMITS * RECORDS * PARTITIONS, PARTITIONS)
            fleets = [
                land(Path(place, name), zookeeper.address, kafka.address, settings)
                for name, settings in (("none", NONE), ("every", EVERY))
            ]
            spark = start_session(load(fleets[0].directory / "w1.yaml", {}), "services", Path(place, "spark.log"))
            none, every = (measure(spark, it) for it in fleets)
            spark.stop()
    print("| | without | with |\n|---|---:|---:|")
    for name, without, with_ in zip(NAMES, none.cells(), every.cells(), strict=True):
        print(f"| {name} | {without} | {with_} |")


if __name__ == "__main__":
    main()
