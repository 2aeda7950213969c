"""Rehearses a coordinator's work on the table, in a table that is thrown away, before it matters.

A JVM's first commits take longer than its later ones, and after a takeover the whole fleet waits for the first. A
rehearsal takes about eight CPU seconds. It is never due where tasks run on other hosts, which would not see a table on
this host's disk. Guarantee: nothing leaves this host, and nothing is left on it, except after SIGKILL: then a directory
`sink-rehearsal-*` is. `rehearse` raises what `Table` raises, Unavailable and OSError; `CommitWarmup` only logs them.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pyspark.sql import SparkSession

from coordination.errors import Unavailable
from coordination.state.model import Checkpoint
from sink.clients.java.errors import error_summary
from sink.config import Settings
from sink.hudi.specification import TableSpecification
from sink.hudi.table import Table, TableOutcome
from sink.runtime.sinks.sink import Sink
from sink.runtime.turns.pools import CoalescedRun
from sink.schema.table_schema import META_COLUMNS, TableSchema
from sink.storage.access import NO_ACCESS
from sink.storage.store import Store
from sink.telemetry.logs import ContextThread
from sink.write.files.base_file import base_file_stat

COMMITS = 4
"""Successive completions took 1.7, 1.0, 0.8, 0.8, 0.5 and 0.5 CPU seconds of the JVM: the fifth is as fast as later
ones."""
LOG = structlog.get_logger("sink.worker")
_EXERCISED = ("hoodie.metadata.", "hoodie.bucket.")
"""Options of the user that the rehearsal keeps. Others could report its commits to other systems (metrics)."""


class CommitWarmup:
    """A process's one rehearsal, in a thread of its own. No commit waits for it."""

    def __init__(self, spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
        self._arguments = spark, settings, schema
        self._thread = ContextThread(target=self._run, name="rehearsal", daemon=True)
        self.is_due = settings.rehearsal and settings.spark_master.startswith("local")
        """Whether `begin` is to be called: not after it was begun or cancelled, or where it is of no use."""

    def begin(self) -> None:
        self.is_due = False
        self._thread.start()

    def cancel(self) -> None:
        self.is_due = False

    def wait(self, seconds: float) -> None:
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            rehearse(*self._arguments)
            LOG.info("worker.rehearsed")
        except Exception as error:
            # Nothing depends on it, and no caller would log it.
            LOG.warning("worker.cold", reason=error_summary(error), exc_info=True)


class LeaderSearch:
    """Looks whether another live worker leads a sink of this process. A look waits for ZooKeeper, so that a thread of
    the pool looks: the main thread, which has to feed the watchdog, reads `has_found`.
    """

    def __init__(self, pool: Executor, sinks: Mapping[str, Sink]) -> None:
        self._sinks = sinks
        self._run = CoalescedRun(pool, self._look)
        self.has_found = False

    def trigger(self) -> None:
        self._run.trigger()

    def _look(self) -> None:
        if any(sink.follows() for sink in tuple(self._sinks.values())):
            self.has_found = True


def _unlocked(_purpose: str) -> nullcontext[Callable[[], None]]:
    """Returns no lock: nobody else knows the table."""
    return nullcontext(lambda: None)


def rehearse(spark: SparkSession, settings: Settings, schema: TableSchema) -> None:
    """Creates the table, begins and completes `COMMITS` transactions, and rolls one back."""
    with tempfile.TemporaryDirectory(prefix="sink-rehearsal-") as directory:
        base = Path(directory, "table")
        throwaway = _throwaway(settings.table, base)
        Table(spark, throwaway, schema, _unlocked).ensure()
        for number in range(1, COMMITS + 1):
            _commit(Table(spark, throwaway, schema, _unlocked), base, settings, schema, number)


def _commit(table: Table, base: Path, settings: Settings, schema: TableSchema, number: int) -> None:
    """Makes one commit as after a takeover: by a table object that has made none. A rollback follows the last one."""
    try:
        instant = table.begin(number, 1)
        # Hudi itself writes the files of other tables, and names them by its index.
        stats = [_one_file(base, instant, settings, schema)] if settings.operation == "append" else ()
        outcome = table.complete(instant, stats, _checkpoint(settings, number), lambda _: None)
        if outcome is not TableOutcome.COMPLETED:
            raise Unavailable(f"the rehearsal's commit ended {outcome.name}")
        if number == COMMITS:
            table.roll_back(table.begin(number + 1, 1))
    finally:
        # Else they go on, and make the directory anew.
        table.stop_heartbeats()


def _one_file(base: Path, instant: str, settings: Settings, schema: TableSchema) -> str:
    """Writes one file and returns its write stat. Without a file a commit makes no statistics of columns and
    partitions, which take most of its time.
    """
    path = "rehearsal" if settings.table.partition_columns else ""
    name = f"{uuid.uuid4()}-0_0-0-0_{instant}.parquet"
    meta = [pa.field(column, pa.string()) for column in META_COLUMNS] if settings.table.has_meta_fields else []
    fields = [field.with_nullable(True) for field in (*meta, *schema.arrow)]
    footers: list[pq.FileMetaData] = []
    (base / path).mkdir(exist_ok=True)
    with pq.ParquetWriter(base / path / name, pa.schema(fields), metadata_collector=footers) as file:
        file.write_table(pa.Table.from_arrays([pa.nulls(1, field.type) for field in fields], schema=pa.schema(fields)))
    size = (base / path / name).stat().st_size
    return base_file_stat(name.partition("_")[0], path, name, 1, size, footers[0])


def _throwaway(table: TableSpecification, base: Path) -> TableSpecification:
    options = {name: value for name, value in table.options.items() if name.startswith(_EXERCISED)}
    return replace(table, store=Store(base.as_uri(), lambda: NO_ACCESS), options=options)


def _checkpoint(settings: Settings, number: int) -> Checkpoint:
    return Checkpoint(
        sink=settings.name,
        keeper="",
        cluster="",
        epoch=1,
        number=number,
        base=number - 1,
        config=settings.config_digest,
        topics={},
        ends={},
    )
