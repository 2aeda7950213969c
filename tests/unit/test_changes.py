"""Records become changes of rows: deletes, their order, and bad records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.change_kit import changes_of, separated, settings_of


def row(key: int, **more: object) -> dict[str, object]:
    return {"id": key, "name": f"n{key}", "at": 1, **more}


def test_a_null_value_deletes_the_row_of_its_key_and_keeps_its_place_among_the_others(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, delete__key__format="string")
    changes = changes_of(settings, [("1", row(1)), ("7", None), ("1", None), ("2", row(2))])
    assert [(change["offset"], change["id"], change["_hoodie_is_deleted"]) for change in changes] == [
        (0, 1, False),
        (1, 7, True),
        (2, 1, True),
        (3, 2, False),
    ]
    assert [change["name"] for change in changes] == ["n1", None, None, "n2"]


@pytest.mark.parametrize(
    ("key_format", "keys", "key"),
    [
        ("string", "id", "12"),
        ("json", "id", {"id": 12, "other": 1}),
        ("json", "id,name", {"name": "x", "id": 12}),
        ("json", "name,id", {"name": "x", "id": 12}),
    ],
)
def test_a_key_in_each_format_names_the_row(tmp_path: Path, key_format: str, keys: str, key: object) -> None:
    settings = settings_of(tmp_path, delete__key__format=key_format, record__key__fields=keys)
    (deleted,) = changes_of(settings, [(key, None)])
    assert (deleted["id"], deleted["_hoodie_is_deleted"]) == (12, True)
    assert deleted["name"] == ("x" if "name" in keys else None)


def test_the_records_own_key_may_be_the_record_key(tmp_path: Path) -> None:
    texts = {"value__format": "string", "schema__ddl": "value string", "key__format": "string"}
    settings = settings_of(tmp_path, record__key__fields="_kafka_key", **texts)
    changes = changes_of(settings, [("k", "hello"), ("k", None)])
    assert [(change["_kafka_key"], change["value"], change["_hoodie_is_deleted"]) for change in changes] == [
        ("k", "hello", False),
        ("k", None, True),
    ]


@pytest.mark.parametrize(
    ("key_format", "bad_keys"), [("string", ["x", "0x1F", "1.5", None]), ("json", ["x", "[]", '{"id": "no"}', None])]
)
def test_a_key_that_names_no_row_is_bad_alone(tmp_path: Path, key_format: str, bad_keys: list[str | None]) -> None:
    settings = settings_of(tmp_path, delete__key__format=key_format)
    good = ["1", "2"] if key_format == "string" else ['{"id": 1}', '{"id": 2}']
    rows, bad_rows = separated(settings, [(good[0], None), *((key, None) for key in bad_keys), (good[1], None)])
    assert [(change["id"], change["offset"]) for change in rows] == [(1, 0), (2, len(bad_keys) + 1)]
    assert [bad_row.row for bad_row in bad_rows] == [*range(1, len(bad_keys) + 1)]


@pytest.mark.parametrize("index", ["bloom", "record"])
@pytest.mark.parametrize("partitioned_by", ["field", "time"])
def test_a_delete_says_in_which_partition_its_row_is_unless_the_index_knows(
    tmp_path: Path, index: str, partitioned_by: str
) -> None:
    column = "name" if partitioned_by == "field" else "at"
    partitioning = (
        {"partition__field__name": "name"}
        if partitioned_by == "field"
        else {
            "partition__time__field": "at",
            "time__unit": "ms",
        }
    )
    ddl = "id bigint, name string, at bigint"
    settings = settings_of(tmp_path, index__type=index, schema__ddl=ddl, **partitioning)
    deleted = {"id": 1, "name": "n", "at": 1, "_hoodie_is_deleted": True}
    without = {name: value for name, value in deleted.items() if name != column}
    rows, bad_rows = separated(settings, [(None, deleted), (None, without), (None, {"id": 2})])
    assert [change["offset"] for change in rows] == ([0, 2] if index == "bloom" else [0, 1, 2])
    assert [bad_row.row for bad_row in bad_rows] == ([1] if index == "bloom" else [])
    assert all(f"column '{column}' is null" in bad_row.reason for bad_row in bad_rows)


def test_a_value_may_say_that_it_deletes_and_then_needs_no_more_than_its_key(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    values = [{"id": 3, "_hoodie_is_deleted": True}, row(4, _hoodie_is_deleted=False)]
    changes = changes_of(settings, [(None, value) for value in values])
    assert [(change["id"], change["_hoodie_is_deleted"]) for change in changes] == [(3, True), (4, False)]


MARKS = [(True, True), (False, False), (None, False), ("true", True), ("false", False), (1, True), (0, False)]


@pytest.mark.parametrize("column", ["", ", __deleted string"])
def test_any_field_may_say_that_a_value_deletes_as_boolean_text_or_number(tmp_path: Path, column: str) -> None:
    settings = settings_of(tmp_path, delete__field="__deleted", schema__ddl=f"id bigint, name string{column}")
    values = [{"id": key, "name": "n", "__deleted": mark} for key, (mark, _) in enumerate(MARKS * 50)]
    values.append({"id": len(values), "name": "without"})
    changes = changes_of(settings, [(None, value) for value in values])
    assert [(change["id"], change["name"]) for change in changes] == [(value["id"], value["name"]) for value in values]
    assert [change["_hoodie_is_deleted"] for change in changes] == [deletes for _, deletes in MARKS * 50] + [False]
    assert all(("__deleted" in change) == bool(column) for change in changes)


def test_a_mark_that_is_neither_true_nor_false_is_bad_and_other_reasons_stay(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, delete__field="gone", schema__ddl="id bigint, name string")
    values = ['{"id":1,"gone":"yes"}', '{"id":2,"gone":2}', '{"id":3,"gone":{}}', '{"id":"x","gone":"true"}', "{"]
    for more in ([], ['{"id":9,"gone":"true"}'] * 20, ['{"id":9,"gone":true}'] * 20):
        rows, bad_rows = separated(settings, [(None, value) for value in (*values, *more)])
        assert len(rows) == len(more)
        reasons = [bad_row.reason for bad_row in bad_rows]
        assert [("delete.field" in reason) for reason in reasons] == [True, True, True, False, False]
        assert reasons[0].startswith("field 'gone' is 'yes': it marks deletes")
        assert "column 'id'" in reasons[3]


def test_a_delete_of_ordering_value_0_in_an_int_is_bad_since_hudi_would_take_it_for_none(tmp_path: Path) -> None:
    """In a BIGINT, and beside another ordering column, it is a value like others."""
    values = [{"id": 1, "at": 0, "b": 0}, {"id": 1, "at": 0, "b": 0, "_hoodie_is_deleted": True}, {"id": 1, "at": 1}]
    values.append({"id": 1, "at": -1, "b": 0, "_hoodie_is_deleted": True})
    for kind, ordering, bad in (
        ("int", "at", [1]),
        ("smallint", "at", [1]),
        ("bigint", "at", []),
        ("int", "at,b", [2]),
    ):
        settings = settings_of(tmp_path, ordering__field__name=ordering, schema__ddl=f"id bigint, at {kind}, b bigint")
        rows, bad_rows = separated(settings, [(None, value) for value in values])
        assert [bad_row.row for bad_row in bad_rows] == bad
        assert len(rows) == len(values) - len(bad)


def test_the_partition_that_a_delete_names_counts_for_nothing_where_the_index_is_global(tmp_path: Path) -> None:
    ddl = "id bigint, name string, at bigint"
    more = {"partition__field__name": "name", "partition__time__field": "at", "time__unit": "s", "schema__ddl": ddl}
    padded = {"id": 1, "name": "", "at": -(1 << 60), "_hoodie_is_deleted": True}
    (deleted,) = changes_of(settings_of(tmp_path, index__type="record", **more), [(None, padded)])
    assert (deleted["id"], deleted["name"], deleted["at"], deleted["day"]) == (1, None, None, None)
    _, (bad_row,) = separated(settings_of(tmp_path, **more), [(None, padded)])
    assert bad_row.kind == "partition"


@pytest.mark.parametrize(
    ("more", "record", "offset", "reason"),
    [
        ({}, ("1", None), 1, "delete.key.format does not say"),
        ({"delete__key__format": "string"}, (None, None), 1, "has no key"),
        ({"delete__key__format": "string"}, ("x", None), 1, "not of type int64"),
        ({"delete__key__format": "json"}, ("x", None), 1, "its key: "),
        ({"delete__key__format": "json"}, ({"no": 1}, None), 1, "record key column 'id' is null"),
        ({}, (None, "{}"), 1, "column 'name' is null: it is NOT NULL"),
        ({}, (None, {"name": "a"}), 1, "record key column 'id' is null"),
        ({}, (None, {"id": "no number"}), 1, "id"),
        ({"ordering__field__name": "at"}, (None, {"id": 1, "name": "a"}), 1, "'at' is null: it is an ordering column"),
        ({"ordering__field__name": "at"}, (None, {"id": 1, "_hoodie_is_deleted": True}), 1, "column 'at' is null"),
        ({"ordering__field__name": "at"}, ("1", None), 1, "has no value for ordering.field.name"),
    ],
)
def test_the_first_record_that_is_no_change_is_named(
    tmp_path: Path, more: dict[str, str], record: tuple[object, object], offset: int, reason: str
) -> None:
    rows, (first, *_) = separated(settings_of(tmp_path, **more), [("5", row(5)), record, (None, "also bad")])
    assert first.row == offset
    assert reason in first.reason
    assert [change["offset"] for change in rows] == [0]


def test_all_bad_records_are_found_among_good_ones_whatever_is_wrong_with_them(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, delete__key__format="string")
    bad_records = [("x", None), (None, "{"), (None, {"id": 1}), (None, {"name": "a"})]
    for first in range(len(bad_records)):
        records = [("5", row(5)), *bad_records[first:], *bad_records[:first], ("6", row(6))]
        rows, bad_rows = separated(settings, records)
        assert [bad_row.row for bad_row in bad_rows] == [1, 2, 3, 4], records
        assert [change["id"] for change in rows] == [5, 6]
