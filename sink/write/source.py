"""Kafka slices as a Spark DataFrame, read by Spark's own Kafka source.

Guarantee: exactly the committed records with offsets in `[start, end)`, in order; gaps in a log are
legal. A range that the log no longer holds fails. Voided by `kafka.isolation.level` other than
read_committed, which the settings refuse. Raises DataLoss (through `data_loss`) with the slice that is
concerned.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from coordination.errors import DataLoss
from coordination.state.model import Slice, TopicPartition, WriteTask
from sink.config import Settings

FETCH_DEFAULTS = {
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": str(16 << 20),
    "fetch.max.wait.ms": "20",
}
"""Raw reads are half as fast again as with Kafka's own defaults. And a slice at the end of its log is not held up
by Kafka's half second: the broker answers a connection in order, so that Spark's question for the log's ends waits
for the fetch that was sent ahead in vain."""

_LOST = re.compile(
    r"data (?:may have been|was|is) lost|offsets? out of range|OffsetOutOfRange|data loss", re.IGNORECASE
)
_PARTITION = re.compile(r"(?:TopicPartition|partition|Partition|for)?\s*(?P<source>[A-Za-z0-9._-]+-[0-9]+)")


def read_slices(
    spark: SparkSession, settings: Settings, slices: Sequence[Slice], headers: bool | None = None
) -> DataFrame:
    """Columns value, key, topic, partition, offset, timestamp and digest, and headers if the table has them, or as
    asked; a Spark partition for each slice, in an order of Spark's own.

    The digest hashes coordinates, key and value, so that no engine has to look at the bytes for it.
    """
    wanted = settings.headers if headers is None else headers
    frames = [_read(spark, settings, layer, wanted) for layer in _layers(slices)]
    return reduce(DataFrame.union, frames)


def read_tasks(spark: SparkSession, settings: Settings, tasks: Sequence[WriteTask]) -> DataFrame:
    """The same columns, and a Spark partition for each task."""
    return reduce(DataFrame.union, (read_slices(spark, settings, task.slices).coalesce(1) for task in tasks))


def kafka_options(settings: Settings) -> Mapping[str, str]:
    """Consumer settings without the `kafka.` prefix: ours, overridden by the user's, then what must hold.

    With one group id for ever the executors' consumers are kept from one transaction to the next.
    """
    ours = {**FETCH_DEFAULTS, "group.id": f"sink-{settings.name}"}
    return {
        **ours,
        **settings.kafka_java,
        "isolation.level": "read_committed",
    }


def data_loss(error: BaseException, slices: Sequence[Slice]) -> DataLoss | None:
    """The error as DataLoss if Spark's Kafka source raised it because records are gone, else None."""
    error_text = str(error)
    if not _LOST.search(error_text):
        return None
    named = {match["source"] for match in _PARTITION.finditer(error_text)}
    concerned = [piece for piece in slices if str(piece.source) in named] or list(slices)
    first = min(concerned, key=lambda piece: (piece.source, piece.start))
    reason = f"the log no longer holds all of {', '.join(map(str, concerned[:4]))}; see on.data.loss"
    return DataLoss(first.topic, first.partition, first.start, reason)


def _layers(slices: Sequence[Slice]) -> list[list[Slice]]:
    """The source takes one range per partition: the n-th slices of all partitions make the n-th layer."""
    by_source: dict[TopicPartition, list[Slice]] = defaultdict(list)
    for piece in slices:
        by_source[piece.source].append(piece)
    depth = max(map(len, by_source.values()))
    return [[ranges[level] for ranges in by_source.values() if level < len(ranges)] for level in range(depth)]


def _read(spark: SparkSession, settings: Settings, layer: Sequence[Slice], headers: bool) -> DataFrame:
    partitions: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for piece in layer:
        partitions[piece.topic].append(piece.partition)
        starts[piece.topic][str(piece.partition)] = piece.start
        ends[piece.topic][str(piece.partition)] = piece.end
    reader = spark.read.format("kafka").option("assign", json.dumps(partitions)).option("failOnDataLoss", "true")
    reader = reader.option("includeHeaders", str(headers).lower())
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
    for name, value in kafka_options(settings).items():
        reader = reader.option(f"kafka.{name}", value)
    frame = reader.load()
    digest = F.xxhash64("topic", "partition", "offset", "key", "value").alias("digest")
    added = ["headers"] if headers else []
    return frame.select("value", "key", "topic", "partition", "offset", "timestamp", digest, *added)
