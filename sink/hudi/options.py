"""Hudi's settings for the sink's table: defaults, the user's own, and those that the guarantee needs, in this order.

Guarantee: the same settings give the same options in every worker. `sink.config.hudi_keys` refuses settings that the
guarantee forbids; this module sets their values in any case. No I/O.

`preflight_errors` is the one list of conditions for creating the table and writing it with the engine: a worker checks
it before it asks any server; an engine and a new table check it, too; `sink validate` reports every error at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import types as T

from coordination.errors import ConfigError, SinkError, TableError
from sink.decode.formats import BARE_KEYS
from sink.hudi.index_names import RECORD_INDEX_ENABLED
from sink.hudi.specification import CODEC, DEFAULT_CODEC, TableSpecification
from sink.layout.partition_paths import PARTITION_TYPES, PartitionPaths
from sink.layout.partition_times import TIME_TYPES, UNITS, BadPartition, PartitionTime
from sink.layout.record_keys import KEY_TYPES
from sink.schema.table_schema import KEY, RESERVED_PREFIXES, TableSchema
from sink.storage.files import require_reachable

LOCK_PROVIDER = "hoodie.write.lock.provider"
IN_PROCESS_LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
CLOCK_SKEW_MS = 20
"""How far the clocks of hosts may differ. Hudi waits so long for each instant time, and its default is 200."""

_CLUSTERING = "hoodie.clustering.plan.strategy"
_DEFAULTS: Mapping[str, str] = {
    "hoodie.metadata.enable": "true",
    CODEC: DEFAULT_CODEC,
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.time.generator.max_expected_clock_skew_ms": str(CLOCK_SKEW_MS),
    # Hudi's default is two. A commit writes a log file for each, and where the table is partitioned reads all log files
    # since the last compaction, for each partition that it touches.
    "hoodie.metadata.index.column.stats.file.group.count": "1",
}
SHARED_OPTIONS: Mapping[str, str] = {
    "hoodie.datasource.compaction.async.enable": "false",
    "hoodie.datasource.write.insert.drop.duplicates": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.rollback.using.markers": "true",
}
"""Required by the sink's table and its errors table alike."""
_MODEL = "org.apache.hudi.common.model"
_OPERATIONS = {"append": "bulk_insert", "insert": "insert", "upsert": "upsert"}
_INDEXES = {"bloom": "BLOOM", "record": "GLOBAL_RECORD_LEVEL_INDEX", "bucket": "BUCKET"}
ORDERING_TYPES: tuple[type[T.DataType], ...] = (T.StringType, T.LongType, T.IntegerType, T.TimestampType)
"""Hudi 1.2 compares dates and decimals with values of another class, and fails. A delete whose value is the INT 0 wins
over everything: to Hudi it has no value. `sink.write.rows.changes` refuses such a record."""
DELETE_TYPES: tuple[type[T.DataType], ...] = (T.BooleanType, T.StringType)
_BY_LOG = "Or remove ordering.field.name: the log orders the changes then."
_ORDERING_WAYS: Mapping[type[T.DataType], str] = {
    T.DateType: f"Hudi cannot compare its values. Declare it as TIMESTAMP, or as STRING, whose texts sort. {_BY_LOG}",
    T.DecimalType: f"Hudi cannot compare its values. Declare it as BIGINT if they are whole. {_BY_LOG}",
}
_KEY_WAYS: Mapping[type[T.DataType], str] = {
    T.TimestampType: (
        "Hudi's writers put it into keys in different forms. Declare it as BIGINT if records have numbers, or as STRING"
        " if the producer writes each moment in one form"
    ),
}
_PARTITION_WAYS: Mapping[type[T.DataType], str] = {
    T.TimestampType: "Name it in partition.time.field, which partitions by its hour, day, month or year",
}


