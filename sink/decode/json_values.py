"""Decodes JSON values one at a time: the reference for the meaning of a record, and the slow path.

Guarantee: a record is valid if Spark's `from_json` with `FROM_JSON_OPTIONS` accepts it, and gets the same values. The
sink refuses some that Spark would change silently: a null or empty value, invalid UTF-8, half a surrogate pair, text
after the document, null in a NOT NULL column, 128 to 255 in a byte, a time of day without a day, a bare number of days
as date, Java's old zones `SystemV/...`. Unknown members are ignored. If a member occurs twice, the last one counts and
all must be valid. Voided by a session time zone other than UTC. Raises Undecodable.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation, Overflow
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from sink.decode import spark_times
from sink.decode.json_text import FractionalNumber, JsonObject, WholeNumber, compact_text
from sink.decode.quoting import quoted, quotes
from sink.decode.records import TOMBSTONE

FROM_JSON_OPTIONS = {"mode": "FAILFAST", "allowSingleQuotes": "false"}
"""The options of `from_json` for which this module is the reference; tests compare the two."""

_RANGES: dict[type[T.DataType], tuple[int, int]] = {
    kind: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for kind, bits in ((T.ByteType, 8), (T.ShortType, 16), (T.IntegerType, 32), (T.LongType, 64))
}
_SPECIAL = {
    "NaN": "nan",
    "+INF": "inf",
    "+Infinity": "inf",
    "Infinity": "inf",
    "INF": "inf",
    "-INF": "-inf",
    "-Infinity": "-inf",
}
# Numbers to Jackson, beside the three that Python's parser takes.
_PYTHON_INFINITE = {"+INF": "Infinity", "+Infinity": "Infinity", "-INF": "-Infinity"}
_STRING_OR_INFINITE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|(?<![+-])(?:[+-]INF|\+Infinity)', re.DOTALL)
_JAVA_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXACT = Context(prec=4096, rounding=ROUND_HALF_UP, Emax=10**9, Emin=-(10**9))
_BLANK = re.compile(r"[\x00-\x20]")
_LONG_MIN, _LONG_MAX = _RANGES[T.LongType]

Converter = Callable[[Any], Any]


class Undecodable(Exception):
    """A value is not a record of the schema: the text says why. The caller adds the coordinates."""


def record_decoder(struct: T.StructType) -> Callable[[bytes | None], dict[str, Any]]:
    """Returns a function from the bytes of a value to a dict with every column; it raises Undecodable."""
    convert = _struct(struct)

    def decode(value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Undecodable(TOMBSTONE)
        try:
            value_document = document(value.decode())
            if type(value_document) is not JsonObject:
                raise Undecodable(f"a JSON object is needed, found {_name(value_document)}")
            record: dict[str, Any] = convert(value_document)
        except UnicodeDecodeError as error:
            raise Undecodable(f"not UTF-8 at byte {error.start}") from None
        except json.JSONDecodeError as error:
            reason = (
                f"not one JSON document: {error.msg} at character {error.pos}"
                if value.strip()
                else "the value is empty"
            )
            raise Undecodable(reason) from None
        except RecursionError:
            raise Undecodable("nested too deeply") from None
        return record

    return decode


def document(text: str) -> Any:
    try:
        return _loads(text)
    except json.JSONDecodeError:
        # Only a document that does not parse is searched: hardly any has such a number.
        spelled = _STRING_OR_INFINITE.sub(lambda match: _PYTHON_INFINITE.get(match[0], match[0]), text)
        if spelled == text:
            raise
        return _loads(spelled)


def _loads(text: str) -> Any:
    return json.loads(
        text,
        parse_int=WholeNumber,
        parse_float=FractionalNumber,
        parse_constant=FractionalNumber,
        object_pairs_hook=JsonObject,
    )


def _converter(kind: T.DataType) -> Converter:
    if isinstance(kind, T.StructType):
        return _struct(kind)
    if isinstance(kind, T.ArrayType):
        return _array(kind)
    if isinstance(kind, T.MapType):
        return _map(kind)
    if isinstance(kind, T.DecimalType):
        return _decimal(kind)
    if type(kind) in _RANGES:
        return _integer(kind)
    return _SCALARS[type(kind)]


def _struct(kind: T.StructType) -> Converter:
    converters = {field.name: (_converter(field.dataType), field.nullable) for field in kind.fields}
    empty = dict.fromkeys(converters)
    required = [field.name for field in kind.fields if not field.nullable]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not JsonObject:
            raise _mismatch(value, kind)
        record: dict[str, Any] = empty.copy()
        for name, inner in value:
            converter = converters.get(name)
            if converter is not None:
                try:
                    record[name] = None if inner is None else converter[0](inner)
                except Undecodable as error:
                    raise Undecodable(_with_column(name, error)) from None
        for name in required:
            if record[name] is None:
                raise Undecodable(f"column {name!r} is NOT NULL, and it is null or missing")
        return record

    return convert


def _with_column(name: str, error: Undecodable) -> str:
    reason = str(error)
    return f"column '{name}.{reason[8:]}" if reason.startswith("column '") else f"column {name!r}: {reason}"


def _array(kind: T.ArrayType) -> Converter:
    convert = _converter(kind.elementType)

    def convert_all(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _mismatch(value, kind)
        if not kind.containsNull and None in value:
            raise Undecodable("its elements are NOT NULL, and one is null")
        return [None if inner is None else convert(inner) for inner in value]

    return convert_all


def _map(kind: T.MapType) -> Converter:
    convert = _converter(kind.valueType)

    def convert_all(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not JsonObject:
            raise _mismatch(value, kind)
        entries = {_string(key): None if inner is None else convert(inner) for key, inner in value}
        if not kind.valueContainsNull and None in entries.values():
            raise Undecodable("its values are NOT NULL, and one is null")
        return list(entries.items())

    return convert_all


def _integer(kind: T.DataType) -> Converter:
    low, high = _RANGES[type(kind)]

    def convert(value: Any) -> int:
        if type(value) is not WholeNumber:
            raise _mismatch(value, kind)
        # Too long for any integer column. Python refuses to parse more than 4,300 digits.
        number = int(value) if len(value) <= 20 else high + 1
        if not low <= number <= high:
            raise Undecodable(f"{_number(value)} does not fit {kind.simpleString()}")
        return number

    return convert


def _decimal(kind: T.DecimalType) -> Converter:
    step = Decimal(1).scaleb(-kind.scale)
    # It refuses a number that has more digits at this scale.
    fitting = Context(prec=kind.precision, rounding=ROUND_HALF_UP, Emax=_EXACT.Emax, Emin=_EXACT.Emin)

    def convert(value: Any) -> Decimal:
        if type(value) not in (WholeNumber, FractionalNumber, str):
            raise _mismatch(value, kind)
        digits = value.replace(",", "") if type(value) is str else value
        if not _JAVA_DECIMAL.fullmatch(digits):
            raise Undecodable(f"{quoted(value, repr(_shorten(value)))} is not a decimal number")
        try:
            return fitting.quantize(_EXACT.create_decimal(digits), step)
        except (InvalidOperation, Overflow):
            raise Undecodable(f"{_number(value)} does not fit {kind.simpleString()}") from None

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _mismatch(value, T.BooleanType())
    return value


def _float(value: Any) -> float:
    if type(value) is str and value in _SPECIAL:
        return float(_SPECIAL[value])
    if type(value) not in (WholeNumber, FractionalNumber):
        raise _mismatch(value, T.DoubleType())
    return float(value)


def _float32(value: Any) -> float:
    """Rounds the digits as written to 32 bits; rounding to 64 bits first would round twice."""
    number = _float(value)
    if math.isfinite(number):
        try:
            single: float = pa.scalar(str(value)).cast(pa.float32()).as_py()
        except pa.ArrowInvalid:
            return math.copysign(math.inf, number)
        return single
    return number


def _string(value: Any) -> str:
    as_text = value if type(value) is str else compact_text(value)
    try:
        as_text.encode()
    except UnicodeEncodeError:
        raise Undecodable("half a surrogate pair (\\ud800 to \\udfff), which UTF-8 cannot hold") from None
    return as_text


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise _mismatch(value, T.BinaryType())
    try:
        return base64.b64decode(_BLANK.sub("", value), validate=True)
    except (binascii.Error, ValueError):
        raise Undecodable("not base64") from None


def _date(value: Any) -> int:
    if type(value) is not str:
        raise _mismatch(value, T.DateType())
    try:
        return spark_times.days(value)
    except ValueError as error:
        raise Undecodable(str(error)) from None


def _timestamp(value: Any) -> int:
    if type(value) is WholeNumber and len(value) <= 20:
        micros = int(value) * 1_000_000
        if _LONG_MIN <= micros <= _LONG_MAX:
            return micros
    if type(value) is not str:
        raise _mismatch(value, T.TimestampType())
    try:
        return spark_times.micros(value)
    except ValueError as error:
        raise Undecodable(str(error)) from None


_SCALARS: dict[type[T.DataType], Converter] = {
    T.BooleanType: _boolean,
    T.FloatType: _float32,
    T.DoubleType: _float,
    T.StringType: _string,
    T.BinaryType: _binary,
    T.DateType: _date,
    T.TimestampType: _timestamp,
}


def _mismatch(value: Any, kind: T.DataType) -> Undecodable:
    return Undecodable(f"{_name(value)} where {kind.simpleString()} is needed")


def _name(value: Any) -> str:
    # The length of a boolean would tell which it is.
    boolean = str(value).lower() if quotes() else "a boolean"
    names = {JsonObject: "an object", list: "an array", bool: boolean, type(None): "null"}
    if type(value) in names:
        return names[type(value)]
    if type(value) is str:
        return quoted(value, f"the string {_shorten(value)!r}", "a string")
    return quoted(value, f"the number {_shorten(value)}", "a number")


def _number(value: str) -> str:
    return quoted(value, _shorten(value), "a number")


def _shorten(text: str) -> str:
    return str(text) if len(text) <= 60 else f"{text[:60]}..."
