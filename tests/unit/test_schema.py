# ruff: noqa: E501 - long lines of test data read better whole
"""Schemas: the DDL grammar, the forms of the columns, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.table_schema import TableSchema, parse_ddl


def test_every_type_of_the_grammar_is_read():
    ddl = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(12, 3), i string, j binary,"
        " k date, l timestamp, m array<int>, n map<string, array<double>>, o struct<x: int, y: struct<z: string>>"
    )
    assert parse_ddl(ddl).value_struct == T.StructType(
        [
            T.StructField("a", T.BooleanType()),
            T.StructField("b", T.ByteType()),
            T.StructField("c", T.ShortType()),
            T.StructField("d", T.IntegerType()),
            T.StructField("e", T.LongType()),
            T.StructField("f", T.FloatType()),
            T.StructField("g", T.DoubleType()),
            T.StructField("h", T.DecimalType(12, 3)),
            T.StructField("i", T.StringType()),
            T.StructField("j", T.BinaryType()),
            T.StructField("k", T.DateType()),
            T.StructField("l", T.TimestampType()),
            T.StructField("m", T.ArrayType(T.IntegerType())),
            T.StructField("n", T.MapType(T.StringType(), T.ArrayType(T.DoubleType()))),
            T.StructField(
                "o",
                T.StructType(
                    [
                        T.StructField("x", T.IntegerType()),
                        T.StructField("y", T.StructType([T.StructField("z", T.StringType())])),
                    ]
                ),
            ),
        ]
    )


@pytest.mark.parametrize(
    ("ddl", "same"),
    [
        ("ID BIGINT NOT NULL", "ID long not null"),
        ("a int,\n\tb\n string", "a integer, b string"),
        ("a: int, b: string", "a int, b string"),
        (r"`a` int comment 'it\'s'", "a int"),
        ('a int not null comment "one, two"', "a int not null"),
        ("a decimal", "a decimal(10,0)"),
        ("a dec(5), b numeric(5,5)", "a decimal(5,0), b decimal(5,5)"),
        ("struct<a: int, b: string>", "a int, b string"),
        ("a real, b byte, c short, d timestamp_ltz", "a float, b tinyint, c smallint, d timestamp"),
        ("a array<array<int>>", "a array < array < int > >"),
        ("date date, timestamp timestamp, struct int", "`date` date, `timestamp` timestamp, `struct` int"),
    ],
)
def test_spellings_of_one_schema_are_equal(ddl, same):
    assert parse_ddl(ddl).value_struct == parse_ddl(same).value_struct


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("", "empty"),
        ("a", "expected a type at position 1"),
        ("a int,", "expected a column name at position 6"),
        ("a int b int", "expected ',' or the end at position 6, found 'b'"),
        ("a strin", "expected a type at position 2, found 'strin'"),
        ("a int nott null", "found 'nott'"),
        ("a array<int", "expected '>'"),
        ("a array int", "expected '<'"),
        ("a map<int, string>", "key must be string"),
        ("a struct<>", "expected a column name"),
        ("a varchar(10)", "varchar is not supported, use string"),
        ("a timestamp_ntz", "use timestamp"),
        ("a decimal(39, 2)", "decimal(39,2) needs a precision of 1 to 38"),
        ("a decimal(4, 5)", "scale within it"),
        ("a decimal(0)", "precision"),
        ("a decimal(" + "9" * 5000 + ")", "expected a number at position 10"),
        ("a " + "array<" * 5000 + "int" + ">" * 5000, "nested too deeply"),
        ("a int; b int", "cannot read position 5"),
        ("a int, A string", "'A' occurs twice"),
        ("a struct<x: int, X: int>", "'a.X' occurs twice"),
        ("`a b` int", "'a b'"),
        ("`a-b` struct<x: int>", "'a-b'"),
        ("_hoodie_commit_time string", "reserved"),
        ("_KAFKA_offset long", "reserved"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_the_place(ddl, problem):
    with pytest.raises(ConfigError) as refusal:
        parse_ddl(ddl)
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("text", ["", "id bignt", "_hoodie_x int", '{"type": 7}', "a " + "array<" * 5000])
def test_an_error_is_blamed_on_the_place_that_the_text_is_from(text):
    with pytest.raises(ConfigError) as refusal:
        parse_ddl(text, origin="schema.file (/etc/sink/orders.ddl)")
    assert str(refusal.value).startswith("schema.file (/etc/sink/orders.ddl): ")
    assert "schema.ddl" not in str(refusal.value)


def test_the_table_has_the_value_columns_then_the_coordinates():
    schema = parse_ddl("id bigint not null, small tinyint")
    assert schema.spark.names == [
        "id",
        "small",
        "_kafka_topic",
        "_kafka_partition",
        "_kafka_offset",
        "_kafka_timestamp",
    ]
    assert schema.arrow.names == schema.spark.names
    assert schema.arrow.field("_kafka_timestamp").type == pa.timestamp("us", "UTC")
    assert parse_ddl("id bigint", provenance=False).spark.names == ["id"]


def test_avro_has_no_small_integers_so_the_table_widens_them_and_the_record_does_not():
    schema = parse_ddl("a tinyint, b array<smallint>")
    assert [field.dataType.simpleString() for field in schema.spark.fields[:2]] == ["int", "array<int>"]
    assert schema.stored_arrow.types == [pa.int32(), pa.list_(pa.field("element", pa.int32()))]
    assert schema.value_struct.fields[0].dataType.simpleString() == "tinyint"


def test_not_null_reaches_arrow_and_avro():
    schema = parse_ddl("a int not null, b struct<c: string not null>", provenance=False)
    assert [field.nullable for field in schema.arrow] == [False, True]
    fields = json.loads(schema.avro("t"))["fields"]
    assert fields[0] == {"name": "a", "type": "int"}
    assert fields[1]["type"][1]["fields"] == [{"name": "c", "type": "string"}]


def test_an_avro_record_gives_the_same_schema_as_its_ddl():
    ddl = parse_ddl(
        "a bigint not null, b decimal(10,2), c array<string>, d map<string,int>, e timestamp, f struct<g: date>"
    )
    assert parse_ddl(TableSchema(ddl.value_struct, provenance=False).avro("t")).value_struct == ddl.value_struct


@pytest.mark.parametrize(
    ("avro", "problem"),
    [
        ('{"type": "string"}', "is not a record"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "bytes"]}]}',
            "a: the union [int, bytes] cannot be a column",
        ),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "fixed", "name": "f", "size": 12,'
            ' "logicalType": "duration"}}]}',
            "a: Avro's duration (months, days and milliseconds) cannot be a column",
        ),
        ('{"type": "record", "name": "r", "fields": []}', "no fields"),
        ('{"type": "record", "name": "r"', "the Avro schema is not valid (Expecting"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a"}]}', "has no 'type'"),
        ('{"type": "record", "name": "r", "fields": null}', "is not valid"),
        ('{"type": "record", "name": "r", "fields": [{"name": 7, "type": "int"}]}', "is not valid"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "bytes",'
            ' "logicalType": "decimal", "precision": 50, "scale": 40}}]}',
            "a: bytes (decimal(50,40)) has more than 38 digits behind the point",
        ),
        ('{"type": ' * 90_000, "nested more than 100 deep"),
    ],
)
def test_avro_that_no_column_can_hold_is_refused(avro, problem):
    with pytest.raises(ConfigError) as refusal:
        parse_ddl(avro)
    assert problem in str(refusal.value)


def test_a_setting_that_names_no_column_or_an_unfit_one_is_refused():
    schema = parse_ddl("id bigint, amount double")
    assert list(schema.column_errors(["id", "_kafka_offset"], "record.key.fields", [T.LongType])) == []
    unknown, unfit = map(str, schema.column_errors(["ide", "id", "amount"], "record.key.fields", [T.LongType]))
    assert "record.key.fields: no column 'ide'" in unknown
    assert "'amount' has type double" in unfit


def test_a_schema_survives_the_way_to_an_executor():
    import pickle

    schema = parse_ddl("a int not null, b map<string, struct<x: decimal(5,2)>>")
    received = pickle.loads(pickle.dumps(schema))
    assert received.arrow == schema.arrow
    assert received.spark == schema.spark


def test_a_time_of_day_is_the_number_that_it_is_written_as():
    millis = '{"name": "a", "type": {"type": "int", "logicalType": "time-millis"}}'
    micros = '{"name": "b", "type": {"type": "long", "logicalType": "time-micros"}}'
    schema = parse_ddl(f'{{"type": "record", "name": "r", "fields": [{millis}, {micros}]}}')
    assert schema.value_struct.simpleString() == "struct<a:int,b:bigint>"


def test_a_named_avro_record_may_be_used_twice_but_not_within_itself():
    place_record = (
        '{"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "city", "type": "string"}]}'
    )
    fields = f'{{"name": "a", "type": {place_record}}}, {{"name": "b", "type": "geo.Place"}}'
    twice = f'{{"type": "record", "name": "r", "fields": [{fields}]}}'
    assert parse_ddl(twice).value_struct.simpleString() == "struct<a:struct<city:string>,b:struct<city:string>>"
    loop = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}'
    with pytest.raises(ConfigError, match="contains itself"):
        parse_ddl(loop)
