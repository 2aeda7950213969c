"""Chooses the engine that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from sink.config import Settings
from sink.schema import TableSchema
from sink.write.arrow_engine import ArrowEngine
from sink.write.engine import Engine, RowEngine, UpsertEngine

ENGINES: Mapping[str, Callable[[SparkSession, Settings, TableSchema], Engine]] = {
    "arrow": ArrowEngine,
    "hudi": RowEngine,
    "upsert": UpsertEngine,
}


def engine_of(spark: SparkSession, settings: Settings, schema: TableSchema) -> Engine:
    """Makes the engine for the table of `settings`."""
    return ENGINES[settings.engine if settings.operation == "append" else "upsert"](spark, settings, schema)
