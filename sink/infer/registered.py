"""Derives the columns from a schema of the registry: for each field the type that holds all its values.

Guarantee: `sink.decode` can read the schema's records into these columns. A field that no column can hold is left out,
with a warning. Raises ConfigError for a schema that is not a record, or of another kind than value.format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastavro.schema import parse_schema
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.avro_columns import AvroReader
from sink.decode.proto_files import descriptor_set
from sink.decode.records import SchemaMismatch
from sink.decode.registry import RegisteredSchema, referred
from sink.infer.protobuf import columns_of_message
from sink.schema.avro import struct_of_avro
from sink.schema.warnings import OmittedField, SchemaWarning

_PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


@dataclass(frozen=True, slots=True)
class SchemaSelection:
    """A schema of the registry, and for Protobuf the message indexes."""

    schema: RegisteredSchema
    message_path: tuple[int, ...] = (0,)


def columns_of_registered(
    selection: SchemaSelection, kind: str, warnings: list[SchemaWarning]
) -> tuple[str, T.StructType]:
    schema = selection.schema
    origin = f"schema id {schema.id}"
    if schema.kind != kind:
        raise ConfigError(f"{origin} has kind {schema.kind}, and value.format has {kind}. Correct value.format.")
    try:
        if kind == "AVRO":
            return origin, columns_of_avro(schema.text, referred(schema), warnings)
        if kind == "JSON":
            # This imports a validator, which the other formats do not need.
            from sink.infer.json_schema import columns_of_json_schema

            return origin, columns_of_json_schema(schema, warnings)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    name, columns, message_warnings = columns_of_message(descriptor_set(schema), selection.message_path)
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


def columns_of_avro(schema: str, references: Sequence[str], warnings: list[SchemaWarning]) -> T.StructType:
    """Returns the fields that can be columns. Raises ConfigError for a schema that is not a record."""
    try:
        AvroReader(schema, T.StructType([]), references)
    except SchemaMismatch as error:
        raise ConfigError(f"{error}. Only the fields of a record can be columns.") from None
    named_types: dict[str, Any] = {}
    for reference in references:
        parse_schema(json.loads(reference), named_types)
    # `struct_of_avro` needs named types written out where they are used.
    expanded: Any = parse_schema(json.loads(schema), named_types, expand=True)
    fields = _fitting(expanded, "", warnings)
    return _struct_of(fields) if fields else T.StructType([])


def _struct_of(fields: list[dict[str, Any]]) -> T.StructType:
    return struct_of_avro(json.dumps({"type": "record", "name": "record", "fields": fields}))


def _fitting(record: Mapping[str, Any], path: str, warnings: list[SchemaWarning]) -> list[dict[str, Any]]:
    """Returns the fields that can be columns, without inner fields that cannot."""
    fitting_fields = []
    for field in record["fields"]:
        name, inner = field["name"], f"{path}{field['name']}"
        try:
            fitting = {"name": name, "type": _without_misfits(field["type"], inner, warnings)}
            _struct_of([fitting])
        except ConfigError as error:
            if field["type"] in ("null", ["null"]):
                warnings.append(f"left out: {inner}: it is always null")
                continue
            warnings.append(OmittedField(inner, str(error).removeprefix("schema: ").removeprefix(f"{name}: ")))
        else:
            fitting_fields.append(fitting)
    return fitting_fields


def _without_misfits(kind: Any, path: str, warnings: list[SchemaWarning]) -> Any:
    if isinstance(kind, list):
        return [_without_misfits(branch, path, warnings) for branch in kind] if len(kind) <= 2 else kind
    if isinstance(kind, str) and kind not in _PRIMITIVE:
        raise ConfigError(f"{kind} contains itself, which no column can")
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "array":
        return {**kind, "items": _without_misfits(kind["items"], f"{path}[]", warnings)}
    if kind["type"] == "map":
        return {**kind, "values": _without_misfits(kind["values"], f"{path}{{}}", warnings)}
    if kind["type"] == "record":
        return {**kind, "fields": _fitting(kind, f"{path}.", warnings)}
    if isinstance(kind["type"], (dict, list)):
        return {**kind, "type": _without_misfits(kind["type"], path, warnings)}
    return kind
