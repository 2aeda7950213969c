"""Debezium's change events, as its connectors for Postgres and MySQL send them."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from coordination.errors import ConfigError
from sink.config import Settings
from sink.decode.debezium import EventDecoder, row_of_event
from sink.decode.formats import ValueFormat
from sink.schema.table_schema import parse_ddl
from tests.unit.change_kit import DDL, changes_of, separated, settings_of

POSTGRES = {
    "version": "2.7.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1700,
    "snapshot": "false",
    "db": "shop",
    "sequence": '[null,"24023128"]',
    "schema": "public",
    "table": "t",
    "txId": 555,
    "lsn": 24,
    "xmin": None,
}
MYSQL = {
    "version": "2.7.0.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1700,
    "snapshot": "false",
    "db": "shop",
    "table": "t",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 154,
    "row": 0,
    "thread": 7,
    "query": None,
}

Json = dict[str, Any]


def event(op: str, before: Any = None, after: Any = None, source: Json = POSTGRES, **more: Any) -> Json:
    return {"before": before, "after": after, "source": {**source, **more}, "op": op, "ts_ms": 1800}


def wrapped(payload: Json) -> Json:
    fields = [{"type": "int64", "optional": False, "field": "id"}]
    return {"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": payload}


def row(key: int, name: str = "a") -> Json:
    return {"id": key, "name": name, "at": 1}


def debezium(directory: Path, **more: str) -> Settings:
    return settings_of(directory, value__envelope="debezium", **more)


def brief(changes: list[Json]) -> list[tuple[int, str | None, bool]]:
    return [(change["id"], change["name"], change["_hoodie_is_deleted"]) for change in changes]


@pytest.mark.parametrize("source", [POSTGRES, MYSQL], ids=["postgres", "mysql"])
@pytest.mark.parametrize("wrap", [lambda payload: payload, wrapped], ids=["plain", "wrapped"])
def test_creates_updates_snapshots_and_deletes(tmp_path: Path, source: Json, wrap: Any) -> None:
    events = [
        event("r", None, row(1), source, snapshot="true"),
        event("c", None, row(2), source),
        event("u", row(1), row(1, "b"), source),
        event("u", None, row(1, "c"), source),
        event("d", row(2), None, source),
    ]
    changes = changes_of(debezium(tmp_path), [(None, wrap(payload)) for payload in events])
    assert brief(changes) == [(1, "a", False), (2, "a", False), (1, "b", False), (1, "c", False), (2, "a", True)]


def test_both_shapes_may_be_mixed(tmp_path: Path) -> None:
    records = [(None, wrapped(event("c", None, row(1)))), (None, event("c", None, row(2)))]
    changes = changes_of(debezium(tmp_path), records)
    assert brief(changes) == [(1, "a", False), (2, "a", False)]


def test_a_delete_of_which_postgres_tells_only_the_key_or_nothing(tmp_path: Path) -> None:
    settings = debezium(tmp_path, delete__key__format="json")
    records = [
        ({"id": 1}, event("d", {"id": 1}, None)),
        ({"id": 2}, event("d", None, None)),
        (wrapped({"id": 3}), event("d", None, None)),
        ({"id": 4}, event("d", {"id": 4, "name": "", "at": None}, None)),
    ]
    assert brief(changes_of(settings, records)) == [(1, None, True), (2, None, True), (3, None, True), (4, "", True)]
    _, bad = separated(debezium(tmp_path), records)
    assert all("delete.key.format" in bad_row.reason for bad_row in bad)
    assert bad


def test_the_tombstone_after_a_delete_deletes_again_unless_columns_order_the_changes(tmp_path: Path) -> None:
    records = [({"id": 1}, event("d", row(1), None)), ({"id": 1}, None)]
    by_log = changes_of(debezium(tmp_path, delete__key__format="json"), records)
    assert brief(by_log) == [(1, "a", True), (1, None, True)]
    by_lsn = changes_of(debezium(tmp_path, debezium__ordering="lsn"), records)
    assert brief(by_lsn) == [(1, "a", True)]


def test_what_orders_the_changes_is_a_column(tmp_path: Path) -> None:
    postgres = [(None, event("c", None, row(1), lsn=30)), (None, event("d", row(1), None, lsn=31))]
    by_lsn = changes_of(debezium(tmp_path, debezium__ordering="lsn"), postgres)
    assert [change["_debezium_lsn"] for change in by_lsn] == [30, 31]
    by_time = changes_of(debezium(tmp_path, debezium__ordering="ts_ms"), postgres)
    assert [change["_debezium_ts_ms"] for change in by_time] == [1700, 1700]


def test_places_in_mysqls_binary_log_sort_as_text(tmp_path: Path) -> None:
    positions = [("mysql-bin.000009", 99), ("mysql-bin.000009", 100), ("mysql-bin.000010", 4), ("mysql-bin.1000000", 4)]
    records = [(None, event("c", None, row(1), MYSQL, file=file, pos=pos)) for file, pos in positions]
    ordering_values = [
        change["_debezium_binlog"] for change in changes_of(debezium(tmp_path, debezium__ordering="binlog"), records)
    ]
    assert ordering_values == sorted(ordering_values)
    assert len(set(ordering_values)) == len(positions)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"ts_ms": 1}, "a heartbeat"),
        ({"status": "BEGIN", "id": "7:9", "ts_ms": 1, "event_count": None}, "a transaction's metadata"),
        (
            {"source": MYSQL, "ts_ms": 1, "databaseName": "shop", "ddl": "ALTER TABLE t", "tableChanges": []},
            "a schema change",
        ),
    ],
)
@pytest.mark.parametrize("wrap", [lambda payload: payload, wrapped], ids=["plain", "wrapped"])
def test_the_reason_names_what_debezium_wrote_instead_of_a_change(
    tmp_path: Path, wrap: Any, value: Json, kind: str
) -> None:
    _, (bad,) = separated(debezium(tmp_path), [(None, wrap(value))])
    assert kind in bad.reason


def test_messages_are_no_changes(tmp_path: Path) -> None:
    message = {"op": "m", "ts_ms": 1, "source": POSTGRES, "message": {"prefix": "p", "content": "aGk="}}
    changes = changes_of(debezium(tmp_path), [(None, message), (None, event("c", None, row(1))), (None, message)])
    assert [(change["offset"], change["id"]) for change in changes] == [(1, 1)]


def test_events_in_avro(tmp_path: Path) -> None:
    """As in Debezium's Avro, `before` and `after` share a type, and the source has more fields than are asked for."""
    optional = {"name": ["null", "string"], "at": ["null", "long"], "lsn": ["null", "long"], "ts_ms": ["null", "long"]}

    def record(kind: str, /, **fields: Any) -> Json:
        return {
            "type": "record",
            "name": kind,
            "fields": [{"name": name, "type": field_type} for name, field_type in fields.items()],
        }

    value = record("Value", id="long", name=optional["name"], at=optional["at"])
    source = record("Source", connector="string", ts_ms="long", lsn=optional["lsn"])
    rows = {"before": ["null", value], "after": ["null", "Value"]}
    envelope = record("Envelope", **rows, source=source, op="string", ts_ms=optional["ts_ms"])
    schema = fastavro.parse_schema(envelope)

    def written(document: Json) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, document)
        return stream.getvalue()

    events = [event("c", None, row(1)), event("u", row(1), row(1, "b")), event("d", row(1), None), event("m")]
    decoder = EventDecoder(ValueFormat("avro", json.dumps(envelope).encode()), parse_ddl(DDL).unchecked, "lsn")
    decoded = decoder.decode(pa.array(map(written, events), pa.binary()))
    assert not decoded.bad
    assert [column.to_pylist()[:3] for column in decoded.columns] == [[1, 1, 1], ["a", "b", "a"], [1, 1, 1]]
    assert (decoded.deleted.tolist(), decoded.skipped.tolist()) == ([False, False, True, False], [False] * 3 + [True])
    assert decoded.ordering is not None
    assert decoded.ordering.to_pylist() == [24] * 4


