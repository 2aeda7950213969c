"""Creates the table, or compares the existing one with the settings.

Guarantee: a table that fits is left untouched, but for where its rows are put, which a sink that upserts notes. A
table that does not fit is refused, and the error names both sides; so is an older table version, which Hudi would
upgrade without a word. Workers that start together make one table, under the table lock. Raises TableError and
ConfigError; other errors of py4j pass through.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from uuid import uuid4

from py4j.protocol import Py4JNetworkError
from pyspark.sql import types as T

from coordination.errors import ConfigError, TableError, Unavailable
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.hudi.client import TABLE_VERSION, HudiClient
from sink.hudi.existing_rows import rows_conflict
from sink.hudi.index_names import RECORD_INDEX
from sink.hudi.lock import Locks, read_settled
from sink.hudi.options import require_usable
from sink.hudi.placement import BUCKETS, LOCK, LOCK_IDENTITY, notes
from sink.hudi.shared_lock import LockIdentity, lock_conflict
from sink.hudi.specification import TableSpecification
from sink.hudi.table_properties import unusual_properties
from sink.schema.avro import struct_of_avro
from sink.schema.evolution import IncompatibleSchema
from sink.schema.table_schema import HEADERS, IS_DELETED, KEY, META_COLUMNS, PROVENANCE, TableSchema
from sink.storage.files import PROBE_PREFIX
from sink.storage.table_files import UPGRADE

PARQUET = "PARQUET"


class TableChanged(TableError):
    """Another writer has changed the table's properties."""


def create_missing(hudi: HudiClient, table: TableSpecification, schema: TableSchema, locks: Locks) -> bool:
    """Creates the table if it is missing, without the parts that `init_table` makes. Returns whether it did."""
    require_usable(table, schema)
    _require_options(hudi)
    if _opens(hudi):
        return False
    with locks("create"):
        # Another worker may have been first.
        if _is_table(hudi):
            return False
        _refuse_other_content(hudi)
        _create(hudi, table, schema)
    return True


def verify(hudi: HudiClient, table: TableSpecification, schema: TableSchema, locks: Locks) -> T.StructType:
    """Verifies the table. Returns its columns, without Hudi's own."""
    properties, avro = read_settled(locks, partial(_fitting, hudi, table, schema))
    is_new_to_upserts = table.upserts and BUCKETS not in properties
    noted = notes(table).items()
    values = {name: placement.value for name, placement in noted if name == LOCK or is_new_to_upserts}
    if is_new_to_upserts:
        _require_findable_rows(hudi, table)
    if values.keys() - properties.keys():
        _note(hudi, values, locks)
    return schema.spark if avro is None else columns_of_table(avro)


def _fitting(hudi: HudiClient, table: TableSpecification, schema: TableSchema) -> tuple[Mapping[str, str], str | None]:
    """Returns the properties and the schema of a table that fits. Raises TableError for another one."""
    meta = hudi.meta_client()
    properties = hudi.json(meta.getTableConfig().getProps())
    conflict = next(schema_conflicts(table, properties), None) or index_conflict(
        properties, hudi.index_definitions(meta)
    )
    avro = hudi.table_schema(meta)
    if conflict is None and avro is not None:
        conflict = columns_conflict(avro, schema, table)
    if conflict is not None:
        raise TableError(f"{hudi.base_path}: {conflict}")
    return properties, avro


def _require_options(hudi: HudiClient) -> None:
    """Validates Hudi's options. Building them asks no server, so a failure comes from a setting."""
    try:
        _ = hudi.config
    except Py4JNetworkError:
        raise
    except JAVA_ERRORS as error:
        raise ConfigError(f"Hudi refuses its settings (hoodie.*): {message(error)}") from error


def _require_findable_rows(hudi: HudiClient, table: TableSpecification) -> None:
    """Refuses rows of another writer that the index would not find."""
    conflict = rows_conflict(table, nullcontext(hudi.java))
    if conflict is not None:
        raise TableError(f"{hudi.base_path}: {conflict}")


