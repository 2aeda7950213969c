"""The fields that decoders read for the columns of a table, each with what its type leaves open.

A type says what a column holds, but not what a number in a TIMESTAMP counts, how a text is a DECIMAL, and which field
is meant where the case of its name differs. `ValueRules` says that, by the settings; `Columns` carries it to each
field, nested ones too. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Literal, TypeVar

import pyarrow as pa
from pyspark.sql import types as T

from sink.schema.storage_types import storage_struct
from sink.schema.table_schema import arrow_schema

Unit = Literal["days", "s", "ms", "us", "ns"]
MICROS: Mapping[Unit, tuple[int, int]] = {
    "days": (86_400_000_000, 1),
    "s": (1_000_000, 1),
    "ms": (1000, 1),
    "us": (1, 1),
    "ns": (1, 1000),
}
"""Microseconds in a unit, as a fraction."""
Path = tuple[str, ...]
"""The names of a field and of those around it, the outermost first."""
DecimalFormat = Literal["numeric", "base64"]
Infinity = Literal["bad", "null", "bound"]
_Choice = TypeVar("_Choice")
_LONGEST_PATH = 1000
NO_PATH = "..."
"""The path of what is deeper than a path of so many characters: records may have long names on many levels."""


@dataclass(frozen=True, slots=True)
class Choices(Generic[_Choice]):
    """Values of a setting: one for all columns, and others by the path of a column (`order.lines.at`)."""

    default: _Choice | None = None
    by_path: tuple[tuple[str, _Choice], ...] = ()

    def at(self, path: str) -> _Choice | None:
        return dict(self.by_path).get(path, self.default)


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How the values of one field are read. None: the values that need it are bad."""

    time_unit: Unit | None = None
    date_unit: Unit | None = None
    decimal_format: DecimalFormat | None = None
    decimal_scale: int | None = None
    """The scale of texts in base64, if the message says it. None: that of the column."""
    infinity: Infinity = "bad"
    """A time or a day without an end becomes this, where the field may be null: see `Field.infinity`."""
    rounds: bool = False
    """Whether a number with more digits behind the point than its DECIMAL is rounded, half up."""


@dataclass(frozen=True, slots=True)
class ValueRules:
    """The rules of a sink."""

    time_unit: Choices[Unit] = Choices()
    date_unit: Choices[Unit] = Choices()
    decimal_format: Choices[DecimalFormat] = Choices()
    infinity: Infinity = "bad"
    rounds: bool = False
    exact_case: bool = False
    """Whether a field has the name of its column exactly. If not, the only field that differs in case will do."""
    names: tuple[tuple[str, Path], ...] = ()
    """The field of each column that has another name, by the column's path."""

    def at(self, path: str) -> FieldRule:
        """Returns the rule of a field."""
        units = self.time_unit.at(path), self.date_unit.at(path)
        return FieldRule(*units, self.decimal_format.at(path), infinity=self.infinity, rounds=self.rounds)


NO_RULES = ValueRules()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. `inner` are the fields of a struct, or the element of an array, or the value of a map."""

    name: str
    kind: T.DataType
    nullable: bool
    rule: FieldRule
    path: str
    """The path of its column. Elements and values have that of their array or map."""
    inner: tuple[Field, ...] = ()

    @property
    def element(self) -> Field:
        """The element of an array, or the value of a map."""
        return self.inner[0]

    @property
    def infinity(self) -> Infinity:
        """A time or a day without an end becomes this. It is bad in a field that may not be null."""
        return "bad" if self.rule.infinity == "null" and not self.nullable else self.rule.infinity


@dataclass(frozen=True)
class Columns:
    """The columns that a decoder fills, as fields of a record."""

    fields: tuple[Field, ...]
    exact_case: bool = False

    @classmethod
    def of(cls, struct: T.StructType, rules: ValueRules) -> Columns:
        return cls(tuple(_fields(struct, rules, "")), rules.exact_case)

    @cached_property
    def struct(self) -> T.StructType:
        return T.StructType([T.StructField(field.name, field.kind, field.nullable) for field in self.fields])

    @cached_property
    def stored_arrow(self) -> pa.Schema:
        """The columns in the types of the table."""
        return arrow_schema(storage_struct(self.struct))

    @cached_property
    def all_fields(self) -> tuple[Field, ...]:
        """All fields, nested ones too."""
        return tuple(_all(self.fields))

    @cached_property
    def size(self) -> int:
        """The number of all fields."""
        return len(self.all_fields)

    def with_rules_of(self, fields: tuple[Field, ...]) -> Columns:
        """Returns the columns with fields of the same names and types, which differ in their rules. Shares what follows
        from names and types: there may be other rules for each value."""
        columns = replace(self, fields=fields)
        for name in ("struct", "stored_arrow", "size"):
            columns.__dict__[name] = getattr(self, name)
        return columns


def _fields(struct: T.StructType, rules: ValueRules, parent: str) -> Iterator[Field]:
    for column in struct.fields:
        yield _field(column.name, column.dataType, column.nullable, rules, _path(parent, column.name))


def _path(parent: str, name: str) -> str:
    path = f"{parent}.{name}" if parent else name
    return path if parent != NO_PATH and len(path) <= _LONGEST_PATH else NO_PATH


def _field(name: str, kind: T.DataType, nullable: bool, rules: ValueRules, path: str) -> Field:
    inner: Sequence[Field] = ()
    if isinstance(kind, T.StructType):
        inner = [*_fields(kind, rules, path)]
    elif isinstance(kind, T.ArrayType):
        inner = [_field("element", kind.elementType, kind.containsNull, rules, path)]
    elif isinstance(kind, T.MapType):
        inner = [_field("value", kind.valueType, kind.valueContainsNull, rules, path)]
    return Field(name, kind, nullable, rules.at(path), path, tuple(inner))


def _all(fields: Sequence[Field]) -> Iterator[Field]:
    for inner in fields:
        yield inner
        yield from _all(inner.inner)
