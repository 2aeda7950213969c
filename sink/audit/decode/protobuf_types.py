"""Parses Protobuf for the auditor, with Google's library and types made from the descriptors. Raises Bad.

Maps are lists of entries here: the library's own maps forget the order of their entries, and drop an entry with a field
that they do not know.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from sink.audit.decode.rules import Bad


@lru_cache(20)
def message_type(descriptors: bytes, message: str) -> tuple[Any, frozenset[str]]:
    """Returns the class of a message, and the full names of all entries of maps."""
    files = FileDescriptorSet.FromString(descriptors).file
    entries: set[str] = set()
    pool = DescriptorPool()
    for file in files:
        for declared in file.message_type:
            _open_maps(declared, file.package, entries)
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(message)), frozenset(entries)


def _open_maps(declared: DescriptorProto, outer: str, entries: set[str]) -> None:
    name = f"{outer}.{declared.name}".lstrip(".")
    if declared.options.map_entry:
        declared.options.ClearField("map_entry")
        entries.add(name)
    for inner in declared.nested_type:
        _open_maps(inner, name, entries)


def parsed(made: Any, value: bytes) -> Any:
    try:
        return made.FromString(value)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Bad(f"no message: {error}") from None


def field_for(column: str, message: Descriptor, exact_case: bool) -> FieldDescriptor | None:
    """Returns the field of a column; None if it has none."""
    alike = [field for field in message.fields if field.name.lower() == column.lower()]
    same = [field for field in alike if field.name == column]
    if same or exact_case:
        return same[0] if same else None
    if len(alike) > 1:
        raise Bad(f"fields for {column} differ in case only")
    return alike[0] if alike else None


def require_set(message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            raise Bad(f"{field.name} is required")


def is_left_out(entry: Any) -> bool:
    """Whether an entry has a number that its closed enum does not know."""
    enum = entry.DESCRIPTOR.fields_by_name["value"].enum_type
    unknown: Any = UnknownFieldSet(entry)
    return enum is not None and enum.is_closed and any(found.field_number == 2 for found in unknown)


def symbol(enum: Any, number: int) -> str:
    """Returns the first symbol of a number, or the number as text."""
    return next((value.name for value in enum.values if value.number == number), str(number))