def _note(hudi: HudiClient, values: Mapping[str, str], locks: Locks) -> None:
    """Stores where rows are put and where writers queue, which Hudi does not: another place would duplicate keys."""
    with locks("note placements"):
        known_properties = _properties(hudi)
        if other := next((name for name in values if known_properties.get(name, values[name]) != values[name]), None):
            raise TableError(
                f"{hudi.base_path}: another sink has begun to write the table meanwhile, with {other}="
                f"{known_properties[other]}. This one's settings ask for {values[other] or 'none'}."
            )
        if not values.keys() - known_properties.keys():
            return  # a worker with the same settings was first
        _update(hudi, values)


def share_identity(hudi: HudiClient, identity: LockIdentity, is_known: bool) -> str:
    """Returns the identity of the table's lock, which the caller holds, after the table and ZooKeeper have noted it.
    Raises TableError for another lock than the table's; see `lock_conflict`.
    """
    noted, found = _properties(hudi).get(LOCK_IDENTITY), identity.read()
    if conflict := lock_conflict(noted, found, is_known):
        raise TableError(f"{hudi.base_path}: {conflict}")
    known = noted or found or uuid4().hex
    if noted is None:
        _update(hudi, {LOCK_IDENTITY: known})
    identity.keep(known)
    return known


def _update(hudi: HudiClient, values: Mapping[str, str]) -> None:
    properties = hudi.jvm.java.util.Properties()
    for name, value in values.items():
        properties.setProperty(name, value)
    hudi.java.common.table.HoodieTableConfig.update(hudi.storage(), hudi.path(".hoodie"), properties)


def _properties(hudi: HudiClient) -> Mapping[str, str]:
    properties: Mapping[str, str] = hudi.json(hudi.meta_client().getTableConfig().getProps())
    return properties


def _is_table(hudi: HudiClient) -> bool:
    return bool(hudi.storage().exists(hudi.path(".hoodie/hoodie.properties")))


def _opens(hudi: HudiClient) -> bool:
    """Returns whether Hudi can open the table. One that another worker is creating may have half of its properties."""
    if not _is_table(hudi):
        return False
    try:
        hudi.meta_client()
    except JAVA_ERRORS:
        return False
    return True


def _refuse_other_content(hudi: HudiClient) -> None:
    names = set(hudi.names("")) - {".hoodie"}
    unexpected = sorted(name for name in names if not name.startswith(PROBE_PREFIX))
    if unexpected:
        examples = ", ".join(unexpected[:5])
        raise TableError(
            f"{hudi.base_path} holds something else than a Hudi table ({examples}). Name an empty place with"
            " target.base.path."
        )
    # A creation that was cut short leaves directories, but never an instant.
    if hudi.names(".hoodie/timeline") not in ([], ["history"]):
        raise TableError(
            f"{hudi.base_path}/.hoodie has a timeline but no hoodie.properties: the table is damaged. Restore it."
        )


def _create(hudi: HudiClient, table: TableSpecification, schema: TableSchema) -> None:
    builder = hudi.java.common.table.HoodieTableMetaClient.newTableBuilder()
    builder = builder.setTableType(table.table_type.upper()).setTableName(table.name)
    builder = builder.setTableVersion(TABLE_VERSION)
    builder = builder.setTableCreateSchema(schema.avro(table.name))
    builder = builder.setPopulateMetaFields(table.has_meta_fields).setKeyGeneratorClassProp(table.key_generator)
    if table.upserts:
        builder = builder.setRecordMergeMode(getattr(hudi.java.common.config.RecordMergeMode, table.merge_mode))
        if fields := table.ordering:
            builder = builder.setOrderingFields(",".join(fields))
    if keys := table.record_key:
        builder = builder.setRecordKeyFields(",".join(keys))
    if columns := table.partition_columns:
        builder = builder.setPartitionFields(",".join(columns))
        builder = builder.setHiveStylePartitioningEnable(table.partitions.hive_style).setUrlEncodePartitioning(
            table.partitions.url_encode
        )
    builder.initTable(hudi.storage_conf, hudi.base_path)


