"""Decodes Avro records to columns, many records at once, from a writer's schema to the table's columns.

Guarantee: a value is what `docs/values.md` says, or bad. A record is read with the schema that wrote it; its fields
fill the columns of their names. A missing field is null, and a field without a column is skipped. A value that does not
fit its column fails the row. Raises SchemaMismatch if the writer's schema does not fit the columns, ConfigError if it
is not an Avro schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as T

from sink.decode.avro.decimals import is_variable_scale, read_variable_scale
from sink.decode.avro.steps import EMPTY_COST, Skips, Step, in_order, read_blocks, read_branches, span
from sink.decode.avro.values import Read, read_enums, read_nulls, simple_reader, way_out
from sink.decode.cursors import Cursors, Rows, as_map, offsets_after, scattered
from sink.decode.fields import Columns, Field
from sink.decode.json.reasons import Undecodable
from sink.decode.json.values import columns_of
from sink.decode.record_types import avro_type, require_type
from sink.decode.records import SchemaMismatch, UnfitSchema
from sink.schema.avro_types import AvroSchema, kind_of, parse_avro, type_label
from sink.schema.bounds import LARGEST, SchemaBounds, SchemaPlace
from sink.schema.table_schema import stored_type


class AvroReader:
    """Reads records of one writer's schema into the table's value columns.

    `types` are the full names of the records that land, none if nothing names them; None: nobody looks. With
    `takes_bare` a value that is not a record is that of the only column. Raises UnusableSchema for another type."""

    def __init__(
        self,
        writer: str,
        columns: Columns,
        references: Iterable[str] = (),
        bounds: SchemaBounds = LARGEST,
        types: Sequence[str] | None = None,
        takes_bare: bool = False,
    ) -> None:
        schema = parse_avro([*references, writer], bounds)
        record = schema.resolve(schema.root)
        if kind_of(record) != "record":
            if not takes_bare:
                raise UnfitSchema(f"it is a schema of {type_label(record)}, and one of a record is needed")
            record = {"type": "record", "fields": [{"name": columns.fields[0].name, "type": schema.root}]}
        elif types is not None:
            require_type(avro_type(record), types, columns)
        place = SchemaPlace.root(bounds)
        try:
            self._read_columns = _AvroCompiler(schema, columns.exact_case).columns_reader(record, columns.fields, place)
        except RecursionError:
            raise place.too_deep() from None

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        columns = self._read_columns(cursors, rows)
        reason = "bytes remain after the record: it was written with another schema"
        cursors.fail_where(rows, cursors.bytes_left(rows) > 0, reason)
        return columns


class _AvroCompiler:
    """Makes functions of a writer's types, which read values into columns."""

    def __init__(self, schema: AvroSchema, exact_case: bool) -> None:
        self._schema = schema
        self._exact_case = exact_case
        self._skips = Skips(schema)
        self._symbols: dict[str, pa.StringArray] = {}

    def columns_reader(
        self, record: Any, fields: Sequence[Field], place: SchemaPlace
    ) -> Callable[[Cursors, Rows], list[pa.Array]]:
        """Returns what reads records into the columns of `fields`."""
        columns = {field.name: field for field in fields}
        matched = self._matched(record, columns, place)
        steps: list[tuple[str, Step]] = []
        """The writer's fields in their order, with the name of the column; with no name for a field to skip."""
        for written in record["fields"]:
            name = matched.get(written["name"], "")
            inner = place.field(written["name"])
            step = self.reader(written["type"], columns[name], inner) if name else self._skips.skipper(written["type"])
            steps.append((name, step))
        for missing in (field for name, field in columns.items() if name not in matched.values()):
            if not missing.nullable:
                path = f"{place}.{missing.name}".lstrip(".")
                raise SchemaMismatch(path, "nothing", f"{missing.kind.simpleString()} NOT NULL")
            steps.append((missing.name, partial(read_nulls, stored_type(missing.kind))))
        return partial(_read_columns, steps, [*columns])

    def _matched(self, record: Any, columns: dict[str, Field], place: SchemaPlace) -> dict[str, str]:
        """Returns the column of each of the writer's fields that fills one."""
        folded = {} if self._exact_case else {name.lower(): name for name in columns}
        try:
            return dict(columns_of([written["name"] for written in record["fields"]], columns, folded))
        except Undecodable as error:
            raise UnfitSchema(f"record {place.path!r}: {error}" if place.path else str(error)) from None

    def reader(self, schema: Any, field: Field, place: SchemaPlace) -> Read:
        schema, kind = self._schema.resolve(schema), field.kind
        if isinstance(schema, list):
            return self._union_reader(schema, field, place)
        name = kind_of(schema)
        if name == "null":
            if not field.nullable:
                raise SchemaMismatch(place.path, "null", f"{kind.simpleString()} NOT NULL")
            return partial(read_nulls, stored_type(kind))
        if name == "record" and isinstance(kind, T.StructType):
            return partial(_read_structs, self.columns_reader(schema, field.inner, place), stored_type(kind))
        if name == "array" and isinstance(kind, T.ArrayType):
            item = self.reader(schema["items"], field.element, place.element())
            return partial(_read_arrays, item, self._cost_of(schema["items"], kind.elementType), stored_type(kind))
        if name == "map" and isinstance(kind, T.MapType):
            value = self.reader(schema["values"], field.element, place.value())
            return partial(_read_maps, value, self._cost_of(schema["values"], kind.valueType), stored_type(kind))
        if name == "enum" and isinstance(kind, T.StringType):
            return partial(read_enums, self._symbols_of(schema), field)
        if isinstance(kind, T.DecimalType) and is_variable_scale(schema):
            return partial(read_variable_scale, field)
        simple = simple_reader(schema, field)
        if simple is None:
            raise SchemaMismatch(place.path, type_label(schema), kind.simpleString(), way_out(schema, field))
        return simple

    def _symbols_of(self, schema: Any) -> pa.StringArray:
        """Returns the symbols of an enum as one column, however often it is used."""
        name = schema["name"]
        if name not in self._symbols:
            self._symbols[name] = pa.array(schema["symbols"], pa.string())
        return self._symbols[name]

    def _union_reader(self, schema: list[Any], field: Field, place: SchemaPlace) -> Read:
        """A branch that does not fit the column fails the rows with that branch."""
        branches: list[Read] = []
        refused: SchemaMismatch | None = None
        fits = False
        types = [self._schema.resolve(branch) for branch in schema]
        has_records = sum(kind_of(branch) == "record" for branch in types) > 1
        for branch in types:
            try:
                if has_records and isinstance(field.kind, T.StructType):
                    self._require_common_field(branch, field, place)
                branches.append(self.reader(branch, field, place.step()))
                fits = fits or kind_of(branch) != "null"
            except SchemaMismatch as error:
                refused = refused or error
                branches.append(partial(_refuse, stored_type(field.kind), str(error)))
        if refused is not None and not fits:
            raise refused
        return partial(_read_unions, branches, stored_type(field.kind))

    def _require_common_field(self, branch: Any, field: Field, place: SchemaPlace) -> None:
        """Refuses one of several records if it fills nothing of the column: it is a record of another kind."""
        columns = {inner.name: inner for inner in field.inner}
        if kind_of(branch) == "record" and not self._matched(branch, columns, place):
            raise UnfitSchema(f"field {place.path!r} is written as {branch['name']}, of which no field has a column")

    def _cost_of(self, schema: Any, kind: T.DataType) -> int:
        """Returns how many steps an item may take of those that a value may have."""
        return EMPTY_COST if self._skips.is_empty(schema) else _columns_in(kind)


