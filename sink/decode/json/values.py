"""Decodes JSON values one at a time: the reference for the meaning of a record, and the slow path.

Guarantee: a value is what `docs/values.md` says, or bad. Nothing is guessed: a number that is a time, and a text that
is a decimal, need a unit or a format from the settings; a number keeps its digits as text, and becomes no other number
but the nearest FLOAT or DOUBLE. Members that fill no column are passed over. If a member occurs twice, the last one
counts and all must be valid. Raises Undecodable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from sink.decode import time_texts
from sink.decode.beginnings import LOOKED_AT, way_out
from sink.decode.fields import Columns, Field, Unit
from sink.decode.json.decimals import EXACT, NOT_FINITE, binary, decimal_converter, exact
from sink.decode.json.reasons import MissingValue, Undecodable, instead, mismatch, named, no_object, too_large
from sink.decode.json.text import FractionalNumber, JsonObject, WholeNumber, compact_text
from sink.decode.quoting import at, quotes
from sink.decode.records import TOMBSTONE

DEEPEST = 500
"""Levels of objects and arrays in a value."""
_RANGES: dict[type[T.DataType], tuple[int, int]] = {
    kind: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for kind, bits in ((T.ByteType, 8), (T.ShortType, 16), (T.IntegerType, 32), (T.LongType, 64))
}
_LONGEST_INTEGER = 20
_MOST_LAYOUTS = 100
"""Lists of member names whose columns are remembered."""
_TIME_UNITS: tuple[Unit, ...] = ("s", "ms", "us", "ns")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Converter = Callable[[Any], Any]


Reference = Callable[[bytes | None], dict[str, Any]]
"""Returns a dict with every column from the bytes of a value. Raises Undecodable."""


def record_decoder(columns: Columns) -> Reference:
    convert = _record(columns.fields, columns.exact_case)

    def decode(value: bytes | None) -> dict[str, Any]:
        found = None if value is None else document_of(value)
        if found is None:
            raise Undecodable(TOMBSTONE)
        if type(found) is not JsonObject:
            raise no_object(found)
        record: dict[str, Any] = convert(found)
        return record

    return decode


def document_of(value: bytes) -> Any:
    """Parses a value. Raises Undecodable."""
    try:
        parsed = document(value.decode())
    except UnicodeDecodeError as error:
        way = way_out(value[:LOOKED_AT], is_json=True) or ". Have the producer write UTF-8."
        raise Undecodable(f"not UTF-8{at('byte', error.start)}{way}") from None
    except json.JSONDecodeError as error:
        if not value.strip():
            raise Undecodable("the value is empty") from None
        if value.startswith(_BYTE_ORDER_MARK):
            raise Undecodable("it begins with a byte order mark (EF BB BF). Have the producer leave it out.") from None
        if error.msg == "Extra data":
            raise Undecodable(
                f"it goes on after one JSON document{at('character', error.pos)}. Have the producer send each document"
                " as a record."
            ) from None
        way = way_out(value[:LOOKED_AT], is_json=True)
        raise Undecodable(f"not one JSON document: {error.msg}{at('character', error.pos)}{way}") from None
    except RecursionError:
        parsed = None
    if (parsed is None and value.strip() != b"null") or (len(value) > 2 * DEEPEST and is_too_deep(parsed)):
        raise Undecodable(f"it is nested deeper than {DEEPEST} levels")
    return parsed


def document(text: str) -> Any:
    """Parses JSON, with NaN, Infinity and -Infinity. Raises JSONDecodeError and RecursionError."""
    return json.loads(
        text,
        parse_int=WholeNumber,
        parse_float=FractionalNumber,
        parse_constant=FractionalNumber,
        object_pairs_hook=JsonObject,
    )


def is_too_deep(parsed: Any) -> bool:
    """Whether a document has more levels than `DEEPEST`."""
    level = [parsed]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inner_of(outer) if isinstance(inner, list)]
    return bool(level)


def _inner_of(outer: list[Any]) -> Sequence[Any]:
    return [inner for _, inner in outer] if type(outer) is JsonObject else outer


def _converter(field: Field, exact_case: bool) -> Converter:
    kind = field.kind
    if isinstance(kind, T.StructType):
        return _struct(kind, field.inner, exact_case)
    if isinstance(kind, T.ArrayType):
        return _array(kind, _converter(field.element, exact_case))
    if isinstance(kind, T.MapType):
        return _map(kind, _converter(field.element, exact_case))
    if isinstance(kind, T.DecimalType):
        return decimal_converter(kind, field)
    if isinstance(kind, T.DateType):
        return _date(field)
    if isinstance(kind, T.TimestampType):
        return _timestamp(field)
    if type(kind) in _RANGES:
        return _integer(kind)
    return _SCALARS[type(kind)]


class _Converters(dict[str, Converter]):
    """The converters of fields, each made when it is first asked for."""

    def __init__(self, fields: Mapping[str, Field], exact_case: bool) -> None:
        self._fields, self._exact_case = fields, exact_case

    def __missing__(self, name: str) -> Converter:
        self[name] = converter = _converter(self._fields[name], self._exact_case)
        return converter


def _struct(kind: T.StructType, fields: Sequence[Field], exact_case: bool) -> Converter:
    convert = _record(fields, exact_case)

    def convert_object(value: Any) -> dict[str, Any]:
        if type(value) is not JsonObject:
            raise mismatch(value, kind)
        return convert(value)

    return convert_object


def _record(fields: Sequence[Field], exact_case: bool) -> Callable[[JsonObject], dict[str, Any]]:
    by_name = {field.name: field for field in fields}
    converters = _Converters(by_name, exact_case)
    folded = {} if exact_case else {name.lower(): name for name in by_name}
    empty = dict.fromkeys(by_name)
    required = [field.name for field in fields if not field.nullable]
    known: dict[tuple[str, ...], Mapping[str, str]] = {}

    def convert(value: JsonObject) -> dict[str, Any]:
        record: dict[str, Any] = empty.copy()
        names = tuple([name for name, _ in value])
        columns = known.get(names)
        if columns is None:
            columns = columns_of(names, by_name, folded)
            if len(known) < _MOST_LAYOUTS:
                known[names] = columns
        for name, inner in value:
            column = columns.get(name)
            if column is not None:
                try:
                    record[column] = None if inner is None else converters[column](inner)
                except Undecodable as error:
                    raise error.inside(column) from None
        for name in required:
            if record[name] is None:
                raise MissingValue("is NOT NULL, and it is null or missing", (name,))
        return record

    return convert


def columns_of(names: Sequence[str], columns: Mapping[str, object], folded: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the column of each member that fills one. A member has the column's name; or it is the only one that
    differs from it in case, and no other has the name. `folded` has the columns by their names in lower case; if it is
    empty, names have to be the same. Raises Undecodable where two members differ in case only."""
    filled = {name: name for name in names if name in columns}
    if len(filled) == len(columns) or not folded:
        return filled
    variants: dict[str, str] = {}
    for name in dict.fromkeys(names):
        column = folded.get(name.lower()) if name.isascii() else None
        if column is not None and column not in filled:
            if column in variants:
                raise Undecodable(
                    f"the fields {variants[column]!r} and {name!r} differ in case only. Name the column like one of"
                    " them, or set field.case=exact.",
                    (column,),
                )
            variants[column] = name
    return {**filled, **{name: column for column, name in variants.items()}}


