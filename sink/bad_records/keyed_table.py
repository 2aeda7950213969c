"""Upserts rows into the errors table with Hudi's own writer, one writer at a time.

Guarantee: when `upsert` returns, its rows are committed, and a key has one row. A writer holds the table's lock in
ZooKeeper from before Hudi looks up keys until after the commit. Sinks that share no lock share no errors table
(`ownership`). Right before the commit `fence` checks that the worker's session and term are still valid. So two writers
never add the same key to two file groups, which Hudi's conflict check would allow. The next writer rolls back instants
that a dead writer left pending, and what a full disk cut short. Voided by a process that is stopped inside Hudi's
commit for longer than its session. Raises TableError (another table is at the path, or the table is another fleet's),
what `fence` raises, Unavailable (the lock), and what py4j and Spark raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from coordination.errors import TableError
from sink.bad_records.ownership import FIX, OWNER_KEY, Owner, SinkPlace, owner_with
from sink.hudi.client import TABLE_VERSION, HudiClient
from sink.hudi.java_objects import COMMIT
from sink.hudi.lock import Locks, read_settled
from sink.hudi.options import IN_PROCESS_LOCK, LOCK_PROVIDER, SHARED_OPTIONS
from sink.hudi.shared_lock import LockIdentity
from sink.hudi.specification import ErrorsSpecification
from sink.hudi.timeline import HudiTimeline
from sink.schema.avro import avro_schema
from sink.schema.table_schema import HEADERS_TYPE, IS_DELETED
from sink.telemetry.failpoints import Failpoints

KEY = ("sink", "_kafka_topic", "topic_id", "_kafka_partition", "_kafka_offset", "generation")
COLUMNS = T.StructType(
    [
        T.StructField("sink", T.StringType()),
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
        T.StructField(IS_DELETED, T.BooleanType()),
    ]
)
Fence = Callable[[], None]
_KEY_GENERATOR = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
_SMALL_FILE = 16 << 20
"""Hudi adds records to files below this size, and starts new files otherwise."""


class KeyedTable:
    """The errors table, created by the first `upsert`. Not thread-safe."""

    def __init__(self, spark: SparkSession, errors: ErrorsSpecification, locks: Locks, identity: LockIdentity) -> None:
        self.base_path = errors.base_path
        self._spark = spark
        self._name = errors.name
        self._locks = locks
        self._identity = identity
        self._sink, self._place = errors.sink, SinkPlace(errors.znode, errors.place)
        self._avro = avro_schema(COLUMNS, self._name)
        self._hudi = HudiClient(spark, errors.store, self._avro, errors_options(errors))
        self._timeline = HudiTimeline(self._hudi, errors.sink)
        self._failpoints = Failpoints.from_environment()

    def exists(self) -> bool:
        return bool(self._hudi.storage().exists(self._hudi.path(".hoodie/hoodie.properties")))

    def verify(self) -> None:
        """Raises TableError if the path has a table that is not an errors table which this sink may write."""
        if self.exists():
            self._timeline.settled_snapshot(self._locks)
            read_settled(self._locks, lambda: self._owner(self._meta()))

    def _owner(self, meta: Any) -> Owner:
        """Returns the owner that the next commit names: the one that was named last, with this sink. Commits of others
        than sinks, who may edit the rows, name none.
        """
        timeline = meta.reloadActiveTimeline()
        commits = timeline.getCommitsTimeline().filterCompletedInstants()
        newest_first = [*commits.getInstants()][::-1]
        texts = (timeline.readCommitMetadata(commit).getMetadata(OWNER_KEY) for commit in newest_first)
        text = next(filter(None, texts), None)
        if text is None and newest_first:
            raise TableError(
                f"{self.base_path}: no commit of the errors table names the sinks that it belongs to. {FIX}"
            )
        owner = None if text is None else Owner.decode(text)
        return owner_with(owner, self._identity.read(), self._sink, self._place, self.base_path)

    def _meta(self) -> Any:
        """Opens the table. Raises TableError for another one."""
        meta = self._hudi.meta_client()
        config = meta.getTableConfig()
        name, fields = str(config.getTableName()), config.getRecordKeyFields()
        keys = ",".join(fields.get()) if fields.isPresent() else ""
        if (name, keys) != (self._name, ",".join(KEY)):
            raise TableError(
                f"{self.base_path} has the Hudi table {name} with the keys {keys or 'none'}, which is not the errors"
                f" table {self._name}. Set errors.table.base.path to an empty directory."
            )
        return meta

    def read(self) -> DataFrame:
        return self._spark.read.format("hudi").option("hoodie.metadata.enable", "false").load(self.base_path)

    def upsert(self, rows: DataFrame, fence: Fence) -> None:
        """Commits rows, which have `COLUMNS`, by name."""
        with self._locks("publish bad records") as require_held:
            fence()
            if not self.exists():
                self._create()
            self._timeline.locked_snapshot(require_held)
            meta = self._meta()
            owner = self._owner(meta)
            self._identity.keep(owner.lock)
            self._roll_back_pending(meta)
            try:
                self._upsert(meta, rows.select(*COLUMNS.names), fence, owner, require_held)
            finally:
                # This stops Hudi's heartbeats: the next writer rolls back an instant that was not completed.
                self._hudi.close()

    def _upsert(self, meta: Any, rows: DataFrame, fence: Fence, owner: Owner, require_held: Callable[[], None]) -> None:
        hudi, client = self._hudi, self._hudi.client
        instant = str(client.startCommit(COMMIT))
        client.setOperationType(hudi.operation)
        records = hudi.records_of(rows._jdf, instant, hudi.options, meta)
        stats = hudi.stats_of(client.upsert(records, instant))
        self._failpoints.reach("Errors.written")
        fence()
        hudi.commit_stats(instant, hudi.write_stats(stats), {OWNER_KEY: owner.encode()}, require_held)

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


def errors_options(errors: ErrorsSpecification) -> Mapping[str, str]:
    """Returns the options of Hudi's writer, which looks up keys, upserts, cleans and archives under the lock."""
    return {
        **SHARED_OPTIONS,
        "path": errors.base_path,
        "hoodie.table.name": errors.name,
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
        # The errors table is small and has few files: it needs no metadata table.
        "hoodie.metadata.enable": "false",
        LOCK_PROVIDER: IN_PROCESS_LOCK,
    }
