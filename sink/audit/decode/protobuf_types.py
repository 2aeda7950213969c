"""Builds Protobuf classes for the auditor from descriptors, and looks up their fields and symbols. Raises Bad.

The classes hold each map as a repeated field of its entries. The library's own maps lose the order of entries, and drop
an entry that has an unknown field.
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

_ENTRY_VALUE = 2
"""The field number of the value in a map's entry."""


@lru_cache(20)
def message_type(descriptors: bytes, message: str) -> tuple[Any, frozenset[str]]:
    """Returns the class of a message, and the full names of all entries of maps."""
    files = FileDescriptorSet.FromString(descriptors).file
    entries: set[str] = set()
    pool = DescriptorPool()
    for file in files:
        for declared in file.message_type:
            _make_maps_repeated(declared, file.package, entries)
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(message)), frozenset(entries)


def _make_maps_repeated(declared: DescriptorProto, outer: str, entries: set[str]) -> None:
    """Unmarks the map entries in this message and those nested in it. Adds their full names to `entries`."""
    name = f"{outer}.{declared.name}".lstrip(".")
    if declared.options.map_entry:
        declared.options.ClearField("map_entry")
        entries.add(name)
    for inner in declared.nested_type:
        _make_maps_repeated(inner, name, entries)


def parsed(message_class: Any, value: bytes) -> Any:
    """Parses a value. Raises Bad if it is not such a message."""
    try:
        return message_class.FromString(value)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Bad(f"not a valid message: {error}") from None


def field_for(column: str, message: Descriptor, exact_case: bool) -> FieldDescriptor | None:
    """Returns the field with the column's name; without `exact_case`, also one that differs only in case."""
    exact: FieldDescriptor | None = message.fields_by_name.get(column)
    if exact is not None or exact_case:
        return exact
    alike = [field for field in message.fields if field.name.lower() == column.lower()]
    if len(alike) > 1:
        raise Bad(f"fields for {column} differ in case only")
    return alike[0] if alike else None


def require_required_fields(message: Any) -> None:
    """Raises Bad if a required field of this message (proto2) is not set. Does not look into nested messages."""
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            raise Bad(f"{field.name} is required")


def has_unknown_enum_value(entry: Any) -> bool:
    """Whether the enum value of a map entry is unknown to its closed enum: parsers then omit the entry."""
    enum = entry.DESCRIPTOR.fields_by_name["value"].enum_type
    unknown: Any = UnknownFieldSet(entry)
    return enum is not None and enum.is_closed and any(found.field_number == _ENTRY_VALUE for found in unknown)


def symbol(enum: Any, number: int) -> str:
    """Returns the name of an enum value; the first of several with this number; the number as text if there is none."""
    return next((value.name for value in enum.values if value.number == number), str(number))
