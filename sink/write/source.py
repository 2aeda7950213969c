"""Kafka slices as a Spark DataFrame, read by Spark's Kafka source.

Guarantee: exactly the committed records with offsets in `[start, end)`, in order; a log may have gaps. Reading a range
that the log no longer has fails. Voided by a `kafka.isolation.level` other than read_committed, which the settings
refuse. `data_loss` turns Spark's error into DataLoss, with the slice.
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
from sink.decode.formats import WIRE

FETCH_DEFAULTS = {
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": str(16 << 20),
    "fetch.max.wait.ms": "20",
}
"""With these, reads are half as fast again as with Kafka's defaults. `fetch.max.wait.ms` avoids a wait of half a second
at the end of a log: a broker answers the requests of a connection in order, so Spark's request for the end offsets
waits behind a fetch that finds no records."""

_LOST = re.compile(
    r"data (?:may have been|was|is) lost|offsets? out of range|OffsetOutOfRange|data loss", re.IGNORECASE
)
_PARTITION = re.compile(r"(?:TopicPartition|partition|Partition|for)?\s*(?P<source>[A-Za-z0-9._-]+-[0-9]+)")


def read_slices(
    spark: SparkSession, settings: Settings, slices: Sequence[Slice], headers: bool | None = None
) -> DataFrame:
    """Returns the columns value, key, topic, partition, offset, timestamp, digest and, if wanted, headers; one Spark
    partition for each slice, in an order of Spark's choice.

    Spark computes the digest of coordinates, key and value, so that no engine needs to.
    """
    with_headers = reads_headers(settings) if headers is None else headers
    frames = [_read_layer(spark, settings, layer, with_headers) for layer in _layers(slices)]
    return reduce(DataFrame.union, frames)


def reads_headers(settings: Settings) -> bool:
    """Whether a write needs the headers of records: for the table's column, or for schema ids."""
    return settings.headers or settings.value_format.endswith(WIRE) or settings.delete_key_format.endswith(WIRE)


def read_tasks(spark: SparkSession, settings: Settings, tasks: Sequence[WriteTask]) -> DataFrame:
    """Returns the same columns, with one Spark partition for each task."""
    return reduce(DataFrame.union, (read_slices(spark, settings, task.slices).coalesce(1) for task in tasks))


def kafka_options(settings: Settings) -> Mapping[str, str]:
    """Returns consumer settings without the `kafka.` prefix: defaults, the user's, then the required ones.

    The group id never changes, so that executors keep their consumers from one transaction to the next.
    """
    return {
        **FETCH_DEFAULTS,
        "group.id": f"sink-{settings.name}",
        **settings.kafka_java,
        "isolation.level": "read_committed",
    }


def data_loss(error: BaseException, slices: Sequence[Slice]) -> DataLoss | None:
    """Returns the error as DataLoss if Spark's Kafka source raised it because records are missing, else None."""
    error_text = str(error)
    if not _LOST.search(error_text):
        return None
    named_partitions = {match["source"] for match in _PARTITION.finditer(error_text)}
    concerned = [piece for piece in slices if str(piece.source) in named_partitions] or list(slices)
    first_slice = min(concerned, key=lambda piece: (piece.source, piece.start))
    reason = f"the log no longer has all of {', '.join(map(str, concerned[:4]))}. See on.data.loss."
    return DataLoss(first_slice.topic, first_slice.partition, first_slice.start, reason)


def _layers(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Groups slices, because Spark's source takes one range for a partition: layer n has the n-th slice of each."""
    by_source: dict[TopicPartition, list[Slice]] = defaultdict(list)
    for piece in slices:
        by_source[piece.source].append(piece)
    depth = max(map(len, by_source.values()))
    return [[ranges[level] for ranges in by_source.values() if level < len(ranges)] for level in range(depth)]


def _read_layer(spark: SparkSession, settings: Settings, layer: Sequence[Slice], headers: bool) -> DataFrame:
    partitions: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for piece in layer:
        partitions[piece.topic].append(piece.partition)
        starts[piece.topic][str(piece.partition)] = piece.start
        ends[piece.topic][str(piece.partition)] = piece.end
    options = {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
        **{f"kafka.{name}": value for name, value in kafka_options(settings).items()},
    }
    frame = spark.read.format("kafka").options(**options).load()
    digest = F.xxhash64("topic", "partition", "offset", "key", "value").alias("digest")
    added = ["headers"] if headers else []
    return frame.select("value", "key", "topic", "partition", "offset", "timestamp", digest, *added)