def commit_options(table: TableSpecification) -> Mapping[str, str]:
    """Returns options for begin, write, complete and roll back: no table service runs there, and Hudi's lock is this
    process's own, because Python holds the table lock around it.
    """
    return {
        **_DEFAULTS,
        **table.options,
        **_required(table),
        LOCK_PROVIDER: IN_PROCESS_LOCK,
        # The coordinator decides about commits without files when it plans. A completed one has to be on the timeline:
        # else Hudi would say yes, and write nothing.
        "hoodie.allow.empty.commit": "true",
        "hoodie.clean.automatic": "false",
        "hoodie.clean.async.enabled": "false",
        "hoodie.archive.automatic": "false",
    }


def service_options(table: TableSpecification) -> Mapping[str, str]:
    """Returns options for table services: Hudi's lock is this process's own, because Python holds the table lock while
    a service is planned or completed. Failed writes are left alone: a transaction whose heartbeat has expired may be
    PREPARED.
    """
    return {
        **_DEFAULTS,
        # Hudi's defaults would take files of the sink's full size for small ones, and would rewrite a single one.
        f"{_CLUSTERING}.small.file.limit": str(table.file_bytes // 2),
        f"{_CLUSTERING}.target.file.max.bytes": str(table.file_bytes),
        f"{_CLUSTERING}.max.bytes.per.group": str(4 * table.file_bytes),
        f"{_CLUSTERING}.single.group.clustering.enabled": "false",
        **table.options,
        **_required(table),
        "hoodie.clean.failed.writes.policy": "NEVER",
        "hoodie.table.services.enabled": "true",
        # So that Hudi waits for `hoodie.clustering.async.max.commits` between two plans.
        "hoodie.clustering.async.enabled": "true",
        LOCK_PROVIDER: IN_PROCESS_LOCK,
    }


def _required(table: TableSpecification) -> dict[str, str]:
    return {
        **SHARED_OPTIONS,
        "path": table.base_path,
        "hoodie.table.name": table.name,
        **write_options(table),
        # Else Hudi compacts in every commit to a table that is merged on read.
        "hoodie.compact.inline": "false",
        "hoodie.datasource.write.recordkey.field": ",".join(table.record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(table.partition_columns),
        "hoodie.datasource.write.keygenerator.class": table.key_generator,
        "hoodie.datasource.write.hive_style_partitioning": str(table.partitions.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(table.partitions.url_encode).lower(),
        "hoodie.populate.meta.fields": str(table.has_meta_fields).lower(),
        # Else Hudi drops another writer's index, because these settings do not ask for it.
        "hoodie.metadata.auto.delete.partitions": "false",
        # Else Hudi takes a record index's entries from its own writers alone, and the index misses other workers' rows.
        "hoodie.metadata.streaming.write.enabled": "false",
    }


def write_options(table: TableSpecification) -> dict[str, str]:
    options = {
        "hoodie.datasource.write.table.type": table.table_type.upper(),
        "hoodie.datasource.write.operation": _OPERATIONS[table.operation],
        "hoodie.datasource.write.payload.class": f"{_MODEL}.OverwriteWithLatestAvroPayload",
    }
    if table.operation == "append":
        return options
    options |= {
        # The coordinator has made the inflight file: the writer may replace it.
        "_.hoodie.allow.multi.write.on.same.instant": "true",
        "hoodie.metadata.streaming.write.enabled": "false",
        # The coordinator decides whether a pending clustering gives way, under the table lock, when it completes.
        "hoodie.clustering.updates.strategy": (
            "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
        ),
    }
    if table.operation == "insert":
        # Rows of the same key stay apart, also a row that comes to an older one's file.
        return {**options, "hoodie.merge.allow.duplicate.on.inserts": "true"}
    options |= {
        "hoodie.index.type": _INDEXES[table.index],
        # Only the last change of each row is written, already.
        "hoodie.combine.before.upsert": "false",
    }
    if table.index == "record":
        options |= {
            RECORD_INDEX_ENABLED: "true",
            # A row whose partition has changed moves. Without partitions there is none to look for.
            "hoodie.record.index.update.partition.path": str(bool(table.partition_columns)).lower(),
        }
    options["hoodie.write.record.merge.mode"] = table.merge_mode
    if table.ordering:
        options |= {
            "hoodie.datasource.write.payload.class": f"{_MODEL}.EventTimeAvroPayload",
            "hoodie.table.ordering.fields": ",".join(table.ordering),
            "hoodie.datasource.write.precombine.field": ",".join(table.ordering),
        }
    return options


def require_usable(table: TableSpecification, schema: TableSchema) -> None:
    """Raises the first error: ConfigError or TableError."""
    for error in preflight_errors(table, schema):
        raise error


def preflight_errors(table: TableSpecification, schema: TableSchema) -> Iterator[SinkError]:
    """Yields every error."""
    engine = table.engine if table.operation == "append" else "hudi"
    if table.upserts:
        yield from _upsert_errors(table, schema)
    yield from _metadata_table_errors(table)
    if not table.record_key and engine == "hudi":
        yield ConfigError(
            "Hudi's own writer (write.engine=hudi, write.operation=insert and upsert) makes record keys from columns of"
            " the table: set record.key.fields, or provenance.columns=true, or write.engine=arrow"
        )
    elif not table.record_key and not table.has_meta_fields:
        yield TableError(
            "hoodie.populate.meta.fields=false with provenance.columns=false leaves rows without a key: set"
            " record.key.fields, or one of the two to true"
        )
    yield from schema.column_errors(table.key_fields, "record.key.fields", KEY_TYPES, _KEY_WAYS)
    yield from schema.column_errors(table.partitions.fields, "partition.field.name", PARTITION_TYPES, _PARTITION_WAYS)
    paths = table.partitions
    if paths.time is not None:
        yield from _partition_time_errors(paths, paths.time, schema)
    if engine == "arrow":
        try:
            require_reachable(table.base_path)
        except ConfigError as error:
            yield error


def _upsert_errors(table: TableSpecification, schema: TableSchema) -> Iterator[ConfigError]:
    """Yields the errors that prevent finding, ordering or deleting rows by key."""
    keys, partitions = table.key_fields, table.partition_columns
    if not keys:
        yield ConfigError("write.operation=upsert changes the row of a key: set record.key.fields")
    elif set(keys) & {"_kafka_partition", "_kafka_offset"}:
        yield ConfigError(
            "record.key.fields: with a record's place in the log every record is a row of its own. Name the fields that"
            " tell the rows apart, or set write.operation=append."
        )
    if not table.has_meta_fields:
        yield ConfigError("write.operation=upsert needs the record keys in the table: hoodie.populate.meta.fields=true")
    yield from schema.column_errors(table.ordering, "ordering.field.name", ORDERING_TYPES, _ORDERING_WAYS)
    yield from _delete_field_errors(table, schema)
    if table.merges_on_read and table.index == "bloom":
        # Of a key that was deleted and came back while a compaction was pending, only a log file has a row then.
        yield ConfigError(
            "index.type=bloom looks keys up in base files, and in a merge-on-read table a key may be in a log file"
            " alone, so that it would get a second row: set index.type=record or bucket, or"
            " target.table.type=copy_on_write"
        )
    buckets = table.options.get("hoodie.bucket.index.num.buckets", "")
    if table.index == "bucket" and not (buckets.isdecimal() and int(buckets) > 0):
        yield ConfigError(
            "index.type=bucket: set hoodie.bucket.index.num.buckets to their number, which holds for as long as the"
            " table does"
        )
    if table.ordering and table.changes.ordering == "log" and table.changes.deletes_by_key:
        yield ConfigError(
            "delete.key.format: cannot be combined with ordering.field.name: a tombstone has no ordering value. Unset"
            " one of the two."
        )
    deletes_by_key = table.changes.deletes_by_key or keys == ("_kafka_key",)
    looks_in_one = not table.key_is_global and not set(partitions) <= set(keys)
    if deletes_by_key and looks_in_one:
        setting = "delete.key.format" if table.changes.deletes_by_key else "record.key.fields"
        yield ConfigError(
            f"{setting}: a record's key does not say in which partition of the table its row is, and"
            f" index.type={table.index} looks in one: set index.type=record, or partition by fields of the key"
        )
    elif table.changes.envelope == "debezium" and table.changes.before == "key" and looks_in_one:
        yield ConfigError(
            f"debezium.before: a delete has to say in which partition its row is, index.type={table.index}"
            " looks in one. Set debezium.before=row if every delete has the whole row in `before` (Postgres: REPLICA"
            " IDENTITY FULL), or set index.type=record, or partition by fields of the key."
        )
    if table.changes.key_format in BARE_KEYS and len([name for name in keys if name != KEY]) != 1:
        yield ConfigError(
            f"delete.key.format={table.changes.key_format} is the one field of the record key, and record.key.fields"
            f" names {', '.join(keys) or 'none'}. Use json, or one field."
        )


def _metadata_table_errors(table: TableSpecification) -> Iterator[ConfigError]:
    """Yields why a table without Hudi's metadata table cannot be written with these settings."""
    if table.options.get("hoodie.metadata.enable", "true") != "false":
        return
    if table.index == "record":
        yield ConfigError("index.type=record is kept in the metadata table: set hoodie.metadata.enable=true")
    elif table.merges_on_read and not table.upserts:
        # Hudi counts a log file to the newest base file of its group, even if that one's transaction is still open.
        yield ConfigError(
            "hoodie.metadata.enable=false: without the metadata table, inserts into a merge-on-read table lose what"
            " another writer changes while a transaction is open. Remove it."
        )


def _delete_field_errors(table: TableSpecification, schema: TableSchema) -> Iterator[ConfigError]:
    """Yields an error if the field that marks deletes is a column, of a type that cannot say it."""
    if table.changes.delete_field in schema.value_struct.names:
        yield from schema.column_errors([table.changes.delete_field], "delete.field", DELETE_TYPES)


def _partition_time_errors(paths: PartitionPaths, time: PartitionTime, schema: TableSchema) -> Iterator[ConfigError]:
    """Yields the errors of partitioning by time."""
    if time.name.lower() in (field.lower() for field in paths.fields):
        yield ConfigError(
            f"partition.field.name: {time.name!r} is the column that partition.time.field makes, and the table is"
            " partitioned by it already. Remove it there."
        )
    other_columns = {name.lower() for name in (*schema.value_struct.names, *schema.added.names)}
    if time.name.lower() in other_columns or time.name.lower().startswith(RESERVED_PREFIXES):
        yield ConfigError(
            f"partition.time.column: {time.name!r} is the name of another column, of the schema or of the sink's and"
            " Hudi's own. Choose one."
        )
    if errors := list(schema.column_errors([time.field], "partition.time.field", TIME_TYPES)):
        yield from errors
        return
    if isinstance(schema.spark[time.field].dataType, (T.LongType, T.IntegerType)) and not time.unit:
        yield ConfigError(
            f"partition.time.field: column {time.field!r} is a number, and nothing says what it counts since 1970. Set"
            f" time.unit to {', '.join(UNITS)}, or for this column alone: {time.field}=ms."
        )
    day = isinstance(schema.spark[time.field].dataType, T.DateType)
    if day and time.pattern.finest in ("hour", "minute"):
        yield ConfigError(
            f"partition.time.format: {time.format!r} tells {time.pattern.finest}s apart, but column {time.field!r} is"
            " date. Use daily, or a column with a time."
        )
    # Spark finds no way back from directories to columns when their numbers differ.
    (example,) = time.texts(pa.array([0], pa.timestamp("us", "UTC"))).to_pylist()
    if "/" in example and paths.fields and not (paths.hive_style or paths.url_encode):
        yield ConfigError(
            f"partition.time.format: {time.format!r} has a slash, which Spark cannot read beside partition.field.name:"
            " set partition.hive.style=true, or use another sign"
        )
    try:
        time_paths = PartitionPaths((), paths.hive_style, paths.url_encode, time)
        time_paths.group(pa.RecordBatch.from_pydict({time.name: [example]}))
    except BadPartition as error:
        yield ConfigError(f"partition.time.format: {time.format!r} makes no directory: {error}")
