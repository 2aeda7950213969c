"""Converts Avro records to Spark's types and back, by the rules of spark-avro and Hudi.

Guarantee: `avro_schema` returns the same schema as Hudi's converter (a test compares them). A column can hold all
values of its Avro type, but for decimals of more than 38 digits. Raises ConfigError for Avro types that no table column
can hold; with `warnings` they are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.schema.avro_types import AvroSchema, kind_of, logical_type, parse_avro, type_label
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace
from sink.schema.warnings import OmittedField, SchemaWarning

AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_PRECISION = 38
_SHOWN, _SHOWN_BRANCHES = 200, 10

_TO_AVRO: dict[type[T.DataType], Any] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
}
_FROM_AVRO: dict[tuple[str, str | None], type[T.DataType]] = {
    ("boolean", None): T.BooleanType,
    ("int", None): T.IntegerType,
    ("long", None): T.LongType,
    ("float", None): T.FloatType,
    ("double", None): T.DoubleType,
    ("string", None): T.StringType,
    ("string", "uuid"): T.StringType,
    ("fixed", "uuid"): T.StringType,
    ("enum", None): T.StringType,
    ("bytes", None): T.BinaryType,
    ("fixed", None): T.BinaryType,
    ("int", "date"): T.DateType,
    # Spark has no time of day: the column has the number of milliseconds or microseconds.
    ("int", "time-millis"): T.IntegerType,
    ("long", "time-micros"): T.LongType,
    **{
        ("long", f"{zone}timestamp-{unit}"): T.TimestampType
        for zone in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}
_READ_ONLY = ("timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos")
"""Logical types that a column reads and Hudi has columns of its own for."""
_WIDTHS: dict[type[T.DataType], int] = {T.IntegerType: 0, T.LongType: 1, T.FloatType: 2, T.DoubleType: 2}
_AS_TEXT = ("boolean", "int", "long", "float", "double", "string", "enum")
"""Types whose values have one text each, as JSON would write them."""
_WITHOUT_COLUMN = {
    "duration": "Avro's duration (months, days and milliseconds) cannot be a column. In schema.ddl it can be BINARY.",
}


def avro_schema(struct: T.StructType, table_name: str) -> str:
    """Returns the record `hoodie.<table>.<table>_record`; a nullable column is a union with null, its default."""
    name = re.sub(r"[^A-Za-z0-9_]", "__", re.sub(r"^[^A-Za-z_]", "__", table_name))
    return json.dumps(_to_avro(struct, f"{name}_record", f"hoodie.{name}"))


def _to_avro(kind: T.DataType, name: str, space: str) -> Any:
    if isinstance(kind, T.DecimalType):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{space}.{name}",
            "size": _decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if isinstance(kind, T.ArrayType):
        return {
            "type": "array",
            "items": _optional(_to_avro(kind.elementType, name, space), kind.containsNull),
        }
    if isinstance(kind, T.MapType):
        return {
            "type": "map",
            "values": _optional(_to_avro(kind.valueType, name, space), kind.valueContainsNull),
        }
    if isinstance(kind, T.StructType):
        fields = []
        for field in kind.fields:
            inner = _optional(_to_avro(field.dataType, field.name, f"{space}.{name}"), field.nullable)
            fields.append({"name": field.name, "type": inner} | ({"default": None} if field.nullable else {}))
        return {"type": "record", "name": name, "namespace": space, "fields": fields}
    return _TO_AVRO[type(kind)]


def _optional(avro: Any, nullable: bool) -> Any:
    return ["null", avro] if nullable else avro


def _decimal_bytes(precision: int) -> int:
    """Returns the least number of bytes whose two's complement holds every number of `precision` digits."""
    return (int("9" * precision).bit_length() + 8) // 8


def struct_of_avro(schema_json: str, bounds: SchemaBounds = LARGEST, of_table: bool = False) -> T.StructType:
    """Returns the columns of an Avro record in JSON.

    `of_table`: the schema is that of a table. Columns of types that the sink reads but does not write, like local
    timestamps, are refused.
    """
    return record_columns(parse_avro([schema_json], bounds), bounds, of_table=of_table)


def record_columns(
    schema: AvroSchema, bounds: SchemaBounds, warnings: list[SchemaWarning] | None = None, of_table: bool = False
) -> T.StructType:
    """Returns the columns of a record. A field that no column can hold is left out with a warning; without `warnings`
    it raises ConfigError. `of_table`: as in `struct_of_avro`."""
    record = schema.resolve(schema.root)
    if kind_of(record) != "record":
        raise ConfigError(
            f"the Avro schema is not a record, but {type_label(record)}. Give a record: its fields become the columns."
        )
    place = SchemaPlace.root(bounds)
    try:
        return _AvroWalk(schema, warnings, of_table).struct(record, place)
    except RecursionError:
        raise place.too_deep() from None


class _NoColumn(ConfigError):
    def __init__(self, place: SchemaPlace, reason: str) -> None:
        super().__init__(f"{str(place) or 'the record'}: {reason}")
        self.reason = reason