def _read_columns(
    steps: Sequence[tuple[str, Step]], names: Sequence[str], cursors: Cursors, rows: Rows
) -> list[pa.Array]:
    """Takes all steps in their order. Returns the columns with these names."""
    columns: dict[str, Any] = {name: step(cursors, rows) for name, step in steps}
    return [columns[name] for name in names]


def _read_structs(
    read_columns: Callable[[Cursors, Rows], list[pa.Array]], kind: pa.StructType, cursors: Cursors, rows: Rows
) -> pa.Array:
    return pa.StructArray.from_arrays(read_columns(cursors, rows), fields=list(kind))


def _read_arrays(read_item: Read, cost: int, kind: pa.ListType, cursors: Cursors, rows: Rows) -> pa.Array:
    parts: list[tuple[Rows, pa.Array]] = []
    lengths = read_blocks(
        cursors, rows, lambda cursors, item_rows: parts.append((item_rows, read_item(cursors, item_rows))), cost
    )
    return pa.ListArray.from_arrays(offsets_after(lengths), in_order(parts, kind.value_type), type=kind)


def _read_maps(read_value: Read, cost: int, kind: pa.MapType, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads maps. If a key occurs twice, the last entry counts."""
    keys: list[tuple[Rows, pa.Array]] = []
    values: list[tuple[Rows, pa.Array]] = []

    def entry(cursors: Cursors, entry_rows: Rows) -> None:
        keys.append((entry_rows, cursors.utf8(entry_rows, *span(cursors, entry_rows))))
        values.append((entry_rows, read_value(cursors, entry_rows)))

    lengths: npt.NDArray[np.int64] = read_blocks(cursors, rows, entry, cost)
    return as_map(lengths, in_order(keys, pa.string()), in_order(values, kind.item_type), kind)


def _read_unions(branches: Sequence[Read], kind: pa.DataType, cursors: Cursors, rows: Rows) -> pa.Array:
    return scattered(len(rows), read_branches(cursors, rows, branches), kind)


def _refuse(kind: pa.DataType, reason: str, cursors: Cursors, rows: Rows) -> pa.Array:
    cursors.fail(rows, reason)
    return pa.nulls(len(rows), kind)


def _columns_in(kind: T.DataType) -> int:
    if isinstance(kind, T.StructType):
        return 1 + sum(_columns_in(field.dataType) for field in kind.fields)
    # The items of arrays and maps are counted where they are read.
    return 1
