"""Converts google.protobuf's Struct, Value and ListValue to JSON texts.

Guarantee: the members in the order of the message; of a name that occurs twice the last value counts. A whole number
below 1e21 is written by its digits, another one by the fewest digits that give it again. A Value without a kind is
`null`, as in Protobuf's own libraries. NaN and infinite numbers fail their message: JSON has none, and Protobuf's JSON
refuses them. Raises nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from sink.decode.cursors import Cursors, Rows
from sink.decode.protobuf.fields import Occurrences

_MOST_DIGITS = 1e21
"""JavaScript writes whole numbers from here on with an exponent."""


class _NotFinite(Exception):
    pass


def json_texts(name: str, cursors: Cursors, occurrences: Occurrences, owners: Rows, count: int) -> pa.Array:
    """Returns the text of each of `count` messages of the type `name`, each merged from all occurrences of its
    owner."""
    make, write = JSON_TYPES[name]
    messages = [make() for _ in range(count)]
    rows = np.zeros(count, np.int64)
    rows[owners] = occurrences.rows
    spans = zip(occurrences.rows.tolist(), occurrences.starts.tolist(), occurrences.lengths.tolist(), strict=True)
    for owner, (row, start, length) in zip(owners.tolist(), spans, strict=True):
        try:
            messages[owner].MergeFromString(cursors.data[start : start + length].tobytes())
        except DecodeError:
            # The library leaves a message behind that ends the process when it is read.
            messages[owner] = make()
            cursors.fail(np.array([row]), f"bytes that are not a {name}")
    texts = [""] * count
    for owner, message in enumerate(messages):
        try:
            texts[owner] = write(message)
        except _NotFinite:
            reason = (
                f"a {name} holds NaN or an infinite number, which JSON has not. Have the producer write it as text."
            )
            cursors.fail(rows[owner : owner + 1], reason)
    return pa.array(texts, pa.string())


def _value(value: Any) -> str:
    kind = value.WhichOneof("kind")
    return "null" if kind is None else _KINDS[kind](getattr(value, kind))


def _struct(struct: Any) -> str:
    members = {entry.key: entry.value for entry in struct.fields}
    return f"{{{','.join(f'{_text(key)}:{_value(value)}' for key, value in members.items())}}}"


def _list(values: Any) -> str:
    return f"[{','.join(map(_value, values.values))}]"


def _number(number: float) -> str:
    if not math.isfinite(number):
        raise _NotFinite
    return str(int(number)) if number.is_integer() and abs(number) < _MOST_DIGITS else repr(number)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_KINDS: Mapping[str, Callable[[Any], str]] = {
    "null_value": lambda _: "null",
    "number_value": _number,
    "string_value": _text,
    "bool_value": lambda flag: "true" if flag else "false",
    "struct_value": _struct,
    "list_value": _list,
}


def _classes() -> DescriptorPool:
    """Returns the types with `fields` as a list of entries: the library's maps forget the order of their entries."""
    file = FileDescriptorProto()
    struct_pb2.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        for entry in message.nested_type:
            entry.ClearField("options")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _class_of(name: str) -> Callable[[], Any]:
    return GetMessageClass(_POOL.FindMessageTypeByName(name))


_POOL = _classes()
JSON_TYPES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], str]]] = {
    name: (_class_of(name), write)
    for name, write in (
        ("google.protobuf.Struct", _struct),
        ("google.protobuf.Value", _value),
        ("google.protobuf.ListValue", _list),
    )
}
"""For each type: its class, and what writes a message of it."""
