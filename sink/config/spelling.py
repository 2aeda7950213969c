"""Tells a mistyped name of a pass-through setting from one that the sink merely does not know.

Spark and Hudi ignore a name that they do not know, so a typing error would have no effect and no message. A name
counts as mistyped if it is at most two letters away from a well-known one and is not itself a name of Spark or Hudi:
`REAL` holds those that happen to lie so close. Everything else is passed on unchecked. Raises nothing.
"""

from __future__ import annotations

from rapidfuzz.distance import OSA

from sink.config.hudi_keys import KEYS, find
from sink.config.rules import FLAGS, RULES

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
    " executor.pyspark.memory files hadoop.fs.local.block.size"
    " hadoop.fs.s3a.access.key hadoop.fs.s3a.secret.key hadoop.fs.s3a.session.token"
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
_SINK_NAMES = frozenset(name for name in (*RULES, *FLAGS) if not name.startswith("kafka."))
_FREE_NAMES = ("spark.hadoop.fs.s3.", "spark.hadoop.fs.s3n.", "spark.sql.catalog.")
"""Prefixes that are not checked. Names of other S3 schemes differ from s3a's by a letter; users name catalogs."""

KNOWN = _SPARK | frozenset(name for name in KEYS if not name.endswith("*")) | _SINK_NAMES
"""Names that the sink sets, reads, bounds or refuses, all names of Hudi, and common ones of Spark. `kafka.py` has
Kafka's."""

REAL = frozenset({"spark.kryoserializer.buffer.mb"})
"""Names of Spark 3.5 that are close to a known one and mean something else."""


def mistaken_for(key: str) -> str | None:
    """Returns the well-known name that `key` probably stands for; None if it is one, or resembles none."""
    if key in KNOWN or key in REAL or key.startswith(_FREE_NAMES) or find(key):
        return None
    max_distance = 1 if len(key) < SHORT else 2
    distances = ((OSA.distance(key, name, score_cutoff=max_distance), name) for name in sorted(KNOWN))
    closest = min(distances, default=None)
    return closest[1] if closest and closest[0] <= max_distance else None
