"""Decodes JSON values for the auditor, with the standard library's parser. Raises Bad."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from functools import cache
from typing import Any

from sink.audit.decode.connect import is_envelope, is_event, outermost, rules_of
from sink.audit.decode.json_texts import Members, Number, depth, written
from sink.audit.decode.moments import (
    day_of_number,
    day_of_text,
    in_utc,
    limited,
    moment_of_number,
    moment_of_text,
    number_of,
)
from sink.audit.decode.rules import Bad, Rules, chosen, decimal_type, place

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_DEEPEST = 500
_DIGITS = frozenset("0123456789")
_WIDE = Context(prec=5000, Emax=10**12, Emin=-(10**12), rounding=ROUND_HALF_UP)
_COUNTED = Context(prec=4000, Emax=10**9, Emin=-(10**9), traps=[InvalidOperation, Overflow, Inexact])
_LARGEST_FLOAT = 2.0**128 - 2.0**104
_BEYOND_FLOAT = 2**128 - 2**103
"""The first number whose nearest FLOAT would be larger than the largest one."""
_PARSER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members)
Read = Callable[[Any], Any]
_Field = tuple[str, str, tuple[str, ...], str | None, Read, bool]
"""A field of a struct: name, path of its column, path and, if that is one, name of its member, the reader of a value
that is not null, and whether it may be null."""


def json_row(value: bytes | None, columns: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Returns the row of a value. `columns` is a struct as Spark writes it in JSON."""
    if value is None:
        raise Bad("a tombstone")
    found, rules = _payload(value, columns, rules)
    if not isinstance(found, Members):
        raise Bad("no object")
    row = _struct(found, columns, rules, "")
    if "op" in dict(found) and is_event(found, row, outermost(columns, rules)):
        raise Bad("a change event, and value.envelope is not set")
    return row


