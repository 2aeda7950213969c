"""Parses Avro schemas by Avro's specification, for columns and for decoders.

Guarantee: a name refers to the type that the specification says: a name with dots is a full name; one without is of
the namespace around it, else of none, as Java's Avro reads what it writes. What reading with the writer's schema does
not need makes no schema invalid: defaults and documentation are not looked at, and a logical type that is
invalid is its plain type. A parsed type is

- the name of a primitive type, or the full name of a named type, which `AvroSchema.named` has;
- a list of the branches of a union;
- a dict with `type`: the primitive's name with a `logicalType`, or `array` with `items`, or `map` with `values`.

A named type is a dict with `type` (`record`, `enum` or `fixed`), its full `name` and `aliases`, and `fields` (dicts
with `name` and `type`), `symbols`, or `size` and perhaps a `logicalType`. A `logicalType` of `decimal` comes with
`precision` and `scale`. Raises ConfigError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordination.errors import ConfigError
from sink.schema.bounds import SchemaBounds

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MOST_BYTES = _MOST_DIGITS = (1 << 31) - 1
_UUID_BYTES, _DURATION_BYTES = 16, 12
_SHOWN = 200
_LOGICAL: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "duration": ("fixed",),
    **dict.fromkeys(("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"), ("long",)),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"), ("long",)),
}
"""Avro's logical types, with the types that they annotate."""
CONNECT_NAMES: Mapping[tuple[str, str], str] = {
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "time-millis",
    ("long", "io.debezium.time.MicroTime"): "time-micros",
    ("long", "io.debezium.time.Timestamp"): "timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "timestamp-nanos",
    ("int", "org.apache.kafka.connect.data.Date"): "date",
    ("int", "org.apache.kafka.connect.data.Time"): "time-millis",
    ("long", "org.apache.kafka.connect.data.Timestamp"): "timestamp-millis",
}
"""Names that Kafka Connect's converter writes as `connect.name`, by type, with the logical types that they mean."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed type, with the named types that it refers to by their full names."""

    root: Any
    named: Mapping[str, Any]

    def resolve(self, schema: Any) -> Any:
        """Returns a type that is not the name of a named type."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def parse_avro(texts: Iterable[str], bounds: SchemaBounds) -> AvroSchema:
    """Parses the last text, which may refer to named types of those before it."""
    parser = _Parser()
    root: Any = None
    try:
        for text in texts:
            root = parser.parsed(bounds.parse_json(text), "")
    except RecursionError:
        raise bounds.too_deep("") from None
    except ValueError as error:
        raise ConfigError(f"the Avro schema is not valid ({error}). Correct it.") from None
    return AvroSchema(root, parser.named)


def kind_of(schema: Any) -> str:
    """Returns `union`, the name of a primitive type, `array`, `map`, `record`, `enum` or `fixed`."""
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else str(schema["type"])


def logical_type(schema: Any) -> str | None:
    """Returns the logical type of a parsed type, if it has one."""
    return schema.get("logicalType") if isinstance(schema, dict) else None


def type_label(schema: Any) -> str:
    """Returns the type as messages show it, without types inside."""
    logical = logical_type(schema)
    if logical == "decimal":
        logical = f"decimal({schema['precision']},{schema['scale']})"
    return f"{kind_of(schema)} ({logical})" if logical else kind_of(schema)


class _Parser:
    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def parsed(self, node: Any, space: str) -> Any:
        """Returns the type of a JSON value within the namespace `space`."""
        if isinstance(node, str):
            return self._referred(node, space)
        if isinstance(node, list):
            branches = [self.parsed(branch, space) for branch in node]
            if any(isinstance(branch, list) for branch in branches):
                raise ValueError("a union has a union as a branch")
            return branches
        kind = _part(node, "type", "an Avro type")
        if not isinstance(kind, str):
            return self.parsed(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(node, "record" if kind == "error" else kind, space)
        if kind == "array":
            return {"type": kind, "items": self.parsed(_part(node, "items", kind), space)}
        if kind == "map":
            return {"type": kind, "values": self.parsed(_part(node, "values", kind), space)}
        logical = _logical_attributes(node, kind)
        return {"type": kind, **logical} if logical else self._referred(kind, space)

    def _referred(self, name: str, space: str) -> str:
        if name in PRIMITIVES:
            return name
        for full_name in (_full_name(name, space), name):
            if full_name in self.named:
                return full_name
        raise ValueError(f"no type before it is named {_full_name(name, space)[:_SHOWN]!r}")

    def _defined(self, node: Mapping[str, Any], kind: str, space: str) -> str:
        """Adds a named type, which may refer to itself. Returns its full name."""
        name = _name(node, f"a {kind}")
        own_space = node.get("namespace", space)
        full_name = _full_name(name, own_space if isinstance(own_space, str) else space)
        if full_name in PRIMITIVES:
            raise ValueError(f"a {kind} has the name of the type {full_name}")
        aliases = node.get("aliases")
        full_aliases = [
            _full_name(alias, full_name.rpartition(".")[0])
            for alias in (aliases if isinstance(aliases, list) else ())
            if isinstance(alias, str)
        ]
        definition: dict[str, Any] = {"type": kind, "name": full_name, "aliases": full_aliases}
        known = self.named.setdefault(full_name, definition)
        if kind == "record":
            definition["fields"] = self._fields(node, full_name)
        elif kind == "enum":
            definition["symbols"] = _symbols(node, full_name)
        else:
            definition["size"] = _size(node, full_name)
            definition |= _logical_attributes(node, kind)
        # Equal parts refer to the same types, whose names they have.
        if known is not definition and known != definition:
            raise ValueError(f"two types are named {full_name[:_SHOWN]!r}")
        return full_name

    def _fields(self, record: Mapping[str, Any], full_name: str) -> list[dict[str, Any]]:
        space = full_name.rpartition(".")[0]
        fields, names = [], set()
        for field in _list(record, "fields", full_name):
            name = _name(field, f"a field of {full_name[:_SHOWN]}")
            if name in names:
                raise ValueError(f"{full_name[:_SHOWN]} has two fields named {name[:_SHOWN]!r}")
            names.add(name)
            fields.append({"name": name, "type": self.parsed(_part(field, "type", "a field"), space)})
        return fields


def _full_name(name: str, space: str) -> str:
    return name.lstrip(".") if "." in name or not space else f"{space}.{name}"


def _name(node: Any, what: str) -> str:
    name = _part(node, "name", what)
    if not isinstance(name, str):
        raise ValueError(f"the name of {what} is {_shortened(name)}")
    return name


def _symbols(node: Mapping[str, Any], full_name: str) -> list[str]:
    symbols = _list(node, "symbols", full_name)
    if not all(isinstance(symbol, str) for symbol in symbols):
        raise ValueError(f"a symbol of {full_name[:_SHOWN]} is not a text")
    return symbols


def _size(node: Mapping[str, Any], full_name: str) -> int:
    size = _part(node, "size", full_name[:_SHOWN])
    if not (type(size) is int and 0 <= size <= _MOST_BYTES):
        raise ValueError(f"the size of {full_name[:_SHOWN]} is {_shortened(size)}")
    return size


def _part(node: Any, name: str, what: str) -> Any:
    if not isinstance(node, dict) or name not in node:
        raise ValueError(f"{what}, {_shortened(node)}, has no {name!r}")
    return node[name]


def _list(node: Mapping[str, Any], name: str, full_name: str) -> list[Any]:
    parts = _part(node, name, full_name[:_SHOWN])
    if not isinstance(parts, list):
        raise ValueError(f"{name} of {full_name[:_SHOWN]} is {_shortened(parts)}")
    return parts


def _shortened(node: Any) -> str:
    return json.dumps(node)[:_SHOWN]


def _logical_attributes(node: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the logical type with its attributes; empty if there is none, or if it is invalid."""
    logical = node.get("logicalType")
    if not isinstance(logical, str) or kind not in _LOGICAL.get(logical, ()):
        name = node.get("connect.name")
        meant = CONNECT_NAMES.get((kind, name)) if isinstance(name, str) else None
        return {"logicalType": meant} if meant else {}
    if logical == "decimal":
        precision, scale = node.get("precision"), node.get("scale", 0)
        if not _is_decimal(precision, scale, node.get("size") if kind == "fixed" else None):
            return {}
        return {"logicalType": logical, "precision": precision, "scale": scale}
    size = {"uuid": _UUID_BYTES, "duration": _DURATION_BYTES}.get(logical)
    return {} if kind == "fixed" and node["size"] != size else {"logicalType": logical}


def _is_decimal(precision: Any, scale: Any, size: int | None) -> bool:
    if type(precision) is not int or type(scale) is not int:
        return False
    most = _MOST_DIGITS if size is None else math.floor(math.log10(2) * (8 * size - 1))
    return 0 <= scale <= precision and 1 <= precision <= most
