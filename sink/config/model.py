"""`Settings`: every setting of a sink with its name, type, default, bounds and meaning.

Every instance is well formed and complete; anything else raises pydantic's ValidationError, which `load_configuration`
turns into sentences. No secret is part of a `repr` or a dump. Printing a value of `Settings.kafka`, `.spark` or `.hudi`
by hand voids this.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import field_serializer, model_validator

from sink.clients.session_specification import ServedSink, SessionSpecification
from sink.config import kafka as config_kafka
from sink.config.contradictions import contradictions
from sink.config.every_field import ProcessSettings, SettingsFields
from sink.storage.access import HDFS_SCHEMES, S3_SCHEMES, Access, access_of, hdfs_access, schemes_of
from sink.storage.identity import process_keys
from sink.telemetry.redaction import Properties, redact_text


class Settings(SettingsFields):
    """Everything a worker needs to know. Immutable; printing it shows no secrets."""

    @model_validator(mode="after")
    def _require_consistent(self) -> Settings:
        for contradiction in contradictions(self):
            raise ValueError(contradiction)
        return self

    @field_serializer("kafka", "spark", "hudi")
    def _without_secrets(self, value: Properties) -> dict[str, str]:
        return value.redacted()

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, redact_text(value) if isinstance(value, str) else value

    def __str__(self) -> str:
        return repr(self)

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

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, to keep them out of a text."""
        credentials = (self.zookeeper_password, self.zookeeper_key_password, self.registry_login, self.http_token)
        credential_values = [secret.get_secret_value() for secret in credentials if secret]
        return (
            *credential_values,
            *self.kafka.secrets(),
            *self.spark.secrets(),
            *self.hudi.secrets(),
            *self.storage_as_set.secrets,
        )

    @property
    def config_digest(self) -> str:
        """A SHA-256 of the settings that all workers of a sink must agree on; no secrets, nothing of a single host."""
        agreed: dict[str, Any] = {
            name: getattr(self, name)
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra["same_on_all_workers"]
        }
        agreed["topics"] = sorted(self.topics)
        if self.topic_regex is None:
            del agreed["topic_regex"]
        if self.value_schema_file is not None:
            agreed["writer"] = hashlib.sha256(self.value_schema_file.read_bytes()).hexdigest()
        agreed["schema"] = re.sub(r"\s+", " ", self.schema_text)
        agreed["hudi"] = {k: v for k, v in sorted(self.hudi.items()) if not self.hudi.is_secret(k)}
        return hashlib.sha256(json.dumps(agreed, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def process(self) -> ProcessSettings:
        """The settings that a worker's process has once, for all its sinks."""
        names = ProcessSettings.model_fields
        # A default may give way where a written setting may not.
        written = self.model_fields_set & names.keys()
        return ProcessSettings.model_construct(written, **{name: getattr(self, name) for name in names})


@cache
def aliases() -> Mapping[str, str]:
    """Maps every name that a setting may be written under to its proper name."""
    names: dict[str, str] = {}
    for field in Settings.model_fields.values():
        extra: Any = field.json_schema_extra
        if field.alias is not None and not field.alias.endswith(".*"):
            names |= dict.fromkeys((field.alias, *extra["also"]), field.alias)
    return names


def is_of_process(key: str) -> bool:
    """Whether the setting belongs to the whole process, under any of its names."""
    return key.startswith("spark.") or aliases().get(key) in _OF_PROCESS


_OF_PROCESS = frozenset(field.alias for field in ProcessSettings.model_fields.values())
