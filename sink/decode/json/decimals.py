"""Decimals of JSON: numbers, texts of a format that is set, and numbers that carry their scale. Raises Undecodable."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from pyspark.sql import types as T

from sink.decode.fields import Field
from sink.decode.json.reasons import Undecodable, mismatch, named, too_large
from sink.decode.json.text import FractionalNumber, JsonObject, WholeNumber

NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
EXACT = Context(prec=4000, Emax=10**9, Emin=-(10**9), traps=[InvalidOperation, Overflow, Inexact])
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANK = re.compile(r"[\x00-\x20]")
_LONGEST_SCALE = 6
_MOST_UNSCALED_BYTES = 1000


def exact(digits: str) -> Decimal:
    """Returns the number; an infinite one for digits beyond what is counted."""
    try:
        return EXACT.create_decimal(digits)
    except (InvalidOperation, Overflow, Inexact):
        return Decimal("inf")


def decimal_converter(kind: T.DecimalType, field: Field) -> Callable[[Any], Decimal]:
    fit = _fitting(kind, field.rule.rounds)
    scale = kind.scale if field.rule.decimal_scale is None else field.rule.decimal_scale

    def convert(value: Any) -> Decimal:
        if type(value) is JsonObject and sorted(name for name, _ in value) == ["scale", "value"]:
            return fit(_of_variable_scale(dict(value)), value)
        if type(value) is str:
            return fit(_decimal_of_text(value, field.rule.decimal_format, scale), value)
        if type(value) not in (WholeNumber, FractionalNumber) or value in NOT_FINITE:
            raise mismatch(value, kind)
        return fit(exact(value), value)

    return convert


def _fitting(kind: T.DecimalType, rounds: bool) -> Callable[[Decimal, Any], Decimal]:
    step = Decimal(1).scaleb(-kind.scale)
    context = Context(prec=kind.precision, rounding=ROUND_HALF_UP, Emax=EXACT.Emax, Emin=EXACT.Emin)
    context.traps[Inexact] = not rounds

    def fit(number: Decimal, value: Any) -> Decimal:
        try:
            return context.quantize(number, step)
        except Inexact:
            raise Undecodable(
                f"{named(value)} has more digits behind the point than {kind.simpleString()}. Set"
                " decimal.rounding=half_up, or give the column more."
            ) from None
        except (InvalidOperation, Overflow):
            raise too_large(value, kind) from None

    return fit


def _decimal_of_text(value: str, decimal_format: str | None, scale: int) -> Decimal:
    if decimal_format is None:
        raise Undecodable(
            f"{named(value)} where a decimal is needed, and nothing says how texts are decimals. Set decimal.format to"
            " numeric (digits) or base64 (Debezium's decimal.handling.mode=precise), or have the producer write"
            " numbers."
        )
    if decimal_format == "base64":
        return _unscaled(binary(value)).scaleb(-scale, EXACT)
    if not _DECIMAL.fullmatch(value):
        raise Undecodable(f"{named(value)} is not a decimal number, which decimal.format=numeric asks for")
    return exact(value)


def _of_variable_scale(members: Mapping[str, Any]) -> Decimal:
    """Reads Debezium's VariableScaleDecimal, which carries its scale."""
    scale, value = members["scale"], members["value"]
    if type(scale) is not WholeNumber or len(scale) > _LONGEST_SCALE or type(value) is not str:
        raise Undecodable("an object where a decimal is needed: scale is not a number, or value not base64")
    return _unscaled(binary(value)).scaleb(-int(scale), EXACT)


def _unscaled(content: bytes) -> Decimal:
    """Returns a number in two's complement, big-endian."""
    if len(content) > _MOST_UNSCALED_BYTES:
        raise Undecodable(f"a decimal of {len(content)} bytes")
    return Decimal(int.from_bytes(content, "big", signed=True))


def binary(value: Any) -> bytes:
    if type(value) is not str:
        raise mismatch(value, T.BinaryType())
    try:
        return base64.b64decode(_BLANK.sub("", value), validate=True)
    except (binascii.Error, ValueError):
        raise Undecodable(f"{named(value)} is not base64, in which JSON has bytes") from None
