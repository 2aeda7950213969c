"""Columns of another name than their field."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.audit.decode.json_values import json_row
from sink.audit.decode.rules import Bad, Rules
from sink.config import Settings
from sink.decode.field_names import columns_of_fields
from sink.decode.fields import Choices, Infinity, ValueRules
from sink.decode.formats import ValueFormat
from sink.infer.field_names import _cleaned
from sink.schema.table_schema import parse_ddl
from sink.write.rows.row_spec import spec_of, table_schema
from tests.unit.change_kit import changes_of, settings_of

NAMES = {
    "id": ("order-id",),
    "ts": ("@timestamp",),
    "message": ("metadata", "msgID"),
    "dotted": ("a.b",),
    "place.city": ("place", "größe, Stadt"),
    "lines.sku": ("lines", "item", "sku no"),
    "by_name.x": ("by_name", "X-1"),
}
DDL = (
    "id bigint, ts timestamp, message string, dotted string, place struct<city: string, zip: string>,"
    " lines array<struct<sku: string, n: int>>, by_name map<string, struct<x: int>>, plain int"
)
RECORD: dict[str, Any] = {
    "order-id": 7,
    "@timestamp": 1714979280000,
    "metadata": {"msgID": "m-1", "other": 1},
    "a.b": "y",
    "place": {"größe, Stadt": "Bern", "zip": "3000"},
    "lines": [{"item": {"sku no": "s"}, "n": 1}, {"n": 2}, None],
    "by_name": {"k": {"X-1": 5}},
    "plain": 3,
}
ROW = {
    "id": 7,
    "ts": 1714979280000000,
    "message": "m-1",
    "dotted": "y",
    "place": {"city": "Bern", "zip": "3000"},
    "lines": [{"sku": "s", "n": 1}, {"sku": None, "n": 2}, None],
    "by_name": [("k", {"x": 5})],
    "plain": 3,
}
SETTING = (
    "id=order-id, ts=@timestamp, message=metadata.msgID, dotted=`a.b`, place.city=place.`größe, Stadt`,"
    " lines.sku=lines.item.`sku no`, by_name.x=by_name.X-1"
)


def rules(names: dict[str, tuple[str, ...]] = NAMES) -> ValueRules:
    return ValueRules(time_unit=Choices(None, (("ts", "ms"),)), names=tuple(names.items()))


def decoded(ddl: str, values: list[bytes], names: dict[str, tuple[str, ...]] = NAMES) -> tuple[list[Any], list[str]]:
    form = ValueFormat("json", rules=rules(names))
    found = form.decoder(parse_ddl(ddl).value_struct).decode(pa.array(values, pa.binary()))
    rows = found.rows.to_pylist()
    for row in rows:
        if row.get("ts") is not None:
            row["ts"] = int(row["ts"].timestamp()) * 1_000_000
    return rows, [bad.reason for bad in found.bad]


def written(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("copies", [1, 300])
def test_fields_of_any_name_and_depth_fill_their_columns(copies: int) -> None:
    assert decoded(DDL, [written(RECORD)] * copies) == ([ROW] * copies, [])
    flat = {name: RECORD[name] for name in ("order-id", "plain", "a.b", "metadata")}
    rows, bad = decoded(DDL, [json.dumps(flat, separators=(",", ":")).encode()] * copies)
    assert (rows[-1]["id"], rows[-1]["message"], rows[-1]["dotted"], bad) == (7, "m-1", "y", [])


def test_the_setting_is_read_as_it_is_meant(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, schema__ddl=DDL, write__operation="", record__key__fields="", field__names=SETTING)
    assert dict(settings.field_names) == NAMES
    table, records = settings.table, settings.records
    assert spec_of(table, records, table_schema(table, records)).format.rules.names == settings.field_names


@pytest.mark.parametrize("text", ["ts", "ts=", "=x", "ts=a..b", "ts=a b", "ts=`a", "ts=a, ts=b"])
def test_a_setting_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"field\.names"):
        settings_of(tmp_path, field__names=text)


@pytest.mark.parametrize(
    ("ddl", "names", "reason"),
    [
        ("a int, b string", {"a": ("x",), "b": ("x",)}, "read in more than one way, for the columns a, b"),
        ("a string, b int", {"a": ("x",), "b": ("x", "y")}, "read in more than one way"),
        ("a struct<b: int>", {"a.b": ("c", "b")}, "is not inside of 'a'"),
        ("a int, b int", {"a": ("x",), "b": ("X",)}, "differ in case only. Set field.case=exact"),
        ("a struct<b: int not null>", {"a.b": ("a", "c", "b")}, "is NOT NULL in a struct"),
    ],
)
def test_fields_that_cannot_be_read_so_are_refused(ddl: str, names: dict[str, tuple[str, ...]], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        decoded(ddl, [b"{}"], names)


def test_a_name_of_no_column_is_refused(tmp_path: Path) -> None:
    settings: Settings = settings_of(tmp_path, field__names="nowhere=x")
    with pytest.raises(ConfigError, match="'nowhere' is not a column"):
        spec_of(settings.table, settings.records, table_schema(settings.table, settings.records))


def test_a_field_may_fill_several_columns_alone_and_in_its_struct() -> None:
    names = {"a": ("m", "x"), "b": ("m", "x"), "whole": ("m",)}
    rows, bad = decoded("a int, b int, whole struct<x: int, y: int>", [b'{"m":{"x":1,"y":2}}', b'{"m":null}'], names)
    assert rows == [{"a": 1, "b": 1, "whole": {"x": 1, "y": 2}}, {"a": None, "b": None, "whole": None}]
    assert bad == []


def test_what_arrays_and_maps_hold_may_fill_several_columns() -> None:
    names = {"n": ("lines",), "n.first": ("lines", "a"), "m": ("by_name",), "m.x": ("by_name", "a")}
    line, entry = "array<struct<first: int, b: int>>", "map<string, struct<x: int>>"
    ddl = f"lines array<struct<a: int>>, n {line}, by_name map<string, struct<b: int>>, m {entry}"
    rows, _ = decoded(ddl, [written({"lines": [{"a": 1, "b": 2}], "by_name": {"k": {"a": 3, "b": 4}}})], names)
    assert rows == [
        {
            "lines": [{"a": 1}],
            "n": [{"first": 1, "b": 2}],
            "by_name": [("k", {"b": 4})],
            "m": [("k", {"x": 3})],
        }
    ]


def test_a_column_that_is_not_null_needs_its_field() -> None:
    values = [b'{"m":{"x":1}}', b'{"m":null}', b'{"m":{}}', b"{}", b'{"m":{"x":2}}']
    rows, bad = decoded("a int not null", values, {"a": ("m", "x")})
    assert rows == [{"a": 1}, {"a": 2}]
    assert all("NOT NULL" in reason for reason in bad)
    assert len(bad) == 3


@pytest.mark.parametrize(
    ("name", "proposed"), [("prénom", "prenom"), ("Ärger", "Arger"), ("señor-id", "senor_id"), ("größe", "gro_e")]
)
def test_a_letter_keeps_its_place_without_its_accent(name: str, proposed: str) -> None:
    assert _cleaned(name) == proposed


@pytest.mark.parametrize("name", ["order-amount", "größe"])
@pytest.mark.parametrize("kind", ["decimal(6,2)", "array<decimal(6,2)>", "struct<d: decimal(6,2)>"])
def test_a_text_in_a_decimal_is_bad_whatever_the_name_of_its_field(name: str, kind: str) -> None:
    written = {"decimal(6,2)": '"12"', "array<decimal(6,2)>": '["12"]', "struct<d: decimal(6,2)>": '{"d": "12"}'}[kind]
    value = f'{{ "{name}" :\n{written} }}'.encode()
    assert len(decoded(f"amount {kind}", [value] * 300, {"amount": (name,)})[1]) == 300


def test_keys_and_rows_of_events_have_the_same_names(tmp_path: Path) -> None:
    more = {"schema__ddl": "id bigint, message string", "field__names": "id=order-id, message=metadata.msgID"}
    settings = settings_of(tmp_path, value__envelope="debezium", delete__key__format="json", **more)
    after = {"order-id": 1, "metadata": {"msgID": "m"}}
    event = {"before": None, "after": after, "op": "c", "source": {}}
    records = [({"order-id": 1}, event), ({"order-id": 1}, None), ("2", None)]
    changes = changes_of(settings, records)
    assert [(change["id"], change["message"], change["_hoodie_is_deleted"]) for change in changes] == [
        (1, "m", False),
        (1, None, True),
        (2, None, True),
    ]


def test_columns_named_like_the_fields_of_an_event_are_the_rows(tmp_path: Path) -> None:
    more = {"schema__ddl": "id bigint, op string, source struct<lsn: string>"}
    names = {"field__names": "op=operation, source=origin, source.lsn=origin.l-s-n"}
    settings = settings_of(tmp_path, value__envelope="debezium", debezium__ordering="lsn", **more, **names)
    after = {"id": 1, "operation": "sell", "origin": {"l-s-n": "x"}}
    (change,) = changes_of(settings, [(None, {"before": None, "after": after, "op": "c", "source": {"lsn": 9}})])
    assert (change["op"], change["source"], change["_debezium_lsn"]) == ("sell", {"lsn": "x"}, 9)


def test_a_key_alone_is_that_of_a_column_from_a_field_of_any_depth(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, delete__key__format="json", schema__ddl="id bigint", field__names="id=a.b.c-d")
    changes = changes_of(settings, [("7", None), ({"a": {"b": {"c-d": 8}}}, None)])
    assert [change["id"] for change in changes] == [7, 8]


def test_a_record_in_avro_has_the_same_names() -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "orderId", "type": "long"},
            {"name": "meta", "type": {"type": "record", "name": "Meta", "fields": [{"name": "msg", "type": "string"}]}},
        ],
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"orderId": 1, "meta": {"msg": "m"}})
    form = ValueFormat(
        "avro", json.dumps(schema).encode(), rules=rules({"id": ("orderId",), "message": ("meta", "msg")})
    )
    found = form.decoder(parse_ddl("id bigint, message string").value_struct).decode(pa.array([stream.getvalue()]))
    assert found.rows.to_pylist() == [{"id": 1, "message": "m"}]


def test_columns_of_a_registered_schema_get_their_names() -> None:
    lines = T.ArrayType(T.StructType([T.StructField("item-no", T.IntegerType())]))
    meta = T.StructType([T.StructField("msg-id", T.StringType())])
    kinds = {"order-id": T.LongType(), "meta": meta, "lines": lines}
    fields = T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
    names = {"id": ("order-id",), "message": ("meta", "msg-id"), "lines.item": ("lines", "item-no")}
    columns = columns_of_fields(fields, names)
    assert columns.simpleString() == (
        "struct<id:bigint,meta:struct<msg-id:string>,lines:array<struct<item:int>>,message:string>"
    )


SHAPE = "id bigint, ts timestamp, message string, place struct<city: string, zip: string not null>, d decimal(6,2)"
PLACES: list[tuple[str, ...]] = [("a",), ("m", "b"), ("m", "c"), ("n", "m", "d"), ("E-1",), ("F",), ("m", "n", "ts")]


@pytest.mark.parametrize("infinity", ["bad", "null"])
def test_a_time_without_an_end_is_bad_where_one_of_its_columns_may_not_be_null(infinity: Infinity) -> None:
    read = ValueRules(infinity=infinity, names=(("a", ("t",)), ("b", ("t",))))
    decoder = ValueFormat("json", rules=read).decoder(parse_ddl("a timestamp not null, b timestamp").value_struct)
    found = decoder.decode(pa.array([b'{"t":"infinity"}', b'{"t":"2024-05-06T07:08:09Z"}', b'{"t":null}']))
    assert [bad.index for bad in found.bad] == [0, 2]
    assert [row["a"] == row["b"] for row in found.rows.to_pylist()] == [True]


@pytest.mark.parametrize("seed", range(40))
def test_the_auditor_reads_the_same_fields(seed: int) -> None:
    rnd = Random(seed)
    columns = rnd.sample(["id", "ts", "message", "d", "place"], rnd.randint(1, 5))
    names = dict(zip(columns, rnd.sample(PLACES, len(columns)), strict=True))
    names["place.city"] = (*names.get("place", ("place",)), *rnd.choice([("a",), ("m", "a")]))
    struct = parse_ddl(SHAPE).value_struct
    exact = rnd.random() < 0.3
    ours = ValueRules(Choices("ms"), names=tuple(names.items()), exact_case=exact)
    auditors = Rules({"": "ms"}, names=names, exact_case=exact)
    sources = {column: names.get(column, (column,)) for column in struct.names}
    values = [record(rnd, sources, names["place.city"]) for _ in range(60)]
    found = ValueFormat("json", rules=ours).decoder(struct).decode(pa.array(values, pa.binary()))
    refused, rows = {bad.index for bad in found.bad}, iter(found.rows.to_pylist())
    assert found.rows.num_rows > 5
    for index, value in enumerate(values):
        try:
            audited = json_row(value, json.loads(struct.json()), auditors)
        except Bad:
            audited = None
        assert (audited is None) == (index in refused), (names, value)
        if audited is not None:
            assert next(rows) == audited, (names, value)


def record(rnd: Random, sources: dict[str, tuple[str, ...]], city: tuple[str, ...]) -> bytes:
    """Returns a record with values at the places of some columns, a few of them wrong or in another case."""
    good = {"id": 7, "ts": 1714979280000, "message": "x", "d": 1.25, "place": {"zip": "3000"}}
    found: dict[str, Any] = {}
    for column in rnd.sample([*good], rnd.randint(1, 5)):
        value = rnd.choice([None, "x", 1, {}, []]) if rnd.random() < 0.05 else good[column]
        put(found, tuple(map(rnd.choice([str] * 20 + [str.swapcase]), sources[column])), value)
        if column == "place" and value == good["place"] and rnd.random() < 0.7:
            put(found, city, "Bern")
    return written(found)


def put(found: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        inner = found.get(name)
        found[name] = dict(inner) if isinstance(inner, dict) else {}
        found = found[name]
    found[path[-1]] = value
