"""Hudi's settings for the sink's table: defaults, the user's own, and those that the guarantee needs, in this order.

Guarantee: the same settings give the same options in every worker. `sink.config.rules` refuses settings that the
guarantee forbids; this module sets their values in any case. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T

from sink.config import Settings
from sink.layout.partition_paths import PartitionPaths
from sink.layout.partition_times import PartitionTime
from sink.layout.record_keys import DEFAULT_KEY
from sink.schema import IS_DELETED

LOCK_PROVIDER = "hoodie.write.lock.provider"
IN_PROCESS_LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
CLOCK_SKEW_MS = 20
"""How far the clocks of hosts may differ. Hudi waits so long for each instant time, and its default is 200."""

_CODEC = "hoodie.parquet.compression.codec"
_CLUSTERING = "hoodie.clustering.plan.strategy"
_KEY_GENERATORS = "org.apache.hudi.keygen"
_DEFAULTS: Mapping[str, str] = {
    "hoodie.metadata.enable": "true",
    _CODEC: "zstd",
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
DEBEZIUM_COLUMNS: Mapping[str, T.StructField] = {
    "lsn": T.StructField("_debezium_lsn", T.LongType()),
    "binlog": T.StructField("_debezium_binlog", T.StringType()),
    "ts_ms": T.StructField("_debezium_ts_ms", T.LongType()),
}
"""The ordering column for each value of debezium.ordering."""


def record_key_fields(settings: Settings) -> tuple[str, ...]:
    """Returns the columns of the record key; none where the default key's columns are not in the table."""
    return settings.record_key_fields or (DEFAULT_KEY if settings.provenance else ())


def partition_time(settings: Settings) -> PartitionTime | None:
    """Returns how the table is partitioned by time, if it is."""
    if settings.partition_time_field is None:
        return None
    return PartitionTime(
        settings.partition_time_field,
        settings.partition_time_format,
        settings.partition_time_zone,
        settings.partition_time_column or "",
        settings.partition_time_unit,
    )


def partition_paths(settings: Settings) -> PartitionPaths:
    fields = tuple(settings.partition_fields)
    return PartitionPaths(fields, settings.hive_style, url_encode(settings), partition_time(settings))


def partition_columns(settings: Settings) -> tuple[str, ...]:
    """Returns the table's columns that make its partition paths, the generated one included."""
    return partition_paths(settings).columns


def key_generator(settings: Settings) -> str:
    """Chooses Hudi's key generator. Time partitions use the one for text columns: Spark misreads tables of Hudi's
    timestamp key generators.
    """
    columns = partition_columns(settings)
    if not columns:
        return f"{_KEY_GENERATORS}.NonpartitionedKeyGenerator"
    simple = len(columns) == 1 and len(record_key_fields(settings)) == 1
    return f"{_KEY_GENERATORS}.{'Simple' if simple else 'Complex'}KeyGenerator"


def populate_meta_fields(settings: Settings) -> bool:
    return settings.hudi.get("hoodie.populate.meta.fields", "true").strip().lower() == "true"


def url_encode(settings: Settings) -> bool:
    return settings.hudi.get("hoodie.datasource.write.partitionpath.urlencode", "false").strip().lower() == "true"


def arrow_codec(settings: Settings) -> str:
    """Returns the codec of base files by Arrow's name, which is Hudi's but for one."""
    codec = settings.hudi.get(_CODEC, _DEFAULTS[_CODEC]).strip().lower()
    return "none" if codec == "uncompressed" else codec


def commit_options(settings: Settings) -> Mapping[str, str]:
    """Returns options for begin, write, complete and roll back: no table service runs there, and Hudi's lock is this
    process's own, because Python holds the table lock around it.
    """
    return {
        **_DEFAULTS,
        **settings.hudi,
        **_required(settings),
        LOCK_PROVIDER: IN_PROCESS_LOCK,
        # The coordinator decides about commits without files when it plans. A completed one has to be on the timeline:
        # else Hudi would say yes, and write nothing.
        "hoodie.allow.empty.commit": "true",
        "hoodie.clean.automatic": "false",
        "hoodie.clean.async.enabled": "false",
        "hoodie.archive.automatic": "false",
    }


def service_options(settings: Settings) -> Mapping[str, str]:
    """Returns options for table services: Hudi's lock is this process's own, because Python holds the table lock while
    a service is planned or completed. Failed writes are left alone: a transaction whose heartbeat has expired may be
    PREPARED.
    """
    return {
        **_DEFAULTS,
        # Hudi's defaults would take files of the sink's full size for small ones, and would rewrite a single one.
        f"{_CLUSTERING}.small.file.limit": str(settings.file_max_bytes // 2),
        f"{_CLUSTERING}.target.file.max.bytes": str(settings.file_max_bytes),
        f"{_CLUSTERING}.max.bytes.per.group": str(4 * settings.file_max_bytes),
        f"{_CLUSTERING}.single.group.clustering.enabled": "false",
        **settings.hudi,
        **_required(settings),
        "hoodie.clean.failed.writes.policy": "NEVER",
        "hoodie.table.services.enabled": "true",
        # So that Hudi waits for `hoodie.clustering.async.max.commits` between two plans.
        "hoodie.clustering.async.enabled": "true",
        LOCK_PROVIDER: IN_PROCESS_LOCK,
    }


def _required(settings: Settings) -> dict[str, str]:
    return {
        **SHARED_OPTIONS,
        "path": settings.base_path,
        "hoodie.table.name": settings.table_name,
        **write_options(settings),
        # Else Hudi compacts in every commit to a table that is merged on read.
        "hoodie.compact.inline": "false",
        "hoodie.datasource.write.recordkey.field": ",".join(record_key_fields(settings)),
        "hoodie.datasource.write.partitionpath.field": ",".join(partition_columns(settings)),
        "hoodie.datasource.write.keygenerator.class": key_generator(settings),
        "hoodie.datasource.write.hive_style_partitioning": str(settings.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(url_encode(settings)).lower(),
        "hoodie.populate.meta.fields": str(populate_meta_fields(settings)).lower(),
        # Else Hudi drops another writer's index, because these settings do not ask for it.
        "hoodie.metadata.auto.delete.partitions": "false",
        # Else Hudi takes a record index's entries from its own writers alone, and the index misses other workers' rows.
        "hoodie.metadata.streaming.write.enabled": "false",
    }


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
