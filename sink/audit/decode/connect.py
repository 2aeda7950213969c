"""Kafka Connect's envelope for the auditor: the payload of a value, and the rules that its schema gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sink.audit.decode.rules import Rules, place

_TYPES = {"boolean", "string", "bytes", "array", "map", "struct", "float", "double", "int8", "int16", "int32", "int64"}
_DIGITS = frozenset("0123456789")
_COUNTED = {
    "org.apache.kafka.connect.data.Date": "days",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Date": "days",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_OF_EVENTS = {"before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction"}
Members = tuple[tuple[str, Any], ...]


def outermost(columns: Mapping[str, Any], rules: Rules) -> dict[str, str]:
    """Returns the member of a record in which the field of each column is."""
    return {field["name"]: place(rules, field["name"], "")[0] for field in columns["fields"]}


def is_envelope(members: Members, fields: Mapping[str, str]) -> bool:
    """Whether an object is an envelope. `fields` has the members for the columns."""
    if {"schema", "payload"} <= {*fields.values()} or [name for name, _ in members] != ["schema", "payload"]:
        return False
    schema = members[0][1]
    return schema is None or str(_member(schema, "type")) in _TYPES


def _member(found: Any, name: str) -> Any:
    """Returns a member of an object in parsed JSON, the last one of that name; None without one."""
    return dict(found).get(name) if isinstance(found, tuple) else None


def rules_of(schema: Any, columns: Mapping[str, Any], rules: Rules) -> Rules:
    """Returns the rules with what a schema says of the columns."""
    units: dict[str, str] = {}
    scales: dict[str, int] = {}
    for path, part in _described(schema, columns, "", rules):
        name = _member(part, "name")
        if type(name) is str and name in _COUNTED:
            units[path] = _COUNTED[name]
        scale = _member(_member(part, "parameters"), "scale") if name == _DECIMAL else None
        if type(scale) is str and 1 <= len(scale.removeprefix("-")) <= 4 and set(scale.removeprefix("-")) <= _DIGITS:
            scales[path] = int(scale)
    return replace(
        rules,
        time_unit={**rules.time_unit, **units},
        date_unit={**rules.date_unit, **units},
        decimal_format={**rules.decimal_format, **dict.fromkeys(scales, "base64")},
        decimal_scale=scales,
    )


def _described(schema: Any, kind: Any, path: str, rules: Rules) -> Iterator[tuple[str, Any]]:
    """Yields the path of each column, with its schema or None."""
    if not isinstance(kind, Mapping):
        yield path, schema
    elif kind["type"] != "struct":
        inside, of_elements = ("items", "elementType") if kind["type"] == "array" else ("values", "valueType")
        yield from _described(_member(schema, inside), kind[of_elements], path, rules)
    else:
        for field in kind["fields"]:
            column = f"{path}.{field['name']}" if path else field["name"]
            part = schema
            for name in place(rules, column, path):
                part = _part_of(part, name, rules.exact_case)
            yield from _described(part, field["type"], column, rules)


def _part_of(schema: Any, name: str, exact_case: bool) -> Any:
    """Returns the schema of a field."""
    fields = _member(schema, "fields")
    pairs = [(_member(part, "field"), part) for part in (fields if isinstance(fields, list) else [])]
    named = {other: part for other, part in pairs if type(other) is str}
    like = [other for other in named if other.isascii() and other.lower() == name.lower() and not exact_case]
    return named.get(name) or (named[like[0]] if len(like) == 1 else None)


def is_event(members: Members, row: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    """Whether an object is a change event of Debezium's that fills no column but those of events."""
    names = {name for name, _ in members}
    telling = [column for column in row if fields[column] not in _OF_EVENTS]
    return bool(
        telling
        and all(row[column] is None for column in telling)
        and {"op", "source"} <= names
        and names & {"before", "after"}
    )
