"""Decodes many JSON values at once with Arrow's JSON parser: the path for values without a common layout.

Guarantee: `parse` returns one row per value, in order, equal to what `json_values` gives for each value alone, or None.
Parsing many values at once is sound: every value begins with `{` and ends with `}`, and a newline is between them. JSON
allows no newline in a string, and `}` newline `{` nowhere inside a document. So if the text parses, each boundary ends
a document, and if there are as many rows as values, each value is one document. Raises nothing on purpose.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql import types as T

from sink.decode.fields import MICROS, Columns, Field, Unit
from sink.decode.json.hazards import MOST_DIGITS, Hazards, are_short_decimals, is_shallow
from sink.decode.json.reasons import Undecodable
from sink.decode.json.text import JsonObject, WholeNumber
from sink.decode.json.values import document_of
from sink.decode.time_texts import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO
from sink.schema.table_schema import arrow_type, stored_type

_OPEN, _CLOSE, _COLON, _UTC, _ZERO = ord("{"), ord("}"), ord(":"), ord("Z"), ord("0")
_SIGNS = (ord("+"), ord("-"))
_NEWLINE, _EMPTY = pa.scalar(b"\n", pa.binary()), pa.scalar(b"", pa.binary())
_SECONDS_AT = 16
"""Where the colon before the seconds stands in `yyyy-MM-ddTHH:mm:ss`."""
_MOST_FORMS = 4
_MICROS_UTC = pa.timestamp("us", "UTC")
_DECIMAL_BYTES = 16
_DECIMAL = r"\A[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\z"

Form = frozenset[str]
"""The paths of the times that a batch has as numbers; it has the others as texts."""


class NotExact(Exception):
    """The fast parser may differ from the reference for these values: the reference decides."""


class FastParser:
    """Parses values for some columns. It remembers how the last values had times, and the case of their names."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._hazards = Hazards(columns)
        has_maps = any(isinstance(field.kind, T.MapType) for field in columns.all_fields)
        self.supported = self._hazards.can_be_told and not has_maps
        self._has_numbers = any(unit_of(field) is not None for field in columns.all_fields)
        self._forms: list[Form] = [frozenset()]
        self._spelling: Mapping[str, str] = {}
        """How the last batch wrote the names, if not like the columns."""

    def parse(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """Returns the columns in the table's types, or None if the reference has to decide."""
        lines = _joined(values) if self.supported else None
        if lines is None:
            return None
        if self._hazards.are_in(lines):
            return None
        for form in self._forms:
            if (rows := self._parse_form(lines, form, len(values))) is not None:
                return self._remembered(form, rows)
        form = self._form_of(values[0].as_py())
        if form in self._forms or (rows := self._parse_form(lines, form, len(values))) is None:
            return None
        return self._remembered(form, rows)

    def _remembered(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        if form != self._forms[0]:
            self._forms = [form, *(other for other in self._forms if other != form)][:_MOST_FORMS]
        return rows

    def _parse_form(self, lines: pa.Buffer, form: Form, expected: int) -> pa.RecordBatch | None:
        try:
            table = self._read(lines, form)
            if not self._columns.exact_case and (self._spelling or _has_nulls(table)):
                table = self._spelled(table, lines, form)
            if table.num_rows != expected:
                raise NotExact
            (rows,) = table.combine_chunks().to_batches()
            return exact_rows(self._columns, rows.columns)
        except (pa.ArrowInvalid, NotExact):
            return None

    def _spelled(self, table: pa.Table, lines: pa.Buffer, form: Form) -> pa.Table:
        """Reads the table again if the values have names in another case. Raises NotExact if they have several."""
        if self._hazards.are_names_like(lines, self._spelling):
            return table
        spelling = self._hazards.spelling(lines)
        if not self._hazards.are_names_like(lines, spelling):
            raise NotExact
        self._spelling = spelling
        return self._read(lines, form)

    def _read(self, lines: pa.Buffer, form: Form) -> pa.Table:
        fields = [
            pa.field(self._spelling.get(field.name, field.name), read_type(field, form, self._spelling))
            for field in self._columns.fields
        ]
        return pj.read_json(
            pa.BufferReader(lines),
            # One block: the parser would otherwise look for line ends, which a document may contain.
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, lines.size + 1)),
            parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        ).select([field.name for field in fields])

    def _form_of(self, value: bytes) -> Form:
        """Returns the form of a value."""
        if not self._has_numbers:
            return frozenset()
        try:
            return frozenset(_numbers(self._columns.fields, document_of(value)))
        except Undecodable:
            return frozenset()


