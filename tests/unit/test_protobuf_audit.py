"""Random Protobuf types, settings and values: writer and auditor read each alike, or both refuse it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from avro_cases import ENDLESS
from hypothesis import given, settings
from hypothesis import strategies as st
from names_kit import Renaming
from protobuf_kit import Field, Maker, Proto, decode_one, kind_of, read, sized, tag, varint
from test_records_fuzz import same_row

from coordination.errors import ConfigError
from sink.audit.decode.protobuf_values import protobuf_reader
from sink.audit.decode.rules import Bad, Rules
from sink.decode.fields import Choices, Infinity, ValueRules
from sink.decode.formats import ValueFormat
from sink.schema.table_schema import parse_ddl

MESSAGES = 250 if settings.default.max_examples <= 20 else 1000
TEXTS = [
    "",
    "a",
    "12.5",
    "-1e3",
    "1.234",
    "AeJA",
    "2024-05-06T07:08:09.5Z",
    "2024-05-06",
    "infinity",
    "-infinity",
    "zwölf",
]
KNOWN = ["Struct", "Value", "ListValue", "Timestamp", "Int64Value", "StringValue"]
KINDS = {
    "TYPE_STRING": ["string", "string", "decimal(10,2)", "timestamp", "date"],
    "TYPE_DOUBLE": ["double", "double", "timestamp", "float"],
    **{f"TYPE_{name}": ["bigint", "timestamp", "date", "int"] for name in ("INT64", "SINT64", "SFIXED64", "UINT32")},
    **{f"TYPE_{name}": ["int", "tinyint", "double", "date"] for name in ("INT32", "SINT32", "SFIXED32")},
    **{f"TYPE_{name}": ["decimal(20,0)", "bigint", "timestamp"] for name in ("UINT64", "FIXED64")},
}
DEEPEST = 6
MOST_MESSAGES = 25
"""Messages within a value. A few of the random types would fill megabytes."""
PARTS = 10


class MeantMaker(Maker):
    """A maker of messages with texts that are numbers and times, and with well-known types."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        optional = "optional " if self.syntax == "proto2" else ""
        known = [
            f"{chance.choice([optional, 'repeated '])}google.protobuf.{name} k{n} = {n}"
            for n, name in enumerate(KNOWN, 1)
        ]
        self.proto.message("K", *known, "map<string,google.protobuf.Value> m = 9", f"{optional}M of = 10")
        self.type = self.proto.type("K")
        self._depth = self._messages = 0
        self._read: set[str] = set()
        """The full names of fields that fill a column."""

    def occurrence(self, field: Any) -> bytes:
        is_sized = field.type in (Field.TYPE_STRING, Field.TYPE_MESSAGE)
        is_unread = field.full_name not in self._read and field.containing_type.full_name in ("t.K", "t.M", "t.Inner")
        if is_sized and is_unread and self.chance.random() < 0.2:
            return sized(field.number, b"\xff")
        if field.type == Field.TYPE_STRING and self.chance.random() < 0.8:
            return sized(field.number, self.chance.choice(TEXTS).encode())
        if field.type == Field.TYPE_INT64 and self.chance.random() < 0.05:
            return tag(field.number, 0) + varint(self.chance.choice(ENDLESS) % 2**64)
        if field.containing_type.full_name == "google.protobuf.Timestamp" and self.chance.random() < 0.95:
            return tag(field.number, 0) + varint(self.chance.randrange(10**9))
        return super().occurrence(field)

    def value(self, descriptor: Any) -> bytes:
        if self._depth == 0:
            self._messages = 0
        if self._depth >= DEEPEST or self._messages >= MOST_MESSAGES:
            return b""
        self._messages += 1
        self._depth += 1
        try:
            return super().value(descriptor)
        finally:
            self._depth -= 1

    def columns(self, descriptor: Any) -> str:
        """Returns random columns of a message, in DDL."""
        fields = [field for field in descriptor.fields if self.chance.random() < 0.9]
        self._read.update(field.full_name for field in fields)
        written = [self._column(field) for field in fields]
        return ", ".join(written or ["none string"])

    def _column(self, field: Any) -> str:
        name = self.chance.choice([field.name, field.name, field.name.upper()])
        return f"{name} {self._kind(field)}{self.chance.choice([''] * 9 + [' not null'])}"

    def _kind(self, field: Any) -> str:
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            return f"map<string,{self._kind(message.fields_by_name['value'])}>"
        kind = self._single(field)
        return f"array<{kind}>" if field.is_repeated else kind

    def _single(self, field: Any) -> str:
        message = field.message_type
        if message is None:
            plain = kind_of(field).removeprefix("array<").removesuffix(">")
            unusual = KINDS.get(Field.Type.Name(field.type), [plain])
            return self.chance.choice(unusual) if self.chance.random() < 0.3 else plain
        if message.full_name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
            return "string"
        if message.full_name == "google.protobuf.Timestamp":
            return "timestamp"
        if message.file.package == "google.protobuf":
            return self._single(message.fields_by_name["value"])
        return f"struct<{self.columns(message)}>"

    def rules(self) -> tuple[ValueRules, Rules]:
        units = ["s", "ms", "us", "ns"]
        time, date = self.chance.choice([None, *units]), self.chance.choice([None, "days", *units])
        text = self.chance.choice([None, "numeric", "base64"])
        rounds, exact = self.chance.random() < 0.3, self.chance.random() < 0.2
        infinity: Infinity = self.chance.choice(("bad", "null", "bound"))
        ours = ValueRules(Choices(time), Choices(date), Choices(text), infinity, rounds, exact)
        theirs = [{"": choice} if choice else {} for choice in (time, date, text)]
        return ours, Rules(*theirs, infinity=infinity, rounds=rounds, exact_case=exact)


