"""Converts the occurrences of Protobuf fields to Arrow columns of scalars: numbers, texts, bytes, enums.

Guarantee: one value for each occurrence. A number that does not fit its column fails its message. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from pyspark.sql import types as T

from sink.decode.cursors import Cursors, zigzag
from sink.decode.protobuf.fields import Bits, Occurrences, Wire
from sink.schema.table_schema import stored_type

Numbers = npt.NDArray[Any]
Convert = Callable[[Cursors, Occurrences], pa.Array]
"""Returns a column with one value for each occurrence of a field."""

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


NUMBERS: dict[int, tuple[Callable[[Bits], Numbers], tuple[type[T.DataType], ...]]] = {
    _Type.TYPE_INT32: (int32, _INTO_INT),
    _Type.TYPE_SFIXED32: (int32, _INTO_INT),
    _Type.TYPE_SINT32: (lambda bits: zigzag(bits & np.uint64(0xFFFFFFFF)), _INTO_INT),
    _Type.TYPE_UINT32: (lambda bits: bits.astype(np.uint32), (T.LongType, T.DoubleType)),
    _Type.TYPE_FIXED32: (lambda bits: bits.astype(np.uint32), (T.LongType, T.DoubleType)),
    _Type.TYPE_INT64: (lambda bits: bits.view(np.int64), (T.LongType,)),
    _Type.TYPE_SFIXED64: (lambda bits: bits.view(np.int64), (T.LongType,)),
    _Type.TYPE_SINT64: (zigzag, (T.LongType,)),
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


def convert_numbers(
    of_bits: Callable[[Bits], Numbers], kind: T.DataType, cursors: Cursors, occurrences: Occurrences
) -> pa.Array:
    numbers, column_type = of_bits(occurrences.bits), stored_type(kind)
    if pa.types.is_decimal(column_type):
        wide = np.stack([numbers, np.zeros(len(numbers), np.uint64)], axis=1)
        return pa.Array.from_buffers(column_type, len(numbers), [None, pa.py_buffer(wide)])
    low, high = _RANGES.get(type(kind), (-_LONG_MAX - 1, _LONG_MAX))
    if numbers.dtype == np.uint64 or low > -_LONG_MAX - 1:
        invalid = (numbers < low) | (numbers > high) if low > -_LONG_MAX - 1 else numbers > high
        if invalid.any():
            cursors.fail(occurrences.rows[invalid], f"a number outside the range of {kind.simpleString()}")
            numbers = np.where(invalid, 0, numbers)
    return pa.array(numbers.astype(column_type.to_pandas_dtype(), copy=False))


def convert_keys(
    of_bits: Callable[[Bits], Numbers],
    cursors: Cursors,  # noqa: ARG001 - nothing can be wrong
    occurrences: Occurrences,
) -> pa.Array:
    """Converts keys of maps, numbers and booleans, to text as in Protobuf's JSON."""
    return pa.array(of_bits(occurrences.bits)).cast(pa.string())


def convert_texts(cursors: Cursors, occurrences: Occurrences) -> pa.Array:
    return cursors.utf8(occurrences.rows, occurrences.starts, occurrences.lengths)


def convert_binaries(cursors: Cursors, occurrences: Occurrences) -> pa.Array:
    return cursors.binary(occurrences.starts, occurrences.lengths)


@cache
def enum_symbols(enum: EnumDescriptor) -> tuple[npt.NDArray[np.int32], pa.StringArray]:
    """Returns the numbers of an enum in their order, and their symbols. Thousands of fields can have one enum of
    thousands of symbols. A reader clears the cache when it is made: an enum keeps all types of its schema."""
    # Of several symbols for a number the first counts.
    symbols = {value.number: value.name for value in reversed(list(enum.values))}
    numbers = sorted(symbols)
    return np.array(numbers, np.int32), pa.array([symbols[number] for number in numbers], pa.string())


def enum_converter(enum: EnumDescriptor) -> Convert:
    return partial(_convert_enums, *enum_symbols(enum))


def _convert_enums(
    known: npt.NDArray[np.int32],
    symbols: pa.StringArray,
    cursors: Cursors,  # noqa: ARG001 - nothing can be wrong
    occurrences: Occurrences,
) -> pa.Array:
    numbers = int32(occurrences.bits)
    index = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    unknown = known[index] != numbers
    if unknown.any():
        without_symbol, positions = np.unique(numbers[unknown], return_inverse=True)
        index[unknown] = len(symbols) + positions
        symbols = pa.concat_arrays([symbols, pa.array(without_symbol).cast(pa.string())])
    return symbols.take(pa.array(index))