def _numbers(fields: Sequence[Field], found: object) -> list[str]:
    """Returns the paths of the times that a document has as whole numbers."""
    if type(found) is not JsonObject:
        return []
    members = {name.lower(): value for name, value in found}
    numbers: list[str] = []
    for field in fields:
        value = members.get(field.name.lower())
        while type(value) is list and field.inner:
            field, value = field.element, next((inner for inner in value if inner is not None), None)
        if isinstance(field.kind, T.StructType):
            numbers += _numbers(field.inner, value)
        elif type(value) is WholeNumber and unit_of(field) is not None:
            numbers.append(field.path)
    return numbers


def unit_of(field: Field) -> Unit | None:
    """Returns what numbers count in a DATE or TIMESTAMP; None for other columns, and where nothing says it."""
    if isinstance(field.kind, T.DateType):
        return field.rule.date_unit
    return field.rule.time_unit if isinstance(field.kind, T.TimestampType) else None


def _joined(values: pa.BinaryArray) -> pa.Buffer | None:
    if not len(values) or values.null_count or values.buffers()[2] is None:
        return None
    starts, ends, data = extents(values)
    if (ends <= starts).any() or (data[starts] != _OPEN).any() or (data[ends - 1] != _CLOSE).any():
        return None
    if not is_shallow(starts, ends, data):
        return None
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8: Arrow's JSON parser would accept it.
        return None
    return pc.binary_join_element_wise(values, _EMPTY, _NEWLINE).buffers()[2]


def _has_nulls(table: pa.Table) -> bool:
    return any(_column_has_nulls(column) for chunked in table.columns for column in chunked.chunks)


def _column_has_nulls(column: pa.Array) -> bool:
    if column.null_count:
        return True
    if pa.types.is_struct(column.type):
        return any(_column_has_nulls(column.field(number)) for number in range(column.type.num_fields))
    return bool(pa.types.is_list(column.type) and _column_has_nulls(column.values))


def read_type(field: Field, form: Form, spelling: Mapping[str, str]) -> pa.DataType:
    """Returns the types for Arrow's JSON parser: its own types where it is exact, string where the sink converts."""
    kind = field.kind
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", read_type(field.element, form, spelling)))
    if isinstance(kind, T.StructType):
        inner = [(spelling.get(child.name, child.name), read_type(child, form, spelling)) for child in field.inner]
        return pa.struct(inner)
    if isinstance(kind, (T.DateType, T.TimestampType)):
        return pa.int64() if field.path in form else pa.string()
    return pa.string() if isinstance(kind, T.BinaryType) or is_in_base64(field) else arrow_type(kind)


def is_in_base64(field: Field) -> bool:
    """Whether texts of a column are decimals in base64."""
    return isinstance(field.kind, T.DecimalType) and field.rule.decimal_format == "base64"


def exact_rows(columns: Columns, read_columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Converts columns as Arrow read them to the table's types. Raises NotExact if the reference might differ."""
    exact_columns = []
    for field, column in zip(columns.fields, read_columns, strict=True):
        if not field.nullable and column.null_count:
            raise NotExact
        exact_columns.append(_exact(column, field))
    return pa.RecordBatch.from_arrays(exact_columns, schema=columns.stored_arrow)


def _exact(column: pa.Array, field: Field) -> pa.Array:
    """Converts one column. Raises NotExact if the reference might differ."""
    kind = field.kind
    if isinstance(kind, T.StructType):
        return _exact_struct(column, field)
    if isinstance(kind, T.ArrayType):
        if not kind.containsNull and column.flatten().null_count:
            raise NotExact
        elements = _exact(column.values, field.element)
        return pa.ListArray.from_arrays(column.offsets, elements, type=stored_type(kind), mask=_nulls(column))
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        # Arrow's JSON knows spellings of infinity that JSON does not, and makes infinities of large numbers.
        if pc.all(pc.is_finite(column)).as_py() is False:
            raise NotExact
        return column
    if isinstance(kind, (T.ByteType, T.ShortType)):
        return column.cast(pa.int32())
    if isinstance(kind, T.BinaryType):
        return _from_base64(column)
    if isinstance(kind, T.DecimalType):
        return _decimals(column, field)
    if isinstance(kind, T.DateType):
        return _dates(column, field.rule.date_unit)
    if isinstance(kind, T.TimestampType):
        return _timestamps(column, field.rule.time_unit)
    return column


def _exact_struct(column: pa.StructArray, field: Field) -> pa.Array:
    children = []
    for position, child in enumerate(field.inner):
        inner = column.field(position)
        if not child.nullable and pc.any(pc.and_(column.is_valid(), inner.is_null())).as_py():
            raise NotExact
        children.append(_exact(inner, child))
    return pa.StructArray.from_arrays(children, fields=list(stored_type(field.kind)), mask=_nulls(column))


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


def _decimals(column: pa.Array, field: Field) -> pa.Array:
    """Checks decimals that Arrow read, and converts texts."""
    if pa.types.is_string(column.type):
        column = _of_base64(column, field) if is_in_base64(field) else _of_digits(column, field)
    # Arrow counts the digits as written, before it scales them: 99.5 passes as decimal(3,2).
    column.validate(full=True)
    return column


def _of_digits(column: pa.StringArray, field: Field) -> pa.Array:
    if field.rule.decimal_format != "numeric" or not are_short_decimals(column):
        raise NotExact
    if pc.all(pc.match_substring_regex(column, _DECIMAL)).as_py() is False:
        raise NotExact
    return column.cast(arrow_type(field.kind))


def _of_base64(column: pa.StringArray, field: Field) -> pa.Array:
    kind = arrow_type(field.kind)
    scale = kind.scale if field.rule.decimal_scale is None else field.rule.decimal_scale
    if not 0 <= scale <= MOST_DIGITS:
        raise NotExact
    texts = column.fill_null("").to_pylist()
    try:
        numbers = [int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True) for text in texts]
        content = b"".join([number.to_bytes(_DECIMAL_BYTES, "little", signed=True) for number in numbers])
    except (binascii.Error, ValueError, OverflowError):
        raise NotExact from None
    # Arrow's cast to a greater scale overflows without a word.
    if max(map(abs, numbers), default=0) >= 10 ** (MOST_DIGITS - max(0, kind.scale - scale)):
        raise NotExact
    decimals = pa.Array.from_buffers(pa.decimal128(MOST_DIGITS, scale), len(texts), [None, pa.py_buffer(content)])
    return pc.if_else(column.is_valid(), decimals.cast(kind), None)


