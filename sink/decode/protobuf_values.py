"""Converts the occurrences of Protobuf fields to Arrow columns of scalars: numbers, texts, bytes, enums.

Guarantee: one value for each occurrence. A number that does not fit its column fails its message. Raises nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from pyspark.sql import types as T

from sink.decode.cursors import Cursors, Rows
from sink.decode.protobuf_fields import Bits, Occurrences, Wire
from sink.schema import stored_type

Numbers = npt.NDArray[Any]

_LONG_MAX = (1 << 63) - 1
_Type = FieldDescriptor
WIRES = {
    **dict.fromkeys((_Type.TYPE_DOUBLE, _Type.TYPE_FIXED64, _Type.TYPE_SFIXED64), Wire.FIXED64),
    **dict.fromkeys((_Type.TYPE_FLOAT, _Type.TYPE_FIXED32, _Type.TYPE_SFIXED32), Wire.FIXED32),
    **dict.fromkeys((_Type.TYPE_STRING, _Type.TYPE_BYTES, _Type.TYPE_MESSAGE), Wire.LENGTH),
    _Type.TYPE_GROUP: Wire.GROUP,
}
_INTO_INT = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DoubleType)


def int32(bits: Bits) -> Numbers:
    return bits.astype(np.uint32).view(np.int32)


def _zigzag(bits: Bits) -> Numbers:
    signed: Rows = (bits >> np.uint64(1)).view(np.int64) ^ -(bits & np.uint64(1)).view(np.int64)
    return signed


NUMBERS: dict[int, tuple[Callable[[Bits], Numbers], tuple[type[T.DataType], ...]]] = {
    _Type.TYPE_INT32: (int32, _INTO_INT),
    _Type.TYPE_SFIXED32: (int32, _INTO_INT),
    _Type.TYPE_SINT32: (lambda bits: _zigzag(bits & np.uint64(0xFFFFFFFF)), _INTO_INT),
    _Type.TYPE_UINT32: (lambda bits: bits.astype(np.uint32), (T.LongType, T.DoubleType)),
    _Type.TYPE_FIXED32: (lambda bits: bits.astype(np.uint32), (T.LongType, T.DoubleType)),
    _Type.TYPE_INT64: (lambda bits: bits.view(np.int64), (T.LongType,)),
    _Type.TYPE_SFIXED64: (lambda bits: bits.view(np.int64), (T.LongType,)),
    _Type.TYPE_SINT64: (_zigzag, (T.LongType,)),
    _Type.TYPE_UINT64: (lambda bits: bits, (T.LongType, T.DecimalType)),
    _Type.TYPE_FIXED64: (lambda bits: bits, (T.LongType, T.DecimalType)),
    _Type.TYPE_FLOAT: (lambda bits: bits.astype(np.uint32).view(np.float32), (T.FloatType, T.DoubleType)),
    _Type.TYPE_DOUBLE: (lambda bits: bits.view(np.float64), (T.DoubleType,)),
    _Type.TYPE_BOOL: (lambda bits: bits != 0, (T.BooleanType,)),
}
"""For each type: how to convert its bits, and the columns that it may go to. Narrow columns refuse larger numbers."""
_RANGES: dict[type[T.DataType], tuple[int, int]] = {
    T.ByteType: (-(1 << 7), (1 << 7) - 1),
    T.ShortType: (-(1 << 15), (1 << 15) - 1),
}


class Value(ABC):
    """Converts the occurrences of a field."""

    @abstractmethod
    def convert(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:
        """Returns a column with one value for each occurrence."""


class Number(Value):
    def __init__(self, of_bits: Callable[[Bits], Numbers], kind: T.DataType) -> None:
        self._of_bits, self._column_type = of_bits, stored_type(kind)
        self._range = _RANGES.get(type(kind), (-_LONG_MAX - 1, _LONG_MAX))
        self._name = kind.simpleString()

    def convert(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:
        numbers = self._of_bits(occurrences.bits)
        if pa.types.is_decimal(self._column_type):
            wide = np.stack([numbers, np.zeros(len(numbers), np.uint64)], axis=1)
            return pa.Array.from_buffers(self._column_type, len(numbers), [None, pa.py_buffer(wide)])
        low, high = self._range
        if numbers.dtype == np.uint64 or low > -_LONG_MAX - 1:
            invalid = (numbers < low) | (numbers > high) if low > -_LONG_MAX - 1 else numbers > high
            if invalid.any():
                cursors.fail(occurrences.rows[invalid], f"a number outside the range of {self._name}")
                numbers = np.where(invalid, 0, numbers)
        return pa.array(numbers.astype(self._column_type.to_pandas_dtype(), copy=False))


class AsText(Value):
    """Numbers and booleans as text, like in Protobuf's JSON: keys of maps."""

    def __init__(self, of_bits: Callable[[Bits], Numbers]) -> None:
        self._of_bits = of_bits

    def convert(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:  # noqa: ARG002 - nothing can be wrong
        return pa.array(self._of_bits(occurrences.bits)).cast(pa.string())


class Text(Value):
    def convert(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:
        return cursors.utf8(occurrences.rows, occurrences.starts, occurrences.lengths)


class Binary(Value):
    def convert(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:
        return cursors.binary(occurrences.starts, occurrences.lengths)


class Enum(Value):
    def __init__(self, enum: EnumDescriptor) -> None:
        symbols: dict[int, str] = {}
        for value in enum.values:
            symbols.setdefault(value.number, value.name)
        self._numbers = np.array(sorted(symbols), np.int32)
        self._symbols = pa.array([symbols[number] for number in sorted(symbols)], pa.string())

    def convert(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:  # noqa: ARG002 - nothing can be wrong
        numbers = int32(occurrences.bits)
        index = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        unknown = self._numbers[index] != numbers
        symbols = self._symbols
        if unknown.any():
            without_symbol, positions = np.unique(numbers[unknown], return_inverse=True)
            index[unknown] = len(symbols) + positions
            symbols = pa.concat_arrays([symbols, pa.array(without_symbol).cast(pa.string())])
        return symbols.take(pa.array(index))
