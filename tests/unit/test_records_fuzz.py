"""One record, one meaning: the fast path, the reference and Spark's `from_json` are compared with each other."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_cases import NOT_NUMBERS, NUMBERS, TEXTS, TIMES, Cases
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sink.decode.json_columns import FastParser
from sink.decode.json_records import JsonDecoder
from sink.decode.json_values import FROM_JSON_OPTIONS, Undecodable, record_decoder
from sink.schema import TableSchema, parse_ddl

FLAT = (
    "bo boolean, b tinyint, sh smallint, i int, l bigint, f float, d double, dec decimal(10,2), big decimal(38,10),"
    " s string, bin binary, dt date, ts timestamp"
)
NESTED = (
    "s string, a array<int>, ts array<timestamp>, st struct<x: int, y: string, z: struct<d: date, dec: decimal(10,2)>>,"
    " rows array<struct<k: string, v: double, b: binary>>, deep array<array<float>>"
)
MAPS = "m map<string, int>, n map<string, struct<x: date>>, i int"
SCHEMAS = {name: parse_ddl(ddl) for name, ddl in {"flat": FLAT, "nested": NESTED, "maps": MAPS}.items()}


def decode_alone(decoder: JsonDecoder, value: bytes | None) -> tuple[list[dict[str, Any]], str]:
    decoded = decoder.decode(pa.array([value], pa.binary()))
    return python_rows(decoded.rows), decoded.bad[0].reason if decoded.bad else ""


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns rows as Python values; dates and times as numbers, for Python's own end with the year 9999."""
    numeric_schema = pa.schema([(field.name, counted_type(field.type)) for field in rows.schema])
    return rows.cast(numeric_schema).to_pylist()