def test_the_columns_are_those_of_the_row_after_the_change() -> None:
    rows = parse_ddl("before STRUCT<id: INT>, after STRUCT<id: INT, name: STRING>, op STRING").value_struct
    assert row_of_event(rows, "subject s").names == ["id", "name"]
    for ddl in ("id INT, name STRING", "before STRUCT<id: INT>, after STRING"):
        with pytest.raises(ConfigError, match="subject s has no record `after`"):
            row_of_event(parse_ddl(ddl).value_struct, "subject s")


@pytest.mark.parametrize(
    ("value", "more", "reason"),
    [
        (event("t"), {}, "truncate"),
        (event("x", None, row(1)), {}, "not a change event"),
        ({"id": 1, "name": "a"}, {}, "not a change event"),
        (event("c", row(1), None), {}, "without the row after it"),
        (event("c", None, {"id": 1}), {}, "column 'name' is null: it is NOT NULL"),
        (event("c", None, {"name": "a"}), {}, "record key column 'id' is null"),
        (event("u", None, row(1, "__debezium_unavailable_value")), {}, "REPLICA IDENTITY FULL"),
        (event("c", None, row(1), lsn=None), {"debezium__ordering": "lsn"}, "column '_debezium_lsn' is null"),
        (event("c", None, row(1), MYSQL, pos=None), {"debezium__ordering": "binlog"}, "'_debezium_binlog' is null"),
        (event("c", None, row(1), MYSQL, file="x"), {"debezium__ordering": "binlog"}, "'_debezium_binlog' is null"),
    ],
)
def test_events_that_cannot_take_effect_are_bad_records(
    tmp_path: Path, value: Json, more: dict[str, str], reason: str
) -> None:
    good = (None, event("c", None, row(1), {**POSTGRES, **MYSQL}))
    rows, (bad,) = separated(debezium(tmp_path, **more), [good, (None, value)])
    assert bad.row == 1
    assert reason in bad.reason
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"value__format": "string", "schema__ddl": "value string"}, "value.envelope=debezium is JSON"),
        ({"ordering__field__name": "at", "debezium__ordering": "lsn"}, "Keep one"),
        ({"write__operation": "append"}, "is for write.operation=upsert"),
    ],
)
def test_settings_that_contradict_each_other(tmp_path: Path, more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        debezium(tmp_path, **more)
    assert reason in str(refused.value)


PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", PLACEHOLDER),
        ("string", base64.b64encode(PLACEHOLDER.encode()).decode()),
        ("string", PLACEHOLDER.encode().hex()),
        ("string", {PLACEHOLDER: PLACEHOLDER}),
        ("binary", base64.b64encode(PLACEHOLDER.encode()).decode()),
        ("array<string>", [PLACEHOLDER]),
        ("array<int>", list(PLACEHOLDER.encode())),
        ("array<bigint>", list(PLACEHOLDER.encode())),
        ("map<string, string>", {PLACEHOLDER: PLACEHOLDER}),
        ("struct<x: array<string>>", {"x": [PLACEHOLDER]}),
        ("array<struct<x: string>>", [{"x": "a"}, {"x": PLACEHOLDER}]),
        ("array<array<string>>", [["a"], [], [PLACEHOLDER]]),
    ],
)
def test_a_value_that_the_database_did_not_log_is_bad_in_every_form(tmp_path: Path, kind: str, value: Any) -> None:
    settings = settings_of(tmp_path, value__envelope="debezium", schema__ddl=f"id bigint, c {kind}")
    rows = [{"id": 1, "c": None}, {"id": 2, "c": value}, {"id": 3}]
    good, (bad,) = separated(settings, [(None, event("u", None, after)) for after in rows])
    assert [change["id"] for change in good] == [1, 3]
    assert (bad.row, "column 'c' has __debezium_unavailable_value" in bad.reason) == (1, True)


