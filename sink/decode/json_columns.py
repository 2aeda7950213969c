"""Decodes many JSON values at once with Arrow's JSON parser: the fast path. It returns the reference's columns or None.

Guarantee: `parse` returns one row per value, in order, equal to what `json_values` gives for each value alone, or None.
Parsing many values at once is sound: every value begins with `{` and ends with `}`, and a newline is between them. JSON
allows no newline in a string, and `}` newline `{` nowhere inside a document. So if the text parses, each boundary ends
a document, and if there are as many rows as values, each value is one document. Raises nothing on purpose.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql import types as T

from sink.decode.json_decimals import has_only_short_decimals
from sink.schema import TableSchema, arrow_type, stored_type

_OPEN, _CLOSE, _COLON, _UTC, _ZERO = ord("{"), ord("}"), ord(":"), ord("Z"), ord("0")
_SIGNS = (ord("+"), ord("-"))
_NEWLINE, _EMPTY = pa.scalar(b"\n", pa.binary()), pa.scalar(b"", pa.binary())
_SECONDS_AT = 16
"""Where the colon before the seconds stands in `yyyy-MM-ddTHH:mm:ss`."""


class NotExact(Exception):
    """The fast parser may differ from the reference for these values: the reference decides."""


class FastParser:
    """Parses values by one schema. It remembers the last form of timestamps, text or seconds, and tries that first."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self.supported = not _holds(schema.value_struct, T.MapType)
        self._has_decimals = _holds(schema.value_struct, T.DecimalType)
        forms = (pa.string(), pa.int64()) if _holds(schema.value_struct, T.TimestampType) else (pa.string(),)
        self._forms = [pa.schema(list(read_type(schema.value_struct, form))) for form in forms]

    def parse(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """Returns the value columns in the table's types, or None if the reference has to decide."""
        lines = _joined(values) if self.supported else None
        if lines is None or (self._has_decimals and not has_only_short_decimals(lines)):
            return None
        for position, form in enumerate(self._forms):
            try:
                rows = self._convert(_read_table(lines, form), len(values))
            except (pa.ArrowInvalid, NotExact):
                continue
            if position:
                self._forms.reverse()
            return rows
        return None

    def _convert(self, table: pa.Table, expected: int) -> pa.RecordBatch:
        if table.num_rows != expected:
            raise NotExact
        (rows,) = table.combine_chunks().to_batches()
        return exact_rows(self._schema, [rows.column(name) for name in self._schema.value_struct.names])


def _joined(values: pa.BinaryArray) -> pa.Buffer | None:
    if not len(values) or values.null_count or values.buffers()[2] is None:
        return None
    starts, ends, data = _extents(values)
    if (ends <= starts).any() or (data[starts] != _OPEN).any() or (data[ends - 1] != _CLOSE).any():
        return None
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8: Arrow's JSON parser would accept it.
        return None
    return pc.binary_join_element_wise(values, _EMPTY, _NEWLINE).buffers()[2]


def _read_table(lines: pa.Buffer, schema: pa.Schema) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(lines),
        # One block: the parser would otherwise look for line ends, which a document may contain.
        read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, lines.size + 1)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _holds(kind: T.DataType, sought: type[T.DataType]) -> bool:
    if isinstance(kind, T.ArrayType):
        return _holds(kind.elementType, sought)
    if isinstance(kind, T.StructType):
        return any(_holds(field.dataType, sought) for field in kind.fields)
    return isinstance(kind, sought)


def read_type(kind: T.DataType, timestamps: pa.DataType) -> pa.DataType:
    """Returns the types for Arrow's JSON parser: its own types where it is exact, string where the sink converts."""
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", read_type(kind.elementType, timestamps)))
    if isinstance(kind, T.StructType):
        return pa.struct([(field.name, read_type(field.dataType, timestamps)) for field in kind.fields])
    if isinstance(kind, (T.BinaryType, T.DateType)):
        return pa.string()
    return timestamps if isinstance(kind, T.TimestampType) else arrow_type(kind)


