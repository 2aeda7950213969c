"""Columns of another name than their field, by `field.names`.

A decoder reads fields by their names; `Projection` says which fields those are, and makes the columns of what was read.
A nested column lies within the field of its struct. Raises ConfigError where a field cannot be read as its columns want
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Flags, flags
from sink.decode.fields import Columns, Field, FieldRule, Path
from sink.decode.records import BadValue, Decoded, Decoder
from sink.schema.table_schema import stored_type

_Placed = tuple[Path, Field]
"""A column, and the path of its field within the field that is read around it."""


class ProjectedDecoder(Decoder):
    """Decodes the columns of a projection with a decoder for its source."""

    def __init__(self, projection: Projection, decoder: Decoder) -> None:
        self._projection = projection
        self._decoder = decoder

    def nulls(self, values: pa.BinaryArray) -> Flags:
        return self._decoder.nulls(values)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        decoded = self._decoder.decode(values)
        rows = self._projection.project(decoded.rows)
        positions = np.delete(np.arange(len(values)), [value.index for value in decoded.bad])
        missing: dict[int, str] = {}
        for field, column in zip(rows.schema, rows.columns, strict=True):
            if not field.nullable and column.null_count:
                reason = f"column {field.name!r} is NOT NULL, and its field is null or missing"
                missing |= dict.fromkeys(np.flatnonzero(flags(column.is_null())).tolist(), reason)
        if not missing:
            return Decoded(rows, decoded.bad)
        bad = [*decoded.bad, *(BadValue(int(positions[row]), reason) for row, reason in missing.items())]
        rows = rows.take(pa.array(np.delete(np.arange(len(rows)), list(missing))))
        return Decoded(rows, tuple(sorted(bad, key=lambda value: value.index)))


class Projection:
    """Reads `columns` from the fields that `names` has for the paths of some of them."""

    def __init__(self, columns: Columns, names: Mapping[str, Path]) -> None:
        self._columns = columns
        self._names = names
        self.source = Columns(_merged(self._placed(columns.fields, "", ())), columns.exact_case)
        """The fields that a decoder reads."""
        if not columns.exact_case:
            _require_distinct(self.source.fields)

    def project(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the columns of decoded fields."""
        fields = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
        return pa.RecordBatch.from_arrays(
            self._inner(fields, self._columns.fields, "", ()), schema=self._columns.stored_arrow
        )

    def _placed(self, fields: Iterable[Field], parent: str, base: Path) -> Iterator[_Placed]:
        """Yields the columns of a struct with their places in it. `base` is the path of the struct's own field."""
        for field in fields:
            source = self._source(field, parent, base)
            yield source[len(base) :], replace(field, inner=self._read(field, source))

    def _source(self, field: Field, parent: str, base: Path) -> Path:
        """Returns the path of a column's field."""
        source = self._names.get(field.path, (*base, field.name))
        if base and not field.nullable and len(source) > len(base) + 1:
            raise ConfigError(f"field.names: column {field.path!r} is NOT NULL in a struct. Let it be nullable.")
        if source[: len(base)] != base or len(source) == len(base):
            raise ConfigError(
                f"field.names: column {field.path!r} is inside of {parent!r}, and its field {'.'.join(source)!r} is not"
                f" inside of {'.'.join(base)!r}. Name a field there."
            )
        return source

    def _read(self, field: Field, source: Path) -> tuple[Field, ...]:
        if isinstance(field.kind, T.StructType):
            return _merged(self._placed(field.inner, field.path, self._base(field, source)))
        return tuple(_typed(replace(inner, inner=self._read(inner, source))) for inner in field.inner)

    def _base(self, field: Field, source: Path) -> Path:
        """Returns the path of a struct's field for the columns in it. A changed row's columns have their own paths."""
        return source if all(inner.path.startswith(f"{field.path}.") for inner in field.inner) else ()

    def _inner(self, struct: pa.StructArray, fields: Sequence[Field], parent: str, base: Path) -> list[pa.Array]:
        columns = []
        for field in fields:
            source = self._source(field, parent, base)
            columns.append(self._made(pc.struct_field(struct, list(source[len(base) :])), field, source))
        return columns

    def _made(self, column: pa.Array, field: Field, source: Path) -> pa.Array:
        """Returns a column as its field was read, with its own names."""
        kind = stored_type(field.kind)
        if column.type == kind:
            return column
        missing = column.is_null() if column.null_count else None
        if isinstance(field.kind, T.StructType):
            inner = self._inner(column, field.inner, field.path, self._base(field, source))
            return pa.StructArray.from_arrays(inner, fields=list(kind), mask=missing)
        if isinstance(field.kind, T.ArrayType):
            elements = self._made(column.values, field.element, source)
            return pa.ListArray.from_arrays(column.offsets, elements, type=kind, mask=missing)
        values = self._made(column.items, field.element, source)
        return pa.MapArray.from_arrays(column.offsets, column.keys, values, type=kind, mask=missing)


