"""Decodes dates and times of Avro: numbers by their logical type or by time.unit and date.unit, and ISO texts.

Guarantee: that of `sink.decode.avro_columns`. A logical type counts before a setting. What is finer than a microsecond
is cut, a local time is of UTC, and the years are 0001 to 9999. Raises nothing on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sink.decode import time_texts
from sink.decode.avro_steps import each, integers, read_each_text, shortest_texts
from sink.decode.cursors import Cursors, Rows
from sink.decode.fields import MICROS, Field, Unit
from sink.decode.quoting import quoted
from sink.schema import stored_type
from sink.schema.avro_types import kind_of, logical_type

TIME_UNITS: tuple[Unit, ...] = ("s", "ms", "us", "ns")
DATE_UNITS: tuple[Unit, ...] = ("days", *TIME_UNITS)
_NAMES: dict[str, Unit] = {"millis": "ms", "micros": "us", "nanos": "ns"}
_TIMESTAMPS = {f"{zone}timestamp-{name}": unit for zone in ("", "local-") for name, unit in _NAMES.items()}
_BITS = {"int": 32, "long": 64}
_DAY_MICROS = MICROS["days"][0]


def moment_reader(schema: Any, field: Field) -> Callable[[Cursors, Rows], pa.Array] | None:
    """Returns what reads values into a TIMESTAMP; None if nothing says what they are."""
    name, logical = kind_of(schema), logical_type(schema)
    if name == "string" and logical is None:
        return partial(read_each_text, time_texts.micros, field)
    unit = _TIMESTAMPS.get(logical) if logical else field.rule.time_unit
    if name in ("float", "double") and unit is not None:
        return partial(_read_fractions, name, partial(time_texts.micros_of_number, unit=unit), field)
    return None if name not in _BITS or unit is None else partial(_read_moments, unit, _BITS[name], field)


def date_reader(schema: Any, field: Field) -> Callable[[Cursors, Rows], pa.Array] | None:
    """Returns what reads values into a DATE; None if nothing says what they are."""
    name, logical = kind_of(schema), logical_type(schema)
    if name == "string" and logical is None:
        return partial(read_each_text, time_texts.days, field)
    unit: Unit | None = "days" if logical == "date" else None if logical else field.rule.date_unit
    if name in ("float", "double") and unit is not None:
        return partial(_read_fractions, name, partial(time_texts.days_of_number, unit=unit), field)
    return None if name not in _BITS or unit is None else partial(_read_days, unit, _BITS[name], field)


def _read_moments(unit: Unit, bits: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    return pa.array(_micros(unit, bits, field, cursors, rows)).cast(stored_type(field.kind))


def _read_days(unit: Unit, bits: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    if unit == "days":
        days = integers(time_texts.FIRST_DAY, time_texts.LAST_DAY, partial(_outside, unit, field), cursors, rows)
    else:
        days = _micros(unit, bits, field, cursors, rows) // _DAY_MICROS
    return pa.array(days.astype(np.int32)).cast(stored_type(field.kind))


def _read_fractions(name: str, convert: Callable[[str], int], field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads `float` or `double` by its shortest digits, as JSON has them."""

    def finite(digits: str) -> int:
        if not math.isfinite(float(digits)):
            raise ValueError(f"{quoted(digits, digits, 'a number')} is not a moment")
        return convert(digits)

    return pa.array(each(finite, shortest_texts(name, cursors, rows), field, cursors, rows), stored_type(field.kind))


def _micros(unit: Unit, bits: int, field: Field, cursors: Cursors, rows: Rows) -> Rows:
    multiply, divide = MICROS[unit]
    reach = 1 << (bits - 1)
    low = max(-(-time_texts.FIRST_MICRO // multiply) * divide, -reach)
    high = min(time_texts.LAST_MICRO // multiply * divide + divide - 1, reach - 1)
    numbers = integers(low, high, partial(_outside, unit, field), cursors, rows)
    micros: Rows = numbers * multiply if divide == 1 else numbers // divide
    return micros


def _outside(unit: Unit, field: Field, number: int) -> str:
    return f"column {field.path!r}: {time_texts.outside(str(number), unit)}"
