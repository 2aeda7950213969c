"""Why a JSON value cannot be a row of the table, in words. `errors.quote.values` says whether they quote the value."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from sink.decode.json_text import JsonObject
from sink.decode.quoting import quoted, quotes


class Undecodable(Exception):
    """A value is not a record of the schema: the text says why. The caller adds the coordinates."""


def mismatch(value: Any, kind: T.DataType) -> Undecodable:
    return Undecodable(f"{named(value)} where {kind.simpleString()} is needed")


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
