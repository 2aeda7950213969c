"""Random Protobuf messages, and their values as the official library decodes them: the oracle of the tests."""

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Sequence
from datetime import timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as T

from sink.decode.cursors import Cursors
from sink.decode.fields import NO_RULES, ValueRules
from sink.decode.protobuf.columns import ProtobufReader
from sink.schema.table_schema import parse_ddl
from tests.columns_kit import columns

Field = descriptor_pb2.FieldDescriptorProto
UTC = timezone.utc
_COLUMN = re.compile(r"^column '[^']*': ")
KINDS = {name.removeprefix("TYPE_").lower(): number for name, number in Field.Type.items()}
LABELS = {"optional": 1, "required": 2, "repeated": 3}
WELL_KNOWN = [struct_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR]
DDL = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), "bigint"),
    **dict.fromkeys(("uint64", "fixed64"), "decimal(20,0)"),
    **dict.fromkeys(("string", "enum"), "string"),
    **{"float": "float", "double": "double", "bool": "boolean", "bytes": "binary"},
}


class Proto:
    """A .proto file: messages of fields written `[label] kind name = number [default]`, enums of names."""

    def __init__(self, syntax: str = "proto3", package: str = "t") -> None:
        self.file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
        if syntax == "editions":
            self.file.edition = descriptor_pb2.EDITION_2023
        self.file.dependency.extend(file.name for file in WELL_KNOWN)
        self.package = package

    def enum(self, name: str, **numbers: int) -> Proto:
        enum = self.file.enum_type.add(name=name)
        enum.options.allow_alias = len(set(numbers.values())) < len(numbers)
        for symbol, number in numbers.items():
            enum.value.add(name=symbol, number=number)
        return self

    def message(self, name: str, *fields: str, oneof: Sequence[str] = ()) -> Proto:
        message = self.file.message_type.add(name=name)
        for text in fields:
            self.field(message, text)
        if oneof:
            message.oneof_decl.add(name="choice")
            for text in oneof:
                self.field(message, text).oneof_index = 0
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
        return self

    def field(self, message: Any, text: str) -> Any:
        words = text.split()
        label = words.pop(0) if words[0] in LABELS else ""
        kind, name, _, number, *default = words
        field = message.field.add(name=name, number=int(number), label=LABELS[label or "optional"])
        if self.file.syntax == "proto3" and label == "optional":
            field.proto3_optional = True
        if kind.startswith("map<"):
            key, value = kind[4:-1].split(",")
            entry = message.nested_type.add(name=f"{name.title()}Entry")
            entry.options.map_entry = True
            self.field(entry, f"{key} key = 1")
            self.field(entry, f"{value} value = 2")
            field.label, field.type, field.type_name = 3, Field.TYPE_MESSAGE, f".t.{message.name}.{entry.name}"
        elif kind in KINDS:
            field.type = KINDS[kind]
        else:
            shape, _, name = kind.rpartition(":")
            field.type = {"enum": Field.TYPE_ENUM, "group": Field.TYPE_GROUP}.get(shape, Field.TYPE_MESSAGE)
            if shape == "group" and self.file.syntax == "editions":
                field.type = Field.TYPE_MESSAGE
                field.options.features.message_encoding = descriptor_pb2.FeatureSet.DELIMITED
            field.type_name = name if "." in name else f".{self.package}.{name}"
        if default:
            field.default_value = default[0]
        return field

    def set(self) -> descriptor_pb2.FileDescriptorSet:
        files = descriptor_pb2.FileDescriptorSet()
        for well_known in WELL_KNOWN:
            well_known.CopyToProto(files.file.add())
        files.file.append(self.file)
        return files

    def bytes(self) -> bytes:
        return self.set().SerializeToString()

    def type(self, name: str) -> Any:
        pool = DescriptorPool()
        for file in self.set().file:
            pool.AddSerializedFile(file.SerializeToString())
        return GetMessageClass(pool.FindMessageTypeByName(f"{self.package}.{name}"))

    def reader(self, ddl: str, name: str = "M", rules: ValueRules = NO_RULES) -> ProtobufReader:
        return ProtobufReader(self.bytes(), f"{self.package}.{name}", columns(ddl, rules))


def read(reader: ProtobufReader, values: Sequence[bytes]) -> list[Any]:
    """Returns the columns of each value, or the reason of its refusal without the column."""
    cursors = Cursors(pa.array(values, pa.binary()))
    columns = reader.read(cursors, np.arange(len(values)))
    for column in columns:
        column.validate(full=True)
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    reasons = {index: _COLUMN.sub("", reason) for index, reason in cursors.reasons.items()}
    return [reasons[index] if cursors.failed[index] else list(row) for index, row in enumerate(rows)]