@pytest.mark.parametrize(
    ("ordering", "source", "without"),
    [("lsn", POSTGRES, {"lsn": None}), ("binlog", MYSQL, {"file": "", "pos": 0}), ("binlog", MYSQL, {"pos": None})],
)
def test_a_row_of_an_incremental_snapshot_is_older_than_every_change(
    tmp_path: Path, ordering: str, source: Json, without: Json
) -> None:
    settings = settings_of(tmp_path, value__envelope="debezium", debezium__ordering=ordering)
    after = {"id": 1, "name": "n", "at": 1}
    snapshot = event("r", None, after, source, snapshot="incremental", **without)
    other = event("r", None, after, source, snapshot="last", **without)
    changed = event("u", None, after, source)
    good, (bad,) = separated(settings, [(None, value) for value in (snapshot, other, changed)])
    first, second = (change[f"_debezium_{ordering}"] for change in good)
    assert first < second
    assert (bad.row, "it is an ordering column" in bad.reason) == (1, True)


PLACED = "id bigint, country string, seen timestamp, note string"
FROM_BERN = {"id": 1, "country": "CH", "seen": "2026-05-06T10:00:00Z", "note": "a"}


@pytest.mark.parametrize(
    ("more", "after", "moves"),
    [
        ({"partition__field__name": "country"}, {"country": "FR"}, "from partition country=CH to country=FR"),
        ({"partition__field__name": "country"}, {"country": None}, "from partition country=CH to country="),
        ({"partition__field__name": "country"}, {"note": "b"}, ""),
        ({"partition__field__name": "country", "index__type": "record"}, {"country": "FR"}, ""),
        ({"partition__time__field": "seen"}, {"seen": "2026-05-06T23:00:00Z"}, ""),
        ({"partition__time__field": "seen"}, {"seen": "2026-05-07T01:00:00Z"}, "from partition day=2026-05-06 to day="),
    ],
)
def test_an_update_that_moves_its_row_is_bad_where_the_index_looks_in_one_partition(
    tmp_path: Path, more: dict[str, str], after: dict[str, Any], moves: str
) -> None:
    settings = settings_of(
        tmp_path,
        schema__ddl=PLACED,
        value__envelope="debezium",
        debezium__before="row",
        **more,
    )
    records = [
        (None, event("c", None, FROM_BERN)),
        (None, None),
        (None, event("m", None, None)),
        (None, event("u", None, {**FROM_BERN, **after})),
        (None, event("u", FROM_BERN, {**FROM_BERN, **after})),
        (None, event("u", {**FROM_BERN, "country": "..", "seen": None}, {**FROM_BERN, "country": "CH"})),
        (None, event("d", FROM_BERN)),
    ]
    del records[1]
    rows, bad = separated(settings, records)
    reasons = {row.row: row.reason for row in bad}
    assert [row["offset"] for row in rows] == [offset for offset in (0, 2, 3, 4, 5) if offset not in reasons]
    assert (moves in reasons.pop(3)) if moves else 3 not in reasons
    assert {*reasons} <= {4}


def test_an_update_whose_earlier_partition_is_refused_moves_nothing(tmp_path: Path) -> None:
    """Times are refused before paths: two steps, each of which numbers the rows anew."""
    settings = settings_of(
        tmp_path,
        schema__ddl=PLACED.replace("seen timestamp", "seen string"),
        value__envelope="debezium",
        debezium__before="row",
        partition__field__name="country",
        partition__time__field="seen",
        partition__hive__style="false",
    )
    befores = [{"seen": "never"}, {"country": ".."}, {}, {"country": "FR"}]
    records = [(None, event("u", {**FROM_BERN, **before}, FROM_BERN)) for before in befores]
    rows, bad = separated(settings, records)
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert [(row.row, "from partition FR/2026-05-06 to CH/2026-05-06" in row.reason) for row in bad] == [(3, True)]
    assert [row["offset"] for row in separated(settings, records[1:2])[0]] == [0]
