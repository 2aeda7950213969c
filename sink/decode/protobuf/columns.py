"""Decodes Protobuf messages to columns, many messages at once, from a message type to the table's columns.

Guarantee: a column gets the field of its name by the rules of Protobuf (proto2, proto3, editions): the last occurrence
of a field counts, messages in several pieces are merged, the last member of a oneof is set, unknown fields are skipped.
A missing field has its declared default or, without presence, the default of its type; else it is null. An enum is its
symbol, or its number as text if an open enum has no symbol for it. A value that does not fit its column, a string that
is not UTF-8 and a missing required field fail the row. Raises SchemaMismatch if the message does not fit the columns,
ConfigError for invalid descriptors.

A timestamp loses its nanoseconds, as in Spark's `from_protobuf`. The decoder does not check the contents of messages
without a column, or of oneof members that a later one replaced; it does check replaced map entries. It refuses numbers
of more than 64 bits, which Protobuf's parsers truncate. A map entry with unknown fields is an entry, as in C++ and
Java, and unlike the Python library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as T

from sink.decode.cursors import Cursors, Rows
from sink.decode.fields import Columns, Field, FieldRule
from sink.decode.protobuf.descriptors import Fields, descriptor_of, map_entry, type_text
from sink.decode.protobuf.fields import FieldKey, Scanner, Wire
from sink.decode.protobuf.json import JSON_TYPES, json_texts
from sink.decode.protobuf.meanings import meaning
from sink.decode.protobuf.messages import (
    ColumnField,
    FieldReader,
    MergingConvert,
    Message,
    Missing,
    Singular,
    composed,
    read_map,
    read_repeated,
)
from sink.decode.protobuf.types import (
    WRAPPERS,
    Composer,
    NestedMessages,
    as_date,
    as_decimal,
    as_moment,
    as_struct,
    decimal_of_bytes,
    decimal_of_text,
)
from sink.decode.protobuf.values import (
    NUMBERS,
    WIRES,
    Convert,
    convert_binaries,
    convert_keys,
    convert_numbers,
    convert_texts,
    enum_converter,
    enum_symbols,
)
from sink.decode.records import SchemaMismatch
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace
from sink.schema.table_schema import arrow_type, stored_type
from sink.schema.warnings import shown_path

_UINT64_DIGITS = 20


class ProtobufReader:
    """Reads messages of one type into the table's value columns.

    `descriptors` is a serialized FileDescriptorSet, with the file of the message last. `message` is a full name, or the
    message indexes of Confluent's wire format: the index of the message in the file, of the nested message in it, and
    so on.
    """

    def __init__(
        self,
        descriptors: bytes,
        message: str | Sequence[int],
        target: Columns,
        bounds: SchemaBounds = LARGEST,
    ) -> None:
        descriptor = descriptor_of(descriptors, message)
        try:
            self._message = _ProtobufCompiler(target.exact_case).message(
                descriptor, target.fields, SchemaPlace.root(bounds), 0
            )
        finally:
            enum_symbols.cache_clear()

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        message_cursors = cursors.inside(rows, cursors.at[rows], cursors.bytes_left(rows))
        columns = self._message.columns(NestedMessages(message_cursors, np.arange(len(rows)), len(rows)))
        cursors.at[rows] = cursors.end[rows]
        return columns


class _ProtobufCompiler:
    """Makes readers of message types. `depth` counts the messages around a field."""

    def __init__(self, exact_case: bool) -> None:
        self._exact_case = exact_case

    def message(
        self, descriptor: Descriptor, target: Sequence[Field], place: SchemaPlace, depth: int, entry: bool = False
    ) -> Message:
        """Returns a message type as the columns of `target`. `entry`: it is the entry of a map."""
        fields = Fields(descriptor, self._exact_case)
        tracked: dict[int, FieldDescriptor] = {}
        columns: list[ColumnField | pa.DataType] = []
        for column in target:
            inner = place.field(column.name)
            declared = fields.of_column(column.name, inner.path)
            if declared is not None:
                read = self._field(declared, column, inner, depth, entry)
                columns.append(ColumnField(declared.number, read, shown_path(column.path)))
                tracked[declared.number] = declared
            elif not column.nullable:
                raise SchemaMismatch(inner.path, "nothing", f"{column.kind.simpleString()} NOT NULL")
            else:
                columns.append(stored_type(column.kind))
        # Beside fields with a column, also track the other members of their oneofs, and required fields.
        oneofs = [oneof.fields for oneof in descriptor.oneofs if any(field.number in tracked for field in oneof.fields)]
        required = [field for field in descriptor.fields if field.is_required]
        for field in chain(*oneofs, required):
            if field.number not in tracked:
                place.field(field.name)
                tracked[field.number] = field
        keys = [
            FieldKey(field.number, WIRES.get(field.type, Wire.VARINT), field.is_repeated) for field in tracked.values()
        ]
        closed = {
            number: enum_symbols(field.enum_type)[0]
            for number, field in tracked.items()
            if field.enum_type is not None and field.enum_type.is_closed
        }
        return Message(
            columns,
            Scanner(keys, depth),
            list(tracked),
            [[field.number for field in oneof] for oneof in oneofs],
            {field.number: field.name for field in required},
            closed,
        )

    def _field(
        self, declared: FieldDescriptor, column: Field, place: SchemaPlace, depth: int, entry: bool
    ) -> FieldReader:
        kind = column.kind
        entries = map_entry(declared)
        if entries is not None and isinstance(kind, T.MapType):
            key = Field("key", T.StringType(), False, FieldRule(), column.path)
            target = (key, column.element)
            return partial(read_map, self.message(entries, target, place, depth + 1, entry=True), stored_type(kind))
        if declared.is_repeated and entries is None and isinstance(kind, T.ArrayType):
            convert = self._converter(declared, column.element, place.element(), depth)
            if convert is not None:
                return partial(read_repeated, convert, stored_type(kind))
        elif not declared.is_repeated:
            convert = self._converter(declared, column, place, depth, key=entry and declared.number == 1)
            if convert is not None:
                missing = _missing(declared, column, place, entry)
                return Singular(convert, stored_type(kind), missing, always=entry)
        raise SchemaMismatch(place.path, type_text(declared), kind.simpleString())

    def _converter(
        self, declared: FieldDescriptor, field: Field, place: SchemaPlace, depth: int, key: bool = False
    ) -> Convert | None:
        """Returns what converts the values of a field; None if the column cannot hold them."""
        kind = field.kind
        if declared.message_type is not None:
            return self._nested(declared.message_type, field, place, depth)
        if declared.enum_type is not None:
            return enum_converter(declared.enum_type) if isinstance(kind, T.StringType) else None
        if (meant := meaning(declared, field, place.path)) is not None:
            return meant.convert
        if declared.type == declared.TYPE_STRING:
            return convert_texts if isinstance(kind, T.StringType) else None
        if declared.type == declared.TYPE_BYTES:
            return convert_binaries if isinstance(kind, T.BinaryType) else None
        of_bits, columns = NUMBERS[declared.type]
        if key:
            return partial(convert_keys, of_bits)
        if isinstance(kind, T.DecimalType) and (kind.scale or kind.precision < _UINT64_DIGITS):
            return None
        return partial(convert_numbers, of_bits, kind) if isinstance(kind, columns) else None

    def _nested(self, message: Descriptor, field: Field, place: SchemaPlace, depth: int) -> MergingConvert | None:
        kind, name = field.kind, message.full_name

        def nested(compose: Composer, **fields: T.DataType) -> MergingConvert:
            target = [Field(name, kind, False, FieldRule(), field.path) for name, kind in fields.items()]
            return composed(self.message(message, target, place, depth + 1), compose)

        if isinstance(kind, T.StructType):
            return composed(self.message(message, field.inner, place, depth + 1), partial(as_struct, kind))
        if name in JSON_TYPES and isinstance(kind, T.StringType):
            return MergingConvert(partial(json_texts, name))
        if name in WRAPPERS:
            value = replace(field, name="value")
            return composed(self.message(message, [value], place, depth + 1), lambda _, columns: columns[0])
        if name == "google.protobuf.Timestamp" and isinstance(kind, T.TimestampType):
            return nested(as_moment, seconds=T.LongType(), nanos=T.IntegerType())
        if name == "google.type.Date" and isinstance(kind, T.DateType):
            return nested(as_date, year=T.IntegerType(), month=T.IntegerType(), day=T.IntegerType())
        if name == "google.type.Decimal" and isinstance(kind, T.DecimalType):
            return nested(partial(as_decimal, kind, decimal_of_text), value=T.StringType())
        if name == "confluent.type.Decimal" and isinstance(kind, T.DecimalType):
            return nested(partial(as_decimal, kind, decimal_of_bytes), value=T.BinaryType(), scale=T.IntegerType())
        return None


def _missing(declared: FieldDescriptor, column: Field, place: SchemaPlace, entry: bool) -> Missing:
    """Returns what a message without the field has in the column."""
    if declared.message_type is not None or (declared.has_presence and not declared.has_default_value and not entry):
        return Missing(reason=None if column.nullable else "it is not set, and NOT NULL")
    value, kind = declared.default_value, column.kind
    if declared.enum_type is not None:
        value = declared.enum_type.values_by_number[value].name
    elif (meant := meaning(declared, column, place.path)) is not None:
        try:
            return Missing(meant.scalar(value))
        except ValueError as error:
            reason = (
                f"it is not set, and its default does not fit: {error}. Declare the field optional: then it is null."
            )
            return Missing(reason=reason)
    elif isinstance(kind, T.StringType) and declared.type != declared.TYPE_STRING:
        value = str(value).lower()
    elif isinstance(kind, T.DecimalType):
        value = Decimal(value)
    try:
        return Missing(pa.scalar(value, arrow_type(kind)).cast(stored_type(kind)))
    except (pa.ArrowInvalid, OverflowError):
        wrote = f"{type_text(declared)} [default = {value}]"
        raise SchemaMismatch(place.path, wrote, kind.simpleString()) from None
