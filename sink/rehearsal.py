"""What a coordinator does to the table, done once in a table that is thrown away, before it matters.

A JVM's first commit takes twice as long as its later ones, and after a takeover everybody waits for it. Guarantee:
nothing of it leaves this host, and nothing is left on it. Takes some five seconds. Voided where tasks run on other
hosts, who would not see a table on this one's disk (see `can_rehearse`). Raises what `Table` raises, and OSError.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from coordination.model import Checkpoint
from sink.config import Settings
from sink.config.redaction import Properties
from sink.schema import TableSchema
from sink.table import Table

_EXERCISED = "hoodie.metadata."
"""What else a user has set may tell others of commits (callbacks, metrics)."""


def can_rehearse(settings: Settings) -> bool:
    return settings.rehearsal and settings.spark_master.startswith("local")


def rehearse(spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
    """Create, begin, complete, roll back."""
    with tempfile.TemporaryDirectory(prefix="sink-rehearsal-") as directory:
        table = Table(spark, _elsewhere(settings, Path(directory, "table")), schema, nullcontext)
        table.ensure()
        instant = table.begin(1, 1)
        table.complete(instant, (), _first_checkpoint(settings), lambda _: None)
        table.roll_back(table.begin(2, 1))
        table.stop_heartbeats()


def _elsewhere(settings: Settings, base: Path) -> Settings:
    hudi = {name: value for name, value in settings.hudi.items() if name.startswith(_EXERCISED)}
    return settings.model_copy(update={"base_path": base.as_uri(), "hudi": Properties(hudi)})


def _first_checkpoint(settings: Settings) -> Checkpoint:
    return Checkpoint(
        sink=settings.name,
        keeper="",
        cluster="",
        epoch=1,
        number=1,
        base=0,
        config=settings.config_digest,
        topics={},
        ends={},
    )
