"""Registers the table in a catalogue by Hudi's own sync: a Hive metastore, or one that another class of Hudi's knows.

Guarantee: the sync reads the table and changes nothing in it. It registers what a commit of the timeline has written,
with partition values as the rows have them, or nothing, with the reason. It may be repeated, also by two workers at
once. An entry of another table in a Hive metastore is left as it is. Voided by a class in `catalog.partition.extractor`
that gives other values, and by an entry that is made between the look and the sync. Raises ConfigError for an entry of
another table and for columns that a metastore refuses, and what py4j raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError

from coordination.errors import ConfigError
from sink.clients.java.errors import error_text
from sink.hudi.catalog_specification import HIVE_SYNC, CatalogSpecification
from sink.hudi.client import HudiClient
from sink.hudi.java_objects import METADATA
from sink.hudi.options import commit_options
from sink.hudi.specification import TableSpecification

ANSWER_SECONDS = 60
"""How long to wait for a metastore, unless Hadoop's configuration says otherwise. Hive's own default: ten minutes."""
_SYNC = "hoodie.datasource.hive_sync"
_EXTRACTORS = "org.apache.hudi.hive"
_HUDI_FORMATS = ("org.apache.hudi.", "com.uber.hoodie.")
_DISALLOW = "hive.metastore.disallow.incompatible.col.type.changes"
_INCOMPATIBLE = re.compile(r"types incompatible with the existing columns in their respective positions\s*:\s*([\w,]+)")
_URIS, _TIMEOUT = "hive.metastore.uris", "hive.metastore.client.socket.timeout"


def extractor(catalog: CatalogSpecification, table: TableSpecification) -> str:
    """Names Hudi's class that makes the rows' values from the sink's partition paths. A class that cannot do so fails;
    none makes up other values.
    """
    if catalog.extractor is not None:
        return catalog.extractor
    columns = table.partition_columns
    if not columns:
        return f"{_EXTRACTORS}.NonPartitionedExtractor"
    # The only one that leaves slashes in a value as they are.
    if len(columns) == 1 and table.partitions.hive_style:
        return f"{_EXTRACTORS}.HiveStylePartitionValueExtractor"
    return f"{_EXTRACTORS}.MultiPartKeysValueExtractor"


def sync_options(catalog: CatalogSpecification, table: TableSpecification) -> Mapping[str, str]:
    """Returns the options of Hudi's sync: the table's own, the user's, and the names."""
    names = {
        f"{_SYNC}.database": catalog.database,
        f"{_SYNC}.table": catalog.table,
        f"{_SYNC}.partition_fields": ",".join(table.partition_columns),
        f"{_SYNC}.partition_extractor_class": extractor(catalog, table),
    }
    if catalog.uris is not None:
        names[f"{_SYNC}.metastore.uris"] = catalog.uris
    return {
        f"{_SYNC}.mode": "hms",
        f"{_SYNC}.use_jdbc": "false",
        # As Hudi's own Spark writer has it: else a TIMESTAMP is a BIGINT there.
        f"{_SYNC}.support_timestamp": "true",
        "hoodie.meta_sync.spark.version": pyspark.__version__,
        **commit_options(table),
        **names,
    }


