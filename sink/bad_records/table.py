"""The errors table: bad records, in a Hudi table of their own, keyed by sink, topic, topic id, partition, offset and
generation.

Guarantee: when `publish` returns, every bad record of the transaction is in the table once, and no row of an earlier
attempt at the same ranges is. Repeating it changes nothing. The coordinator calls it before it completes the
transaction's instant. The first bad record creates the table. Voided by other writers that delete or change its rows.
Copies in the dead-letter topic are complete, too, but may be there twice: a repeated publication sends them again.
Raises QuarantineMissing, TableError (another table is at the path), what `fence` raises, and Unavailable (try again).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
from kazoo.client import KazooClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from coordination.errors import SinkError, Unavailable
from coordination.state.messages import Complete
from coordination.state.model import Checkpoint, Slice
from sink.bad_records.keyed_table import KEY, Fence, KeyedTable
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.clients.spark.privacy import local_rows
from sink.hudi.lock import TableLocks
from sink.hudi.shared_lock import LockIdentity
from sink.hudi.specification import DeadLetterTopic, ErrorsSpecification
from sink.layout.quarantine import QUARANTINE
from sink.librdkafka import make_producer
from sink.schema.table_schema import IS_DELETED

NOT_REPLAYED = {"replayed_at": "timestamp", "replayed_instant": "string"}
"""Columns that `sink errors replay` sets when it adds the record to the table."""
LOG = logging.getLogger(__name__)
HEADER = "__connect.errors."
FLUSH_SECONDS = 60.0
_PRODUCER = {"enable.idempotence": True, "message.max.bytes": 1_000_000_000, "allow.auto.create.topics": False}
"""Only the topic limits the record size, because brokers accepted each of these records once."""
CONVERTERS = {"value": "VALUE_CONVERTER", "key": "KEY_CONVERTER", "headers": "HEADER_CONVERTER"}
"""The stages of Kafka Connect for parts of a record that cannot be read. The sink itself refuses the other kinds."""


def send_dead_letters(topic: DeadLetterTopic, sink: str, rows: DataFrame) -> None:
    """Sends rows of the sink's errors table to the topic, one after another, because each may have many megabytes."""
    place = f"errors.deadletter.topic {topic.name} at {topic.bootstrap}"
    failed: list[str] = []

    def on_delivery(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            failed.append(error.str())

    try:
        producer = make_producer({**topic.kafka, **_PRODUCER}, LOG)
        for row in local_rows(rows):
            _produce(
                producer,
                topic=topic.name,
                value=_bytes(row["value"]),
                key=_bytes(row["_kafka_key"]),
                headers=headers(row, sink),
                on_delivery=on_delivery,
            )
        unacknowledged = producer.flush(FLUSH_SECONDS)
    except ck.KafkaException as error:
        raise Unavailable(f"{place}: {error.args[0].str()}") from error
    if failed or unacknowledged:
        reason = failed[0] if failed else f"{unacknowledged} records not acknowledged in time"
        raise Unavailable(f"{place}: {reason}")


def _produce(producer: ck.Producer, **record: Any) -> None:
    while True:
        try:
            producer.produce(**record)
        except BufferError:
            producer.poll(1.0)  # its queue is full
        else:
            producer.poll(0)
            return


def headers(row: Row, sink: str) -> list[tuple[str, str | bytes | None]]:
    """Returns the record's own headers, followed by Kafka Connect's, and the topic's id among them."""
    stage = CONVERTERS.get(row["kind"], "TASK_PUT")
    # The exceptions of Kafka Connect's converters and sinks, for which tools look in these headers.
    exception = "ConnectException" if stage == "TASK_PUT" else "DataException"
    connect = {
        "topic": row["_kafka_topic"],
        "partition": row["_kafka_partition"],
        "offset": row["_kafka_offset"],
        "connector.name": sink,
        "topic.id": row["topic_id"],
        "task.id": 0,
        "stage": stage,
        "class.name": "sink",
        "exception.class.name": f"org.apache.kafka.connect.errors.{exception}",
        "exception.message": row["reason"],
    }
    record_headers = ((header["key"], _bytes(header["value"])) for header in row["_kafka_headers"] or ())
    return [*record_headers, *((HEADER + name, str(value).encode()) for name, value in connect.items())]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


class QuarantineMissing(SinkError):
    """The quarantined bad records of an instant are gone."""


class ErrorsTable:
    """The errors table and the dead-letter topic. It does nothing before the first bad record. Not thread-safe."""

    def __init__(self, spark: SparkSession, specification: ErrorsSpecification, client: KazooClient) -> None:
        self._spark = spark
        self._specification = specification
        self.locks = TableLocks(client, specification.lock)
        self._table = KeyedTable(spark, specification, self.locks, LockIdentity(client, self.locks.path))
        self.base_path = self._table.base_path

    def publish(self, operation: Complete, fence: Fence) -> None:
        """Publishes the bad records of a PREPARED transaction, and deletes those that its earlier attempts published.

        `fence` raises if this process is no longer the coordinator.
        """
        with self._working(f"publishing the bad records of transaction {operation.number}"):
            rows = self._quarantined(operation) if operation.errors else None
            changed = None if rows is None else rows.withColumn(IS_DELETED, F.lit(False))
            if operation.attempt > 1 and self._specification.is_used and self._table.exists():
                stale = self._stale_rows(operation.instant, operation.checkpoint)
                if rows is not None:
                    stale = stale.join(rows, list(KEY), "left_anti")
                if not stale.isEmpty():
                    removals = stale.withColumn(IS_DELETED, F.lit(True))
                    changed = removals if changed is None else changed.unionByName(removals)
            if changed is not None:
                self._table.upsert(changed, fence)
            if rows is not None and self._specification.dead_letters is not None:
                send_dead_letters(self._specification.dead_letters, self._specification.sink, rows)

    def verify(self) -> None:
        """Raises TableError if errors.table.base.path has another table, and bad records are tolerated."""
        if self._specification.is_used:
            with self._working("looking for the errors table"):
                self._table.verify()

    def exists(self) -> bool:
        return self._table.exists()

    def rows(self) -> DataFrame:
        """Returns all rows of this sink, without Hudi's meta columns. The table must exist."""
        frame = self._table.read().where(F.col("sink") == self._specification.sink)
        return frame.drop(*(name for name in frame.columns if name.startswith("_hoodie_")))

    def replace(self, rows: DataFrame, fence: Fence) -> None:
        """Replaces the rows with these keys."""
        self._table.upsert(rows.withColumn(IS_DELETED, F.lit(False)), fence)

    def _quarantined(self, operation: Complete) -> DataFrame:
        expected = sum(quarantined.records for quarantined in operation.errors)
        paths = [f"{self._specification.own_base_path}/{quarantined.path}" for quarantined in operation.errors]
        try:
            rows = self._spark.read.parquet(*paths)
            count = rows.count()
        except (AnalysisException, Py4JJavaError) as error:
            if _is_missing(error):
                raise self._quarantine_missing(operation) from error
            raise
        if count != expected:
            raise self._quarantine_missing(operation)
        for name, kind in NOT_REPLAYED.items():
            rows = rows.withColumn(name, F.lit(None).cast(kind))
        rows = rows.withColumn("sink", F.lit(self._specification.sink))
        return rows.withColumn("transaction", F.lit(operation.number).cast("long"))

    def _quarantine_missing(self, operation: Complete) -> QuarantineMissing:
        return QuarantineMissing(
            f"{self._specification.own_base_path}: the bad records of transaction {operation.number} are no longer"
            f" below {QUARANTINE}/{operation.instant}, although its instant is pending: somebody deleted them. Stop all"
            " workers, roll the instant back with Hudi's tools, clear the halt with `sink reset --yes`, and start the"
            " workers again."
        )

    def _stale_rows(self, instant: str, checkpoint: Checkpoint) -> DataFrame:
        """Returns rows of other instants in the ranges of this commit: only one commit of this sink has these ranges,
        so the other instants never committed."""
        kinds = "t string, i string, p int, low long, high long, g int"
        ranges = self._spark.createDataFrame(_ranges(checkpoint), kinds)
        stale = self.rows().join(
            F.broadcast(ranges),
            (F.col("_kafka_topic") == F.col("t"))
            & (F.col("topic_id") == F.col("i"))
            & (F.col("_kafka_partition") == F.col("p"))
            & (F.col("generation") == F.col("g"))
            & F.col("_kafka_offset").between(F.col("low"), F.col("high") - 1)
            & (F.col("instant") != instant),
        )
        return stale.drop("t", "i", "p", "low", "high", "g")

    @contextmanager
    def _working(self, task: str) -> Iterator[None]:
        try:
            yield
        except (*JAVA_ERRORS, OSError) as error:
            raise Unavailable(f"{self.base_path}: {task}: {message(error)}") from error


def _ranges(checkpoint: Checkpoint) -> list[tuple[str | int, ...]]:
    """Returns topic, topic id, partition, first and last offset (exclusive) and generation of what the commit adds to
    each partition, whose slices are adjacent."""
    slices: dict[tuple[str, str, int, int], list[Slice]] = {}
    for result in checkpoint.results:
        piece = result.slice
        slices.setdefault((piece.topic, piece.topic_id, piece.partition, piece.generation), []).append(piece)
    return [
        (*key[:3], min(piece.start for piece in pieces), max(piece.end for piece in pieces), key[3])
        for key, pieces in slices.items()
    ]


def _is_missing(error: Exception) -> bool:
    return any(sign in str(error) for sign in ("PATH_NOT_FOUND", "does not exist", "FileNotFoundException"))
