"""The auditor knows the row of each key, and reports every way in which a table of changes can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.chaos.auditor.changes import Row, expected, find
from tests.chaos.auditor.log import SentEvent, read_log
from tests.chaos.events import LATE, changes


def change(offset: int, key: int, at: int, deleted: bool = False, number: int = 0) -> SentEvent:
    row: dict[str, object] = {"id": key, "at": at, "number": number or offset, "amount": 0.5}
    if deleted:
        row["_hoodie_is_deleted"] = True
    return SentEvent(0, 0, offset, "good", json.dumps(row))


def tombstone(offset: int, key: int) -> SentEvent:
    return SentEvent(0, 0, offset, "tombstone", str(key))


def row(offset: int, key: int, at: int) -> Row:
    return key, at, offset, 0.5, None, None, 0, offset


@pytest.mark.parametrize(
    ("events", "ordered", "rows"),
    [
        ([change(0, 1, 5), change(1, 1, 4)], False, [row(1, 1, 4)]),
        ([change(0, 1, 5), change(1, 1, 4)], True, [row(0, 1, 5)]),
        ([change(0, 1, 5), change(1, 1, 5)], True, [row(1, 1, 5)]),
        ([change(0, 1, 5), change(1, 1, 4, deleted=True)], True, [row(0, 1, 5)]),
        ([change(0, 1, 5), change(1, 1, 5, deleted=True)], True, []),
        ([change(0, 1, 5), change(1, 1, 4, deleted=True)], False, []),
        ([change(0, 1, 5), tombstone(1, 1), change(2, 1, 4)], False, [row(2, 1, 4)]),
        ([change(0, 1, 5), SentEvent(0, 0, 1, "bad", "no JSON"), change(2, 2, 5)], False, [row(0, 1, 5), row(2, 2, 5)]),
    ],
    ids=[
        "the later in the log",
        "the greater ordering value",
        "of equal ones the later",
        "a late delete",
        "a delete as new as the row",
        "a delete in the order of the log",
        "a row after a tombstone",
        "a bad record",
    ],
)
def test_a_key_has_the_row_that_its_last_change_says(events: list[SentEvent], ordered: bool, rows: list[Row]) -> None:
    assert list(expected(events, ordered).values()) == rows


def test_a_later_round_comes_after_an_earlier_one_whatever_its_offsets(tmp_path: Path) -> None:
    file = tmp_path / "acknowledged.txt"
    lines = [f"0 0 7 good {change(7, 1, 5).text}", f"1 0 3 good {change(3, 1, 5).text}", "0 0 8 tombstone 1"]
    file.write_text("\n".join(["by-log", *lines, ""]))
    log = read_log(file)
    assert expected(log.events, ordered=False) == {1: row(3, 1, 5)}


SENT = [change(0, 1, 5), change(1, 2, 5), change(2, 3, 5), tombstone(3, 3)]
RIGHT = [row(0, 1, 5), row(1, 2, 5)]


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        (RIGHT, ""),
        (RIGHT[:1], "lost"),
        ([*RIGHT, RIGHT[0]], "duplicated"),
        ([row(0, 1, 5), (2, 5, 0, 0.5, None, None, 0, 1)], "mistaken"),
        ([row(0, 1, 5), (2, 5, 1, 0.5, None, None, 0, 9)], "mistaken"),
        ([row(0, 1, 5), (2, 5, 1, 0.5, None, 7, 0, 1)], "mistaken"),
        ([*RIGHT, row(2, 3, 5)], "undeleted"),
    ],
)
def test_the_auditor_of_changes_tells_each_way_to_be_wrong(rows: list[Row], finding: str) -> None:
    counts = {name: len(cases) for name, cases in find(rows, SENT, ordered=False).items() if cases}
    assert counts == ({finding: 1} if finding else {})


@pytest.mark.parametrize("ordered", [True, False])
def test_the_load_has_late_changes_and_deletes_but_nothing_older_after_a_delete(ordered: bool) -> None:
    events = changes(Random(1), partitions=4, bad=50, ordered=ordered)
    newest: dict[int, int] = {}
    deleted: dict[int, int] = {}
    counts = dict.fromkeys(("late", "equal", "deleted", "late delete", "tombstone", "bad"), 0)
    for _ in range(4 * LATE):
        event = next(events)
        if event.bad or event.value is None:
            counts["bad" if event.bad else "tombstone"] += 1
            continue
        value = json.loads(event.value)
        key, at = value["id"], value["at"]
        assert event.partition == key % 4
        assert at >= deleted.get(key, 0)
        counts["late"] += at < newest.get(key, 0)
        counts["equal"] += at == newest.get(key)
        if value.get("_hoodie_is_deleted"):
            counts["late delete" if at < newest.get(key, 0) else "deleted"] += 1
            deleted[key] = at
        newest[key] = max(at, newest.get(key, 0))
    assert {kind for kind, times in counts.items() if times} == set(counts) - ({"tombstone"} if ordered else set())
