"""Decodes Avro records for the auditor: fastavro reads the bytes, and the types are brought together here. Raises Bad.

The types of a schema and of the columns are compared before any value: a field that can never fill its column makes all
records of its schema bad.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any
from uuid import UUID

import fastavro

from sink.audit.decode.avro_bounds import bounded
from sink.audit.decode.avro_types import MOMENTS, WrittenType, bare_schema, written_type
from sink.audit.decode.json_values import decimal_of
from sink.audit.decode.moments import day_of_number, day_of_text, in_utc, limited, moment_of_number, moment_of_text
from sink.audit.decode.rules import Bad, Rules, chosen, decimal_type, place

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_SCALE_AND_VALUE = [("scale", "int"), ("value", "bytes")]
_LONGEST_DECIMAL = 1000
_LARGEST_SCALE = 2500
Reader = Callable[[Any], Any]
"""From a value as fastavro gives it to the value of a column."""


def avro_reader(
    texts: Sequence[str], columns: Mapping[str, Any], rules: Rules, takes_bare: bool = False
) -> Callable[[bytes | None], dict[str, Any]]:
    """Returns a function from a record to its row. The last text is its schema, the others are those referred to.
    `columns` is a struct as Spark writes it in JSON. With `takes_bare` a value that is not a record is that of the only
    column."""
    written = written_type(texts)
    if written.kind == "record":
        read = _struct(written, columns, rules, "")
    elif takes_bare and len(columns["fields"]) == 1:
        (field,) = columns["fields"]
        inner = _reader(written, field["type"], field["nullable"], rules, field["name"])

        def read(found: Any) -> dict[str, Any]:
            return {field["name"]: inner(found)}

    else:
        raise Bad("no record")
    bare, require_bounded = fastavro.parse_schema(bare_schema(written)), bounded(written)

    def row(value: bytes | None) -> dict[str, Any]:
        if not value:
            raise Bad("a tombstone, or empty")
        stream = io.BytesIO(value)
        try:
            if require_bounded is not None:
                require_bounded(value)
            found = fastavro.schemaless_reader(stream, bare, None)
        except (EOFError, IndexError, ValueError, RecursionError, OverflowError) as error:
            raise Bad(f"no record of the schema: {error!r}") from None
        if stream.read(1):
            raise Bad("bytes remain")
        decoded: dict[str, Any] = read(found)
        return decoded

    return row


def _reader(written: WrittenType, kind: Any, nullable: bool, rules: Rules, path: str) -> Reader:
    if written.kind == "union":
        return _union(written, kind, nullable, rules, path)
    if written.kind == "null":
        if not nullable:
            raise Bad(f"{path} is null, and NOT NULL")
        return lambda _: None
    if isinstance(kind, Mapping):
        inner = {"struct": ("record", _struct), "array": ("array", _array), "map": ("map", _map)}
        wanted, reader_of = inner[kind["type"]]
        if written.kind != wanted:
            raise _unfit(written, kind, path)
        return reader_of(written, kind, rules, path)
    if decimal_type(kind) is not None:
        return _decimal(written, kind, rules, path)
    if kind in ("date", "timestamp"):
        read = (_day if kind == "date" else _moment)(written, kind, rules, path)
        infinity = "bad" if rules.infinity == "null" and not nullable else rules.infinity
        return limited(read, infinity, kind)
    return _text(written, path) if kind == "string" else _plain(written, kind, path)


def _unfit(written: WrittenType, kind: Any, path: str) -> Bad:
    return Bad(f"{path}: {written.kind} ({written.logical}) does not fill {kind}")


def _union(written: WrittenType, kind: Any, nullable: bool, rules: Rules, path: str) -> Reader:
    records = [part for part in written.parts if part.kind == "record"]

    def of_branch(part: WrittenType) -> Reader:
        if len(records) > 1 and part in records and isinstance(kind, Mapping) and kind["type"] == "struct":
            _require_a_common_field(part, kind, rules, path)
        return _reader(part, kind, nullable, rules, path)

    return _by_branch(written, of_branch)


def _by_branch(union: WrittenType, of_branch: Callable[[WrittenType], Reader]) -> Reader:
    """Returns what reads a union: a branch that does not fit is bad where a record has it."""
    readers: list[Reader | Bad] = []
    for part in union.parts:
        try:
            readers.append(of_branch(part))
        except Bad as error:
            readers.append(error)
    refused = [reader for reader in readers if isinstance(reader, Bad)]
    fits = [part for part, reader in zip(union.parts, readers, strict=True) if not isinstance(reader, Bad)]
    if refused and all(part.kind == "null" for part in fits):
        raise refused[0]

    def read(found: dict[str, Any]) -> Any:
        ((number, value),) = found.items()
        reader = readers[int(number)]
        if isinstance(reader, Bad):
            raise reader
        return reader(value)

    return read


def _require_a_common_field(written: WrittenType, kind: Mapping[str, Any], rules: Rules, path: str) -> None:
    columns = [f"{path}.{field['name']}" for field in kind["fields"]]
    sources = [place(rules, column, path)[0] for column in columns]
    if all(_name_for(source, written.names, rules.exact_case) is None for source in sources):
        raise Bad(f"{written.name} fills nothing of {kind}")


def _struct(written: WrittenType, kind: Mapping[str, Any], rules: Rules, path: str) -> Reader:
    readers: dict[str, Reader] = {}
    for field in kind["fields"]:
        column = f"{path}.{field['name']}" if path else field["name"]
        reader = _placed(written, place(rules, column, path), field, rules, column)
        if reader is not None:
            readers[field["name"]] = reader
        elif not field["nullable"]:
            raise Bad(f"{column} is missing, and NOT NULL")

    def read(found: dict[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {field["name"]: None for field in kind["fields"]}
        return row | {column: reader(found) for column, reader in readers.items()}

    return read


def _placed(
    written: WrittenType, source: Sequence[str], field: Mapping[str, Any], rules: Rules, path: str
) -> Reader | None:
    """Returns what reads a column from the field of a record at the path `source`; None if it has none."""
    outer, *deeper = source
    name = _name_for(outer, written.names, rules.exact_case)
    if name is None:
        return None
    number = written.names.index(name)
    if deeper:
        within = _within(written.parts[number], deeper, field, rules, path)
    else:
        within = _reader(written.parts[number], field["type"], field["nullable"], rules, path)
    return lambda found: within(found[f"f{number}"])


def _within(written: WrittenType, source: Sequence[str], field: Mapping[str, Any], rules: Rules, path: str) -> Reader:
    if written.kind == "union":
        return _by_branch(written, lambda part: _within(part, source, field, rules, path))
    if written.kind == "null":
        return lambda _: None
    if written.kind != "record":
        raise Bad(f"{path}: {written.kind} has no fields")
    return _placed(written, source, field, rules, path) or (lambda _: None)


def _name_for(column: str, names: Sequence[str], exact_case: bool) -> str | None:
    if column in names:
        return column
    alike = [name for name in names if name.isascii() and name.lower() == column.lower()]
    if exact_case or not alike:
        return None
    if len(alike) > 1:
        raise Bad(f"{alike} differ in case only")
    return alike[0]


def _array(written: WrittenType, kind: Mapping[str, Any], rules: Rules, path: str) -> Reader:
    item = _reader(written.parts[0], kind["elementType"], kind["containsNull"], rules, path)
    return lambda found: [item(value) for value in found]


def _map(written: WrittenType, kind: Mapping[str, Any], rules: Rules, path: str) -> Reader:
    value = _reader(written.parts[0], kind["valueType"], kind["valueContainsNull"], rules, path)
    return lambda found: {_utf8(entry["key"]): value(entry["value"]) for entry in found}


def _utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise Bad("no UTF-8") from None


def _whole(written: WrittenType) -> Callable[[int], int]:
    """Checks that an Avro int has 32 bits."""

    def read(found: int) -> int:
        if written.kind == "int" and not -(2**31) <= found < 2**31:
            raise Bad(f"{found} is not an int")
        return found

    return read


def _plain(written: WrittenType, kind: Any, path: str) -> Reader:
    whole = _whole(written)
    if kind == "binary" and written.kind in ("string", "bytes", "fixed"):
        return bytes
    if kind == "boolean" and written.kind == "boolean":
        return _boolean
    if kind in _BITS and (written.kind == "int" or (written.kind, kind) == ("long", "long")):
        reach = 1 << (_BITS[kind] - 1)

        def read(found: int) -> int:
            if not -reach <= whole(found) < reach:
                raise Bad(f"{found} does not fit {kind}")
            return found

        return read
    if kind in ("float", "double"):
        if written.kind in ("int", "long"):
            nearest = _nearest_float if kind == "float" else float
            return lambda found: nearest(whole(found))
        if written.kind in ("float", kind):
            return float
    raise _unfit(written, kind, path)


def _boolean(found: bytes) -> bool:
    if found not in (b"\0", b"\1"):
        raise Bad("no boolean")
    return found == b"\1"


def _nearest_float(number: int) -> float:
    """Returns the nearest number of 24 binary digits, of two equally near the even one."""
    below = max(0, abs(number).bit_length() - 24)
    digits, rest = divmod(abs(number), 1 << below)
    twice = 2 * rest - (1 << below)
    digits += below > 0 and (twice > 0 or (twice == 0 and digits % 2 == 1))
    return float(digits << below) * (-1 if number < 0 else 1)


def _decimal(written: WrittenType, kind: str, rules: Rules, path: str) -> Reader:
    if written.logical == "decimal":
        return lambda found: decimal_of(f"{_unscaled(found)}e-{written.scale}", kind, rules)
    if written.kind in ("int", "long") and written.logical is None:
        whole = _whole(written)
        return lambda found: decimal_of(str(whole(found)), kind, rules)
    if (written.kind, written.name) == ("record", _VARIABLE_SCALE) and _parts(written) == _SCALE_AND_VALUE:
        scale = _whole(written.parts[0])
        return lambda found: decimal_of(f"{_unscaled(found['f1'])}e{-scale(found['f0'])}", kind, rules)
    if written.kind == "string" and written.logical is None and chosen(rules.decimal_format, path) is not None:
        return lambda found: decimal_of(_utf8(found), kind, rules, path)
    raise _unfit(written, kind, path)


def _parts(record: WrittenType) -> list[tuple[str, str]]:
    return [(name, part.kind) for name, part in zip(record.names, record.parts, strict=True)]


def _unscaled(content: bytes) -> int:
    if len(content) > _LONGEST_DECIMAL:
        raise Bad("too long a decimal")
    return int.from_bytes(content, "big", signed=True)


def _day(written: WrittenType, kind: str, rules: Rules, path: str) -> Reader:
    if written.kind == "string" and written.logical is None:
        return lambda found: day_of_text(_utf8(found))
    unit = "days" if written.logical == "date" else None if written.logical else chosen(rules.date_unit, path)
    digits = _digits_of(written)
    if digits is None or unit is None:
        raise _unfit(written, kind, path)
    return lambda found: day_of_number(digits(found), unit)


def _moment(written: WrittenType, kind: str, rules: Rules, path: str) -> Reader:
    if written.kind == "string" and written.logical is None:
        return lambda found: in_utc(moment_of_text(_utf8(found)))
    unit = MOMENTS.get(written.logical) if written.logical else chosen(rules.time_unit, path)
    digits = _digits_of(written)
    if digits is None or unit is None:
        raise _unfit(written, kind, path)
    return lambda found: in_utc(moment_of_number(digits(found), unit))


def _digits_of(written: WrittenType) -> Callable[[Any], str] | None:
    """Returns a function from a number to its digits; None if values are not numbers."""
    if written.kind in ("int", "long"):
        whole = _whole(written)
        return lambda found: str(whole(found))
    if written.kind not in ("float", "double"):
        return None

    def digits(found: float) -> str:
        if not isfinite(found):
            raise Bad(f"{found} is not a moment")
        return _shortest(found) if written.kind == "float" else _double(found)

    return digits


def _text(written: WrittenType, path: str) -> Reader:
    whole = _whole(written)
    if written.logical == "decimal" and written.scale <= _LARGEST_SCALE:
        return lambda found: _digits(_unscaled(found), written.scale)
    if (written.kind, written.logical) == ("fixed", "uuid"):
        return lambda found: str(UUID(bytes=found))
    if written.logical not in (None, "uuid") or written.kind not in _TEXTS:
        raise _unfit(written, "string", path)
    if written.kind in ("int", "long"):
        return lambda found: str(whole(found))
    if written.kind == "enum":
        return lambda found: _symbol(written.names, found)
    return _TEXTS[written.kind]


def _digits(number: int, scale: int) -> str:
    whole, behind = divmod(abs(number), 10**scale)
    point = f".{behind:0{scale}d}" if scale else ""
    return f"{'-' if number < 0 else ''}{whole}{point}"


def _symbol(symbols: Sequence[str], number: int) -> str:
    if not 0 <= number < len(symbols):
        raise Bad("no symbol of the enum")
    return symbols[number]


def _shortest(number: float) -> str:
    """Returns the fewest digits that give a FLOAT back."""
    if number != number or number in (float("inf"), float("-inf")):
        return _double(number)
    for digits in range(1, 10):
        near = float(f"{number:.{digits}g}")
        try:
            if struct.pack("<f", near) == struct.pack("<f", number):
                return repr(near)
        except OverflowError:
            continue
    raise AssertionError(number)


def _double(number: float) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(number), repr(number))


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "string": _utf8,
    "bytes": _utf8,
    "boolean": lambda found: str(_boolean(found)).lower(),
    "int": str,
    "long": str,
    "float": _shortest,
    "double": _double,
    "enum": str,
}
