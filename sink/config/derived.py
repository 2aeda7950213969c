"""Values that follow from the settings of a sink, and that several parts need."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from sink.clients.spark.specification import ServedSink, SessionSpecification
from sink.config import kafka as config_kafka
from sink.config.every_field import SettingsFields
from sink.storage.access import HDFS_SCHEMES, S3_SCHEMES, Access, access_of, hdfs_access, schemes_of
from sink.storage.identity import process_keys
from sink.telemetry.redaction import Properties


class DerivedSettings(SettingsFields):
    """Every setting, and what follows from them."""

    @property
    def tolerant(self) -> bool:
        """Whether bad records go into the errors table."""
        return self.errors_tolerance == "all"

    @property
    def commit_allowance(self) -> float:
        """Seconds after which a commit is overdue, if records wait."""
        return max(self.normal_wait, self.writestatus_timeout_ms / 1000)

    @property
    def normal_wait(self) -> float:
        """The most seconds that a record waits where nothing is wrong."""
        return 3 * self.interval_ms / 1000

    @property
    def open_seconds(self) -> float:
        """Seconds after which an open Kafka transaction is a fault."""
        return self.open_transaction_ms / 1000

    @property
    def key_is_global(self) -> bool:
        """Whether a record key is one row in the whole table, and not one in each of its partitions."""
        return self.index_type == "record"

    @property
    def topic_pattern(self) -> str | None:
        """`kafka.topic.regex` without Kafka's internal topics and without the topic of bad records."""
        if self.topic_regex is None:
            return None
        excluded = "__" if self.errors_topic is None else f"__|{re.escape(self.errors_topic)}\\Z"
        return f"(?!{excluded})(?:{self.topic_regex})"

    @property
    def errors_table_name(self) -> str:
        return f"{self.table_name}_errors"

    @property
    def root_znode(self) -> str:
        """The path of this sink's znodes."""
        return f"{self.zookeeper_root.rstrip('/')}/{self.name}"

    @property
    def catalog_name(self) -> str:
        """The table's name in its catalogue, which also identifies the catalogue."""
        table = f"{self.catalog_database}.{self.catalog_table or self.table_name}"
        return f"{table} in {self.catalog_uris or self.catalog_class}"

    @property
    def kafka_native(self) -> Properties:
        """Settings for confluent-kafka's clients, `bootstrap.servers` included."""
        return config_kafka.for_native(self.bootstrap, self.kafka)

    @property
    def kafka_native_consumer(self) -> Properties:
        """Settings for confluent-kafka's Consumer that reads records, `bootstrap.servers` included."""
        return config_kafka.for_native_consumer(self.bootstrap, self.kafka)

    @property
    def base_paths(self) -> tuple[str, ...]:
        """The base paths of the table and of its errors table."""
        return self.base_path, self.errors_base_path

    @property
    def session(self) -> SessionSpecification:
        """The Spark session of this sink alone. Raises Unavailable, like `storage`."""
        return SessionSpecification(self.spark_master, self.spark, (self.served_sink,))

    @property
    def served_sink(self) -> ServedSink:
        """The sink as a Spark session knows it. Raises Unavailable, like `storage`."""
        return ServedSink(self.base_paths, self.storage, self.only_commits, self.in_flight)

    @property
    def storage(self) -> Access:
        """The access to the table's store at this moment, for every client of the table. Temporary keys change later.
        Raises Unavailable.
        """
        access = self.storage_as_set
        schemes = schemes_of(self.base_paths)
        if schemes & HDFS_SCHEMES:
            access = replace(access, hdfs=hdfs_access(self.spark, os.environ))
        if schemes & S3_SCHEMES and not access.has_keys:
            access = replace(access, process_keys=process_keys())
        return access

    @property
    def storage_as_set(self) -> Access:
        """Like `storage`, without looking up keys: asks no server."""
        return access_of(self.spark, self.s3_by_hadoops_names, os.environ)