def schema_conflicts(table: TableSpecification, properties: Mapping[str, str]) -> Iterator[str]:
    """Yields the differences of a table's `hoodie.properties` from the settings, each with both sides."""
    for name, actual, configured, remedy in _compared(table, properties):
        if actual != configured:
            yield f"the table's {name}: {actual or 'none'}. The settings ask for {configured or 'none'} ({remedy})."
    if (form := properties.get("hoodie.table.base.file.format", PARQUET)).upper() != PARQUET:
        yield f"the table's files: {form}. The sink writes {PARQUET} (no setting: name another table)."
    if not table.upserts and properties.get(BUCKETS) == "":
        yield (
            f"the table's rows: one for each key, for a sink upserts it. With write.operation={table.operation} keys"
            " would get a second row (write.operation)."
        )
    if table.upserts and (partial := properties.get("hoodie.table.partial.update.mode")):
        yield (
            f"the table's partial updates: {partial}. The sink's upserts replace whole rows (no setting: name another"
            " table)."
        )
    yield from unusual_properties(properties, merges_rows=table.operation != "append")
    generator = properties.get("hoodie.table.keygenerator.type", "").upper().removesuffix("_AVRO")
    if generator and generator not in _generators_alike(properties):
        yield (
            f"the table's key generator: {generator}. It gives other record keys or partition paths than the sink's,"
            " and updates by others would miss rows (no setting: name another table)."
        )


