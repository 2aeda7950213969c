"""A table with its engine in the test's Spark session, for transactions without a fleet."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.state.model import LogView
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table, TableOutcome
from sink.write.engines.engine import WriteResult, engine_of
from sink.write.rows.row_spec import ColumnResolver, table_schema
from tests.integration.sinktable import tasks_of
from tests.integration.table_kit import allow, checkpoint


class Landing:
    """A table of its own in a session, with its engine."""

    def __init__(self, spark: SparkSession, settings: Settings, client: KazooClient) -> None:
        self.spark = spark
        self.settings = settings
        self.schema = table_schema(settings.table, settings.records)
        self.table = Table(spark, settings.table, self.schema, TableLocks(client, settings.table.lock))
        self.table.ensure()
        self.engine = engine_of(spark, settings.table, settings.records, self.schema)

    def land(self, number: int, topic: str, start: int, end: int) -> WriteResult:
        instant = self.table.begin(number, 1)
        columns = self.columns().columns
        written = self.engine.write(instant, tasks_of(topic, (0, start, end)), columns)
        assert sum(result.records for result in written.results) == end - start
        outcome = self.table.complete(instant, written.stats, checkpoint(number), allow, columns)
        assert outcome is TableOutcome.COMPLETED
        return written

    def columns(self) -> LogView:
        """The columns that a coordinator would give the next transaction."""
        return ColumnResolver(self.settings.table, self.settings.records, self.table).resolve(LogView("cluster", {}))

    def read(self, metadata: bool = True) -> Any:
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
        return reader.load(self.settings.base_path)
