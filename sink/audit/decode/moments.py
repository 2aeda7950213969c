"""Reads dates and times for the auditor, part by part. Raises Bad."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import MAX_EMAX, MIN_EMIN, ROUND_05UP, Context, Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from sink.audit.decode.rules import Bad

EPOCH = datetime(1970, 1, 1)
SECONDS = {"days": Fraction(86400), "s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6)}
SECONDS["ns"] = Fraction(1, 10**9)
_FARTHEST = 40
"""A number with its first digit so many places before or behind the point is beyond all years, or almost 0."""
_LEAST = Decimal(f"1e-{_FARTHEST}")
_ENOUGH = Context(prec=5000, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_05UP)
_BLANKS = "".join(chr(code) for code in range(33))
_DIGITS = frozenset("0123456789")
_COMMON = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)Z?")
"""The form that most producers write. What it does not match, or what is none of the calendar, goes the long way."""
_ENDLESS = ("9223372036825200000", "-9223372036832400000")
"""Microseconds that Debezium's connector for Postgres sends for infinity and -infinity."""


class EndlessMoment(Bad):
    """Postgres' infinity, or -infinity."""

    def __init__(self, written: str) -> None:
        super().__init__(f"{written} has no end")
        self.is_negative = written.startswith("-")


def limited(read: Callable[[Any], Any], infinity: str, kind: str) -> Callable[[Any], Any]:
    """Returns a reader that reads what has no end as time.infinity says."""

    def read_limited(found: Any) -> Any:
        try:
            return read(found)
        except EndlessMoment as endless:
            if infinity == "bad":
                raise
            end = datetime.min if endless.is_negative else datetime.max
            return None if infinity == "null" else end.date() if kind == "date" else in_utc(end)

    return read_limited


def moment_of_text(text: str) -> datetime:
    """Returns a time of UTC, without a zone."""
    if (common := _COMMON.fullmatch(text)) is not None:
        with suppress(ValueError):
            return datetime.fromisoformat(common[1])
    _require_an_end(text)
    day, clock, rest = _split(text)
    if clock is None:
        return day
    hour, minute, second, micros = _clock(clock)
    local = day.replace(hour=hour, minute=minute, second=second, microsecond=micros)
    return _moved(local, _offset(rest, local))


def day_of_text(text: str) -> date:
    """Returns a day. Its midnight may follow, in UTC or without a zone."""
    _require_an_end(text)
    bare = text.strip(_BLANKS)
    if bare[-1:] in ("Z", "z"):
        bare = bare[:-1].removesuffix(" ")
    day, clock, rest = _split(bare)
    is_midnight = clock is None or (_clock(clock)[:3] == (0, 0, 0) and not set(clock) - set("0:.,"))
    if rest or not is_midnight or bare != bare.strip(_BLANKS):
        raise Bad(f"{text!r} is more than a date")
    return day.date()


