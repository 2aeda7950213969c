"""A peer that is plain Spark, as a process of its own: Kafka to Parquet, or Structured Streaming to Hudi.

The session is up and the same kind of query has run over the last records of the topic before the clock
starts. The result, with the wall-clock seconds of start and end, goes to a file as JSON. It uses nothing
of the sink but its pinned jars.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from sink.clients.java.installation import SPARK, fetch, find_java, pyspark_jars
from tests.bench.orders import ends
from tests.bench.spark_plan import Plan

FRAME_BYTES = 5
"""Bytes that Confluent's serializers put before a value."""
_KAFKA_SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"


def _jars() -> list[Path]:
    """Returns the sink's jars, and Spark's Kafka source."""
    bundled = sorted({re.sub(r"-\d.*", "", jar.stem) for jar in pyspark_jars().glob("*.jar")})
    return fetch("spark-kafka", (*SPARK, _KAFKA_SOURCE), without=bundled)


def session(plan: Plan, cores: int, heap: str) -> SparkSession:
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("bench")
        .config("spark.jars", ",".join(map(str, _jars())))
        .config("spark.driver.memory", heap)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if plan.hudi is not None:
        builder = (
            builder.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
            .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
            .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass(frozen=True)
class Batch:
    """Wall-clock seconds between which so many records were moved."""

    started: float
    ended: float
    records: int


class Peer:
    def __init__(self, plan: Plan, spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
        self._plan = plan
        self._spark = spark
        self._source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **plan.source}
        self._topic = topic
        self._directory = directory

    def run(self, name: str, starts: Mapping[int, int]) -> Sequence[Batch]:
        """Moves the records from `starts` to the end of the topic into a directory of that name."""
        source = {
            **self._source,
            "startingOffsets": json.dumps({self._topic: {str(p): o for p, o in starts.items()}}),
        }
        target = self._directory / name
        shutil.rmtree(target, ignore_errors=True)
        if self._plan.hudi is None:
            started = time.time()
            rows = self._spark.read.format("kafka").options(**source).load()
            columns(rows, self._plan).write.option("compression", "zstd").parquet(str(target / "table"))
            return [Batch(started, time.time(), self.count(name))]
        rows = self._spark.readStream.format("kafka").options(**source).load()
        started = time.time()
        query = (
            columns(rows, self._plan)
            .writeStream.format("hudi")
            .options(**self._plan.hudi)
            .outputMode("append")
            .option("checkpointLocation", str(target / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(target / "table"))
        )
        query.awaitTermination()
        return batches_of(query.recentProgress, started, sum(starts.values()))

    def count(self, name: str) -> int:
        rows = self._spark.read.format("parquet" if self._plan.hudi is None else "hudi")
        return rows.load(str(self._directory / name / "table")).count()


def batches_of(progress: Iterable[Mapping[str, Any]], started: float, offset: int) -> Sequence[Batch]:
    """Returns a batch for each trigger that moved records. The first one began with the query, at `started`, after
    `offset` records of the topic."""
    batches = []
    for trigger in progress:
        end = sum(next(iter(trigger["sources"][0]["endOffset"].values())).values())
        if end > offset:
            began = datetime.fromisoformat(trigger["timestamp"].replace("Z", "+00:00")).timestamp()
            ended = began + trigger["durationMs"]["triggerExecution"] / 1000
            batches.append(Batch(began if batches else started, ended, end - offset))
            offset = end
    return batches


def columns(rows: DataFrame, plan: Plan) -> DataFrame:
    """Returns the columns of the sink's table: the value's, and the record's coordinates."""
    if plan.avro:
        value = from_avro(F.expr(f"substring(value, {FRAME_BYTES + 1})"), plan.avro)
    else:
        value = F.from_json(F.col("value").cast("string"), plan.ddl)
    parsed = rows.select(value.alias("v"), "topic", "partition", "offset", "timestamp")
    kafka = [F.col(name).alias(f"_kafka_{name}") for name in ("topic", "partition", "offset", "timestamp")]
    return parsed.select("v.*", *kafka)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("plan", "bootstrap", "topic", "place", "result", "heap"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("skip", "warm", "cores"):
        parser.add_argument(f"--{name}", required=True, type=int)
    options = parser.parse_args()
    plan = Plan.from_json(options.plan)
    peer = Peer(plan, session(plan, options.cores, options.heap), options.bootstrap, options.topic, Path(options.place))
    ends_by_partition = ends(options.bootstrap, options.topic)
    peer.run("warm", {p: end - options.warm // len(ends_by_partition) for p, end in ends_by_partition.items()})
    batches = peer.run("counted", dict.fromkeys(ends_by_partition, options.skip // len(ends_by_partition)))
    result = {"batches": [asdict(batch) for batch in batches], "rows": peer.count("counted")}
    Path(options.result).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
