"""Converts Avro records to Spark's types and back, by the rules of spark-avro and Hudi.

Guarantee: `avro_schema` returns the same schema as Hudi's converter (a test compares them). Raises ConfigError for Avro
types that no table column can hold.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.bounds import LARGEST, Place, SchemaBounds, SchemaTooLarge

AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_PRECISION = 38
_SHOWN, _SHOWN_BRANCHES = 200, 10
_WITHIN = object()
"""Marks a named type while its own parts are being read."""

_TO_AVRO: dict[type[T.DataType], Any] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
}
_LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "duration": ("fixed",),
    **dict.fromkeys(("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"), ("long",)),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"), ("long",)),
}
"""Avro's logical types, with the types that they annotate."""
_FROM_AVRO: dict[tuple[str, str | None], type[T.DataType]] = {
    ("boolean", None): T.BooleanType,
    ("int", None): T.IntegerType,
    ("long", None): T.LongType,
    ("float", None): T.FloatType,
    ("double", None): T.DoubleType,
    ("string", None): T.StringType,
    ("string", "uuid"): T.StringType,
    ("enum", None): T.StringType,
    ("bytes", None): T.BinaryType,
    ("fixed", None): T.BinaryType,
    ("int", "date"): T.DateType,
    # Spark has no time of day: the column has the number of milliseconds or microseconds.
    ("int", "time-millis"): T.IntegerType,
    ("long", "time-micros"): T.LongType,
    ("long", "timestamp-micros"): T.TimestampType,
    ("long", "timestamp-millis"): T.TimestampType,
}


def logical_type(node: Any) -> str | None:
    """Returns the logical type; None if Avro does not define it for this type, because readers must then ignore it."""
    if not isinstance(node, dict):
        return None
    logical = node.get("logicalType")
    return logical if isinstance(logical, str) and node["type"] in _LOGICAL.get(logical, ()) else None


def avro_schema(struct: T.StructType, table_name: str) -> str:
    """Returns the record `hoodie.<table>.<table>_record`; a nullable column is a union with null, its default."""
    name = re.sub(r"[^A-Za-z0-9_]", "__", re.sub(r"^[^A-Za-z_]", "__", table_name))
    return json.dumps(_to_avro(struct, f"{name}_record", f"hoodie.{name}"))


def _to_avro(kind: T.DataType, name: str, space: str) -> Any:
    if isinstance(kind, T.DecimalType):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{space}.{name}",
            "size": _decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if isinstance(kind, T.ArrayType):
        return {
            "type": "array",
            "items": _optional(_to_avro(kind.elementType, name, space), kind.containsNull),
        }
    if isinstance(kind, T.MapType):
        return {
            "type": "map",
            "values": _optional(_to_avro(kind.valueType, name, space), kind.valueContainsNull),
        }
    if isinstance(kind, T.StructType):
        fields = []
        for field in kind.fields:
            inner = _optional(_to_avro(field.dataType, field.name, f"{space}.{name}"), field.nullable)
            fields.append({"name": field.name, "type": inner} | ({"default": None} if field.nullable else {}))
        return {"type": "record", "name": name, "namespace": space, "fields": fields}
    return _TO_AVRO[type(kind)]


def _optional(avro: Any, nullable: bool) -> Any:
    return ["null", avro] if nullable else avro


def _decimal_bytes(precision: int) -> int:
    """Returns the least number of bytes whose two's complement holds every number of `precision` digits."""
    return (int("9" * precision).bit_length() + 8) // 8


def struct_of_avro(schema_json: str, bounds: SchemaBounds = LARGEST) -> T.StructType:
    """Returns the columns of an Avro record in JSON."""
    try:
        avro = bounds.parse_json(schema_json)
    except SchemaTooLarge as error:
        raise ConfigError(f"schema: {error}") from None
    except ValueError as error:
        raise ConfigError(f"schema: neither DDL nor Avro JSON ({error})") from None
    return _struct_of(avro, Place.root(bounds))


