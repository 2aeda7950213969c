"""The settings that say how Kafka's records are decoded: their format, their columns, and where their schemas are."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, PrivateAttr, ValidationInfo, model_validator

from sink.config.fields import BinaryFile, Capitals, Choice, Secret, SettingGroup, TextFile, setting
from sink.config.values import Flag, Text, TypeNames, Urls, ValueFormatName, count

if TYPE_CHECKING:
    from sink.schema.bounds import SchemaBounds

RAW_COLUMNS = {"string": "value STRING", "bytes": "value BINARY"}
"""The columns, as DDL, of each `value.format` that decodes nothing, if no setting gives them."""

COLUMN_SETTINGS = ("schema.ddl", "schema.file", "schema.subject")
"""Settings that give the columns. Exactly one of them is set, or none if `RAW_COLUMNS` has the format."""


def schema_problem(set_names: Collection[str], raw_columns: str) -> str | None:
    """Returns the problem with the settings of `COLUMN_SETTINGS` that are set, which are `set_names`; None without one.
    `raw_columns` are the format's own columns, which need no setting; empty without any.
    """
    if len(set_names) == 1 or (raw_columns and not set_names):
        return None
    listed = f"{' and '.join(set_names)} are" if set_names else "none is"
    *first, last = COLUMN_SETTINGS
    return f"one of {', '.join(first)} and {last} gives the columns, but {listed} set. Set one."


class RecordSettings(SettingGroup):
    schema_ddl: Text | None = setting(
        "schema.ddl",
        "Columns of the record's value as Spark DDL, like `id BIGINT, amount DECIMAL(10,2)`. With `value.format` string"
        " or bytes: the one column, by default `value STRING` or `value BINARY`.",
        default=None,
    )
    schema_file: TextFile = setting(
        "schema.file",
        "File that holds the columns, as DDL or as an Avro schema; relative to the configuration file.",
        default=None,
    )
    schema_subject: Text | None = setting(
        "schema.subject",
        "Subject of the schema registry. Its newest schema gives the columns, and the table follows it.",
        default=None,
        same_on_all_workers=True,
    )
    schema_compatibility: Annotated[Literal["NONE", "BACKWARD", "FORWARD", "FULL"], Capitals] = setting(
        "schema.compatibility",
        "How the table follows changes of its records' columns. `BACKWARD`: nullable columns are added, and types are"
        " widened where that is possible. `FULL`: columns are added, and no type changes. `FORWARD`: the table stays as"
        " it is. Any other change halts the sink, and the halt shows both schemas. `NONE`: other changes are ignored,"
        " and a record that does not fit the table is a bad record.",
        default="BACKWARD",
        same_on_all_workers=True,
    )
    schema_widen_decimals: Flag = setting(
        "schema.widen.decimals",
        "Whether a DECIMAL may get more digits than its older files have bytes for (`DECIMAL(9,2)` to"
        " `DECIMAL(18,2)`). Spark's filters on such a column fail, unless its readers set"
        " `spark.sql.parquet.filterPushdown.decimal=false`.",
        default=False,
        same_on_all_workers=True,
    )
    schema_max_columns: Annotated[int, BeforeValidator(count)] = setting(
        "schema.max.columns",
        "The most columns, nested ones included, of a schema in the registry or in a file. A larger schema is refused"
        " before it is unfolded: a few lines that refer to each other can stand for millions of columns.",
        default=5_000,
        ge=1,
        le=100_000,
        same_on_all_workers=True,
    )
    schema_max_levels: Annotated[int, BeforeValidator(count)] = setting(
        "schema.max.levels",
        "The most levels to which the types of a schema may be nested.",
        default=64,
        ge=1,
        le=100,
        same_on_all_workers=True,
    )
    value_format: Annotated[ValueFormatName, Choice] = setting(
        "value.format",
        "How values are written. With `-confluent` each value begins with the header of a schema registry's"
        " serializer, which names the value's schema. `avro` and `protobuf` are values without a header:"
        " `value.schema.file` has their schema. A field fills the column of its name.",
        default="json",
        same_on_all_workers=True,
    )
    value_schema_file: BinaryFile = setting(
        "value.schema.file",
        "File with the schema of values without a header, relative to the configuration file. For Avro the schema as"
        " JSON, by default `schema.file` if that is Avro. For Protobuf a descriptor set (`protoc --include_imports"
        " --descriptor_set_out`) or a .proto file.",
        default=None,
    )
    value_envelope: Annotated[Literal["none", "debezium"], Choice] = setting(
        "value.envelope",
        "`debezium`: values are Debezium's change events (create, update, delete, snapshot), and the columns are those"
        " of the changed row. Only with `write.operation=upsert`.",
        default="none",
        same_on_all_workers=True,
    )
    debezium_ordering: Annotated[Literal["log", "lsn", "binlog", "ts_ms"], Choice] = setting(
        "debezium.ordering",
        "What orders the changes of a row: the order of the log, Postgres' `source.lsn`, MySQL's `source.file` and"
        " `source.pos`, or `source.ts_ms`. All but `log` add a column that is named after the choice, like"
        " `_debezium_lsn`.",
        default="log",
        same_on_all_workers=True,
    )
    debezium_before: Annotated[Literal["key", "row"], Choice] = setting(
        "debezium.before",
        "What a delete has in `before`: only the `key`, with empty texts and zeros in all other columns, or the whole"
        " `row` (Postgres: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL). A table that is partitioned by columns"
        " outside its key needs `row`, or `index.type=record`.",
        default="key",
        same_on_all_workers=True,
    )
    value_message: Text | None = setting(
        "value.message",
        "Full name of the Protobuf message that values without a header are. Of values with a header: the message"
        " whose fields are the columns, needed if the schema of `schema.subject` has several messages.",
        default=None,
        same_on_all_workers=True,
    )
    schema_types: TypeNames = setting(
        "schema.types",
        "Full names of the Avro records or Protobuf messages that land, like `shop.Order`, if a topic has records of"
        " several types. A record of another type is bad. Default: `value.message`, or the type of the newest schema"
        " of `schema.subject`.",
        default=(),
        same_on_all_workers=True,
    )
    registry_urls: Urls = setting(
        "schema.registry.url",
        "Addresses of the schema registry (Confluent's API), asked in turn until one answers.",
        default=(),
    )
    registry_name: Text = setting(
        "schema.registry.name",
        "Name of the registry whose schema ids the records carry. Set another name once the registry was built anew:"
        " its ids stand for other schemas then. Under the same name, an id whose schema changes halts the sink.",
        default="",
        same_on_all_workers=True,
    )
    registry_login: Secret | None = setting(
        "schema.registry.basic.auth.user.info", "Login to the schema registry, as `name:password`.", default=None
    )
    registry_ca: TextFile = setting(
        "schema.registry.ssl.ca.location",
        "Certificates (PEM) of the authorities that may have signed the registry's; relative to the configuration"
        " file.",
        default=None,
    )
    registry_certificate: TextFile = setting(
        "schema.registry.ssl.certificate.location", "The worker's own certificate (PEM).", default=None
    )
    registry_key: TextFile = setting(
        "schema.registry.ssl.key.location", "The private key of that certificate (PEM).", default=None
    )
    key_format: Annotated[Literal["none", "string", "bytes"], Choice] = setting(
        "key.format",
        "Adds the column `_kafka_key`, the record's key as text or as bytes; `none` leaves it out.",
        default="none",
        same_on_all_workers=True,
    )
    headers: Flag = setting(
        "headers.column",
        "Adds the column `_kafka_headers`, the record's headers: an array of structs of `key` and `value`.",
        default=False,
        same_on_all_workers=True,
    )

    _schema_text: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _one_schema(self, info: ValidationInfo) -> RecordSettings:
        raw_columns = RAW_COLUMNS.get(self.value_format, "")
        # `sink infer`, for example, loads a configuration without columns.
        is_needed = (info.context or {}).get("columns", True)
        set_names = [name for name in COLUMN_SETTINGS if getattr(self, name.replace(".", "_")) is not None]
        if is_needed and (problem := schema_problem(set_names, raw_columns)):
            raise ValueError(problem)
        content = self.schema_file.read_text("utf-8") if self.schema_file else self.schema_ddl or raw_columns
        object.__setattr__(self, "_schema_text", content.strip())
        return self

    @property
    def schema_bounds(self) -> SchemaBounds:
        # Imported here: `sink.schema` imports PySpark and Arrow, which commands that only load settings do without.
        from sink.schema.bounds import SchemaBounds

        return SchemaBounds(self.schema_max_columns, self.schema_max_levels)

    @property
    def schema_text(self) -> str:
        """The columns as the user wrote them: DDL, or an Avro schema as JSON. Empty with schema.subject."""
        return self._schema_text
