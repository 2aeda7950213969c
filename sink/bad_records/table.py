"""The errors table: bad records, in a Hudi table of their own, keyed by topic, partition, offset and generation.

Guarantee: when `publish` returns, every bad record of the transaction is in the table once, and no row of an earlier
attempt at the same ranges is. Repeating it changes nothing. The coordinator calls it before it completes the
transaction's instant. The first bad record creates the table. Voided by other writers that delete or change its rows.
Raises QuarantineMissing, TableError (another table is at the path), what `fence` raises, and Unavailable (try again).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from coordination.errors import SinkError, Unavailable
from coordination.state.messages import Complete
from coordination.state.model import Checkpoint, Slice
from sink.bad_records.deadletter import send_dead_letters
from sink.bad_records.keyed_table import DELETED, KEY, Fence, KeyedTable, lock_settings
from sink.clients.java_errors import JAVA_ERRORS, message
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.layout.quarantine import QUARANTINE

NOT_REPLAYED = {"replayed_at": "timestamp", "replayed_instant": "string"}
"""Columns that `sink errors replay` sets when it adds the record to the table."""


class QuarantineMissing(SinkError):
    """The quarantined bad records of an instant are gone."""


class ErrorsTable:
    """The errors table and the dead-letter topic. It does nothing before the first bad record. Not thread-safe."""

    def __init__(self, spark: SparkSession, settings: Settings, client: KazooClient) -> None:
        self._spark = spark
        self._settings = settings
        self.locks = TableLocks(client, lock_settings(settings))
        self._table = KeyedTable(spark, settings, self.locks)
        self.base_path = self._table.base_path

    def publish(self, operation: Complete, fence: Fence) -> None:
        """Publishes the bad records of a PREPARED transaction, and deletes those that its earlier attempts published.

        `fence` raises if this process is no longer the coordinator.
        """
        with self._working(f"publishing the bad records of transaction {operation.number}"):
            rows = self._quarantined(operation) if operation.errors else None
            changed = None if rows is None else rows.withColumn(DELETED, F.lit(False))
            if operation.attempt > 1 and self._settings.tolerant and self._table.exists():
                stale = self._stale_rows(operation.instant, operation.checkpoint)
                if rows is not None:
                    stale = stale.join(rows, list(KEY), "left_anti")
                if not stale.isEmpty():
                    removals = stale.withColumn(DELETED, F.lit(True))
                    changed = removals if changed is None else changed.unionByName(removals)
            if changed is not None:
                self._table.upsert(changed, fence)
            if rows is not None and self._settings.errors_topic:
                send_dead_letters(self._settings, self._settings.errors_topic, rows)

    def verify(self) -> None:
        """Raises TableError if errors.table.base.path has another table, and bad records are tolerated."""
        if self._settings.tolerant:
            with self._working("looking for the errors table"):
                self._table.verify()

    def exists(self) -> bool:
        return self._table.exists()

    def rows(self) -> DataFrame:
        """Returns all rows without Hudi's meta columns. The table must exist."""
        frame = self._table.read()
        return frame.drop(*(name for name in frame.columns if name.startswith("_hoodie_")))

    def replace(self, rows: DataFrame, fence: Fence) -> None:
        """Replaces the rows with these keys."""
        self._table.upsert(rows.withColumn(DELETED, F.lit(False)), fence)

    def _quarantined(self, operation: Complete) -> DataFrame:
        expected = sum(quarantined.records for quarantined in operation.errors)
        paths = [f"{self._settings.base_path}/{quarantined.path}" for quarantined in operation.errors]
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
        return rows.withColumn("transaction", F.lit(operation.number).cast("long"))

    def _quarantine_missing(self, operation: Complete) -> QuarantineMissing:
        return QuarantineMissing(
            f"{self._settings.base_path}: the bad records of transaction {operation.number} are no longer below"
            f" {QUARANTINE}/{operation.instant}, although its instant is pending: somebody deleted them. Stop all"
            " workers, roll the instant back with Hudi's tools, clear the halt with `sink reset --yes`, and start the"
            " workers again."
        )

    def _stale_rows(self, instant: str, checkpoint: Checkpoint) -> DataFrame:
        """Returns rows of other instants in the ranges of this commit: only one commit has these ranges, so the other
        instants never committed."""
        ranges = self._spark.createDataFrame(_ranges(checkpoint), "t string, p int, low long, high long, g int")
        stale = self.rows().join(
            F.broadcast(ranges),
            (F.col("_kafka_topic") == F.col("t"))
            & (F.col("_kafka_partition") == F.col("p"))
            & (F.col("generation") == F.col("g"))
            & F.col("_kafka_offset").between(F.col("low"), F.col("high") - 1)
            & (F.col("instant") != instant),
        )
        return stale.drop("t", "p", "low", "high", "g")

    @contextmanager
    def _working(self, task: str) -> Iterator[None]:
        try:
            yield
        except (*JAVA_ERRORS, OSError) as error:
            raise Unavailable(f"{self.base_path}: {task}: {message(error)}") from error


def _ranges(checkpoint: Checkpoint) -> list[tuple[str, int, int, int, int]]:
    """Returns the range that the commit adds to each partition, whose slices are adjacent."""
    slices: dict[tuple[str, int, int], list[Slice]] = {}
    for result in checkpoint.results:
        piece = result.slice
        slices.setdefault((piece.topic, piece.partition, piece.generation), []).append(piece)
    return [
        (topic, partition, min(piece.start for piece in pieces), max(piece.end for piece in pieces), generation)
        for (topic, partition, generation), pieces in slices.items()
    ]


def _is_missing(error: Exception) -> bool:
    return any(sign in str(error) for sign in ("PATH_NOT_FOUND", "does not exist", "FileNotFoundException"))