def _require_distinct(fields: Sequence[Field]) -> None:
    """Raises ConfigError for two fields of one struct that differ in case only."""
    by_lower: dict[str, str] = {}
    for field in fields:
        other = by_lower.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise ConfigError(
                f"field.names: the fields {other!r} and {field.name!r} differ in case only. Set field.case=exact."
            )
        _require_distinct(field.inner)


def _merged(placed: Iterable[_Placed]) -> tuple[Field, ...]:
    """Returns the fields of a struct that are read for columns at these places."""
    by_name: dict[str, list[_Placed]] = {}
    for path, field in placed:
        by_name.setdefault(path[0], []).append((path[1:], field))
    return tuple(_one(name, parts) for name, parts in by_name.items())


def _one(name: str, parts: Sequence[_Placed]) -> Field:
    """Returns the field that is read for all columns of it and in it."""
    whole = [replace(field, name=name) for path, field in parts if not path]
    deeper = [(path, field) for path, field in parts if path]
    first = whole[0] if whole else Field(name, T.StructType(), True, FieldRule(), name)
    kinds = {type(field.kind) for field in [first, *whole]} | ({T.StructType} if deeper else set())
    # Null is bad for all of them where it is for one.
    first = replace(first, nullable=all(field.nullable for field in [first, *whole]))
    if kinds == {T.StructType}:
        inner = [((child.name,), child) for field in whole for child in field.inner]
        return _typed(replace(first, inner=_merged([*inner, *deeper])))
    if kinds in ({T.ArrayType}, {T.MapType}):
        element = _one(first.element.name, [((), field.element) for field in whole])
        return _typed(replace(first, inner=(element,)))
    if len(kinds) > 1 or len({(field.kind.json(), field.rule) for field in whole}) > 1:
        paths = ", ".join(sorted({field.path for _, field in parts}))
        raise ConfigError(
            f"field.names: the field {name!r} would be read in more than one way, for the columns {paths}. Keep one."
        )
    return first


def _typed(field: Field) -> Field:
    """Returns a field whose type has the names of its inner fields."""
    if isinstance(field.kind, T.StructType):
        return replace(field, kind=Columns(field.inner).struct)
    if isinstance(field.kind, T.ArrayType):
        return replace(field, kind=T.ArrayType(field.element.kind, field.element.nullable))
    if isinstance(field.kind, T.MapType):
        return replace(field, kind=T.MapType(field.kind.keyType, field.element.kind, field.element.nullable))
    return field


def columns_of_fields(
    fields: T.StructType, names: Mapping[str, Path], parent: str = "", base: Path = ()
) -> T.StructType:
    """Returns the columns of fields whose types a registered schema gives: `names` has those of another name."""
    here = {path: source[len(base) :] for path, source in names.items() if path.rpartition(".")[0] == parent}
    columns = []
    for field in fields.fields:
        taken = [path for path, source in here.items() if source == (field.name,)]
        for path in taken or [f"{parent}.{field.name}" if parent else field.name]:
            kind = _type_of_fields(field.dataType, names, path, (*base, field.name))
            columns.append(T.StructField(path.rpartition(".")[2], kind, field.nullable))
    for path, source in here.items():
        if len(source) > 1 and (found := _type_at(fields, source)) is not None:
            inner = _type_of_fields(found, names, path, (*base, *source))
            columns.append(T.StructField(path.rpartition(".")[2], inner, True))
    return T.StructType(columns)


def _type_of_fields(kind: T.DataType, names: Mapping[str, Path], path: str, source: Path) -> T.DataType:
    if isinstance(kind, T.StructType):
        return columns_of_fields(kind, names, path, source)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_type_of_fields(kind.elementType, names, path, source), kind.containsNull)
    if isinstance(kind, T.MapType):
        values = _type_of_fields(kind.valueType, names, path, source)
        return T.MapType(kind.keyType, values, kind.valueContainsNull)
    return kind


def _type_at(fields: T.StructType, source: Path) -> T.DataType | None:
    kind: T.DataType = fields
    for name in source:
        if not isinstance(kind, T.StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind
