"""Partitions by time: a generated column of text with the hour, day or month of a row.

Guarantee: the same text as Hudi's TimestampBasedKeyGenerator writes for the same millisecond, pattern and zone (a test
compares them), except that null stays null, where Hudi writes 1970. A time is rounded down, also before 1970; a date is
the same day in every zone. Needs no JVM. Voided by hosts with different time zone databases. Raises BadPartition, and
ValueError for an invalid pattern or zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.quoting import quoted
from sink.decode.time_texts import DAYS_OF_400_YEARS, FIRST_MICRO, LAST_MICRO, micros

TIME_TYPES: tuple[type[T.DataType], ...] = (T.TimestampType, T.DateType, T.LongType, T.IntegerType, T.StringType)
PRESETS = {
    "hourly": ("hour", "yyyy-MM-dd-HH"),
    "daily": ("day", "yyyy-MM-dd"),
    "monthly": ("month", "yyyy-MM"),
    "yearly": ("year", "yyyy"),
}
"""The column name and the pattern of each preset. The texts sort like the times and need no escaping."""
PATTERN_COLUMN = "partition_time"
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of a column of whole numbers: how many of them are a second."""

_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>[^A-Za-z'])|(?P<open>')")
_FIELDS = {
    "yyyy": ("year", 4),
    "YYYY": ("year", 4),
    "MM": ("month", 2),
    "dd": ("day", 2),
    "HH": ("hour", 2),
    "mm": ("minute", 2),
}
_SECONDS = {"minute": 60, "hour": 3_600, "day": 86_400, "month": 86_400, "year": 86_400}
_DAY = 86_400
_FIRST_DAY = -98_616
"""1 January 1700: before it every zone has its local mean time."""
_LAST_DAY = 47_482
"""1 January 2100: after it every zone follows a rule, which repeats with the calendar every 400 years."""
_BLOCK_DAYS = 512
_FIRST_SECOND, _LAST_SECOND = FIRST_MICRO // 1_000_000, LAST_MICRO // 1_000_000

Numbers = npt.NDArray[np.int64]


class BadPartition(Exception):
    """Rows whose partition path cannot be a directory, with the reason of each; the text is the first reason."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = reasons
        super().__init__(reasons[min(reasons)])


@dataclass(frozen=True)
class Pattern:
    """A sequence of `(field, digits)` pairs and literal texts."""

    parts: tuple[tuple[str, int] | str, ...]

    @property
    def finest(self) -> str:
        """The smallest unit of time in the pattern."""
        fields = {part[0] for part in self.parts if not isinstance(part, str)}
        return next((unit for unit in _SECONDS if unit in fields), "year")

    def texts(self, units: Numbers) -> pa.Array:
        """Formats local times, counted in `_SECONDS[finest]` since 1970."""
        fields = _fields(units * _SECONDS[self.finest])
        usual = (fields["year"] >= 0) & (fields["year"] <= 9_999)
        if not usual.all():
            rows = zip(*(fields[name].tolist() for name in fields), strict=True)
            return pa.array([self._text(dict(zip(fields, values, strict=True))) for values in rows], pa.string())
        columns: list[npt.NDArray[np.uint8]] = []
        for part in self.parts:
            if isinstance(part, str):
                columns += [np.full(len(units), byte, np.uint8) for byte in part.encode()]
            else:
                name, digits = part
                powers = (10**exponent for exponent in reversed(range(digits)))
                columns += [(fields[name] // power % 10 + ord("0")).astype(np.uint8) for power in powers]
        offsets = np.arange(len(units) + 1, dtype=np.int32) * len(columns)
        data = pa.py_buffer(np.column_stack(columns).tobytes())
        return pa.StringArray.from_buffers(len(units), pa.py_buffer(offsets), data)

    def _text(self, fields: dict[str, int]) -> str:
        return "".join(part if isinstance(part, str) else _number(fields[part[0]], part[1]) for part in self.parts)


def _number(value: int, digits: int) -> str:
    return f"{'-' if value < 0 else ''}{abs(value):0{digits}d}"


@lru_cache
def pattern_of(pattern: str) -> Pattern:
    """Parses a preset's name or a Java date pattern. Raises ValueError with the second half of a sentence."""
    pattern = PRESETS[pattern][1] if pattern in PRESETS else pattern
    parts: list[tuple[str, int] | str] = []
    for token in _TOKEN.finditer(pattern):
        if token["open"]:
            raise ValueError("has a quote that is not closed. Write literal text 'like this'.")
        if token["letters"] is None:
            parts.append("'" if token[0] == "''" else (token["sign"] or token["quoted"].replace("''", "'")))
        elif token["letters"] in _FIELDS:
            parts.append(_FIELDS[token["letters"]])
        else:
            raise ValueError(
                f"has {token['letters']!r}, which is not one of {', '.join(_FIELDS)}. Put literal text in quotes, or"
                f" use {', '.join(PRESETS)}."
            )
    if all(isinstance(part, str) for part in parts):
        raise ValueError(f"has no part of a time. Use some of {', '.join(_FIELDS)}, or {', '.join(PRESETS)}.")
    if any(part in ("", ".", "..") for part in pattern.split("/")):
        raise ValueError("has a part between slashes that cannot be a directory")
    return Pattern(tuple(parts))


