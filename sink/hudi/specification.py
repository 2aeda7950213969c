"""A sink's table, as its settings want it: where it is, which rows it has, and how they are keyed, placed and stored.

Guarantee: the same settings give the same specification in every worker. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as T

from sink.hudi.catalog_specification import CatalogSpecification
from sink.layout.partition_paths import PartitionPaths
from sink.layout.partition_times import PartitionTime
from sink.layout.record_keys import DEFAULT_KEY
from sink.schema.evolution import Compatibility, evolved
from sink.schema.table_schema import IS_DELETED
from sink.schema.warnings import OmittedField
from sink.storage.store import Store

LOCK_BASE_PATH = "hoodie.write.lock.zookeeper.base_path"
LOCK_KEY = "hoodie.write.lock.zookeeper.lock_key"
DEFAULT_LOCK_BASE_PATH = "/hudi"
_KEY_GENERATORS = "org.apache.hudi.keygen"
CODEC = "hoodie.parquet.compression.codec"
DEFAULT_CODEC = "zstd"
DEBEZIUM_COLUMNS: Mapping[str, T.StructField] = {
    "lsn": T.StructField("_debezium_lsn", T.LongType()),
    "binlog": T.StructField("_debezium_binlog", T.StringType()),
    "ts_ms": T.StructField("_debezium_ts_ms", T.LongType()),
}
"""The ordering column for each value of debezium.ordering."""


@dataclass(frozen=True, slots=True)
class LockSpecification:
    """The znode of a table lock, and who holds it, for people."""

    path: str
    holder: str


def lock_path(options: Mapping[str, str], table_name: str) -> str:
    """Returns `<base path>/<key>` as Hudi's ZookeeperBasedLockProvider makes it; by default `/hudi/<table name>`."""
    base = options.get(LOCK_BASE_PATH, DEFAULT_LOCK_BASE_PATH)
    return f"{base.rstrip('/')}/{options.get(LOCK_KEY, table_name)}"


@dataclass(frozen=True, slots=True)
class ChangeSpecification:
    """How a record of an upsert table is a change. `envelope` is that of values, `before` what a Debezium delete says
    of its row, `ordering` where a Debezium event says its place. `key_format` is that of Kafka keys which delete.
    """

    envelope: str
    before: str
    ordering: str
    delete_field: str
    key_format: str

    @property
    def deletes_by_key(self) -> bool:
        """Whether a record without a value deletes the row of its key."""
        return self.key_format != "none"


@dataclass(frozen=True, slots=True)
class ColumnPolicy:
    """How the table's columns follow new schemas. `subject` is the registry's that they follow, if they do."""

    compatibility: Compatibility
    widens_decimals: bool
    subject: str | None


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """Which table services run, and after how many seconds one is overdue."""

    compaction: bool
    clustering: bool
    overdue_seconds: float


@dataclass(frozen=True)
class TableSpecification:
    """`store` and `name` say where the table is. Its commits have their checkpoints under the name `sink`; file ids are
    made from `namespace`, which is the sink's name, too, but for commits of repairs. `operation`, `table_type`,
    `engine` and `index` are settings of these names. `key_fields` are those that the user names, `ordering` the columns
    that order two records of one key, none for the log's order. `options` are the user's settings of Hudi, accepted.
    """

    store: Store
    name: str
    sink: str
    namespace: str
    operation: str
    table_type: str
    engine: str
    index: str
    key_fields: tuple[str, ...]
    has_provenance: bool
    ordering: tuple[str, ...]
    partitions: PartitionPaths
    changes: ChangeSpecification
    file_bytes: int
    open_files: int
    options: Mapping[str, str] = field(repr=False)
    lock: LockSpecification
    columns: ColumnPolicy
    services: ServicePolicy
    catalog: CatalogSpecification | None = None

    @property
    def base_path(self) -> str:
        return self.store.base_path

    @property
    def record_key(self) -> tuple[str, ...]:
        """The columns of the record key; none where the default key's columns are not in the table."""
        return self.key_fields or (DEFAULT_KEY if self.has_provenance else ())

    @property
    def key_is_global(self) -> bool:
        """Whether a record key is one row in the whole table, and not one in each of its partitions."""
        return self.index == "record"

    @property
    def upserts(self) -> bool:
        """Whether a record changes the row of its key."""
        return self.operation == "upsert"

    @property
    def merges_on_read(self) -> bool:
        return self.table_type == "merge_on_read"

    @property
    def merge_mode(self) -> str:
        return "EVENT_TIME_ORDERING" if self.ordering else "COMMIT_TIME_ORDERING"

    @property
    def partition_time(self) -> PartitionTime | None:
        """How the table is partitioned by time, if it is."""
        return self.partitions.time

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The table's columns that make its partition paths, the generated one included."""
        return self.partitions.columns

    def evolved(
        self, columns: T.StructType, wanted: T.StructType, left_out: Sequence[OmittedField] = ()
    ) -> T.StructType:
        """Returns the columns that the table gets for a schema. Raises what `sink.schema.evolution.evolved` raises."""
        policy = self.columns
        return evolved(
            columns, wanted, policy.compatibility, self.merges_on_read, left_out, widens_decimals=policy.widens_decimals
        )

    @property
    def key_generator(self) -> str:
        """Hudi's key generator. Time partitions use the one for text columns: Spark misreads tables of Hudi's timestamp
        key generators.
        """
        if not self.partition_columns:
            return f"{_KEY_GENERATORS}.NonpartitionedKeyGenerator"
        simple = len(self.partition_columns) == 1 and len(self.record_key) == 1
        return f"{_KEY_GENERATORS}.{'Simple' if simple else 'Complex'}KeyGenerator"

    @property
    def has_meta_fields(self) -> bool:
        """Whether rows have Hudi's own columns."""
        return self.options.get("hoodie.populate.meta.fields", "true").strip().lower() == "true"

    @property
    def arrow_codec(self) -> str:
        """The codec of base files by Arrow's name, which is Hudi's but for one."""
        codec = self.options.get(CODEC, DEFAULT_CODEC).strip().lower()
        return "none" if codec == "uncompressed" else codec

    @property
    def change_columns(self) -> T.StructType | None:
        """The columns that an upsert table has besides those of its rows; None for other tables."""
        if not self.upserts:
            return None
        column = DEBEZIUM_COLUMNS.get(self.changes.ordering)
        return T.StructType([*([] if column is None else [column]), T.StructField(IS_DELETED, T.BooleanType())])


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A topic for copies of bad records, at the brokers of `kafka`."""

    name: str
    bootstrap: str
    kafka: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ErrorsSpecification:
    """The table of a sink's bad records. `znode` and `place` tell the sink from others of its name: the root of its
    tree, and its own table's place. `is_used`: whether bad records are tolerated.
    """

    store: Store
    name: str
    lock: LockSpecification
    sink: str
    znode: str
    place: str
    own_base_path: str
    is_used: bool
    dead_letters: DeadLetterTopic | None

    @property
    def base_path(self) -> str:
        return self.store.base_path
