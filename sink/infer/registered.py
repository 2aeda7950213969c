"""Derives columns from a registered schema: a column for each field, with the type that holds all its values.

Guarantee: `sink.decode` can read the schema's records into these columns. A field that no column can hold is left out,
with a warning. Raises ConfigError for a schema that is not a record, has no such message, exceeds the bounds, or has
another kind than value.format; for Protobuf also MissingCompiler and Unavailable, if this host cannot compile it now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.protobuf.files import descriptor_set
from sink.decode.registry.client import RegisteredSchema, referred
from sink.infer.protobuf import columns_of_message
from sink.schema.avro import record_columns
from sink.schema.avro_types import parse_avro
from sink.schema.bounds import LARGEST, SchemaBounds
from sink.schema.warnings import SchemaWarning


@dataclass(frozen=True, slots=True)
class SchemaSelection:
    """A registered schema, and for Protobuf the message in it: its full name, or its indexes as in the header of the
    wire format. `(0,)` is the first message. Other kinds ignore it.
    """

    schema: RegisteredSchema
    message: str | tuple[int, ...] = (0,)


def columns_of_registered(
    selection: SchemaSelection, kind: str, warnings: list[SchemaWarning], bounds: SchemaBounds = LARGEST
) -> tuple[str, T.StructType]:
    """Returns where the columns come from, for messages, and the columns. Appends to `warnings`. `kind` is that of
    value.format: AVRO, JSON or PROTOBUF.
    """
    schema = selection.schema
    origin = f"schema id {schema.id}"
    if schema.kind != kind:
        raise ConfigError(f"{origin} is of kind {schema.kind}, and value.format is for {kind}. Correct value.format.")
    try:
        if kind == "AVRO":
            return origin, columns_of_avro(schema.text, referred(schema), warnings, bounds)
        if kind == "JSON":
            # Imported here: it needs a validator that the other formats do not.
            from sink.infer.json_schema import columns_of_json_schema

            return origin, columns_of_json_schema(schema, warnings, bounds)
        bounds.check_text(schema.text, *referred(schema))
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    # Its errors name the schema already.
    descriptors = descriptor_set(schema)
    try:
        name, columns, message_warnings = columns_of_message(descriptors, selection.message, bounds)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    warnings += message_warnings
    return f"{name} of {origin}", columns


def nullable(struct: T.StructType) -> T.StructType:
    """Returns the columns with everything nullable: fields at all levels, elements, values of maps."""
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
    """Returns the columns of an Avro record. `references` are the texts of the schemas that it refers to, each after
    its own references. Appends to `warnings`. Raises ConfigError for a schema that is not a record.
    """
    bounds.check_text(schema, *references)
    return record_columns(parse_avro([*references, schema], bounds), bounds, warnings)
