"""Decodes Protobuf messages for the auditor, value by value. Raises Bad.

The library parses only the fields of columns, for what is in others is not looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from sink.audit.decode.json_values import decimal_value
from sink.audit.decode.moments import (
    EPOCH,
    day_of_number,
    day_of_text,
    in_utc,
    limited,
    moment_of_number,
    moment_of_text,
)
from sink.audit.decode.protobuf_types import (
    MessageTypes,
    Wanted,
    field_for,
    has_unknown_enum_value,
    parsed,
    require_required_fields,
    symbol,
)
from sink.audit.decode.rules import Bad, Rules, chosen, decimal_type, place

Read = Callable[[Any], Any]
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_Type = FieldDescriptor
_NARROW = {_Type.TYPE_INT32, _Type.TYPE_SINT32, _Type.TYPE_SFIXED32}
_UNSIGNED = {_Type.TYPE_UINT32, _Type.TYPE_FIXED32}
_WIDE = {_Type.TYPE_INT64, _Type.TYPE_SINT64, _Type.TYPE_SFIXED64}
_WIDE_UNSIGNED = {_Type.TYPE_UINT64, _Type.TYPE_FIXED64}
_WHOLE = _NARROW | _UNSIGNED | _WIDE | _WIDE_UNSIGNED
_INTO = [
    (_NARROW, {*_BITS, "double"}),
    (_UNSIGNED, {"long", "double"}),
    (_WIDE | _WIDE_UNSIGNED, {"long"}),
    ({_Type.TYPE_FLOAT}, {"float", "double"}),
    ({_Type.TYPE_DOUBLE}, {"double"}),
    ({_Type.TYPE_BOOL}, {"boolean"}),
    ({_Type.TYPE_STRING, _Type.TYPE_ENUM}, {"string"}),
    ({_Type.TYPE_BYTES}, {"binary"}),
]
"""Types of fields, and the columns that hold them as they are."""
_COLUMNS = {number: columns for numbers, columns in _INTO for number in numbers}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = [f"google.protobuf.{kind}Value" for kind in _WRAPPED]
_LAST_SECOND = 253402300799
_FIRST_SECOND = -62135596800


def protobuf_reader(
    descriptors: bytes, message: str, columns: Mapping[str, Any], rules: Rules
) -> Callable[[bytes | None], dict[str, Any]]:
    """Returns a function from a value to its row. `descriptors` is a FileDescriptorSet, `message` the full name of the
    value's message, and `columns` a struct as Spark writes it in JSON."""
    types, wanted = MessageTypes(descriptors), Wanted()
    read = _Readers(rules, types.entries).of_message(types.message(message), columns, "", wanted)
    made = types.narrowed(message, wanted)

    def row(value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Bad("a tombstone")
        found: dict[str, Any] = read(parsed(made, value))
        return found

    return row


class _Readers:
    """Makes what reads the values of fields into columns, and notes the fields as wanted. Raises Bad for a column that
    cannot hold them."""

    def __init__(self, rules: Rules, entries: frozenset[str]) -> None:
        self._rules, self._entries = rules, entries

    def of_message(self, message: Descriptor, columns: Mapping[str, Any], path: str, wanted: Wanted) -> Read:
        reads: dict[str, Read] = {}
        for column in columns["fields"]:
            name = column["name"]
            inner = f"{path}.{name}" if path else name
            read = self._placed(message, place(self._rules, inner, path), column["type"], inner, wanted)
            if read is None and not column["nullable"]:
                raise Bad(f"{name} has no field, and is NOT NULL")
            read = read or (lambda _: None)
            reads[name] = read if column["nullable"] else _not_null(name, read)

        def row(found: Any) -> dict[str, Any]:
            require_required_fields(found)
            return {name: read(found) for name, read in reads.items()}

        return row

    def _placed(self, message: Descriptor, source: Sequence[str], kind: Any, path: str, wanted: Wanted) -> Read | None:
        """Returns what reads the field of a message at the path `source`; None if it has none."""
        outer, *deeper = source
        field = field_for(outer, message, self._rules.exact_case)
        if field is None:
            return None
        inside = wanted.of(field.name)
        if not deeper:
            return self._of_field(field, kind, path, inside)
        inner = field.message_type
        if inner is None or field.is_repeated or inner.full_name in self._entries:
            raise Bad(f"{path}: {outer} has no fields")
        read = self._placed(inner, deeper, kind, path, inside)
        name = field.name

        def within(found: Any) -> Any:
            if not found.HasField(name):
                return None
            require_required_fields(getattr(found, name))
            return read and read(getattr(found, name))

        return within

    def _of_field(self, field: FieldDescriptor, kind: Any, path: str, wanted: Wanted) -> Read:
        """Returns what reads a field from its message."""
        shape = kind["type"] if isinstance(kind, Mapping) else ""
        if field.message_type is not None and field.message_type.full_name in self._entries:
            if shape != "map":
                raise Bad(f"a map into {shape or kind}")
            return self._map(field, kind["valueType"], path, wanted)
        if field.is_repeated:
            if shape != "array":
                raise Bad(f"a repeated field into {shape or kind}")
            read_element = self._value(field, kind["elementType"], path, wanted)
            read_element = read_element if kind["containsNull"] else _not_null(path, read_element)
            return lambda found: [read_element(_text_or(element, field)) for element in getattr(found, field.name)]
        read = self._value(field, kind, path, wanted)

        def singular(found: Any) -> Any:
            if field.has_presence and not found.HasField(field.name) and not field.has_default_value:
                return None
            return read(_attribute(found, field))

        return singular

    def _map(self, field: FieldDescriptor, kind: Any, path: str, wanted: Wanted) -> Read:
        entry: Any = field.message_type
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        wanted.of(key.name)
        read_value = self._value(value, kind, path, wanted.of(value.name))

        def read(found: Any) -> dict[str, Any]:
            entries = {}
            for inner in getattr(found, field.name):
                if not has_unknown_enum_value(inner):
                    name = _attribute(inner, key)
                    entries[str(name).lower() if isinstance(name, bool) else str(name)] = read_value(
                        _attribute(inner, value)
                    )
            return entries

        return read

    def _value(self, field: FieldDescriptor, kind: Any, path: str, wanted: Wanted) -> Read:
        """Returns what converts one value of a field."""
        if field.message_type is not None:
            return self._nested(field.message_type, kind, path, wanted)
        if kind in ("timestamp", "date") and field.type != _Type.TYPE_ENUM:
            read = self._moment(field, kind, path)
            return limited(read, self._rules.infinity, kind)
        if decimal_type(kind) is not None:
            return self._decimal(field, kind, path)
        if not isinstance(kind, str) or kind not in _COLUMNS[field.type]:
            raise Bad(f"a field of type {field.type} into {kind}")
        if field.type == _Type.TYPE_ENUM:
            return lambda number: symbol(field.enum_type, number)
        if kind in _BITS:
            return lambda number: _in_range(number, _BITS[kind])
        return float if kind in ("float", "double") else lambda value: value

    def _moment(self, field: FieldDescriptor, kind: str, path: str) -> Read:
        is_date = kind == "date"
        if field.type == _Type.TYPE_STRING:
            return day_of_text if is_date else lambda text: in_utc(moment_of_text(text))
        unit = chosen(self._rules.date_unit if is_date else self._rules.time_unit, path)
        if field.type not in _WHOLE and field.type != _Type.TYPE_DOUBLE:
            raise Bad(f"a field of type {field.type} into {kind}")
        if unit is None:
            raise Bad(f"a number into {kind}, and no unit")
        if is_date:
            return lambda number: day_of_number(_digits(number), unit)
        return lambda number: in_utc(moment_of_number(_digits(number), unit))

    def _decimal(self, field: FieldDescriptor, kind: str, path: str) -> Read:
        precision, scale = decimal_type(kind) or (0, 0)
        if field.type == _Type.TYPE_STRING:
            if chosen(self._rules.decimal_format, path) is None:
                raise Bad("a text into a decimal, and no format")
            return lambda text: decimal_value(text, kind, self._rules, path)
        if field.type not in _WIDE_UNSIGNED or scale or precision < 20:
            raise Bad(f"a field of type {field.type} into {kind}")
        return Decimal

    def _nested(self, message: Descriptor, kind: Any, path: str, wanted: Wanted) -> Read:
        if isinstance(kind, Mapping):
            if kind["type"] != "struct":
                raise Bad(f"a message into {kind['type']}")
            return self.of_message(message, kind, path, wanted)
        wanted.is_whole = True
        if message.full_name in _WRAPPERS:
            value = message.fields_by_name["value"]
            read = self._value(value, kind, path, wanted)
            return lambda found: read(_attribute(found, value))
        special = _SPECIAL.get((message.full_name, "decimal" if decimal_type(kind) else kind))
        if special is None:
            raise Bad(f"{message.full_name} into {kind}")
        return lambda found: special(found, kind)


def _not_null(name: str, read: Read) -> Read:
    def checked(found: Any) -> Any:
        value = read(found)
        if value is None:
            raise Bad(f"{name} is null, and NOT NULL")
        return value

    return checked


def _attribute(found: Any, field: FieldDescriptor) -> Any:
    return _text_or(getattr(found, field.name), field)


def _text_or(value: Any, field: FieldDescriptor) -> Any:
    if field.type == _Type.TYPE_STRING and isinstance(value, bytes):
        # The library does not look into texts of proto2.
        raise Bad(f"{field.name} is not UTF-8")
    return value


def _in_range(number: int, bits: int) -> int:
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Bad(f"{number} has more than {bits} bits")
    return number


def _digits(number: float) -> str:
    if not math.isfinite(number):
        raise Bad(f"{number} is not a time")
    return repr(number)


def _timestamp(found: Any, _: str) -> datetime:
    if not _FIRST_SECOND <= found.seconds <= _LAST_SECOND or not 0 <= found.nanos < 10**9:
        raise Bad("no google.protobuf.Timestamp")
    return in_utc(EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000))


