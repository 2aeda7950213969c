"""Builds Protobuf classes for the auditor from descriptors, and looks up their fields and symbols. Raises Bad.

The classes hold each map as a repeated field of its entries. The library's own maps lose the order of entries, and drop
an entry that has an unknown field. They have only the fields that are read, and those that decide about these: the
library refuses a message for broken bytes in any field that it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from sink.audit.decode.rules import Bad

_ENTRY_VALUE = 2
"""The field number of the value in a map's entry."""
_SIZED = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
"""Types whose values the library looks into; on the wire they are like bytes."""


class Wanted:
    """The fields of a message that are read, by name; all of them with `is_whole`."""

    def __init__(self) -> None:
        self.fields: dict[str, Wanted] = {}
        self.is_whole = False

    def of(self, name: str) -> Wanted:
        return self.fields.setdefault(name, Wanted())


class MessageTypes:
    """The message types of a FileDescriptorSet. `entries` are the full names of all entries of maps."""

    def __init__(self, descriptors: bytes) -> None:
        self._files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
        self._declared = {
            name: declared
            for file in self._files.values()
            for outer in file.message_type
            for name, declared in _nested(outer, file.package)
        }
        self.entries = frozenset(name for name, declared in self._declared.items() if declared.options.map_entry)
        for name in self.entries:
            self._declared[name].options.ClearField("map_entry")
        self._pool = self._filled()
        self._numbers = count()

    def message(self, name: str) -> Descriptor:
        return self._pool.FindMessageTypeByName(name)

    def narrowed(self, name: str, wanted: Wanted) -> Any:
        """Returns the class of a message that has the wanted fields."""
        narrow = self._add(self.message(name), wanted)
        return GetMessageClass(self._filled().FindMessageTypeByName(narrow))

    def _filled(self) -> DescriptorPool:
        pool = DescriptorPool()
        for file in self._files.values():
            pool.AddSerializedFile(file.SerializeToString())
        return pool

    def _add(self, message: Descriptor, wanted: Wanted) -> str:
        """Adds a type beside a message's with only the wanted fields. Returns its full name."""
        narrow = DescriptorProto()
        message.CopyToProto(narrow)
        for inner in ("nested_type", "enum_type", "extension"):
            narrow.ClearField(inner)
        narrow.name = f"sink_{next(self._numbers)}_{message.name}"
        decided = {
            part.containing_oneof.name
            for part in message.fields
            if part.name in wanted.fields and part.containing_oneof
        }
        kept = []
        for part, declared in zip(message.fields, narrow.field, strict=True):
            if part.name in wanted.fields:
                self._narrow(part, declared, wanted.fields[part.name])
            elif part.is_required or (part.containing_oneof and part.containing_oneof.name in decided):
                self._hide(part, declared)
            else:
                continue
            kept.append(declared)
        _keep(narrow, kept)
        outer = message.containing_type
        siblings = self._declared[outer.full_name].nested_type if outer else self._files[message.file.name].message_type
        siblings.append(narrow)
        return message.full_name.removesuffix(message.name) + narrow.name

    def _narrow(self, part: FieldDescriptor, declared: FieldDescriptorProto, wanted: Wanted) -> None:
        if part.message_type is not None and not wanted.is_whole:
            declared.type_name = f".{self._add(part.message_type, wanted)}"

    def _hide(self, part: FieldDescriptor, declared: FieldDescriptorProto) -> None:
        """Leaves nothing of a field but that it is there."""
        if part.type in _SIZED:
            declared.type = FieldDescriptorProto.TYPE_BYTES
            declared.ClearField("type_name")
            declared.ClearField("default_value")
        else:
            self._narrow(part, declared, Wanted())


def _nested(declared: DescriptorProto, outer: str) -> Iterator[tuple[str, DescriptorProto]]:
    """Yields a message and all within it, with their full names."""
    name = f"{outer}.{declared.name}".lstrip(".")
    yield name, declared
    for inner in declared.nested_type:
        yield from _nested(inner, name)


def _keep(message: DescriptorProto, kept: list[FieldDescriptorProto]) -> None:
    """Leaves a message these fields, and their oneofs."""
    oneofs = sorted({declared.oneof_index for declared in kept if declared.HasField("oneof_index")})
    for declared in kept:
        if declared.HasField("oneof_index"):
            declared.oneof_index = oneofs.index(declared.oneof_index)
    fields, named = list(kept), [message.oneof_decl[index] for index in oneofs]
    rest = DescriptorProto(field=fields, oneof_decl=named)
    message.ClearField("field")
    message.ClearField("oneof_decl")
    message.MergeFrom(rest)


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
