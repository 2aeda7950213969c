"""Replays bad records into the table, if they are good with the present settings or after an SQL expression.

Guarantee: it replays bad records of its sink only, also if several sinks have one errors table. Each replayed record is
in the table once, even if a process dies. In an upsert table each is one change, which the ordering columns put in its
place among earlier changes. The commit that adds the records names them, beside the checkpoint, which it copies under
the next number. So a later replay never adds them again; it only marks them in the errors table, if a crash prevented
that. No worker of the sink may run meanwhile. The replay holds the election's lock and raises the epoch, so that a
paused coordinator is refused later. The next replay or coordinator rolls back an instant that was not completed, like
any instant without a transaction. Voided by an errors table that was restored or written by hand. Raises Conflict
(workers are alive, or a transaction is open), TableError, Unavailable, OutcomeUnknown and ConfigError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial, reduce

import pyarrow as pa
from kazoo.client import KazooClient
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from coordination.errors import ConfigError, TableError, Unavailable
from coordination.state.model import LogView, Slice, WriteTask
from sink.bad_records.keyed_table import KEY
from sink.bad_records.selection import Selection
from sink.bad_records.table import ErrorsTable
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.clients.spark.privacy import local_rows
from sink.hudi.commits import StoredCommit, active_names, read_commits, readable
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table
from sink.operations.operator_commit import CommandedSink, Office, taking_office
from sink.write.engines.engine import engine_of
from sink.write.reading.message_columns import MAX_MILLIS
from sink.write.rows.record_columns import Decode, separate_bad
from sink.write.rows.row_spec import ColumnResolver, table_schema

ErrorKey = tuple[str, str, int, int, int]
"""Topic, topic id, partition, offset, generation: the errors table's key, for the rows of one sink."""
_OWN_KEY = KEY[1:]
_REPLAYED_KEY = "sink.replayed."
"""Begins the key of what a commit replayed, before the name of the sink."""
_SQL_KEY = "sink.replay.sql."
"""Begins the key of the expression that changed the values of a commit's replayed records."""
_KEY_TYPES = "_kafka_topic string, topic_id string, _kafka_partition int, _kafka_offset long, generation int"
_REASONS = f"{_KEY_TYPES}, reason string"
_NO_YEAR = f"timestamp_millis({MAX_MILLIS})"
"""A time outside of the years that a table holds."""
_REASONS_SCHEMA = pa.schema(
    [
        ("_kafka_topic", pa.string()),
        ("topic_id", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("generation", pa.int32()),
        ("reason", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class ReplayPreview:
    """The records of a selection that are good now, and the reasons of those that are still bad. `marked` counts
    records that an interrupted earlier replay had added to the table."""

    good: tuple[ErrorKey, ...]
    bad: Mapping[ErrorKey, str]
    marked: int = 0


class Replay:
    """One replay by this process."""

    def __init__(self, spark: SparkSession, sink: CommandedSink, client: KazooClient) -> None:
        if sink.table.upserts and not sink.table.ordering:
            raise ConfigError(
                "write.operation=upsert without ordering.field.name or debezium.ordering: a replayed record would"
                " overwrite later changes of its row. Produce the repaired records to the topic instead."
            )
        self._spark = spark
        self._sink = sink
        self._client = client
        self._schema = table_schema(sink.table, sink.records)
        self._errors = ErrorsTable(spark, sink.errors, client)
        self._table = Table(spark, sink.table, self._schema, TableLocks(client, sink.table.lock))

    def preview(self, selection: Selection, sql: str | None) -> ReplayPreview:
        """Decodes the records, and changes nothing."""
        with self._reading():
            rows = self._pending(selection)
            return self._decode(self._records(rows, sql))

    def run(self, selection: Selection, sql: str | None) -> ReplayPreview:
        with taking_office(self._client, self._sink, self._table, "Replay") as office, self._reading():
            marked = self._mark_earlier(office)
            tried = self._decode(self._records(self._pending(selection), sql))
            # An offset may have been bad in several generations, each of which is a record of its own.
            for generation in sorted({key[-1] for key in tried.good}):
                keys = [key for key in tried.good if key[-1] == generation]
                self._land(office, keys, sql)
            return replace(tried, marked=marked)

    # The records to replay

    def _rows(self) -> DataFrame:
        if not self._errors.exists():
            raise TableError(f"{self._errors.base_path}: there is no errors table, because no record was bad yet")
        return self._errors.rows()

    def _pending(self, selection: Selection) -> DataFrame:
        """Returns rows of this sink's committed transactions whose records are not in the table."""
        commits = self._commits()
        rows = self._rows().where(replace(selection, include_replayed=False).column())
        instants = {row["instant"] for row in local_rows(rows.select("instant").distinct())}
        replayed_keys = [key for keys in self._replayed_by(commits).values() for key in keys]
        rows = rows.where(F.col("instant").isin(sorted(instants & {commit.instant for commit in commits})))
        return rows.join(self._key_frame(replayed_keys), list(_OWN_KEY), "left_anti") if replayed_keys else rows

    def _commits(self) -> list[StoredCommit]:
        """Returns the commits of this sink. Their checkpoint tells them from those of other sinks of the table, whose
        bad records may be in the same errors table."""
        table = self._sink.table.store.table()
        with readable(self._sink.table.base_path):
            commits = read_commits(table, active_names(table))
            return [commit for commit in commits if self._sink.table.sink in commit.checkpoints]

    def _replayed_by(self, commits: Sequence[StoredCommit]) -> dict[str, frozenset[ErrorKey]]:
        """Returns the records that these commits name as replayed, by instant."""
        key = _REPLAYED_KEY + self._sink.table.sink
        with readable(self._sink.table.base_path):
            return {
                commit.instant: frozenset(
                    (topic, topic_id, partition, offset, generation)
                    for topic, topic_id, partition, generation, low, high in json.loads(commit.extra[key])
                    for offset in range(low, high)
                )
                for commit in commits
                if key in commit.extra
            }

    def _mark_earlier(self, office: Office) -> int:
        """Marks the records that an interrupted replay added to the table. Returns their number."""
        marked = 0
        for instant, keys in self._replayed_by(self._commits()).items():
            unmarked = self._rows().where(F.col("replayed_instant").isNull())
            rows = unmarked.join(self._key_frame(keys), list(_OWN_KEY), "left_semi")
            if count := rows.count():
                self._mark(office, rows, instant)
                marked += count
        return marked

    def _mark(self, office: Office, rows: DataFrame, instant: str) -> None:
        now = F.lit(datetime.now(timezone.utc))
        marked = rows.withColumn("replayed_at", now).withColumn("replayed_instant", F.lit(instant))
        self._errors.replace(marked, office.check)

    def _key_frame(self, keys: Collection[ErrorKey]) -> DataFrame:
        return F.broadcast(self._spark.createDataFrame(sorted(keys), _KEY_TYPES))

    # Decoding

    def _records(self, rows: DataFrame, sql: str | None) -> DataFrame:
        """Returns the records as Kafka delivers them, with the value that the expression makes."""
        if sql is not None:
            decoded = rows.withColumn("value", F.col("value").cast("string"))
            try:
                rows = decoded.withColumn("value", F.expr(sql).cast("string").cast("binary"))
            except (ParseException, PySparkException) as error:
                raise ConfigError(f"--sql {sql!r} is not a Spark SQL expression: {message(error)}") from error
        return rows.select(
            "value",
            F.col("_kafka_key").alias("key"),
            F.col("_kafka_headers").alias("headers"),
            F.col("_kafka_topic").alias("topic"),
            F.col("_kafka_partition").alias("partition"),
            F.col("_kafka_offset").alias("offset"),
            # A bad timestamp is null in the errors table, and has to stay bad.
            F.when(F.col("kind") == "timestamp", F.expr(_NO_YEAR))
            .otherwise(F.col("_kafka_timestamp"))
            .alias("timestamp"),
            F.xxhash64("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_key", "value").alias("digest"),
            "generation",
            "topic_id",
        )

    def _decode(self, records: DataFrame) -> ReplayPreview:
        tried = list(local_rows(records.mapInArrow(partial(_decoding_reasons, self._decoder()), _REASONS)))
        good_keys = tuple(sorted(tuple(row)[:-1] for row in tried if row["reason"] is None))
        return ReplayPreview(good_keys, {tuple(row)[:-1]: row["reason"] for row in tried if row["reason"] is not None})

    def _decoder(self) -> Callable[[], Decode]:
        """Returns the engine's decoder, for the columns of the next transaction."""
        return engine_of(self._spark, self._sink.table, self._sink.records, self._schema).spec(self._columns()).decoder

    def _columns(self) -> str:
        """Returns the columns of the next transaction."""
        self._table.view()
        log = ColumnResolver(self._sink.table, self._sink.records, self._table).resolve(LogView("", {}))
        if log.schema_conflict is not None:
            raise TableError(log.schema_conflict.reason)
        return log.columns

    # Landing

    def _land(self, office: Office, keys: Sequence[ErrorKey], sql: str | None) -> None:
        """Makes one commit with these records, and with the newest checkpoint under the next number."""
        rows = self._rows().join(self._key_frame(keys), list(_OWN_KEY), "left_semi")
        tasks, records = self._tasks(self._records(rows, sql), keys)
        begun = office.begin()
        # In this namespace no other commit has its file ids, and a repetition has them again.
        table = replace(self._sink.table, namespace=f"{self._sink.table.sink} replay {begun.number}")
        engine, columns = engine_of(self._spark, table, self._sink.records, self._schema), self._columns()
        write_report = engine.write(begun.instant, tasks, columns, records)
        if sum(result.records for result in write_report.results) != len(keys):
            raise TableError(f"the engine wrote other records than the {len(keys)} to replay. Nothing was committed.")
        if existing := self._table.existing_file_ids(write_report.stats):
            raise TableError(f"the table already holds file ids of this replay ({', '.join(existing[:3])})")
        extra = {_REPLAYED_KEY + self._sink.table.sink: json.dumps(_runs(keys))}
        if sql is not None:
            extra[_SQL_KEY + self._sink.table.sink] = sql
        office.complete(begun, write_report.stats, write_report.schemas, columns, extra)
        self._mark(office, rows, begun.instant)

    def _tasks(self, records: DataFrame, keys: Sequence[ErrorKey]) -> tuple[list[WriteTask], DataFrame]:
        """Returns a task for each partition, from its first offset to its last, and the records, with one Spark
        partition for each task."""
        offsets: dict[tuple[str, str, int], list[int]] = {}
        for topic, topic_id, partition, offset, _ in keys:
            offsets.setdefault((topic, topic_id, partition), []).append(offset)
        slices = [
            Slice(topic, partition, min(of_partition), max(of_partition) + 1, topic_id, keys[0][-1])
            for (topic, topic_id, partition), of_partition in sorted(offsets.items())
        ]
        parts = [
            records.where(
                (F.col("topic") == piece.topic)
                & (F.col("topic_id") == piece.topic_id)
                & (F.col("partition") == piece.partition)
            )
            .coalesce(1)
            .sortWithinPartitions("offset")
            for piece in slices
        ]
        return [WriteTask((piece,)) for piece in slices], reduce(DataFrame.union, parts)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except JAVA_ERRORS as error:
            raise Unavailable(f"replay: {message(error)}. Run it again.") from error


def _decoding_reasons(
    make_decoder: Callable[[], Decode], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decodes records, for `mapInArrow`; yields the key of each record, and why it cannot go into the table."""
    decode = make_decoder()
    for batch in batches:
        reasons: list[str | None] = [None] * batch.num_rows
        for bad_row in separate_bad(batch.drop_columns(["topic_id"]), "", decode)[2]:
            reasons[bad_row.row] = bad_row.reason
        columns = [batch.column(name) for name in ("topic", "topic_id", "partition", "offset", "generation")]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(reasons, pa.string())], schema=_REASONS_SCHEMA)


def _runs(keys: Sequence[ErrorKey]) -> list[list[object]]:
    """Joins consecutive offsets to `[topic, topic id, partition, generation, low, high]`; `high` is exclusive."""
    runs: list[list[object]] = []
    for topic, topic_id, partition, offset, generation in sorted(keys, key=lambda key: (*key[:3], key[4], key[3])):
        place = [topic, topic_id, partition, generation]
        last_run = runs[-1] if runs else None
        if last_run is not None and last_run[:4] == place and last_run[5] == offset:
            last_run[5] = offset + 1
        else:
            runs.append([*place, offset, offset + 1])
    return runs