def _date(found: Any, _: str) -> date:
    try:
        return date(found.year, found.month, found.day)
    except (ValueError, OverflowError):
        raise Bad("no google.type.Date") from None


def _decimal_of_text(found: Any, kind: str) -> Decimal:
    text = found.value.lower()
    mantissa, e, exponent = text.partition("e")
    whole, _, behind = mantissa.removeprefix("-" if mantissa[:1] == "-" else "+").partition(".")
    power = exponent.removeprefix("-" if exponent[:1] == "-" else "+")
    digits = whole + behind
    is_number = digits and (digits + (power or "0")).isdigit() and text.isascii() and bool(power) == bool(e)
    if len(text) > 200 or len(power) > 9 or (text and not is_number):
        raise Bad("no google.type.Decimal")
    number = int(digits or "0") * (-1 if mantissa[:1] == "-" else 1)
    return _fitting(number, int(exponent or 0) - len(behind), kind)


def _decimal_of_bytes(found: Any, kind: str) -> Decimal:
    if len(found.value) > 200:
        raise Bad("no confluent.type.Decimal")
    return _fitting(int.from_bytes(found.value, "big", signed=True), -found.scale, kind)


def _fitting(number: int, exponent: int, kind: str) -> Decimal:
    precision, scale = decimal_type(kind) or (0, 0)
    shift = exponent + scale
    unscaled, rest = number, 0
    if number and shift < 0:
        # The number has at most 500 digits.
        unscaled, rest = divmod(number, 10 ** min(-shift, 600))
    if rest or (number and shift > 600):
        raise Bad(f"does not fit {kind}")
    unscaled *= 10**shift if number and shift > 0 else 1
    if abs(unscaled) >= 10**precision:
        raise Bad(f"does not fit {kind}")
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _json_text(found: Any, _: str) -> str:
    return json.dumps(_plain(found), ensure_ascii=False, separators=(",", ":"))


def _plain(found: Any) -> Any:
    """Returns a Struct, a ListValue or a Value as Python's JSON."""
    name = found.DESCRIPTOR.name
    if name == "Struct":
        # Of entries with one key the last counts, whatever the others hold.
        last = {entry.key: entry.value for entry in found.fields}
        return {key: _plain(value) for key, value in last.items()}
    if name == "ListValue":
        return [_plain(value) for value in found.values]
    kind = found.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    value = getattr(found, kind)
    if kind in ("struct_value", "list_value"):
        return _plain(value)
    if kind == "number_value":
        if not math.isfinite(value):
            raise Bad(f"{value} in JSON")
        return int(value) if value == math.floor(value) and abs(value) < 10**21 else value
    return value


_SPECIAL: Mapping[tuple[str, str], Callable[[Any, str], Any]] = {
    ("google.protobuf.Timestamp", "timestamp"): _timestamp,
    ("google.type.Date", "date"): _date,
    ("google.type.Decimal", "decimal"): _decimal_of_text,
    ("confluent.type.Decimal", "decimal"): _decimal_of_bytes,
    **{(f"google.protobuf.{name}", "string"): _json_text for name in ("Struct", "Value", "ListValue")},
}