def decode_one(proto: Proto, ddl: str, value: bytes, rules: ValueRules = NO_RULES) -> Any:
    """Returns the only column of a value, after asserting that it is the same alone and among many."""
    reader = proto.reader(ddl, rules=rules)
    (alone,) = read(reader, [value])
    assert repr(read(reader, [value] * 40)) == repr([alone] * 40)
    return alone[0] if isinstance(alone, list) else alone


def varint(number: int, padding: int = 0) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number >= 0x80 or padding:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
        padding = max(0, padding - 1)
    return bytes([*encoded, number])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def sized(number: int, value: bytes) -> bytes:
    return tag(number, 2) + varint(len(value)) + value


# The expected values, by the official library.


def ddl_of(message: Any) -> str:
    return ", ".join(f"{field.name} {kind_of(field)}" for field in message.fields)


def kind_of(field: Any) -> str:
    message_type = field.message_type
    if message_type is not None and message_type.GetOptions().map_entry:
        return f"map<string,{kind_of(message_type.fields_by_name['value'])}>"
    name = Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    kind = (
        DDL[name]
        if message_type is None
        else f"struct<{','.join(f'{inner.name}:{kind_of(inner)}' for inner in message_type.fields)}>"
    )
    return f"array<{kind}>" if field.is_repeated else kind


def expected_row(message: Any) -> list[Any]:
    return [value_of(message, field) for field in message.DESCRIPTOR.fields]


