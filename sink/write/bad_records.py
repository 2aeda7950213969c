"""Bad records of a write, set aside under the instant until the coordinator publishes them in the errors table.

Guarantee: what `set_aside` returned for holds each of the bad records once, whole: coordinates, key, value, headers and
why it is bad, in a directory of its own for each attempt. They are read from Kafka once more, so that a write without
bad records carries nothing for them. Voided by a log that changes in between, which is found out by count. Raises
BadRecord (more than are tolerated), DataLoss, SinkError and what Spark raises.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from coordination.errors import BadRecord, SinkError
from coordination.model import SetAside, Slice
from sink.config import Settings
from sink.write.bad_offsets import BadOffset, too_many
from sink.write.source import data_loss, read_slices

ASIDE = ".hoodie/.sink_errors"
"""In the table's directory, by instant; table services remove what belongs to no pending one. Not among the instant's
markers: with a file there that is none, a rollback by Hudi finds no marker at all, and leaves all files."""
_FOUND = (
    "topic string, partition int, offset long, topic_id string, generation int, kind string, reason string,"
    " instant string"
)
COLUMNS = {
    "topic": "_kafka_topic",
    "partition": "_kafka_partition",
    "offset": "_kafka_offset",
    "timestamp": "_kafka_timestamp",
    "key": "_kafka_key",
    "headers": "_kafka_headers",
    "value": "value",
    "kind": "kind",
    "reason": "reason",
    "topic_id": "topic_id",
    "generation": "generation",
    "instant": "instant",
}
"""What the errors table calls what is known of a bad record."""


Found = Mapping[Slice, Sequence[BadOffset]]


def tolerated(settings: Settings) -> int:
    """Most bad records of a task: alone it may not have more than a whole transaction."""
    return settings.errors_max if settings.tolerant else 0


def set_aside(session: SparkSession, settings: Settings, instant: str, found: Found) -> tuple[SetAside, ...]:
    """None for no bad record."""
    if not found:
        return ()
    first = min(found, key=lambda each: (each.topic, each.partition, found[each][0].offset))
    count = sum(map(len, found.values()))
    worst = found[first][0]
    if count > tolerated(settings):
        raise BadRecord(first.topic, first.partition, worst.offset, too_many(worst.reason, tolerated(settings)))
    path = f"{ASIDE}/{instant}/{uuid.uuid4().hex}"
    slices = [replace(each, start=bad[0].offset, end=bad[-1].offset + 1) for each, bad in found.items()]
    try:
        _write(session, settings, instant, found, slices, path)
        kept = session.read.parquet(f"{settings.base_path}/{path}").count()
    except (Py4JJavaError, PySparkException) as error:
        lost = data_loss(error, slices)
        if lost is None:
            raise
        raise lost from error
    if kept != count:
        raise SinkError(f"{count} bad records were found, {kept} of them when they were read again: the log changed")
    return (SetAside(path, count, first.topic, first.partition, worst.offset, worst.reason),)


def _write(
    session: SparkSession, settings: Settings, instant: str, found: Found, slices: Sequence[Slice], path: str
) -> None:
    rows = [
        (each.topic, each.partition, bad.offset, each.topic_id, each.generation, bad.kind, bad.reason, instant)
        for each, every in found.items()
        for bad in every
    ]
    records = read_slices(session, settings, slices, headers=True)
    joined = records.join(F.broadcast(session.createDataFrame(rows, _FOUND)), ["topic", "partition", "offset"])
    renamed = joined.select(*(F.col(name).alias(column) for name, column in COLUMNS.items()))
    renamed.write.parquet(f"{settings.base_path}/{path}")