def register(hudi: HudiClient, catalog: CatalogSpecification, table: TableSpecification) -> str:
    """Runs the sync. Returns the newest instant that the catalogue knows then; empty where the table has none."""
    meta = hudi.meta_client()
    newest = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants().lastInstant()
    options = dict(sync_options(catalog, table))
    # Hudi lists partitions from the metadata table if there is one, else from storage.
    options[METADATA] = str(bool(meta.getTableConfig().isMetadataTableAvailable())).lower()
    properties = hudi.java.common.config.TypedProperties()
    properties.putAll(hudi.java_map(options))
    # A copy: Hudi would write the metastore's address into that of the session.
    conf = hudi.jvm.org.apache.hadoop.conf.Configuration(hudi.context._jsc.hadoopConfiguration())
    conf.setIfUnset(_TIMEOUT, f"{ANSWER_SECONDS}s")
    if catalog.uris is not None:
        conf.set(_URIS, catalog.uris)
    names = entry_names(options, str(meta.getTableType().name()) == "MERGE_ON_READ")
    if catalog.tool == HIVE_SYNC:
        for name in names:
            _require_own_entry(hudi, properties, conf, options[f"{_SYNC}.database"], name)
    files = hudi.jvm.org.apache.hadoop.fs.Path(hudi.base_path).getFileSystem(conf)
    sync = hudi.java.sync.common.util.SyncUtilHelpers
    arguments = (catalog.tool, properties, conf, files, hudi.base_path, "PARQUET", hudi.option(meta))
    try:
        sync.runHoodieMetaSync(*arguments)
    except Py4JJavaError as error:
        columns = _INCOMPATIBLE.search(error_text(error))
        if catalog.tool != HIVE_SYNC or columns is None:
            raise
        _register_partitions(hudi, sync.instantiateMetaSyncTool(*arguments), names)
        raise ConfigError(
            f"the metastore refuses the new types of the columns {columns[1]}: to Hive a struct with one more field is"
            " incompatible. Columns stay as they are there. Partitions are registered all the same. Set"
            f" {_DISALLOW}=false in the metastore, or drop the entry there: the sink makes it anew."
        ) from error
    return str(newest.get().requestedTime()) if newest.isPresent() else ""


def _register_partitions(hudi: HudiClient, tool: Any, names: Sequence[str]) -> None:
    """Does the half of Hudi's sync that comes after the columns."""
    try:
        for name in names:
            hudi.call_hidden(tool, "validateAndSyncPartitions", ("java.lang.String", "boolean"), name, True)
    finally:
        tool.close()


def entry_names(options: Mapping[str, str], is_merge_on_read: bool) -> list[str]:
    """Returns the names under which Hudi's sync registers the table."""
    name = options[f"{_SYNC}.table"]
    strategy = options.get(f"{_SYNC}.table.strategy", "ALL").upper()
    if not is_merge_on_read or strategy in ("RO", "RT"):
        return [name]
    is_bare = options.get(f"{_SYNC}.skip_ro_suffix", "false").lower() == "true"
    return [*([] if is_bare else [f"{name}_ro"]), f"{name}_rt", name]


def _require_own_entry(hudi: HudiClient, properties: Any, conf: Any, database: str, name: str) -> None:
    """Raises ConfigError if the metastore's entry leads elsewhere, or to no Hudi table. Hudi's sync would drop or
    change the entry, and a metastore that drops a managed table deletes its files.
    """
    hive = hudi.java.hive
    # As Hudi's sync makes its own.
    hive_conf = hive.HiveSyncConfig(properties, conf).getHiveConf()
    try:
        client = hive.util.IMetaStoreClientUtil.getMSC(hive_conf)
        entry = client.getTable(database, name) if client.tableExists(database, name) else None
    finally:
        hudi.jvm.org.apache.hadoop.hive.ql.metadata.Hive.closeCurrent()
    if entry is None:
        return
    remedy = (
        f" The table at {hudi.base_path} is not registered: give it another name by catalog.table or catalog.database,"
        " or drop the entry if it is not used any more (of a managed table that deletes the files)."
    )
    location = entry.getSd().getLocation()
    if not location or not hudi.java.common.fs.FSUtils.comparePathsWithoutScheme(hudi.base_path, location):
        raise ConfigError(f"catalog.table: {database}.{name} leads to {location or 'no location'}.{remedy}")
    if not str(entry.getSd().getInputFormat()).startswith(_HUDI_FORMATS):
        raise ConfigError(f"catalog.table: {database}.{name} is not a Hudi table, but leads to its path.{remedy}")
