"""The proposals of `sink infer` for messages in Kafka Connect's envelope land them, whatever their schema."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_inferred_settings import event, events, inferred, require_landed, sample_of

from tests.reports.case_kit import CASES, Case, content

_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."


def schema(**fields: Any) -> dict[str, Any]:
    """Returns Connect's schema of a struct. A field is the name of a type, or a type with more."""
    listed = [
        {"field": name, "optional": True, **(kind if isinstance(kind, dict) else {"type": kind})}
        for name, kind in fields.items()
    ]
    return {"type": "struct", "fields": listed, "optional": False}


def named(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, **({"parameters": parameters} if parameters else {})}


def base64_of(number: int) -> str:
    return base64.b64encode(number.to_bytes(16, "big", signed=True)).decode()


PRECISION = "connect.decimal.precision"
DECIMAL = partial(named, "bytes", f"{_CONNECT}Decimal")
FIELDS: dict[str, tuple[Any, Any, str]] = {
    "i8": ("int8", 1, "INT"),
    "i32": ("int32", 1, "INT"),
    "i64": ("int64", 1, "BIGINT"),
    "f": ("float", 0.5, "FLOAT"),
    "d": ("double", 0.5, "DOUBLE"),
    "b": ("boolean", True, "BOOLEAN"),
    "s": ("string", "2024-05-06", "STRING"),
    "bin": ("bytes", "AQID", "BINARY"),
    "price": (DECIMAL(scale="2"), base64_of(1999), "DECIMAL(38,2)"),
    "wide": (DECIMAL(scale="0", **{PRECISION: "9"}), "AQ==", "DECIMAL(9,0)"),
    "any": (named("struct", f"{_DEBEZIUM}data.VariableScaleDecimal"), {"scale": 3, "value": "Te4="}, "DECIMAL(38,3)"),
    "day": (named("int32", f"{_CONNECT}Date"), 19849, "DATE"),
    "day2": (named("int32", f"{_DEBEZIUM}time.Date"), 19849, "DATE"),
    "ms": (named("int64", f"{_CONNECT}Timestamp"), 1714979280000, "TIMESTAMP"),
    "ms2": (named("int64", f"{_DEBEZIUM}time.Timestamp"), 1714979280000, "TIMESTAMP"),
    "us": (named("int64", f"{_DEBEZIUM}time.MicroTimestamp"), 1714979280000000, "TIMESTAMP"),
    "ns": (named("int64", f"{_DEBEZIUM}time.NanoTimestamp"), 1714979280000000000, "TIMESTAMP"),
    "zoned": (named("string", f"{_DEBEZIUM}time.ZonedTimestamp"), "2024-05-06T07:08:09Z", "TIMESTAMP"),
    "clock": (named("int64", f"{_DEBEZIUM}time.MicroTime"), 1, "BIGINT"),
    "uuid": (named("string", f"{_DEBEZIUM}data.Uuid"), "0f8fad5b-d9cb-469f-a165-70867728950e", "STRING"),
    "json": (named("string", f"{_DEBEZIUM}data.Json"), "{}", "STRING"),
    "list": ({"type": "array", "items": named("int32", f"{_CONNECT}Date")}, [19849], "ARRAY<DATE>"),
    "map": ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}}, {"a": 1}, "MAP<STRING, BIGINT>"),
    "inner": (schema(at=named("int64", f"{_CONNECT}Timestamp")), {"at": 1714979280000}, "STRUCT<at: TIMESTAMP>"),
}  # fmt: skip
SCHEMA = schema(**{name: kind for name, (kind, _, _) in FIELDS.items()})
ROW = {name: value for name, (_, value, _) in FIELDS.items()}
DDL = ",\n".join(f"{name} {kind}" for name, (_, _, kind) in FIELDS.items())


def test_rows_get_the_types_of_their_schemas_and_need_no_settings(tmp_path: Path) -> None:
    nulls = dict.fromkeys(ROW)
    inference = inferred(tmp_path, *((None, {"schema": SCHEMA, "payload": row}) for row in (ROW, nulls)))
    assert inference.ddl == DDL
    assert inference.bad == ()
    assert inference.settings == {}


def test_change_events_get_the_types_of_their_schemas(tmp_path: Path) -> None:
    envelope = schema(before=SCHEMA, after=SCHEMA, op="string")
    key = {"schema": schema(i64="int64"), "payload": {"i64": 1}}
    inference = inferred(
        tmp_path,
        (key, {"schema": envelope, "payload": event("c", after=ROW)}),
        (key, {"schema": envelope, "payload": event("d", before=ROW)}),
        (key, None),
    )
    assert inference.ddl == DDL
    assert inference.bad == ()
    assert inference.settings == {
        "write.operation": "upsert",
        "value.envelope": "debezium",
        "record.key.fields": "i64",
        "delete.key.format": "json",
    }