def counted_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, counted_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, counted_type(kind.value_type)))
    return pa.map_(kind.key_type, counted_type(kind.item_type)) if pa.types.is_map(kind) else kind


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself."""
    return repr(left).replace("-0.0", "0.0") == repr(right).replace("-0.0", "0.0")


@pytest.mark.parametrize("name", SCHEMAS)
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 8)
def test_the_result_depends_neither_on_batches_nor_on_the_path(name, seed):
    random, schema = Random(seed), SCHEMAS[name]
    cases = Cases(random, schema.value_struct)
    values = [cases.value() if random.random() < 0.3 else cases.plain() for _ in range(120)]
    decoder = JsonDecoder(schema)
    together = decoder.decode(pa.array(values, pa.binary()))
    alone = [decode_alone(decoder, value) for value in values]
    assert same(python_rows(together.rows), [row for rows, _ in alone for row in rows])
    assert [(bad.index, bad.reason) for bad in together.bad] == [(at, bad) for at, (_, bad) in enumerate(alone) if bad]


@pytest.mark.parametrize("name", ["flat", "nested"])
@given(seed=st.integers(0, 2**64))
@settings(max_examples=settings.default.max_examples // 5)
def test_whatever_the_fast_path_takes_the_reference_takes_with_the_same_value(name, seed):
    schema = SCHEMAS[name]
    cases, fast, slow = (
        Cases(Random(seed), schema.value_struct),
        FastParser(schema),
        record_decoder(schema.value_struct),
    )
    taken_count = 0
    for value in (cases.value() for _ in range(60)):
        rows = fast.parse(pa.array([value], pa.binary()))
        if rows is None:
            continue
        try:
            record = slow(value)
        except Undecodable:
            # Inf and nan outside any column: no column's value depends on them.
            if b"Inf" not in value and b"nan" not in value:
                raise
            continue
        expected = pa.RecordBatch.from_pylist([record], schema=schema.stored_arrow)
        assert same(python_rows(rows), python_rows(expected)), value
        taken_count += 1
    assert taken_count > 0


@pytest.mark.integration
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize(("seed", "count"), [(0, 1500), pytest.param(1, 4000, marks=pytest.mark.thorough)])
def test_from_json_agrees_on_what_is_valid_and_on_every_value(spark: SparkSession, tmp_path: Path, name, seed, count):
    schema = SCHEMAS[name]
    cases = Cases(Random(seed), schema.value_struct)
    values = [cases.value() for _ in range(count)]
    expected = from_json(spark, tmp_path, schema, values)
    decoded = JsonDecoder(schema).decode(pa.array(values, pa.binary()))
    refused, rows, valid = {bad.index: bad.reason for bad in decoded.bad}, iter(python_rows(decoded.rows)), 0
    for at, (value, spark_row) in enumerate(zip(values, expected, strict=True)):
        if at in refused:
            assert spark_row is None or refused_on_purpose(refused[at]), (value, refused[at], spark_row)
            continue
        our_row = next(rows)
        if spark_row is None and b"Inf" in value:
            # The fast path takes Inf, which is not JSON, inside members that are no columns.
            continue
        assert same(our_row, spark_row), (value, our_row, spark_row)
        valid += 1
    assert valid > count / 8


@pytest.mark.integration
def test_from_json_agrees_on_every_odd_number_text_and_time(spark: SparkSession, tmp_path: Path):
    """Compares every odd value, for the random values above may miss one."""
    columns = {"d": NUMBERS + NOT_NUMBERS, "f": NUMBERS, "dec": NUMBERS, "ts": TIMES, "dt": TIMES}
    # Java 17 writes 5e-324 as 4.9E-324: the last digit, for which `json_text` does not answer.
    columns["s"] = [text for text in NUMBERS + TEXTS if text != "5e-324"]
    columns["s"] += [f'{{"x":[{text}]}}' for text in columns["s"]]
    # A column of the fast path, and a member beside the columns.
    columns |= {"i": NUMBERS, "unknown": NUMBERS + NOT_NUMBERS}
    quoted = {name: map(json.dumps, texts) if texts is TIMES else texts for name, texts in columns.items()}
    values = [f'{{"{name}":{text}}}'.encode() for name, texts in quoted.items() for text in texts]
    schema = SCHEMAS["flat"]
    decoder = JsonDecoder(schema)
    for value, spark_row in zip(values, from_json(spark, tmp_path, schema, values), strict=True):
        rows, reason = decode_alone(decoder, value)
        if spark_row is None or not rows:
            assert not rows or b"unknown" in value, (value, rows)
            assert spark_row is None or refused_on_purpose(reason), (value, reason, spark_row)
        else:
            assert same(rows[0], spark_row), (value, rows[0], spark_row)


def from_json(
    spark: SparkSession, directory: Path, schema: TableSchema, values: list[bytes]
) -> list[dict[str, Any] | None]:
    """Returns each value as Spark reads it in the table's types; None for a corrupt one."""
    pq.write_table(
        pa.table({"at": range(len(values)), "value": pa.array(values, pa.binary())}), directory / "in.parquet"
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "CORRECTED")
    record_type = T.StructType([*schema.value_struct.fields, T.StructField("_corrupt", T.StringType())])
    options = {**FROM_JSON_OPTIONS, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    parsed = F.from_json(F.col("value").cast("string"), record_type, options).alias("record")
    frame = spark.read.parquet(str(directory / "in.parquet")).select("at", parsed)
    frame.write.parquet(str(directory / "out"))
    rows = pq.read_table(directory / "out").sort_by("at").select(["record"]).combine_chunks().to_batches()[0]
    fields = pa.struct([*schema.stored_arrow, pa.field("_corrupt", pa.string())])
    records = []
    for record in [row["record"] for row in python_rows(rows.cast(pa.schema([("record", fields)])))]:
        corrupt = record is None or record.pop("_corrupt") is not None
        records.append(None if corrupt else record)
    return records


def refused_on_purpose(reason: str) -> bool:
    """Whether `json_values` lists the reason as an exception: Spark takes or changes such a value silently."""
    patterns = (
        r"Extra data",
        r"half a surrogate",
        r"does not fit tinyint",
        r"'-?\d+' is not a date",
        # Spark makes another time, or 1970, of a number whose seconds do not fit.
        r"the number -?\d{15,} where timestamp",
    )
    return any(re.search(pattern, reason) for pattern in patterns)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the value is null (a tombstone)"),
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        (b"x", "not one JSON document"),
        (b"null", "a JSON object is needed, found null"),
        (b"[]", "a JSON object is needed, found an array"),
        (b'"a"', "found the string 'a'"),
        (b'{"l":1}{"l":2}', "Extra data"),
        (b'{"l":1}\n{"l":2}', "Extra data"),
        (b'{"l":1},', "Extra data"),
        (b'{"l":1', "not one JSON document"),
        (b"{'l':1}", "not one JSON document"),
        (b'\xef\xbb\xbf{"l":1}', "not one JSON document"),
        (b'{"s":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"s":"\\ud800"}', "column 's': half a surrogate pair"),
        (b'{"s":"a\nb"}', "not one JSON document"),
        (b'{"l":1.0}', "column 'l': the number 1.0 where bigint is needed"),
        (b'{"l":"1"}', "column 'l': the string '1' where bigint is needed"),
        (b'{"l":9223372036854775808}', "9223372036854775808 does not fit bigint"),
        (b'{"b":200}', "200 does not fit tinyint"),
        (b'{"dec":123456789.5}', "does not fit decimal(10,2)"),
        (b'{"dec":1e999999999}', "does not fit decimal(10,2)"),
        (b'{"dec":1e9999999999}', "does not fit decimal(10,2)"),
        (b'{"dec":"x"}', "'x' is not a decimal number"),
        (b'{"dec":NaN}', "'NaN' is not a decimal number"),
        (b'{"d":Inf}', "not one JSON document"),
        (b'{"bo":1}', "column 'bo': the number 1 where boolean is needed"),
        (b'{"dt":"2023-02-29"}', "column 'dt'"),
        (b'{"dt":19000}', "the number 19000 where date is needed"),
        (b'{"ts":"T12:00:00"}', "is not a timestamp"),
        (b'{"bin":"a"}', "not base64"),
        (b'{"l":' + b"9" * 5000 + b"}", "does not fit bigint"),
    ],
)
def test_a_bad_record_says_why_wherever_it_stands(value, reason):
    good = [b'{"l":%d}' % number for number in range(50)]
    decoded = JsonDecoder(SCHEMAS["flat"]).decode(pa.array([*good, value, *good], pa.binary()))
    assert [bad.index for bad in decoded.bad] == [50]
    assert reason in decoded.bad[0].reason
    assert decoded.rows.column("l").to_pylist() == [*range(50), *range(50)]


