"""The columns of the table, declared once, in the forms that Spark, Arrow and Avro need.

Guarantee: the forms agree: Hudi and Spark read back what the Arrow engine writes. Needs no JVM. Voided by another
writer that changes the table's columns. Raises ConfigError, with the position in the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.avro import AVRO_NAME, avro_schema, struct_of_avro
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace
from sink.schema.ddl import parse_struct
from sink.schema.storage_types import storage_struct, storage_type
from sink.schema.warnings import OmittedField

RESERVED_PREFIXES = ("_hoodie_", "_kafka_", "_debezium_", "_sink_")
META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
PROVENANCE = T.StructType(
    [
        T.StructField("_kafka_topic", T.StringType()),
        T.StructField("_kafka_partition", T.IntegerType()),
        T.StructField("_kafka_offset", T.LongType()),
        T.StructField("_kafka_timestamp", T.TimestampType()),
    ]
)
IS_DELETED = "_hoodie_is_deleted"
"""Hudi's column that is true in a record which deletes the row of its key."""
KEY = "_kafka_key"
HEADERS = "_kafka_headers"
HEADERS_TYPE = T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]))

_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table. `value_struct` has the declared columns, which the value of a record must satisfy. The
    table adds the provenance of the record, its key as string or binary, its headers, and `generated` string columns.
    In an upsert table `change` has the columns that describe a change, and every value column is nullable, because a
    delete may have only the key. `left_out` are the fields of the registry's schema that no column holds. `types` are
    the full names of the record types that land; empty where nothing names them. `specification` says how records are
    decoded, as a JSON object."""

    value_struct: T.StructType
    provenance: bool = True
    key: T.StringType | T.BinaryType | None = None
    headers: bool = False
    generated: tuple[str, ...] = ()
    change: T.StructType | None = None
    left_out: tuple[OmittedField, ...] = ()
    types: tuple[str, ...] = ()
    specification: str = "{}"

    @cached_property
    def spark(self) -> T.StructType:
        """The columns of the table as Spark reads it. Avro has no 8 and 16 bit integers: Spark reads int."""
        generated = [T.StructField(name, T.StringType()) for name in self.generated]
        values = (
            storage_struct(self.value_struct) if self.change is None else _nullable(storage_struct(self.value_struct))
        )
        change = [] if self.change is None else self.change.fields
        return T.StructType(values.fields + self.added.fields + change + generated)

    @property
    def unchecked(self) -> T.StructType:
        """The value columns, each of which may be null."""
        return _nullable(self.value_struct)

    @cached_property
    def added(self) -> T.StructType:
        """The columns from the record itself: provenance, key and headers."""
        key = [T.StructField(KEY, self.key)] if self.key else []
        headers = [T.StructField(HEADERS, HEADERS_TYPE)] if self.headers else []
        return T.StructType([*(PROVENANCE.fields if self.provenance else []), *key, *headers])

    @cached_property
    def columns_json(self) -> str:
        """The value columns as JSON, for `with_columns`, with types and specification. DDL would lose which elements
        may be null."""
        tree = self.value_struct.jsonValue() | {"types": list(self.types), "specification": self.specification}
        return json.dumps(tree, separators=(",", ":"), sort_keys=True)

    @property
    def specification_json(self) -> str:
        """The specification for a commit, with the types that land, and with the columns where those of the table say
        less: Avro has no small integers, and in an upsert table every column may be null."""
        tree = json.loads(self.specification) | ({"types": list(self.types)} if self.types else {})
        if self.spark.fields[: len(self.value_struct.fields)] != self.value_struct.fields:
            tree["columns"] = self.value_struct.jsonValue()
        return json.dumps(tree, separators=(",", ":"), sort_keys=True)

    def with_columns(self, columns_json: str) -> TableSchema:
        """Returns the schema with these value columns, types and specification; for an empty text, unchanged."""
        if not columns_json:
            return self
        tree = json.loads(columns_json)
        return replace(
            self,
            value_struct=T.StructType.fromJson(tree),
            types=tuple(tree["types"]),
            specification=tree["specification"],
        )

    @cached_property
    def stored_arrow(self) -> pa.Schema:
        """The value columns in the types of the table."""
        return arrow_schema(storage_struct(self.value_struct))

    @cached_property
    def arrow(self) -> pa.Schema:
        """All columns of the table."""
        return arrow_schema(self.spark)

    def avro(self, table_name: str) -> str:
        """Returns the Avro schema that Hudi writes into its commits."""
        return avro_schema(self.spark, table_name)

    def column_errors(
        self,
        names: Sequence[str],
        setting: str,
        allowed: Sequence[type[T.DataType]],
        ways: Mapping[type[T.DataType], str] = MappingProxyType({}),
    ) -> Iterator[ConfigError]:
        """Yields an error for each name in a setting that is not a column, or a column of a type that is not `allowed`.
        `ways` say why a type is not, and what to do."""
        kinds = {field.name: field.dataType for field in self.spark.fields}
        for name in names:
            column = name.partition(".")[0]
            if name not in kinds and column in kinds:
                yield ConfigError(
                    f"{setting}: {name!r} is a field inside of column {column!r}, and Hudi's keys and partitions are"
                    " columns. Have the producer write it beside that column (Kafka Connect: the transform Flatten), or"
                    " take the record's own key: key.format=string and `_kafka_key`."
                )
            elif name not in kinds:
                yield ConfigError(f"{setting}: no column {name!r} in the schema. Use one of {', '.join(kinds)}.")
            elif not isinstance(kinds[name], tuple(allowed)):
                served = ", ".join(sorted(allowed_type.typeName() for allowed_type in allowed))
                way = ways.get(type(kinds[name]), f"Use a column of type {served}")
                yield ConfigError(f"{setting}: column {name!r} has type {kinds[name].simpleString()}. {way}.")


def parse_ddl(
    declaration: str, provenance: bool = True, origin: str = "schema", bounds: SchemaBounds = LARGEST
) -> TableSchema:
    """Parses Spark DDL (`id bigint not null, tags array<string>`) or an Avro record in JSON.

    `origin` names the text in an error.
    """
    try:
        return TableSchema(_struct(declaration, bounds), provenance)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{origin}: types are nested too deeply. Flatten them.") from None


def _struct(declaration: str, bounds: SchemaBounds) -> T.StructType:
    if not declaration.strip():
        raise ConfigError("it is empty. Give columns as DDL, for instance `id bigint, name string`.")
    is_avro = declaration.lstrip().startswith("{")
    struct = struct_of_avro(declaration, bounds) if is_avro else parse_struct(declaration)
    check_columns(struct, bounds)
    for field in struct.fields:
        if field.name.lower().startswith(RESERVED_PREFIXES):
            raise ConfigError(
                f"column {field.name!r} has a reserved name: Hudi and the sink add such columns. Rename it."
            )
    return struct


def arrow_schema(struct: T.StructType) -> pa.Schema:
    return pa.schema(list(arrow_type(struct)))


def arrow_type(kind: T.DataType) -> pa.DataType:
    """Returns the Arrow type. Children have Spark's names in Parquet: element, key, value."""
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, T.MapType):
        value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", pa.string(), nullable=False), value)
    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in kind.fields])
    return _ARROW[type(kind)]


