"""Reads dates and times: texts of ISO 8601, and numbers in a unit.

Guarantee: a text gives the day or the microsecond that it names, or ValueError; nothing is guessed and nothing but
digits below a microsecond is cut. A time without a zone is of UTC. The years are 0001 to 9999, which every reader can
show. Zones are those of the host's time zone database. `docs/values.md` has the forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import types as T

from sink.decode.fields import MICROS, Field, Unit
from sink.decode.quoting import quoted

DAYS_OF_400_YEARS = 146_097
_DAY_MICROS = MICROS["days"][0]
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
ENDLESS = (9223372036825200000, -9223372036832400000)
"""Microseconds that Debezium's MicroTimestamp has for Postgres' infinity and -infinity, by its documentation."""
_NO_END = "Set time.infinity, declare the column as {}, or have the source hold a date like 9999-12-31."
FIRST_MICRO = (datetime.min - _EPOCH) // _MICROSECOND
LAST_MICRO = (datetime.max - _EPOCH) // _MICROSECOND
FIRST_DAY, LAST_DAY = FIRST_MICRO // _DAY_MICROS, LAST_MICRO // _DAY_MICROS
_PLAUSIBLE = tuple((datetime(year, 1, 1) - _EPOCH) // _MICROSECOND for year in (1970, 2100))
_DAY = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_TIME = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:[.,](?P<fraction>[0-9]+))?)?"
_MOMENT = re.compile(rf"{_DAY}(?:[ Tt]{_TIME}(?P<zone>[^0-9.,:].*)?)?")
_DATE = re.compile(rf"{_DAY}(?:[ Tt]0?0:00(?::00(?:[.,]0+)?)?)?(?: ?[Zz])?")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_ZONE = re.compile(r" ?(?P<base>[^ \[\]]*)(?:\[(?P<region>[^\[\]]+)\])?")
_REGION = re.compile(r"[A-Z][A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+")
_MOST_OFFSET = timedelta(hours=18)
_LONGEST = 100
"""The most characters of a text that is a time."""
_BLANKS = "".join(map(chr, range(33)))
_MOST_DIGITS = 30
_FLOOR = Context(prec=60, rounding=ROUND_FLOOR)


class Endless(ValueError):
    """Postgres' infinity, which no table can hold."""

    def __init__(self, reason: str, is_negative: bool) -> None:
        super().__init__(reason)
        self.is_negative = is_negative


def limited(of_value: Callable[..., int], field: Field) -> Callable[..., int | None]:
    """Returns `of_value` with the rule of the field for what has no end."""
    first, last = ends(field)
    infinity = field.infinity
    if infinity == "bad":
        return of_value

    def convert(*arguments: str) -> int | None:
        try:
            return of_value(*arguments)
        except Endless as end:
            return None if infinity == "null" else first if end.is_negative else last

    return convert


def ends(field: Field) -> tuple[int, int]:
    """Returns the first and the last number that a TIMESTAMP or DATE may have."""
    return (FIRST_DAY, LAST_DAY) if isinstance(field.kind, T.DateType) else (FIRST_MICRO, LAST_MICRO)


def days(text: str) -> int:
    """Returns days since 1970 of `yyyy-mm-dd`, with or without the midnight of that day."""
    match = _DATE.fullmatch(_stripped(text))
    day = None if match is None else _day(match)
    if day is None:
        moment = _MOMENT.fullmatch(_stripped(text))
        if moment is not None and moment["hour"] and _day(moment) is not None:
            raise ValueError(f"{_shown(text)} has a time of day, which a date cannot hold")
        raise _endless(text) or ValueError(f"{_shown(text)} is not a date, for instance 2024-02-29")
    return (day - _EPOCH).days


def micros(text: str) -> int:
    """Returns microseconds since 1970 of a day, with or without a time and a zone."""
    match = _MOMENT.fullmatch(_stripped(text))
    day = None if match is None else _day(match)
    if match is None or day is None:
        raise _no_time(text)
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise _no_time(text)
    local = day.replace(hour=hour, minute=minute, second=second)
    # Six digits are kept; the others are cut.
    fraction = int(((match["fraction"] or "") + "000000")[:6])
    moment = (local - _EPOCH - _offset(match["zone"], local, text)) // _MICROSECOND + fraction
    if not FIRST_MICRO <= moment <= LAST_MICRO:
        raise _no_time(text)
    return moment


def micros_of_number(number: str, unit: Unit) -> int:
    """Returns microseconds since 1970 of a JSON number in a unit. What is finer than a microsecond is cut."""
    multiply, divide = MICROS[unit]
    exact = _exact(number)
    if exact.adjusted() < _MOST_DIGITS:
        moment = int(_FLOOR.to_integral_value(_FLOOR.divide(_FLOOR.multiply(exact, multiply), divide)))
        if FIRST_MICRO <= moment <= LAST_MICRO:
            return moment
    raise outside(number, unit)