def _struct_of(avro: Any, place: Place) -> T.StructType:
    try:
        kind, _ = column_type(avro, place)
    except SchemaTooLarge as error:
        raise SchemaTooLarge(f"schema: {error}") from None
    except RecursionError:
        raise place.too_deep() from None
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"schema: the Avro schema is not valid ({error}). Correct it.") from None
    if not isinstance(kind, T.StructType):
        raise ConfigError("schema: the Avro schema is not a record. Give a record, whose fields become the columns.")
    return kind


def column_type(avro: Any, place: Place) -> tuple[T.DataType, bool]:
    """Returns the type of a column for the Avro type at `place`, and whether null is allowed. A name refers to a type
    before it within `avro`."""
    return _from_avro(avro, place, {})


def _from_avro(avro: Any, place: Place, named_types: dict[str, Any]) -> tuple[T.DataType, bool]:
    """Returns the type, and whether null is allowed."""
    if isinstance(avro, list):
        not_null = [branch for branch in avro[:2] if branch != "null"]
        if len(not_null) != 1 or len(avro) > 2:
            types = ", ".join(map(_type_label, avro[:_SHOWN_BRANCHES]))
            raise ConfigError(
                f"schema: {str(place) or 'the record'}: the union [{types}] cannot be a column; only [null, type] can"
            )
        return _from_avro(not_null[0], place.step(), named_types)[0], len(avro) == 2
    if isinstance(avro, str) and named_types.get(avro) is _WITHIN:
        raise ConfigError(f"schema: {place}: {avro} contains itself; no column can")
    if isinstance(avro, str) and avro in named_types:
        return _from_avro(named_types[avro], place.step(), named_types)
    node = {"type": avro} if isinstance(avro, str) else avro
    if not isinstance(node, dict) or "type" not in node:
        raise ConfigError(f"schema: {str(place) or 'the text'}: {_shortened(avro)} is not an Avro type")
    if "name" in node and node["type"] in ("enum", "fixed", "record"):
        name = str(node["name"])
        names = {name, f"{node.get('namespace', '')}.{name}".lstrip(".")}
        named_types |= dict.fromkeys(names, _WITHIN)
        kind = _from_node(node, place, named_types)
        named_types |= dict.fromkeys(names, node)
        return kind, False
    return _from_node(node, place, named_types), False


def _type_label(avro: Any) -> str:
    return str(avro.get("name") or avro.get("type"))[:_SHOWN] if isinstance(avro, dict) else str(avro)[:_SHOWN]


def _from_node(node: dict[str, Any], place: Place, named_types: dict[str, Any]) -> T.DataType:
    kind = node["type"]
    if isinstance(kind, (dict, list)):
        return _from_avro(kind, place.step(), named_types)[0]
    logical = logical_type(node)
    if logical == "decimal":
        precision, scale = int(_part(node, "precision", place)), int(node.get("scale", 0))
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            raise ConfigError(
                f"schema: {place}: decimal({precision},{scale}) needs a precision of 1 to {MAX_PRECISION} and a"
                " scale within it"
            )
        return T.DecimalType(precision, scale)
    if kind == "record":
        fields = []
        for field in node.get("fields", ()):
            inner_place = place.field(_part(field, "name", place))
            inner, nullable = _from_avro(_part(field, "type", place), inner_place, named_types)
            fields.append(T.StructField(field["name"], inner, nullable))
        if not fields:
            raise ConfigError(f"schema: {str(place) or 'the record'} has no fields; Parquet has no such columns")
        return T.StructType(fields)
    if kind == "array":
        return T.ArrayType(*_from_avro(_part(node, "items", place), place.element(), named_types))
    if kind == "map":
        value, nullable = _from_avro(_part(node, "values", place), place.value(), named_types)
        return T.MapType(T.StringType(), value, nullable)
    column_type = _FROM_AVRO.get((kind, logical))
    if column_type is None:
        type_text = f"{kind} ({logical})" if logical else kind
        raise ConfigError(f"schema: {str(place) or 'the text'}: Avro type {type_text} cannot be a column")
    return column_type()


def _part(node: Any, name: str, place: Place) -> Any:
    if not isinstance(node, dict) or name not in node:
        raise ConfigError(
            f"schema: {str(place) or 'the record'}: {_shortened(node)} has no {name!r}, which Avro requires"
        )
    return node[name]


def _shortened(node: Any) -> str:
    return json.dumps(node)[:_SHOWN]
