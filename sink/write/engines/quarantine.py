"""Keeps the bad records of a write under its instant until the coordinator publishes them in the errors table.

Guarantee: when `quarantine` returns, a directory of this attempt holds each bad record once: coordinates, key, value,
headers and the reason. Headers that cannot be read are null, and the reason says so; so is a timestamp that no reader
shows. It reads the bad records from Kafka again, so that a write without bad records carries no extra data. If the log
loses records in between, the counts differ and it raises. Raises BadRecord (more than are tolerated), DataLoss,
SinkError and what Spark raises.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from coordination.errors import SinkError
from coordination.state.model import QuarantinedRecords, Slice
from sink.layout.quarantine import QUARANTINE
from sink.write.engines.task_errors import task_error
from sink.write.engines.task_input import Inputs
from sink.write.engines.task_report import REASON_CHARACTERS, BadOffset, TaskReport, too_many
from sink.write.reading.record_headers import UNREADABLE

_BAD_RECORD = (
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
"""The columns of the errors table, by the field of a bad record."""


def quarantine(
    inputs: Inputs, base_path: str, tolerated: int, instant: str, reports: Sequence[TaskReport]
) -> tuple[QuarantinedRecords, ...]:
    """Writes the bad records that the tasks report. Returns an empty tuple if there are none."""
    bad_offsets = {piece: offsets for report in reports for piece, offsets in report.bad.items()}
    if not bad_offsets:
        return ()
    first_slice = min(bad_offsets, key=lambda piece: (piece.topic, piece.partition, bad_offsets[piece][0].offset))
    count = sum(map(len, bad_offsets.values()))
    first_bad = bad_offsets[first_slice][0]
    if count > tolerated:
        raise too_many(first_slice, first_bad, tolerated)
    path = f"{QUARANTINE}/{instant}/{uuid.uuid4().hex}"
    slices = [
        replace(piece, start=offsets[0].offset, end=offsets[-1].offset + 1) for piece, offsets in bad_offsets.items()
    ]
    try:
        records = inputs.of_records(slices)
        _write(records, f"{base_path}/{path}", instant, bad_offsets)
        read_count = records.sparkSession.read.parquet(f"{base_path}/{path}").count()
    except (Py4JJavaError, PySparkException) as error:
        raise task_error(error) or error from error
    if read_count != count:
        raise SinkError(
            f"the tasks found {count} bad records, but Kafka gave {read_count} of them again: the log changed"
        )
    return (
        QuarantinedRecords(path, count, first_slice.topic, first_slice.partition, first_bad.offset, first_bad.reason),
    )


def _write(records: DataFrame, path: str, instant: str, bad_offsets: Mapping[Slice, Sequence[BadOffset]]) -> None:
    rows = [
        (piece.topic, piece.partition, row.offset, piece.topic_id, piece.generation, row.kind, row.reason, instant)
        for piece, offsets in bad_offsets.items()
        for row in offsets
    ]
    offsets = records.sparkSession.createDataFrame(rows, _BAD_RECORD)
    joined = _readable(records.join(F.broadcast(offsets), ["topic", "partition", "offset"]))
    renamed = joined.select(*(F.col(name).alias(column) for name, column in COLUMNS.items()))
    renamed.write.parquet(path)


def _readable(rows: DataFrame) -> DataFrame:
    """Gives rows null for what no reader could show: headers that cannot be read, with a reason that says so, and
    timestamps outside the years 0001 to 9999."""
    is_unreadable = F.exists("headers", lambda header: header["key"].isNull())
    both_reasons = F.substring(F.concat_ws("; ", F.lit(UNREADABLE), F.col("reason")), 1, REASON_CHARACTERS)
    return rows.withColumns(
        {
            "reason": F.when(is_unreadable & (F.col("kind") != "headers"), both_reasons).otherwise(F.col("reason")),
            "headers": F.when(is_unreadable, None).otherwise(F.col("headers")),
            "timestamp": F.when(F.year("timestamp").between(1, 9999), F.col("timestamp")),
        }
    )
