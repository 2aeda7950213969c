"""Zones and offsets as Java reads them; `test_records_fuzz` compares them with Spark's."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from sink.decode.spark_times import days, micros

NOON = int(datetime(2024, 2, 29, 12, tzinfo=timezone.utc).timestamp()) * 1_000_000
MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("zone", "minutes"),
    [
        ("EST", -300),
        ("MST", -420),
        ("HST", -600),
        ("PST", -480),
        ("JST", 540),
        ("BST", 360),
        ("ACT", 570),
        ("NET", 240),
        (" \t PST", -480),
        ("\x00UTC", 0),
    ],
)
def test_javas_short_ids_name_zones(zone, minutes):
    assert micros(f"2024-02-29T12:00:00{zone}") == NOON - minutes * MINUTE


def test_a_short_id_of_fixed_offset_has_it_in_every_year():
    assert micros("1900-01-01T00:00:00EST") == micros("1900-01-01T05:00:00Z")


def test_a_short_id_of_a_region_follows_its_summer_time():
    assert micros("2024-07-01T00:00:00PST") == micros("2024-07-01T07:00:00Z")


def test_summer_time_goes_on_beyond_the_years_that_python_knows():
    assert micros("12000-07-01T00:00:00PST") == micros("12000-07-01T07:00:00Z")
    assert micros("250000-07-01T00:00:00 Europe/Berlin") == micros("250000-06-30T22:00:00Z")
    assert micros("12000-01-01T00:00:00PST") == micros("12000-01-01T08:00:00Z")


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [
        ("+1", 3600),
        ("+01", 3600),
        ("-0130", -5400),
        ("+01:30", 5400),
        ("+1:30", 5400),
        ("+01:3", 3780),
        ("+7:3", 25380),
        ("+1:02:03", 3723),
        ("+01:02:03", 3723),
        ("-010203", -3723),
        ("UTC+7:3", 25380),
        ("UT-2", -7200),
        ("GMT+0130", 5400),
        ("+18", 64800),
    ],
)
def test_an_offset_in_a_form_that_java_reads_or_spark_completes_is_taken(zone, seconds):
    assert micros(f"2024-02-29T12:00:00{zone}") == NOON - seconds * 1_000_000


@pytest.mark.parametrize(
    "zone",
    [
        "SystemV/PST8",
        "+130",
        "+10203",
        "+01:0203",
        "+0102:03",
        "+01:02:3",
        "+1:2:3",
        "+1:2:03",
        "+01:",
        "+001",
        "+18:01",
        "+\u0661",
        "UTC+130",
        "UTC+01:0203",
        "UTCZ",
        "z",
        "localtime",
        "posixrules",
        "Factory",
        "ROC",
        "right/UTC",
        "posix/UTC",
        "zone.tab",
        "Europe",
        "Europe/../Europe/Berlin",
        "\xa0UTC",
        "\u2003Europe/Berlin",
        "PST \xa0",
        "pst",
    ],
)
def test_a_zone_that_java_does_not_know_is_refused(zone):
    with pytest.raises(ValueError, match="is not a time zone"):
        micros(f"2024-02-29T12:00:00{zone}")


def test_a_time_is_read_again_without_gmt_as_spark_does():
    assert micros("2024-02-29 12:00 GMT") == NOON
    assert micros("GMT2024-02-29T12:00:00.000Z") == NOON
    assert micros("2024-02-29T12:00:00GMT+01:00") == NOON - 60 * MINUTE
    assert days("2024-02-29GMT") == NOON // (24 * 60 * MINUTE)
    with pytest.raises(ValueError, match="is not a timestamp"):
        micros("GMT")
