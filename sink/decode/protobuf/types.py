"""Composes the columns of a nested message into one column: structs, and well-known types (timestamp, date, decimal).

A value that does not fit its column fails its message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.cursors import Cursors, Rows
from sink.decode.decimals import exact_decimals
from sink.decode.protobuf.fields import Occurrences
from sink.schema.table_schema import stored_type

Composer = Callable[["NestedMessages", list[pa.Array]], pa.Array]

_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?", re.ASCII)
_DECIMAL_MOST = 200
"""The longest decimal in bytes or characters; a column has 38 digits at most."""
_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799
"""The years 1 to 9999: the range of google.protobuf.Timestamp."""
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


@dataclass(frozen=True, slots=True)
class NestedMessages:
    """Nested messages. `owners` has for each row of `cursors` the number of its value, of `count` values, in rising
    order; the rows of one value are the pieces of one message."""

    cursors: Cursors
    owners: Rows
    count: int

    def fail(self, invalid: npt.NDArray[np.bool_], reason: str) -> None:
        if invalid.any():
            self.cursors.fail(self.row_of(np.flatnonzero(invalid)), reason)

    def row_of(self, values: Rows) -> Rows:
        rows: Rows = np.searchsorted(self.owners, values)
        return rows

    def has(self, occurrences: Occurrences) -> npt.NDArray[np.bool_]:
        is_set = np.zeros(self.count, np.bool_)
        is_set[self.owners[occurrences.rows]] = True
        return is_set


def as_struct(kind: T.StructType, messages: NestedMessages, columns: list[pa.Array]) -> pa.Array:
    # The mask tells Arrow how many values a struct without fields has.
    mask = None if columns else pa.array(np.zeros(messages.count, np.bool_))
    return pa.StructArray.from_arrays(columns, fields=list(stored_type(kind)), mask=mask)


def _numbers(columns: list[pa.Array]) -> list[Rows]:
    """Returns the columns as numbers, with 0 for null: a message with a null has failed already."""
    return [pc.fill_null(column, 0).cast(pa.int64()).to_numpy(zero_copy_only=False) for column in columns]


def as_moment(messages: NestedMessages, columns: list[pa.Array]) -> pa.Array:
    seconds, nanos = _numbers(columns)
    invalid = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND) | (nanos < 0) | (nanos > 999_999_999)
    messages.fail(invalid, "a google.protobuf.Timestamp outside the years 1 to 9999, or with invalid nanoseconds")
    return pa.array(np.where(invalid, 0, seconds) * 1_000_000 + nanos // 1000).cast(pa.timestamp("us", "UTC"))


def as_date(messages: NestedMessages, columns: list[pa.Array]) -> pa.Array:
    year, month, day = _numbers(columns)
    invalid = (year < 1) | (year > 9999) | (month < 1) | (month > 12) | (day < 1) | (day > 31)
    months = (np.where(invalid, 0, year * 12 + month) - 1970 * 12 - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(invalid, 0, day - 1)
    invalid |= days.astype("datetime64[M]") != months
    messages.fail(invalid, "a google.type.Date that is not a day of the calendar")
    return pa.array(np.where(invalid, 0, days.astype(np.int32)).astype(np.int32)).cast(pa.date32())


def as_decimal(
    kind: T.DecimalType, decimal_of: Callable[..., Decimal | None], messages: NestedMessages, columns: list[pa.Array]
) -> pa.Array:
    """Returns the decimals, each from its own scale. A number that the column cannot hold exactly fails."""
    if decimal_of is decimal_of_bytes and (column := _of_one_scale(stored_type(kind), *columns)) is not None:
        return column
    unit = Decimal(1).scaleb(-kind.scale)
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    values: list[Decimal | None] = []
    for parts in zip(*(column.to_pylist() for column in columns), strict=True):
        number = None if None in parts else decimal_of(*parts)
        try:
            values.append(None if number is None else number.quantize(unit, context=context))
        except (Inexact, InvalidOperation):
            values.append(None)
    invalid = np.array([value is None for value in values], np.bool_)
    messages.fail(invalid, f"a number that {kind.simpleString()} cannot hold exactly")
    return pa.array([Decimal(0) if value is None else value for value in values], stored_type(kind))


def _of_one_scale(kind: pa.Decimal128Type, values: pa.BinaryArray, scales: pa.Array) -> pa.Array | None:
    """Returns the decimals at once if all have the scale of the column, else None."""
    if not len(values) or values.null_count or scales.null_count or not pc.all(pc.equal(scales, kind.scale)).as_py():
        return None
    bytes_of_all = Cursors(values)
    return exact_decimals(bytes_of_all.data, bytes_of_all.at, bytes_of_all.end - bytes_of_all.at, kind)


def decimal_of_text(text: str) -> Decimal | None:
    """Parses a google.type.Decimal, in which the empty text is 0; None if it is invalid."""
    if not text:
        return Decimal(0)
    return Decimal(text) if len(text) <= _DECIMAL_MOST and _DECIMAL_TEXT.fullmatch(text) else None


def decimal_of_bytes(value: bytes, scale: int) -> Decimal | None:
    """Parses big-endian two's complement; None if it is too long."""
    if len(value) > _DECIMAL_MOST:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