def test_messages_without_a_schema_among_others_get_settings_that_say_the_same(tmp_path: Path) -> None:
    names = ("day", "ms", "us", "price", "list", "inner")
    row = {name: ROW[name] for name in names}
    inference = inferred(
        tmp_path,
        (None, {"schema": schema(**{name: FIELDS[name][0] for name in names}), "payload": row}),
        (None, {"schema": None, "payload": row}),
        (None, row),
    )
    assert inference.bad == ()
    assert inference.settings == {
        "date.unit": "day=days, list=days",
        "time.unit": "inner.at=ms, ms=ms, us=us",
        "decimal.format": "price=base64",
    }


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (("int32", 1), ("int64", 1 << 40), "BIGINT"),
        (("float", 0.5), ("double", 0.1), "DOUBLE"),
        ((DECIMAL(scale="2", **{PRECISION: "9"}), "AQ=="), (DECIMAL(scale="4", **{PRECISION: "6"}), "AQ=="),
         "DECIMAL(11,4)"),
        ((schema(x="int32"), {"x": 1}), (schema(x="int64", y="string"), {"x": 1, "y": "a"}),
         "STRUCT<x: BIGINT, y: STRING>"),
        (({"type": "array", "items": {"type": "int32"}}, [1]), ({"type": "array", "items": {"type": "int64"}}, None),
         "ARRAY<BIGINT>"),
        (("int32", 1), ("string", "a"), "STRING"),
    ],
)  # fmt: skip
def test_a_schema_that_changed_gives_the_type_that_holds_both(
    tmp_path: Path, one: tuple[Any, Any], other: tuple[Any, Any], kind: str
) -> None:
    messages = [(None, {"schema": schema(a=type_), "payload": {"a": value}}) for type_, value in (one, other)]
    inference = inferred(tmp_path, *messages)
    assert (inference.ddl, inference.bad) == (f"a {kind}", ())


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "struct"}, {"type": "struct", "fields": {}}, {"type": "struct", "fields": [1, {"field": 1}]},
        {"type": "struct", "fields": [{"field": "id"}]}, {"type": "struct", "fields": [{"field": "id", "type": ["x"]}]},
        {"type": "struct", "fields": [{"field": "id", **DECIMAL(scale="x")}]}, {"type": "int64", "name": 1},
    ],
)  # fmt: skip
def test_a_schema_that_says_nothing_of_a_field_leaves_it_to_the_values(tmp_path: Path, odd: Any) -> None:
    inference = inferred(tmp_path, (None, {"schema": odd, "payload": {"id": 1}}))
    assert (inference.ddl, inference.bad) == ("id BIGINT", ())


def base64s(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    return numbers.map(base64_of)


def decimals(scale: int, precision: int) -> tuple[Any, st.SearchStrategy[str]]:
    most = 10**precision - 1
    return DECIMAL(scale=str(scale), **{PRECISION: str(precision)}), base64s(st.integers(-most, most))


MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ({"type": "int8"}, st.integers(-128, 127)),
    ({"type": "int32"}, st.integers(-(1 << 31), (1 << 31) - 1)),
    ({"type": "int64"}, st.integers(-(1 << 63), (1 << 63) - 1)),
    ({"type": "float"}, st.floats(width=32)),
    ({"type": "double"}, st.floats()),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "string"}, st.text(st.characters(exclude_categories=("Cs",)), max_size=5)),
    ({"type": "bytes"}, st.binary(max_size=5).map(lambda content: base64.b64encode(content).decode())),
    decimals(2, 9), decimals(0, 38), decimals(38, 38), decimals(-2, 9),
    (named("int32", f"{_CONNECT}Date"), st.integers(-719_162, 2_932_896)),
    (named("int64", f"{_CONNECT}Timestamp"), MILLIS),
    (named("int64", f"{_DEBEZIUM}time.MicroTimestamp"), MILLIS.map(lambda millis: millis * 1000 + 7)),
    (named("int64", f"{_DEBEZIUM}time.ZonedTimestamp"), st.datetimes().map(lambda at: f"{at.isoformat()}Z")),
]  # fmt: skip
NAMES = st.sampled_from(["a", "b", "C", "a-b", "schema"])


def nullable(kinds: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    return kinds.map(lambda kind: (kind[0], st.none() | kind[1]))


def structs(kinds: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    fields = st.dictionaries(
        NAMES,
        nullable(kinds),
        min_size=1,
        max_size=4,
    )
    return fields.map(
        lambda chosen: (
            schema(**{name: kind for name, (kind, _) in chosen.items()}),
            st.fixed_dictionaries({name: values for name, (_, values) in chosen.items()}),
        )
    )


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        nullable(inner).map(lambda kind: ({"type": "array", "items": kind[0]}, st.lists(kind[1], max_size=2))),
        nullable(inner).map(
            lambda kind: (
                {"type": "map", "keys": {"type": "string"}, "values": kind[0]},
                st.dictionaries(st.text("ab", max_size=2), kind[1], max_size=2),
            )
        ),
        structs(inner),
    ),
    max_leaves=5,
)


@given(data=st.data(), are_events=st.booleans())
def test_the_proposal_lands_records_of_any_schema(data: st.DataObject, are_events: bool) -> None:
    row_schema, values = data.draw(structs(KINDS))
    row_schema["fields"].append({"field": "id", "type": "int64"})
    rows = [{**row, "id": number} for number, row in enumerate(data.draw(st.lists(values, min_size=1, max_size=5)))]
    messages = [(None, {"schema": row_schema, "payload": row}) for row in rows]
    if are_events:
        messages = events(rows, {"schema": schema(before=row_schema, after=row_schema)})
    require_landed(sample_of(*messages), rows)


@pytest.mark.parametrize("case", [Case(file.parent) for file in CASES.glob("*/source.sql")], ids=lambda case: case.name)
def test_the_proposal_lands_what_a_real_connector_wrote(case: Case) -> None:
    written = [(content(record["key"]), content(record["value"])) for record in case.records()]
    good = [record for offset, record in enumerate(written) if offset not in case.expected["bad"]]
    require_landed(sample_of(*good), case.expected["rows"])
