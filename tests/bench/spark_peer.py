"""A peer that is plain Spark, as a process of its own: Kafka to Parquet, or Structured Streaming to Hudi.

The session is up and the same kind of query has run over the last records of the topic before the clock
starts. The result, with the wall-clock seconds of start and end, goes to a file as JSON. It uses nothing
of the sink but its pinned jars.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sink.local.packages import java_binary, spark_jars
from tests.bench.orders import DDL, ends

FETCH = {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(16 << 20)}
TABLE = "orders"
_DOCUMENTED = {
    "hoodie.table.name": TABLE,
    "hoodie.datasource.write.table.name": TABLE,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
}
"""https://hudi.apache.org/docs/writing_tables_streaming_writes, but not partitioned, as no peer is."""
_BULK = {**_DOCUMENTED, "hoodie.datasource.write.operation": "bulk_insert"}
HUDI: Mapping[str, Mapping[str, str]] = {
    "upsert": {**_DOCUMENTED, "hoodie.datasource.write.operation": "upsert"},
    "bulk": _BULK,
    "tuned": {
        **_BULK,
        "hoodie.bulkinsert.sort.mode": "NONE",
        "hoodie.parquet.compression.codec": "zstd",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    },
}


class Kind(Enum):
    PARQUET = "parquet"
    UPSERT = "upsert"
    BULK = "bulk"
    TUNED = "tuned"


def session(kind: Kind, cores: int, heap: str) -> SparkSession:
    os.environ.setdefault("JAVA_HOME", str(java_binary().resolve().parent.parent))
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(f"bench-{kind.value}")
        .config("spark.jars", ",".join(map(str, spark_jars())))
        .config("spark.driver.memory", heap)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if kind is not Kind.PARQUET:
        builder = (
            builder.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
            .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
            .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Peer:
    def __init__(self, kind: Kind, spark: SparkSession, bootstrap: str, topic: str, place: Path) -> None:
        self._kind = kind
        self._spark = spark
        self._source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        self._topic = topic
        self._place = place

    def run(self, name: str, starts: Mapping[int, int]) -> None:
        """From `starts` to the end of the topic, into a directory of that name."""
        source = {
            **self._source,
            "startingOffsets": json.dumps({self._topic: {str(p): o for p, o in starts.items()}}),
        }
        target = self._place / name
        shutil.rmtree(target, ignore_errors=True)
        if self._kind is Kind.PARQUET:
            rows = self._spark.read.format("kafka").options(**source).load()
            columns(rows).write.option("compression", "zstd").parquet(str(target / "table"))
            return
        if self._kind is Kind.TUNED:
            source |= FETCH
        rows = self._spark.readStream.format("kafka").options(**source).load()
        query = (
            columns(rows)
            .writeStream.format("hudi")
            .options(**HUDI[self._kind.value])
            .outputMode("append")
            .option("checkpointLocation", str(target / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(target / "table"))
        )
        query.awaitTermination()

    def count(self, name: str) -> int:
        rows = self._spark.read.format("parquet" if self._kind is Kind.PARQUET else "hudi")
        return rows.load(str(self._place / name / "table")).count()


def columns(rows: DataFrame) -> DataFrame:
    """What the sink's table has: the value's columns, and where they come from."""
    parsed = rows.select(
        F.from_json(F.col("value").cast("string"), DDL).alias("v"),
        "topic",
        "partition",
        "offset",
        "timestamp",
    )
    kafka = [F.col(name).alias(f"_kafka_{name}") for name in ("topic", "partition", "offset", "timestamp")]
    return parsed.select("v.*", *kafka)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("kind", "bootstrap", "topic", "place", "result", "heap"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("skip", "warm", "cores"):
        parser.add_argument(f"--{name}", required=True, type=int)
    chosen = parser.parse_args()
    kind = Kind(chosen.kind)
    peer = Peer(kind, session(kind, chosen.cores, chosen.heap), chosen.bootstrap, chosen.topic, Path(chosen.place))
    there = ends(chosen.bootstrap, chosen.topic)
    peer.run("warm", {p: end - chosen.warm // len(there) for p, end in there.items()})
    started = time.time()
    peer.run("counted", dict.fromkeys(there, chosen.skip // len(there)))
    ended = time.time()
    found = {"started": started, "ended": ended, "records": peer.count("counted")}
    Path(chosen.result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
