"""Settings that are valid alone and invalid together. Pure.

Each contradiction is one sentence. `sink.hudi.options` checks those that depend on the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sink.clients.spark.specification import is_one_process
from sink.config.groups.records import RAW_COLUMNS
from sink.config.values import CATALOG_NAME
from sink.hudi.catalog_specification import HIVE_SYNC
from sink.hudi.index_names import RECORD_INDEX_ENABLED
from sink.storage.access import HADOOP

if TYPE_CHECKING:
    from sink.config.every_field import SettingsFields

DEFAULT_KEEP_COMMITS = {"min": "20", "max": "30"}
"""Commits that Hudi keeps in the active timeline by default."""
_SETTING_NAMES = {"endpoint.region": "region", "path.style.access": "path.style"}
_PAIRS = (
    ("registry_certificate", "registry_key"),
    ("zookeeper_certificate", "zookeeper_key"),
    ("zookeeper_username", "zookeeper_password"),
    ("http_certificate", "http_key"),
)
METASTORE = "spark.hadoop.hive.metastore.uris"
TYPED = ("avro-confluent", "protobuf-confluent")
"""Formats whose values name the type of their record."""
ENVELOPED = ("json", "json-confluent", "avro-confluent")


def contradictions(settings: SettingsFields) -> Iterator[str]:
    row_checks = (_format, _partition_time, _errors, _upserts, _order_of_changes)
    for check in (*row_checks, _pairs, _zookeeper, _archiving, _storage, _encryption, _catalog, _spark):
        yield from check(settings)


def _format(settings: SettingsFields) -> Iterator[str]:
    name = settings.value_format
    uses_registry = name.endswith("-confluent") or settings.delete_key_format.endswith("-confluent")
    if uses_registry != bool(settings.registry_urls):
        needs = "asks for" if uses_registry else "has no use for"
        yield f"value.format={name} {needs} schema.registry.url. Correct one of them."
    is_plain = name in ("avro", "protobuf")
    if settings.value_schema_file is not None and not is_plain:
        yield f"value.format={name} has no use for value.schema.file. Remove it."
    has_avro_columns = name == "avro" and settings.schema_text.startswith("{")
    if settings.value_schema_file is None and is_plain and not has_avro_columns:
        yield f"value.format={name} needs the schema of the values: set value.schema.file"
    if settings.schema_subject is not None and not name.endswith("-confluent"):
        yield (
            "schema.subject is for values behind the header of a schema registry (value.format=avro-confluent and its"
            f" like), not for {name}: set schema.ddl, or schema.file"
        )
    if settings.value_message is None and name == "protobuf":
        yield "value.format=protobuf needs the name of the message: set value.message"
    if settings.value_message is not None and not name.startswith("protobuf"):
        yield f"value.format={name} has no use for value.message, which names a Protobuf message. Remove it."
    if settings.schema_types and name not in TYPED:
        yield f"schema.types is for {' and '.join(TYPED)}, whose records name their types. Remove it."
    if settings.schema_types and settings.value_message not in (None, *settings.schema_types):
        yield "schema.types does not list the message of value.message. Add it."


def _pairs(settings: SettingsFields) -> Iterator[str]:
    for pair in _PAIRS:
        if len({getattr(settings, name) is None for name in pair}) > 1:
            first, second = (type(settings).model_fields[name].alias for name in pair)
            yield f"{first} and {second} go together. Set both."


def _zookeeper(settings: SettingsFields) -> Iterator[str]:
    has_certificate = settings.zookeeper_certificate is not None
    if has_certificate and settings.zookeeper_ca is None:
        yield "zookeeper.ssl.certificate.location is for TLS, which zookeeper.ssl.ca.location turns on"
    if settings.zookeeper_acl == "creator" and not (settings.zookeeper_username or has_certificate):
        yield "zookeeper.acl=creator needs a creator: set zookeeper.digest.username, or a certificate"


def _partition_time(settings: SettingsFields) -> Iterator[str]:
    time_settings = sorted(name for name in settings.model_fields_set if name.startswith("partition_time_"))
    if settings.partition_time_field is None and time_settings:
        name = type(settings).model_fields[time_settings[0]].alias
        yield f"{name} is for tables that are partitioned by time: set partition.time.field too"


def _archiving(settings: SettingsFields) -> Iterator[str]:
    """Checks the bounds that Hudi checks whenever it opens the table, also to commit."""
    min_commits, max_commits = (
        settings.hudi.get(f"hoodie.keep.{end}.commits", default) for end, default in DEFAULT_KEEP_COMMITS.items()
    )
    if not (min_commits.isdecimal() and max_commits.isdecimal() and int(min_commits) < int(max_commits)):
        yield (
            f"hoodie.keep.min.commits={min_commits} and hoodie.keep.max.commits={max_commits} have to be numbers, and"
            f" the first the smaller one (Hudi's own: {DEFAULT_KEEP_COMMITS['min']} and {DEFAULT_KEEP_COMMITS['max']})"
        )


def _errors(settings: SettingsFields) -> Iterator[str]:
    error_settings = sorted(
        settings.model_fields_set & {"errors_max", "errors_ratio", "errors_base_path", "errors_topic"}
    )
    if settings.errors_tolerance == "none" and error_settings:
        name = type(settings).model_fields[error_settings[0]].alias
        yield f"{name} is for sinks that tolerate bad records: set errors.tolerance=all too"
    if f"{settings.errors_base_path}/".startswith(f"{settings.base_path}/"):
        yield "errors.table.base.path is inside the table. Name a place beside target.base.path."
    if f"{settings.base_path}/".startswith(f"{settings.errors_base_path}/"):
        yield "target.base.path is inside errors.table.base.path. Name a place beside it."
    if settings.errors_topic in settings.topics:
        yield "errors.deadletter.topic is one of kafka.topic.names. Bad records would come round again."


def _upserts(settings: SettingsFields) -> Iterator[str]:
    operation = settings.operation
    upsert_settings = {
        "ordering.field.name": bool(settings.ordering_fields),
        "delete.field": "delete_field" in settings.model_fields_set,
        "delete.key.format": settings.delete_key_format != "none",
        "value.envelope": settings.value_envelope != "none",
        "index.type": "index_type" in settings.model_fields_set,
    }
    set_names = [name for name, is_set in upsert_settings.items() if is_set]
    if operation != "upsert" and set_names:
        yield f"{set_names[0]} is for write.operation=upsert: set that, or remove {set_names[0]}"
    if operation == "append" and settings.table_type != "copy_on_write":
        yield "target.table.type=merge_on_read is for write.operation=upsert or insert, not for append"
    if operation != "append" and settings.in_flight > 1:
        yield (
            f"write.operation={operation} has one transaction in flight, for the next one's keys may be in it: set"
            " transactions.in.flight=1"
        )
    lacks_index = settings.hudi.get(RECORD_INDEX_ENABLED) == "false"
    if operation == "upsert" and settings.index_type == "record" and lacks_index:
        yield f"{RECORD_INDEX_ENABLED}=false is not for index.type=record. Remove it or set another index.type."
    if settings.services_audit_ms and not settings.provenance:
        yield (
            "services.audit.interval compares rows with the records at their offsets: set provenance.columns=true, or"
            " leave it out"
        )
    if operation == "upsert" and settings.index_type == "bucket" and settings.services_clustering:
        yield (
            "services.clustering=true is not for index.type=bucket: there files are found by a hash of the key, which"
            " Hudi refuses to cluster. Set services.clustering=false, or another index.type."
        )


def _order_of_changes(settings: SettingsFields) -> Iterator[str]:
    is_debezium = settings.value_envelope == "debezium"
    if settings.debezium_ordering != "log" and not is_debezium:
        yield "debezium.ordering is for value.envelope=debezium: set that too"
    if settings.debezium_before == "row" and not is_debezium:
        yield "debezium.before is for value.envelope=debezium: set that too"
    if settings.debezium_ordering != "log" and settings.ordering_fields:
        yield "ordering.field.name and debezium.ordering both order the changes. Keep one."
    if "delete_field" in settings.model_fields_set and (is_debezium or settings.value_format in RAW_COLUMNS):
        setting = "value.envelope=debezium" if is_debezium else f"value.format={settings.value_format}"
        yield f"delete.field is for values with fields, and not for Debezium's events: remove it, or {setting}"
    if is_debezium and settings.value_format not in ENVELOPED:
        yield (
            "value.envelope=debezium is JSON, or Avro behind a registry's header, not"
            f" value.format={settings.value_format}"
        )


def _storage(settings: SettingsFields) -> Iterator[str]:
    s3_options = settings.s3_by_hadoops_names
    for name in sorted(s3_options):
        if f"{HADOOP}{name}" in settings.spark:
            yield f"storage.s3.{_SETTING_NAMES.get(name, name)} is the same setting as {HADOOP}{name}. Keep one."
    for name, required in (("access.key", "secret.key"), ("secret.key", "access.key"), ("session.token", "access.key")):
        if name in s3_options and required not in s3_options:
            yield f"storage.s3.{name} is of no use without storage.s3.{required}. Set both or neither."


def _encryption(settings: SettingsFields) -> Iterator[str]:
    """Refuses encryption by keys of the client: pyarrow sends no such header, so that its files would be encrypted with
    another key, or refused.
    """
    for name in ("encryption.algorithm", "server-side-encryption-algorithm"):
        algorithm = settings.spark.get(f"{HADOOP}{name}", "")
        if algorithm and algorithm != "AES256" and settings.engine == "arrow" and settings.operation == "append":
            yield (
                f"{HADOOP}{name}={algorithm} is for Java alone, and write.engine=arrow writes by pyarrow: set it as the"
                " bucket's default encryption instead, or use write.engine=hudi"
            )


def _catalog(settings: SettingsFields) -> Iterator[str]:
    catalog_settings = sorted(name for name in settings.model_fields_set if name.startswith("catalog_"))
    if catalog_settings and not settings.catalogued:
        name = type(settings).model_fields[catalog_settings[0]].alias
        yield f"{name} is for tables in a catalogue: set catalog.metastore.uris too, or catalog.class"
    if not settings.catalogued:
        return
    if settings.catalog_class == HIVE_SYNC and not (settings.catalog_uris or METASTORE in settings.spark):
        yield f"catalog.class={HIVE_SYNC} would make a metastore of its own on each worker: set catalog.metastore.uris"
    if settings.catalog_table is None and not CATALOG_NAME.fullmatch(settings.table_name):
        yield (
            f"target.table.name={settings.table_name} is not a name for a catalogue: set catalog.table, of letters,"
            " digits and underscores"
        )
    has_slashes = settings.partition_time_field is not None and "/" in settings.partition_time_format
    if has_slashes and settings.catalog_extractor is None and (settings.partition_fields or not settings.hive_style):
        yield (
            f"partition.time.format={settings.partition_time_format} is for no catalogue like this: none of Hudi's"
            " partition extractors makes the value again of a path with slashes in it. Use a format without slashes, or"
            " partition.hive.style=true without partition.field.name, or name a class in catalog.partition.extractor."
        )


def _spark(settings: SettingsFields) -> Iterator[str]:
    if is_one_process(settings.spark_master) and settings.spark.get("spark.authenticate", "true").lower() != "true":
        yield (
            f"spark.authenticate: with spark.master={settings.spark_master} Spark's ports always demand a secret, which"
            " Spark makes itself. Remove it."
        )