def test_three_values_and_three_documents_shifted_are_not_three_records():
    values = [b'{"l":1}{"l":2}', b"", b'{"l":3}']
    decoded = JsonDecoder(SCHEMAS["flat"]).decode(pa.array(values, pa.binary()))
    assert [bad.index for bad in decoded.bad] == [0, 1]
    assert decoded.rows.column("l").to_pylist() == [3]


def test_two_documents_cannot_make_up_for_two_values_that_are_one():
    values = [b'{"s":"x}', b'{"}', b'{"l":1}{"l":2}']
    decoded = JsonDecoder(SCHEMAS["flat"]).decode(pa.array(values, pa.binary()))
    assert [bad.index for bad in decoded.bad] == [0, 1, 2]


@pytest.mark.parametrize("value", [b'{"id":null}', b"{}", b'{"id":1,"st":{"x":null}}', b'{"id":1,"st":{}}'])
def test_null_where_the_schema_says_not_null_is_a_bad_record(value):
    schema = parse_ddl("id bigint not null, st struct<x: int not null>")
    good = b'{"id":1,"st":{"x":1}}'
    decoded = JsonDecoder(schema).decode(pa.array([good, value, good], pa.binary()))
    assert [bad.index for bad in decoded.bad] == [1]
    assert "NOT NULL" in decoded.bad[0].reason


def test_decimals_take_no_detour_over_floats():
    value = b'{"big":1234567890123456789012345678.0123456789,"dec":0.145}'
    rows, _ = decode_alone(JsonDecoder(SCHEMAS["flat"]), value)
    assert rows[0]["big"] == Decimal("1234567890123456789012345678.0123456789")
    assert rows[0]["dec"] == Decimal("0.15")


def test_a_record_of_ten_megabytes_and_deep_nesting_beside_the_columns_are_taken():
    long = b'{"s":"' + b"x" * 10_000_000 + b'"}'
    deep = b'{"u":' + b"[" * 5000 + b"]" * 5000 + b',"l":7}'
    decoded = JsonDecoder(SCHEMAS["flat"]).decode(pa.array([long, deep, long], pa.binary()))
    assert not decoded.bad
    assert [row and len(row) for row in decoded.rows.column("s").to_pylist()] == [
        10_000_000,
        None,
        10_000_000,
    ]
    assert decoded.rows.column("l").to_pylist() == [None, 7, None]


def test_a_slice_of_a_larger_array_is_read_from_its_own_beginning():
    values = pa.array([b'{"l":%d}' % number for number in range(100)], pa.binary())
    assert JsonDecoder(SCHEMAS["flat"]).decode(values.slice(40, 20)).rows.column("l").to_pylist() == [*range(40, 60)]


def test_timestamps_as_text_and_as_seconds_may_alternate():
    values = [b'{"ts":1700000000}', b'{"ts":"2023-11-14T22:13:20Z"}'] * 40
    decoded = JsonDecoder(SCHEMAS["flat"]).decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    assert len(set(decoded.rows.column("ts").to_pylist())) == 1


def test_an_empty_batch_has_the_columns():
    decoded = JsonDecoder(SCHEMAS["flat"]).decode(pa.array([], pa.binary()))
    assert decoded.rows.schema == SCHEMAS["flat"].stored_arrow
    assert decoded.rows.num_rows == 0
