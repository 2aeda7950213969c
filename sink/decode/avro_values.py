"""Decodes Avro values without inner types to columns: numbers, strings, bytes, enums, decimals.

Guarantee: that of `sink.decode.avro_columns`. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from sink.decode.cursors import Cursors, Rows
from sink.decode.decimals import DECIMAL_BYTES, exact_decimals
from sink.schema import stored_type
from sink.schema.avro import logical_type

_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

Read = Callable[[Cursors, Rows], pa.Array]
"""Reads the next value of each row. Returns a column with one value for each row."""


def read_nulls(kind: pa.DataType, cursors: Cursors, rows: Rows) -> pa.Array:  # noqa: ARG001 - takes no bytes
    return pa.nulls(len(rows), kind)


def _read_booleans(cursors: Cursors, rows: Rows) -> pa.Array:
    numbers = cursors.fixed(rows, 1)[:, 0]
    cursors.fail_where(rows, numbers > 1, "a boolean that is neither 0 nor 1")
    return pa.array(numbers == 1)


def _read_integers(low: int, high: int, kind: pa.DataType, scale: int, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads `int` and `long`, for a wider number, a date or a timestamp column."""
    numbers = cursors.zigzags(rows)
    invalid = (numbers < low) | (numbers > high)
    cursors.fail_where(rows, invalid, f"a number outside {low}..{high}")
    numbers[invalid] = 0
    if pa.types.is_date(kind):
        return pa.array(numbers.astype(np.int32)).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(numbers * scale).cast(kind)
    return pa.array(numbers.astype(kind.to_pandas_dtype()))


def _read_floats(width: str, kind: pa.DataType, cursors: Cursors, rows: Rows) -> pa.Array:
    return pa.array(cursors.numbers(rows, width).astype(kind.to_pandas_dtype()))


def _read_texts(cursors: Cursors, rows: Rows) -> pa.Array:
    return cursors.utf8(rows, *span(cursors, rows))


def _read_binaries(size: int | None, cursors: Cursors, rows: Rows) -> pa.Array:
    return cursors.binary(*span(cursors, rows, size))


def _read_enums(symbols: pa.StringArray, cursors: Cursors, rows: Rows) -> pa.Array:
    numbers = cursors.zigzags(rows)
    invalid = (numbers < 0) | (numbers >= len(symbols))
    cursors.fail_where(rows, invalid, f"an enum of {len(symbols)} symbols has none with the number in the record")
    numbers[invalid] = 0
    return symbols.take(pa.array(numbers))


def _read_decimals(size: int | None, scale: int, kind: T.DecimalType, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads big-endian two's complement with the writer's scale. A value that does not fit the column fails its row."""
    starts, lengths = span(cursors, rows, size)
    column_type, factor = stored_type(kind), 10 ** (kind.scale - scale)
    column = exact_decimals(cursors.data, starts, lengths, column_type) if factor == 1 else None
    if column is not None:
        return column
    bound = 10**kind.precision
    numbers = [
        int.from_bytes(value, "big", signed=True) * factor for value in cursors.binary(starts, lengths).to_pylist()
    ]
    invalid = np.array([abs(number) >= bound for number in numbers], np.bool_)
    cursors.fail_where(rows, invalid, f"a number of more digits than {kind.simpleString()} holds")
    raw = b"".join(
        (0 if is_invalid else number).to_bytes(DECIMAL_BYTES, "little", signed=True)
        for number, is_invalid in zip(numbers, invalid.tolist(), strict=True)
    )
    return pa.Array.from_buffers(column_type, len(rows), [None, pa.py_buffer(raw)])


def simple_reader(schema: Any, kind: T.DataType) -> Read | None:
    """Returns what reads a type without inner types; None if the column cannot hold its values."""
    name, logical = kind_of(schema), logical_type(schema)
    size = schema["size"] if name == "fixed" else None
    if logical == "decimal" and isinstance(kind, T.DecimalType):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return None
        widens = kind.scale >= scale and kind.precision - kind.scale >= precision - scale
        return partial(_read_decimals, size, scale, kind) if widens else None
    if name == "boolean" and isinstance(kind, T.BooleanType):
        return _read_booleans
    if name in ("int", "long"):
        return _integer_reader(name, logical, kind)
    if name in ("float", "double") and isinstance(kind, (T.FloatType, T.DoubleType)):
        narrows = name == "double" and isinstance(kind, T.FloatType)
        return None if narrows else partial(_read_floats, "<f4" if name == "float" else "<f8", stored_type(kind))
    if name in ("string", "bytes") and isinstance(kind, T.StringType) and logical != "decimal":
        return _read_texts
    if name in ("string", "bytes", "fixed") and isinstance(kind, T.BinaryType):
        return partial(_read_binaries, size)
    if name == "enum" and isinstance(kind, T.StringType):
        return partial(_read_enums, pa.array(schema["symbols"], pa.string()))
    return None


def _integer_reader(name: str, logical: str | None, kind: T.DataType) -> Read | None:
    low, high = (_INT_MIN, _INT_MAX) if name == "int" else (-LONG_MAX - 1, LONG_MAX)
    if isinstance(kind, T.DateType):
        return partial(_read_integers, low, high, stored_type(kind), 1) if logical == "date" else None
    if isinstance(kind, T.TimestampType):
        scale = {"timestamp-micros": 1, "timestamp-millis": 1000}.get(logical or "")
        limit = LONG_MAX // (scale or 1)
        return None if scale is None else partial(_read_integers, -limit, limit, stored_type(kind), scale)
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return partial(_read_integers, low, high, stored_type(kind), 1)
    bits = _BITS.get(type(kind))
    if bits is None or (name == "long" and bits < 64):
        return None
    # Avro has no 8 and 16 bit integers: such columns take Avro's int, and refuse values out of range.
    reach = 1 << (bits - 1)
    return partial(_read_integers, max(low, -reach), min(high, reach - 1), stored_type(kind), 1)


def kind_of(schema: Any) -> str:
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else str(schema["type"])


def type_label(schema: Any) -> str:
    logical = logical_type(schema)
    return f"{kind_of(schema)} ({logical})" if logical else kind_of(schema)


def span(cursors: Cursors, rows: Rows, size: int | None = None) -> tuple[Rows, Rows]:
    """Reads a length and skips that many bytes, or skips `size` bytes. Returns where they start, and their lengths."""
    lengths = cursors.zigzags(rows) if size is None else np.full(len(rows), size, np.int64)
    return cursors.spans(rows, lengths)
