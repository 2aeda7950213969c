"""Derives Hudi's upsert options and the ordering columns from the settings.

Guarantee: the same settings give the same options in every worker. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T

from sink.config import Settings
from sink.schema import IS_DELETED

_MODEL = "org.apache.hudi.common.model"
_OPERATIONS = {"append": "bulk_insert", "insert": "insert", "upsert": "upsert"}
_INDEXES = {"bloom": "BLOOM", "record": "GLOBAL_RECORD_LEVEL_INDEX", "bucket": "BUCKET"}
DEBEZIUM_COLUMNS: Mapping[str, T.StructField] = {
    "lsn": T.StructField("_debezium_lsn", T.LongType()),
    "binlog": T.StructField("_debezium_binlog", T.StringType()),
    "ts_ms": T.StructField("_debezium_ts_ms", T.LongType()),
}
"""The ordering column for each value of debezium.ordering."""


def ordering_fields(settings: Settings) -> tuple[str, ...]:
    """Returns the columns that order two records of one key. Without any, the later record in the log wins."""
    column = DEBEZIUM_COLUMNS.get(settings.debezium_ordering)
    return settings.ordering_fields if column is None else (column.name,)


def change_columns(settings: Settings) -> T.StructType | None:
    """Returns the columns that an upsert table has besides those of its rows; None for other tables."""
    if settings.operation != "upsert":
        return None
    column = DEBEZIUM_COLUMNS.get(settings.debezium_ordering)
    return T.StructType([*([] if column is None else [column]), T.StructField(IS_DELETED, T.BooleanType())])


def table_type(settings: Settings) -> str:
    return settings.table_type.upper()


def merges_on_read(settings: Settings) -> bool:
    return settings.table_type == "merge_on_read"


def merge_mode(settings: Settings) -> str:
    return "EVENT_TIME_ORDERING" if ordering_fields(settings) else "COMMIT_TIME_ORDERING"


def write_options(settings: Settings) -> dict[str, str]:
    options = {
        "hoodie.datasource.write.table.type": table_type(settings),
        "hoodie.datasource.write.operation": _OPERATIONS[settings.operation],
        "hoodie.datasource.write.payload.class": f"{_MODEL}.OverwriteWithLatestAvroPayload",
    }
    if settings.operation == "append":
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
    if settings.operation == "insert":
        # Rows of the same key stay apart, also a row that comes to an older one's file.
        return {**options, "hoodie.merge.allow.duplicate.on.inserts": "true"}
    options |= {
        "hoodie.index.type": _INDEXES[settings.index_type],
        # Only the last change of each row is written, already.
        "hoodie.combine.before.upsert": "false",
    }
    if settings.index_type == "record":
        options |= {
            "hoodie.metadata.global.record.level.index.enable": "true",
            # A row whose partition has changed moves. Without partitions there is none to look for.
            "hoodie.record.index.update.partition.path": str(_is_partitioned(settings)).lower(),
        }
    options["hoodie.write.record.merge.mode"] = merge_mode(settings)
    if fields := ordering_fields(settings):
        options |= {
            "hoodie.datasource.write.payload.class": f"{_MODEL}.EventTimeAvroPayload",
            "hoodie.table.ordering.fields": ",".join(fields),
            "hoodie.datasource.write.precombine.field": ",".join(fields),
        }
    return options


def _is_partitioned(settings: Settings) -> bool:
    return bool(settings.partition_fields) or settings.partition_time_field is not None
