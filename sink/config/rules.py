"""Settings of Kafka, Hudi and Spark that would break the guarantee, and names of other tools that mean
nothing here.

Everything below `kafka.`, `hoodie.` and `spark.` is passed through, except what the sink has to decide
itself: what is read (committed records only), who commits (one instant for the whole fleet), who cleans up
(one elected worker, off the commit path). The table adapter always sets these. A contrary value is refused here rather
than silently replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sink.config.values import flag


@dataclass(frozen=True, slots=True)
class Rule:
    """A pass-through setting that may only have the `allowed` values (lower case); without any, it may not be set."""

    allowed: tuple[str, ...]
    why: str

    def refusal(self, key: str, value: str) -> str | None:
        if value.strip().lower() in self.allowed:
            return None
        remedy = f"remove it or set it to {' or '.join(self.allowed)}" if self.allowed else "remove it"
        return f"{key} is refused: {self.why}; {remedy}"


_OFF_PATH = "cleaning and archiving run on one elected worker, off the commit path"
_CLUSTERING = "clustering runs off the commit path, on one elected worker; services.clustering turns it on"
_COMPACTION = "compaction runs off the commit path, on one elected worker; see services.compaction"
_ONE_INSTANT = "the fleet writes and commits one Hudi instant together"
_LAZY = "an instant that another worker still writes is rolled back by its coordinator alone"
_PENDING = "the coordinator decides about pending clusterings, under the table lock"
_CATALOG = "catalog.metastore.uris or catalog.class has the table registered, off the commit path"
_ORDERING = "ordering.field.name decides which of two rows is the newer one"
_DELETES = "tombstones and _hoodie_is_deleted say which rows are deleted"
_ONE_NUMBER = "the table has one number of buckets, hoodie.bucket.index.num.buckets, for all of its life"
_HUDI_IN_SPARK = "Hudi needs its own there"
_LOCK = "the table lock is on the ensemble of zookeeper.connect"

RULES: Mapping[str, Rule] = {
    "kafka.isolation.level": Rule(("read_committed",), "records of aborted transactions would reach the table"),
    "kafka.enable.auto.commit": Rule(("false",), "offsets live in the table's commits, nowhere else"),
    "kafka.enable.auto.offset.store": Rule(("false",), "offsets live in the table's commits, nowhere else"),
    "kafka.auto.offset.reset": Rule(
        (),
        "a silent reset would lose or repeat records; the sink's own setting"
        " auto.offset.reset decides where a new topic starts",
    ),
    "kafka.allow.auto.create.topics": Rule(("false",), "a mistyped topic would be created and stay empty"),
    "kafka.check.crcs": Rule(("true",), "a byte that changed on a broker's disk would land"),
    "kafka.key.deserializer": Rule((), "key.format decides it"),
    "kafka.value.deserializer": Rule((), "value.format decides it"),
    "kafka.interceptor.classes": Rule((), "an interceptor may change or drop records unseen"),
    "spark.speculation": Rule(("false",), "a second attempt of a task in one instant writes the same file group"),
    "spark.sql.session.timeZone": Rule(("utc",), "times are written and read in UTC"),
    "spark.serializer": Rule(("org.apache.spark.serializer.kryoserializer",), "Hudi needs Kryo"),
    "spark.kryo.registrator": Rule(("org.apache.spark.hoodiesparkkryoregistrar",), _HUDI_IN_SPARK),
    "spark.sql.extensions": Rule(("org.apache.spark.sql.hudi.hoodiesparksessionextension",), _HUDI_IN_SPARK),
    "spark.sql.catalog.spark_catalog": Rule(("org.apache.spark.sql.hudi.catalog.hoodiecatalog",), _HUDI_IN_SPARK),
    "hoodie.write.markers.type": Rule(("direct",), "markers of many drivers need no timeline server"),
    "hoodie.embed.timeline.server": Rule(("false",), "markers and views of many drivers cannot go through one of them"),
    "hoodie.clean.failed.writes.policy": Rule(("lazy",), _LAZY),
    "hoodie.cleaner.policy.failed.writes": Rule(("lazy",), _LAZY),
    "hoodie.write.concurrency.mode": Rule(
        ("optimistic_concurrency_control",), "others may write the table at the same time"
    ),
    "hoodie.write.lock.provider": Rule(
        (
            "org.apache.hudi.client.transaction.lock.zookeeperbasedlockprovider",
            "org.apache.hudi.client.transaction.lock.inprocesslockprovider",
        ),
        "the table lock is Hudi's ZooKeeper lock, held over the worker's own session",
    ),
    "hoodie.write.lock.zookeeper.url": Rule((), _LOCK),
    "hoodie.write.lock.zookeeper.port": Rule((), _LOCK),
    "hoodie.auto.commit": Rule(("false",), _ONE_INSTANT),
    "hoodie.rollback.using.markers": Rule(("true",), "a rollback removes exactly the files that have a marker"),
    "hoodie.metadata.auto.delete.partitions": Rule(
        ("false",), "an index that others made would be dropped unasked; DROP INDEX of Spark SQL does it"
    ),
    "hoodie.metadata.record.level.index.enable": Rule(
        ("false",), "Hudi 1.2 fails to update it from what several processes wrote; the global one works"
    ),
    "hoodie.metadata.streaming.write.enabled": Rule(
        ("false",), "a record index takes its entries from what the whole fleet wrote, when it commits"
    ),
    "hoodie.clean.automatic": Rule(("false",), _OFF_PATH),
    "hoodie.clean.async": Rule(("false",), _OFF_PATH),
    "hoodie.clean.async.enabled": Rule(("false",), _OFF_PATH),
    "hoodie.archive.automatic": Rule(("false",), _OFF_PATH),
    "hoodie.archive.async": Rule(("false",), _OFF_PATH),
    "hoodie.table.services.enabled": Rule(("false",), _OFF_PATH),
    "hoodie.datasource.compaction.async.enable": Rule(("false",), _COMPACTION),
    "hoodie.compact.inline": Rule(("false",), _COMPACTION),
    "hoodie.compact.schedule.inline": Rule(("false",), _COMPACTION),
    "hoodie.log.compaction.inline": Rule(("false",), _COMPACTION),
    "hoodie.archive.beyond.savepoint": Rule(
        ("false",), "the newest checkpoint would be archived before an older one that a savepoint keeps"
    ),
    "hoodie.clustering.inline": Rule(("false",), _CLUSTERING),
    "hoodie.datasource.clustering.inline.enable": Rule(("false",), _CLUSTERING),
    "hoodie.clustering.schedule.inline": Rule(("false",), _CLUSTERING),
    "hoodie.clustering.async.enabled": Rule(("false",), _CLUSTERING),
    "hoodie.clustering.enable.expirations": Rule(
        ("false",), "what a dead worker has begun is rolled back by the sink's next worker, not by another writer"
    ),
    "hoodie.datasource.write.operation": Rule(("bulk_insert",), "write.operation decides"),
    "hoodie.allow.multi.write.on.same.instant": Rule((), _ONE_INSTANT),
    "hoodie.clustering.updates.strategy": Rule((), _PENDING),
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict": Rule(("false",), _PENDING),
    "hoodie.datasource.write.insert.drop.duplicates": Rule(("false",), "records would be dropped unseen"),
    "hoodie.datasource.insert.dup.policy": Rule(("none",), "records would be dropped unseen"),
    "hoodie.combine.before.insert": Rule(("false",), "records would be dropped unseen"),
    "hoodie.merge.allow.duplicate.on.inserts": Rule(("true",), "rows of equal keys would be merged unseen"),
    "hoodie.record.index.update.partition.path": Rule((), "a row whose partition has changed moves"),
    "hoodie.index.type": Rule((), "index.type decides it"),
    "hoodie.index.bucket.engine": Rule(("simple",), _ONE_NUMBER),
    "hoodie.bucket.index.partition.expressions": Rule((), _ONE_NUMBER),
    "hoodie.index.class": Rule((), "index.type decides it"),
    "hoodie.table.ordering.fields": Rule((), _ORDERING),
    "hoodie.table.precombine.field": Rule((), _ORDERING),
    "hoodie.datasource.write.precombine.field": Rule((), _ORDERING),
    "hoodie.write.record.merge.mode": Rule((), _ORDERING),
    "hoodie.combine.before.upsert": Rule((), _ORDERING),
    "hoodie.datasource.write.payload.class": Rule((), _ORDERING),
    "hoodie.datasource.write.keygenerator.class": Rule(
        (), "record.key.fields, partition.field.name and partition.time.field decide it"
    ),
    "hoodie.datasource.write.drop.partition.columns": Rule(("false",), "a file holds all columns of its rows"),
    "hoodie.datasource.write.slash.separated.date.partitioning": Rule(
        ("false",), "partition.time.format decides where a row lies"
    ),
    "hoodie.allow.operation.metadata.field": Rule(("false",), "a merge-on-read table would lose rows"),
    "hoodie.datasource.merge.type": Rule(
        ("payload_combine",), "a compaction would copy the rows of log files without merging them"
    ),
    "hoodie.logfile.data.block.format": Rule((), "the sink and its auditor read log blocks in Hudi's default format"),
    "hoodie.payload.delete.field": Rule((), _DELETES),
    "hoodie.payload.delete.marker": Rule((), _DELETES),
    "hoodie.write.schema": Rule((), "schema.ddl, schema.file or schema.registry.url decides the columns"),
    "hoodie.write.table.version": Rule(("9",), "the sink writes tables of version 9"),
    "hoodie.meta.sync.enable": Rule(("false",), _CATALOG),
    "hoodie.datasource.meta.sync.enable": Rule(("false",), _CATALOG),
    "hoodie.datasource.hive_sync.enable": Rule(("false",), _CATALOG),
    "hoodie.datasource.hive_sync.partition_fields": Rule((), "partition.field.name and partition.time.field decide it"),
    "hoodie.datasource.hive_sync.ignore_exceptions": Rule(("false",), "a failure is told of, and tried again"),
    "hoodie.datasource.meta.sync.base.path": Rule((), "target.base.path decides it"),
}

FLAGS = frozenset(
    {
        "hoodie.populate.meta.fields",
        "hoodie.datasource.write.partitionpath.urlencode",
        "hoodie.metadata.enable",
        "hoodie.metadata.global.record.level.index.enable",
        "hoodie.allow.empty.commit",
        "spark.ui.enabled",
        "spark.ui.showConsoleProgress",
    }
)
"""Pass-through settings that are true or false. The sink reads the first ones itself. No reader knows `yes`, so that
all spellings are passed on as `true` or `false`."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "hoodie.parquet.compression.codec": ("zstd", "snappy", "gzip", "lz4", "uncompressed"),
}
"""Pass-through settings with these values only. The codecs of Parquet are those that Arrow, Hudi and Spark all have."""

