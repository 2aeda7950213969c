"""Protobuf's descriptors of a kept schema: a FileDescriptorSet, with what every host has beside it.

Raises NotComparable for an import that nobody has.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping, Sequence

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from sink.audit.content.specification import NotComparable

_ROOT = "schema.proto"
_PACKAGES = (
    "google.protobuf",
    "google.type",
    "google.api",
    "google.rpc",
    "confluent_kafka.schema_registry.confluent",
    "confluent_kafka.schema_registry.confluent.type",
    "confluent_kafka.schema_registry.confluent.types",
)
"""Where generated modules of well-known files are."""


def descriptor_set(parts: Sequence[tuple[str, str, Mapping[str, int]]]) -> bytes:
    """Returns the set of the last part and of all that it imports, each before what imports it."""
    names = {len(parts) - 1: _ROOT}
    for _, _, references in reversed(parts):
        names |= {position: name for name, position in references.items()}
    files = {
        names[position]: _file(names[position], text)
        for position, (_, text, _) in enumerate(parts)
        if position in names
    }
    ordered: dict[str, FileDescriptorProto] = {}
    _add(_ROOT, files, ordered)
    return FileDescriptorSet(file=ordered.values()).SerializeToString()


def message_name(descriptors: bytes, path: Sequence[int]) -> str:
    """Returns the full name of the message at these indexes in the last file. Raises IndexError."""
    file = FileDescriptorSet.FromString(descriptors).file[-1]
    first, *inner = path
    declared = file.message_type[first]
    names = [file.package, declared.name]
    for index in inner:
        declared = declared.nested_type[index]
        names.append(declared.name)
    return ".".join(filter(None, names))


def _file(name: str, text: str) -> FileDescriptorProto:
    file = FileDescriptorProto.FromString(base64.b64decode(text))
    file.name = name
    return file


def _add(name: str, files: Mapping[str, FileDescriptorProto], ordered: dict[str, FileDescriptorProto]) -> None:
    if name in ordered:
        return
    file = files.get(name) or _well_known(name)
    for imported in file.dependency:
        _add(imported, files, ordered)
    ordered[name] = file


def _well_known(name: str) -> FileDescriptorProto:
    stem = name.removesuffix(".proto").rpartition("/")[2]
    for package in _PACKAGES:
        try:
            module = importlib.import_module(f"{package}.{stem}_pb2")
        except ImportError:
            continue
        if module.DESCRIPTOR.name == name:
            found = FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(found)
            return found
    raise NotComparable(f"their schema imports {name}, which is missing")