def outside(number: str, unit: Unit) -> ValueError:
    """Returns the reason why a number in a unit is not a moment."""
    reason = f"{_shown(number, 'a number')} {unit} since 1970 are outside the years 0001 to 9999"
    if unit != "us" or number not in map(str, ENDLESS):
        return ValueError(reason)
    way = f"{reason}, as Debezium writes Postgres' infinity. {_NO_END.format('BIGINT')}"
    return Endless(way, number.startswith("-"))


def days_of_number(number: str, unit: Unit) -> int:
    """Returns the day of UTC, since 1970, of a JSON number in a unit. A number of days has to be whole."""
    day = micros_of_number(number, unit) // _DAY_MICROS
    if unit == "days" and _exact(number) != day:
        raise ValueError(f"{_shown(number, 'a number')} is not a whole number of days")
    return day


def _exact(number: str) -> Decimal:
    """Returns the number; a huge one for an exponent that Decimal does not take."""
    try:
        return Decimal(number) or Decimal(0)
    except InvalidOperation:
        return Decimal(f"1e{_MOST_DIGITS}")


def plausible(number: str, units: tuple[Unit, ...]) -> str:
    """Names the units that make a date between 1970 and 2100 of a number; empty if there are none."""
    return ", ".join(_plausible(number, units))


def _plausible(number: str, units: tuple[Unit, ...]) -> Iterator[str]:
    for unit in units:
        try:
            moment = micros_of_number(number, unit)
        except ValueError:
            continue
        if _PLAUSIBLE[0] < moment < _PLAUSIBLE[1]:
            yield f"{unit} ({_EPOCH + timedelta(microseconds=moment):%Y-%m-%d})"


def _stripped(text: str) -> str:
    return text.strip(_BLANKS) if len(text) <= _LONGEST else ""


def _day(match: re.Match[str]) -> datetime | None:
    try:
        return datetime(int(match["year"]), int(match["month"]), int(match["day"]))
    except ValueError:
        return None


def _offset(zone: str | None, local: datetime, text: str) -> timedelta:
    """Returns the offset from UTC: none, `Z`, `+hh`, `+hh:mm`, a region, or an offset with its region in brackets."""
    if zone is None:
        return timedelta(0)
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise _no_zone(zone)
    base, region = match["base"], match["region"]
    if not base:
        return _of_region(region, local, text) if region else timedelta(0)
    offset = _fixed(base)
    if offset is None:
        if region:
            raise _no_zone(zone)
        return _of_region(base, local, text)
    if region and offset not in _offsets(region, local):
        raise ValueError(f"{_shown(text)} has an offset that its zone does not have then")
    return offset


def _fixed(base: str) -> timedelta | None:
    if base.upper() in ("Z", "UTC", "GMT"):
        return timedelta(0)
    match = _OFFSET.fullmatch(base)
    if match is None:
        return None
    offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    if int(match[3] or 0) > 59 or offset > _MOST_OFFSET:
        raise _no_zone(base)
    return -offset if match[1] == "-" else offset


def _of_region(region: str, local: datetime, text: str) -> timedelta:
    offsets = _offsets(region, local)
    if len(offsets) > 1:
        raise ValueError(f"{_shown(text)} happens twice or never in its zone, whose clocks are changed then")
    return offsets.pop()


def _offsets(region: str, local: datetime) -> set[timedelta]:
    try:
        zone = ZoneInfo(region) if _REGION.fullmatch(region) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None:
        raise _no_zone(region)
    offsets = {local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
    return {offset for offset in offsets if offset is not None}


def _endless(text: str) -> ValueError | None:
    """Returns the error for Postgres' values without an end."""
    bare = _stripped(text).lower()
    if bare.removeprefix("-") != "infinity":
        return None
    reason = f"{_shown(text)} is Postgres' infinity, which no table can hold. {_NO_END.format('STRING')}"
    return Endless(reason, bare.startswith("-"))


def _no_time(text: str) -> ValueError:
    return _endless(text) or ValueError(f"{_shown(text)} is not a time, for instance 2024-02-29T12:00:00.123456Z")


def _no_zone(zone: str) -> ValueError:
    return ValueError(f"{_shown(zone)} is not a time zone, for instance Z, +01:00 or Europe/Berlin")


def _shown(text: str, kind: str = "a text") -> str:
    shortened = text if len(text) <= 60 else f"{text[:60]}..."
    return quoted(text, repr(shortened) if kind == "a text" else shortened, kind)