def moment_of_number(digits: str, unit: str) -> datetime:
    """Returns the time that a number of a unit is after 1970; what is below a microsecond is cut."""
    if unit == "us" and digits in _ENDLESS:
        raise EndlessMoment(digits)
    number = number_of(digits)
    if number.adjusted() > _FARTHEST:
        raise Bad(f"{digits} {unit} is beyond all years")
    if number.adjusted() < -_FARTHEST:
        # Nothing but its sign matters.
        number = _LEAST.copy_sign(number)
    micros = Fraction(number) * SECONDS[unit] * 10**6
    try:
        return EPOCH + timedelta(microseconds=micros.numerator // micros.denominator)
    except OverflowError:
        raise Bad(f"{digits} {unit} is outside the years 1 to 9999") from None


def day_of_number(digits: str, unit: str) -> date:
    day = moment_of_number(digits, unit)
    if unit == "days" and number_of(digits) != (day - EPOCH).days:
        raise Bad(f"{digits} is not a whole number of days")
    return day.date()


def number_of(digits: str) -> Decimal:
    """Returns the number that digits are. Of more digits than `_ENOUGH` has, the others only keep it from being equal
    to a number with fewer. Raises Bad for an exponent that nothing counts."""
    try:
        return _ENOUGH.plus(Decimal(digits)) or Decimal(0)
    except ArithmeticError:
        raise Bad("a number beyond what is counted") from None


def _require_an_end(text: str) -> None:
    bare = text.strip(_BLANKS).lower()
    if len(text) <= 100 and bare in ("infinity", "-infinity"):
        raise EndlessMoment(bare)


def _split(text: str) -> tuple[datetime, str | None, str]:
    """Returns the day, the clock as text, and the zone as text."""
    stripped = text.strip(_BLANKS)
    if len(text) > 100:
        raise Bad("too long for a time")
    at = next((number for number, sign in enumerate(stripped) if sign in " tT"), len(stripped))
    parts = stripped[:at].split("-")
    if [len(part) for part in parts[:1]] != [4] or len(parts) != 3 or not all(_are_digits(part, 4) for part in parts):
        raise Bad(f"{text!r} has no day")
    if any(len(part) > 2 for part in parts[1:]):
        raise Bad(f"{text!r} has no day")
    try:
        year, month, number = map(int, parts)
        day = datetime(year, month, number)
    except ValueError:
        raise Bad(f"{text!r} is not a day of the calendar") from None
    if at == len(stripped):
        return day, None, ""
    rest = stripped[at + 1 :]
    end = next((number for number, sign in enumerate(rest) if sign not in _DIGITS and sign not in ":.,"), len(rest))
    return day, rest[:end], rest[end:]


def _are_digits(text: str, most: int) -> bool:
    return 0 < len(text) <= most and set(text) <= _DIGITS


def _clock(clock: str) -> tuple[int, int, int, int]:
    whole, comma, fraction = clock.replace(",", ".").partition(".")
    parts = whole.split(":")
    if len(parts) not in (2, 3) or not all(_are_digits(part, 2) for part in parts):
        raise Bad(f"{clock!r} is not a time of day")
    if comma and (len(parts) != 3 or not fraction or not set(fraction) <= _DIGITS):
        raise Bad(f"{clock!r} is not a time of day")
    hour, minute, second = [*map(int, parts), 0][:3]
    if hour > 23 or minute > 59 or second > 59:
        raise Bad(f"{clock!r} is not a time of day")
    return hour, minute, second, int(fraction[:6].ljust(6, "0")) if fraction else 0


def _offset(rest: str, local: datetime) -> timedelta:
    zone = rest.removeprefix(" ")
    if not rest:
        return timedelta(0)
    region = ""
    if zone.endswith("]"):
        zone, opening, region = zone[:-1].partition("[")
        if not opening or not region:
            raise Bad(f"{rest!r} is not a zone")
    fixed = _fixed(zone)
    if fixed is not None and region and zone:
        if fixed not in _offsets(region, local):
            raise Bad(f"{region} does not have the offset {zone} then")
        return fixed
    if fixed is not None and not region:
        return fixed
    if region and zone:
        raise Bad(f"{rest!r} is not a zone")
    possible = _offsets(region or zone, local) if (region or zone) else {timedelta(0)}
    if len(possible) != 1:
        raise Bad(f"{local} is twice or never in {region or zone}")
    return possible.pop()


def _fixed(zone: str) -> timedelta | None:
    if zone.upper() in ("Z", "UTC", "GMT"):
        return timedelta(0)
    signed = zone[3:] if zone[:3] in ("UTC", "GMT") else zone
    if signed[:1] not in ("+", "-"):
        return None
    digits = signed[1:]
    hours, colon, minutes = digits.partition(":")
    if not colon and len(digits) in (3, 4):
        hours, minutes = digits[:-2], digits[-2:]
    elif colon and len(minutes) != 2:
        return None
    if not _are_digits(hours, 2) or (minutes and not _are_digits(minutes, 2)):
        return None
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if int(minutes or 0) > 59 or offset > timedelta(hours=18):
        raise Bad(f"{zone!r} is not a zone")
    return offset if signed[0] == "+" else -offset


def _offsets(region: str, local: datetime) -> set[timedelta]:
    area, slash, _ = region.partition("/")
    if not slash or not area.replace("_", "").isalpha() or not area.isascii() or not area[0].isupper() or len(area) < 2:
        raise Bad(f"{region!r} is not a zone")
    try:
        zone = ZoneInfo(region)
    except Exception:  # noqa: BLE001 (the standard library raises several, all for the same)
        raise Bad(f"{region!r} is not a zone") from None
    return {local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)}


def _moved(local: datetime, offset: timedelta) -> datetime:
    try:
        return local - offset
    except OverflowError:
        raise Bad(f"{local} is outside the years 1 to 9999 in UTC") from None


def in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc)