def _array(kind: T.ArrayType, convert: Converter) -> Converter:
    def convert_all(value: Any) -> list[Any]:
        if type(value) is not list:
            raise mismatch(value, kind)
        if not kind.containsNull and None in value:
            raise Undecodable("its elements are NOT NULL, and one is null")
        return [None if inner is None else convert(inner) for inner in value]

    return convert_all


def _map(kind: T.MapType, convert: Converter) -> Converter:
    def convert_all(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not JsonObject:
            raise mismatch(value, kind)
        entries = {_string(key): None if inner is None else convert(inner) for key, inner in value}
        if not kind.valueContainsNull and None in entries.values():
            raise Undecodable("its values are NOT NULL, and one is null")
        return list(entries.items())

    return convert_all


def _integer(kind: T.DataType) -> Converter:
    low, high = _RANGES[type(kind)]

    def convert(value: Any) -> int:
        if type(value) is FractionalNumber and value not in NOT_FINITE:
            number = exact(value)
            if number != EXACT.to_integral_value(number):
                raise Undecodable(
                    f"{named(value)} is not whole, and {kind.simpleString()} is needed. Declare the column as DOUBLE or"
                    " DECIMAL."
                )
            if low <= number <= high:
                return int(number)
        elif type(value) is not WholeNumber:
            raise mismatch(value, kind)
        # Python refuses to parse more than 4,300 digits.
        elif len(value) <= _LONGEST_INTEGER and low <= int(value) <= high:
            return int(value)
        raise too_large(value, kind)

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise mismatch(value, T.BooleanType())
    return value


def _double(value: Any) -> float:
    return _nearest(value, float, T.DoubleType())


def _float(value: Any) -> float:
    # Rounds the digits as written to 32 bits; rounding to 64 bits first would round twice.
    return _nearest(value, lambda digits: pa.scalar(digits).cast(pa.float32()).as_py(), T.FloatType())


def _nearest(value: Any, parse: Callable[[str], float], kind: T.DataType) -> float:
    if type(value) in (str, FractionalNumber) and value in NOT_FINITE:
        return float(NOT_FINITE[value])
    if type(value) not in (WholeNumber, FractionalNumber):
        raise mismatch(value, kind)
    try:
        number = parse(str(value))
    except pa.ArrowInvalid:
        number = math.inf
    if math.isinf(number):
        raise too_large(value, kind)
    return number


def _string(value: Any) -> str:
    as_text = value if type(value) is str else compact_text(value)
    try:
        as_text.encode()
    except UnicodeEncodeError:
        raise Undecodable(
            "half a surrogate pair (\\ud800 to \\udfff), which UTF-8 cannot hold. Have the producer write whole pairs."
        ) from None
    return as_text


def _date(field: Field) -> Converter:
    units: tuple[Unit, ...] = ("days", *_TIME_UNITS)
    return _moment(field, field.rule.date_unit, units, "date.unit", time_texts.days, time_texts.days_of_number)


def _timestamp(field: Field) -> Converter:
    texts, numbers = time_texts.micros, time_texts.micros_of_number
    return _moment(field, field.rule.time_unit, _TIME_UNITS, "time.unit", texts, numbers)


def _moment(
    field: Field,
    unit: Unit | None,
    units: tuple[Unit, ...],
    setting: str,
    of_text: Callable[[str], int],
    of_number: Callable[[str, Unit], int],
) -> Converter:
    from_text, from_number = time_texts.limited(of_text, field), time_texts.limited(of_number, field)

    def convert(value: Any) -> int | None:
        is_number = type(value) in (WholeNumber, FractionalNumber) and value not in NOT_FINITE
        try:
            if type(value) is str:
                return from_text(value)
            if is_number and unit is not None:
                return from_number(value, unit)
        except ValueError as error:
            raise Undecodable(str(error)) from None
        if not is_number:
            raise mismatch(value, field.kind)
        raise Undecodable(
            f"{instead(value, field.kind)}, and nothing says what it counts. {_units(value, units, setting)}"
        )

    return convert


def _units(number: str, units: tuple[Unit, ...], setting: str) -> str:
    dates = time_texts.plausible(number, units) if quotes() else ""
    hint = f"; dates between 1970 and 2100: {dates}" if dates else ""
    return f"Set {setting} to one of {', '.join(units)}{hint}"


_SCALARS: dict[type[T.DataType], Converter] = {
    T.BooleanType: _boolean,
    T.FloatType: _float,
    T.DoubleType: _double,
    T.StringType: _string,
    T.BinaryType: binary,
}
