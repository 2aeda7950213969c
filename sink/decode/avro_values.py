"""Decodes Avro values without inner types to columns: numbers, strings, bytes, enums, decimals.

Guarantee: that of `sink.decode.avro_columns`. Raises nothing on purpose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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


class Node(ABC):
    """A type in a writer's schema, with the column that its values go to."""

    @abstractmethod
    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        """Reads the next value of each row. Returns a column with one value for each row."""

    def skip(self, cursors: Cursors, rows: Rows) -> None:
        """Skips the next value of each row."""
        self.read(cursors, rows)


class Null(Node):
    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:  # noqa: ARG002 - takes no bytes
        return pa.nulls(len(rows), self._kind)


class _Boolean(Node):
    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        numbers = cursors.fixed(rows, 1)[:, 0]
        invalid = numbers > 1
        if invalid.any():
            cursors.fail(rows[invalid], "a boolean that is neither 0 nor 1")
        return pa.array(numbers == 1)


class _Integer(Node):
    """`int` and `long`, for a wider number, a date or a timestamp column."""

    def __init__(self, low: int, high: int, kind: pa.DataType, scale: int = 1) -> None:
        self._low, self._high, self._kind, self._scale = low, high, kind, scale

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        numbers = cursors.zigzags(rows)
        invalid = (numbers < self._low) | (numbers > self._high)
        if invalid.any():
            cursors.fail(rows[invalid], f"a number outside {self._low}..{self._high}")
            numbers = np.where(invalid, 0, numbers)
        if pa.types.is_date(self._kind):
            return pa.array(numbers.astype(np.int32)).cast(self._kind)
        if pa.types.is_timestamp(self._kind):
            return pa.array(numbers * self._scale).cast(self._kind)
        return pa.array(numbers.astype(self._kind.to_pandas_dtype()))


class _Float(Node):
    def __init__(self, width: str, kind: pa.DataType) -> None:
        self._width, self._kind = width, kind

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return pa.array(cursors.numbers(rows, self._width).astype(self._kind.to_pandas_dtype()))


class _Text(Node):
    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return cursors.utf8(rows, *span(cursors, rows))


class _Binary(Node):
    def __init__(self, size: int | None) -> None:
        self._size = size

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return cursors.binary(*span(cursors, rows, self._size))


class _Enum(Node):
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        numbers = cursors.zigzags(rows)
        invalid = (numbers < 0) | (numbers >= len(self._symbols))
        if invalid.any():
            cursors.fail(
                rows[invalid], f"an enum of {len(self._symbols)} symbols has none with the number in the record"
            )
            numbers = np.where(invalid, 0, numbers)
        return self._symbols.take(pa.array(numbers))


class _Decimal(Node):
    """A decimal: big-endian two's complement, with the writer's scale."""

    def __init__(self, size: int | None, scale: int, kind: T.DecimalType) -> None:
        self._size, self._kind = size, stored_type(kind)
        self._factor = 10 ** (kind.scale - scale)
        self._largest = 10**kind.precision - 1
        self._name = kind.simpleString()

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        starts, lengths = span(cursors, rows, self._size)
        column = exact_decimals(cursors.data, starts, lengths, self._kind) if self._factor == 1 else None
        return self._one_by_one(cursors, rows, starts, lengths) if column is None else column

    def _one_by_one(self, cursors: Cursors, rows: Rows, starts: Rows, lengths: Rows) -> pa.Array:
        """Converts each value by itself, and fails the rows whose value does not fit the column."""
        numbers = [
            int.from_bytes(value, "big", signed=True) * self._factor
            for value in cursors.binary(starts, lengths).to_pylist()
        ]
        invalid = np.array([abs(number) > self._largest for number in numbers], np.bool_)
        if invalid.any():
            cursors.fail(rows[invalid], f"a number of more digits than {self._name} holds")
        raw = b"".join(
            (0 if is_invalid else number).to_bytes(DECIMAL_BYTES, "little", signed=True)
            for number, is_invalid in zip(numbers, invalid.tolist(), strict=True)
        )
        return pa.Array.from_buffers(self._kind, len(rows), [None, pa.py_buffer(raw)])


def simple_node(schema: Any, kind: T.DataType) -> Node | None:
    """Returns the node for a type without inner types; None if the column cannot hold its values."""
    name, logical = kind_of(schema), logical_type(schema)
    size = schema["size"] if name == "fixed" else None
    if logical == "decimal" and isinstance(kind, T.DecimalType):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return None
        widens = kind.scale >= scale and kind.precision - kind.scale >= precision - scale
        return _Decimal(size, scale, kind) if widens else None
    if name == "boolean" and isinstance(kind, T.BooleanType):
        return _Boolean()
    if name in ("int", "long"):
        return _integer(name, logical, kind)
    if name in ("float", "double") and isinstance(kind, (T.FloatType, T.DoubleType)):
        narrows = name == "double" and isinstance(kind, T.FloatType)
        return None if narrows else _Float("<f4" if name == "float" else "<f8", stored_type(kind))
    if name in ("string", "bytes") and isinstance(kind, T.StringType) and logical != "decimal":
        return _Text()
    if name in ("string", "bytes", "fixed") and isinstance(kind, T.BinaryType):
        return _Binary(size)
    if name == "enum" and isinstance(kind, T.StringType):
        return _Enum(schema["symbols"])
    return None


def _integer(name: str, logical: str | None, kind: T.DataType) -> Node | None:
    low, high = (_INT_MIN, _INT_MAX) if name == "int" else (-LONG_MAX - 1, LONG_MAX)
    if isinstance(kind, T.DateType):
        return _Integer(low, high, stored_type(kind)) if logical == "date" else None
    if isinstance(kind, T.TimestampType):
        scale = {"timestamp-micros": 1, "timestamp-millis": 1000}.get(logical or "")
        limit = LONG_MAX // (scale or 1)
        return None if scale is None else _Integer(-limit, limit, stored_type(kind), scale)
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return _Integer(low, high, stored_type(kind))
    bits = _BITS.get(type(kind))
    if bits is None or (name == "long" and bits < 64):
        return None
    # Avro has no 8 and 16 bit integers: such columns take Avro's int, and refuse values out of range.
    reach = 1 << (bits - 1)
    column_type = pa.int64() if bits == 64 else pa.int32()
    return _Integer(max(low, -reach), min(high, reach - 1), column_type)


def kind_of(schema: Any) -> str:
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else str(schema["type"])


def type_label(schema: Any) -> str:
    logical = logical_type(schema)
    return f"{kind_of(schema)} ({logical})" if logical else kind_of(schema)


def span(cursors: Cursors, rows: Rows, size: int | None = None) -> tuple[Rows, Rows]:
    """Reads a length and skips that many bytes, or skips `size` bytes. Returns where they start, and their lengths."""
    lengths = cursors.zigzags(rows) if size is None else np.full(len(rows), size, np.int64)
    return cursors.spans(rows, lengths)
