"""Options of commands take times."""

from __future__ import annotations

import pytest

from coordination.errors import ConfigError
from sink.commands.times import parse_log_time, parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01", 3600.0),
        ("1970-01-01T00:01", 60.0),
        ("1970-01-01 00:00:01.500", 1.5),
        ("1970-01-01T01:00:00Z", 3600.0),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1970-01-02Z", 86_400.0),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, seconds: float) -> None:
    assert parse_time("--to", text).timestamp() == seconds


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "1970-01-01T00:00+01:00", "0026-11-25"])
def test_a_time_before_kafkas_first_is_refused_for_kafka_takes_it_for_the_end(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--to .* lies before 1970, where Kafka's times begin. Correct the year"):
        parse_log_time("--to", text)
    assert parse_time("--since", text).timestamp() < 0, "a record without a timestamp has -1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01",
        "14:30",
        "2026-11-25T25:00",
        "2026-11-25T14:30:00X",
        "1",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_what_is_no_time_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--until .* is not a time. Write 2026-11-25T14:30:00Z"):
        parse_time("--until", text)
