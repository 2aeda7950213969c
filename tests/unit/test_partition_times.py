"""Texts of time partitions are those of Python's own calendar and zones, at the edges too; bad patterns are refused."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from sink.layout.partition_paths import NULL_PARTITION, PartitionPaths
from sink.layout.partition_times import BadPartition, PartitionTime, pattern_of, zone_of

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Europe/Dublin",
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FIRST, LAST = -62_135_510_400, 253_402_214_399
"""Seconds of 2 January of year 1 and of 30 December 9999: a day off what Python can count, for the zones."""


def texts(values: Sequence[Any], kind: pa.DataType, **options: str) -> list[str | None]:
    return list(PartitionTime("at", **options).texts(pa.array(values, kind)).to_pylist())


def by_python(second: int, zone: str) -> str:
    local = datetime.fromtimestamp(second, timezone.utc).astimezone(ZoneInfo(zone))
    return f"{local.year:04d}-{local.month:02d}-{local.day:02d}-{local.hour:02d}.{local.minute:02d}"


@pytest.mark.parametrize("zone", ZONES)
def test_a_time_is_what_pythons_calendar_says_in_every_zone_and_century(zone: str) -> None:
    rng = random.Random(zone)
    seconds = [rng.randrange(FIRST, LAST) for _ in range(2_000)]
    seconds += [rng.randrange(-5_000_000_000, 5_000_000_000) for _ in range(2_000)]
    assert texts(seconds, pa.int64(), format="yyyy-MM-dd-HH.mm", zone=zone, unit="s") == [
        by_python(second, zone) for second in seconds
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_every_quarter_of_an_hour_of_some_years_falls_where_python_says_through_all_changes(zone: str) -> None:
    for year in (1883, 1916, 1945, 2011, 2024, 2080):
        start = int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp())
        seconds = list(range(start, start + 366 * 86_400, 900))
        assert texts(seconds, pa.int64(), format="yyyy-MM-dd-HH.mm", zone=zone, unit="s") == [
            by_python(second, zone) for second in seconds
        ]


def test_batches_that_come_later_or_earlier_than_those_before_are_told_their_own_offsets() -> None:
    for year in (2024, 2030, 1999, 2090, 2500, 1890, 9000, 1600):
        second = int((datetime(year, 7, 1, 12, tzinfo=timezone.utc) - EPOCH).total_seconds())
        assert texts([second], pa.int64(), format="hourly", zone="America/Denver", unit="s") == [
            by_python(second, "America/Denver")[:13]
        ]


@pytest.mark.parametrize(
    ("zone", "utc", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T00:30", ["01", "03", "04"]),
        ("Europe/Berlin", "2024-10-27T00:30", ["02", "02", "03"]),
        ("Australia/Lord_Howe", "2024-04-06T14:45", ["01", "02", "03"]),
    ],
)
def test_an_hour_that_is_left_out_is_in_no_text_and_one_that_comes_twice_is_one(
    zone: str, utc: str, hours: list[str]
) -> None:
    first = datetime.fromisoformat(utc).replace(tzinfo=timezone.utc)
    hour_texts = texts(
        [first + timedelta(hours=at) for at in range(3)], pa.timestamp("us", "UTC"), format="HH", zone=zone
    )
    assert hour_texts == hours


@pytest.mark.parametrize(
    ("micros", "text"),
    [(-1, "1969-12-31-23"), (0, "1970-01-01-00"), (-3_600_000_000, "1969-12-31-23"), (-3_600_000_001, "1969-12-31-22")],
)
def test_a_time_before_1970_is_rounded_down_to_its_hour(micros: int, text: str) -> None:
    assert texts([micros], pa.timestamp("us", "UTC"), format="hourly") == [text]
    assert texts([micros], pa.int64(), format="hourly", unit="us") == [text]


@pytest.mark.parametrize("days", [-719_163, 2_932_897, -(1 << 31), (1 << 31) - 1])
def test_years_of_other_than_four_digits_are_bad_records_with_their_rows(days: int) -> None:
    for times, kind, unit in (([0, None, days], pa.date32(), ""), ([0, None, days * 86_400], pa.int64(), "s")):
        with pytest.raises(BadPartition, match="outside the years 0001 to 9999") as refusal:
            texts(times, kind, format="daily", unit=unit)
        assert [*refusal.value.reasons] == [2]
    for edge in (-719_162, 2_932_896):
        assert len(texts([edge], pa.date32(), format="daily")) == 1


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_a_date_is_the_same_day_in_every_zone(zone: str) -> None:
    dates = [date(2024, 2, 29), date(1, 1, 1), None, date(9999, 12, 31), date(1969, 12, 31)]
    expected = ["2024-02-29", "0001-01-01", None, "9999-12-31", "1969-12-31"]
    assert texts(dates, pa.date32(), format="daily", zone=zone) == expected


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
def test_a_number_counts_in_its_unit(unit: str, scale: int) -> None:
    second = 1_709_208_000
    assert texts([second * scale], pa.int64(), format="hourly", unit=unit) == ["2024-02-29-12"]


def test_a_text_and_a_whole_number_of_seconds_are_the_hours_that_they_name() -> None:
    moments = ["2024-05-06T23:30:00-02:00", None, "2024-05-07 01:30", "2024-05-07T03:30+02:00[Europe/Berlin]"]
    assert texts(moments, pa.string(), format="hourly") == ["2024-05-07-01", None, "2024-05-07-01", "2024-05-07-01"]
    assert texts(moments, pa.string(), zone="Asia/Tokyo", format="hourly")[0] == "2024-05-07-10"
    assert texts([1_709_208_000, None], pa.int32(), format="hourly", unit="s") == ["2024-02-29-12", None]
    topics = pa.array(["2024-05-06"] * 3).dictionary_encode()
    assert PartitionTime("at").texts(topics).to_pylist() == ["2024-05-06"] * 3


def test_a_text_that_is_no_time_is_a_bad_record_with_its_row() -> None:
    with pytest.raises(BadPartition) as refusal:
        texts(["2024-05-06", "soon", None, "1714979280", "soon"], pa.string())
    assert [*refusal.value.reasons] == [1, 3, 4]
    assert "at: 'soon' is not a time" in str(refusal.value)


def test_null_stays_null_and_goes_to_hudis_partition_for_it() -> None:
    partition_time = PartitionTime("at", "daily", column="d")
    for values, expected in (([None, None], [None, None]), ([None, 0, None], [None, "1970-01-01", None]), ([], [])):
        rows = pa.RecordBatch.from_pydict({"at": pa.array(values, pa.timestamp("us", "UTC"))})
        paths = PartitionPaths((), True, False, partition_time)
        complete = paths.complete(rows)
        assert complete.column("d").to_pylist() == expected
        groups = paths.group(complete)
        assert [groups.paths[code] for code in groups.codes] == [f"d={text or NULL_PARTITION}" for text in expected]


def test_the_time_is_the_last_part_of_a_path_behind_the_fields() -> None:
    times = pa.array([0, 86_400_000], pa.int64())
    rows = pa.RecordBatch.from_pydict({"at": times, "kind": ["a", "b"]})
    paths = PartitionPaths(("kind",), True, False, PartitionTime("at", unit="ms"))
    assert paths.columns == ("kind", "day")
    assert paths.group(paths.complete(rows)).paths == ("kind=a/day=1970-01-01", "kind=b/day=1970-01-02")


def test_a_batch_that_is_a_piece_of_another_gets_its_own_rows_times() -> None:
    times = pa.array([None, 0, 86_400_000, None, 172_800_000], pa.int64())
    assert PartitionTime("at", unit="ms").texts(times.slice(2)).to_pylist() == ["1970-01-02", None, "1970-01-03"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("yearly", "2024"),
        ("monthly", "2024-02"),
        ("daily", "2024-02-29"),
        ("hourly", "2024-02-29-12"),
        ("yyyy/MM/dd/HH", "2024/02/29/12"),
        ("YYYYMMdd", "20240229"),
        ("'year'=YYYY/'month'=MM/'day'=dd", "year=2024/month=02/day=29"),
        ("yyyy''MM 'o''clock'", "2024'02 o'clock"),
        ("HH.mm", "12.30"),
        ("'für' yyyy", "für 2024"),
    ],
)
def test_presets_and_patterns_are_written_as_javas_formatters_write_them(text: str, written: str) -> None:
    assert texts([1_709_209_800], pa.int64(), format=text, unit="s") == [written]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("yyyy-MM-dd hh", "has 'hh', which is not one of yyyy, YYYY, MM"),
        ("yy", "has 'yy'"),
        ("yyyy-MMM", "has 'MMM'"),
        ("dayly", "has 'd'"),
        ("yyyy 'open", "has a quote that is not closed"),
        ("'only words'", "has no part of a time"),
        ("", "has no part of a time"),
        ("../yyyy", "has a part between slashes that cannot be a directory"),
        ("/yyyy", "has a part between slashes that cannot be a directory"),
        ("yyyy//MM", "has a part between slashes that cannot be a directory"),
    ],
)
def test_a_pattern_that_hudi_would_read_otherwise_or_not_at_all_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        pattern_of(text)


@pytest.mark.parametrize("name", ["Europe/Berlim", "../etc/passwd", "", "/etc/localtime", "+02:00", "localtime"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        zone_of(name)


def test_seconds_beyond_all_time_are_a_bad_record_with_their_row() -> None:
    with pytest.raises(BadPartition) as refusal:
        texts([0, None, 1 << 62, -(1 << 62)], pa.int64(), unit="s")
    assert min(refusal.value.reasons) == 2
    assert "s since 1970, is outside the years" in str(refusal.value)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_batch_of_a_day_is_not_formatted_row_by_row(zone: str) -> None:
    rng = random.Random(1)
    batch = pa.array([1_732_000_000_000_000 + rng.randrange(86_400_000_000) for _ in range(10_000)], pa.int64())
    partition_time, durations = PartitionTime("at", "hourly", zone, unit="us"), []
    for _ in range(20):
        start = time.perf_counter()
        partition_time.texts(batch)
        durations.append(time.perf_counter() - start)
    # It takes a millisecond. Ten thousand calls of strftime took 200, beside other work.
    assert min(durations) < 0.02
