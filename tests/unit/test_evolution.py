"""Columns of a table evolve by the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from sink.schema.ddl import parse_struct, to_ddl
from sink.schema.evolution import Compatibility, IncompatibleSchema, evolved, widens
from sink.schema.storage_types import storage_struct
from sink.schema.warnings import OmittedField

BACKWARD, FORWARD, FULL, NONE = (
    Compatibility.BACKWARD,
    Compatibility.FORWARD,
    Compatibility.FULL,
    Compatibility.NONE,
)


def evolved_ddl(table: str, records: str, compatibility: Compatibility = BACKWARD, on_read: bool = False) -> str:
    return to_ddl(evolved(parse_struct(table), parse_struct(records), compatibility, on_read)).replace("\n", " ")


@pytest.mark.parametrize(
    ("table", "records", "expected"),
    [
        ("a INT", "b STRING, a INT", "a INT, b STRING"),
        ("a INT, b STRING", "a INT", "a INT, b STRING"),
        ("a INT NOT NULL", "a INT", "a INT"),
        ("a INT", "a INT NOT NULL", "a INT"),
        ("a INT", "a BIGINT", "a BIGINT"),
        ("a INT", "a DOUBLE", "a DOUBLE"),
        ("a BIGINT", "a INT", "a BIGINT"),
        ("a FLOAT", "a DOUBLE", "a DOUBLE"),
        ("a DECIMAL(9,2)", "a DECIMAL(18,2)", "a DECIMAL(18,2)"),
        ("a DECIMAL(18,2)", "a DECIMAL(9,2)", "a DECIMAL(18,2)"),
        # The table holds small integers as INT; records must still be small.
        ("a INT", "a TINYINT", "a TINYINT"),
        ("a BIGINT", "a TINYINT", "a BIGINT"),
        ("a STRUCT<x: INT>", "a STRUCT<y: INT, x: INT>", "a STRUCT<x: INT, y: INT>"),
        ("a ARRAY<STRUCT<x: INT>>", "a ARRAY<STRUCT<y: INT>>", "a ARRAY<STRUCT<x: INT, y: INT>>"),
        ("a MAP<STRING, STRUCT<x: INT>>", "a MAP<STRING, STRUCT<y: INT>>", "a MAP<STRING, STRUCT<x: INT, y: INT>>"),
        ("a STRUCT<x: BIGINT>", "a STRUCT<x: INT>", "a STRUCT<x: BIGINT>"),
    ],
)
def test_backward_keeps_all_that_is_there_and_adds_what_is_new(table: str, records: str, expected: str) -> None:
    assert evolved_ddl(table, records) == expected


@pytest.mark.parametrize("compatibility", [BACKWARD, NONE])
@pytest.mark.parametrize(
    ("narrow", "wide", "takes_more"),
    [(5, 6, False), (7, 9, False), (6, 7, True), (9, 10, True), (17, 18, False), (9, 18, True), (18, 38, True)],
)
def test_a_decimal_that_takes_more_bytes_widens_only_where_readers_are_set_for_it(
    compatibility: Compatibility, narrow: int, wide: int, takes_more: bool
) -> None:
    table, records = (parse_struct(f"a DECIMAL({digits},2)") for digits in (narrow, wide))
    assert evolved(table, records, compatibility, widens_decimals=True) == records
    assert evolved(records, table, compatibility, widens_decimals=False) == records
    if not takes_more:
        assert evolved(table, records, compatibility, widens_decimals=False) == records
    elif compatibility is NONE:
        assert evolved(table, records, compatibility, widens_decimals=False) == table
    else:
        with pytest.raises(IncompatibleSchema, match=r"filterPushdown.decimal=false .*schema.widen.decimals=true"):
            evolved(table, records, compatibility, widens_decimals=False)


@pytest.mark.parametrize(("compatibility", "on_read"), [(FULL, False), (FORWARD, False), (BACKWARD, True)])
def test_where_no_type_may_change_no_setting_for_decimals_is_named(compatibility: Compatibility, on_read: bool) -> None:
    table, records = parse_struct("a DECIMAL(9,2)"), parse_struct("a DECIMAL(18,2)")
    with pytest.raises(IncompatibleSchema) as conflict:
        evolved(table, records, compatibility, on_read, widens_decimals=False)
    assert "schema.widen.decimals" not in str(conflict.value)


@pytest.mark.parametrize(
    ("table", "records", "message"),
    [
        ("a INT", "a STRING", "a is INT in the table, STRING in the records"),
        ("a BIGINT", "a DOUBLE", "a is BIGINT in the table, DOUBLE in the records"),
        ("a DECIMAL(9,2)", "a DECIMAL(18,3)", r"a is DECIMAL\(9,2\) in the table, DECIMAL\(18,3\) in the records"),
        ("a INT", "a INT, b INT NOT NULL", "b is new and NOT NULL"),
        ("a INT, b INT NOT NULL", "a INT", "b is NOT NULL in the table, and the records do not have it"),
        ("a INT", "A INT", "A is spelt a in the table"),
        ("a STRUCT<x: INT>", "a STRUCT<x: BIGINT>", r"a\.x is INT in the table, BIGINT .*where none can widen"),
        ("a ARRAY<INT>", "a ARRAY<BIGINT>", r"a\[\] is INT in the table"),
        ("a MAP<STRING, FLOAT>", "a MAP<STRING, DOUBLE>", r"a\{\} is FLOAT in the table"),
        ("a ARRAY<INT>", "a INT", "a is ARRAY<INT> in the table, INT in the records"),
    ],
)
def test_what_is_not_safe_is_refused_by_name(table: str, records: str, message: str) -> None:
    with pytest.raises(IncompatibleSchema, match=message):
        evolved_ddl(table, records)


def test_forward_keeps_the_table_as_it_is() -> None:
    assert evolved_ddl("a BIGINT, b STRING", "a INT, c INT", FORWARD) == "a BIGINT, b STRING"
    with pytest.raises(IncompatibleSchema, match="a is INT in the table, BIGINT in the records"):
        evolved_ddl("a INT", "a BIGINT", FORWARD)
    with pytest.raises(IncompatibleSchema, match="a is NOT NULL in the table, and may be null in records"):
        evolved_ddl("a INT NOT NULL", "a INT", FORWARD)


def test_full_adds_columns_and_changes_no_type() -> None:
    assert evolved_ddl("a INT", "b INT", FULL) == "a INT, b INT"
    for table, records in (("a INT", "a BIGINT"), ("a BIGINT", "a INT")):
        with pytest.raises(IncompatibleSchema, match=r"schema\.compatibility=FULL"):
            evolved_ddl(table, records, FULL)


def test_none_leaves_to_each_record_what_the_table_cannot_follow() -> None:
    table = "a INT, s STRUCT<x: INT>, n INT NOT NULL, w INT"
    records = "a STRING, s STRUCT<x: STRING, y: INT>, w BIGINT, more INT NOT NULL"
    assert evolved_ddl(table, records, NONE) == "a INT, s STRUCT<x: INT, y: INT>, n INT NOT NULL, w BIGINT, more INT"


@pytest.mark.parametrize("compatibility", [BACKWARD, NONE])
def test_a_merge_on_read_table_takes_new_columns_and_what_is_narrower(compatibility: Compatibility) -> None:
    table = "a BIGINT, b STRUCT<x: INT, y: BIGINT>, c INT"
    records = "a INT NOT NULL, b STRUCT<y: INT>, c TINYINT, d STRUCT<x: INT>"
    expected = "a BIGINT, b STRUCT<x: INT, y: BIGINT>, c TINYINT, d STRUCT<x: INT>"
    assert evolved_ddl(table, records, compatibility, on_read=True) == expected


@pytest.mark.parametrize(
    ("table", "records"),
    [
        ("INT", "BIGINT"),
        ("INT", "DOUBLE"),
        ("FLOAT", "DOUBLE"),
        ("DECIMAL(9,2)", "DECIMAL(18,2)"),
        ("STRUCT<x: INT>", "STRUCT<x: INT, y: INT>"),
        ("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: INT, y: INT>>"),
        ("MAP<STRING, STRUCT<x: INT>>", "MAP<STRING, STRUCT<x: INT, y: INT>>"),
        ("STRUCT<x: INT NOT NULL>", "STRUCT<x: INT>"),
    ],
)
def test_no_type_of_a_merge_on_read_table_changes(table: str, records: str) -> None:
    assert evolved_ddl(f"b {table}", f"b {records}") != f"b {table}"
    with pytest.raises(
        IncompatibleSchema, match=r"b is .* in the table, .* in the records \(in a merge-on-read table no type"
    ):
        evolved_ddl(f"a INT, b {table}", f"a INT, b {records}, c INT", on_read=True)
    assert evolved_ddl(f"b {table}", f"b {records}, c INT", NONE, on_read=True) == f"b {table}, c INT"


def test_the_field_whose_type_would_change_is_named() -> None:
    with pytest.raises(
        IncompatibleSchema, match=r"=BACKWARD: a\.b is STRUCT<X:INT> in the table, STRUCT<X:INT,Y:INT> in the rec"
    ):
        evolved_ddl("a STRUCT<b: STRUCT<x: INT>>", "a STRUCT<b: STRUCT<x: INT, y: INT>>", on_read=True)


@pytest.mark.parametrize("compatibility", [BACKWARD, FORWARD, FULL])
@pytest.mark.parametrize(
    ("table", "path", "message"),
    [
        ("a INT, b STRING", "b", "b is STRING in the table, and no column in the records: why"),
        ("a INT, b ARRAY<INT>", "b[]", "b is ARRAY<INT> in the table, and no column in the records: why"),
        ("a INT, b STRUCT<x: INT, y: INT>", "b.y", r"b\.y is INT in the table, and no column in the records: why"),
        ("a INT, b ARRAY<STRUCT<x: INT, y: INT>>", "b[].y", r"b\[\]\.y is INT in the table"),
        ("a INT, b MAP<STRING, STRUCT<x: INT, y: INT>>", "b{}.y", r"b\{\}\.y is INT in the table"),
        # Spark does not tell such names apart.
        ("a INT, B STRING", "b", "B is STRING in the table, and no column in the records: why"),
    ],
)
def test_a_field_that_can_be_a_column_no_more_is_refused(
    table: str, path: str, message: str, compatibility: Compatibility
) -> None:
    table_struct = parse_struct(table)
    records_struct = parse_struct(table.replace(", y: INT", "") if "y: INT" in table else "a INT")
    omitted = [OmittedField(path, "why"), OmittedField("new", "of no concern to the table")]
    with pytest.raises(IncompatibleSchema, match=message):
        evolved(table_struct, records_struct, compatibility, left_out=omitted)
    assert evolved(table_struct, records_struct, NONE, left_out=omitted) == table_struct
    assert evolved(table_struct, records_struct, compatibility, left_out=omitted[1:]) == table_struct


def test_why_there_is_no_column_stands_beside_the_tables() -> None:
    omitted = [OmittedField("b", "a union"), OmittedField("new", "another")]
    with pytest.raises(IncompatibleSchema) as caught:
        evolved(parse_struct("a INT, b DATE"), parse_struct("a INT"), BACKWARD, left_out=omitted)
    assert str(caught.value).splitlines()[1:] == [
        "  column  in the table  in the records",
        "  a       INT           INT",
        "! b       DATE          (a union)",
    ]


def test_both_sides_stand_beside_each_other() -> None:
    with pytest.raises(IncompatibleSchema) as caught:
        evolved_ddl("id BIGINT, a INT NOT NULL, gone DATE", "id BIGINT, a STRING, more ARRAY<INT>")
    assert str(caught.value).splitlines()[1:] == [
        "  column  in the table  in the records",
        "  id      BIGINT        BIGINT",
        "! a       INT NOT NULL  STRING",
        "! gone    DATE          -",
        "! more    -             ARRAY<INT>",
    ]
    many = ", ".join(f"c{n} INT" for n in range(200))
    with pytest.raises(IncompatibleSchema) as caught:
        evolved_ddl(f"{many}, a INT", f"{many}, a STRING")
    assert [line.split()[:2] for line in str(caught.value).splitlines()[1:]] == [["column", "in"], ["!", "a"]]


def structs_of(kind: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.StructType]:
    fields = st.dictionaries(st.sampled_from("abcd"), st.tuples(kind, st.booleans()), min_size=1, max_size=4)
    return fields.map(lambda drawn: T.StructType([T.StructField(name, *field) for name, field in drawn.items()]))


leaves = st.sampled_from([T.ByteType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(), T.StringType()])
kinds = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(T.ArrayType, inner, st.booleans()),
        st.builds(lambda value, null: T.MapType(T.StringType(), value, null), inner, st.booleans()),
        structs_of(inner),
    ),
    max_leaves=6,
)
structs = structs_of(kinds)


@given(structs.map(storage_struct), structs, st.sampled_from(Compatibility), st.booleans())
def test_no_column_is_lost_and_what_became_of_a_table_does_not_change_again(
    table: T.StructType, records: T.StructType, compatibility: Compatibility, on_read: bool
) -> None:
    try:
        merged = evolved(table, records, compatibility, on_read)
    except IncompatibleSchema:
        assert compatibility is not NONE
        return
    stored = storage_struct(merged)
    assert [field.name for field in merged.fields[: len(table.fields)]] == table.names
    for field in table.fields:
        assert stored[field.name].nullable or not field.nullable
        stored_type = stored[field.name].dataType
        if not isinstance(stored_type, (T.ArrayType, T.MapType, T.StructType)):
            may_widen = compatibility in (BACKWARD, NONE) and not on_read
            assert stored_type == field.dataType or (widens(field.dataType, stored_type) and may_widen)
    if compatibility is FORWARD:
        assert stored == table
    elif compatibility is not NONE:
        # The same records change nothing a second time, and older records still fit.
        assert evolved(stored, records, compatibility, on_read) == merged
        assert storage_struct(evolved(stored, table, BACKWARD, on_read)) == stored


def test_a_conflict_of_thousands_of_long_columns_is_told_in_a_few_lines() -> None:
    names = [f"c{number}" for number in range(2_000)]
    long = ", ".join(f"{'n' * 900}{number}: INT" for number in range(900))
    table = parse_struct(", ".join(f"{name} INT" for name in names) + f", s STRUCT<{long}>")
    wanted = parse_struct(", ".join(f"{name} STRING" for name in names) + ", s INT")
    with pytest.raises(IncompatibleSchema, match=r"(?s)and 1,951 more\n.*\nand 1,941 more$") as conflict:
        evolved(table, wanted, Compatibility.BACKWARD)
    assert len(str(conflict.value)) < 100_000
