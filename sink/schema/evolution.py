"""Derives the new columns of a table from the columns of the records. Pure.

Guarantee: Spark, hudi-rs and DuckDB read older files correctly with the new columns, and no column is lost. So only
these changes are allowed: a new nullable column or field, a column that becomes nullable, and the widenings INT to
BIGINT or DOUBLE, FLOAT to DOUBLE, DECIMAL to more digits before the point, if they take no more bytes or readers are
set for it: Spark compares a filter with an older file's DECIMAL in the bytes of that file, and fails. Within arrays,
maps and structs no type widens, because Spark 3.5 could not read older files. In a merge-on-read table no type changes,
and no struct gets a field, because hudi-rs 0.5 could not read older log files. Raises IncompatibleSchema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.ddl import to_ddl
from sink.schema.storage_types import storage_type
from sink.schema.warnings import OmittedField, sentences, shown_path, shown_reason

_SHOWN = 60
"""Columns that an error shows side by side."""
_DECIMALS = (
    " (Spark's filters on the column would fail on older files: set spark.sql.parquet.filterPushdown.decimal=false for"
    " all readers, then schema.widen.decimals=true)"
)
_FIXED = "in a merge-on-read table no type can change, not even by Spark SQL: keep it, or fill a new table"


class Compatibility(Enum):
    """The names are those of schema registries and of Kafka Connect's sinks."""

    NONE = "NONE"
    """A column that cannot change safely stays: a record that does not fit it is a bad record."""
    BACKWARD = "BACKWARD"
    """The table's columns change so that they also hold the records. A column that records lack stays, and is null."""
    FORWARD = "FORWARD"
    """The table's columns stay: new fields of records are left out, columns that the records lack are null."""
    FULL = "FULL"
    """As BACKWARD, but no type changes: old and new records can each be read with the columns of the other."""


class IncompatibleSchema(ConfigError):
    """The columns of the records do not fit the table."""


@dataclass(frozen=True)
class _Rules:
    compatibility: Compatibility
    on_read: bool
    widens_decimals: bool
    left_out: Mapping[str, str]
    """Why a field has no column, by its path in lower case."""
    reasons: list[str]


def evolved(
    table: T.StructType,
    wanted: T.StructType,
    compatibility: Compatibility,
    on_read: bool = False,
    left_out: Sequence[OmittedField] = (),
    widens_decimals: bool = True,
) -> T.StructType:
    """Returns the table's columns, followed by the new ones in `wanted`. `on_read`: the table is merge-on-read.
    `widens_decimals`: a DECIMAL may take more bytes, because readers are set for it or because it was decided before.
    `left_out` are fields of the records that no column can hold; if the table has a column for one, its type changed.

    A type is as declared in `wanted` if the table stores it so: a TINYINT is an INT in the table.
    """
    reasons: list[str] = []
    # An array or map has no column if no column can hold its elements.
    omission_reasons = {field.path.rstrip("[]{}").lower(): field.reason for field in left_out}
    columns = _struct(table, wanted, _Rules(compatibility, on_read, widens_decimals, omission_reasons, reasons), "")
    if reasons:
        shown = "; ".join(sentences([shown_reason(reason) for reason in reasons]))
        raise IncompatibleSchema(
            f"the records' columns cannot become the table's with schema.compatibility={compatibility.value}:"
            f" {shown}\n{_side_by_side(table, wanted, omission_reasons)}"
        )
    return columns


def _side_by_side(table: T.StructType, wanted: T.StructType, left_out: Mapping[str, str]) -> str:
    """Returns a line for each column; if there are many, only for the first that differ."""
    in_table, in_records = _texts(table), _texts(wanted)
    in_records |= {
        name: f"({left_out[name.lower()]})" for name in in_table if name not in in_records and name.lower() in left_out
    }
    rows = [(name, in_table.get(name, "-"), in_records.get(name, "-")) for name in {**in_table, **in_records}]
    if len(rows) > _SHOWN:
        rows = [row for row in rows if row[1] != row[2]]
    more = f"\nand {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    # Each column of the text is as wide as its longest line.
    rows = [(shown_path(name), shown_path(before), shown_path(after)) for name, before, after in rows[:_SHOWN]]
    rows = [("column", "in the table", "in the records"), *rows]
    widths = [max(len(row[index]) for row in rows) for index in range(2)]
    lines = (
        f"{' ' if table_text == record_text or name == 'column' else '!'} {name:{widths[0]}}"
        f"  {table_text:{widths[1]}}  {record_text}"
        for name, table_text, record_text in rows
    )
    return "\n".join(lines) + more


def _texts(struct: T.StructType) -> dict[str, str]:
    return {field.name: to_ddl(T.StructType([field])).partition(" ")[2] for field in struct.fields}


