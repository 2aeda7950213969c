"""Avro schemas as the auditor reads them: types as objects, and the same types without meaning for fastavro.

fastavro reads nothing but bytes here: each branch of a union is a record, whose field has the branch's number; texts,
enums, booleans and maps are bytes, numbers, bytes and arrays of pairs. So no library decides what a value means. Raises
Bad.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sink.audit.decode.rules import Bad

_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_ANNOTATED = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
MOMENTS = {f"{zone}timestamp-{unit}": _UNITS[unit] for zone in ("", "local-") for unit in _UNITS}
"""Logical types of moments, with their units."""
_CONNECT = {
    "io.debezium.time.Date": ("int", "date"),
    "io.debezium.time.Time": ("int", "time-millis"),
    "io.debezium.time.MicroTime": ("long", "time-micros"),
    "io.debezium.time.Timestamp": ("long", "timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "timestamp-micros"),
    "io.debezium.time.NanoTimestamp": ("long", "timestamp-nanos"),
    "org.apache.kafka.connect.data.Date": ("int", "date"),
    "org.apache.kafka.connect.data.Time": ("int", "time-millis"),
    "org.apache.kafka.connect.data.Timestamp": ("long", "timestamp-millis"),
}
_BEYOND = 64
"""Branches behind those of a union that no value has: fastavro counts a negative number from the end."""


@dataclass(eq=False)
class WrittenType:
    """A type of the writer's. `parts` are the branches of a union, the types of a record's fields, or the type of an
    array's items or of a map's values."""

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    name: str = ""
    names: list[str] = field(default_factory=list)
    """The names of a record's fields, or the symbols of an enum."""
    parts: list[WrittenType] = field(default_factory=list)


def written_type(texts: Sequence[str]) -> WrittenType:
    """Reads the schema in the last text, which may refer to those before it."""
    names: dict[str, tuple[Any, WrittenType]] = {}
    try:
        return [_type(json.loads(text), "", names) for text in texts][-1]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Bad(f"no schema of Avro: {error}") from None


def _type(node: Any, space: str, names: dict[str, tuple[Any, WrittenType]]) -> WrittenType:
    if isinstance(node, list):
        return WrittenType("union", parts=[_type(branch, space, names) for branch in node])
    if isinstance(node, str):
        if node in _PLAIN:
            return WrittenType(node)
        known = names.get(f"{space}.{node}" if space and "." not in node else node) or names[node]
        return known[1]
    kind = node["type"]
    if not isinstance(kind, str):
        return _type(kind, space, names)
    if kind in ("array", "map"):
        return WrittenType(kind, parts=[_type(node["items" if kind == "array" else "values"], space, names)])
    if kind in ("record", "error", "enum", "fixed"):
        return _named(node, kind, space, names)
    return _annotated(WrittenType(kind), node) if kind in _PLAIN else _type(kind, space, names)


def _named(node: Mapping[str, Any], kind: str, space: str, names: dict[str, tuple[Any, WrittenType]]) -> WrittenType:
    name = node["name"]
    if "." not in name and node.get("namespace", space):
        name = f"{node.get('namespace', space)}.{name}"
    if name in names and names[name][0] != node:
        raise Bad(f"two types are named {name}")
    written = WrittenType("record" if kind == "error" else kind, name=name)
    names[name] = node, written
    if kind == "enum":
        written.names = list(node["symbols"])
    elif kind == "fixed":
        written.size = node["size"]
        _annotated(written, node)
    else:
        written.names = [inner["name"] for inner in node["fields"]]
        if len(set(written.names)) < len(written.names):
            raise Bad(f"{name} has a field twice")
        written.parts = [_type(inner["type"], name.rpartition(".")[0], names) for inner in node["fields"]]
    return written


def _annotated(written: WrittenType, node: Mapping[str, Any]) -> WrittenType:
    """Adds the logical type, if it is a valid one."""
    logical = node.get("logicalType")
    kinds = ("long",) if logical in MOMENTS else _ANNOTATED.get(logical, ()) if isinstance(logical, str) else ()
    if written.kind not in kinds:
        kind, meant = _CONNECT.get(str(node.get("connect.name")), ("", None))
        written.logical = meant if kind == written.kind else None
    elif logical == "decimal":
        precision, scale = node.get("precision"), node.get("scale", 0)
        most = 2**31 - 1 if written.kind == "bytes" else math.floor((8 * written.size - 1) * math.log10(2))
        if type(precision) is int and type(scale) is int and 1 <= precision <= most and 0 <= scale <= precision:
            written.logical, written.precision, written.scale = logical, precision, scale
    elif written.kind != "fixed" or written.size == (16 if logical == "uuid" else 12):
        written.logical = logical
    return written


def bare_schema(written: WrittenType) -> Any:
    """Returns the schema that fastavro reads values with."""
    return _Bare().of(written)


class _Bare:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._count = 0

    def of(self, written: WrittenType) -> Any:
        kind = written.kind
        if kind == "union":
            branches = [self._record({str(number): part}) for number, part in enumerate(written.parts)]
            return branches + self._beyond()
        if kind == "record":
            if id(written) in self._names:
                return self._names[id(written)]
            return self._record({f"f{number}": part for number, part in enumerate(written.parts)}, written)
        if kind == "array":
            return {"type": "array", "items": self.of(written.parts[0])}
        if kind == "map":
            return {"type": "array", "items": self._record({"key": WrittenType("bytes"), "value": written.parts[0]})}
        if kind in ("fixed", "boolean"):
            return {"type": "fixed", "name": self._name(), "size": written.size if kind == "fixed" else 1}
        return {"string": "bytes", "enum": "long", "int": "long"}.get(kind, kind)

    def _record(self, parts: Mapping[str, WrittenType], written: WrittenType | None = None) -> Any:
        name = self._name()
        if written is not None:
            self._names[id(written)] = name
        fields = [{"name": part, "type": self.of(inner)} for part, inner in parts.items()]
        return {"type": "record", "name": name, "fields": fields}

    def _beyond(self) -> list[Any]:
        name = self._name()
        return [{"type": "fixed", "name": name, "size": 2**31 - 1}, *[name] * (_BEYOND - 1)]

    def _name(self) -> str:
        self._count += 1
        return f"n{self._count}"
