"""Reads the keywords of one JSON Schema: its type, its branches, and the values of its members.

Guarantee: a type holds all values that the keywords allow, whatever its bounds. Raises ConfigError for keywords that
no column's type can stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError

_SCALARS: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "string": T.StringType(),
}
_CONNECT: Mapping[tuple[str, str], T.DataType] = {
    **{("integer", name): T.IntegerType() for name in ("int8", "int16", "int32")},
    ("number", "float32"): T.FloatType(),
}
"""Columns for the types that Kafka Connect's converter adds to those of JSON."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_OF_VALUES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
BRANCHES = ("allOf", "oneOf", "anyOf")
_CONDITIONS = ("then", "else")
_DEPENDENT = ("dependentSchemas", "dependencies")
_TYPED = (
    "type",
    "$ref",
    "enum",
    "const",
    "properties",
    "items",
    "additionalProperties",
    "patternProperties",
    *BRANCHES,
)
"""Keywords that say something of a type. Beside them stand bounds, and which members are required."""
_NULLS = ({"type": "null"}, {"enum": [None]}, {"const": None})


class NoType(ConfigError):
    """A schema that allows values of any type."""

    def __init__(self) -> None:
        super().__init__("it has no type")


def type_name(schema: Mapping[str, Any]) -> str | None:
    """Returns the type that is not null; None if only subschemas have types."""
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared or []
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    names = [name for name in names or map(_type_of_value, values) if name != "null"]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError("it is one of several schemas")
    if {*names} == {"integer", "number"}:
        return "number"
    if len({*names}) > 1:
        raise ConfigError(f"it has several types: {', '.join(dict.fromkeys(names))}")
    if names:
        return names[0]
    return "object" if any(key in schema for key in ("properties", "patternProperties")) else None


def _type_of_value(value: Any) -> str:
    return "null" if value is None else _OF_VALUES.get(type(value), type(value).__name__)


def scalar(name: str, schema: Mapping[str, Any]) -> T.DataType:
    """Returns the column of a type that is neither an object nor an array."""
    if name not in _SCALARS:
        raise ConfigError(f"{name!r} is not a type of JSON Schema")
    if name == "number" and schema.get("title") == DECIMAL:
        return _decimal(schema.get("connect.parameters"))
    return _CONNECT.get((name, str(schema.get("connect.type"))), _SCALARS[name])


def typed_branches(schema: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Returns the schemas that hold for all values, and those for some of them, but for null and for bounds alone."""
    of_all, of_some = schema.get("allOf", ()), _optional(schema)
    return [*filter(_is_typed, of_all)], [*filter(_is_typed, of_some)]


def _optional(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in ("oneOf", "anyOf"):
        yield from schema.get(key, ())
    yield from (schema[key] for key in _CONDITIONS if key in schema)
    for key in _DEPENDENT:
        yield from schema.get(key, {}).values()


def _is_typed(schema: Any) -> bool:
    if not isinstance(schema, dict) or any(null.items() <= schema.items() for null in _NULLS):
        return False
    return any(key in schema for key in _TYPED)


def value_schemas(schema: Mapping[str, Any]) -> list[Any]:
    """Returns the schemas of the values of an object that has no properties."""
    schemas = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return [values for values in schemas if isinstance(values, dict) and values]


def other_members(schema: Mapping[str, Any]) -> list[str]:
    """Returns the keywords by which an object may have members beside its properties."""
    keys = ("additionalProperties", "unevaluatedProperties", "patternProperties")
    return [key for key in keys if schema.get(key)]


def together(kinds: Sequence[T.DataType]) -> T.DataType:
    """Returns the type that holds the values of all."""
    if not kinds:
        raise NoType
    return reduce(_both, kinds)


def _both(first: T.DataType, second: T.DataType) -> T.DataType:
    if first == second:
        return first
    if type(first) in _NUMBERS and type(second) in _NUMBERS:
        wider = max(type(first), type(second), key=_NUMBERS.index)
        return T.DoubleType() if wider is T.FloatType else wider()
    if isinstance(first, T.StructType) and isinstance(second, T.StructType):
        fields = {field.name: field.dataType for field in first.fields}
        for field in second.fields:
            fields[field.name] = _both(fields.get(field.name, field.dataType), field.dataType)
        return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])
    if isinstance(first, T.ArrayType) and isinstance(second, T.ArrayType):
        return T.ArrayType(_both(first.elementType, second.elementType))
    if isinstance(first, T.MapType) and isinstance(second, T.MapType):
        return T.MapType(T.StringType(), _both(first.valueType, second.valueType))
    names = (kind.typeName() if isinstance(kind, T.StructType) else kind.simpleString() for kind in (first, second))
    raise ConfigError(f"its schemas have several types: {', '.join(names)}")


_NUMBERS: Sequence[type[Any]] = (T.IntegerType, T.LongType, T.FloatType, T.DoubleType)


def _decimal(parameters: Any) -> T.DataType:
    """Returns the type of a decimal that Kafka Connect writes as a number."""
    try:
        scale, precision = int(parameters["scale"]), int(parameters.get("connect.decimal.precision", 38))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ConfigError(f"its connect.parameters have no scale: {parameters}") from None
    if not 0 <= scale <= precision <= 38:
        raise ConfigError(f"no column holds a decimal of precision {precision} and scale {scale}")
    return T.DecimalType(precision, scale)
