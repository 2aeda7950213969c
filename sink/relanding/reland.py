"""Lands ranges of the log again, in one commit that also takes away the rows that the table has of them.

Guarantee: the commit deletes the rows of these offsets, by their provenance, and lands the log's records of them; where
rows are changed by key, each key concerned gets the row that the whole log gives it, or none. Readers never see one
without the other. It is refused, with the reasons, where the log no longer has what is needed, or has something else
than was committed. It is one commit by an operator, as `sink.operations.operator_commit` says: killed at any step, the
next command or coordinator rolls it back, or takes it over from the table, whole. The commit says in its extra metadata
what it has landed again. Raises Conflict (refused, or workers are alive), TableError, Unavailable, OutcomeUnknown,
ConfigError, and what the reader raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from coordination.errors import Conflict, Unavailable
from coordination.planning.relanding import OffsetRange, plan_relanding
from coordination.state.model import Checkpoint
from sink.bad_records.table import ErrorsTable
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.clients.kafka.log import Log
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table
from sink.operations.operator_commit import Begun, Office, commanded_sink, taking_office
from sink.relanding.history import RELANDED_KEY, read_history
from sink.relanding.repair import AppendRepair, KeyedRepair, Preview, Repair, RepairContext
from sink.write.engines.task_input import Inputs
from sink.write.rows.row_spec import table_schema


class Reland:
    """One repair by this process."""

    def __init__(
        self, spark: SparkSession, settings: Settings, client: KazooClient, wanted: Sequence[OffsetRange]
    ) -> None:
        self._spark, self._settings, self._client, self._wanted = spark, settings, client, wanted
        self._sink = sink = commanded_sink(settings)
        self._schema = table_schema(sink.table, sink.records)
        self._table = Table(spark, sink.table, self._schema, TableLocks(client, sink.table.lock))
        self._errors = ErrorsTable(spark, sink.errors, client)
        self._inputs = Inputs(spark, sink.records)
        self._by_key = sink.table.upserts

    def preview(self) -> Preview:
        """Reads table and log, and changes nothing."""
        with self._reading():
            checkpoint = self._table.view().checkpoint
            if checkpoint is None:
                raise Conflict(f"{self._settings.base_path} has no checkpoint of sink {self._settings.name}.")
            with self._prepared(checkpoint) as repair:
                return repair.preview()

    def run(self) -> Preview:
        with taking_office(self._client, self._sink, self._table, "Reland") as office, self._reading():
            begun = office.begin()
            try:
                return self._land(office, begun)
            except Conflict:
                # Refused: nobody has to find this instant.
                office.abandon(begun)
                raise

    def _land(self, office: Office, begun: Begun) -> Preview:
        # Read after the instant was begun: what others change from here on is a conflict.
        with self._prepared(begun.newest) as repair:
            preview = repair.preview()
            if preview.refusals:
                raise Conflict("\n".join(preview.refusals))
            written = repair.write(begun)
            landed = json.dumps({"records": written.records, "runs": written.runs})
            extra = {RELANDED_KEY + self._settings.name: landed}
            office.complete(begun, written.stats, written.schemas, repair.columns, extra)
        return replace(preview, number=begun.number, instant=begun.instant)

    @contextmanager
    def _prepared(self, checkpoint: Checkpoint) -> Iterator[Repair]:
        history = read_history(self._sink.table)
        with closing(Log(self._settings.kafka_native)) as log:
            topics = sorted({entry.topic for entry in self._wanted} | ({*checkpoint.topics} if self._by_key else set()))
            view = log.view((), optional=topics)
        plan = plan_relanding(self._wanted, history.committed, checkpoint, view, history.replayed, self._by_key)
        at = RepairContext(
            self._spark,
            self._sink.table,
            self._sink.records,
            self._schema,
            self._table,
            self._errors,
            self._inputs,
            view,
            history,
        )
        repair = (KeyedRepair if self._by_key else AppendRepair)(at, plan)
        try:
            yield repair
        finally:
            repair.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except JAVA_ERRORS as error:
            raise Unavailable(f"reland: {message(error)}. Run it again.") from error
