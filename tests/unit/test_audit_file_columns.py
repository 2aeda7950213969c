"""The audit finds columns of files and of commits from which readers would take other values than are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from sink.audit.columns import check_columns
from sink.audit.content.file_columns import column_faults
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit

DECIMAL, MOMENT = pa.decimal128(10, 2), pa.timestamp("us", "UTC")
ADDRESS = pa.struct({"city": pa.string(), "number": pa.int64()})


def faults(found: dict[str, pa.DataType], table: dict[str, pa.DataType], by_others: bool = False) -> list[str]:
    return [f"{name} {fault}" for name, fault in column_faults(pa.schema(found), pa.schema(table), by_others)]


@pytest.mark.parametrize(
    ("in_file", "in_table"),
    [
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(8, 2), DECIMAL),
        (pa.timestamp("us", "+00:00"), MOMENT),
        (pa.binary(), pa.string()),
        (pa.list_(pa.field("array", pa.int64())), pa.list_(pa.field("element", pa.int64(), False))),
        (pa.struct({"city": pa.string()}), ADDRESS),
        (pa.map_(pa.string(), pa.struct({"city": pa.string()})), pa.map_(pa.string(), ADDRESS)),
    ],
    ids=str,
)
def test_a_file_from_before_a_column_was_widened_is_sound(in_file: pa.DataType, in_table: pa.DataType) -> None:
    assert faults({"a": in_file}, {"a": in_table}) == []


@pytest.mark.parametrize(
    ("in_file", "in_table"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.int64(), pa.string()),
        (pa.decimal128(12, 3), DECIMAL),
        (pa.decimal128(12, 2), DECIMAL),
        (pa.decimal128(8, 1), DECIMAL),
        (pa.float64(), DECIMAL),
        (pa.timestamp("ms", "UTC"), MOMENT),
        (pa.timestamp("us"), MOMENT),
        (pa.date32(), MOMENT),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.struct({"city": pa.string(), "street": pa.string()}), ADDRESS),
        (pa.struct({"number": pa.int32()}), ADDRESS),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_a_file_whose_values_a_column_cannot_all_hold_is_found(in_file: pa.DataType, in_table: pa.DataType) -> None:
    assert faults({"a": in_file}, {"a": in_table}) == [f"a has type {in_file} there, the table's is {in_table}"]


def test_files_of_other_writers_may_be_widened_as_hudi_does_it() -> None:
    table = {"a": pa.string(), "b": pa.float32(), "c": MOMENT}
    assert faults({"a": pa.int64(), "b": pa.int64(), "c": pa.timestamp("ns")}, table, by_others=True) == []
    assert len(faults({"a": pa.bool_(), "b": pa.float64(), "c": pa.int64()}, table, by_others=True)) == 3


def test_names_that_differ_in_case_and_columns_of_nobody_are_found() -> None:
    table = {"price": pa.float64()}
    assert faults({"PRICE": pa.float64()}, table) == ["PRICE is price in the table: some readers leave it out"]
    assert faults({"price": pa.float64(), "PRICE": pa.float64()}, table) == ["price is there 2 times: readers take one"]
    assert faults({"other": pa.float64()}, table) == ["other is none of the table's: readers leave it out"]


def test_of_hudis_columns_only_those_that_it_gives_to_rows_are_left_out() -> None:
    own = {"_hoodie_commit_time": pa.string(), "_hoodie_operation": pa.string()}
    assert faults(own, {}) == []
    assert faults({"_hoodie_record_key": pa.int64()}, {}) == [
        "_hoodie_record_key has type int64 there, the table's is string"
    ]
    assert faults({"_hoodie_is_deleted": pa.bool_()}, {}) == [
        "_hoodie_is_deleted is none of the table's: readers leave it out"
    ]


def commits(*kinds: object) -> Iterator[Commit]:
    for number, kind in enumerate(kinds):
        schema = json.dumps({"fields": [{"name": "a", "type": kind}]})
        checkpoints = {"orders": None}
        yield Commit(f"{number}", "", "commit", "INSERT", (), frozenset(), checkpoints, {}, schema=schema)  # type: ignore[arg-type]


def types_found(*kinds: object) -> list[FindingKind]:
    findings = AuditFindings()
    check_columns("orders", list(commits(*kinds)), ["a"], findings)
    return [finding.kind for finding in findings.all()]


def test_a_column_that_another_sink_widens_is_no_finding() -> None:
    narrow, wide = commits(["null", "int"], ["null", "long"])
    of_another = replace(wide, checkpoints={"another": None})  # type: ignore[dict-item]
    rewritten = replace(wide, checkpoints={}, operation="CLUSTER")
    for newest, found in ((of_another, []), (rewritten, [FindingKind.COLUMNS])):
        findings = AuditFindings()
        check_columns("orders", [narrow, newest], ["a"], findings)
        assert [finding.kind for finding in findings.all()] == found


def decimal(precision: int, scale: int) -> dict[str, object]:
    kind = {"type": "fixed", "name": "d", "size": precision // 2, "logicalType": "decimal"}
    return {**kind, "precision": precision, "scale": scale}


def record(**fields: object) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


LONG_MOMENT = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int", "long"),
        ("int", ["null", "double"]),
        ("float", "double"),
        (decimal(8, 2), decimal(10, 2)),
        (record(x="int"), record(x=["null", "int"], y="string")),
        ({"type": "array", "items": record(x="int")}, {"type": "array", "items": record(x="int", y="string")}),
    ],
)
def test_a_commit_may_widen_a_column(before: object, after: object) -> None:
    assert types_found(before, after) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("long", "int"),
        ("double", "float"),
        ("long", "string"),
        ("int", LONG_MOMENT),
        (LONG_MOMENT, "long"),
        (LONG_MOMENT, {"type": "long", "logicalType": "timestamp-millis"}),
        (["null", "int"], "int"),
        (decimal(10, 2), decimal(8, 2)),
        (decimal(8, 2), decimal(10, 3)),
        (record(x="int", y="string"), record(x="int")),
        (record(x="int"), record(x="long")),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}),
    ],
)
def test_a_commit_that_makes_a_column_narrower_is_found(before: object, after: object) -> None:
    assert types_found(before, after) == [FindingKind.COLUMNS]
