"""Hudi's Java API as the sink calls it through py4j: each function is one step of a sequence, in Hudi's own words.

Guarantee: this module decides nothing; every call does what its name says, or raises what py4j raises (`JAVA_ERRORS`).
It is written for Hudi 1.2 and table version 9: for another version, every call has to be tried again. It knows nothing
of transactions, checkpoints or locks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from sink.clients.java.errors import JAVA_ERRORS
from sink.clients.spark.inline_reads import close_inline_reads
from sink.hudi.base_file_stats import JavaFunctions, base_file_stats, is_log, log_stats, with_column_stats
from sink.hudi.completion import complete_commit
from sink.hudi.footers import with_footer_ranges
from sink.hudi.instants import CLUSTERING, COMPACTION, TIMELINE
from sink.hudi.java_objects import METADATA, HudiObjects
from sink.hudi.metadata_timeline import compaction_interval, timeline_names, wants_service
from sink.storage.store import Store

TABLE_VERSION = 9


class HudiClient(HudiObjects):
    """The Java objects of one table. One thread at a time may change the table; reading is free."""

    def __init__(self, spark: SparkSession, store: Store, avro_schema: str, options: Mapping[str, str]) -> None:
        super().__init__(spark, store.base_path, avro_schema, options)
        self._store = store
        close_inline_reads(spark, store.base_path)
        self._client: Any = None
        self._begun = ""
        self._begun_here: set[str] = set()
        self._is_initialized = False
        self._metafiles: set[str] = set()
        self.metadata_service_factor = 1
        """`begin` serves the metadata table after so many times the commits of Hudi's setting: above one if another
        client runs its services."""

    def with_options(self, options: Mapping[str, str], avro_schema: str | None = None) -> HudiClient:
        """Returns the same table with other options, and other columns if they are given."""
        return HudiClient(self._spark, self._store, avro_schema or self._avro, options)

    @property
    def client(self) -> Any:
        """The write client, whose heartbeats go on until `close`."""
        if self._client is None:
            self._client = self.java.client.SparkRDDWriteClient(self.engine_context, self.config)
            self._is_initialized = False
        return self._client

    @property
    def heartbeats(self) -> Any:
        return self.client.getHeartbeatClient()

    def forget(self) -> None:
        """Forgets which partitions have their metadata file: another writer may have dropped some. The file of the
        table's own directory stays.
        """
        self._metafiles &= {""}

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def keep_metadata_table(self) -> None:
        """Keeps writing a metadata table that exists, even if the options ask for none: readers trust only the metadata
        table.
        """
        if self.has_metadata_table or not self.meta_client().getTableConfig().isMetadataTableAvailable():
            return
        self.close()
        self._begun = ""
        self.options = {**self.options, METADATA: "true"}
        self.__dict__.pop("config", None)

    def delete_metadata_table(self, meta: Any) -> None:
        """Deletes the metadata table. `meta` is a meta client that was made under the lock: Hudi writes back all table
        properties that it has. `init_table` makes the metadata table anew, if the options ask for one.
        """
        self.java.metadata.HoodieTableMetadataUtil.deleteMetadataTable(meta, self.engine_context, False)
        self.close()
        self._begun = ""

    def begin(self, extra: Mapping[str, str], meta: Any = None, metadata_names: Collection[str] | None = None) -> str:
        """Makes a new instant with its heartbeat: requested and inflight, both carrying `extra`. `meta` is a meta
        client that has just been read under the lock, `metadata_names` are what `metadata_names` returned there.

        Like `startCommit`, but for the content of the requested file: if a process dies between requested and inflight,
        the file tells which sink and transaction the instant belongs to.
        """
        client, meta = self.client, meta or self.meta_client()
        timeline = meta.getActiveTimeline()
        instant = str(client.createNewInstantTime(True))
        requested = self.instant(meta, "REQUESTED", self.action, instant)
        content = self.option(self.commit_metadata(extra))
        with self.beating(instant):
            name = f"{instant}.{self.action}.requested"
            try:
                timeline.createFileInMetaPath(name, content, False)
            except JAVA_ERRORS:
                # A full disk may leave it empty: then it names no owner, and nobody would roll it back.
                self.storage().deleteFile(self.path(f"{TIMELINE}/{name}"))
                raise
            client.setOperationType(self.operation)
            if not self._is_initialized or self._wants_service(metadata_names):
                client.initTable(self.operation, self.option(instant))
                self._is_initialized = True
            # Without it, another writer's change of the schema between two commits makes the next commit fail.
            client.preWrite(instant, self.operation, meta)
            timeline.transitionRequestedToInflight(requested, content)
        self._begun = instant
        self._begun_here.add(instant)
        return instant

    def begun_with(self, meta: Any, instant: str) -> Mapping[str, str]:
        """Returns the `extra` that a pending instant was begun with."""
        requested = self.instant(meta, "REQUESTED", self.action, instant)
        return dict(meta.getActiveTimeline().readCommitMetadata(requested).getExtraMetadata() or {})

    def instant_now(self) -> str:
        """Returns the time of this host's clock as an instant."""
        return str(self.java.common.table.timeline.HoodieInstantTimeGenerator.getCurrentInstantTimeStr())

    def has_begun(self, instant: str) -> bool:
        """Whether this object has begun the instant, and has not completed it."""
        return instant in self._begun_here

    def refresh_conflict_baseline(self, instant: str, meta: Any, metadata_names: Collection[str] | None) -> None:
        """Refreshes Hudi's conflict baseline for an instant that another process began. Without it, Hudi takes every
        earlier commit for a conflict. `meta` and `metadata_names` as for `begin`; no names if this object began it.
        """
        if not self.has_begun(instant) and self._wants_service(metadata_names):
            self.client.initTable(self.operation, self.option(instant))
        if self._begun != instant:
            self.client.setOperationType(self.operation)
            self.client.preWrite(instant, self.operation, meta)
            self._begun = instant

    def metadata_names(self) -> Collection[str] | None:
        """Returns the files of the metadata table's timeline; None if there is no such table, or none is wanted."""
        return timeline_names(self) if self.has_metadata_table else None

    def _wants_service(self, names: Collection[str] | None) -> bool:
        return wants_service(self, self.metadata_service_factor * compaction_interval(self.options), names)

    def ensure_heartbeat(self, instant: str) -> None:
        """Starts, or restarts, this process's heartbeat for the instant."""
        beats = self.heartbeats
        if beats.getHeartbeat(instant) is not None and beats.isHeartbeatExpired(instant):
            # A heartbeat that missed its time, for the JVM was stopped or storage was away, never recovers by itself.
            beats.stop(instant)
        with self.beating(instant):
            pass

    @contextmanager
    def beating(self, instant: str) -> Iterator[None]:
        """Stops the heartbeat if the body fails. Hudi remembers a heartbeat that failed to start, and keeps beating for
        an instant that was not begun; both would block the next attempt.
        """
        try:
            self.heartbeats.start(instant)
            yield
        except (*JAVA_ERRORS, OSError):
            self.heartbeats.stop(instant)
            raise

    def write_stats(self, stats: Sequence[str], avro: str = "") -> Any:
        """Returns Java's write stats for a commit with that schema, else this object's. A few calls in all, and a few
        for each log file.
        """
        java_stats = base_file_stats(self, [stat for stat in stats if not is_log(stat)], avro or self._avro)
        if logs := [stat for stat in stats if is_log(stat)]:
            java_stats.addAll(log_stats(self, logs))
        return java_stats

    def commit_stats(
        self, instant: str, stats: Any, extra: Mapping[str, str], require_held: Callable[[], None], avro: str = ""
    ) -> None:
        """Completes the instant. `avro`: the table's schema that the commit names, by default that of this object.
        `require_held` raises if the table lock is lost; it is called before each of Hudi's two writes."""
        # The client reads the schema from the very configuration that it was made with.
        self.config.setSchema(avro or self._avro)
        self.client.setOperationType(self.operation)
        complete_commit(self, self.client, instant, stats, extra, require_held)
        self._begun_here.discard(instant)

    def bulk_insert_rows(self, frame: Any, instant: str) -> list[str]:
        """Writes a Java DataFrame under the instant with Hudi's row writer; one write stat per file."""
        meta = self.meta_client()
        table = self.table(meta)
        partitioned = bool(self.options["hoodie.datasource.write.partitionpath.field"])
        partitioner = self.java.execution.bulkinsert.BulkInsertInternalPartitionerWithRowsFactory.get(
            self.config, partitioned
        )
        helper = self.java.HoodieDatasetBulkInsertHelper
        prepared = helper.prepareForBulkInsert(frame, self.config, meta.getTableConfig(), partitioner, instant)
        sorted_ = partitioner.arePartitionRecordsSorted()
        statuses = helper.bulkInsert(prepared, instant, table, self.config, sorted_, False)
        return self.stats_of(self.java.data.HoodieJavaRDD.getJavaRDD(statuses))

    def write_records(self, frame: Any, instant: str) -> list[str]:
        """Writes a Java DataFrame under an instant that another process has begun, with Hudi's index and merge; one
        write stat per file. Uses no write client: it would look after the metadata table, and its heartbeats.
        """
        # Hudi makes no ordering value for records that are not to be combined, as the options of the write below say.
        options, meta = {**self.options, "hoodie.combine.before.upsert": "true"}, self.meta_client()
        records = self.records_of(frame, instant, options, meta)
        table = self.table(meta)
        table.validateUpsertSchema()
        data = self.java.data.HoodieJavaRDD.of(records)
        write = table.upsert if str(self.operation) == "UPSERT" else table.insert
        try:
            statuses = write(self.engine_context, instant, data).getWriteStatuses()
            return self.stats_of(self.java.data.HoodieJavaRDD.getJavaRDD(statuses))
        finally:
            # Hudi keeps the records and statuses of an instant until its client commits it: another process does.
            release = self.java.client.utils.SparkReleaseResources
            release.releaseCachedData(self.engine_context, self.config, self.base_path, instant)

    def records_of(self, frame: Any, instant: str, options: Mapping[str, str], meta: Any) -> Any:
        """Converts a Java DataFrame into an RDD of Hudi's records, for this object's operation."""
        arguments = getattr(self.java, "HoodieCreateRecordUtils$createHoodieRecordRddArgs")
        schema, avro = self.java.common.schema.HoodieSchema.parse(self._avro), json.loads(self._avro)
        scala = self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(self.java_map(options))
        values = (frame, self.config, scala, avro["name"], avro["namespace"], schema, schema, self.operation, instant)
        flags = (False, False, False)
        return self.java.HoodieCreateRecordUtils.createHoodieRecordRdd(
            arguments(*values, *flags, meta.getTableConfig())
        )

    def stats_of(self, statuses: Any) -> list[str]:
        """Returns the write stats of a Java RDD of write statuses. The statuses stay on the executors: with a record
        index, a status lists every row.
        """
        stats = []
        for slim in getattr(getattr(self.java.client, "SparkRDDWriteClient$SlimWriteStats"), "from")(statuses):
            stat = slim.getWriteStat()
            if slim.getTotalErrorRecords():
                raise OSError(f"Hudi's writer: {slim.getTotalErrorRecords()} errors in {stat.getFileId()}")
            stats.append(stat)
        texts = with_column_stats(self, stats, [str(self.mapper.writeValueAsString(stat)) for stat in stats])
        indexes_columns = self.has_metadata_table and self.config.isMetadataColumnStatsIndexEnabled()
        return with_footer_ranges(self._store, texts) if indexes_columns else texts

    def save_partition_metafiles(self, instant: str, paths: Sequence[str]) -> None:
        """Writes the partition metafiles. Readers that list storage skip a partition without one, and so does a rebuild
        of the metadata table.
        """
        kind, storage = self.java.common.model.HoodiePartitionMetadata, self.storage()
        base, no_value = self.path(), self.option()
        for path in paths:
            if path not in self._metafiles:
                kind(storage, instant, base, self.path(path), no_value).trySave()
                if storage.exists(self.path(f"{path}/.hoodie_partition_metadata".lstrip("/"))):
                    self._metafiles.add(path)

    def roll_back(self, instant: str) -> None:
        """Rolls an instant back, or finishes a rollback that another process began. Does not wait until the heartbeat
        of that process expires: the holder of the table lock decides.
        """
        services = self.client.getTableServiceClient()
        planned = services.getPendingRollbackInfo(self.meta_client(), instant, False)
        if planned.isPresent():
            rollback = str(planned.get().getRollbackInstant().requestedTime())
            # Hudi keeps one that failed to start, and fails for it.
            services.getHeartbeatClient().stop(rollback)
            self._drop_heartbeat(rollback)
        self.client.rollback(instant)
        self.heartbeats.stop(instant)
        self._drop_heartbeat(instant)

    def _drop_heartbeat(self, instant: str) -> None:
        """Deletes the instant's heartbeat file. No other process deletes that of a dead process."""
        folder = self.heartbeats.getHeartbeatFolderPath()
        self.storage().deleteFile(self.java.storage.StoragePath(f"{folder}/{instant}"))

    def schedule(self, service: str, extra: Mapping[str, str]) -> str:
        """Plans a `Clustering` or `Compaction`. Returns the instant of the new plan, which carries `extra`; empty if
        nothing is to be done.
        """
        planned = getattr(self.client, f"schedule{service}")(self.option(self.java_map(extra)))
        return str(planned.get()) if planned.isPresent() else ""

    def plan_metadata(self, meta: Any, action: str, instant: str) -> Mapping[str, str]:
        """Returns the extra metadata of a pending plan."""
        timeline, requested = meta.getActiveTimeline(), self.instant(meta, "REQUESTED", action, instant)
        read_plan = timeline.readCompactionPlan if action == COMPACTION else timeline.readRequestedReplaceMetadata
        return dict(read_plan(requested).getExtraMetadata() or {})

    def reopen_compaction(self, meta: Any, instant: str, state: str, require_held: Callable[[], None]) -> None:
        """Rolls back what an earlier attempt at a plan in this state has written, also into the metadata table, and
        leaves the plan requested. Deletes the heartbeat of that attempt, for which Hudi would refuse the next one.
        `require_held` raises if another process may have gone on: a rollback takes back what is complete, too.
        """
        entry = self.instant(meta, state, COMPACTION, instant)
        require_held()
        self._roll_back_plan(meta, entry, deletes_plan=False)
        if state == "INFLIGHT":
            meta.getActiveTimeline().revertInstantFromInflightToRequested(entry)
        self._drop_heartbeat(instant)

    def _roll_back_plan(self, meta: Any, entry: Any, deletes_plan: bool) -> None:
        """Rolls back what was written for a plan. Finishes a rollback that another process has planned."""
        table = self.table(meta)
        planned = self.client.getTableServiceClient().getPendingRollbackInfo(meta, entry.requestedTime(), False)
        if planned.isPresent():
            rollback = str(planned.get().getRollbackInstant().requestedTime())
        else:
            rollback = str(self.client.createNewInstantTime(False))
            table.scheduleRollback(self.engine_context, rollback, entry, False, True, False)
        table.rollback(self.engine_context, rollback, entry, deletes_plan, True)

    def bloom_footer(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns the entries of a Parquet footer with which Hudi finds these record keys: a filter, and their range.
        A few calls, however many keys."""
        settings = self.config.getBloomFilterNumEntries(), self.config.getBloomFilterFPP()
        most, kind = self.config.getDynamicBloomFilterMaxNumEntries(), self.config.getBloomFilterType()
        bloom = self.java.common.bloom.BloomFilterFactory.createBloomFilter(*settings, most, kind)
        functions = JavaFunctions(self)
        owner, text = functions.kind("org.apache.hudi.common.bloom.BloomFilter"), functions.kind("java.lang.String")
        add = functions.method(owner, "add", text).bindTo(bloom)
        self.java_list(keys).forEach(functions.consumer(add))
        footer = {
            "org.apache.hudi.bloomfilter": str(bloom.serializeToString()),
            "hoodie_bloom_filter_type_code": str(bloom.getBloomFilterTypeCode().name()),
        }
        # Hudi looks a key up by Java's order of texts, which is that of UTF-16.
        order = partial(str.encode, encoding="utf-16-be", errors="surrogatepass")
        ends = (min(keys, key=order), max(keys, key=order)) if keys else ()
        return footer | dict(zip(("hoodie_min_record_key", "hoodie_max_record_key"), ends, strict=False))

    def pending_compactions(self) -> dict[str, str]:
        """Maps each file group in a pending compaction plan to the plan's instant."""
        plans = self.java.common.util.CompactionUtils.getAllPendingCompactionOperations(self.meta_client())
        return {str(plan.getKey().getFileId()): str(plan.getValue().getLeft()) for plan in plans.entrySet()}

    def pending_clusterings(self) -> dict[str, str]:
        """Maps each file group in a pending clustering plan to the plan's instant."""
        plans = self.java.common.util.ClusteringUtils.getAllFileGroupsInPendingClusteringPlans(self.meta_client())
        return {str(plan.getKey().getFileId()): str(plan.getValue().requestedTime()) for plan in plans.entrySet()}

    def roll_back_clustering(self, instant: str) -> None:
        """Rolls back a pending clustering and deletes its plan, which Hudi would execute again. Finishes a rollback
        that another process began, also one that has deleted the plan already, which Hudi's client passes over.
        """
        meta = self.meta_client()
        pending = meta.getActiveTimeline().filterPendingReplaceOrClusteringTimeline().getInstants()
        listed = next((entry for entry in pending if str(entry.requestedTime()) == instant), None)
        entry = self.instant(meta, "INFLIGHT", CLUSTERING, instant) if listed is None else listed
        self._roll_back_plan(meta, entry, deletes_plan=listed is not None)
        self.heartbeats.stop(instant)
        self._drop_heartbeat(instant)

    def stop_heartbeats(self) -> None:
        """Stops this process's heartbeats. Leaves their files, which another process may own by now."""
        if self._client is not None:
            self.heartbeats.close()

    def init_table(self) -> None:
        """Creates the missing parts of the table, above all its metadata table."""
        self.client.initTable(self.operation, self.option())