class _AlwaysNull(_NoColumn):
    """Nothing is lost without such a field."""

    def __init__(self, place: SchemaPlace) -> None:
        super().__init__(place, "it is always null")


class _AvroWalk:
    """Walks through the fields of a record, inner ones too."""

    def __init__(self, schema: AvroSchema, warnings: list[SchemaWarning] | None, of_table: bool) -> None:
        self._schema = schema
        self._warnings = warnings
        self._of_table = of_table
        self._enclosing: list[str] = []

    def struct(self, record: Mapping[str, Any], place: SchemaPlace) -> T.StructType:
        """Returns the fields that can be columns, without inner fields that cannot."""
        fields = []
        self._enclosing.append(record["name"])
        for field in record["fields"]:
            inner = place.field(field["name"])
            try:
                fields.append(T.StructField(field["name"], *self._column(field["type"], inner)))
            except _NoColumn as error:
                if self._warnings is None:
                    raise
                if isinstance(error, _AlwaysNull):
                    self._warnings.append(f"left out: {inner}: {error.reason}")
                else:
                    self._warnings.append(OmittedField(inner.path, error.reason))
        self._enclosing.pop()
        if not fields and not (self._warnings is not None and not place.path):
            raise _NoColumn(place, "it has no fields that can be columns. Parquet has no such columns.")
        return T.StructType(fields)

    def _column(self, schema: Any, place: SchemaPlace) -> tuple[T.DataType, bool]:
        """Returns the type of a column, and whether null is allowed."""
        if isinstance(schema, list):
            for _ in schema:
                place.step()
            branches = [branch for branch in schema if branch != "null"]
            kind = self._union(branches, place) if len(branches) != 1 else self._column(branches[0], place)[0]
            return kind, len(branches) < len(schema)
        if isinstance(schema, str) and schema in self._schema.named:
            if schema in self._enclosing:
                raise _NoColumn(place, f"{schema} contains itself, which no column can")
            place = place.step()
            schema = self._schema.named[schema]
        kind_name = kind_of(schema)
        if kind_name == "record":
            return self.struct(schema, place), False
        if kind_name == "array":
            return T.ArrayType(*self._column(schema["items"], place.element())), False
        if kind_name == "map":
            return T.MapType(T.StringType(), *self._column(schema["values"], place.value())), False
        if self._of_table and logical_type(schema) in _READ_ONLY:
            raise _NoColumn(place, f"Avro type {type_label(schema)} cannot be a column of a table")
        return _column_or_refusal(schema, place), False

    def _union(self, branches: list[Any], place: SchemaPlace) -> T.DataType:
        """Returns the type of a column that holds the values of all branches, which have no types inside."""
        if not branches:
            raise _AlwaysNull(place)
        types = [self._schema.resolve(branch) for branch in branches]
        labels = ", ".join(map(_branch_label, types[:_SHOWN_BRANCHES]))
        refusal = _NoColumn(
            place, f"the union [{labels}] cannot be a column. One type beside null, numbers, or texts and numbers can."
        )
        if self._of_table or any(kind_of(branch) in ("record", "array", "map") for branch in types):
            raise refusal
        kinds = [_column_or_refusal(branch, place) for branch in types]
        if all(kind == kinds[0] for kind in kinds):
            return kinds[0]
        if not all(map(_has_text, types)):
            raise refusal
        if all(type(kind) in _WIDTHS for kind in kinds):
            # Not every int is a FLOAT.
            return T.DoubleType() if max(_WIDTHS[type(kind)] for kind in kinds) == 2 else T.LongType()
        return T.StringType()


def _branch_label(schema: Any) -> str:
    return str(schema["name"])[:_SHOWN] if isinstance(schema, dict) and "name" in schema else type_label(schema)


def _has_text(schema: Any) -> bool:
    logical = logical_type(schema)
    return logical == "uuid" or (logical is None and kind_of(schema) in _AS_TEXT)


def simple_column(schema: Any) -> T.DataType | None:
    """Returns the type of a column that holds the values of a type without types inside; None if there is none."""
    if logical_type(schema) == "decimal":
        precision, scale = min(schema["precision"], MAX_PRECISION), schema["scale"]
        return T.DecimalType(precision, scale) if scale <= MAX_PRECISION else None
    column_type = _FROM_AVRO.get((kind_of(schema), logical_type(schema)))
    return None if column_type is None else column_type()


def _column_or_refusal(schema: Any, place: SchemaPlace) -> T.DataType:
    kind, logical = simple_column(schema), logical_type(schema)
    if kind is None and logical == "decimal":
        raise _NoColumn(place, f"{type_label(schema)} has more than {MAX_PRECISION} digits behind the point")
    if kind_of(schema) == "null":
        raise _AlwaysNull(place)
    if kind is None:
        raise _NoColumn(place, _WITHOUT_COLUMN[logical or kind_of(schema)])
    return kind
