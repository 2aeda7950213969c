"""A table's place in a catalogue."""

from __future__ import annotations

from dataclasses import dataclass

HIVE_SYNC = "org.apache.hudi.hive.HiveSyncTool"
"""Hudi's class for a Hive metastore."""


@dataclass(frozen=True, slots=True)
class CatalogSpecification:
    """`tool` is Hudi's class that registers the table. `uris` are a Hive metastore's. `extractor` makes partition
    values of paths; None stands for Hudi's that fits the table."""

    tool: str
    database: str
    table: str
    uris: str | None = None
    extractor: str | None = None
