"""Random Protobuf types, settings and values: writer and auditor read each alike, or both refuse it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from avro_cases import ENDLESS
from hypothesis import given, settings
from hypothesis import strategies as st
from names_kit import Renaming
from protobuf_kit import Field, Maker, kind_of, sized, tag, varint
from test_records_fuzz import same_row

from coordination.errors import ConfigError
from sink.audit.decode.protobuf_values import protobuf_row
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

    def occurrence(self, field: Any) -> bytes:
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
            return protobuf_row(value, descriptors, "t.K", columns, auditors)
        except Bad:
            return None

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


@pytest.mark.parametrize("value", [b"\x08", b"\x0a\x01\xff", b"\x0c", b"\x0a\x05a"])
def test_broken_bytes_are_bad_to_the_auditor_too(value: bytes) -> None:
    maker = MeantMaker(random.Random(1))
    with pytest.raises(Bad):
        protobuf_row(value, maker.proto.bytes(), "t.K", json.loads(parse_ddl("k1 string").value_struct.json()), Rules())