def value_of(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {
            str(key).lower() if isinstance(key, bool) else str(key): python_value(value[key], inner) for key in value
        }
    if field.is_repeated:
        return [python_value(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    return python_value(value, field)


def python_value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return dict(zip(value.DESCRIPTOR.fields_by_name, expected_row(value), strict=True))
    if field.enum_type is not None:
        enum_value = field.enum_type.values_by_number.get(value)
        return (
            str(value)
            if enum_value is None
            else next(symbol.name for symbol in field.enum_type.values if symbol.number == value)
        )
    if Field.Type.Name(field.type) in ("TYPE_UINT64", "TYPE_FIXED64"):
        return Decimal(value)
    return value


def library_result(kind: Any, value: bytes) -> list[Any] | str:
    try:
        message = kind.FromString(value)
        return expected_row(message) if message.IsInitialized() else "not initialized"
    except (DecodeError, UnicodeDecodeError) as error:
        return str(error)


def comparable(row: Any) -> Any:
    """Makes values comparable: maps without order, NaN equal to NaN."""
    if isinstance(row, float):
        return "NaN" if math.isnan(row) else struct.pack("<d", row)
    if isinstance(row, dict):
        return {name: comparable(inner) for name, inner in row.items()}
    if isinstance(row, list) and row and all(isinstance(inner, tuple) for inner in row):
        return {name: comparable(inner) for name, inner in row}
    return [comparable(inner) for inner in row] if isinstance(row, list) else row


def equal_rows(actual: Any, expected: Any, kinds: Sequence[Any]) -> bool:
    if isinstance(actual, str) or isinstance(expected, str):
        return isinstance(actual, str) and isinstance(expected, str)
    maps = [isinstance(kind.dataType, T.MapType) for kind in kinds]
    actual = [dict(value) if is_map else value for value, is_map in zip(actual, maps, strict=True)]
    return bool(comparable(actual) == comparable(expected))


# Random message types, and random bytes of them at the level of the wire.

NUMBERS = ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool",
           "fixed32", "sfixed32", "float", "fixed64", "sfixed64", "double"]  # fmt: skip
WIRES = {**dict.fromkeys(NUMBERS[:7], 0), **dict.fromkeys(NUMBERS[7:10], 5), **dict.fromkeys(NUMBERS[10:], 1)}


class Maker:
    """Random types and values; `plain_only` leaves out types whose wrong bytes reader and library judge differently."""

    def __init__(self, chance: random.Random, plain_only: bool = False) -> None:
        self.chance = chance
        self.syntax = chance.choice(["proto2", "proto3", "editions"])
        self.proto = Proto(self.syntax).enum("E", ZERO=0, ONE=1, UNO=1, BACK=-1)
        self.proto.message("Inner", *self.fields(chance.randint(1, 4), [*NUMBERS, "string", "bytes", "enum:E"]))
        rich = [*NUMBERS, "string", "bytes", "enum:E", "Inner", "Inner"]
        if self.syntax != "proto3":
            rich = [*rich, "group:Inner"]
        fields = self.fields(chance.randint(1, 6), rich)
        if not plain_only:
            keys = ["string", "int32", "sint64", "bool", "fixed64"]
            # The library judges an entry that a later one replaced by its bytes, not by missing required fields.
            values = ["string", "enum:E", "double", "uint64", "string" if self.syntax == "proto2" else "Inner"]
            fields.append(f"map<{chance.choice(keys)},{chance.choice(values)}> m = 20")
        oneof = [
            f"{kind} o{index} = {30 + index}"
            for index, kind in enumerate(chance.sample(rich[:-2], chance.choice([0, 3])))
        ]
        if plain_only:
            oneof = [text for text in oneof if "Inner" not in text]
        self.proto.message("M", *fields, oneof=oneof)
        self.type = self.proto.type("M")

    def fields(self, count: int, kinds: list[str]) -> list[str]:
        labels = {"proto2": ["optional", "required", "repeated"], "editions": ["", "repeated"]}
        numbers = self.chance.sample([*range(1, 20), 2000, (1 << 29) - 1], count)
        declarations = []
        for number in numbers:
            label = self.chance.choice(labels.get(self.syntax, ["", "optional", "repeated"]))
            kind = self.chance.choice(kinds)
            default = ""
            if label != "repeated" and self.syntax != "proto3" and self.chance.random() < 0.3:
                default = {"string": "old", "int32": "7", "double": "2.5", "enum:E": "UNO"}.get(kind, "")
            declarations.append(f"{label} {kind} f{number} = {number} {default}".strip())
        return declarations

    def number(self, wire: int) -> bytes:
        if wire:
            return self.chance.randbytes(8 if wire == 1 else 4)
        small, wide = self.chance.randint(-2, 3), self.chance.getrandbits(64)
        return varint(self.chance.choice([small, wide >> self.chance.randint(0, 63)]), self.chance.choice([0, 0, 0, 1]))

    def occurrence(self, field: Any) -> bytes:
        """Returns an occurrence of a field, now and then in a form that makes it an unknown field."""
        name = Field.Type.Name(field.type).removeprefix("TYPE_").lower()
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = b"".join(
                self.occurrence(entry_field) for entry_field in field.message_type.fields if self.chance.random() < 0.8
            )
            return sized(field.number, entry)
        if self.chance.random() < 0.05 and field.containing_type.full_name == "t.M":
            return self.unknown(field.number if WIRES.get(name) in (1, 5) and not field.is_repeated else 999)
        if name in ("string", "bytes"):
            text = self.chance.choice(["", "a", "zwölf", "漢字" * 9]).encode()
            return sized(field.number, text if name == "string" else self.chance.randbytes(self.chance.randint(0, 9)))
        if field.message_type is not None:
            inner = self.value(field.message_type)
            if name == "group":
                return tag(field.number, 3) + inner + tag(field.number, 4)
            return sized(field.number, inner)
        wire = WIRES.get(name, 0)
        if field.is_repeated and self.chance.random() < 0.5:
            return sized(field.number, b"".join(self.number(wire) for _ in range(self.chance.randint(0, 4))))
        return tag(field.number, wire) + self.number(wire)

    def unknown(self, number: int = 999) -> bytes:
        group = tag(5, 0) + varint(3) + tag(6, 3) + tag(7, 5) + b"abcd" + tag(6, 4) + tag(8, 2) + varint(2) + b"xy"
        return self.chance.choice(
            [tag(number, 0) + varint(5), sized(number, b"x"), tag(number, 3) + group + tag(number, 4)]
        )

    def value(self, descriptor: Any) -> bytes:
        occurrences = [
            self.occurrence(field) for field in descriptor.fields for _ in range(self.chance.choice([0, 1, 1, 1, 2]))
        ]
        required = [field for field in descriptor.fields if field.is_required]
        if self.chance.random() < 0.9:
            occurrences += [self.occurrence(field) for field in required]
        if self.chance.random() < 0.5:
            self.chance.shuffle(occurrences)
        return b"".join(occurrences) + self.chance.choice([b"", b"", self.unknown()])

    def values(self, count: int) -> list[bytes]:
        return [self.value(self.type.DESCRIPTOR) for _ in range(count)]


def decode_both(maker: Maker, values: list[bytes]) -> tuple[list[Any], list[Any], list[Any]]:
    ddl = ddl_of(maker.type.DESCRIPTOR)
    reader, kinds = maker.proto.reader(ddl), parse_ddl(ddl).value_struct.fields
    return read(reader, values), [library_result(maker.type, value) for value in values], kinds