def _compared(table: TableSpecification, properties: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Returns each property's name for people, the table's value, the settings' value, and what to change."""
    yes, no = "true", "false"
    pairs = [
        ("version", properties.get("hoodie.table.version", "unknown"), str(TABLE_VERSION), UPGRADE),
        ("name", properties.get("hoodie.table.name", ""), table.name, "target.table.name"),
        ("type", properties.get("hoodie.table.type", ""), table.table_type.upper(), "target.table.type"),
        (
            "partition columns",
            _partition_fields(properties),
            ",".join(table.partition_columns),
            "partition.field.name" + (", partition.time.field" if table.partition_time else ""),
        ),
        (
            "record key",
            properties.get("hoodie.table.recordkey.fields", ""),
            ",".join(table.record_key),
            "record.key.fields",
        ),
        (
            "meta columns",
            properties.get("hoodie.populate.meta.fields", yes).lower(),
            yes if table.has_meta_fields else no,
            "hoodie.populate.meta.fields",
        ),
        *(
            (placement.label, noted, placement.noted_as(noted), placement.remedy)
            for name, placement in notes(table).items()
            for noted in [properties.get(name, placement.value)]
        ),
    ]
    if table.upserts:
        has_fields = properties.get("hoodie.table.ordering.fields", properties.get("hoodie.table.precombine.field", ""))
        pairs.append(("ordering columns", has_fields, ",".join(table.ordering), "ordering.field.name"))
        mode = table.merge_mode
        pairs.append(("merge mode", properties.get("hoodie.record.merge.mode", mode), mode, "ordering.field.name"))
    if table.partition_columns:
        style = properties.get("hoodie.datasource.write.hive_style_partitioning", no).lower()
        encode = properties.get("hoodie.datasource.write.partitionpath.urlencode", no).lower()
        pairs += [
            ("hive style partitions", style, str(table.partitions.hive_style).lower(), "partition.hive.style"),
            (
                "encoded partitions",
                encode,
                str(table.partitions.url_encode).lower(),
                "hoodie.datasource.write.partitionpath.urlencode",
            ),
        ]
    return pairs


def index_conflict(properties: Mapping[str, str], definitions: str) -> str | None:
    """Tells which index of the table a fleet's commits cannot keep; None if there is none. `definitions`: Hudi's file
    of index definitions, or nothing.
    """
    indexes = [name for name in properties.get("hoodie.table.metadata.partitions", "").split(",") if name]
    indexed = json.loads(definitions).get("indexDefinitions", {}) if definitions else {}
    options = indexed.get(RECORD_INDEX, {}).get("indexOptions") or {}
    if RECORD_INDEX in indexes and options.get("isPartitioned") == "true":
        refused = f"{RECORD_INDEX}, by partition"
    elif not (refused := ", ".join(name for name in indexes if name.startswith("expr_index_"))):
        return None
    return (
        f"the table's index: {refused}. Hudi 1.2 fails to update it from what several processes wrote: drop it with"
        " DROP INDEX of Spark SQL (a record index over all partitions is kept, and a secondary index)"
    )


def _generators_alike(properties: Mapping[str, str]) -> set[str]:
    """Returns Hudi's generators that make the sink's record keys and partition paths from the table's own fields."""
    keys = len([name for name in properties.get("hoodie.table.recordkey.fields", "").split(",") if name])
    columns = len([name for name in _partition_fields(properties).split(",") if name])
    if columns == 0:
        alike = {"NON_PARTITION"}
    elif keys == 0:
        # Either kind of key fits: no writer can update such a table by keys.
        alike = {"SIMPLE", "COMPLEX"}
    else:
        alike = {"SIMPLE" if keys == columns == 1 else "COMPLEX"}
    # CUSTOM writes a single key field without its name, also where there are several columns.
    if ":TIMESTAMP" not in properties.get("hoodie.table.partition.fields", "").upper() and (columns < 2 or keys != 1):
        alike.add("CUSTOM")
    return alike


def _partition_fields(properties: Mapping[str, str]) -> str:
    """Strips the field kinds that some writers append after a colon."""
    return ",".join(
        part.partition(":")[0].strip()
        for part in properties.get("hoodie.table.partition.fields", "").split(",")
        if part
    )


def require_fit(hudi: HudiClient, table: TableSpecification) -> None:
    """Verifies the properties and indexes of a table that another writer may have changed since `verify`. Raises
    TableError for properties that do not fit, and Unavailable for an index, which can be dropped. Raises what py4j
    raises.
    """
    meta = hudi.meta_client()
    properties = hudi.json(meta.getTableConfig().getProps())
    if conflict := next(schema_conflicts(table, properties), None):
        raise TableChanged(f"{hudi.base_path}: changed by another writer: {conflict}")
    if conflict := index_conflict(properties, hudi.index_definitions(meta)):
        raise Unavailable(f"{hudi.base_path}: changed by another writer: {conflict}. The sink goes on when it is gone.")


def columns_conflict(avro: str, schema: TableSchema, table: TableSpecification) -> str | None:
    """Tells why a table's columns, as Avro in JSON, cannot become those of the schema; None if they can."""
    try:
        table_columns = columns_of_table(avro)
    except ConfigError as error:
        return f"the table has columns that the sink cannot write: {error}"
    if unknown := [n for n in table_columns.names if n.startswith("_hoodie_") and n != IS_DELETED]:
        return f"the table has a column of Hudi's that the sink does not fill: {unknown[0]}. Name another table."
    own = (*PROVENANCE.names, KEY, HEADERS)
    if unfilled := [name for name in own if name in table_columns.names and name not in schema.spark.names]:
        # Rows that say less than those before them could not be compared with their records any more.
        return (
            f"the table's columns do not fit: these settings would leave {', '.join(unfilled)} null in new rows. Set"
            " provenance.columns, key.format and headers.column as they were."
        )
    if table.columns.subject is not None:
        # Each transaction looks its columns up, and is not made with any that do not fit.
        return None
    try:
        table.evolved(table_columns, schema.spark)
    except IncompatibleSchema as error:
        return f"{error}\ncorrect schema.ddl or schema.file, or change the table with Spark SQL"
    # The settings name all columns: one that the table lacks is as likely a misspelt name.
    configured_names = {name.lower() for name in schema.spark.names}
    unnamed = [field for field in table_columns.fields if field.name.lower() not in configured_names]
    if not unnamed:
        return None
    unnamed_columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in unnamed)
    return (
        f"the table's columns do not fit the schema: {unnamed_columns} {'is' if len(unnamed) == 1 else 'are'} in the"
        " table, not in the schema. Correct schema.ddl or schema.file, or change the table with Spark SQL."
    )


def columns_of_table(avro: str) -> T.StructType:
    """Returns the table's columns without Hudi's own. Raises ConfigError."""
    try:
        struct = struct_of_avro(avro, of_table=True)
    except ConfigError as error:
        raise ConfigError(f"the table's schema: {error}") from None
    return T.StructType([field for field in struct.fields if field.name not in META_COLUMNS])
