"""Hudi's upsert by key into the errors table, one writer at a time.

Guarantee: what `upsert` returned for is committed; a key has one row. Every writer holds the table's lock, of the
worker's own session, from before it looks for keys until its commit is made, and asks `fence` right before that whether
its session and its term are still in force: so two of them never add the same key in two places, which Hudi's own check
for conflicts would let pass. What a writer that died has left pending is rolled back by the next. Voided by a process
that is stopped inside of Hudi's commit for longer than its session. Raises TableError (another table stands there),
what `fence` raises, Unavailable (the lock), and what py4j and Spark raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from coordination.errors import TableError
from sink.config import Settings
from sink.hudi.client import TABLE_VERSION, HudiClient
from sink.hudi.java_objects import COMMIT
from sink.hudi.lock import BASE_PATH
from sink.hudi.options import IN_PROCESS_LOCK, SHARED_OPTIONS
from sink.schema import HEADERS_TYPE
from sink.schema.avro import avro_schema
from sink.telemetry.failpoints import Failpoints
from sink.telemetry.redaction import Properties

KEY = ("_kafka_topic", "_kafka_partition", "_kafka_offset", "generation")
DELETED = "_hoodie_is_deleted"
"""True in a row that takes away the one of its key."""
COLUMNS = T.StructType(
    [
        T.StructField("_kafka_topic", T.StringType()),
        T.StructField("_kafka_partition", T.IntegerType()),
        T.StructField("_kafka_offset", T.LongType()),
        T.StructField("_kafka_timestamp", T.TimestampType()),
        T.StructField("_kafka_key", T.BinaryType()),
        T.StructField("_kafka_headers", HEADERS_TYPE),
        T.StructField("value", T.BinaryType()),
        T.StructField("kind", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("topic_id", T.StringType()),
        T.StructField("generation", T.IntegerType()),
        T.StructField("instant", T.StringType()),
        T.StructField("transaction", T.LongType()),
        T.StructField("replayed_at", T.TimestampType()),
        T.StructField("replayed_instant", T.StringType()),
        T.StructField(DELETED, T.BooleanType()),
    ]
)
Fence = Callable[[], None]
_KEY_GENERATOR = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
_SMALL_FILE = 16 << 20
"""Files above it are not written again for a few records more."""


class KeyedTable:
    """Makes nothing before its first `upsert`. Not for several threads at once."""

    def __init__(
        self, spark: SparkSession, settings: Settings, locks: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.base_path = settings.errors_base_path
        self._spark = spark
        self._name = settings.errors_table_name
        self._locks = locks
        self._avro = avro_schema(COLUMNS, self._name)
        self._hudi = HudiClient(spark, self.base_path, self._avro, errors_options(settings))
        self._failpoints = Failpoints.from_environment()

    def exists(self) -> bool:
        return bool(self._hudi.storage().exists(self._hudi.path(".hoodie/hoodie.properties")))

    def verify(self) -> None:
        """Raises TableError for a table that is no errors table of this sink's table."""
        if self.exists():
            self._verify(self._hudi.meta_client())

    def _verify(self, meta: Any) -> None:
        config = meta.getTableConfig()
        name, fields = str(config.getTableName()), config.getRecordKeyFields()
        keys = ",".join(fields.get()) if fields.isPresent() else ""
        if (name, keys) != (self._name, ",".join(KEY)):
            raise TableError(
                f"{self.base_path} holds the Hudi table {name} with the keys {keys or 'none'}, which is not the errors"
                f" table {self._name}; name an empty place with errors.table.base.path"
            )

    def read(self) -> DataFrame:
        return self._spark.read.format("hudi").option("hoodie.metadata.enable", "false").load(self.base_path)

    def upsert(self, rows: DataFrame, fence: Fence) -> None:
        """`rows` have `COLUMNS`, by name."""
        with self._locks():
            fence()
            if not self.exists():
                self._create()
            meta = self._hudi.meta_client()
            self._verify(meta)
            self._roll_back_pending(meta)
            try:
                self._upsert(meta, rows.select(*COLUMNS.names), fence)
            finally:
                # With its heartbeats: an instant that was not completed is the next one's to roll back.
                self._hudi.close()

    def _upsert(self, meta: Any, rows: DataFrame, fence: Fence) -> None:
        hudi, client = self._hudi, self._hudi.client
        instant = str(client.startCommit(COMMIT))
        client.setOperationType(hudi.operation)
        records = hudi.records_of(rows._jdf, instant, hudi.options, meta)
        stats = hudi.stats_of(client.upsert(records, instant))
        self._failpoints.at("Errors.written")
        fence()
        hudi.commit_stats(instant, hudi.write_stats(stats), {})

    def _create(self) -> None:
        builder = self._hudi.java.common.table.HoodieTableMetaClient.newTableBuilder()
        builder = builder.setTableType("COPY_ON_WRITE").setTableName(self._name).setTableVersion(TABLE_VERSION)
        builder = builder.setTableCreateSchema(self._avro).setKeyGeneratorClassProp(_KEY_GENERATOR)
        builder.setRecordKeyFields(",".join(KEY)).initTable(self._hudi.storage_conf, self.base_path)

    def _roll_back_pending(self, meta: Any) -> None:
        """Rolls back every pending instant. The process that began it has lost the lock, and with it the right to
        complete it.
        """
        timeline = meta.reloadActiveTimeline().getCommitsTimeline().filterInflightsAndRequested()
        for entry in self._hudi.json(timeline.getInstants()):
            self._hudi.roll_back(entry["requestedTime"])


def lock_settings(settings: Settings) -> Settings:
    """Settings whose table lock is the errors table's lock."""
    kept = {BASE_PATH: settings.hudi[BASE_PATH]} if BASE_PATH in settings.hudi else {}
    return settings.model_copy(update={"table_name": settings.errors_table_name, "hudi": Properties(kept)})


def errors_options(settings: Settings) -> Mapping[str, str]:
    """For Hudi's own writer, which looks up keys, replaces rows, cleans and archives, under the lock that is held."""
    return {
        **SHARED_OPTIONS,
        "path": settings.errors_base_path,
        "hoodie.table.name": settings.errors_table_name,
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
        "hoodie.datasource.write.recordkey.field": ",".join(KEY),
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": _KEY_GENERATOR,
        "hoodie.index.type": "SIMPLE",
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.parquet.compression.codec": "zstd",
        "hoodie.parquet.small.file.limit": str(_SMALL_FILE),
        # One table less for each table: it is small, and its files are few.
        "hoodie.metadata.enable": "false",
        "hoodie.write.lock.provider": IN_PROCESS_LOCK,
    }
