"""Derives columns from a Protobuf message: a column for each field, with the type that holds all its values.

Guarantee: `sink.decode.protobuf` can read every such message into these columns. All columns are nullable, because a
message may lack any field. Columns of google.protobuf.Timestamp have microseconds: they lose the last three digits of
its nanoseconds. Left out, each with a warning: a message within itself, a message without a field that can be a column,
and google.protobuf.Any. Raises ConfigError if the descriptors have no such message, SchemaTooLarge beyond the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as T

from sink.decode.protobuf.descriptors import descriptor_of, map_entry
from sink.decode.protobuf.json import JSON_TYPES
from sink.decode.protobuf.types import WRAPPERS
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace
from sink.schema.warnings import OmittedField, SchemaWarning

_Type = FieldDescriptor
_SCALARS: dict[int, T.DataType] = {
    **dict.fromkeys((_Type.TYPE_INT32, _Type.TYPE_SINT32, _Type.TYPE_SFIXED32), T.IntegerType()),
    **dict.fromkeys((_Type.TYPE_UINT32, _Type.TYPE_FIXED32), T.LongType()),
    **dict.fromkeys((_Type.TYPE_INT64, _Type.TYPE_SINT64, _Type.TYPE_SFIXED64), T.LongType()),
    **dict.fromkeys((_Type.TYPE_UINT64, _Type.TYPE_FIXED64), T.DecimalType(20, 0)),
    _Type.TYPE_FLOAT: T.FloatType(),
    _Type.TYPE_DOUBLE: T.DoubleType(),
    _Type.TYPE_BOOL: T.BooleanType(),
    _Type.TYPE_STRING: T.StringType(),
    _Type.TYPE_ENUM: T.StringType(),
    _Type.TYPE_BYTES: T.BinaryType(),
}
_MESSAGES: dict[str, T.DataType] = {
    "google.protobuf.Timestamp": T.TimestampType(),
    "google.type.Date": T.DateType(),
    # Struct, Value and ListValue become JSON.
    **dict.fromkeys(JSON_TYPES, T.StringType()),
}
_ANY = "google.protobuf.Any"
_DECIMALS = ("google.type.Decimal", "confluent.type.Decimal")


def columns_of_message(
    descriptors: bytes, message: str | Sequence[int], bounds: SchemaBounds = LARGEST
) -> tuple[str, T.StructType, tuple[SchemaWarning, ...]]:
    """Returns the full name of the message, its columns (possibly none), and warnings.

    `descriptors` is a serialized FileDescriptorSet. `message` is the message's full name, or its indexes as in the
    header of the wire format: its position in the last file, then in each enclosing message.
    """
    warnings: list[SchemaWarning] = []
    descriptor = descriptor_of(descriptors, message)
    struct = _struct(descriptor, SchemaPlace.root(bounds), (), warnings)
    return descriptor.full_name, struct or T.StructType([]), tuple(warnings)


def _struct(
    message: Descriptor, place: SchemaPlace, enclosing: tuple[str, ...], warnings: list[SchemaWarning]
) -> T.StructType | None:
    """Returns the columns; None if no field can be a column. `enclosing` has the full names of the messages around this
    one, outermost first.
    """
    fields = []
    for field in message.fields:
        column_type = _type(field, place.field(field.name), (*enclosing, message.full_name), warnings)
        if column_type is not None:
            fields.append(T.StructField(field.name, column_type))
    return T.StructType(fields) if fields else None


def _type(
    field: FieldDescriptor, place: SchemaPlace, enclosing: tuple[str, ...], warnings: list[SchemaWarning]
) -> T.DataType | None:
    """Returns the type of a field's column, which may be a map or an array; None if no column can hold it."""
    entry = map_entry(field)
    if entry is not None:
        # A map column has STRING keys, whatever the field's are.
        value = _single_type(entry.fields_by_name["value"], place.value(), enclosing, warnings)
        return None if value is None else T.MapType(T.StringType(), value)
    if field.is_repeated:
        element = _single_type(field, place.element(), enclosing, warnings)
        return None if element is None else T.ArrayType(element)
    return _single_type(field, place, enclosing, warnings)


def _single_type(
    field: FieldDescriptor, place: SchemaPlace, enclosing: tuple[str, ...], warnings: list[SchemaWarning]
) -> T.DataType | None:
    """Returns the type of one value of the field: an element of a repeated one, a value of a map."""
    message = field.message_type
    if message is None:
        return _SCALARS[field.type]
    name = message.full_name
    if name in _MESSAGES:
        return _MESSAGES[name]
    if name in WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type]
    if name == _ANY:
        reason = (
            f"it is a {name}, which may hold any message. Declared as STRUCT<type_url: STRING, value: BINARY> it can be"
            " read"
        )
        warnings.append(OmittedField(place.path, reason))
        return None
    if name in enclosing:
        warnings.append(OmittedField(place.path, f"it is a {name} within a {name}, which no column can hold"))
        return None
    if name in _DECIMALS:
        warnings.append(f"{place} is a STRUCT: make it a DECIMAL(precision, scale) that holds each {name} exactly")
    struct = _struct(message, place, enclosing, warnings)
    if struct is None:
        warnings.append(OmittedField(place.path, f"it is a {name}, which has no field that a column can hold"))
    return struct
