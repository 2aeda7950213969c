"""Checks whether the settings allow creating the table and writing it with the engine.

The one list of such conditions: a worker checks it before it asks any server; an engine and a new table check it, too;
`sink validate` reports every error at once. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import types as T

from coordination.errors import ConfigError, SinkError, TableError
from sink.config import Settings
from sink.hudi.options import (
    ordering_fields,
    partition_columns,
    partition_paths,
    populate_meta_fields,
    record_key_fields,
)
from sink.layout.partition_paths import PARTITION_TYPES, PartitionPaths
from sink.layout.partition_times import TIME_TYPES, BadPartition, PartitionTime
from sink.layout.record_keys import KEY_TYPES
from sink.schema import KEY, RESERVED_PREFIXES, TableSchema
from sink.storage.files import require_reachable

ORDERING_TYPES: tuple[type[T.DataType], ...] = (T.StringType, T.LongType, T.TimestampType)
"""Hudi 1.2 compares dates and decimals with values of another class, and fails; and takes a delete whose value is the
int 0 for one without a value, which wins over everything."""


def require_usable(settings: Settings, schema: TableSchema) -> None:
    """Raises the first error: ConfigError or TableError."""
    for error in preflight_errors(settings, schema):
        raise error


def preflight_errors(settings: Settings, schema: TableSchema) -> Iterator[SinkError]:
    """Yields every error."""
    engine = settings.engine if settings.operation == "append" else "hudi"
    if settings.operation == "upsert":
        yield from _upsert_errors(settings, schema)
    if not record_key_fields(settings) and engine == "hudi":
        yield ConfigError(
            "Hudi's own writer (write.engine=hudi, write.operation=insert and upsert) makes record keys from columns of"
            " the table: set record.key.fields, or provenance.columns=true, or write.engine=arrow"
        )
    elif not record_key_fields(settings) and not populate_meta_fields(settings):
        yield TableError(
            "hoodie.populate.meta.fields=false with provenance.columns=false leaves rows without a key: set"
            " record.key.fields, or one of the two to true"
        )
    yield from schema.column_errors(settings.record_key_fields, "record.key.fields", KEY_TYPES)
    yield from schema.column_errors(settings.partition_fields, "partition.field.name", PARTITION_TYPES)
    paths = partition_paths(settings)
    if paths.time is not None:
        yield from _partition_time_errors(paths, paths.time, schema)
    if engine == "arrow":
        try:
            require_reachable(settings.base_path)
        except ConfigError as error:
            yield error


def _upsert_errors(settings: Settings, schema: TableSchema) -> Iterator[ConfigError]:
    """Yields the errors that prevent finding, ordering or deleting rows by key."""
    keys, partitions = settings.record_key_fields, partition_columns(settings)
    if not keys:
        yield ConfigError("write.operation=upsert changes the row of a key: set record.key.fields")
    elif set(keys) & {"_kafka_partition", "_kafka_offset"}:
        yield ConfigError(
            "record.key.fields: with a record's place in the log every record is a row of its own; name the fields that"
            " tell the rows apart, or set write.operation=append"
        )
    if not populate_meta_fields(settings):
        yield ConfigError("write.operation=upsert needs the record keys in the table: hoodie.populate.meta.fields=true")
    yield from schema.column_errors(ordering_fields(settings), "ordering.field.name", ORDERING_TYPES)
    buckets = settings.hudi.get("hoodie.bucket.index.num.buckets", "")
    if settings.index_type == "bucket" and not (buckets.isdecimal() and int(buckets) > 0):
        yield ConfigError(
            "index.type=bucket: set hoodie.bucket.index.num.buckets to their number, which holds for as long as the"
            " table does"
        )
    if settings.index_type == "record" and settings.hudi.get("hoodie.metadata.enable", "true") == "false":
        yield ConfigError("index.type=record is kept in the metadata table: set hoodie.metadata.enable=true")
    if settings.ordering_fields and settings.delete_key_format != "none":
        yield ConfigError(
            "delete.key.format: cannot be combined with ordering.field.name: a tombstone has no ordering value. Unset"
            " one of the two."
        )
    deletes_by_key = settings.delete_key_format != "none" or keys == ("_kafka_key",)
    if deletes_by_key and not settings.key_is_global and not set(partitions) <= set(keys):
        setting = "delete.key.format" if settings.delete_key_format != "none" else "record.key.fields"
        yield ConfigError(
            f"{setting}: a record's key does not say in which partition of the table its row is, and"
            f" index.type={settings.index_type} looks in one: set index.type=record, or partition by fields of the key"
        )
    if settings.delete_key_format == "string" and len([name for name in keys if name != KEY]) != 1:
        yield ConfigError(
            "delete.key.format=string is the one field of the record key, and record.key.fields names"
            f" {', '.join(keys) or 'none'}; use json, or one field"
        )


def _partition_time_errors(paths: PartitionPaths, time: PartitionTime, schema: TableSchema) -> Iterator[ConfigError]:
    """Yields the errors of partitioning by time."""
    if time.name.lower() in (field.lower() for field in paths.fields):
        yield ConfigError(
            f"partition.field.name: {time.name!r} is the column that partition.time.field makes, and the table is"
            " partitioned by it already; remove it there"
        )
    other_columns = {name.lower() for name in (*schema.value_struct.names, *schema.added.names)}
    if time.name.lower() in other_columns or time.name.lower().startswith(RESERVED_PREFIXES):
        yield ConfigError(
            f"partition.time.column: {time.name!r} is the name of another column, of the schema or of the sink's and"
            " Hudi's own; choose one"
        )
    if errors := list(schema.column_errors([time.field], "partition.time.field", TIME_TYPES)):
        yield from errors
        return
    day = isinstance(schema.spark[time.field].dataType, T.DateType)
    if day and time.pattern.finest in ("hour", "minute"):
        yield ConfigError(
            f"partition.time.format: {time.format!r} tells {time.pattern.finest}s apart, but column {time.field!r} is"
            " date; use daily, or a column with a time"
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
