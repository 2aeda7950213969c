"""Settings of Kafka, Hudi and Spark that would break the guarantee, and names of other tools that mean
nothing here.

Everything below `kafka.`, `hoodie.` and `spark.` is passed through, except what the sink has to decide
itself: what is read (committed records only), who commits (one instant for the whole fleet), who cleans up
(one elected worker, off the commit path). The table adapter always sets these. A contrary value is refused here rather
than silently replaced. Of Hudi's settings, `sink.config.hudi_keys` says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sink.config import hudi_keys
from sink.config.values import flag


@dataclass(frozen=True, slots=True)
class SettingRule:
    """A pass-through setting that may only have the `allowed` values (lower case); without any, it may not be set."""

    allowed: tuple[str, ...]
    why: str

    def refusal(self, key: str, value: str) -> str | None:
        if value.strip().lower() in self.allowed:
            return None
        remedy = f"Remove it or set it to {' or '.join(self.allowed)}." if self.allowed else "Remove it."
        return f"{key} is refused: {self.why}. {remedy}"


_ENCODING = "a table service or Hudi's writer would write values in a form that the sink's other files do not have"
_ONE_INSTANT = "the fleet writes and commits one Hudi instant together"
_HUDI_IN_SPARK = "Hudi needs its own there"

RULES: Mapping[str, SettingRule] = {
    "kafka.isolation.level": SettingRule(("read_committed",), "records of aborted transactions would reach the table"),
    "kafka.enable.auto.commit": SettingRule(("false",), "offsets live in the table's commits, nowhere else"),
    "kafka.enable.auto.offset.store": SettingRule(("false",), "offsets live in the table's commits, nowhere else"),
    "kafka.auto.offset.reset": SettingRule(
        (),
        "a silent reset would lose or repeat records. The sink's own setting"
        " auto.offset.reset decides where a new topic starts",
    ),
    "kafka.allow.auto.create.topics": SettingRule(("false",), "a mistyped topic would be created and stay empty"),
    "kafka.check.crcs": SettingRule(("true",), "a byte that changed on a broker's disk would land"),
    "kafka.key.deserializer": SettingRule((), "key.format decides it"),
    "kafka.value.deserializer": SettingRule((), "value.format decides it"),
    "kafka.interceptor.classes": SettingRule((), "an interceptor may change or drop records unseen"),
    "spark.speculation": SettingRule(
        ("false",), "a second attempt of a task in one instant writes the same file group"
    ),
    "spark.sql.session.timeZone": SettingRule(("utc",), "times are written and read in UTC"),
    "spark.sql.caseSensitive": SettingRule(("false",), "names of columns are told apart without regard to case"),
    "spark.sql.parquet.outputTimestampType": SettingRule(("timestamp_micros",), _ENCODING),
    "spark.sql.parquet.writeLegacyFormat": SettingRule(("false",), _ENCODING),
    "spark.sql.parquet.datetimeRebaseModeInRead": SettingRule(("corrected",), _ENCODING),
    "spark.sql.parquet.datetimeRebaseModeInWrite": SettingRule(("corrected",), _ENCODING),
    "spark.hadoop.parquet.avro.write-old-list-structure": SettingRule(("false",), _ENCODING),
    "spark.serializer": SettingRule(("org.apache.spark.serializer.kryoserializer",), "Hudi needs Kryo"),
    "spark.kryo.registrator": SettingRule(("org.apache.spark.hoodiesparkkryoregistrar",), _HUDI_IN_SPARK),
    "spark.sql.extensions": SettingRule(("org.apache.spark.sql.hudi.hoodiesparksessionextension",), _HUDI_IN_SPARK),
    "spark.sql.catalog.spark_catalog": SettingRule(
        ("org.apache.spark.sql.hudi.catalog.hoodiecatalog",), _HUDI_IN_SPARK
    ),
    "hoodie.auto.commit": SettingRule(("false",), _ONE_INSTANT),
    "hoodie.allow.multi.write.on.same.instant": SettingRule((), _ONE_INSTANT),
    "hoodie.meta.sync.enable": SettingRule(
        ("false",), "catalog.metastore.uris or catalog.class has the table registered, off the commit path"
    ),
}

FLAGS = frozenset({"spark.authenticate", "spark.ui.enabled", "spark.ui.killEnabled", "spark.ui.showConsoleProgress"})
"""Settings of Spark that are true or false. Spark knows no `yes`, so that all spellings are passed on as `true` or
`false`."""

_OTHER_ZONE = re.compile(r"-Duser\.timezone=(?![\"']?UTC\b)")

HIDDEN_PREFIXES = ("spark.hadoop.hoodie.", "spark.hoodie.")
"""Names under which a setting of Hudi would reach it by way of Spark, past the rules for it."""

_STREAMER: Mapping[str, str] = {
    "schemaprovider.registry.url": "Use schema.registry.url and schema.subject.",
    "schemaprovider.source.schema.file": "Use schema.file.",
    "source.kafka.topic": "Use kafka.topic.names.",
    "ingestion.tablesToBeIngested": "Name the tables beneath sinks.",
    "ingestion.targetBasePath": "Use target.base.path.",
    "kafka.source.maxEvents": "Use flush.size (of one partition) or flush.bytes.",
    "source.kafka.minPartitions": "Use slice.records: the more slices, the more tasks.",
    "source.kafka.enable.failOnDataLoss": "Use on.data.loss.",
    "source.kafka.enable.commit.offset": "Offsets live in the table's commits, nowhere else. Remove it.",
    "source.kafka.append.offsets": "Use provenance.columns.",
}

FOREIGN: Mapping[str, str] = {
    "kafka.topics": "is not a setting of Kafka's clients. Use kafka.topic.names.",
    "kafka.topic": "is not a setting of Kafka's clients. Use kafka.topic.names.",
    "connector.class": "belongs to Kafka Connect and means nothing here. Remove it.",
    "tasks.max": "belongs to Kafka Connect. The number of workers and spark.master decide the parallelism. Remove it.",
    "key.converter": "belongs to Kafka Connect. Use key.format.",
    "value.converter": "belongs to Kafka Connect. Use value.format, like avro-confluent.",
    "value.converter.schema.registry.url": "belongs to Kafka Connect. Use schema.registry.url.",
    "value.converter.schemas.enable": "belongs to Kafka Connect. A JSON value is the record itself. Remove it.",
    "iceberg.tables": "belongs to the Iceberg sink. Name the tables beneath sinks.",
    "iceberg.tables.dynamic-enabled": "belongs to the Iceberg sink. Use kafka.topic.regex, and {topic} in"
    " target.base.path.",
    "iceberg.tables.route-field": "belongs to the Iceberg sink. Records find their table by topic: use"
    " kafka.topic.regex, and {topic} in target.base.path.",
    "topics.dir": "belongs to the Confluent HDFS sink. Use target.base.path.",
    "hdfs.url": "belongs to the Confluent HDFS sink. Use target.base.path, like hdfs://namenode:8020/tables/orders.",
    "store.url": "belongs to the Confluent storage sinks. Use target.base.path.",
    "logs.dir": "belongs to the Confluent HDFS sink. There is no write-ahead log here. Remove it.",
    "format.class": "belongs to the Confluent storage sinks. The table is Hudi's. Remove it.",
    "partitioner.class": "belongs to the Confluent storage sinks. Use partition.field.name.",
    "partition.duration.ms": "belongs to the Confluent storage sinks. Use partition.time.format, like hourly.",
    "timestamp.extractor": "belongs to the Confluent storage sinks. Name a column, or _kafka_timestamp, with"
    " partition.time.field.",
    "locale": "belongs to the Confluent storage sinks. Partitions by time have no names of months or days. Remove it.",
    "rotate.interval.ms": "belongs to the Confluent storage sinks. Use transaction.interval.ms.",
    "rotate.schedule.interval.ms": "belongs to the Confluent storage sinks. Use transaction.interval.ms.",
    "hoodie.kafka.commit.interval.secs": "belongs to Hudi's Kafka Connect sink. Use transaction.interval.ms, like 60s.",
    "hoodie.kafka.coordinator.write.timeout.secs": "belongs to Hudi's Kafka Connect sink."
    " Use coordinator.writestatus.timeout, like 300s.",
    "hoodie.kafka.compaction.async.enable": "belongs to Hudi's Kafka Connect sink. Use services.compaction.",
    "hoodie.kafka.control.topic": "belongs to Hudi's Kafka Connect sink. ZooKeeper has its role here. Remove it.",
    "hoodie.kafka.allow.commit.on.errors": "belongs to Hudi's Kafka Connect sink. Use errors.tolerance.",
    "hoodie.schemaprovider.class": "belongs to Hudi's Kafka Connect sink. Use schema.ddl, schema.file or"
    " schema.subject.",
    **{
        f"hoodie.{tool}.{name}": f"belongs to Hudi Streamer. {remedy}"
        for tool in ("streamer", "deltastreamer")
        for name, remedy in _STREAMER.items()
    },
    "hoodie.meta.sync.classes": "is not used. Use catalog.class.",
}


def refusals(key: str, value: str) -> Iterator[str]:
    """Yields a sentence for every rule that this pass-through setting breaks."""
    rule = RULES.get(key)
    if refusal := rule.refusal(key, value) if rule else hudi_keys.problem(key, value):
        yield refusal
    if key.startswith(HIDDEN_PREFIXES):
        yield f"{key} is refused: settings of Hudi are checked under their own names. Set them as hoodie.*."
    if key.startswith("spark.") and key.endswith("JavaOptions") and _OTHER_ZONE.search(value):
        yield f"{key} is refused: Hudi names instants by the JVM's time zone, which is UTC. Remove -Duser.timezone."
    if key in FLAGS:
        try:
            flag(value)
        except ValueError as error:
            yield f"{key} {error}"


def canonical(key: str, value: str) -> str:
    """Returns the value in the form that every reader understands. Raises ValueError if there is none."""
    return str(flag(value)).lower() if key in FLAGS else hudi_keys.canonical(key, value)
