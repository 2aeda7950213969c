"""Decodes Avro's decimals: each value by its own size, whatever precision the writer's schema has.

Guarantee: that of `sink.decode.avro.columns`. A number that has more digits behind the point than its column is bad,
unless they are zeros or the rule of the column rounds. Raises nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from sink.decode.avro.steps import each, plain_integers, read_each_text, span
from sink.decode.cursors import Cursors, Rows
from sink.decode.decimals import DECIMAL_BYTES, exact_decimals
from sink.decode.fields import Field
from sink.decode.json.decimals import decimal_converter
from sink.decode.json.reasons import Undecodable
from sink.decode.quoting import quoted
from sink.schema.avro import MAX_PRECISION
from sink.schema.avro_types import kind_of, logical_type
from sink.schema.table_schema import stored_type

_MOST_BYTES = 1000
"""A longer number is bad: its digits would take seconds."""
_MOST_SCALE = 2500
"""More digits than a number of so many bytes has: what is further behind the point is nothing but a rest."""
_SHOWN_DIGITS = 60
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


def decimal_reader(schema: Any, field: Field) -> Callable[[Cursors, Rows], pa.Array] | None:
    """Returns what reads values into a DECIMAL; None if nothing says what they are."""
    name, logical = kind_of(schema), logical_type(schema)
    if logical == "decimal":
        return partial(_read_decimals, schema.get("size"), schema["scale"], field)
    if name in ("int", "long") and logical is None:
        return partial(_read_integers, name, field)
    if name == "string" and logical is None and field.rule.decimal_format is not None:
        assert isinstance(field.kind, T.DecimalType)
        return partial(read_each_text, decimal_converter(field.kind, field), field)
    return None


def decimal_text_reader(schema: Any, field: Field) -> Callable[[Cursors, Rows], pa.Array] | None:
    """Returns what reads decimals into a STRING, with all digits of the writer's scale."""
    scale = schema["scale"]
    return None if scale > _MOST_SCALE else partial(_read_texts, schema.get("size"), scale, field)


def is_variable_scale(schema: Any) -> bool:
    """Whether a type is Debezium's record of a decimal that carries its scale."""
    return (
        kind_of(schema) == "record"
        and schema["name"] == _VARIABLE_SCALE
        and [(field["name"], kind_of(field["type"])) for field in schema["fields"]]
        == [("scale", "int"), ("value", "bytes")]
    )


def read_variable_scale(field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    scales = plain_integers("int", field, cursors, rows).tolist()
    numbers = _contents(None, cursors, rows)
    fit = _fitting(field)
    pairs = [*zip(numbers, scales, strict=True)]
    return _column(each(lambda pair: fit(_number(pair[0]), pair[1]), pairs, field, cursors, rows), field.kind)


def _read_decimals(size: int | None, scale: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads big-endian two's complement with the writer's scale."""
    assert isinstance(field.kind, T.DecimalType)
    starts, lengths = span(cursors, rows, size)
    more = field.kind.scale - scale
    if 0 <= more < MAX_PRECISION:
        # Arrow does not see that a number with more digits than this overflows when it gets more behind the point.
        narrow = stored_type(field.kind) if not more else pa.decimal128(MAX_PRECISION - more, scale)
        column = exact_decimals(cursors.data, starts, lengths, narrow)
        if column is not None:
            with suppress(pa.ArrowInvalid):
                return column.cast(stored_type(field.kind))
    fit = _fitting(field)
    contents = cursors.binary(starts, lengths).to_pylist()
    return _column(each(lambda content: fit(_number(content), scale), contents, field, cursors, rows), field.kind)


def _read_integers(name: str, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    numbers, fit = plain_integers(name, field, cursors, rows).tolist(), _fitting(field)
    return _column(each(lambda number: fit(number, 0), numbers, field, cursors, rows), field.kind)


def _read_texts(size: int | None, scale: int, field: Field, cursors: Cursors, rows: Rows) -> pa.Array:
    contents = _contents(size, cursors, rows)
    return pa.array(each(lambda content: _text(_number(content), scale), contents, field, cursors, rows), pa.string())


def _contents(size: int | None, cursors: Cursors, rows: Rows) -> list[bytes]:
    contents: list[bytes] = cursors.binary(*span(cursors, rows, size)).to_pylist()
    return contents


def _number(content: bytes) -> int:
    if len(content) > _MOST_BYTES:
        raise ValueError(f"a decimal of {len(content):,} bytes")
    return int.from_bytes(content, "big", signed=True)


def _text(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    whole, behind = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if number < 0 else ''}{whole}{'.' if scale else ''}{behind}"


def _fitting(field: Field) -> Callable[[int, int], int]:
    """Returns a function from a number without its point, and its scale, to the same in the column's scale. It raises
    Undecodable."""
    kind = field.kind
    assert isinstance(kind, T.DecimalType)
    bound, own_scale = 10**kind.precision, kind.scale

    def fit(number: int, scale: int) -> int:
        unscaled, is_cut = _scaled(number, max(-_MOST_SCALE, min(_MOST_SCALE, own_scale - scale)))
        if is_cut and not field.rule.rounds:
            raise Undecodable(
                f"{_shown(number, scale)} has more digits behind the point than {kind.simpleString()}. Set"
                " decimal.rounding=half_up, or give the column more."
            )
        if abs(unscaled) >= bound:
            raise Undecodable(f"{_shown(number, scale)} does not fit {kind.simpleString()}")
        return unscaled

    return fit


def _column(unscaled: list[int | None], kind: T.DataType) -> pa.Array:
    """Returns a column of numbers without their point. A zero stands for a value that failed."""
    raw = b"".join((number or 0).to_bytes(DECIMAL_BYTES, "little", signed=True) for number in unscaled)
    return pa.Array.from_buffers(stored_type(kind), len(unscaled), [None, pa.py_buffer(raw)])


def _scaled(number: int, power: int) -> tuple[int, bool]:
    """Returns the number times ten to the power, rounded half up, and whether that is another number."""
    if power >= 0:
        return number * 10**power, False
    divisor = 10**-power
    quotient, rest = divmod(abs(number), divisor)
    rounded = quotient + (2 * rest >= divisor)
    return (-rounded if number < 0 else rounded), rest != 0


def _shown(number: int, scale: int) -> str:
    """Returns the number as reasons show it."""
    if abs(number) >= 10**_SHOWN_DIGITS or not 0 <= scale <= _SHOWN_DIGITS:
        return f"a number of {len(str(abs(number)))} digits and the scale {scale}"
    return quoted(number, f"the number {_text(number, scale)}", "a number")