def refuse(error: Bad, _: bytes) -> NoReturn:
    raise error


# In parts: all 100,000 messages take longer than a test may on a busy machine.
@pytest.mark.parametrize("part", range(PARTS))
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // PARTS)
def test_the_auditor_reads_each_message_alike_or_both_refuse_it(part: int, seed: int) -> None:
    maker = MeantMaker(random.Random(f"{part} {seed}"))
    rules, auditors = maker.rules()
    struct = parse_ddl(maker.columns(maker.type.DESCRIPTOR)).value_struct
    if maker.chance.random() < 0.4:
        renaming = Renaming(maker.chance)
        struct = renaming.columns(struct)
        rules, auditors = (
            replace(rules, names=tuple(renaming.names.items())),
            replace(auditors, names=renaming.names),
        )
    values = maker.values(MESSAGES)
    descriptors, columns = maker.proto.bytes(), json.loads(struct.json())

    def audited(value: bytes) -> dict[str, Any] | None:
        try:
            return auditor(value)
        except Bad:
            return None

    try:
        auditor = protobuf_reader(descriptors, "t.K", columns, auditors)
    except Bad as error:
        auditor = partial(refuse, error)

    try:
        decoded = ValueFormat("protobuf", descriptors, "t.K", rules=rules).decoder(struct).decode(pa.array(values))
    except ConfigError:
        assert [audited(value) for value in values[:10]] == [None] * len(values[:10]), (part, seed)
        return
    reasons = {bad.index: bad.reason for bad in decoded.bad}
    rows = iter(decoded.rows.to_pylist())
    for index, value in enumerate(values):
        row = None if index in reasons else next(rows)
        assert same_row(row, audited(value), struct), (part, seed, value.hex(), row, audited(value), reasons.get(index))


def test_the_fuzzed_messages_are_good_often_enough() -> None:
    good = total = 0
    for seed in range(20):
        maker = MeantMaker(random.Random(seed))
        rules, _ = maker.rules()
        struct = parse_ddl(maker.columns(maker.type.DESCRIPTOR)).value_struct
        try:
            decoder = ValueFormat("protobuf", maker.proto.bytes(), "t.K", rules=rules).decoder(struct)
        except ConfigError:
            continue
        good += decoder.decode(pa.array(maker.values(50))).rows.num_rows
        total += 50
    assert total >= 100
    assert good >= total / 10