def _dates(column: pa.Array, unit: Unit | None) -> pa.Array:
    if pa.types.is_integer(column.type):
        return _moments(column, unit, MICROS["days"][0], FIRST_DAY, LAST_DAY).cast(pa.int32()).cast(pa.date32())
    days = column.cast(pa.date32())
    _require_within(days.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    return days


def _moments(column: pa.Array, unit: Unit | None, divisor: int, first: int, last: int) -> pa.Array:
    """Returns how often `divisor` microseconds are in whole numbers of a unit, rounded down."""
    if unit is None:
        raise NotExact
    multiply, divide = MICROS[unit]
    _require_within(column, first * divisor * divide // multiply - 1, last * divisor * divide // multiply + 1)
    numbers = cast(npt.NDArray[np.int64], column.fill_null(0).to_numpy(zero_copy_only=False))
    moments = pa.array(numbers * multiply // (divide * divisor), mask=_null_flags(column))
    _require_within(moments, first, last)
    return moments


def _null_flags(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _require_within(numbers: pa.Array, first: int, last: int) -> None:
    """Raises NotExact unless all numbers are within the bounds."""
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is not None and (extremes["min"] < first or extremes["max"] > last):
        raise NotExact


def _timestamps(column: pa.Array, unit: Unit | None) -> pa.Array:
    if pa.types.is_integer(column.type):
        return _moments(column, unit, 1, FIRST_MICRO, LAST_MICRO).cast(pa.timestamp("us")).cast(_MICROS_UTC)
    moments = _timestamps_of_texts(column)
    _require_within(moments.cast(pa.int64()), FIRST_MICRO, LAST_MICRO)
    return moments


def _timestamps_of_texts(column: pa.Array) -> pa.Array:
    """Converts ISO texts with seconds, either all with a zone or all without one."""
    present = column.drop_null()
    if not len(present):
        return pa.nulls(len(column), _MICROS_UTC)
    starts, ends, characters = extents(present)
    # Without seconds Arrow refuses what the reference takes.
    if (ends - starts <= _SECONDS_AT).any() or (characters[starts + _SECONDS_AT] != _COLON).any():
        raise NotExact
    if (characters[ends - 1] == _UTC).all():
        return column.cast(_MICROS_UTC)
    try:
        moments = column.cast(_MICROS_UTC)
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us")).cast(_MICROS_UTC)
    # Arrow accepts offsets up to 24 hours. Only `+hh:mm` is checked; other forms go to the reference.
    zoned = ends[characters[ends - 1] != _UTC]
    hours = (characters[zoned - 5] - _ZERO) * 10 + characters[zoned - 4] - _ZERO
    if (
        (characters[zoned - 3] != _COLON).any()
        or not np.isin(characters[zoned - 6], _SIGNS).all()
        or (hours >= 18).any()
    ):
        raise NotExact
    return moments


def extents(values: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Returns where each value starts and ends in the common bytes."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    return offsets[:-1], offsets[1:], np.frombuffer(data_buffer, np.uint8)
