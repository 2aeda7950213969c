"""Why a JSON value cannot be a row of the table, in words. `errors.quote.values` says whether they quote the value."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T
from typing_extensions import Self

from sink.decode.json.text import FractionalNumber, JsonObject, WholeNumber
from sink.decode.quoting import quoted, quotes


class Undecodable(Exception):
    """A value is not a record of the schema: the text says why. The caller adds the coordinates.

    `path` has the names of the column that the value does not fit and of those around it, the outermost first; it is
    empty for the value as a whole. `needed` is the type of that column, if the value there is of another type.
    """

    def __init__(self, problem: str, path: tuple[str, ...] = (), needed: T.DataType | None = None) -> None:
        super().__init__(problem, path, needed)
        self.problem, self.path, self.needed = problem, path, needed

    def __str__(self) -> str:
        return f"column {self.column!r}: {self.problem}" if self.path else self.problem

    @property
    def column(self) -> str:
        return ".".join(self.path)

    def inside(self, column: str) -> Self:
        """Returns the error of a value that is in this column."""
        return type(self)(self.problem, (column, *self.path), self.needed)


class MissingValue(Undecodable):
    """A column that is NOT NULL has no value. `problem` continues the column's name."""

    def __str__(self) -> str:
        return f"column {self.column!r} {self.problem}"


def mismatch(value: Any, kind: T.DataType) -> Undecodable:
    way = "Have the producer write one, or declare the column as STRING, which takes every value"
    if isinstance(kind, T.BooleanType) and type(value) in (WholeNumber, FractionalNumber):
        way = "Declare the column as INT, or have the producer write true and false"
        way += " (Debezium for MySQL: TinyIntOneToBooleanConverter)"
    return Undecodable(f"{instead(value, kind)}. {way}.", needed=kind)


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
