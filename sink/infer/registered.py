"""Derives the columns from a schema of the registry: for each field the type that holds all its values.

Guarantee: `sink.decode` can read the schema's records into these columns. A field that no column can hold is left out,
with a warning. Raises ConfigError for a schema that is not a record, or of another kind than value.format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.avro_columns import parsed_record
from sink.decode.proto_files import descriptor_set
from sink.decode.records import SchemaMismatch
from sink.decode.registry import RegisteredSchema, referred
from sink.infer.protobuf import columns_of_message
from sink.schema.avro import column_type
from sink.schema.bounds import LARGEST, Place, SchemaBounds, SchemaTooLarge
from sink.schema.warnings import OmittedField, SchemaWarning

_PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


@dataclass(frozen=True, slots=True)
class SchemaSelection:
    """A schema of the registry, and for Protobuf the message indexes."""

    schema: RegisteredSchema
    message_path: tuple[int, ...] = (0,)


def columns_of_registered(
    selection: SchemaSelection, kind: str, warnings: list[SchemaWarning], bounds: SchemaBounds = LARGEST
) -> tuple[str, T.StructType]:
    schema = selection.schema
    origin = f"schema id {schema.id}"
    if schema.kind != kind:
        raise ConfigError(f"{origin} has kind {schema.kind}, and value.format has {kind}. Correct value.format.")
    try:
        if kind == "AVRO":
            return origin, columns_of_avro(schema.text, referred(schema), warnings, bounds)
        if kind == "JSON":
            # This imports a validator, which the other formats do not need.
            from sink.infer.json_schema import columns_of_json_schema

            return origin, columns_of_json_schema(schema, warnings, bounds)
        bounds.check_text(schema.text, *referred(schema))
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    name, columns, message_warnings = columns_of_message(descriptor_set(schema), selection.message_path, bounds)
    warnings += message_warnings
    return f"{name} of {origin}", columns


def nullable(struct: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(field.name, _nullable(field.dataType)) for field in struct.fields])


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return nullable(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType))
    return T.MapType(kind.keyType, _nullable(kind.valueType)) if isinstance(kind, T.MapType) else kind


def columns_of_avro(
    schema: str, references: Sequence[str], warnings: list[SchemaWarning], bounds: SchemaBounds = LARGEST
) -> T.StructType:
    """Returns the fields that can be columns. Raises ConfigError for a schema that is not a record."""
    bounds.check_text(schema, *references)
    try:
        record, named_types = parsed_record(schema, references, bounds)
    except SchemaMismatch as error:
        raise ConfigError(f"{error}. Only the fields of a record can be columns.") from None
    place = Place.root(bounds)
    try:
        return T.StructType(_AvroWalk(named_types, warnings).fields_of(record, place))
    except RecursionError:
        raise place.too_deep() from None


class _AvroWalk:
    """Walks through a parsed schema, in which a type that was defined before is only a name."""

    def __init__(self, named_types: Mapping[str, Any], warnings: list[SchemaWarning]) -> None:
        self._named_types = named_types
        self._warnings = warnings
        self._enclosing: list[str] = []

    def fields_of(self, record: Mapping[str, Any], place: Place) -> list[T.StructField]:
        """Returns the fields that can be columns, without inner fields that cannot."""
        fields = []
        self._enclosing.append(record["name"])
        for field in record["fields"]:
            inner = place.field(field["name"])
            try:
                fields.append(T.StructField(field["name"], *self._column(field["type"], inner)))
            except SchemaTooLarge:
                raise
            except ConfigError as error:
                if field["type"] in ("null", ["null"]):
                    self._warnings.append(f"left out: {inner}: it is always null")
                else:
                    self._warnings.append(OmittedField(inner.path, _without_place(str(error), inner)))
        self._enclosing.pop()
        return fields

    def _column(self, schema: Any, place: Place) -> tuple[T.DataType, bool]:
        """Returns the type of a column, and whether null is allowed."""
        if isinstance(schema, list):
            not_null = [branch for branch in schema[:2] if branch != "null"]
            if len(not_null) != 1 or len(schema) > 2:
                return column_type(schema, place)
            return self._column(not_null[0], place.step())[0], len(schema) == 2
        if isinstance(schema, str) and schema not in _PRIMITIVE:
            if schema in self._enclosing:
                raise ConfigError(f"{schema} contains itself, which no column can")
            return self._column(self._named_types[schema], place.step())
        if not isinstance(schema, dict):
            return column_type(schema, place)
        kind = schema["type"]
        if kind == "array":
            return T.ArrayType(*self._column(schema["items"], place.element())), False
        if kind == "map":
            return T.MapType(T.StringType(), *self._column(schema["values"], place.value())), False
        if kind == "record":
            fields = self.fields_of(schema, place)
            if not fields:
                raise ConfigError(f"{place} has no fields; Parquet has no such columns")
            return T.StructType(fields), False
        if isinstance(kind, (dict, list)):
            return self._column(kind, place.step())[0], False
        return column_type(schema, place)


def _without_place(reason: str, place: Place) -> str:
    """Returns the reason without the place, which stands before it."""
    reason = reason.removeprefix("schema: ")
    return reason.partition(": ")[2] if reason.startswith((f"{place}: ", f"{place}[]", f"{place}{{}}")) else reason
