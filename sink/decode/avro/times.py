"""Decodes dates and times of Avro: numbers by their logical type or by time.unit and date.unit, and ISO texts.

Guarantee: that of `sink.decode.avro.columns`. A logical type counts before a setting. What is finer than a microsecond
is cut, a local time is of UTC, and the years are 0001 to 9999. Raises nothing on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sink.decode import time_texts
from sink.decode.avro.steps import each, read_each_text, shortest_texts, within
from sink.decode.cursors import Cursors, Reason, Rows
from sink.decode.fields import MICROS, Field, Unit
from sink.decode.quoting import quoted
from sink.schema.avro_types import kind_of, logical_type
from sink.schema.table_schema import stored_type

TIME_UNITS: tuple[Unit, ...] = ("s", "ms", "us", "ns")
DATE_UNITS: tuple[Unit, ...] = ("days", *TIME_UNITS)
_NAMES: dict[str, Unit] = {"millis": "ms", "micros": "us", "nanos": "ns"}
_TIMESTAMPS = {f"{zone}timestamp-{name}": unit for zone in ("", "local-") for name, unit in _NAMES.items()}
_BITS = {"int": 32, "long": 64}
_DAY_MICROS = MICROS["days"][0]
Nulls = npt.NDArray[np.bool_] | None
"""Which values are null; None: none is."""


def moment_reader(schema: Any, field: Field) -> Callable[[Cursors, Rows], pa.Array] | None:
    """Returns what reads values into a TIMESTAMP; None if nothing says what they are."""
    name, logical = kind_of(schema), logical_type(schema)
    if name == "string" and logical is None:
        return partial(read_each_text, time_texts.limited(time_texts.micros, field), field)
    unit = _TIMESTAMPS.get(logical) if logical else field.rule.time_unit
    if name in ("float", "double") and unit is not None:
        return partial(_read_fractions, name, partial(time_texts.micros_of_number, unit=unit), field)
    return None if name not in _BITS or unit is None else partial(_read_moments, unit, _BITS[name], field)


def date_reader(schema: Any, field: Field) -> Callable[[Cursors, Rows], pa.Array] | None:
    """Returns what reads values into a DATE; None if nothing says what they are."""
    name, logical = kind_of(schema), logical_type(schema)
    if name == "string" and logical is None:
        return partial(read_each_text, time_texts.limited(time_texts.days, field), field)
    unit: Unit | None = "days" if logical == "date" else None if logical else field.rule.date_unit
    if name in ("float", "double") and unit is not None:
        return partial(_read_fractions, name, partial(time_texts.days_of_number, unit=unit), field)
    return None if name not in _BITS or unit is None else partial(_read_days, unit, _BITS[name], field)


def _read_moments(unit: Unit, bits: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    micros, nulls = _micros(unit, bits, field, cursors, rows)
    return pa.array(micros, mask=nulls).cast(stored_type(field.kind))


def _read_days(unit: Unit, bits: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    if unit == "days":
        numbers, nulls = cursors.zigzags(rows), None
        days = within(numbers, *time_texts.ends(field), partial(_outside, unit, field), cursors, rows)
    else:
        micros, nulls = _micros(unit, bits, field, cursors, rows)
        days = micros // _DAY_MICROS
    return pa.array(days.astype(np.int32), mask=nulls).cast(stored_type(field.kind))


def _read_fractions(name: str, convert: Callable[[str], int], field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads `float` or `double` by its shortest digits, as JSON has them."""

    def finite(digits: str) -> int:
        if not math.isfinite(float(digits)):
            raise ValueError(f"{quoted(digits, digits, 'a number')} is not a moment")
        return convert(digits)

    return pa.array(each(finite, shortest_texts(name, cursors, rows), field, cursors, rows), stored_type(field.kind))


def _micros(unit: Unit, bits: int, field: Field, cursors: Cursors, rows: Rows) -> tuple[Rows, Nulls]:
    """Returns microseconds since 1970, and which of them are null."""
    multiply, divide = MICROS[unit]
    reach = 1 << (bits - 1)
    low = max(-(-time_texts.FIRST_MICRO // multiply) * divide, -reach)
    high = min(time_texts.LAST_MICRO // multiply * divide + divide - 1, reach - 1)
    numbers = cursors.zigzags(rows)
    nulls = _limit(numbers, field) if unit == "us" else None
    within(numbers, low, high, partial(_outside, unit, field), cursors, rows)
    micros: Rows = numbers * multiply if divide == 1 else numbers // divide
    return micros, nulls


def _limit(numbers: Rows, field: Field) -> Nulls:
    """Replaces microseconds without an end by the last or first ones. Returns where they are null by the rule."""
    infinity = field.infinity
    if infinity == "bad":
        return None
    after, before = (numbers == end for end in time_texts.ENDLESS)
    numbers[after], numbers[before] = time_texts.LAST_MICRO, time_texts.FIRST_MICRO
    return after | before if infinity == "null" else None


def _outside(unit: Unit, field: Field, number: int) -> Reason:
    return Reason(str(time_texts.outside(str(number), unit)), field.path)
