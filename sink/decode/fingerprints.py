"""Fingerprints of registered schemas: of everything that decoding may use, and of nothing else.

Guarantee: two texts of one schema have one fingerprint if they differ in white space, in the order of JSON's
attributes, in documentation, in comments or in attributes that Avro and Protobuf give no meaning for decoding. Any
other difference changes it: names, namespaces, order and types of fields, aliases, defaults, symbols, sizes, logical
types with precision and scale, numbers and packing of Protobuf's fields, and all of that in schemas referred to. A text
that cannot be parsed has the fingerprint of its bytes. Imports that the registry does not have (google/protobuf) are
left out: this host's packages have them, and another version of a package is the same schema. Raises what
`descriptor_set` raises for a Protobuf schema whose source this host cannot compile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from sink.decode.protobuf.files import descriptor_set
from sink.decode.registry.client import RegisteredSchema, referred
from sink.schema.avro_types import CONNECT_NAMES
from sink.schema.bounds import SchemaBounds

_AVRO_NAMED = ("record", "error", "enum", "fixed")
_AVRO_PLAIN = ("aliases", "default", "logicalType", "precision", "scale", "size", "symbols")
"""Attributes that are taken as they are. `doc`, `order` and those of other tools change no value."""
_CONNECT_NAME = "connect.name"
_HEX_DIGITS = 16


@lru_cache(1024)
def fingerprint(schema: RegisteredSchema) -> str:
    """Returns 16 hexadecimal digits of a SHA-256."""
    if schema.kind == "PROTOBUF":
        *imported, root = FileDescriptorSet.FromString(descriptor_set(schema)).file
        registered = _names_referred(schema)
        content = _protobuf([file for file in imported if file.name in registered], root)
    else:
        texts = [*referred(schema), schema.text]
        content = json.dumps([schema.kind, *map(_avro if schema.kind == "AVRO" else _plain, texts)]).encode()
    return hashlib.sha256(content).hexdigest()[:_HEX_DIGITS]


def bounded_fingerprint(schema: RegisteredSchema, bounds: SchemaBounds) -> str:
    """Returns the fingerprint of a stranger's schema. A fingerprint copies namespaces, so the bounds come first: raises
    SchemaTooLarge, and ValueError for a text that is not JSON where it has to be."""
    texts = [schema.text, *referred(schema)]
    if schema.kind == "PROTOBUF":
        bounds.check_text(*texts)
    else:
        bounds.parse_all(texts)
    return fingerprint(schema)


def _plain(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _avro(text: str) -> str:
    try:
        return json.dumps(_avro_type(json.loads(text), ""), sort_keys=True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text


def _avro_type(schema: Any, namespace: str) -> Any:
    """Returns the type with full names, and without what decoding does not use."""
    if isinstance(schema, str):
        return _full_name(schema, namespace)
    if isinstance(schema, list):
        return [_avro_type(branch, namespace) for branch in schema]
    kind = schema["type"]
    if not isinstance(kind, str):
        # {"type": {"type": "int"}}, perhaps with a logical type outside, which the specification does not know.
        outer = {name: schema[name] for name in _AVRO_PLAIN if name in schema}
        return {"type": _avro_type(kind, namespace), **outer} if outer else _avro_type(kind, namespace)
    plain: dict[str, Any] = {name: schema[name] for name in _AVRO_PLAIN if name in schema}
    connect_name = str(schema.get(_CONNECT_NAME))
    if (kind, connect_name) in CONNECT_NAMES:
        plain[_CONNECT_NAME] = connect_name
    if kind in _AVRO_NAMED:
        name, own = str(schema["name"]), str(schema.get("namespace", namespace))
        namespace = name.rpartition(".")[0] if "." in name else own
        plain["name"] = _full_name(name, namespace)
    if kind in ("record", "error"):
        return {**plain, "type": kind, "fields": [_avro_field(field, namespace) for field in schema["fields"]]}
    if kind == "array":
        return {**plain, "type": kind, "items": _avro_type(schema["items"], namespace)}
    if kind == "map":
        return {**plain, "type": kind, "values": _avro_type(schema["values"], namespace)}
    kind = kind if kind in _AVRO_NAMED else _full_name(kind, namespace)
    # {"type": "int"} is "int".
    return {**plain, "type": kind} if plain else kind


def _avro_field(field: dict[str, Any], namespace: str) -> dict[str, Any]:
    kept: dict[str, Any] = {name: field[name] for name in ("aliases", "default") if name in field}
    return {**kept, "name": field["name"], "type": _avro_type(field["type"], namespace)}


_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or name in _PRIMITIVES or not namespace else f"{namespace}.{name}"


def _names_referred(schema: RegisteredSchema) -> set[str]:
    return {name for own, reference in schema.references for name in (own, *_names_referred(reference))}


def _protobuf(imported: Sequence[FileDescriptorProto], root: FileDescriptorProto) -> bytes:
    """Returns the files without their names, comments, services and options that change no value on the wire."""
    for file in (*imported, root):
        _strip_file(file)
    # Imports come in the order of their names, which registries choose.
    parts = [
        *sorted(file.SerializeToString(deterministic=True) for file in imported),
        root.SerializeToString(deterministic=True),
    ]
    return b"PROTOBUF" + b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _strip_file(file: FileDescriptorProto) -> None:
    for name in ("name", "dependency", "public_dependency", "weak_dependency", "service", "source_code_info"):
        file.ClearField(name)
    _keep_features(file)
    for message in file.message_type:
        _strip_message(message)
    for enum in file.enum_type:
        _strip_enum(enum)
    for extension in file.extension:
        _strip_field(extension)


def _strip_message(message: DescriptorProto) -> None:
    for name in ("reserved_range", "reserved_name", "visibility"):
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    is_map, is_set = message.options.map_entry, message.options.message_set_wire_format
    _keep_features(message)
    if is_map:
        message.options.map_entry = True
    if is_set:
        message.options.message_set_wire_format = True
    for field in (*message.field, *message.extension):
        _strip_field(field)
    for oneof in message.oneof_decl:
        _keep_features(oneof)
    for extension_range in message.extension_range:
        extension_range.ClearField("options")
    for nested in message.nested_type:
        _strip_message(nested)
    for enum in message.enum_type:
        _strip_enum(enum)


def _strip_field(field: FieldDescriptorProto) -> None:
    packed = field.options.packed if field.options.HasField("packed") else None
    field.ClearField("json_name")
    _keep_features(field)
    if packed is not None:
        field.options.packed = packed


def _strip_enum(enum: EnumDescriptorProto) -> None:
    for name in ("reserved_range", "reserved_name", "visibility"):
        if name in enum.DESCRIPTOR.fields_by_name:
            enum.ClearField(name)
    has_aliases = enum.options.allow_alias
    _keep_features(enum)
    if has_aliases:
        enum.options.allow_alias = True
    for value in enum.value:
        value.ClearField("options")


def _keep_features(descriptor: Any) -> None:
    """Removes all options but the features of editions."""
    features = descriptor.options.features.SerializeToString() if descriptor.options.HasField("features") else b""
    descriptor.ClearField("options")
    if features:
        descriptor.options.features.ParseFromString(features)
