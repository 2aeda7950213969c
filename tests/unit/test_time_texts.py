"""Texts and numbers that are times: the writer's reader and the auditor's agree on each, or both refuse it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sink.audit.decode import moments
from sink.audit.decode.rules import Bad
from sink.decode import time_texts
from sink.decode.fields import Unit

EPOCH = datetime(1970, 1, 1)
DAYS = st.sampled_from(
    ["2024-02-29", "2023-02-29", "2024-2-9", "0001-01-01", "9999-12-31", "0000-01-01", "10000-01-01", "2024-10-27",
     "2024-03-31", "1893-04-01", "20240229", "2024-060", "2024-W09-4", "-2024-01-01", "2024-12", "24-12-31",
     "2024-00-10"]
)  # fmt: skip
CLOCKS = st.sampled_from(
    ["", "T", " ", "T02:30", "t02:30:00", " 2:3:4", "T23:59:60", "T24:00:00", "T00:00", "T00:00:00.000", "T12:34:56.1",
     "T12:34:56,123456789", "T12:34:56.", "T12.5", "T1234", "T12", "  12:00", "T00:00:00.0000001", "T12:34:56.12.3"]
)  # fmt: skip
ZONES = st.sampled_from(
    ["", "Z", "z", " Z", "  Z", "+01", "-1", "+0130", "+01:30", "+1:30", "+130", "+01:3", "+18:00", "-18:01", "+25:00",
     "+01:60", "+01:30:15", "UTC", " utc", "GMT+2", "UTC+02:00", "utc+2", "PST", "EST", "Europe/Berlin",
     " Europe/Berlin",
     "[Europe/Berlin]", "Z[Europe/Berlin]", "+01:00[Europe/Berlin]", "+02:00[Europe/Berlin]", "+02:00[]", "[", "]",
     "Europe/Berlin[Europe/Berlin]", "+01:00[Europe/Berlin][UTC]", "Etc/GMT+3", "Etc/UTC", "Nowhere/Land",
     "europe/berlin", "America/Argentina/Ushuaia", "Europe//Berlin", "/Berlin", "posix/UTC", "localtime", "+", "+٣"]
)  # fmt: skip
BLANKS = st.sampled_from(["", " ", "\t\n", "\x00", "\u00a0"])


def outcome(read: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what was read, or None for what is refused."""
    try:
        return read(*arguments)
    except (ValueError, Bad):
        return None


@given(day=DAYS, clock=CLOCKS, zone=ZONES, before=BLANKS, behind=BLANKS)
@example(day="2024-02-29", clock="T12:00:00", zone="+02:00[Europe/Berlin]", before="", behind="")
def test_a_text_is_the_same_time_for_both(day: str, clock: str, zone: str, before: str, behind: str) -> None:
    text = f"{before}{day}{clock}{zone}{behind}"
    moment = outcome(time_texts.micros, text)
    audited = outcome(moments.moment_of_text, text)
    assert (None if moment is None else EPOCH + timedelta(microseconds=moment)) == audited, text
    number, audited_day = outcome(time_texts.days, text), outcome(moments.day_of_text, text)
    assert (None if number is None else date(1970, 1, 1) + timedelta(days=number)) == audited_day, text


@given(
    digits=st.one_of(
        st.integers(-(10**20), 10**20).map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.decimals(-(10**12), 10**12, places=9).map(str),
        st.sampled_from(["0", "-0", "0e999", "1e999", "1e-999", "-1e-999", "1e99999999999999999999"]),
    ),
    unit=st.sampled_from(["days", "s", "ms", "us", "ns"]),
)
@example(digits="-62135596800", unit="s")
@example(digits="-62135596801", unit="s")
@example(digits="253402300799.9999999", unit="s")
@example(digits="253402300800", unit="s")
@example(digits="19849.0", unit="days")
def test_a_number_is_the_same_time_for_both(digits: str, unit: Unit) -> None:
    moment = outcome(time_texts.micros_of_number, digits, unit)
    audited = outcome(moments.moment_of_number, digits, unit)
    assert (None if moment is None else EPOCH + timedelta(microseconds=moment)) == audited
    day, audited_day = outcome(time_texts.days_of_number, digits, unit), outcome(moments.day_of_number, digits, unit)
    assert (None if day is None else date(1970, 1, 1) + timedelta(days=day)) == audited_day


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2024-02-30", "is not a time, for instance"),
        ("2024-05-06T07:08:09 PST", "'PST' is not a time zone"),
        ("2024-10-27T02:30:00 Europe/Berlin", "happens twice or never in its zone"),
        ("2024-03-31T02:30:00[Europe/Berlin]", "happens twice or never in its zone"),
        ("2024-05-06T07:08:09+03:00[Europe/Berlin]", "has an offset that its zone does not have then"),
        ("1714979280000", "is not a time"),
        ("x" * 1000, "is not a time"),
    ],
)
def test_a_text_that_is_no_time_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        time_texts.micros(text)


def test_the_units_that_make_a_date_of_a_number_are_named() -> None:
    units: tuple[Unit, ...] = ("days", "s", "ms", "us", "ns")
    assert time_texts.plausible("1714979280000", units).startswith("ms (2024-05-06), us (1970-01-20)")
    assert time_texts.plausible("19849", units).startswith("days (2024-05-06)")
    assert time_texts.plausible("-5", units) == ""
