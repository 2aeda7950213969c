"""Derives a table's new columns when records have other ones: pure.

Guarantee: every file that was written with the table's columns before is read rightly with those after, by Spark,
hudi-rs and DuckDB; no column is ever lost. So few changes are safe: a nullable column or field more, a column that may
be null by now, and of the widenings those that lose nothing: INT to BIGINT or DOUBLE, FLOAT to DOUBLE, DECIMAL to one
of more digits before the point. Within arrays, maps and structs no type widens: Spark 3.5 cannot read the older files
then. In a merge-on-read table no type changes at all, not by a field either: hudi-rs 0.5 cannot read the older log
files then. Raises Misfit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.ddl import to_ddl
from sink.schema.storage_types import storage_type
from sink.schema.warnings import OmittedField

_SHOWN = 60
_FIXED = "in a merge-on-read table, where no type can change, not even by Spark SQL: keep it, or fill a new table"


class Compatibility(Enum):
    """The names are those of schema registries and of Kafka Connect's sinks."""

    NONE = "NONE"
    """Keeps a column that cannot change safely: a record that does not fit it is a bad record."""
    BACKWARD = "BACKWARD"
    """The table's columns become what holds the records' too; what the records no longer have stays, and is null."""
    FORWARD = "FORWARD"
    """The table's columns stay as they are: what is new in records is left out, what they no longer have is null."""
    FULL = "FULL"
    """As BACKWARD, but no type changes: what was written before can be read with the columns of today, and the other
    way round."""


class SchemaConflict(ConfigError):
    """Columns that cannot become the table's."""


@dataclass(frozen=True)
class _Rules:
    compatibility: Compatibility
    on_read: bool
    left_out: Mapping[str, str]
    """Why there is no column, by the path in lower case."""
    reasons: list[str]


def evolved(
    table: T.StructType,
    wanted: T.StructType,
    compatibility: Compatibility,
    on_read: bool = False,
    left_out: Sequence[OmittedField] = (),
) -> T.StructType:
    """The table's columns with what is new in `wanted` behind them. `on_read`: of a merge-on-read table. `left_out`:
    what records have, too, and no column can hold; where the table has a column for it, it was another type before.

    Types are as declared in `wanted` where the table holds them so: a TINYINT of it is an INT there.
    """
    reasons: list[str] = []
    # Whose elements no column can hold has none itself.
    why = {field.path.rstrip("[]{}").lower(): field.reason for field in left_out}
    columns = _struct(table, wanted, _Rules(compatibility, on_read, why, reasons), "")
    if reasons:
        raise SchemaConflict(
            f"the records' columns cannot become the table's with schema.compatibility={compatibility.value}:"
            f" {'; '.join(reasons)}\n{_side_by_side(table, wanted, why)}"
        )
    return columns


def _side_by_side(table: T.StructType, wanted: T.StructType, left_out: Mapping[str, str]) -> str:
    """A line for each column; of many columns only for those that differ."""
    has, wants = _texts(table), _texts(wanted)
    wants |= {name: f"({left_out[name.lower()]})" for name in has if name not in wants and name.lower() in left_out}
    rows = [(name, has.get(name, "-"), wants.get(name, "-")) for name in {**has, **wants}]
    if len(rows) > _SHOWN:
        rows = [row for row in rows if row[1] != row[2]]
    rows = [("column", "in the table", "in the records"), *rows]
    wide = [max(len(row[at]) for row in rows) for at in range(2)]
    return "\n".join(
        f"{' ' if is_ == wants or name == 'column' else '!'} {name:{wide[0]}}  {is_:{wide[1]}}  {wants}"
        for name, is_, wants in rows
    )


def _texts(struct: T.StructType) -> dict[str, str]:
    return {field.name: to_ddl(T.StructType([field])).partition(" ")[2] for field in struct.fields}


def _struct(table: T.StructType, wanted: T.StructType, rules: _Rules, path: str) -> T.StructType:
    names_in_table = {field.name.lower(): field.name for field in table.fields}
    wanted_fields = {field.name: field for field in wanted.fields}
    fields = []
    for field in table.fields:
        other = wanted_fields.get(field.name)
        if other is not None:
            fields.append(_field(field, other, rules, f"{path}{field.name}"))
            continue
        if rules.compatibility is not Compatibility.NONE:
            rules.reasons.extend(_without(field, rules, f"{path}{field.name}"))
        fields.append(field)
    for field in wanted.fields if rules.compatibility is not Compatibility.FORWARD else ():
        if (name := names_in_table.get(field.name.lower())) is not None:
            if name != field.name:
                # Spark does not tell such names apart; records' fields are found by theirs.
                rules.reasons.append(f"{path}{field.name} is spelt {path}{name} in the table")
            continue
        if not field.nullable and rules.compatibility is not Compatibility.NONE:
            rules.reasons.append(f"{path}{field.name} is new and NOT NULL, and the table's rows have nothing for it")
        fields.append(T.StructField(field.name, field.dataType, True))
    return T.StructType(fields)


def _without(table: T.StructField, rules: _Rules, path: str) -> Iterator[str]:
    """Why the records' columns cannot do without this one."""
    if path.lower() in rules.left_out:
        has = table.dataType.simpleString().upper()
        yield f"{path} is {has} in the table, and no column in the records: {rules.left_out[path.lower()]}"
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
    inside = "." in path or path.endswith(("[]", "{}"))
    if rules.compatibility in (Compatibility.BACKWARD, Compatibility.NONE) and not inside and widens(table, wanted):
        return wanted
    if rules.compatibility is not Compatibility.FULL and widens(wanted, table):
        return table
    if rules.compatibility is not Compatibility.NONE:
        also = " (within another type, where none can widen)" if inside and widens(table, wanted) else ""
        rules.reasons.append(f"{_differ(path, table, wanted)}{also}")
    return table


def _differ(path: str, table: T.DataType, wanted: T.DataType) -> str:
    return f"{path} is {table.simpleString().upper()} in the table, {wanted.simpleString().upper()} in the records"


def widens(narrow: T.DataType, wide: T.DataType) -> bool:
    """Whether every value of the one is a value of the other, and readers know it."""
    if isinstance(storage_type(narrow), T.IntegerType):
        return isinstance(wide, (T.LongType, T.DoubleType))
    if isinstance(narrow, T.FloatType):
        return isinstance(wide, T.DoubleType)
    if isinstance(narrow, T.DecimalType) and isinstance(wide, T.DecimalType):
        return narrow.scale == wide.scale and narrow.precision <= wide.precision
    return False
