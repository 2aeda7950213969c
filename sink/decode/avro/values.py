"""Decodes Avro values without inner types to columns: numbers, strings, bytes, enums.

Guarantee: that of `sink.decode.avro.columns`. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from sink.decode.avro.decimals import decimal_reader, decimal_text_reader
from sink.decode.avro.steps import plain_integers, shortest_texts, span
from sink.decode.avro.times import DATE_UNITS, TIME_UNITS, date_reader, moment_reader
from sink.decode.cursors import Bytes, Cursors, Reason, Rows
from sink.decode.fields import Field
from sink.schema.avro import simple_column
from sink.schema.avro_types import kind_of, logical_type
from sink.schema.table_schema import stored_type

_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_UUID_BYTES = 16
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_UUID_DASHES = (8, 13, 18, 23)
_UUID_DIGITS = np.setdiff1d(np.arange(36), _UUID_DASHES)
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

Read = Callable[[Cursors, Rows], pa.Array]
"""Reads the next value of each row. Returns a column with one value for each row."""


def read_nulls(kind: pa.DataType, cursors: Cursors, rows: Rows) -> pa.Array:  # noqa: ARG001 - takes no bytes
    return pa.nulls(len(rows), kind)


def read_enums(symbols: pa.StringArray, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    numbers = cursors.zigzags(rows)
    invalid = (numbers < 0) | (numbers >= len(symbols))
    problem = f"an enum of {len(symbols)} symbols has none with the number in the record"
    cursors.fail_where(rows, invalid, Reason(problem, field.path))
    numbers[invalid] = 0
    return symbols.take(pa.array(numbers)) if len(symbols) else pa.nulls(len(rows), pa.string())


def simple_reader(schema: Any, field: Field) -> Read | None:
    """Returns what reads a type without inner types; None if the column cannot hold its values."""
    name, kind = kind_of(schema), field.kind
    if isinstance(kind, T.DecimalType):
        return decimal_reader(schema, field)
    if isinstance(kind, T.DateType):
        return date_reader(schema, field)
    if isinstance(kind, T.TimestampType):
        return moment_reader(schema, field)
    if isinstance(kind, T.StringType):
        return _text_reader(schema, field)
    if name in ("int", "long"):
        return _integer_reader(name, field)
    if name == "boolean" and isinstance(kind, T.BooleanType):
        return partial(_read_booleans, field)
    if name in ("float", "double") and isinstance(kind, (T.FloatType, T.DoubleType)):
        narrows = name == "double" and isinstance(kind, T.FloatType)
        return None if narrows else partial(_read_floats, name, stored_type(kind))
    if name in ("string", "bytes", "fixed") and isinstance(kind, T.BinaryType):
        return partial(_read_binaries, schema["size"] if name == "fixed" else None)
    return None


def way_out(schema: Any, field: Field) -> str:
    """Returns a sentence, with a full stop before it, on the setting that says what the values of a type mean in the
    column, or on a column that holds them; empty if there is neither."""
    name, kind, is_plain = kind_of(schema), field.kind, logical_type(schema) is None
    if is_plain and name in ("int", "long", "float", "double"):
        if isinstance(kind, T.TimestampType):
            return f". Set time.unit to one of {', '.join(TIME_UNITS)}, or have the producer write a logical type"
        if isinstance(kind, T.DateType):
            return f". Set date.unit to one of {', '.join(DATE_UNITS)}, or have the producer write a logical type"
    if is_plain and name == "string" and isinstance(kind, T.DecimalType):
        return ". Set decimal.format to numeric (digits) or base64, or have the producer write a decimal"
    holds = simple_column(schema)
    return "" if holds is None else f". A column of type {holds.simpleString()} holds it"


def _text_reader(schema: Any, field: Field) -> Read | None:
    name, logical = kind_of(schema), logical_type(schema)
    if logical == "decimal":
        return decimal_text_reader(schema, field)
    if name == "fixed":
        return _read_uuids if logical == "uuid" else None
    if name in ("string", "bytes"):
        return _read_texts
    if name in ("int", "long") and logical is None:
        return partial(_read_integers_as_texts, name, field)
    if name == "boolean":
        return partial(_read_booleans_as_texts, field)
    return partial(_read_floats_as_texts, name) if name in ("float", "double") else None


def _integer_reader(name: str, field: Field) -> Read | None:
    if isinstance(field.kind, (T.FloatType, T.DoubleType)):
        return partial(_read_integers, name, 64, field)
    bits = _BITS.get(type(field.kind))
    # Avro has no 8 and 16 bit integers: such columns take Avro's int, and refuse values out of range.
    return None if bits is None or (name == "long" and bits < 64) else partial(_read_integers, name, bits, field)


def _read_integers(name: str, bits: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads `int` and `long`, for a column of an integer or of the nearest number."""
    numbers = plain_integers(name, field, cursors, rows, bits)
    return pa.array(numbers.astype(stored_type(field.kind).to_pandas_dtype()))


def _read_integers_as_texts(name: str, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    return pa.array(plain_integers(name, field, cursors, rows)).cast(pa.string())


def _read_booleans(field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    numbers = cursors.fixed(rows, 1)[:, 0]
    cursors.fail_where(rows, numbers > 1, Reason("a boolean that is neither 0 nor 1", field.path))
    return pa.array(numbers == 1)


def _read_booleans_as_texts(field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    return _read_booleans(field, cursors, rows).cast(pa.string())


def _read_floats(name: str, kind: pa.DataType, cursors: Cursors, rows: Rows) -> pa.Array:
    # A NaN that signals is a NaN.
    with np.errstate(invalid="ignore"):
        return pa.array(cursors.numbers(rows, "<f4" if name == "float" else "<f8").astype(kind.to_pandas_dtype()))


def _read_floats_as_texts(name: str, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads numbers as texts, and as JSON spells those that are not finite."""
    texts = shortest_texts(name, cursors, rows)
    return pa.array([_NOT_FINITE.get(text, text) for text in texts], pa.string())


def _read_texts(cursors: Cursors, rows: Rows) -> pa.Array:
    return cursors.utf8(rows, *span(cursors, rows))


def _read_uuids(cursors: Cursors, rows: Rows) -> pa.Array:
    signs: Bytes = np.full((len(rows), 36), ord("-"), np.uint8)
    signs[:, _UUID_DIGITS] = _HEX[cursors.fixed(rows, _UUID_BYTES)].reshape(len(rows), 2 * _UUID_BYTES)
    offsets = pa.py_buffer(np.arange(0, 36 * (len(rows) + 1), 36, dtype=np.int32))
    return pa.StringArray.from_buffers(len(rows), offsets, pa.py_buffer(signs))


def _read_binaries(size: int | None, cursors: Cursors, rows: Rows) -> pa.Array:
    return cursors.binary(*span(cursors, rows, size))
