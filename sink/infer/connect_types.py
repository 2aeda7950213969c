"""Derives the types of columns from the schemas that Kafka Connect's JSON converter puts beside values.

A schema's name says what a number or a text stands for: Connect's own (`org.apache.kafka.connect.data.Decimal`), and
Debezium's (`io.debezium.time.MicroTimestamp`). Other names change nothing. Guarantee: the values of the schema fit the
type, but for decimals of more than 38 digits. Raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as T

from sink.decode.json.connect_schemas import DECIMAL, UNITS
from sink.decode.json.text import JsonObject, WholeNumber
from sink.infer.json_envelopes import member

DECIMAL_DIGITS = 38
UNKNOWN = T.NullType()
"""Stands for a type that the values have to say."""
_PLAIN: Mapping[str, T.DataType] = {
    **dict.fromkeys(("int8", "int16", "int32"), T.IntegerType()),
    "int64": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
}
_ZONED, _VARIABLE = "io.debezium.time.ZonedTimestamp", "io.debezium.data.VariableScaleDecimal"
_NUMBER = re.compile("-?[0-9]{1,5}")


@dataclass
class ConnectTypes:
    """The types of schemas."""

    meanings: dict[tuple[str, str], str] = field(default_factory=dict)
    """Settings that say of columns what the schemas do, by the setting's name and the column's path."""

    def type_of(self, schema: Any, values: Sequence[Any], path: str = "") -> T.DataType:
        """Returns the type of values by their schema, or `UNKNOWN`."""
        name, kind = member(schema, "name"), member(schema, "type")
        if isinstance(name, str) and name in UNITS:
            is_day = UNITS[name] == "days"
            self.meanings["date_unit" if is_day else "time_unit", path] = UNITS[name]
            return T.DateType() if is_day else T.TimestampType()
        if name == _ZONED:
            return T.TimestampType()
        if name == _VARIABLE:
            return T.DecimalType(DECIMAL_DIGITS, min(DECIMAL_DIGITS, max(map(_scale, values), default=0)))
        if name == DECIMAL:
            return self._decimal(member(schema, "parameters"), path)
        if kind == "struct":
            return self._struct(member(schema, "fields"), values, path)
        if kind == "array":
            elements = [inner for value in values if type(value) is list for inner in value]
            return T.ArrayType(self.type_of(member(schema, "items"), elements, path))
        if kind == "map" and member(member(schema, "keys"), "type") == "string":
            inner_values = [inner for value in values if type(value) is JsonObject for _, inner in value]
            return T.MapType(T.StringType(), self.type_of(member(schema, "values"), inner_values, path))
        return _PLAIN.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def _decimal(self, parameters: Any, path: str) -> T.DataType:
        scale = _number(member(parameters, "scale"))
        given = _number(member(parameters, "connect.decimal.precision"))
        precision = DECIMAL_DIGITS if given is None or given < 1 else given
        if scale is None or scale > DECIMAL_DIGITS:
            return UNKNOWN
        if scale >= 0:
            self.meanings["decimal_format", path] = "base64"
        # A negative scale stands for zeros before the point.
        digits = max(precision, scale) if scale >= 0 else precision - scale
        return T.DecimalType(min(DECIMAL_DIGITS, digits), max(scale, 0))

    def _struct(self, fields: Any, values: Sequence[Any], path: str) -> T.StructType:
        columns: dict[str, T.DataType] = {}
        for inner in fields if type(fields) is list else []:
            name = member(inner, "field")
            if type(name) is str:
                inner_values = [member(value, name) for value in values]
                columns[name] = self.type_of(inner, inner_values, f"{path}.{name}" if path else name)
        return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


def merged(one: T.DataType, other: T.DataType) -> T.DataType:
    """Returns the type that holds the values of both, or `UNKNOWN`."""
    if one == other:
        return one
    match one, other:
        case T.StructType(), T.StructType():
            return merged_structs(one, other)
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(merged(one.elementType, other.elementType))
        case T.MapType(), T.MapType():
            return T.MapType(T.StringType(), merged(one.valueType, other.valueType))
        case T.DecimalType(), T.DecimalType():
            scale = max(one.scale, other.scale)
            whole = max(one.precision - one.scale, other.precision - other.scale)
            return T.DecimalType(min(DECIMAL_DIGITS, whole + scale), scale)
    for kinds_alike, widest in (((T.IntegerType, T.LongType), T.LongType), ((T.FloatType, T.DoubleType), T.DoubleType)):
        if isinstance(one, kinds_alike) and isinstance(other, kinds_alike):
            return widest()
    return UNKNOWN


def merged_structs(one: T.StructType, other: T.StructType) -> T.StructType:
    """Returns the fields of both, each with the type that holds the values of both."""
    kinds = {field.name: field.dataType for field in one.fields}
    for added in other.fields:
        kinds[added.name] = merged(kinds.get(added.name, added.dataType), added.dataType)
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def _scale(value: Any) -> int:
    """Returns the scale of a VariableScaleDecimal; 0 for anything else."""
    scale = member(value, "scale")
    return int(scale) if type(scale) is WholeNumber and _NUMBER.fullmatch(scale) else 0


def _number(text: Any) -> int | None:
    """Returns a parameter, which is a text."""
    return int(text) if type(text) is str and _NUMBER.fullmatch(text) else None
