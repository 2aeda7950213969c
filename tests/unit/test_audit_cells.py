"""The comparison of cells tells every two values apart that are two."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sink.audit.checkpoints import LogPartition
from sink.audit.content.cells import Comparison, TableRows, Unread
from sink.audit.content.changes import Ordering
from sink.audit.content.expected import ASIDE_SCHEMA, BAD_SCHEMA, DELETES, KEY, PATH, ExpectedForm, column
from sink.audit.content.owners import OTHER_WRITERS, Coordinates, OwnedRange
from sink.audit.content.places import Places
from sink.audit.content.records import UNKNOWN_SCHEMA
from sink.audit.report import AuditFindings, ContentCount, FindingKind, Report

SOURCE = LogPartition("orders", 0)
COMMITS = {"20260101000000000": 0, "20260102000000000": 1}
OTHERS, UNKNOWN, MOVED = "20260103000000000", "20260104000000000", "20260105000000000"
OTHERS_WROTE = 1
"""Rows that the other writer has changed."""
EXPIRED, ELSEWHERE = -1, 20
"""An offset that the log has no longer, and one that no commit has landed."""
ENTRIES = pa.map_(pa.string(), pa.int64())
Row = Mapping[str, Any]
NOTHING: Mapping[int, str] = {}


def compared(
    directory: Path,
    kind: pa.DataType,
    landed: Sequence[Row],
    wanted: Sequence[Row],
    ordering: Ordering | None = None,
    has_meta: bool = True,
    is_suffix: bool = True,
    left_out: Collection[int] = (),
    bad: Mapping[int, str] = NOTHING,
    floats: Collection[int] = (),
    aside: Collection[int] = (),
) -> tuple[ContentCount, list[tuple[FindingKind, str]]]:
    """Compares rows of a column `c`, with `offset`, `commit` (its number; 2 is of another writer, 3 unknown, 4 has
    moved rows), `key` and `deletes`. The commits `left_out` are not compared. `bad` are the reasons of bad records by
    offset, `aside` the offsets of good ones that a repair has left in the errors table. In the commits `floats` the
    column was a FLOAT. The log begins at offset 0."""
    target = ExpectedForm(pa.schema([("c", kind)]), Places(("key",), (), True, False), ordering)
    commits = COMMITS | {OTHERS: OTHER_WRITERS, MOVED: OTHER_WRITERS - 1}
    owned = [OwnedRange(SOURCE, number, EXPIRED, 10) for number in COMMITS.values()]
    most = {OTHER_WRITERS: OTHERS_WROTE}
    coordinates = Coordinates({SOURCE: 0}, commits, {0: 0, 1: 1}, owned=owned, most=most)
    table = TableRows(directory, target, coordinates, has_meta)
    instants = [*COMMITS, OTHERS, UNKNOWN, MOVED]
    rows = pa.table(
        {
            "_hoodie_commit_time": [instants[row.get("commit", 0)] for row in landed],
            "_hoodie_record_key": [row.get("key", "k") for row in landed],
            "_hoodie_partition_path": [""] * len(landed),
            "_kafka_topic": [SOURCE.topic] * len(landed),
            "_kafka_partition": pa.array([0] * len(landed), pa.int32()),
            "_kafka_offset": pa.array([row.get("offset", 0) for row in landed], pa.int64()),
            "c": column([row["c"] for row in landed], kind),
        }
    )
    if not has_meta:
        rows = rows.select([name for name in rows.column_names if not name.startswith("_hoodie_")])
    table.add("", "file.parquet", lambda: iter(rows.to_batches()))
    expected = directory / "expected"
    expected.mkdir()
    columns: dict[str, list[Any]] = {
        "_sink_source": [0] * len(wanted),
        "_sink_offset": [row.get("offset", 0) for row in wanted],
        "_sink_commit": [row.get("commit", 0) for row in wanted],
        PATH: [""] * len(wanted),
        KEY: [row.get("key", "k") for row in wanted],
        DELETES: [row.get("deletes", False) for row in wanted],
        "c": [row["c"] for row in wanted],
    }
    arrays = [column(columns[field.name], field.type) for field in target.schema]
    pq.write_table(pa.table(arrays, target.schema), expected / "rows-0.parquet")
    coordinate = pa.array([0] * len(bad), pa.int32())
    refused = [coordinate, pa.array([*bad], pa.int64()), coordinate, pa.array([*bad.values()], pa.string())]
    pq.write_table(pa.table(refused, BAD_SCHEMA), expected / "bad-0.parquet")
    kept = [{"_sink_source": 0, "_sink_offset": offset, "_sink_commit": 0} for offset in aside]
    pq.write_table(pa.Table.from_pylist(kept, ASIDE_SCHEMA), expected / "aside-0.parquet")
    findings = AuditFindings()
    widened = {"c": floats} if floats else {}
    comparison = Comparison(
        directory, target, table, expected, coordinates, has_meta, findings, is_suffix=is_suffix, floats=widened
    )
    pairs = {(0, commit) for commit in left_out}
    count = comparison.run(Unread({0: 0}, lambda _source, _commit: "for a reason", pairs))
    return count, [(finding.kind, finding.sentence) for finding in findings.all()]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int64(), 0, None),
        (pa.int64(), 1, 2),
        (pa.string(), "", None),
        (pa.string(), "a", "a "),
        (pa.string(), "é", "e\u0301"),
        (pa.binary(), b"\0", b""),
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), float("nan"), None),
        (pa.float64(), 0.1, 0.30000000000000004 - 0.2),
        (pa.float32(), 0.0, -0.0),
        (pa.decimal128(10, 2), Decimal("1.10"), Decimal("1.11")),
        (pa.timestamp("us", "UTC"), 1, 2),
        (pa.list_(pa.int64()), [], None),
        (pa.list_(pa.int64()), [None], []),
        (pa.list_(pa.int64()), [1, 2], [2, 1]),
        (pa.list_(pa.list_(pa.int64())), [[]], [None]),
        (ENTRIES, {}, None),
        (ENTRIES, {"a": 1}, {"a": None}),
        (pa.struct([("x", pa.int64())]), {"x": None}, None),
        (pa.struct([("x", pa.list_(pa.string()))]), {"x": []}, {"x": None}),
    ],
)
def test_values_that_differ_are_found(kind: pa.DataType, one: Any, other: Any, tmp_path: Path) -> None:
    for number, (found, wanted) in enumerate(((one, other), (other, one))):
        directory = tmp_path / str(number)
        directory.mkdir()
        count, findings = compared(directory, kind, [{"c": found}], [{"c": wanted}])
        assert (count.compared, count.different) == (1, 1)
        assert [kind for kind, _ in findings] == [FindingKind.CELL]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.float64(), float("nan"), float("nan")),
        (pa.float64(), -0.0, -0.0),
        (pa.list_(pa.int64()), [1, None], [1, None]),
        (ENTRIES, {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (pa.struct([("m", ENTRIES)]), {"m": {"a": 1, "b": 2}}, {"m": {"b": 2, "a": 1}}),
        (pa.int64(), None, None),
    ],
)
def test_values_that_are_one_are_no_finding(kind: pa.DataType, one: Any, other: Any, tmp_path: Path) -> None:
    count, findings = compared(tmp_path, kind, [{"c": one}], [{"c": other}])
    assert (count.compared, count.different, findings) == (1, 0, [])


@pytest.mark.parametrize("commits", [(0, 0), (0, 1)], ids=["of one commit", "of two"])
def test_texts_that_order_changes_are_compared_by_code_point_as_hudi_compares_them(
    commits: Sequence[int], tmp_path: Path
) -> None:
    # In UTF-16 the second text is the smaller one.
    texts = "\uff5e", "\U0001f600"
    wanted = [{"c": text, "offset": at, "commit": commits[at]} for at, text in enumerate(texts)]
    count, findings = compared(tmp_path, pa.string(), wanted[1:], wanted, Ordering(("c",), False))
    assert (findings, count.compared, count.different) == ([], 1, 0)


FLOATS = [0.1, 1 / 3, 0.5, -0.0, 1e-45, 1.17549435e-38, 16777216.0, 3.4028235e38, float("inf"), float("nan")]


def of_32_bits(number: float) -> float:
    (near,) = struct.unpack("<f", struct.pack("<f", number))
    return float(near)


@pytest.mark.parametrize("number", FLOATS)
def test_a_float_that_became_a_double_may_have_its_decimal_digits_or_its_binary_ones(
    number: float, tmp_path: Path
) -> None:
    wanted = of_32_bits(number)
    for place, found in enumerate((wanted, float(f"{wanted:.9g}"), float(str(np.float32(wanted))))):
        directory = tmp_path / str(place)
        directory.mkdir()
        count, findings = compared(directory, pa.float64(), [{"c": found}], [{"c": wanted}], floats=[0])
        assert (count.compared, count.different, findings) == (1, 0, [])


@pytest.mark.parametrize(
    ("found", "wanted", "commit"),
    [
        (0.1, of_32_bits(0.1), 1),
        (0.1000000012345, of_32_bits(0.1), 0),
        (0.2, of_32_bits(0.1), 0),
        (1e-300, 0.0, 0),
        (1e300, None, 0),
        (0.0, -0.0, 0),
        (None, 0.0, 0),
    ],
)
def test_another_number_than_the_float_or_one_of_a_later_commit_is_found(
    found: float | None, wanted: float | None, commit: int, tmp_path: Path
) -> None:
    landed, expected = ([{"c": number, "commit": commit}] for number in (found, wanted))
    count, findings = compared(tmp_path, pa.float64(), landed, expected, floats=[0])
    assert count.different == 1
    assert [kind for kind, _ in findings] == [FindingKind.CELL]


@pytest.mark.parametrize("ordering", [None, Ordering((), False)], ids=["each record a row", "changes"])
def test_a_row_whose_schema_no_checkpoint_names_is_not_compared_and_blamed_for_nothing(
    ordering: Ordering | None, tmp_path: Path
) -> None:
    landed = [{"offset": 1, "c": 1, "key": "a"}, {"offset": 2, "c": 2, "key": "b"}]
    wanted = [landed[0], {"offset": 0, "c": 0, "key": "b"}] if ordering else landed[:1]
    bad = {2: UNKNOWN_SCHEMA, 3: UNKNOWN_SCHEMA, 4: "no JSON"}
    count, findings = compared(tmp_path, pa.int64(), landed, wanted, ordering, bad=bad)
    assert (findings, count.compared, count.not_compared) == ([], 1, {UNKNOWN_SCHEMA: 1})
    assert not count.complete


def test_the_last_change_of_a_key_counts_by_ordering_commit_and_offset(tmp_path: Path) -> None:
    wanted: list[Row] = [
        {"offset": 0, "c": 5},
        {"offset": 1, "c": 7},
        {"offset": 2, "c": 6, "commit": 1},
        {"offset": 3, "c": 9, "key": "gone"},
        {"offset": 4, "c": 9, "key": "gone", "deletes": True},
        {"offset": 5, "c": 1, "key": "again", "deletes": True},
        {"offset": 6, "c": 0, "key": "again", "commit": 1},
    ]
    landed: list[Row] = [{"offset": 1, "c": 7}, {"offset": 6, "c": 0, "key": "again", "commit": 1}]
    count, findings = compared(tmp_path, pa.int64(), landed, wanted, Ordering(("c",), is_global=True))
    assert (count.rows, count.compared, findings) == (2, 2, [])


def test_the_row_of_a_record_that_does_not_count_is_named(tmp_path: Path) -> None:
    wanted = [{"offset": 0, "c": 5}, {"offset": 1, "c": 7}]
    count, findings = compared(tmp_path, pa.int64(), [{"offset": 0, "c": 5}], wanted, Ordering((), is_global=True))
    assert count.compared == 0
    assert [kind for kind, _ in findings] == [FindingKind.ABSENT, FindingKind.STALE]
    assert "orders-0 offset 0 is the row of key 'k'" in findings[1][1]


@pytest.mark.parametrize("fields", [(), ("c",)])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_change_that_took_no_effect_is_found_though_the_rows_own_record_has_expired(
    fields: tuple[str, ...], deletes: bool, tmp_path: Path
) -> None:
    landed: list[Row] = [{"offset": EXPIRED, "c": 5}]
    wanted: list[Row] = [{"offset": 0, "c": 5, "commit": 1, "deletes": deletes}]
    count, findings = compared(tmp_path, pa.int64(), landed, wanted, Ordering(fields, is_global=True))
    found = [FindingKind.STALE] if deletes else [FindingKind.ABSENT, FindingKind.STALE]
    assert [kind for kind, _ in findings] == found
    assert count.not_compared == {}


@pytest.mark.parametrize("deletes", [False, True])
def test_a_row_whose_own_record_has_expired_stays_if_it_is_newer_by_its_ordering_value(
    deletes: bool, tmp_path: Path
) -> None:
    wanted: list[Row] = [{"offset": 0, "c": 5, "commit": 1, "deletes": deletes}]
    count, findings = compared(
        tmp_path, pa.int64(), [{"offset": EXPIRED, "c": 6}], wanted, Ordering(("c",), is_global=True)
    )
    assert (count.not_compared, findings) == ({"expired from the log": 1}, [])


@pytest.mark.parametrize("ordering", [None, Ordering((), is_global=True)])
def test_a_row_that_another_writer_changed_is_counted_as_its_own(ordering: Ordering | None, tmp_path: Path) -> None:
    count, findings = compared(tmp_path, pa.int64(), [{"c": 6, "commit": 2}], [{"c": 5}], ordering)
    assert (count.not_compared, count.complete, findings) == ({"rows of other writers": 1}, True, [])


LIES = {
    "an offset behind all that landed": {"offset": ELSEWHERE},
    "an offset before all that landed": {"offset": EXPIRED - 1},
    "no offset": {"offset": None},
    "a commit that nobody made": {"commit": 3},
    "a commit that moved rows": {"commit": 4},
}


@pytest.mark.parametrize("ordering", [None, Ordering((), is_global=True), Ordering(("c",), is_global=True)])
@pytest.mark.parametrize("lie", LIES)
def test_a_row_that_the_commit_it_names_has_not_written_is_found_and_excuses_no_absence(
    lie: str, ordering: Ordering | None, tmp_path: Path
) -> None:
    count, findings = compared(tmp_path, pa.int64(), [{"c": 6, **LIES[lie]}], [{"c": 5}], ordering)
    assert [kind for kind, _ in findings] == [FindingKind.OUTSIDE, FindingKind.ABSENT]
    assert (count.counts, count.not_compared) == ({"rows that their commits have not written": 1}, {})


def test_more_rows_of_another_writer_than_it_has_changed_are_found(tmp_path: Path) -> None:
    landed: list[Row] = [{"offset": 0, "c": 6, "commit": 2}, {"offset": 1, "c": 6, "commit": 2}]
    count, findings = compared(tmp_path, pa.int64(), landed, [{"offset": 0, "c": 5}, {"offset": 1, "c": 5}])
    assert [kind for kind, _ in findings] == [FindingKind.OUTSIDE] * 2 + [FindingKind.ABSENT] * 2
    assert (
        f"commit {OTHERS} of its row has not written it: another writer inserted or changed 1 rows, and there are 2"
        in findings[0][1]
    )
    assert count.not_compared == {}


def test_without_hudis_columns_so_many_rows_are_of_others_as_they_have_written(tmp_path: Path) -> None:
    for number, kinds in ((1, []), (2, [FindingKind.OUTSIDE] * 2)):
        directory = tmp_path / str(number)
        directory.mkdir()
        landed: list[Row] = [{"offset": None, "c": 6}] * number
        count, findings = compared(directory, pa.int64(), landed, [], has_meta=False)
        assert [kind for kind, _ in findings] == kinds
        assert count.not_compared == ({} if kinds else {"rows of other writers": 1})


def test_what_has_no_record_is_counted_by_reason(tmp_path: Path) -> None:
    landed = [{"offset": 0, "c": 5}, {"offset": EXPIRED, "c": 5}]
    count, findings = compared(tmp_path, pa.int64(), landed, [])
    assert count.not_compared == {"for a reason": 1, "expired from the log": 1}
    assert not count.complete
    assert findings == []
    document = json.loads(Report("/lake/orders", "orders", content=count).to_json())
    assert document["content"]["not_compared"] == count.not_compared
    assert (document["held"], document["complete"]) == (False, False)


def test_a_row_of_a_commit_that_is_left_out_is_counted_as_that(tmp_path: Path) -> None:
    count, findings = compared(tmp_path, pa.int64(), [{"c": 5}, {"offset": EXPIRED, "c": 5}], [], left_out=[0])
    assert (count.not_compared, count.complete, findings) == ({"left out": 2}, True, [])


def test_the_row_of_a_key_may_be_that_of_a_later_change_that_is_left_out(tmp_path: Path) -> None:
    landed: list[Row] = [{"offset": 6, "c": 4, "commit": 1}, {"offset": 1, "c": 3, "key": "other"}]
    wanted: list[Row] = [
        {"offset": 0, "c": 5},
        {"offset": 2, "c": 9, "key": "deleted later"},
        # A later one in its transaction has been left out.
        {"offset": 1, "c": 3, "key": "other"},
    ]
    ordering = Ordering((), is_global=True)
    count, findings = compared(tmp_path, pa.int64(), landed, wanted, ordering, is_suffix=False, left_out=[1])
    assert (count.compared, count.not_compared, findings) == (1, {"left out": 1}, [])


@pytest.mark.parametrize("fields", [(), ("c",)])
@pytest.mark.parametrize("is_left_out", [False, True])
def test_a_later_change_that_took_no_effect_is_found_in_a_part_of_the_log(
    fields: tuple[str, ...], is_left_out: bool, tmp_path: Path
) -> None:
    own: list[Row] = [] if is_left_out else [{"offset": 0, "c": 5}]
    wanted: list[Row] = [*own, {"offset": 1, "c": 5, "commit": 1}]
    ordering = Ordering(fields, is_global=True)
    left_out = [0] if is_left_out else []
    _, findings = compared(
        tmp_path, pa.int64(), [{"offset": 0, "c": 5}], wanted, ordering, is_suffix=False, left_out=left_out
    )
    assert [kind for kind, _ in findings] == [FindingKind.STALE]


def test_without_hudis_columns_rows_meet_their_records_by_offset(tmp_path: Path) -> None:
    landed = [{"offset": 0, "c": 5}, {"offset": 1, "c": 6}]
    wanted = [{"offset": 0, "c": 5}, {"offset": 1, "c": 7, "commit": 1}]
    count, findings = compared(tmp_path, pa.int64(), landed, wanted, has_meta=False)
    assert (count.compared, count.different) == (2, 1)
    assert [kind for kind, _ in findings] == [FindingKind.CELL]
    assert "orders-0 offset 1 column c: the table has '6', the log '7' (file.parquet)" in findings[0][1]


@pytest.mark.parametrize("ordering", [None, Ordering((), is_global=True), Ordering(("c",), is_global=True)])
def test_a_good_record_that_a_repair_has_left_in_the_errors_table_has_no_row(
    ordering: Ordering | None, tmp_path: Path
) -> None:
    wanted = [{"offset": 0, "c": 5}, {"offset": 1, "c": 7}]
    count, findings = compared(tmp_path, pa.int64(), wanted[:1], wanted, ordering, aside=[1])
    assert (count.compared, findings) == (1, [])
