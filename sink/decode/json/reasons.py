"""Why a JSON value cannot be a row of the table, in words. `errors.quote.values` says whether they quote the value."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from sink.decode.json.text import FractionalNumber, JsonObject, WholeNumber
from sink.decode.quoting import quoted, quotes


class Undecodable(Exception):
    """A value is not a record of the schema: the text says why. The caller adds the coordinates."""


def mismatch(value: Any, kind: T.DataType) -> Undecodable:
    way = "Have the producer write one, or declare the column as STRING, which takes every value"
    if isinstance(kind, T.BooleanType) and type(value) in (WholeNumber, FractionalNumber):
        way = "Declare the column as INT, or have the producer write true and false"
        way += " (Debezium for MySQL: TinyIntOneToBooleanConverter)"
    return Undecodable(f"{instead(value, kind)}. {way}.")


def instead(value: Any, kind: T.DataType) -> str:
    return f"{named(value)} where {kind.simpleString()} is needed"


def too_large(value: Any, kind: T.DataType) -> Undecodable:
    return Undecodable(f"{named(value)} does not fit {kind.simpleString()}. Declare a wider column, or STRING.")


def no_object(value: Any) -> Undecodable:
    """Tells what a whole value is, if it is not an object."""
    ways: dict[type, str] = {list: "send each element as a record", str: "write the object itself, not its text"}
    way = f". Have the producer {ways[type(value)]}." if type(value) in ways else ""
    return Undecodable(f"a JSON object is needed, found {named(value)}{way}")


def named(value: Any) -> str:
    # The length of a boolean would tell which it is.
    boolean = str(value).lower() if quotes() else "a boolean"
    names = {JsonObject: "an object", list: "an array", bool: boolean, type(None): "null"}
    if type(value) in names:
        return names[type(value)]
    if type(value) is str:
        return quoted(value, f"the string {_shorten(value)!r}", "a string")
    return quoted(value, f"the number {_shorten(value)}", "a number")


def _shorten(text: str) -> str:
    return str(text) if len(text) <= 60 else f"{text[:60]}..."
