"""A sink in the test's process. The tests of bad records run its transactions by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from coordination.state.messages import Complete
from coordination.state.model import Checkpoint, PartitionCheckpoint, TopicPartition
from sink.bad_records.table import ErrorsTable
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table, TableOutcome
from sink.hudi.table_services import sweep
from sink.hudi.timeline import HudiTimeline
from sink.layout.quarantine import QUARANTINE
from sink.write.engines.engine import WriteResult, engine_of
from sink.write.rows.row_spec import table_schema
from tests.integration.reader_kit import kept_producer
from tests.integration.sinktable import FIRST_TIMESTAMP, tasks_of
from tests.integration.table_kit import allow
from tests.kafka_tools import topic_id_of

DDL = "id bigint, name string"
HEADERS = [("trace", b"\x00\xff"), ("empty", None)]
Record = tuple[bytes | None, bytes | None]
"""Key and value."""


class Sink:
    """A table, its errors table and an engine."""

    def __init__(self, spark: SparkSession, settings: Settings, client: Any, topic: str) -> None:
        self.spark, self.settings, self.client, self.topic = spark, settings, client, topic
        self.schema = table_schema(settings.table, settings.records)
        self.table = Table(spark, settings.table, self.schema, TableLocks(client, settings.table.lock))
        self.engine = engine_of(spark, settings.table, settings.records, self.schema)
        self.errors = ErrorsTable(spark, settings.errors, client)
        self.number = 0
        self.epoch, self.cluster = 1, "c"
        self.ends: Mapping[TopicPartition, PartitionCheckpoint] = {}
        self.table.ensure()
        self.engine.check()

    def write(self, *ranges: tuple[int, int, int], generation: int = 0) -> tuple[str, WriteResult]:
        self.number += 1
        instant = self.table.begin(self.number, 1)
        return instant, self.engine.write(instant, tasks_of(self.topic, *ranges, generation=generation))

    def operation(self, instant: str, written: WriteResult, attempt: int = 1) -> Complete:
        ends = dict(self.ends)
        for result in written.results:
            ends[result.slice.source] = PartitionCheckpoint(result.slice.end, result.slice.generation)
        checkpoint = Checkpoint(
            sink=self.settings.name,
            keeper="k",
            cluster=self.cluster,
            epoch=self.epoch,
            number=self.number,
            base=self.number - 1,
            config="",
            topics={self.topic: topic_id_of(self.topic)},
            ends=ends,
            results=written.results,
        )
        return Complete(instant, self.number, 0, 0, written.stats, checkpoint, errors=written.errors, attempt=attempt)

    def complete(self, operation: Complete) -> TableOutcome:
        outcome = self.table.complete(
            operation.instant, operation.stats, operation.checkpoint, allow, self.schema.columns_json
        )
        if outcome is TableOutcome.COMPLETED:
            self.ends = operation.checkpoint.ends
        return outcome

    def land(self, *ranges: tuple[int, int, int], generation: int = 0) -> str:
        """Runs a whole transaction and returns its instant."""
        instant, written = self.write(*ranges, generation=generation)
        operation = self.operation(instant, written)
        self.publish(operation)
        assert self.complete(operation) is TableOutcome.COMPLETED
        return instant

    def publish(self, operation: Complete) -> None:
        self.errors.publish(operation, lambda: None)

    def bad_rows(self) -> dict[int, Any]:
        rows = self.errors.rows().collect()
        rows_by_offset = {row["_kafka_offset"]: row for row in rows}
        assert len(rows_by_offset) == len(rows)
        return rows_by_offset

    def offsets(self, metadata: bool = False) -> list[int]:
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
        return sorted(row[0] for row in reader.load(self.settings.base_path).select("_kafka_offset").collect())

    def sweep(self) -> None:
        """Deletes what ended transactions left, as table services do."""
        table = self.table
        sweep(table._hudi, HudiTimeline(table._hudi, self.settings.name), table._locks, table._metadata.delete_late)

    def quarantine_files(self) -> list[Path]:
        return sorted(Path(self.settings.base_path, QUARANTINE).glob("*"))


def produce(kafka: str, topic: str, records: Sequence[Record], partition: int = 0) -> None:
    producer = kept_producer(kafka)
    for number, (key, value) in enumerate(records):
        producer.produce(topic, value, key, partition, timestamp=FIRST_TIMESTAMP + number, headers=list(HEADERS))
    assert producer.flush(60) == 0