MINIMUMS: Mapping[str, int] = {
    "hoodie.clean.fileversions.retained": 1,
    "hoodie.cleaner.fileversions.retained": 1,
    "hoodie.clean.commits.retained": 1,
    "hoodie.cleaner.commits.retained": 1,
    "hoodie.clean.hours.retained": 1,
    "hoodie.cleaner.hours.retained": 1,
}
"""Pass-through settings that are whole numbers, with the lowest that keeps the newest files."""

_STREAMER: Mapping[str, str] = {
    "schemaprovider.registry.url": "use schema.registry.url and schema.subject",
    "schemaprovider.source.schema.file": "use schema.file",
    "source.kafka.topic": "use kafka.topic.names",
    "ingestion.tablesToBeIngested": "name the tables beneath sinks",
    "ingestion.targetBasePath": "use target.base.path",
    "kafka.source.maxEvents": "use flush.size (of one partition) or flush.bytes",
    "source.kafka.minPartitions": "use slice.records: the more slices, the more tasks",
    "source.kafka.enable.failOnDataLoss": "use on.data.loss",
    "source.kafka.enable.commit.offset": "offsets live in the table's commits, nowhere else; remove it",
    "source.kafka.append.offsets": "use provenance.columns",
}

FOREIGN: Mapping[str, str] = {
    "kafka.topics": "is not a setting of Kafka's clients; use kafka.topic.names",
    "kafka.topic": "is not a setting of Kafka's clients; use kafka.topic.names",
    "connector.class": "belongs to Kafka Connect and means nothing here; remove it",
    "tasks.max": "belongs to Kafka Connect; the number of workers and spark.master decide the parallelism; remove it",
    "key.converter": "belongs to Kafka Connect; use key.format",
    "value.converter": "belongs to Kafka Connect; use value.format, like avro-confluent",
    "value.converter.schema.registry.url": "belongs to Kafka Connect; use schema.registry.url",
    "value.converter.schemas.enable": "belongs to Kafka Connect; a JSON value is the record itself; remove it",
    "iceberg.tables": "belongs to the Iceberg sink; name the tables beneath sinks",
    "iceberg.tables.dynamic-enabled": "belongs to the Iceberg sink; use kafka.topic.regex, and {topic} in"
    " target.base.path",
    "iceberg.tables.route-field": "belongs to the Iceberg sink; records find their table by topic: use"
    " kafka.topic.regex, and {topic} in target.base.path",
    "topics.dir": "belongs to the Confluent HDFS sink; use target.base.path",
    "hdfs.url": "belongs to the Confluent HDFS sink; use target.base.path, like hdfs://namenode:8020/tables/orders",
    "store.url": "belongs to the Confluent storage sinks; use target.base.path",
    "logs.dir": "belongs to the Confluent HDFS sink; there is no write-ahead log here; remove it",
    "format.class": "belongs to the Confluent storage sinks; the table is Hudi's; remove it",
    "partitioner.class": "belongs to the Confluent storage sinks; use partition.field.name",
    "partition.duration.ms": "belongs to the Confluent storage sinks; use partition.time.format, like hourly",
    "timestamp.extractor": "belongs to the Confluent storage sinks; name a column, or _kafka_timestamp, with"
    " partition.time.field",
    "locale": "belongs to the Confluent storage sinks; partitions by time have no names of months or days; remove it",
    "rotate.interval.ms": "belongs to the Confluent storage sinks; use transaction.interval.ms",
    "rotate.schedule.interval.ms": "belongs to the Confluent storage sinks; use transaction.interval.ms",
    "hoodie.kafka.commit.interval.secs": "belongs to Hudi's Kafka Connect sink; use transaction.interval.ms, like 60s",
    "hoodie.kafka.coordinator.write.timeout.secs": "belongs to Hudi's Kafka Connect sink;"
    " use coordinator.writestatus.timeout, like 300s",
    "hoodie.kafka.compaction.async.enable": "belongs to Hudi's Kafka Connect sink; use services.compaction",
    "hoodie.kafka.control.topic": "belongs to Hudi's Kafka Connect sink; ZooKeeper has its role here; remove it",
    "hoodie.kafka.allow.commit.on.errors": "belongs to Hudi's Kafka Connect sink; use errors.tolerance",
    "hoodie.schemaprovider.class": "belongs to Hudi's Kafka Connect sink; use schema.ddl, schema.file or"
    " schema.subject",
    **{
        f"hoodie.{tool}.{name}": f"belongs to Hudi Streamer; {remedy}"
        for tool in ("streamer", "deltastreamer")
        for name, remedy in _STREAMER.items()
    },
    "hoodie.meta.sync.classes": "is not used; use catalog.class",
    "hoodie.meta.sync.client.tool.class": "belongs to Hudi Streamer; use catalog.class",
}


def refusals(key: str, value: str) -> Iterator[str]:
    """Yields a sentence for every rule that this pass-through setting breaks."""
    rule = RULES.get(key)
    refusal = rule.refusal(key, value) if rule else None
    if refusal:
        yield refusal
    try:
        canonical(key, value)
    except ValueError as error:
        yield f"{key} {error}"


def canonical(key: str, value: str) -> str:
    """Returns the value in the form that every reader understands. Raises ValueError if there is none."""
    if key in FLAGS:
        return str(flag(value)).lower()
    if key in CHOICES:
        choice = value.strip().lower()
        if choice not in CHOICES[key]:
            raise ValueError(f"is not one of its values; use {', '.join(CHOICES[key])}")
        return choice
    if key in MINIMUMS:
        if not value.strip().isdecimal() or int(value) < MINIMUMS[key]:
            raise ValueError(f"is not a whole number from {MINIMUMS[key]} on; files that readers need would be deleted")
        return value.strip()
    return value