def _struct(table: T.StructType, wanted: T.StructType, rules: _Rules, path: str) -> T.StructType:
    names_in_table = {field.name.lower(): field.name for field in table.fields}
    wanted_fields = {field.name: field for field in wanted.fields}
    fields = []
    for field in table.fields:
        wanted_field = wanted_fields.get(field.name)
        if wanted_field is not None:
            fields.append(_field(field, wanted_field, rules, f"{path}{field.name}"))
            continue
        if rules.compatibility is not Compatibility.NONE:
            rules.reasons.extend(_without(field, rules, f"{path}{field.name}"))
        fields.append(field)
    for field in wanted.fields if rules.compatibility is not Compatibility.FORWARD else ():
        if (name := names_in_table.get(field.name.lower())) is not None:
            if name != field.name:
                # Spark ignores case in names; the decoders do not.
                rules.reasons.append(f"{path}{field.name} is spelt {path}{name} in the table")
            continue
        if not field.nullable and rules.compatibility is not Compatibility.NONE:
            rules.reasons.append(f"{path}{field.name} is new and NOT NULL, and the table's rows have nothing for it")
        fields.append(T.StructField(field.name, field.dataType, True))
    return T.StructType(fields)


def _without(table: T.StructField, rules: _Rules, path: str) -> Iterator[str]:
    """Yields why the table cannot keep a column that the records lack."""
    if path.lower() in rules.left_out:
        table_type = table.dataType.simpleString().upper()
        yield f"{path} is {table_type} in the table, and no column in the records: {rules.left_out[path.lower()]}"
    elif not table.nullable:
        yield f"{path} is NOT NULL in the table, and the records do not have it"


def _field(table: T.StructField, wanted: T.StructField, rules: _Rules, path: str) -> T.StructField:
    kind = _type(table.dataType, wanted.dataType, rules, path)
    if rules.on_read and storage_type(kind) != table.dataType:
        if rules.compatibility is not Compatibility.NONE:
            rules.reasons.append(f"{_differ(path, table.dataType, wanted.dataType)} ({_FIXED})")
        kind = table.dataType
    nullable = table.nullable or (wanted.nullable and rules.compatibility is not Compatibility.FORWARD)
    if wanted.nullable and not nullable:
        rules.reasons.append(f"{path} is NOT NULL in the table, and may be null in records")
    return T.StructField(table.name, kind, nullable)


def _type(table: T.DataType, wanted: T.DataType, rules: _Rules, path: str) -> T.DataType:
    if isinstance(table, T.StructType) and isinstance(wanted, T.StructType):
        return _struct(table, wanted, rules, f"{path}.")
    if isinstance(table, T.ArrayType) and isinstance(wanted, T.ArrayType):
        inner = _type(table.elementType, wanted.elementType, rules, f"{path}[]")
        return T.ArrayType(inner, table.containsNull or wanted.containsNull)
    if isinstance(table, T.MapType) and isinstance(wanted, T.MapType):
        inner = _type(table.valueType, wanted.valueType, rules, f"{path}{{}}")
        return T.MapType(table.keyType, inner, table.valueContainsNull or wanted.valueContainsNull)
    if storage_type(wanted) == table:
        return wanted
    is_nested = "." in path or path.endswith(("[]", "{}"))
    may_widen = rules.widens_decimals or not _takes_more_bytes(table, wanted)
    is_followed = rules.compatibility in (Compatibility.BACKWARD, Compatibility.NONE)
    if is_followed and not is_nested and may_widen and widens(table, wanted):
        return wanted
    if rules.compatibility is not Compatibility.FULL and widens(wanted, table):
        return table
    if rules.compatibility is not Compatibility.NONE:
        note = ""
        if widens(table, wanted):
            is_a_setting = is_followed and not may_widen and not rules.on_read
            note = " (within another type, where none can widen)" if is_nested else _DECIMALS if is_a_setting else ""
        rules.reasons.append(f"{_differ(path, table, wanted)}{note}")
    return table


def _differ(path: str, table: T.DataType, wanted: T.DataType) -> str:
    return f"{path} is {table.simpleString().upper()} in the table, {wanted.simpleString().upper()} in the records"


def widens(narrow: T.DataType, wide: T.DataType) -> bool:
    """Returns whether the type `wide` holds every value of `narrow`, and readers convert it."""
    if isinstance(storage_type(narrow), T.IntegerType):
        return isinstance(wide, (T.LongType, T.DoubleType))
    if isinstance(narrow, T.FloatType):
        return isinstance(wide, T.DoubleType)
    if isinstance(narrow, T.DecimalType) and isinstance(wide, T.DecimalType):
        return narrow.scale == wide.scale and narrow.precision <= wide.precision
    return False


def _takes_more_bytes(narrow: T.DataType, wide: T.DataType) -> bool:
    if isinstance(narrow, T.DecimalType) and isinstance(wide, T.DecimalType):
        return _decimal_bytes(wide.precision) > _decimal_bytes(narrow.precision)
    return False


def _decimal_bytes(precision: int) -> int:
    """Returns how many bytes Parquet has for a number of so many digits and its sign."""
    largest: int = 10**precision
    return largest.bit_length() // 8 + 1
