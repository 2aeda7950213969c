"""One Avro record, one meaning: the writer's decoder and the auditor's are compared with each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from avro_cases import AvroCases, zigzag
from hypothesis import given, settings
from hypothesis import strategies as st
from names_kit import Renaming
from pyspark.sql import types as T
from test_records_fuzz import RULES, same_row

from coordination.errors import ConfigError
from sink.audit.decode.avro_values import avro_reader
from sink.audit.decode.rules import Bad, Rules
from sink.decode.cursors import TOO_LONG
from sink.decode.fields import Choices, ValueRules
from sink.decode.formats import ValueFormat
from sink.schema.avro import record_columns
from sink.schema.avro_types import parse_avro
from sink.schema.bounds import LARGEST
from sink.schema.table_schema import parse_ddl

ONE_COLUMN = (
    ValueRules(
        Choices("ns", (("a", "us"), ("B.c", "ms"))),
        Choices("us", (("c", "days"),)),
        Choices(None, (("a", "numeric"),)),
        infinity="null",
    ),
    Rules({"": "ns", "a": "us", "B.c": "ms"}, {"": "us", "c": "days"}, {"a": "numeric"}, infinity="null"),
)
AVRO_RULES = {**RULES, "one column": ONE_COLUMN}
SCHEMAS = 5
VALUES = 10 if settings.default.max_examples < 100 else 40
"""Values of a schema: 5,000 of all in `make test`, 100,000 in `make test-all`."""


@pytest.mark.parametrize("name", AVRO_RULES)
@given(seed=st.integers(0, 2**64))
def test_the_auditor_reads_each_avro_record_alike_or_both_refuse_it(name: str, seed: int) -> None:
    cases = AvroCases(Random(seed))
    for _ in range(SCHEMAS):
        schema = cases.schema()
        values, ours = [cases.value(schema) for _ in range(VALUES)], AVRO_RULES[name]
        fitting = []
        for column in cases.columns(schema):
            if compare(schema, column, values[:1], *ours):
                fitting.append(column)
        if fitting:
            assert compare(schema, ", ".join(fitting), values, *ours)


@given(seed=st.integers(0, 2**64))
def test_the_columns_of_a_schema_read_its_records(seed: int) -> None:
    cases = AvroCases(Random(seed))
    for _ in range(SCHEMAS):
        schema = cases.schema()
        struct = record_columns(parse_avro([json.dumps(schema)], LARGEST), LARGEST, [])
        rules, auditors = ValueRules(exact_case=True), Rules(exact_case=True)
        if struct.fields:
            assert compare(schema, struct, [cases.value(schema) for _ in range(VALUES)], rules, auditors)


@given(seed=st.integers(0, 2**64))
def test_fields_of_other_names_are_read_alike(seed: int) -> None:
    cases, (ours, auditors) = AvroCases(Random(seed)), AVRO_RULES["digits"]
    for _ in range(SCHEMAS):
        schema = cases.schema()
        values = [cases.value(schema) for _ in range(VALUES)]
        fitting = [column for column in cases.columns(schema) if compare(schema, column, values[:1], ours, auditors)]
        if fitting:
            renaming = Renaming(cases.random)
            struct = renaming.columns(parse_ddl(", ".join(fitting)).value_struct)
            named = replace(ours, names=tuple(renaming.names.items())), replace(auditors, names=renaming.names)
            assert compare(schema, struct, values, *named)


@given(seed=st.integers(0, 2**64))
def test_a_decimal_lands_by_its_own_size_whatever_its_schema_says(seed: int) -> None:
    random = Random(seed)
    for rounds in (False, True):
        written, column = (sorted((random.randint(0, most), random.randint(1, most))) for most in (60, 38))
        kind = {"type": "bytes", "logicalType": "decimal", "precision": written[1], "scale": written[0]}
        schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
        numbers = [random.randint(-(10**digits), 10**digits) for digits in range(45)]
        contents = [number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in numbers]
        values = [zigzag(len(content)) + content for content in contents]
        # Together, alone, and those that are short: a batch without a bad value is read at once.
        for batch in (values, values[:8], *([value] for value in values)):
            ddl = f"a DECIMAL({column[1]},{column[0]})"
            assert compare(schema, ddl, batch, ValueRules(rounds=rounds), Rules(rounds=rounds))


def compare(
    schema: dict[str, Any], ddl: str | T.StructType, values: list[bytes], rules: ValueRules, auditors: Rules
) -> bool:
    """Reads values into columns with both decoders. Returns whether the schema fits the columns."""
    struct = parse_ddl(ddl).value_struct if isinstance(ddl, str) else ddl
    place = json.dumps(schema), struct.simpleString(), rules.names
    try:
        decoder = ValueFormat("avro", json.dumps(schema).encode(), rules=rules).decoder(struct)
    except ConfigError as mismatch:
        with pytest.raises(Bad):
            pytest.fail(f"{mismatch} {place} {avro_reader([json.dumps(schema)], json.loads(struct.json()), auditors)}")
        return False
    read = avro_reader([json.dumps(schema)], json.loads(struct.json()), auditors)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    refused, rows = {bad.index: bad.reason for bad in decoded.bad}, iter(decoded.rows.to_pylist())
    for at, value in enumerate(values):
        if refused.get(at, "").startswith(TOO_LONG):
            # fastavro cuts a number beyond 64 bits, which no writer makes.
            continue
        audited, reason = audited_row(read, value)
        assert (audited is None) == (at in refused), (place, value, audited, reason, refused.get(at))
        if audited is not None:
            row = next(rows)
            assert same_row(row, audited, struct), (place, value, row, audited)
    return True


def audited_row(read: Callable[[bytes], dict[str, Any]], value: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        return read(value), ""
    except Bad as bad:
        return None, str(bad)