READ, TEXT, BROKEN = b"\x08\x05", sized(2, b"\xff"), sized(3, b"\x0a\x7f")
IN = "int64 c = 1", "string t = 2", "In n = 3"
ROWS = {
    "a text without a column": ("c bigint", READ + TEXT, {"c": 5}),
    "a message without a column": ("c bigint", READ + BROKEN, {"c": 5}),
    "fields without a column in a struct": (
        "n struct<c: bigint>", sized(3, READ + TEXT + BROKEN), {"n": {"c": 5}}),
    "one of two structs of a type": (
        "n struct<t: string, n: struct<c: bigint>>", sized(3, sized(2, b"a") + sized(3, READ + TEXT + BROKEN)),
        {"n": {"t": "a", "n": {"c": 5}}}),
    "fields without a column in a list": (
        "l array<struct<c: bigint>>", sized(4, READ + TEXT) * 2, {"l": [{"c": 5}] * 2}),
    "fields without a column in a map": (
        "m map<string, struct<c: bigint>>", sized(5, sized(1, b"k") + sized(2, READ + BROKEN)), {"m": {"k": {"c": 5}}}),
    "the other member of a oneof": ("a int", tag(6, 0) + b"\x05" + sized(7, b"\x0a\x7f"), {"a": None}),
    "a member of a oneof that was replaced": ("a int", sized(7, b"\x0a\x7f") + tag(6, 0) + b"\x05", {"a": 5}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_is_in_a_field_without_a_column_is_looked_at_by_neither(name: str) -> None:
    ddl, value, row = ROWS[name]
    proto = Proto().message("In", *IN)
    proto.message("M", *IN, "repeated In l = 4", "map<string,In> m = 5", oneof=["int32 a = 6", "In b = 7"])
    audited = reader_of(proto, ddl)(value)
    assert audited == row
    assert same_row(dict(zip(audited, read_one(proto, ddl, value), strict=True)), audited, parse_ddl(ddl).value_struct)


def test_a_required_field_without_a_column_has_to_be_there_whatever_is_in_it() -> None:
    proto = Proto("proto2").message("In", "required int64 c = 1")
    proto.message("M", "optional int64 c = 1", "required In n = 3", "required string t = 2")
    assert reader_of(proto, "c bigint")(READ + TEXT + BROKEN) == {"c": 5}
    for value in (READ + TEXT, READ + BROKEN):
        with pytest.raises(Bad, match="is required"):
            reader_of(proto, "c bigint")(value)


@pytest.mark.parametrize("ddl", ["t string", "l array<string>", "m map<string, int>"])
def test_a_text_of_proto2_that_is_not_utf8_is_bad(ddl: str) -> None:
    proto = Proto("proto2").message("M", "optional string t = 1", "repeated string l = 2", "map<string,int32> m = 3")
    value = {"t": sized(1, b"\xff"), "l": sized(2, b"\xff"), "m": sized(3, sized(1, b"\xff"))}[ddl[0]]
    with pytest.raises(Bad, match="is not UTF-8"):
        reader_of(proto, ddl)(value)
    assert decode_one(proto, ddl, value) == "a text that is not UTF-8"


@pytest.mark.parametrize("value", [b"\x08", b"\x0a\x01\xff", b"\x0c", b"\x0a\x05a"])
def test_broken_bytes_are_bad_to_the_auditor_too(value: bytes) -> None:
    maker = MeantMaker(random.Random(1))
    with pytest.raises(Bad):
        reader_of(maker.proto, "k1 string", "t.K")(value)


def read_one(proto: Proto, ddl: str, value: bytes) -> list[Any]:
    (row,) = read(proto.reader(ddl), [value])
    assert isinstance(row, list), row
    return row


def reader_of(proto: Proto, ddl: str, message: str = "t.M") -> Callable[[bytes | None], dict[str, Any]]:
    return protobuf_reader(proto.bytes(), message, json.loads(parse_ddl(ddl).value_struct.json()), Rules())