def stored_type(kind: T.DataType) -> pa.DataType:
    """Returns the Arrow type in which the table stores a declared type."""
    return arrow_type(storage_type(kind))


def _nullable(struct: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(field.name, field.dataType) for field in struct.fields])


def check_columns(struct: T.StructType, bounds: SchemaBounds) -> None:
    """Checks the names of all columns, and their number and depth. Raises ConfigError."""
    _check_names(struct, SchemaPlace.root(bounds))


def _check_names(kind: T.DataType, place: SchemaPlace) -> None:
    if isinstance(kind, T.ArrayType):
        _check_names(kind.elementType, place.step())
    elif isinstance(kind, T.MapType):
        _check_names(kind.valueType, place.step())
    elif isinstance(kind, T.StructType):
        seen: set[str] = set()
        for field in kind.fields:
            inner = place.field(field.name)
            if not AVRO_NAME.fullmatch(field.name):
                raise ConfigError(
                    f"Hudi cannot have a column named {inner.path!r}. Use letters, digits and _, no digit"
                    " first, and name its field in field.names."
                )
            if field.name.lower() in seen:
                raise ConfigError(f"column {inner.path!r} occurs twice (Spark ignores case). Rename one.")
            seen.add(field.name.lower())
            _check_names(field.dataType, inner)
