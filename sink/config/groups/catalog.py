"""Settings of the catalogue that the table is registered in, if any."""

from __future__ import annotations

from sink.config.fields import SettingGroup, setting
from sink.config.values import CatalogName, DurationMs, JavaClass, MetastoreUris
from sink.hudi.catalog_specification import HIVE_SYNC


class CatalogSettings(SettingGroup):
    catalog_uris: MetastoreUris | None = setting(
        "catalog.metastore.uris",
        "Hive metastore that the table, its columns and its partitions are registered in, after commits:"
        " `thrift://host:port,...`. Default: none, no catalogue.",
        also=("hoodie.datasource.hive_sync.metastore.uris",),
        default=None,
    )
    catalog_class: JavaClass = setting(
        "catalog.class",
        "Hudi's class that registers the table: for another catalogue than a Hive metastore one of Hudi's others, whose"
        " jar `spark.jars` names and whose settings are given under Hudi's own names (`hoodie.*`).",
        default=HIVE_SYNC,
    )
    catalog_database: CatalogName = setting(
        "catalog.database",
        "The catalogue's database, which is made if it is not there.",
        also=("hoodie.datasource.hive_sync.database",),
        default="default",
    )
    catalog_table: CatalogName | None = setting(
        "catalog.table",
        "What the table is called there. Default: `target.table.name`.",
        also=("hoodie.datasource.hive_sync.table",),
        default=None,
    )
    catalog_extractor: JavaClass | None = setting(
        "catalog.partition.extractor",
        "Class that makes partition values of a partition path, for the catalogue. Default: Hudi's that fits"
        " `partition.*`.",
        also=("hoodie.datasource.hive_sync.partition_extractor_class",),
        default=None,
    )
    catalog_interval_ms: DurationMs = setting(
        "catalog.interval.ms",
        "Least time between two registrations. One that fails is tried again sooner.",
        default=60_000,
        ge=1000,
        le=86_400_000,
    )

    @property
    def catalogued(self) -> bool:
        """Whether the table is registered in a catalogue."""
        return self.catalog_uris is not None or "catalog_class" in self.model_fields_set
