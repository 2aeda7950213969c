"""Tells a mistyped name of a pass-through setting from one that the sink merely does not know.

Spark and Hudi ignore a name that they do not know, so a typing error would have no effect and no message. A name
counts as mistyped if it is at most two letters away from a well-known one and is not itself a name of Spark or Hudi:
`REAL` holds those that happen to lie so close. Everything else is passed on unchecked. Raises nothing.
"""

from __future__ import annotations

from rapidfuzz.distance import OSA

from sink.config.rules import CHOICES, FLAGS, RULES

SHORT = 12
"""Two changed letters may turn a shorter name into another word."""


def _below(prefix: str, text: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{name}" for name in text.split())


_SPARK = _below(
    "spark",
    "app.name authenticate authenticate.secret broadcast.blockSize cleaner.referenceTracking"
    " cores.max default.parallelism driver.bindAddress driver.blockManager.port driver.cores"
    " driver.defaultJavaOptions driver.extraClassPath driver.extraJavaOptions driver.extraLibraryPath driver.host"
    " driver.log.dfsDir driver.maxResultSize driver.memory driver.memoryOverhead driver.memoryOverheadFactor"
    " driver.port driver.supervise dynamicAllocation.enabled dynamicAllocation.executorIdleTimeout"
    " dynamicAllocation.initialExecutors dynamicAllocation.maxExecutors dynamicAllocation.minExecutors"
    " eventLog.compress eventLog.dir eventLog.enabled executor.cores executor.defaultJavaOptions"
    " executor.extraClassPath executor.extraJavaOptions executor.extraLibraryPath executor.heartbeatInterval"
    " executor.instances executor.memory executor.memoryOverhead executor.memoryOverheadFactor"
    " executor.pyspark.memory files hadoop.fs.s3a.access.key hadoop.fs.s3a.secret.key hadoop.fs.s3a.session.token"
    " hadoop.fs.s3a.endpoint hadoop.fs.s3a.endpoint.region hadoop.fs.s3a.path.style.access"
    " hadoop.fs.s3a.connection.ssl.enabled hadoop.fs.s3a.aws.credentials.provider"
    " hadoop.parquet.avro.write-old-list-structure io.compression.codec jars jars.excludes jars.ivy jars.ivySettings"
    " jars.packages jars.repositories kryo.classesToRegister kryo.registrationRequired kryo.registrator"
    " kryoserializer.buffer kryoserializer.buffer.max local.dir locality.wait master memory.fraction"
    " memory.offHeap.enabled memory.offHeap.size memory.storageFraction network.timeout port.maxRetries"
    " pyspark.driver.python pyspark.python python.worker.memory python.worker.reuse rpc.message.maxSize"
    " scheduler.allocation.file scheduler.mode serializer shuffle.compress shuffle.service.enabled speculation"
    " speculation.interval speculation.multiplier speculation.quantile"
    " sql.execution.arrow.maxRecordsPerBatch sql.extensions sql.files.maxPartitionBytes"
    " sql.parquet.datetimeRebaseModeInRead sql.parquet.datetimeRebaseModeInWrite sql.parquet.outputTimestampType"
    " sql.session.timeZone sql.shuffle.partitions sql.warehouse.dir ssl.enabled stage.maxConsecutiveAttempts"
    " submit.deployMode submit.pyFiles task.cpus task.maxFailures ui.enabled ui.port ui.showConsoleProgress"
    " yarn.queue kubernetes.namespace kubernetes.container.image",
)
_HUDI = _below(
    "hoodie",
    "archive.automatic archive.async base.path bulkinsert.shuffle.parallelism bulkinsert.sort.mode clean.async"
    " clean.async.enabled clean.automatic clean.commits.retained clean.failed.writes.policy clean.policy"
    " clean.hours.retained clean.max.commits clean.fileversions.retained cleaner.policy cleaner.commits.retained"
    " cleaner.hours.retained cleaner.fileversions.retained cleaner.parallelism cleaner.policy.failed.writes"
    " client.heartbeat.interval_in_ms client.heartbeat.tolerable.misses clustering.async.enabled clustering.inline"
    " clustering.async.max.commits clustering.plan.strategy.class clustering.plan.strategy.max.bytes.per.group"
    " clustering.plan.strategy.max.num.groups clustering.plan.strategy.single.group.clustering.enabled"
    " clustering.plan.strategy.small.file.limit clustering.plan.strategy.sort.columns"
    " clustering.plan.strategy.target.file.max.bytes compact.inline.max.delta.commits"
    " combine.before.insert commits.archival.batch compact.inline datasource.compaction.async.enable"
    " datasource.hive_sync.enable datasource.hive_sync.database datasource.hive_sync.table datasource.hive_sync.mode"
    " datasource.meta.sync.enable datasource.write.hive_style_partitioning datasource.write.insert.drop.duplicates"
    " datasource.write.keygenerator.class datasource.write.operation datasource.write.partitionpath.field"
    " datasource.write.partitionpath.urlencode datasource.write.payload.class datasource.write.precombine.field"
    " datasource.write.recordkey.field datasource.write.table.type embed.timeline.server"
    " insert.shuffle.parallelism keep.max.commits keep.min.commits metadata.enable"
    " metadata.index.bloom.filter.enable metadata.index.column.stats.enable metadata.index.column.stats.column.list"
    " metadata.index.column.stats.file.group.count"
    " metadata.index.partition.stats.enable metadata.record.index.enable parquet.block.size"
    " parquet.compression.codec parquet.compression.ratio parquet.dictionary.enabled parquet.max.file.size"
    " parquet.page.size parquet.small.file.limit populate.meta.fields rollback.using.markers"
    " table.name table.services.enabled table.type table.version time.generator.max_expected_clock_skew_ms"
    " upsert.shuffle.parallelism write.concurrency.mode write.lock.client.num_retries"
    " write.lock.client.wait_time_ms_between_retry write.lock.num_retries write.lock.provider"
    " write.lock.wait_time_ms write.lock.wait_time_ms_between_retry write.lock.zookeeper.base_path"
    " write.lock.zookeeper.connection_timeout_ms write.lock.zookeeper.lock_key write.lock.zookeeper.port"
    " write.lock.zookeeper.session_timeout_ms write.lock.zookeeper.url write.markers.type write.table.version",
)
_SINK_NAMES = frozenset(name for name in (*RULES, *FLAGS, *CHOICES) if not name.startswith("kafka."))
_FREE_NAMES = ("spark.hadoop.fs.s3.", "spark.hadoop.fs.s3n.", "spark.sql.catalog.")
"""Prefixes that are not checked. Names of other S3 schemes differ from s3a's by a letter; users name catalogs."""

KNOWN = _SPARK | _HUDI | _SINK_NAMES
"""Names that the sink sets, reads, bounds or refuses, and common names of Spark and Hudi. `kafka.py` has Kafka's."""

REAL = frozenset({"hoodie.clean.parallelism", "hoodie.combine.before.upsert", "spark.kryoserializer.buffer.mb"})
"""Names of Spark 3.5 and Hudi 1.2 that are close to a known one and mean something else."""


def mistaken_for(key: str) -> str | None:
    """Returns the well-known name that `key` probably stands for; None if it is one, or resembles none."""
    if key in KNOWN or key in REAL or key.startswith(_FREE_NAMES):
        return None
    max_distance = 1 if len(key) < SHORT else 2
    distances = ((OSA.distance(key, name, score_cutoff=max_distance), name) for name in sorted(KNOWN))
    closest = min(distances, default=None)
    return closest[1] if closest and closest[0] <= max_distance else None
