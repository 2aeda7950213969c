"""`Settings`: every setting of a sink with its name, type, default, bounds and meaning.

A value that exists is well formed and complete; anything else is pydantic's ValidationError, which
`config.load` turns into sentences. No secret is part of a `repr` or a dump. Voided by printing a value of
`Settings.kafka`, `.spark` or `.hudi` by hand.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from sink.config import kafka as config_kafka
from sink.config.contradictions import contradictions
from sink.config.redaction import Properties, redact_text
from sink.config.values import (
    BasePath,
    Column,
    Columns,
    Count,
    DurationMs,
    Ensemble,
    Flag,
    KeyFormatName,
    Name,
    Servers,
    Share,
    SizeBytes,
    Text,
    TimeFormat,
    TimeZone,
    TopicName,
    TopicNames,
    Urls,
    ValueFormatName,
    ZnodePath,
    text,
)

SINCE = "0.1"

Choice = BeforeValidator(lambda value: text(value).lower())
Capitals = BeforeValidator(lambda value: text(value).upper())


def setting(name: str, meaning: str, *, also: tuple[str, ...] = (), fleet: bool = False, **rest: Any) -> Any:
    """A field: `also` are further names for it; `fleet`: all workers of a sink must agree on it."""
    extra: dict[str, Any] = {"also": list(also), "fleet": fleet, "since": SINCE}
    return Field(alias=name, description=meaning, json_schema_extra=extra, **rest)


def _pass_through(value: Any) -> Properties:
    return value if isinstance(value, Properties) else Properties(value)


PassThrough = Annotated[Properties, BeforeValidator(_pass_through)]
Secret = Annotated[SecretStr, BeforeValidator(text)]


class Settings(BaseModel):
    """Everything a worker needs to know. Immutable; printing it shows no secrets."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )

    zookeeper: Ensemble = setting(
        "zookeeper.connect",
        "ZooKeeper ensemble: `host:port,...`, optionally with a `/chroot` at the end. Without a port: 2181.",
    )
    zookeeper_root: ZnodePath = setting(
        "zookeeper.root",
        "Znode below which the sinks of this fleet keep their state; `/` for the root of the tree.",
        default="/sink",
    )
    session_timeout_ms: DurationMs = setting(
        "zookeeper.session.timeout.ms",
        "How long a worker may be silent before the fleet takes it for dead. ZooKeeper itself bounds it (2"
        " to 20 of its ticks).",
        default=10_000,
        ge=1000,
        le=600_000,
    )
    zookeeper_ca: Path | None = setting(
        "zookeeper.ssl.ca.location",
        "Certificates (PEM) that ZooKeeper's may be signed by; relative to the configuration file. With it,"
        " connections are made by TLS only.",
        default=None,
    )
    zookeeper_certificate: Path | None = setting(
        "zookeeper.ssl.certificate.location",
        "The worker's own certificate (PEM), where ZooKeeper asks for one.",
        default=None,
    )
    zookeeper_key: Path | None = setting(
        "zookeeper.ssl.key.location", "The private key of that certificate (PEM).", default=None
    )
    zookeeper_key_password: Secret | None = setting(
        "zookeeper.ssl.key.password", "Password of the private key, if it has one.", default=None
    )
    zookeeper_username: Text | None = setting(
        "zookeeper.digest.username", "Name under which sessions are authenticated (scheme `digest`).", default=None
    )
    zookeeper_password: Secret | None = setting(
        "zookeeper.digest.password", "Password of `zookeeper.digest.username`.", default=None
    )
    zookeeper_acl: Annotated[Literal["open", "creator"], Choice] = setting(
        "zookeeper.acl",
        "Who may read and change znodes that workers make: anybody, or only who is authenticated as they are. The"
        " table lock's too: other writers of the table then need the same name.",
        default="open",
    )
    bootstrap: Servers = setting(
        "kafka.bootstrap.servers",
        "Kafka brokers to ask first: `host:port,...`.",
        also=("bootstrap.servers", "hoodie.streamer.source.kafka.bootstrap.servers"),
    )
    topics: TopicNames = setting(
        "kafka.topic.names", "Topics that land in the table.", also=("topics",), fleet=True
    )
    base_path: BasePath = setting(
        "target.base.path",
        "Where the table is: an absolute path or a URI that every worker can reach.",
        also=("hoodie.base.path",),
        fleet=True,
    )
    table_name: Name = setting(
        "target.table.name", "The table's name.", also=("hoodie.table.name",), fleet=True
    )
    table_type: Annotated[Literal["copy_on_write", "merge_on_read"], Choice] = setting(
        "target.table.type",
        "`copy_on_write`, or `merge_on_read` for upserts that append to log files, which a compaction of your own"
        " merges later.",
        also=("hoodie.table.type", "hoodie.datasource.write.table.type"),
        default="copy_on_write",
        fleet=True,
    )
    name: Name = setting(
        "sink.name",
        "Name of the sink: its place in ZooKeeper and in the table's checkpoints. Default: the table's name.",
        also=("name",),
        default_factory=lambda data: data.get("table_name", "sink"),
    )
    worker_id: Name = setting(
        "worker.id",
        "Name of this worker, unique in the fleet. Default: the host's name.",
        default_factory=socket.gethostname,
    )
    schema_ddl: Text | None = setting(
        "schema.ddl",
        "Columns of the record's value as Spark DDL, like `id BIGINT, amount DECIMAL(10,2)`. With `value.format` string"
        " or bytes: the one column, by default `value STRING` or `value BINARY`.",
        default=None,
    )
    schema_file: Path | None = setting(
        "schema.file",
        "File that holds the columns, as DDL or as an Avro schema; relative to the configuration file.",
        default=None,
    )
    schema_subject: Text | None = setting(
        "schema.subject",
        "Subject of the schema registry whose newest schema, Avro or Protobuf, has the columns: the table follows it.",
        default=None,
        fleet=True,
    )
    schema_compatibility: Annotated[Literal["NONE", "BACKWARD", "FORWARD", "FULL"], Capitals] = setting(
        "schema.compatibility",
        "How the table follows its records' columns. `BACKWARD`: nullable columns are added, and types widen that can."
        " `FULL`: columns are added, no type changes. `FORWARD`: the table stays as it is. Anything else halts the"
        " sink, with both schemas. `NONE`: what cannot change stays, and a record that does not fit is a bad record.",
        default="BACKWARD",
        fleet=True,
    )
    value_format: Annotated[ValueFormatName, Choice] = setting(
        "value.format",
        "How values are written. `-confluent`: behind the header of a schema registry, which names the schema that each"
        " value was written with; `avro` and `protobuf` alone are plain, by the schema of `value.schema.file`. Columns"
        " get the fields of their names.",
        default="json",
        fleet=True,
    )
    value_schema_file: Path | None = setting(
        "value.schema.file",
        "Schema that plain values are written with, relative to the configuration file: of Avro the JSON (by default"
        " `schema.file`, if that is Avro), of Protobuf a descriptor set (`protoc --include_imports"
        " --descriptor_set_out`) or a .proto file.",
        default=None,
    )
    value_envelope: Annotated[Literal["none", "debezium"], Choice] = setting(
        "value.envelope",
        "`debezium`: values are Debezium's change events (create, update, delete, snapshot), and the columns those of"
        " the changed row. Only with `write.operation=upsert`.",
        default="none",
        fleet=True,
    )
    debezium_ordering: Annotated[Literal["log", "lsn", "binlog", "ts_ms"], Choice] = setting(
        "debezium.ordering",
        "What orders the changes of a row: the order of the log, Postgres' `source.lsn`, MySQL's `source.file` and"
        " `source.pos`, or `source.ts_ms`. All but `log` add a column, `_debezium_` and this name.",
        default="log",
        fleet=True,
    )
    value_message: Text | None = setting(
        "value.message", "Full name of the Protobuf message that plain values are.", default=None, fleet=True
    )
    registry_urls: Urls = setting(
        "schema.registry.url",
        "Addresses of the schema registry (Confluent's API), asked in turn until one answers.",
        default=(),
    )
    registry_login: Secret | None = setting(
        "schema.registry.basic.auth.user.info", "Login to the schema registry, as `name:password`.", default=None
    )
    registry_ca: Path | None = setting(
        "schema.registry.ssl.ca.location",
        "Certificates (PEM) that the registry's may be signed by; relative to the configuration file.",
        default=None,
    )
    registry_certificate: Path | None = setting(
        "schema.registry.ssl.certificate.location", "The worker's own certificate (PEM).", default=None
    )
    registry_key: Path | None = setting(
        "schema.registry.ssl.key.location", "The private key of that certificate (PEM).", default=None
    )
    key_format: Annotated[Literal["none", "string", "bytes"], Choice] = setting(
        "key.format",
        "Add `_kafka_key`, the record's key as text or as bytes; `none` leaves it out.",
        default="none",
        fleet=True,
    )
    headers: Flag = setting(
        "headers.column",
        "Add `_kafka_headers`, the record's headers: an array of `key` and `value`.",
        default=False,
        fleet=True,
    )
    record_key_fields: Columns = setting(
        "record.key.fields",
        "Fields that make the record key. Default: topic, partition and offset.",
        also=("hoodie.datasource.write.recordkey.field",),
        default=(),
        fleet=True,
    )
    operation: Annotated[Literal["append", "insert", "upsert"], Choice] = setting(
        "write.operation",
        "`append` adds every record as a row, written by the whole fleet. `upsert` keeps one row for each record key,"
        " and `insert` adds rows to small files, both through Hudi's own writer on one worker at a time.",
        default="append",
        fleet=True,
    )
    ordering_fields: Columns = setting(
        "ordering.field.name",
        "Columns that decide which of two records of one key is newer, with `write.operation=upsert`. Default: the"
        " later one in the log.",
        default=(),
        fleet=True,
    )
    index_type: Annotated[Literal["bloom", "record", "bucket"], Choice] = setting(
        "index.type",
        "How an upsert finds a key's row: `bloom` filters in the data files, `record`, Hudi's global record index, or"
        " `bucket`, a hash of the key, which needs `hoodie.bucket.index.num.buckets`.",
        default="bloom",
        fleet=True,
    )
    delete_key_format: Annotated[KeyFormatName, Choice] = setting(
        "delete.key.format",
        "How the keys of Kafka's records hold the fields of `record.key.fields`, for records that have nothing else:"
        " tombstones, and Debezium's deletes without `before`. `string`: the one field; the others: fields by their"
        " names. With `none` a tombstone halts the sink, unless the record key is `_kafka_key`.",
        default="none",
        fleet=True,
    )
    partition_fields: Columns = setting(
        "partition.field.name",
        "Columns that the table is partitioned by. Default: not partitioned.",
        also=("hoodie.datasource.write.partitionpath.field",),
        default=(),
        fleet=True,
    )
    partition_time_field: Column | None = setting(
        "partition.time.field",
        "Column whose time the table is partitioned by, after `partition.field.name`: a TIMESTAMP, a DATE, a BIGINT"
        " (see `partition.time.unit`), or `_kafka_timestamp`. The table gets a column of text for it. Default: none.",
        also=("timestamp.field",),
        default=None,
        fleet=True,
    )
    partition_time_format: TimeFormat = setting(
        "partition.time.format",
        "`hourly`, `daily`, `monthly`, `yearly`, or a pattern of `yyyy`, `MM`, `dd`, `HH`, `mm`, other signs and quoted"
        " text, like `yyyy/MM/dd`.",
        also=("path.format", "hoodie.keygen.timebased.output.dateformat"),
        default="daily",
        fleet=True,
    )
    partition_time_zone: TimeZone = setting(
        "partition.time.zone",
        "Time zone of these hours and days, like `Europe/Berlin`. A DATE is the same day in all of them.",
        also=("timezone", "hoodie.keygen.timebased.timezone"),
        default="UTC",
        fleet=True,
    )
    partition_time_column: Column | None = setting(
        "partition.time.column",
        "Name of the column that is generated. Default: `hour`, `day`, `month` or `year` after the format,"
        " `partition_time` with a pattern.",
        default=None,
        fleet=True,
    )
    partition_time_unit: Annotated[Literal["s", "ms", "us"], Choice] = setting(
        "partition.time.unit", "What a BIGINT in `partition.time.field` counts since 1970.", default="ms", fleet=True
    )
    hive_style: Flag = setting(
        "partition.hive.style",
        "Partition directories are named `column=value`.",
        also=("hoodie.datasource.write.hive_style_partitioning",),
        default=True,
        fleet=True,
    )
    flush_size: Count = setting(
        "flush.size",
        "Most records (offsets) of one partition in one transaction.",
        default=5_000_000,
        ge=1,
        le=10**12,
        fleet=True,
    )
    flush_bytes: SizeBytes | None = setting(
        "flush.bytes",
        "Most bytes of records in one transaction, estimated from the last ones; a new coordinator counts 1 KiB each"
        " until it knows. A transaction that reaches this or `flush.size` does not wait for `transaction.interval.ms`."
        " Default: no bound.",
        default=None,
        ge=1,
        le=2**50,
        fleet=True,
    )
    slice_records: Count = setting(
        "slice.records",
        "Ranges are cut at multiples of it; each piece is one Spark task and one file group. Above"
        " `flush.size` it does not cut.",
        default=1_000_000,
        ge=1,
        le=10**12,
        fleet=True,
    )
    interval_ms: DurationMs = setting(
        "transaction.interval.ms",
        "How often a transaction is begun, if there are records.",
        default=60_000,
        ge=10,
        le=86_400_000,
    )
    writestatus_timeout_ms: DurationMs = setting(
        "coordinator.writestatus.timeout",
        "How long participants may take to write a transaction's slices before it"
        " is aborted and re-formed. Grows with each attempt.",
        default=300_000,
        ge=1000,
        le=86_400_000,
    )
    in_flight: Count = setting(
        "transactions.in.flight",
        "Transactions that may be open at once: 2 writes the next one while one commits.",
        default=1,
        ge=1,
        le=8,
    )
    offset_reset: Annotated[Literal["earliest", "latest"], Choice] = setting(
        "auto.offset.reset",
        "Where to start with a partition that neither the table nor ZooKeeper knows.",
        default="earliest",
        fleet=True,
    )
    on_data_loss: Annotated[Literal["fail", "skip"], Choice] = setting(
        "on.data.loss",
        "When Kafka deleted records before they were read: `fail` halts the sink, `skip` records the"
        " gap in the table's checkpoint and goes on.",
        default="fail",
        fleet=True,
    )
    errors_tolerance: Annotated[Literal["none", "all"], Choice] = setting(
        "errors.tolerance",
        "What to do with a record that cannot be decoded, or has no place in the table: `none` halts the sink and names"
        " it; `all` puts it into the errors table, exactly once, and goes on.",
        default="none",
        fleet=True,
    )
    errors_max: Count = setting(
        "errors.max.per.transaction",
        "A transaction with more bad records halts the sink, and nothing of it lands.",
        default=1000,
        ge=1,
        le=100_000,
        fleet=True,
    )
    errors_ratio: Share = setting(
        "errors.max.ratio",
        "A transaction of at least 100 records of which a greater share is bad halts the sink; 1 for no such limit.",
        default=0.5,
        ge=0.0,
        le=1.0,
        fleet=True,
    )
    errors_base_path: BasePath = setting(
        "errors.table.base.path",
        "Where the errors table is, which is made with the first bad record. Its name is that of the table with"
        " `_errors` behind it. Default: the table's base path with `_errors` behind it.",
        default_factory=lambda data: f"{data.get('base_path', '')}_errors",
        fleet=True,
    )
    errors_topic: TopicName | None = setting(
        "errors.deadletter.topic",
        "Kafka topic that gets a copy of each bad record, at least once, with Kafka Connect's headers"
        " (`__connect.errors.*`). It has to exist. Default: none.",
        default=None,
        fleet=True,
    )
    engine: Annotated[Literal["arrow", "hudi"], Choice] = setting(
        "write.engine",
        "`arrow` writes Hudi base files from Arrow batches; `hudi` uses Hudi's own row writer, for"
        " file systems that Arrow does not reach.",
        default="arrow",
        fleet=True,
    )
    provenance: Flag = setting(
        "provenance.columns",
        "Add `_kafka_topic`, `_kafka_partition`, `_kafka_offset` and `_kafka_timestamp`.",
        default=True,
        fleet=True,
    )
    file_max_bytes: SizeBytes = setting(
        "file.max.bytes",
        "A data file is closed and another begun at about this size.",
        default=128 * 1024**2,
        ge=64 * 1024,
        le=16 * 1024**3,
        fleet=True,
    )
    open_files_max: Count = setting(
        "file.open.max",
        "Most data files that one task keeps open: bounds memory when a slice spreads over many"
        " table partitions.",
        default=64,
        ge=1,
        le=10_000,
        fleet=True,
    )
    services_interval: Count = setting(
        "services.interval.commits",
        "After so many transactions the table services run again (cleaning, archiving, and those below), on one elected"
        " worker, off the commit path.",
        default=10,
        ge=1,
        le=1_000_000,
    )
    services_clustering: Flag = setting(
        "services.clustering",
        "Whether they also rewrite small files as larger ones, by Hudi's clustering and its `hoodie.clustering.*`"
        " settings. While that lasts, updates by others to rows of these files fail.",
        default=False,
    )
    services_compaction: Flag = setting(
        "services.compaction",
        "Whether they also compact a merge-on-read table, by Hudi's `hoodie.compact.*` settings.",
        default=True,
    )
    spark_master: Text = setting("spark.master", "Where Spark runs the work.", default="local[*]")
    rehearsal: Flag = setting(
        "worker.rehearsal",
        "Whether a worker that does not lead makes one commit in a table on its own disk that it throws away, soon"
        " after it has joined. It takes some five seconds, and a takeover is faster for it. Only where `spark.master`"
        " is local.",
        default=True,
    )
    log_dir: Path = setting(
        "log.dir",
        "Directory of the files that take Spark's and Hudi's own output; relative to the working directory.",
        default=Path("logs"),
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Choice] = setting(
        "log.level", "Least important events that are logged.", default="info"
    )
    log_format: Annotated[Literal["json", "console"], Choice] = setting(
        "log.format", "One line an event: `json` for machines, `console` for people.", default="json"
    )
    metrics_port: Count = setting(
        "metrics.port", "Port of the Prometheus metrics; 0 serves none.", default=0, ge=0, le=65535
    )
    kafka: PassThrough = setting(
        "kafka.*",
        "Any other setting of the Kafka consumer, under Kafka's own name.",
        default_factory=Properties,
    )
    spark: PassThrough = setting("spark.*", "Any other setting of Spark.", default_factory=Properties)
    hudi: PassThrough = setting(
        "hoodie.*", "Any other setting of Hudi.", default_factory=Properties, fleet=True
    )

    _schema_text: str = PrivateAttr(default="")

    @field_validator(
        "schema_file",
        "zookeeper_ca",
        "zookeeper_certificate",
        "zookeeper_key",
        "registry_ca",
        "registry_certificate",
        "registry_key",
        "value_schema_file",
        mode="before",
    )
    @classmethod
    def _beside_the_configuration(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return None
        directory = (info.context or {}).get("directory", Path())
        path = Path(directory, text(value)).absolute()
        try:
            content = path.read_bytes()
            if info.field_name != "value_schema_file":
                content.decode()
        except UnicodeDecodeError:
            raise ValueError(f"names {path}, which is not UTF-8 text") from None
        except (OSError, ValueError):
            raise ValueError(
                f"names {path}, which cannot be read; check the path and its permissions"
            ) from None
        return path

    @field_validator("log_dir", mode="before")
    @classmethod
    def _a_path(cls, value: Any) -> Any:
        return value if isinstance(value, Path) else Path(text(value))

    @model_validator(mode="after")
    def _one_schema(self, info: ValidationInfo) -> Settings:
        raw = RAW_COLUMNS.get(self.value_format, "")
        needed = (info.context or {}).get("columns", True)
        given = [name for name in COLUMNS if getattr(self, name.replace(".", "_")) is not None]
        if needed and (wrong := schema_problem(given, raw)):
            raise ValueError(wrong)
        content = self.schema_file.read_text() if self.schema_file else self.schema_ddl or raw
        object.__setattr__(self, "_schema_text", content.strip())
        return self

    @model_validator(mode="after")
    def _together(self) -> Settings:
        for wrong in contradictions(self):
            raise ValueError(wrong)
        return self

    @field_serializer("kafka", "spark", "hudi")
    def _without_secrets(self, value: Properties) -> dict[str, str]:
        return value.shown()

    @field_serializer("spark_master")
    def _without_userinfo(self, value: str) -> str:
        return redact_text(value)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield from ((name, _shown(value)) for name, value in super().__repr_args__())

    def __str__(self) -> str:
        return repr(self)

    @property
    def schema_text(self) -> str:
        """The columns as written: DDL, or an Avro schema as JSON."""
        return self._schema_text

    @property
    def tolerant(self) -> bool:
        """Whether bad records go into the errors table."""
        return self.errors_tolerance == "all"

    @property
    def errors_table_name(self) -> str:
        return f"{self.table_name}_errors"

    @property
    def kafka_java(self) -> Properties:
        """Settings for the Java consumer inside Spark, `bootstrap.servers` included, without a `kafka.`
        prefix.
        """
        return config_kafka.for_java(self.bootstrap, self.kafka)

    @property
    def kafka_native(self) -> Properties:
        """Settings for confluent-kafka's clients, `bootstrap.servers` included."""
        return config_kafka.for_native(self.bootstrap, self.kafka)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for whoever has to keep them out of a text."""
        held = (self.zookeeper_password, self.zookeeper_key_password, self.registry_login)
        own = [each.get_secret_value() for each in held if each]
        return (*own, *self.kafka.secrets(), *self.spark.secrets(), *self.hudi.secrets())

    @property
    def config_digest(self) -> str:
        """Names by content what all workers of a sink must agree on; no secrets, nothing of a single host."""
        agreed: dict[str, Any] = {
            name: getattr(self, name)
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra["fleet"]
        }
        agreed["topics"] = sorted(self.topics)
        if self.value_schema_file is not None:
            agreed["writer"] = hashlib.sha256(self.value_schema_file.read_bytes()).hexdigest()
        agreed["schema"] = re.sub(r"\s+", " ", self.schema_text)
        agreed["hudi"] = {k: v for k, v in sorted(self.hudi.items()) if not self.hudi.is_secret(k)}
        return hashlib.sha256(json.dumps(agreed, sort_keys=True, default=str).encode()).hexdigest()


RAW_COLUMNS = {"string": "value STRING", "bytes": "value BINARY"}
"""What a table of undecoded values has, unless schema.ddl says otherwise."""


COLUMNS = ("schema.ddl", "schema.file", "schema.subject")
"""One of them says what the columns are."""


def schema_problem(given: Collection[str], raw: str) -> str | None:
    """`given`: those that are set. `raw`: the columns where none is needed."""
    if len(given) == 1 or (raw and not given):
        return None
    found = f"{' and '.join(given)} are" if given else "none is"
    return f"one of {', '.join(COLUMNS[:-1])} and {COLUMNS[-1]} describes the records, but {found} set; set one"


def _shown(value: Any) -> Any:
    return redact_text(value) if isinstance(value, str) else value


def aliases() -> dict[str, str]:
    """Every name that a setting may be written under, to its proper name."""
    found: dict[str, str] = {}
    for field in Settings.model_fields.values():
        assert field.alias is not None
        assert isinstance(field.json_schema_extra, dict)
        if not field.alias.endswith(".*"):
            found[field.alias] = field.alias
            also = field.json_schema_extra["also"]
            assert isinstance(also, list)
            found |= {str(other): field.alias for other in also}
    return found