def json_key(key: bytes, columns: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Returns the columns of a key: an object, or the value of the only column alone."""
    found, rules = _payload(key, columns, rules)
    if isinstance(found, Members):
        return _struct(found, columns, rules, "")
    if len(columns["fields"]) != 1:
        raise Bad("no object")
    (field,) = columns["fields"]
    return {field["name"]: _value(found, field["type"], rules, field["name"])}


def is_null(value: bytes, columns: Mapping[str, Any], rules: Rules) -> bool:
    """Whether a value is null: JSON's, or the payload of an envelope."""
    try:
        return _payload(value, columns, rules)[0] is None
    except Bad:
        return False


def _payload(value: bytes, columns: Mapping[str, Any], rules: Rules) -> tuple[Any, Rules]:
    """Returns what an envelope is around, or the value, with the rules that hold for it."""
    found = _parsed(value)
    is_pair = isinstance(found, Members) and len(found) == 2
    if is_pair and is_envelope(found, outermost(columns, rules)):
        (_, schema), (_, found) = found
        rules = rules_of(schema, columns, rules)
    return found, rules


def _parsed(value: bytes) -> Any:
    try:
        text = value.decode("utf-8", "strict")
        if text.startswith("\ufeff"):
            raise Bad("a byte order mark")
        # Without the looks for white space around it, which take a third of the time.
        found, end = _PARSER.raw_decode(text) if text[:1] == "{" else (None, -1)
        if end != len(text):
            found = _PARSER.decode(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Bad(f"no JSON: {error}") from None
    if len(value) > 2 * _DEEPEST and depth(value) > _DEEPEST:
        raise Bad("nested too deeply")
    return found


def _value(found: Any, kind: Any, rules: Rules, path: str) -> Any:
    return None if found is None else _reader(kind, rules, path)(found)


def _reader(kind: Any, rules: Rules, path: str) -> Read:
    """Returns the reader of values that are not null, for the column of a path."""
    if not isinstance(kind, str):
        read = {"struct": _struct, "array": _array, "map": _map}[kind["type"]]
        return lambda found: read(found, kind, rules, path)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if decimal_type(kind) is not None:
        return lambda found: decimal_value(found, kind, rules, path)
    if kind in _BITS:
        bits = _BITS[kind]
        return lambda found: _integer(found, bits)
    if kind == "date":
        unit = chosen(rules.date_unit, path)
        return limited(lambda found: _day(found, unit), rules.infinity, kind)
    unit = chosen(rules.time_unit, path)
    return limited(lambda found: _moment(found, unit), rules.infinity, kind)


def _fields(kind: Mapping[str, Any], rules: Rules, path: str) -> list[_Field]:
    """Returns the fields of a struct, which are worked out once for the rules."""
    known, fields = rules.structs.get((id(kind), path), (None, []))
    if known is kind:
        return fields
    for field in kind["fields"]:
        name = field["name"]
        column = f"{path}.{name}" if path else name
        source = place(rules, column, path)
        member = source[0] if len(source) == 1 else None
        fields.append((name, column, source, member, _reader(field["type"], rules, column), field["nullable"]))
    rules.structs[id(kind), path] = kind, fields
    return fields


def _struct(found: Any, kind: Mapping[str, Any], rules: Rules, path: str) -> dict[str, Any]:
    if not isinstance(found, Members):
        raise Bad("no object")
    row: dict[str, Any] = {}
    members = dict(found)
    is_repeated = len(members) < len(found)
    for name, column, source, member, read, is_nullable in _fields(kind, rules, path):
        if not is_repeated and member in members:
            value = members[member]
            value = None if value is None else read(value)
        else:
            written = _fields_for(source, found, rules.exact_case)
            inner = [None if value is None else read(value) for value in written]
            value = inner[-1] if inner else None
        if value is None and not is_nullable:
            raise Bad(f"{column} is null, and NOT NULL")
        row[name] = value
    return row


def _fields_for(source: tuple[str, ...], found: Members, exact_case: bool) -> list[Any]:
    """Returns what a field has: more than one value where it is repeated, and then the last one counts."""
    outer, *deeper = source
    values = _members_for(outer, found, exact_case)
    for name in deeper:
        if any(value is not None and not isinstance(value, Members) for value in values):
            raise Bad("no object")
        inner = [None if value is None else _members_for(name, value, exact_case) for value in values]
        values = [value for each in inner for value in (each or [None])]
    return values


def _members_for(column: str, found: Members, exact_case: bool) -> list[Any]:
    same = [value for name, value in found if name == column]
    if same or exact_case:
        return same
    spelled = {name for name, _ in found if name.isascii() and name.lower() == column.lower()}
    if len(spelled) > 1:
        raise Bad(f"{sorted(spelled)} differ in case only")
    return [value for name, value in found if name in spelled]


def _array(found: Any, kind: Mapping[str, Any], rules: Rules, path: str) -> list[Any]:
    if not isinstance(found, list):
        raise Bad("no array")
    elements = [_value(value, kind["elementType"], rules, path) for value in found]
    if not kind["containsNull"] and any(value is None for value in elements):
        raise Bad("an element is null")
    return elements


def _map(found: Any, kind: Mapping[str, Any], rules: Rules, path: str) -> dict[str, Any]:
    if not isinstance(found, Members):
        raise Bad("no object")
    entries = {_text(name): _value(value, kind["valueType"], rules, path) for name, value in found}
    if not kind["valueContainsNull"] and any(value is None for value in entries.values()):
        raise Bad("a value is null")
    return entries


def _boolean(found: Any) -> bool:
    if found is True or found is False:
        return bool(found)
    raise Bad("no boolean")


def _integer(found: Any, bits: int) -> int:
    end = 1 << bits - 1
    if type(found) is Number and len(found) <= 18 and (found.isdigit() or found[1:].isdigit()):
        # JSON has no plus: what is before the digits is a minus.
        whole = int(found)
        if not -end <= whole < end:
            raise Bad(f"no whole number of {bits} bits")
        return whole
    number = _finite(found)
    if number.adjusted() > 20:
        raise Bad("too large")
    if number != number.to_integral_value(context=_WIDE) or not -(1 << bits - 1) <= int(number) < 1 << bits - 1:
        raise Bad(f"no whole number of {bits} bits")
    return int(number)


def _finite(found: Any) -> Decimal:
    """Returns the number as written."""
    _require_a_number(found)
    return _exact(found)


def _require_a_number(found: Any) -> None:
    if not isinstance(found, Number) or found in _NOT_FINITE:
        raise Bad("no number")


def _exact(digits: str) -> Decimal:
    try:
        return _COUNTED.create_decimal(digits) or Decimal(0)
    except (InvalidOperation, Overflow, Inexact):
        raise Bad("a number beyond what is counted") from None


def decimal_value(found: Any, kind: str, rules: Rules, path: str) -> Decimal:
    declared = decimal_type(kind)
    assert declared is not None
    precision, scale = declared
    if type(found) is Number:
        number = _finite(found)
    elif _is_text(found):
        number = _decimal_of_text(found, chosen(rules.decimal_format, path), rules.decimal_scale.get(path, scale))
    elif isinstance(found, Members) and sorted(name for name, _ in found) == ["scale", "value"]:
        own = dict(found)
        if not isinstance(own["scale"], Number) or not _is_whole(own["scale"]) or not _is_text(own["value"]):
            raise Bad("no decimal with its scale")
        number = Decimal(_unscaled(own["value"])).scaleb(-int(own["scale"]), _WIDE)
    else:
        number = _finite(found)
    if number and number.adjusted() > 40:
        raise Bad(f"does not fit {kind}")
    step, end = _bounds(precision, scale)
    rounded = number.quantize(step, context=_WIDE)
    if rounded != number and not rules.rounds:
        raise Bad(f"more digits behind the point than {kind}")
    if abs(rounded) >= end:
        raise Bad(f"does not fit {kind}")
    return rounded


@cache
def _bounds(precision: int, scale: int) -> tuple[Decimal, Decimal]:
    """Returns the step of a decimal's values, and the first number that is too large."""
    return Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)


def decimal_of(text: str, kind: str, rules: Rules, text_path: str | None = None) -> Decimal:
    """Returns the number that digits are in a column; those of a text, if it has the path of its column."""
    return decimal_value(Number(text) if text_path is None else text, kind, rules, text_path or "")


def _is_text(value: Any) -> bool:
    # Numbers are of a class of their own, which inherits that of texts.
    return type(value) is str


def _is_whole(number: str) -> bool:
    return set(number.removeprefix("-")) <= _DIGITS and len(number) <= 6


def _decimal_of_text(text: str, decimal_format: str | None, scale: int) -> Decimal:
    if decimal_format == "base64":
        return Decimal(_unscaled(text)).scaleb(-scale, _WIDE)
    if decimal_format != "numeric":
        raise Bad("a text, and decimal.format is not set")
    mantissa, e, exponent = text.replace("E", "e").partition("e")
    unsigned = mantissa[1:] if mantissa[:1] in ("+", "-") else mantissa
    whole, _, behind = unsigned.partition(".")
    power = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    if not set(whole + behind + power) <= _DIGITS or not whole + behind or (e and not power):
        raise Bad("no digits of a number")
    return _exact(text)


def _unscaled(text: str) -> int:
    content = _bytes(text)
    if len(content) > 1000:
        raise Bad("too long a decimal")
    return int.from_bytes(content, "big", signed=True)


def _double(found: Any) -> float:
    if isinstance(found, str) and found in _NOT_FINITE:
        return float(_NOT_FINITE[found])
    if not isinstance(found, Number):
        raise Bad("no number")
    number = float(found)
    if number in (float("inf"), float("-inf")):
        raise Bad("beyond DOUBLE")
    return number


def _float(found: Any) -> float:
    wide = _double(found)
    if wide != wide or wide in (float("inf"), float("-inf")) or not wide:
        return wide
    exact = Fraction(number_of(found))
    if abs(exact) >= _BEYOND_FLOAT:
        raise Bad("beyond FLOAT")
    (near,) = struct.unpack("<f", struct.pack("<f", max(-_LARGEST_FLOAT, min(_LARGEST_FLOAT, wide))))
    (bits,) = struct.unpack("<i", struct.pack("<f", near))
    around = [value for value in (_float_of(bits - 1), near, _float_of(bits + 1)) if value - value == 0]
    nearest = min(
        around, key=lambda value: (abs(Fraction(value) - exact), struct.unpack("<i", struct.pack("<f", value))[0] & 1)
    )
    return -0.0 if nearest == 0 and str(found).startswith("-") else float(nearest)


def _float_of(bits: int) -> float:
    try:
        (value,) = struct.unpack("<f", struct.pack("<i", bits))
    except struct.error:
        return float("nan")
    return float(value)


def _text(found: Any) -> str:
    text = found if _is_text(found) else written(found)
    if text.isascii():
        return str(text)
    try:
        text.encode("utf-8", "strict")
    except UnicodeEncodeError:
        raise Bad("half a surrogate pair") from None
    return str(text)


def _bytes(found: Any) -> bytes:
    if not _is_text(found):
        raise Bad("no text")
    bare = "".join(sign for sign in found if sign > " ")
    try:
        content = base64.b64decode(bare.encode("ascii"), validate=True)
    except ValueError:
        raise Bad("no base64") from None
    return content


def _day(found: Any, unit: str | None) -> Any:
    if _is_text(found):
        return day_of_text(found)
    _require_a_number(found)
    if unit is None:
        raise Bad("a number, and date.unit is not set")
    return day_of_number(found, unit)


def _moment(found: Any, unit: str | None) -> Any:
    if _is_text(found):
        return in_utc(moment_of_text(found))
    _require_a_number(found)
    if unit is None:
        raise Bad("a number, and time.unit is not set")
    return in_utc(moment_of_number(found, unit))


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "string": _text,
    "binary": _bytes,
}
