"""Registers the table in a catalogue by Hudi's own sync: a Hive metastore, or one that another class of Hudi's knows.

Guarantee: the sync reads the table and changes nothing in it. It registers what a commit of the timeline has written,
with partition values as the rows have them, or nothing, with the reason. It may be repeated, also by two workers at
once. Voided by a class in `catalog.partition.extractor` that gives other values. Raises what py4j raises.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyspark

from sink.config import Settings
from sink.hudi.client import HudiClient
from sink.hudi.java_objects import METADATA
from sink.hudi.options import commit_options, partition_columns

ANSWER_SECONDS = 60
"""How long to wait for a metastore, unless Hadoop's configuration says otherwise. Hive's own default: ten minutes."""
_SYNC = "hoodie.datasource.hive_sync"
_EXTRACTORS = "org.apache.hudi.hive"
_URIS, _TIMEOUT = "hive.metastore.uris", "hive.metastore.client.socket.timeout"


def extractor(settings: Settings) -> str:
    """Names Hudi's class that makes the rows' values from the sink's partition paths. A class that cannot do so fails;
    none makes up other values.
    """
    if settings.catalog_extractor is not None:
        return settings.catalog_extractor
    columns = partition_columns(settings)
    if not columns:
        return f"{_EXTRACTORS}.NonPartitionedExtractor"
    # The only one that leaves slashes in a value as they are.
    if len(columns) == 1 and settings.hive_style:
        return f"{_EXTRACTORS}.HiveStylePartitionValueExtractor"
    return f"{_EXTRACTORS}.MultiPartKeysValueExtractor"


def sync_options(settings: Settings) -> Mapping[str, str]:
    """Returns the options of Hudi's sync: the table's own, the user's, and the names."""
    names = {
        f"{_SYNC}.database": settings.catalog_database,
        f"{_SYNC}.table": settings.catalog_table or settings.table_name,
        f"{_SYNC}.partition_fields": ",".join(partition_columns(settings)),
        f"{_SYNC}.partition_extractor_class": extractor(settings),
    }
    if settings.catalog_uris is not None:
        names[f"{_SYNC}.metastore.uris"] = settings.catalog_uris
    return {
        f"{_SYNC}.mode": "hms",
        f"{_SYNC}.use_jdbc": "false",
        # As Hudi's own Spark writer has it: else a TIMESTAMP is a BIGINT there.
        f"{_SYNC}.support_timestamp": "true",
        "hoodie.meta_sync.spark.version": pyspark.__version__,
        **commit_options(settings),
        **names,
    }


def register(hudi: HudiClient, settings: Settings) -> str:
    """Runs the sync. Returns the newest instant that the catalogue knows then; empty where the table has none."""
    meta = hudi.meta_client()
    newest = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants().lastInstant()
    options = dict(sync_options(settings))
    # Hudi lists partitions from the metadata table if there is one, else from storage.
    options[METADATA] = str(bool(meta.getTableConfig().isMetadataTableAvailable())).lower()
    properties = hudi.java.common.config.TypedProperties()
    properties.putAll(hudi.java_map(options))
    # A copy: Hudi would write the metastore's address into that of the session.
    conf = hudi.jvm.org.apache.hadoop.conf.Configuration(hudi.context._jsc.hadoopConfiguration())
    conf.setIfUnset(_TIMEOUT, f"{ANSWER_SECONDS}s")
    if settings.catalog_uris is not None:
        conf.set(_URIS, settings.catalog_uris)
    files = hudi.jvm.org.apache.hadoop.fs.Path(hudi.base_path).getFileSystem(conf)
    hudi.java.sync.common.util.SyncUtilHelpers.runHoodieMetaSync(
        settings.catalog_class, properties, conf, files, hudi.base_path, "PARQUET", hudi.option(meta)
    )
    return str(newest.get().requestedTime()) if newest.isPresent() else ""
