"""Converts Protobuf's numbers and texts to times, days and decimals, by the rules of their field.

Guarantee: as in JSON a number is a time or a day only by time.unit and date.unit, and a text is a decimal only by
decimal.format. A value that does not fit its column fails its message. Raises SchemaMismatch where a rule is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql import types as T

from sink.decode import time_texts
from sink.decode.cursors import Cursors
from sink.decode.fields import MICROS, Field, Unit
from sink.decode.json.decimals import decimal_converter
from sink.decode.json.reasons import Undecodable
from sink.decode.protobuf.descriptors import type_text
from sink.decode.protobuf.fields import Bits, Occurrences
from sink.decode.protobuf.values import NUMBERS, Convert, Numbers, convert_texts
from sink.decode.quoting import quoted
from sink.decode.records import SchemaMismatch
from sink.schema.table_schema import stored_type

_Type = FieldDescriptor
_INTEGERS = {*NUMBERS} - {_Type.TYPE_FLOAT, _Type.TYPE_DOUBLE, _Type.TYPE_BOOL}
_DAY = MICROS["days"][0]
_FIRST = time_texts.FIRST_MICRO + 1
_MOST = (1 << 63) - 1


class Meaning:
    """Converts one value (an int, a float or a text) as its field means it, and many at once."""

    def __init__(self, of_one: Callable[[Any], Any], kind: T.DataType, convert: Convert) -> None:
        self._of_one, self._kind = of_one, kind
        self.convert = convert

    def scalar(self, value: Any) -> pa.Scalar:
        """Returns a value of the column. Raises ValueError with the reason if it does not fit."""
        return pa.scalar(self._of_one(value), stored_type(self._kind))


def meaning(declared: FieldDescriptor, field: Field, path: str) -> Meaning | None:
    """Returns the meaning of a field's values in a column; None if they have none there but their own."""
    kind = field.kind
    if isinstance(kind, T.TimestampType):
        return _moment(declared, field, path, field.rule.time_unit, "time.unit to one of s, ms, us, ns")
    if isinstance(kind, T.DateType):
        return _moment(declared, field, path, field.rule.date_unit, "date.unit to one of days, s, ms, us, ns")
    if isinstance(kind, T.DecimalType) and declared.type == _Type.TYPE_STRING:
        if field.rule.decimal_format is None:
            raise _missing(declared, field, path, "decimal.format to numeric or base64")
        of_text = partial(_decimal, decimal_converter(kind, field))
        return Meaning(of_text, kind, partial(_convert_texts, of_text, kind))
    return None


def _moment(declared: FieldDescriptor, field: Field, path: str, unit: Unit | None, setting: str) -> Meaning | None:
    is_date = isinstance(field.kind, T.DateType)
    if declared.type == _Type.TYPE_STRING:
        of_text = time_texts.limited(time_texts.days if is_date else time_texts.micros, field)
        return Meaning(of_text, field.kind, partial(_convert_texts, of_text, field.kind))
    if declared.type not in _INTEGERS and declared.type != _Type.TYPE_DOUBLE:
        return None
    if unit is None:
        raise _missing(declared, field, path, setting)
    of_digits = time_texts.limited(time_texts.days_of_number if is_date else time_texts.micros_of_number, field)

    def of_number(number: float) -> int | None:
        if not math.isfinite(number):
            raise ValueError(f"{quoted(number, str(number), 'a number')} is not a time")
        # A double is the decimal number that was written as it: its shortest digits.
        return of_digits(repr(number), unit)

    of_bits, _ = NUMBERS[declared.type]
    convert = _convert_integers if declared.type in _INTEGERS else _convert_doubles
    return Meaning(of_number, field.kind, partial(convert, of_bits, of_number, unit, field.kind))


def _missing(declared: FieldDescriptor, field: Field, path: str, setting: str) -> SchemaMismatch:
    return SchemaMismatch(path, type_text(declared), f"{field.kind.simpleString()}. Set {setting}")


def _decimal(convert: Callable[[Any], Decimal], text: str) -> Decimal:
    try:
        return convert(text)
    except Undecodable as error:
        raise ValueError(str(error)) from None


def _convert_integers(
    of_bits: Callable[[Bits], Numbers],
    of_number: Callable[[Any], int | None],
    unit: Unit,
    kind: T.DataType,
    cursors: Cursors,
    occurrences: Occurrences,
) -> pa.Array:
    numbers = of_bits(occurrences.bits)
    multiply, divide = MICROS[unit]
    # Numbers of these years in the unit, as far as they fit 63 bits; the others are converted one by one.
    first, last = (max(-_MOST, min(end * divide // multiply, _MOST)) for end in (_FIRST, time_texts.LAST_MICRO))
    plain = (numbers >= first) & (numbers <= last) if numbers.dtype != np.uint64 else numbers <= np.uint64(last)
    moments = np.where(plain, numbers, 0).astype(np.int64) * multiply // divide
    converted = moments // _DAY if isinstance(kind, T.DateType) else moments
    nulls = None
    if not plain.all():
        others = _each(of_number, cursors, occurrences.only(~plain), numbers[~plain].tolist())
        converted[~plain] = [0 if value is None else value for value in others]
        nulls = np.zeros(len(plain), np.bool_)
        nulls[~plain] = [value is None for value in others]
    whole = pa.array(converted, pa.int32() if isinstance(kind, T.DateType) else pa.int64(), mask=nulls)
    return whole.cast(stored_type(kind))


def _convert_doubles(
    of_bits: Callable[[Bits], Numbers],
    of_number: Callable[[Any], int | None],
    unit: Unit,  # noqa: ARG001 - `of_number` knows it
    kind: T.DataType,
    cursors: Cursors,
    occurrences: Occurrences,
) -> pa.Array:
    return pa.array(_each(of_number, cursors, occurrences, of_bits(occurrences.bits).tolist()), stored_type(kind))


def _convert_texts(
    of_text: Callable[[str], Any], kind: T.DataType, cursors: Cursors, occurrences: Occurrences
) -> pa.Array:
    texts = convert_texts(cursors, occurrences).to_pylist()
    return pa.array(_each(of_text, cursors, occurrences, texts), stored_type(kind))


def _each(of_one: Callable[[Any], Any], cursors: Cursors, occurrences: Occurrences, values: list[Any]) -> list[Any]:
    """Converts one value after the other; None for one that fails its message."""
    converted: list[Any] = []
    for row, value in zip(occurrences.rows.tolist(), values, strict=True):
        try:
            converted.append(of_one(value))
        except ValueError as error:
            cursors.fail(np.array([row]), str(error))
            converted.append(None)
    return converted