_HOST_ZONES = frozenset({"localtime", "posixrules", "Factory"})
"""Names in the time zone database that mean another zone on each host."""


def zone_of(name: str) -> ZoneInfo:
    """Returns the zone. Raises ValueError with the second half of a sentence."""
    try:
        if name in _HOST_ZONES:
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"is not a time zone: {name!r}. Write one like UTC or Europe/Berlin.") from None


@dataclass(frozen=True)
class PartitionTime:
    """The column whose time partitions the table, and the generated column."""

    field: str
    format: str = "daily"
    zone: str = "UTC"
    column: str = ""
    unit: str = ""
    """The unit of whole numbers."""

    @property
    def name(self) -> str:
        """The name of the generated column."""
        return self.column or (PRESETS[self.format][0] if self.format in PRESETS else PATTERN_COLUMN)

    @property
    def pattern(self) -> Pattern:
        return pattern_of(self.format)

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows with the generated column as the last one."""
        texts = self.texts(rows.column(self.field))
        fields = [*rows.schema, pa.field(self.name, texts.type)]
        return pa.RecordBatch.from_arrays([*rows.columns, texts], schema=pa.schema(fields))

    def texts(self, times: pa.Array) -> pa.Array:
        """Formats timestamps, dates, texts of times, or whole numbers in `unit`; null stays null."""
        if pa.types.is_string(times.type) or pa.types.is_dictionary(times.type):
            times = self._parsed(times.cast(pa.string()))
        valid = times.drop_null()
        if not len(valid):
            return pa.nulls(len(times), pa.string())
        finest = self.pattern.finest
        if pa.types.is_date32(valid.type):
            seconds = valid.cast(pa.int32()).to_numpy().astype(np.int64) * _DAY
            self._refuse_other_years(times.cast(pa.int32()), seconds, "days")
        else:
            counts = valid.cast(pa.int64()).to_numpy()
            scale = UNITS[valid.type.unit if pa.types.is_timestamp(valid.type) else self.unit]
            seconds = counts if scale == 1 else counts // scale
            self._refuse_other_years(times.cast(pa.int64()), seconds, self.unit or "us")
            if self.zone != "UTC":
                seconds = seconds + _zone(self.zone).offsets(seconds)
        # Usually few are distinct: only those are formatted.
        encoded = pc.dictionary_encode(pa.array(seconds // _SECONDS[finest]))
        texts = self.pattern.texts(encoded.dictionary.to_numpy()).take(encoded.indices)
        if len(valid) == len(times):
            return texts
        positions = np.full(len(times), -1, np.int64)
        positions[times.is_valid().to_numpy(zero_copy_only=False)] = np.arange(len(valid))
        return texts.take(pa.array(positions, mask=positions < 0))

    def _parsed(self, texts: pa.StringArray) -> pa.Array:
        """Reads texts as a TIMESTAMP column would. Raises BadPartition."""
        encoded = pc.dictionary_encode(texts)
        moments: list[int | None] = []
        reasons: dict[int, str] = {}
        for position, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                moments.append(micros(text))
            except ValueError as error:
                moments.append(None)
                reasons[position] = f"{self.field}: {error}"
        if reasons:
            positions = encoded.indices.to_pylist()
            raise BadPartition({row: reasons[code] for row, code in enumerate(positions) if code in reasons})
        return pa.array(moments, pa.timestamp("us", "UTC")).take(encoded.indices)

    def _refuse_other_years(self, counts: pa.Array, seconds: Numbers, unit: str) -> None:
        """Raises BadPartition for times whose year a directory would show otherwise. `seconds` are those of the counts
        that are not null."""
        is_outside = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)
        if is_outside.any():
            rows = np.flatnonzero(counts.is_valid().to_numpy(zero_copy_only=False))[is_outside].tolist()
            raise BadPartition(
                {
                    row: f"{self.field}, {quoted(counts[row], str(counts[row]), 'a number')} {unit} since 1970, is"
                    " outside the years 0001 to 9999"
                    for row in rows
                }
            )


def _fields(seconds: Numbers) -> dict[str, Numbers]:
    """Splits local times by the proleptic Gregorian calendar. Its years begin in March, so that a leap day is last."""
    days, within = np.divmod(seconds, _DAY)
    cycle, day = np.divmod(days + 719_468, DAYS_OF_400_YEARS)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    return {
        "year": year + 400 * cycle + (month >= 10),
        "month": (month + 2) % 12 + 1,
        "day": day - (153 * month + 2) // 5 + 1,
        "hour": within // 3_600,
        "minute": within // 60 % 60,
    }


class _Zone:
    """The offsets of a zone from UTC in seconds, computed for the years in use, and cached."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._starts = self._offsets = np.empty(0, np.int64)
        self._known_blocks = range(0)

    def offsets(self, seconds: Numbers) -> Numbers:
        """Returns the offset at each second, or one for all."""
        first, last = int(seconds.min()), int(seconds.max())
        if first < _FIRST_DAY * _DAY or last >= _LAST_DAY * _DAY:
            past = np.maximum(seconds - _LAST_DAY * _DAY, 0) % (DAYS_OF_400_YEARS * _DAY)
            seconds = np.clip(seconds, _FIRST_DAY * _DAY, _LAST_DAY * _DAY) + past
            first, last = int(seconds.min()), int(seconds.max())
        self._learn(first // (_BLOCK_DAYS * _DAY), last // (_BLOCK_DAYS * _DAY))
        low, high = np.searchsorted(self._starts, (first, last), "right")
        if low == high:
            return self._offsets[low - 1 : low]
        offsets: Numbers = self._offsets[np.searchsorted(self._starts, seconds, "right") - 1]
        return offsets

    def _learn(self, first: int, last: int) -> None:
        if self._known_blocks and self._known_blocks[0] <= first and last <= self._known_blocks[-1]:
            return
        if self._known_blocks:
            first, last = min(first, self._known_blocks[0]), max(last, self._known_blocks[-1])
        changes = list(self._changes(first * _BLOCK_DAYS, (last + 1) * _BLOCK_DAYS))
        self._starts, self._offsets = (np.array(column, np.int64) for column in zip(*changes, strict=True))
        self._known_blocks = range(first, last + 1)

    def _changes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields `(second, offset from then on)`, the first at the beginning. No zone changes twice in a day."""
        offset = self._offset(first * _DAY)
        yield first * _DAY, offset
        for day in range(first, last):
            next_offset = self._offset((day + 1) * _DAY)
            if next_offset != offset:
                low, high = day * _DAY, (day + 1) * _DAY
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
                yield high, next_offset
                offset = next_offset

    def _offset(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, timezone.utc).astimezone(self._zone).utcoffset()
        assert offset is not None
        return round(offset.total_seconds())


@lru_cache
def _zone(name: str) -> _Zone:
    return _Zone(zone_of(name))
