"""Parses dates and timestamps like Spark 3.5, for the session time zone UTC.

Guarantee: a text gives the same day or microsecond as in `from_json`. Three forms are refused: a time without a day
(Spark takes today, so the result would change with the clock), a date as a bare number of days, and Java's old zones
`SystemV/...`. Follows `SparkDateTimeUtils.stringToDate`, `parseTimestampString` and `getZoneId`, `JacksonParser`, and
Java 17's `ZoneId`. Voided if the time zone database of the host differs from Java's. Raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sink.decode.quoting import quoted

_DATE = re.compile(
    r"[+-]?(?P<year>[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL
)
_DAY = r"[+-]?(?P<year>[0-9]{4,6})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_TIME = r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
_REST = r"(?:\.(?P<fraction>[0-9]*))?(?P<zone>[^0-9.].*)?)?)?)?)?)?"
_TIMESTAMP = re.compile(_DAY + _TIME + _REST, re.DOTALL)
# `h`, `hh`, `hhmm`, `hh:mm`, `hhmmss` and `hh:mm:ss`, nothing between them.
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hour>[0-9]{1,2}(?![0-9])|[0-9]{2})"
    r"(?:(?P<colon>:?)(?P<minute>[0-9]{2})(?:(?P=colon)(?P<second>[0-9]{2}))?)?"
)
_SINGLE_HOUR = re.compile(r"([+-])([0-9]:)")
_SINGLE_MINUTE = re.compile(r"([+-][0-9]{2}:)([0-9])\Z")
_REGION = re.compile(r"(?!right/|posix/)[A-Za-z][A-Za-z0-9~/._+-]+")
_HOSTS_OWN = frozenset({"localtime", "posixrules", "Factory", "ROC"})
"""Names in the host's time zone database that Java does not know."""
_SHORT_IDS = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's `ZoneId.SHORT_IDS`."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400
_INT, _LONG = 1 << 31, 1 << 63
# Python's years. Earlier, a zone keeps its first offset. Later, its rules go on; weekdays recur every 400 years.
_ZONES_FROM, _ZONES_TO = (int((datetime(year, 1, 1) - datetime(1970, 1, 1)).total_seconds()) for year in (2, 9998))
DAYS_OF_400_YEARS = 146_097
_CYCLE = DAYS_OF_400_YEARS * _DAY_SECONDS
_EIGHTEEN_HOURS = 18 * 3600
# Java's `String.trim`; and Spark's `trimAll`, which takes every ISO control character off either end.
_SPACES = "".join(map(chr, range(33)))
_BLANKS = _SPACES + "\x7f"


def days(text: str) -> int:
    """Returns days since 1970 of `yyyy`, `yyyy-[m]m` or `yyyy-[m]m-[d]d`; a space or T and any text may follow."""
    return _with_or_without_gmt(_days, text)


def micros(text: str) -> int:
    """Returns microseconds since 1970 of a day as in `days`, with an optional time and zone."""
    return _with_or_without_gmt(_micros, text)


def _with_or_without_gmt(parse: Callable[[str], int], text: str) -> int:
    """Parses again without `GMT`, as `from_json` does, because Spark 1 wrote `GMT` into its times."""
    try:
        return parse(text)
    except ValueError:
        if "GMT" not in text:
            raise
        return parse(text.replace("GMT", ""))


def _days(text: str) -> int:
    match = _DATE.fullmatch(text.strip(_BLANKS))
    day = _day(match, text) if match else None
    if day is None or not -_INT <= day < _INT:
        raise ValueError(f"{quoted(text, repr(text))} is not a date, for instance 2024-02-29")
    return day


def _micros(text: str) -> int:
    refusal = ValueError(f"{quoted(text, repr(text))} is not a timestamp, for instance 2024-02-29T12:00:00.123456Z")
    match = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    day = _day(match, text) if match else None
    if match is None or day is None:
        raise refusal
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise refusal
    seconds = day * _DAY_SECONDS + hour * 3600 + minute * 60 + second
    zone = _zone((match["zone"] or "Z").strip(_SPACES))
    # Spark keeps six digits and drops the rest.
    fraction = int(((match["fraction"] or "") + "000000")[:6])
    moment = (seconds - _offset(zone, seconds)) * 1_000_000 + fraction
    if not -_LONG <= moment < _LONG:
        raise refusal
    return moment


def _day(match: re.Match[str], text: str) -> int | None:
    """Returns days since 1970 in the proleptic calendar, in which 400 years always have 146,097 days."""
    year, month, day = int(match["year"]), int(match["month"] or 1), int(match["day"] or 1)
    year = -year if text.strip(_BLANKS).startswith("-") else year
    cycles, within = divmod(year - 1, 400)
    try:
        return date(within + 1, month, day).toordinal() - _EPOCH_DAY + cycles * DAYS_OF_400_YEARS
    except ValueError:
        return None


def _offset(zone: tzinfo, seconds: int) -> int:
    """Returns the zone's offset from UTC in seconds at a local time; the earlier one if the time occurs twice."""
    if isinstance(zone, timezone):
        return int(zone.utcoffset(None).total_seconds())
    cycles = max(0, -(-(seconds - _ZONES_TO) // _CYCLE))
    local = datetime(1970, 1, 1) + timedelta(seconds=max(seconds, _ZONES_FROM) - cycles * _CYCLE)
    offset = zone.utcoffset(local)
    return int(offset.total_seconds()) if offset is not None else 0


def _zone(name: str) -> tzinfo:
    """Parses a zone: Spark completes `+h:` and `+hh:m`, then Java's `ZoneId.of` parses it."""
    name = _SINGLE_MINUTE.sub(r"\g<1>0\2", _SINGLE_HOUR.sub(r"\g<1>0\2", name, count=1))
    name = _SHORT_IDS.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return timezone.utc
    offset = _OFFSET.fullmatch(name)
    return _region(name) if offset is None else _fixed(offset)


def _region(name: str) -> ZoneInfo:
    try:
        if _REGION.fullmatch(name) and name not in _HOSTS_OWN:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ValueError(f"{quoted(name, repr(name))} is not a time zone")


def _fixed(offset: re.Match[str]) -> timezone:
    hours, minutes, seconds = (int(offset[part] or 0) for part in ("hour", "minute", "second"))
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _EIGHTEEN_HOURS:
        raise ValueError(f"{quoted(offset[0], repr(offset[0]))} is not a time zone")
    return timezone(timedelta(seconds=-total if offset["sign"] == "-" else total))
