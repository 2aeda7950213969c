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

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Cursors, Rows, as_map, offsets_after, scattered
from sink.decode.protobuf_fields import FieldKey, Occurrences, Scanner, Wire, in_order
from sink.decode.protobuf_types import (
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
from sink.decode.protobuf_values import (
    NUMBERS,
    WIRES,
    Convert,
    convert_binaries,
    convert_keys,
    convert_numbers,
    convert_texts,
    enum_converter,
    enum_symbols,
    int32,
)
from sink.decode.records import SchemaMismatch
from sink.schema import arrow_type, stored_type
from sink.schema.bounds import LARGEST, Place, SchemaBounds

_UINT64_DIGITS = 20
_Field = Callable[[NestedMessages, Occurrences], pa.Array]
"""Returns a value for each of the messages, of a field that has a column."""
_TYPE_NAMES = {int(number): name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


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
        target: T.StructType,
        bounds: SchemaBounds = LARGEST,
    ) -> None:
        try:
            self._message = _Message(descriptor_of(descriptors, message), target, Place.root(bounds), 0)
        finally:
            enum_symbols.cache_clear()

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        message_cursors = cursors.inside(rows, cursors.at[rows], cursors.bytes_left(rows))
        columns = self._message.columns(NestedMessages(message_cursors, np.arange(len(rows)), len(rows)))
        cursors.at[rows] = cursors.end[rows]
        return columns


def descriptor_of(descriptors: bytes, message: str | Sequence[int]) -> Descriptor:
    try:
        pool, last_file = _pool_of(descriptors)
        if isinstance(message, str):
            return pool.FindMessageTypeByName(message)
        nested = pool.FindFileByName(last_file).message_types_by_name
        if not message or min(message) < 0:
            raise IndexError("no message has such indexes")
        descriptor = list(nested.values())[message[0]]
        for index in message[1:]:
            descriptor = descriptor.nested_types[index]
        return descriptor
    except (DecodeError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(
            f"the Protobuf descriptors have no valid message {message!r} "
            f"({type(error).__name__}: {error}). Correct them or the message's name."
        ) from None


@lru_cache(20)
def _pool_of(descriptors: bytes) -> tuple[DescriptorPool, str]:
    """Returns the files' types and the last file's name. Records choose the message, so that this is done once."""
    files = FileDescriptorSet.FromString(descriptors).file
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool, files[-1].name


class _Nested:
    """Nested messages, whose columns `compose` turns into one column."""

    def __init__(self, message: _Message, compose: Composer) -> None:
        self._message, self._compose = message, compose

    def __call__(self, cursors: Cursors, occurrences: Occurrences) -> pa.Array:
        return self.merged(cursors, occurrences, np.arange(len(occurrences.rows)), len(occurrences.rows))

    def merged(self, cursors: Cursors, occurrences: Occurrences, owners: Rows, count: int) -> pa.Array:
        """Returns a column of `count` values; each is merged from all occurrences of its message."""
        messages = NestedMessages(
            cursors.inside(occurrences.rows, occurrences.starts, occurrences.lengths), owners, count
        )
        return self._compose(messages, self._message.columns(messages))


class _Singular:
    """A field that is not repeated. `default` is its value if it is missing; with `always` such a message is empty."""

    def __init__(self, convert: Convert, column: T.StructField, default: pa.Scalar | None, always: bool) -> None:
        self._convert, self._column_type = convert, stored_type(column.dataType)
        self._default, self._always = default, always and isinstance(convert, _Nested)
        self._needed = None if column.nullable else f"{column.name!r} is not set, and its column is NOT NULL"

    def __call__(self, messages: NestedMessages, occurrences: Occurrences) -> pa.Array:
        if self._always:
            occurrences = self._with_empty(messages, occurrences)
        owners = messages.owners[occurrences.rows]
        is_last = _flag_last(owners)
        positions = owners[is_last]
        if isinstance(self._convert, _Nested):
            pieces = np.searchsorted(positions, owners)
            values = self._convert.merged(messages.cursors, occurrences, pieces, len(positions))
        else:
            self.check_replaced(messages.cursors, occurrences, ~is_last)
            values = self._convert(messages.cursors, occurrences.only(is_last))
        if len(positions) == messages.count:
            return values
        column = scattered(messages.count, [(positions, values)], self._column_type)
        if self._default is not None:
            return pc.fill_null(column, self._default)
        if self._needed:
            messages.fail(~messages.has(occurrences), self._needed)
        return column

    def check_replaced(self, cursors: Cursors, occurrences: Occurrences, replaced: npt.NDArray[np.bool_]) -> None:
        """Checks replaced occurrences of strings: Protobuf requires UTF-8 there, too."""
        if self._convert is convert_texts and replaced.any():
            convert_texts(cursors, occurrences.only(replaced))

    @staticmethod
    def _with_empty(messages: NestedMessages, occurrences: Occurrences) -> Occurrences:
        rows = messages.row_of(np.flatnonzero(~messages.has(occurrences)))
        return in_order([occurrences, Occurrences(rows, messages.cursors.end[rows], np.zeros(len(rows), np.uint64))])


def _repeated(convert: Convert, kind: pa.ListType, messages: NestedMessages, occurrences: Occurrences) -> pa.Array:
    lengths = np.bincount(messages.owners[occurrences.rows], minlength=messages.count)
    return pa.ListArray.from_arrays(offsets_after(lengths), convert(messages.cursors, occurrences), type=kind)


def _map(entry: _Message, kind: pa.MapType, messages: NestedMessages, occurrences: Occurrences) -> pa.Array:
    """Makes maps of entries, which are messages of two fields. Drops an entry with an unknown number of a closed
    enum."""
    count = len(occurrences.rows)
    entries = NestedMessages(
        messages.cursors.inside(occurrences.rows, occurrences.starts, occurrences.lengths), np.arange(count), count
    )
    unknown = np.zeros(count, np.bool_)
    keys, values = entry.columns(entries, unknown)
    owners = messages.owners[occurrences.rows]
    if unknown.any():
        is_known = pa.array(~unknown)
        keys, values, owners = keys.filter(is_known), values.filter(is_known), owners[~unknown]
    return as_map(np.bincount(owners, minlength=messages.count), keys, values, kind)


class _Message:
    """A message type as the columns of `target`, nested `depth` messages deep. `entry`: it is the entry of a map."""

    def __init__(
        self, descriptor: Descriptor, target: T.StructType, place: Place, depth: int, entry: bool = False
    ) -> None:
        self._target = target
        self._fields: dict[str, tuple[int, _Field]] = {}
        """The number and the decoder of each field with a column."""
        tracked: dict[int, FieldDescriptor] = {}
        for column in target.fields:
            inner = place.field(column.name)
            field = descriptor.fields_by_name.get(column.name)
            if field is not None:
                self._fields[column.name] = field.number, _field(field, column, inner, depth, entry)
                tracked[field.number] = field
            elif not column.nullable:
                raise SchemaMismatch(inner.path, "nothing", f"{column.dataType.simpleString()} NOT NULL")
        # Beside fields with a column, also track the other members of their oneofs, and required fields.
        self._oneofs = [
            oneof.fields for oneof in descriptor.oneofs if any(field.number in tracked for field in oneof.fields)
        ]
        self._required = [field for field in descriptor.fields if field.is_required]
        tracked |= {field.number: field for field in chain(*self._oneofs, self._required)}
        for field in tracked.values():
            if field.name not in self._fields:
                place.field(field.name)
        self._numbers = list(tracked)
        self._closed = {
            number: enum_symbols(field.enum_type)[0]
            for number, field in tracked.items()
            if field.enum_type is not None and field.enum_type.is_closed
        }
        keys = [
            FieldKey(field.number, WIRES.get(field.type, Wire.VARINT), field.is_repeated) for field in tracked.values()
        ]
        self._scanner = Scanner(keys, depth)

    def columns(self, messages: NestedMessages, unknown: npt.NDArray[np.bool_] | None = None) -> list[pa.Array]:
        """Decodes the columns. Flags in `unknown` the messages with a number that a closed enum does not have."""
        occurrences = dict(zip(self._numbers, self._scanner.scan(messages.cursors), strict=True))
        for number, symbols in self._closed.items():
            has_symbol = np.isin(int32(occurrences[number].bits), symbols)
            if unknown is not None:
                unknown |= messages.has(occurrences[number].only(~has_symbol))
            occurrences[number] = occurrences[number].only(has_symbol)
        for oneof in self._oneofs:
            self._settle(messages, oneof, occurrences)
        for field in self._required:
            messages.fail(~messages.has(occurrences[field.number]), f"{field.name!r} is required and not set")
        columns = []
        for column in self._target.fields:
            if column.name in self._fields:
                number, decode = self._fields[column.name]
                columns.append(decode(messages, occurrences[number]))
            else:
                columns.append(pa.nulls(messages.count, stored_type(column.dataType)))
        return columns

    def _settle(
        self, messages: NestedMessages, oneof: Sequence[FieldDescriptor], occurrences: dict[int, Occurrences]
    ) -> None:
        """Keeps in `occurrences` only the last member of the oneof."""
        members = [field for field in oneof if len(occurrences[field.number].rows)]
        if len(members) < 2:
            return
        last_ends = np.full((len(members), messages.count), -1)
        for member_ends, field in zip(last_ends, members, strict=True):
            member = occurrences[field.number]
            ends = _flag_last(messages.owners[member.rows])
            member_ends[messages.owners[member.rows[ends]]] = member.starts[ends]
        second_latest, latest = np.sort(last_ends, axis=0)[-2:]
        for member_ends, field in zip(last_ends, members, strict=True):
            member = occurrences[field.number]
            other_ends = np.where(member_ends == latest, second_latest, latest)
            counts = member.starts > other_ends[messages.owners[member.rows]]
            occurrences[field.number] = member.only(counts)
            _, decode = self._fields.get(field.name, (0, None))
            if isinstance(decode, _Singular):
                decode.check_replaced(messages.cursors, member, ~counts)


def _flag_last(owners: Rows) -> npt.NDArray[np.bool_]:
    """Flags the last of each run of equal numbers. The numbers rise."""
    is_last = np.ones(len(owners), np.bool_)
    is_last[:-1] = owners[1:] != owners[:-1]
    return is_last


def _type_text(field: FieldDescriptor) -> str:
    named_type = field.message_type or field.enum_type
    name = named_type.full_name if named_type is not None else _TYPE_NAMES[field.type]
    return f"repeated {name}" if field.is_repeated else name


def _field(field: FieldDescriptor, column: T.StructField, place: Place, depth: int, entry: bool) -> _Field:
    kind = column.dataType
    entries = map_entry(field)
    if entries is not None and isinstance(kind, T.MapType):
        target = T.StructType(
            [T.StructField("key", T.StringType(), False), T.StructField("value", kind.valueType, False)]
        )
        return partial(_map, _Message(entries, target, place, depth + 1, entry=True), stored_type(kind))
    if field.is_repeated and entries is None and isinstance(kind, T.ArrayType):
        convert = _converter(field, kind.elementType, place.element(), depth)
        if convert is not None:
            return partial(_repeated, convert, stored_type(kind))
    elif not field.is_repeated:
        convert = _converter(field, kind, place, depth, key=entry and field.number == 1)
        if convert is not None:
            return _Singular(convert, column, _default(field, kind, place, entry), always=entry)
    raise SchemaMismatch(place.path, _type_text(field), kind.simpleString())


def map_entry(field: FieldDescriptor) -> Descriptor | None:
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


def _default(field: FieldDescriptor, kind: T.DataType, place: Place, entry: bool) -> pa.Scalar | None:
    """Returns the value of the column if the field is missing; None for null."""
    if field.message_type is not None or (field.has_presence and not field.has_default_value and not entry):
        return None
    value = field.default_value
    if field.enum_type is not None:
        value = field.enum_type.values_by_number[value].name
    elif isinstance(kind, T.StringType) and field.type != field.TYPE_STRING:
        value = str(value).lower()
    elif isinstance(kind, T.DecimalType):
        value = Decimal(value)
    try:
        return pa.scalar(value, arrow_type(kind)).cast(stored_type(kind))
    except (pa.ArrowInvalid, OverflowError):
        raise SchemaMismatch(place.path, f"{_type_text(field)} [default = {value}]", kind.simpleString()) from None


def _converter(field: FieldDescriptor, kind: T.DataType, place: Place, depth: int, key: bool = False) -> Convert | None:
    """Returns what converts the field's values; None if the column cannot hold them."""
    if field.message_type is not None:
        return _nested(field.message_type, kind, place, depth)
    if field.enum_type is not None:
        return enum_converter(field.enum_type) if isinstance(kind, T.StringType) else None
    if field.type == field.TYPE_STRING:
        return convert_texts if isinstance(kind, T.StringType) else None
    if field.type == field.TYPE_BYTES:
        return convert_binaries if isinstance(kind, T.BinaryType) else None
    of_bits, columns = NUMBERS[field.type]
    if key:
        return partial(convert_keys, of_bits)
    if isinstance(kind, T.DecimalType) and (kind.scale or kind.precision < _UINT64_DIGITS):
        return None
    return partial(convert_numbers, of_bits, kind) if isinstance(kind, columns) else None


def _nested(message: Descriptor, kind: T.DataType, place: Place, depth: int) -> _Nested | None:
    def nested(compose: Composer, **fields: T.DataType) -> _Nested:
        target = T.StructType([T.StructField(name, field_type, False) for name, field_type in fields.items()])
        return _Nested(_Message(message, target, place, depth + 1), compose)

    name = message.full_name
    if isinstance(kind, T.StructType):
        return _Nested(_Message(message, kind, place, depth + 1), partial(as_struct, kind))
    if name in WRAPPERS:
        return nested(lambda _, columns: columns[0], value=kind)
    if name == "google.protobuf.Timestamp" and isinstance(kind, T.TimestampType):
        return nested(as_moment, seconds=T.LongType(), nanos=T.IntegerType())
    if name == "google.type.Date" and isinstance(kind, T.DateType):
        return nested(as_date, year=T.IntegerType(), month=T.IntegerType(), day=T.IntegerType())
    if name == "google.type.Decimal" and isinstance(kind, T.DecimalType):
        return nested(partial(as_decimal, kind, decimal_of_text), value=T.StringType())
    if name == "confluent.type.Decimal" and isinstance(kind, T.DecimalType):
        return nested(partial(as_decimal, kind, decimal_of_bytes), value=T.BinaryType(), scale=T.IntegerType())
    return None
