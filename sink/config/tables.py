"""Makes the specifications of the table and of the errors table from the settings. Raises ConfigError for a setting of
Hudi that is refused.
"""

from __future__ import annotations

from sink.config.derived import DerivedSettings
from sink.config.hudi_keys import accepted
from sink.hudi.catalog_specification import CatalogSpecification
from sink.hudi.specification import (
    DEBEZIUM_COLUMNS,
    LOCK_BASE_PATH,
    ChangeSpecification,
    ColumnPolicy,
    DeadLetterTopic,
    ErrorsSpecification,
    LockSpecification,
    ServicePolicy,
    TableSpecification,
    lock_path,
)
from sink.layout.partition_paths import PartitionPaths
from sink.layout.partition_times import PartitionTime
from sink.schema.evolution import Compatibility
from sink.storage.access import canonical
from sink.storage.store import Store


def table_specification(settings: DerivedSettings) -> TableSpecification:
    options = accepted(settings.hudi)
    ordering_column = DEBEZIUM_COLUMNS.get(settings.debezium_ordering)
    encodes = options.get("hoodie.datasource.write.partitionpath.urlencode") == "true"
    return TableSpecification(
        # Temporary keys change, and looking them up may ask a server.
        store=Store(settings.base_path, lambda: settings.storage),
        name=settings.table_name,
        sink=settings.name,
        namespace=settings.name,
        operation=settings.operation,
        table_type=settings.table_type,
        engine=settings.engine,
        index=settings.index_type,
        key_fields=settings.record_key_fields,
        has_provenance=settings.provenance,
        ordering=settings.ordering_fields if ordering_column is None else (ordering_column.name,),
        partitions=PartitionPaths(
            tuple(settings.partition_fields), settings.hive_style, encodes, _partition_time(settings)
        ),
        changes=ChangeSpecification(
            settings.value_envelope,
            settings.debezium_before,
            settings.debezium_ordering,
            settings.delete_field,
            settings.delete_key_format,
        ),
        file_bytes=settings.file_max_bytes,
        open_files=settings.open_files_max,
        options=options,
        lock=LockSpecification(lock_path(options, settings.table_name), _holder(settings)),
        columns=ColumnPolicy(
            Compatibility(settings.schema_compatibility), settings.schema_widen_decimals, settings.schema_subject
        ),
        services=ServicePolicy(
            settings.services_compaction, settings.services_clustering, settings.services_overdue_ms / 1000
        ),
        catalog=_catalog(settings),
    )


def errors_specification(settings: DerivedSettings) -> ErrorsSpecification:
    # Sinks may share an errors table. Its lock uses their lock base path, but its own table name as the key: the user's
    # lock key is that of the sink's table.
    options = {name: value for name, value in settings.hudi.items() if name == LOCK_BASE_PATH}
    topic = settings.errors_topic
    return ErrorsSpecification(
        store=Store(settings.errors_base_path, lambda: settings.storage),
        name=settings.errors_table_name,
        lock=LockSpecification(lock_path(options, settings.errors_table_name), _holder(settings)),
        sink=settings.name,
        znode=settings.root_znode,
        place=canonical(settings.base_path),
        own_base_path=settings.base_path,
        is_used=settings.tolerant,
        dead_letters=DeadLetterTopic(topic, settings.bootstrap, settings.kafka_native) if topic else None,
    )


def _holder(settings: DerivedSettings) -> str:
    """Returns the holder of a lock, as people read it in the lock's znode."""
    return f"sink {settings.name}, worker {settings.worker_id}"


def _partition_time(settings: DerivedSettings) -> PartitionTime | None:
    """Returns the time part of the table's partitioning; None if the table has none."""
    field = settings.partition_time_field
    if field is None:
        return None
    # The unit under the empty name applies to all columns without their own.
    units = dict(settings.time_unit)
    return PartitionTime(
        field,
        settings.partition_time_format,
        settings.partition_time_zone,
        settings.partition_time_column or "",
        units.get(field, units.get("", "")),
    )


def _catalog(settings: DerivedSettings) -> CatalogSpecification | None:
    if not settings.catalogued:
        return None
    return CatalogSpecification(
        settings.catalog_class,
        settings.catalog_database,
        settings.catalog_table or settings.table_name,
        settings.catalog_uris,
        settings.catalog_extractor,
    )
