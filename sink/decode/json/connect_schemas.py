"""The rules of values by the schema that Kafka Connect's JSON converter puts beside them.

A schema names what a number or a text stands for (`io.debezium.time.MicroTimestamp`, `org.apache.kafka.connect.data
.Decimal` with its scale): it wins over the settings. Other names decide nothing. Raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import types as T

from sink.decode.fields import Columns, Field, FieldRule, Unit

DECIMAL = "org.apache.kafka.connect.data.Decimal"
UNITS: Mapping[str, Unit] = {
    "org.apache.kafka.connect.data.Date": "days",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Date": "days",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
"""Schema names and the units in which their numbers count since 1970."""
_SCALE = re.compile("-?[0-9]{1,4}")
_NUMBERS = {"int8", "int16", "int32", "int64", "float", "double"}
_TYPES = _NUMBERS | {"boolean", "string", "bytes", "array", "map", "struct"}


def is_type(name: object) -> bool:
    """Whether parsed JSON names a type of Connect's: the `type` of a schema."""
    return isinstance(name, str) and name in _TYPES


def columns_by_schema(columns: Columns, schema: Any) -> Columns:
    """Returns the columns with the rules of a schema, which is parsed JSON, whatever its shape."""
    return replace(columns, fields=_by_struct(columns.fields, schema, columns.exact_case))


def _by_struct(fields: Iterable[Field], schema: Any, exact_case: bool) -> tuple[Field, ...]:
    listed = _member(schema, "fields")
    parts = {
        part["field"]: part
        for part in (listed if isinstance(listed, list) else [])
        if isinstance(part, dict) and isinstance(part.get("field"), str)
    }
    folded: dict[str, list[str]] = {}
    for name in parts if not exact_case else ():
        folded.setdefault(name.lower() if name.isascii() else name, []).append(name)

    def part_of(field: Field) -> Any:
        variants = folded.get(field.name.lower(), [])
        return parts.get(field.name) or (parts[variants[0]] if len(variants) == 1 else None)

    return tuple(_by_schema(field, part_of(field), exact_case) for field in fields)


def _by_schema(field: Field, schema: Any, exact_case: bool) -> Field:
    if isinstance(field.kind, T.StructType):
        return replace(field, inner=_by_struct(field.inner, schema, exact_case))
    if isinstance(field.kind, (T.ArrayType, T.MapType)):
        of_elements = _member(schema, "items" if isinstance(field.kind, T.ArrayType) else "values")
        return replace(field, inner=(_by_schema(field.element, of_elements, exact_case),))
    return replace(field, rule=_rule(field.rule, schema))


def _rule(rule: FieldRule, schema: Any) -> FieldRule:
    name = _member(schema, "name")
    if name == DECIMAL:
        scale = _member(_member(schema, "parameters"), "scale")
        if isinstance(scale, str) and _SCALE.fullmatch(scale):
            return replace(rule, decimal_format="base64", decimal_scale=int(scale))
    unit = UNITS.get(name) if isinstance(name, str) else None
    return rule if unit is None else replace(rule, time_unit=unit, date_unit=unit)


def _member(schema: Any, name: str) -> Any:
    return schema.get(name) if isinstance(schema, dict) else None
