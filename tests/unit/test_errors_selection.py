"""Options select rows of an errors table, through a condition for DuckDB."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import duckdb
import pytest

from coordination.errors import ConfigError
from sink.bad_records.selection import Selection, parse_offsets

NOON = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
ROWS = [
    ("s", "a", 0, offset, NOON.replace(tzinfo=None) + timedelta(hours=offset), kind, f"column {kind}: 'x'", replayed)
    for offset, (kind, replayed) in enumerate([("value", None), ("key", None), ("value", "i1"), ("partition", None)])
]


def selected_offsets(selection: Selection) -> list[int]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE errors (sink TEXT, _kafka_topic TEXT, _kafka_partition INT, _kafka_offset BIGINT,"
            " _kafka_timestamp TIMESTAMP, kind TEXT, reason TEXT, replayed_instant TEXT)"
        )
        connection.executemany("INSERT INTO errors VALUES (?, ?, ?, ?, ?, ?, ?, ?)", ROWS)
        condition, values = selection.sql()
        rows = connection.execute(f"SELECT _kafka_offset FROM errors WHERE {condition} ORDER BY 1", values).fetchall()
    return [offset for (offset,) in rows]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), [0, 1, 3]),
        (Selection(include_replayed=True), [0, 1, 2, 3]),
        (Selection(sink="s"), [0, 1, 3]),
        (Selection(sink="another"), []),
        (Selection(topic="a", partition=0, first_offset=1, last_offset=2, include_replayed=True), [1, 2]),
        (Selection(topic="b"), []),
        (Selection(kind="value"), [0]),
        (Selection(reason="key: '"), [1]),
        (Selection(reason="%"), []),
        (Selection(since=NOON + timedelta(hours=1), until=NOON + timedelta(hours=3)), [1]),
        (Selection(since=datetime(2024, 2, 29, 14, tzinfo=timezone(timedelta(hours=1)))), [1, 3]),
    ],
)
def test_all_that_is_given_has_to_be_true(selection: Selection, expected: list[int]) -> None:
    assert selected_offsets(selection) == expected


def test_offsets_are_read_as_they_are_written() -> None:
    assert (parse_offsets(None), parse_offsets("7"), parse_offsets("7..9")) == ((None, None), (7, 7), (7, 9))
    for wrong in ("x", "-1", "1..", "1...2", "9..7"):
        with pytest.raises(ConfigError, match="--offset"):
            parse_offsets(wrong)