def exact_rows(schema: TableSchema, read_columns: list[pa.Array]) -> pa.RecordBatch:
    """Converts columns as Arrow read them to the table's types. Raises NotExact if the reference might differ."""
    columns = []
    for field, column in zip(schema.value_struct.fields, read_columns, strict=True):
        if not field.nullable and column.null_count:
            raise NotExact
        columns.append(_exact(column, field.dataType))
    return pa.RecordBatch.from_arrays(columns, schema=schema.stored_arrow)


def _exact(column: pa.Array, kind: T.DataType) -> pa.Array:
    """Converts one column. Raises NotExact if the reference might differ."""
    if isinstance(kind, T.StructType):
        return _exact_struct(column, kind)
    if isinstance(kind, T.ArrayType):
        if not kind.containsNull and column.flatten().null_count:
            raise NotExact
        elements = _exact(column.values, kind.elementType)
        return pa.ListArray.from_arrays(column.offsets, elements, type=stored_type(kind), mask=_nulls(column))
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        # Arrow's JSON knows spellings of infinity that JSON and Jackson do not.
        if pc.all(pc.is_finite(column)).as_py() is False:
            raise NotExact
        return column
    if isinstance(kind, (T.ByteType, T.ShortType)):
        return column.cast(pa.int32())
    if isinstance(kind, T.BinaryType):
        return _from_base64(column)
    if isinstance(kind, T.DecimalType):
        # Arrow counts the digits as written, before it scales them: 99.5 passes as decimal(3,2).
        column.validate(full=True)
        return column
    if isinstance(kind, T.DateType):
        return column.cast(pa.date32())
    if isinstance(kind, T.TimestampType):
        return _timestamps(column)
    return column


def _exact_struct(column: pa.StructArray, kind: T.StructType) -> pa.Array:
    children = []
    for position, field in enumerate(kind.fields):
        child = column.field(position)
        if not field.nullable and pc.any(pc.and_(column.is_valid(), child.is_null())).as_py():
            raise NotExact
        children.append(_exact(child, field.dataType))
    return pa.StructArray.from_arrays(children, fields=list(stored_type(kind)), mask=_nulls(column))


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _from_base64(column: pa.StringArray) -> pa.Array:
    try:
        decoded = [
            None if encoded is None else base64.b64decode(encoded, validate=True) for encoded in column.to_pylist()
        ]
    except (binascii.Error, ValueError):
        raise NotExact from None
    return pa.array(decoded, pa.binary())


def _timestamps(column: pa.Array) -> pa.Array:
    """Converts seconds as integers, or ISO texts with seconds, either all with a zone or all without one."""
    micros = pa.timestamp("us", "UTC")
    if pa.types.is_integer(column.type):
        return column.cast(pa.timestamp("s", "UTC")).cast(micros)
    present = column.drop_null()
    if not len(present):
        return pa.nulls(len(column), micros)
    starts, ends, characters = _extents(present)
    # Without seconds Arrow takes a zone where Spark takes none.
    if (ends - starts <= _SECONDS_AT).any() or (characters[starts + _SECONDS_AT] != _COLON).any():
        raise NotExact
    if (characters[ends - 1] == _UTC).all():
        return column.cast(micros)
    try:
        moments = column.cast(micros)
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us")).cast(micros)
    # Arrow accepts offsets up to 24 hours, Java up to 18. Only `+hh:mm` is checked; other forms go to the reference.
    zoned = ends[characters[ends - 1] != _UTC]
    hours = (characters[zoned - 5] - _ZERO) * 10 + characters[zoned - 4] - _ZERO
    if (
        (characters[zoned - 3] != _COLON).any()
        or not np.isin(characters[zoned - 6], _SIGNS).all()
        or (hours >= 18).any()
    ):
        raise NotExact
    return moments


def _extents(values: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Returns where each value starts and ends in the common bytes."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    return offsets[:-1], offsets[1:], np.frombuffer(data_buffer, np.uint8)
