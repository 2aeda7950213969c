"""Finds Protobuf messages in descriptor sets, and the fields of a message that fill columns.

Raises ConfigError for invalid descriptors and missing messages, SchemaMismatch for a field that is not decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from coordination.errors import ConfigError
from sink.decode.records import SchemaMismatch

_TYPE_NAMES = {int(number): name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


def descriptor_of(descriptors: bytes, message: str | Sequence[int]) -> Descriptor:
    try:
        pool, last_file = _pool_of(descriptors)
        if isinstance(message, str):
            return pool.FindMessageTypeByName(message)
        nested = pool.FindFileByName(last_file).message_types_by_name
        if not message or min(message) < 0:
            raise IndexError("no message has such indexes")
        descriptor = list(nested.values())[message[0]]
        for index in message[1:]:
            descriptor = descriptor.nested_types[index]
        return descriptor
    except (DecodeError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(
            f"the Protobuf descriptors have no valid message {message!r} "
            f"({type(error).__name__}: {error}). Correct them or the message's name."
        ) from None


def messages_of(descriptors: bytes) -> tuple[str, ...]:
    """Returns the full names of the messages of the last file, without those nested in others."""
    pool, last_file = _pool_of(descriptors)
    return tuple(message.full_name for message in pool.FindFileByName(last_file).message_types_by_name.values())


@lru_cache(20)
def _pool_of(descriptors: bytes) -> tuple[DescriptorPool, str]:
    """Returns the files' types and the last file's name. Records choose the message, so that this is done once."""
    files = FileDescriptorSet.FromString(descriptors).file
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool, files[-1].name


class Fields:
    """The fields of a message, by the names of columns."""

    def __init__(self, message: Descriptor, exact_case: bool) -> None:
        self._same = message.fields_by_name
        self._alike: dict[str, list[FieldDescriptor]] = {}
        """The fields by their names in lower case; none if the case counts."""
        for field in () if exact_case else message.fields:
            self._alike.setdefault(field.name.lower(), []).append(field)

    def of_column(self, name: str, path: str) -> FieldDescriptor | None:
        """Returns the field of a column's name, else the only one that differs from it in case; None if there is none.
        `path` is the column's."""
        if (same := self._same.get(name)) is not None:
            return same
        alike = self._alike.get(name.lower(), [])
        if len(alike) > 1:
            wrote = f"{' and '.join(repr(field.name) for field in alike[:2])}, which differ in case only"
            raise SchemaMismatch(path, wrote, f"{name!r}. Name it like one of them, or set field.case=exact")
        return alike[0] if alike else None


def map_entry(field: FieldDescriptor) -> Descriptor | None:
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


def type_text(field: FieldDescriptor) -> str:
    named_type = field.message_type or field.enum_type
    name = named_type.full_name if named_type is not None else _TYPE_NAMES[field.type]
    return f"repeated {name}" if field.is_repeated else name
