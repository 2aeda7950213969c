"""Checks a table's columns against the rules of values: columns that a setting names, and what is left open. Raises
ConfigError for a column that a setting names and the table lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.fields import Choices, Columns, Field, ValueRules
from sink.decode.formats import ValueFormat
from sink.schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A setting of what values in columns of a type mean. `left_open` says what follows where it is not set."""

    setting: str
    kind: type[T.DataType]
    choices: Callable[[ValueRules], Choices[Any]]
    left_open: str


_MEANINGS = (
    _Meaning("time.unit", T.TimestampType, attrgetter("time_unit"), "a number in {} is a bad record. Texts are read."),
    _Meaning("date.unit", T.DateType, attrgetter("date_unit"), "a number in {} is a bad record. Texts are read."),
    _Meaning(
        "decimal.format", T.DecimalType, attrgetter("decimal_format"), "a text in {} is a bad record. Numbers are read."
    ),
)
_NAMED = 5
"""Columns that a sentence names."""


def require_columns(rules: ValueRules, schema: TableSchema, partition_time_field: str | None) -> None:
    """Raises ConfigError for a setting of one column that the table does not have, or has in another type."""
    # An element has the path of its array, and comes after it.
    columns = {field.path: field for field in reversed(Columns.of(schema.value_struct, rules).all_fields)}
    for meaning in _MEANINGS:
        for path, _ in meaning.choices(rules).by_path:
            counts = meaning.setting == "time.unit" and path == partition_time_field
            if not _is_of(columns.get(path), (meaning.kind, T.LongType, T.IntegerType) if counts else (meaning.kind,)):
                wanted = meaning.kind.typeName().upper()
                raise ConfigError(f"{meaning.setting}: {path!r} is not a column of type {wanted}. Use the name of one.")
    for path, _ in rules.names:
        if path not in columns:
            raise ConfigError(f"field.names: {path!r} is not a column. Use the name of one.")


def _is_of(field: Field | None, allowed: tuple[type[T.DataType], ...]) -> bool:
    """Whether a column, or what is in its arrays and maps, has one of the types."""
    while field is not None and isinstance(field.kind, (T.ArrayType, T.MapType)):
        field = field.element
    return field is not None and isinstance(field.kind, allowed)


def left_open(form: ValueFormat, schema: TableSchema) -> list[str]:
    """Returns a sentence for each setting that JSON records may need, and that is not set for each column."""
    if not form.name.startswith("json"):
        return []
    rules = form.rules
    fields = Columns.of(schema.value_struct, rules).all_fields
    sentences = []
    for meaning in _MEANINGS:
        paths = dict.fromkeys(field.path for field in fields if isinstance(field.kind, meaning.kind))
        undecided = [path for path in paths if meaning.choices(rules).at(path) is None]
        if undecided:
            more = f" and {len(undecided) - _NAMED} others" if len(undecided) > _NAMED else ""
            named = f"{', '.join(undecided[:_NAMED])}{more}"
            sentences.append(f"{meaning.setting} is not set: {meaning.left_open.format(named)}")
    return sentences
