"""The rules of values, from the settings. Raises ConfigError for a column that a setting names and the table lacks."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.config import Settings
from sink.decode.fields import Choices, Columns, Field, ValueRules
from sink.schema import TableSchema


def value_rules(settings: Settings) -> ValueRules:
    return ValueRules(
        _choices(settings.time_unit),
        _choices(settings.date_unit),
        _choices(settings.decimal_format),
        rounds=settings.decimal_rounding == "half_up",
        exact_case=settings.field_case == "exact",
    )


def _choices(pairs: tuple[tuple[str, str], ...]) -> Choices[Any]:
    return Choices(dict(pairs).get(""), tuple(pair for pair in pairs if pair[0]))


def require_columns(settings: Settings, schema: TableSchema) -> None:
    """Raises ConfigError for a setting of one column that the table does not have, or has in another type."""
    fields = Columns.of(schema.value_struct, value_rules(settings)).all_fields
    # An element has the path of its array, and comes after it.
    kinds = {field.path: field for field in reversed(fields)}
    times = (T.TimestampType, *([T.LongType] if settings.partition_time_field in kinds else []))
    for setting, pairs, allowed in (
        ("time.unit", settings.time_unit, times),
        ("date.unit", settings.date_unit, (T.DateType,)),
        ("decimal.format", settings.decimal_format, (T.DecimalType,)),
    ):
        for path, _ in pairs:
            if path and not _is_of(kinds.get(path), allowed):
                wanted = " or ".join(kind.typeName().upper() for kind in allowed)
                raise ConfigError(f"{setting}: {path!r} is no column of type {wanted}. Use the name of one.")


def _is_of(field: Field | None, allowed: tuple[type[T.DataType], ...]) -> bool:
    """Whether a column, or what is in its arrays and maps, has one of the types."""
    while field is not None and isinstance(field.kind, (T.ArrayType, T.MapType)):
        field = field.element
    return field is not None and isinstance(field.kind, allowed)


_OPEN: tuple[tuple[str, type[T.DataType], str], ...] = (
    ("time.unit", T.TimestampType, "a number in {} is a bad record; texts are read"),
    ("date.unit", T.DateType, "a number in {} is a bad record; texts are read"),
    ("decimal.format", T.DecimalType, "a text in {} is a bad record; numbers are read"),
)
_NAMED = 5
"""Columns that a sentence names."""


def left_open(settings: Settings, schema: TableSchema) -> list[str]:
    """Returns a sentence for each setting that JSON records may need, and that is not set for each column."""
    if not settings.value_format.startswith("json"):
        return []
    rules = value_rules(settings)
    fields = Columns.of(schema.value_struct, rules).all_fields
    sentences = []
    for setting, kind, sentence in _OPEN:
        choices: Choices[Any] = getattr(rules, setting.replace(".", "_"))
        paths = dict.fromkeys(field.path for field in fields if isinstance(field.kind, kind))
        undecided = [path for path in paths if choices.at(path) is None]
        if undecided:
            more = f" and {len(undecided) - _NAMED} others" if len(undecided) > _NAMED else ""
            sentences.append(f"{setting} is not set: {sentence.format(', '.join(undecided[:_NAMED]) + more)}")
    return sentences
