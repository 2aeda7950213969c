"""Hudi's settings for the sink's table: defaults, the user's own, and those that the guarantee needs, in this order.

Guarantee: the same settings give the same options in every worker. `sink.config.rules` refuses settings that the
guarantee forbids; this module sets their values in any case. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from sink.config import Settings
from sink.hudi.changes import write_options
from sink.hudi.lock import BASE_PATH, DEFAULT_BASE_PATH, LOCK_KEY
from sink.layout.partition_paths import PartitionPaths
from sink.layout.partition_times import PartitionTime
from sink.layout.record_keys import DEFAULT_KEY

LOCK_PROVIDER = "hoodie.write.lock.provider"
IN_PROCESS_LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
ZOOKEEPER_LOCK = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
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
    """Returns options for table services: Hudi takes the table lock itself, for as short as it can. It leaves failed
    writes alone: a transaction whose heartbeat has expired may be PREPARED.
    """
    return {
        **_DEFAULTS,
        # Hudi's own default is a minute, for which a worker that was killed while it cleans would hold up the table.
        "hoodie.write.lock.zookeeper.session_timeout_ms": str(settings.session_timeout_ms),
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
        LOCK_PROVIDER: ZOOKEEPER_LOCK,
        # The port belongs into the url: without it the first commit hangs for minutes.
        "hoodie.write.lock.zookeeper.url": settings.zookeeper,
        "hoodie.write.lock.zookeeper.port": settings.zookeeper.split(",")[0].split("/")[0].rpartition(":")[2],
        BASE_PATH: settings.hudi.get(BASE_PATH, DEFAULT_BASE_PATH),
        LOCK_KEY: settings.hudi.get(LOCK_KEY, settings.table_name),
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
