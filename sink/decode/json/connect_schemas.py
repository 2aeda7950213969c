"""The rules of values by the schema that Kafka Connect's JSON converter puts beside them.

A schema names what a number or a text stands for (`io.debezium.time.MicroTimestamp`, `org.apache.kafka.connect.data
.Decimal` with its scale): it wins over the settings. Other names decide nothing. Raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import types as T

from sink.decode.fields import Field, FieldRule, Unit

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


class RulesBySchema:
    """The fields of a row or of a struct, with the rules of a schema, which is parsed JSON, whatever its shape."""

    def __init__(self, fields: Sequence[Field], exact_case: bool) -> None:
        self._fields = fields
        self._exact_case = exact_case
        self._positions: dict[str, set[int]] = {}
        """The positions of the fields by their names, and by these in lower case."""
        for position, field in enumerate(fields):
            for name in {field.name, field.name.lower()}:
                self._positions.setdefault(name, set()).add(position)
        self._structs: dict[int, RulesBySchema] = {}
        """By the identity of the struct's field, which is one of these or within one."""

    def changes(self, schema: Any) -> Mapping[int, Field]:
        """Returns the fields whose rules the schema changes, by position. Looks only at fields that the schema names: a
        table may have thousands, and each value a schema of its own."""
        listed = _member(schema, "fields")
        parts = {
            part["field"]: part
            for part in (listed if isinstance(listed, list) else [])
            if isinstance(part, dict) and isinstance(part.get("field"), str)
        }
        folded: dict[str, list[str]] = {}
        for name in parts if not self._exact_case else ():
            folded.setdefault(name.lower() if name.isascii() else name, []).append(name)
        named = {position for name in (*parts, *folded) for position in self._positions.get(name, ())}
        changed: dict[int, Field] = {}
        for position in sorted(named):
            field = self._fields[position]
            variants = folded.get(field.name.lower(), [])
            part = parts.get(field.name) or (parts[variants[0]] if len(variants) == 1 else None)
            if (by_schema := self._by_schema(field, part)) is not field:
                changed[position] = by_schema
        return changed

    def changed(self, changes: Mapping[int, Field]) -> tuple[Field, ...]:
        """Returns all fields."""
        fields = [*self._fields]
        for position, field in changes.items():
            fields[position] = field
        return tuple(fields)

    def _by_schema(self, field: Field, schema: Any) -> Field:
        """Returns the field itself if nothing changes."""
        if isinstance(field.kind, T.StructType):
            if id(field) not in self._structs:
                self._structs[id(field)] = RulesBySchema(field.inner, self._exact_case)
            inner = self._structs[id(field)]
            changes = inner.changes(schema)
            return replace(field, inner=inner.changed(changes)) if changes else field
        if isinstance(field.kind, (T.ArrayType, T.MapType)):
            of_elements = _member(schema, "items" if isinstance(field.kind, T.ArrayType) else "values")
            element = self._by_schema(field.element, of_elements)
            return field if element is field.element else replace(field, inner=(element,))
        rule = _rule(field.rule, schema)
        return field if rule == field.rule else replace(field, rule=rule)


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
