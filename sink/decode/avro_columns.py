"""Decodes Avro records to columns, many records at once, from a writer's schema to the table's columns.

Guarantee: Avro's schema resolution by field name: numbers widen, string and bytes convert to each other, a decimal
keeps its value, a missing field is null, and a field without a column is skipped. Logical types are exact: no Python
float and no Python calendar is involved. A value that does not fit its column fails the row. Raises SchemaMismatch if
the writer's schema does not fit the columns, ConfigError if it is not an Avro schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.avro_values import LONG_MAX, Read, kind_of, read_nulls, simple_reader, span, type_label
from sink.decode.cursors import Cursors, Rows, as_map, joined, offsets_after, scattered
from sink.decode.records import SchemaMismatch
from sink.schema import stored_type

MOST_NESTED = 200
"""A nested value takes up to four Python frames, of a thousand."""
Step = Callable[[Cursors, Rows], object]
"""Moves each row past its next value: reads or skips it."""


class AvroReader:
    """Reads records of one writer's schema into the table's value columns."""

    def __init__(self, writer: str, target: T.StructType, references: Iterable[str] = ()) -> None:
        named_types: dict[str, Any] = {}
        for reference in references:
            _parsed(reference, named_types)
        schema = _parsed(writer, named_types)
        if kind_of(schema) != "record":
            raise SchemaMismatch("", type_label(schema), "a record")
        self._read_columns = _Compiler(named_types).columns_reader(schema, target, "")

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        columns = self._read_columns(cursors, rows)
        reason = "bytes remain after the record: it was written with another schema"
        cursors.fail_where(rows, cursors.bytes_left(rows) > 0, reason)
        return columns


def _parsed(schema: str, named_types: dict[str, Any]) -> Any:
    try:
        return parse_schema(json.loads(schema), named_types)
    except (ValueError, TypeError, KeyError, AttributeError, SchemaParseException, UnknownType) as error:
        raise ConfigError(f"the Avro schema is not valid ({type(error).__name__}: {error}). Correct it.") from None


class _Compiler:
    """Makes functions of a writer's types, which read or skip values. A type is skipped by one `_Skip`: it may contain
    itself."""

    def __init__(self, named_types: dict[str, Any]) -> None:
        self._named_types = named_types
        self._skipped: dict[str, _Skip] = {}
        self.depth = 0
        """The depth of nested values that are being skipped."""

    def resolve(self, schema: Any) -> Any:
        while isinstance(schema, str) and schema in self._named_types:
            schema = self._named_types[schema]
        if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            return self.resolve(schema["type"])
        return schema

    def columns_reader(self, schema: Any, target: T.StructType, path: str) -> Callable[[Cursors, Rows], list[pa.Array]]:
        """Returns what reads records into the columns of `target`."""
        columns = {column.name: column for column in target.fields}
        steps: list[tuple[str, Step]] = []
        """The writer's fields in their order, with the name of the column; with no name for a field to skip."""
        for field in schema["fields"]:
            column = columns.pop(field["name"], None)
            if column is None:
                steps.append(("", self.skipper(field["type"])))
            else:
                inner = f"{path}.{column.name}".lstrip(".")
                steps.append((column.name, self.reader(field["type"], column.dataType, column.nullable, inner)))
        for name, missing in columns.items():
            kind = missing.dataType
            if not missing.nullable:
                raise SchemaMismatch(f"{path}.{name}".lstrip("."), "nothing", f"{kind.simpleString()} NOT NULL")
            steps.append((name, partial(read_nulls, stored_type(kind))))
        return partial(_read_columns, steps, target.names)

    def reader(self, schema: Any, kind: T.DataType, nullable: bool, path: str) -> Read:
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return self._union_reader(schema, kind, nullable, path)
        name = kind_of(schema)
        if name == "null":
            if not nullable:
                raise SchemaMismatch(path, "null", f"{kind.simpleString()} NOT NULL")
            return partial(read_nulls, stored_type(kind))
        if name == "record" and isinstance(kind, T.StructType):
            return partial(_read_structs, self.columns_reader(schema, kind, path), stored_type(kind))
        if name == "array" and isinstance(kind, T.ArrayType):
            item = self.reader(schema["items"], kind.elementType, kind.containsNull, f"{path}[]")
            return partial(_read_arrays, item, stored_type(kind))
        if name == "map" and isinstance(kind, T.MapType):
            value = self.reader(schema["values"], kind.valueType, kind.valueContainsNull, f"{path}{{}}")
            return partial(_read_maps, value, stored_type(kind))
        simple = simple_reader(schema, kind)
        if simple is None:
            raise SchemaMismatch(path, type_label(schema), kind.simpleString())
        return simple

    def _union_reader(self, schema: list[Any], kind: T.DataType, nullable: bool, path: str) -> Read:
        """A branch that does not fit the column fails the rows with that branch."""
        branches: list[Read] = []
        refused: SchemaMismatch | None = None
        fits = False
        for branch in schema:
            try:
                branches.append(self.reader(branch, kind, nullable, path))
                fits = fits or kind_of(self.resolve(branch)) != "null"
            except SchemaMismatch as error:
                refused = refused or error
                branches.append(partial(_refuse, stored_type(kind), str(error)))
        if refused is not None and not fits:
            raise refused
        return partial(_read_unions, branches, stored_type(kind))

    def skipper(self, schema: Any) -> _Skip:
        schema = self.resolve(schema)
        key = json.dumps(schema, sort_keys=True, default=str)
        return self._skipped.setdefault(key, _Skip(self, schema))


class _Skip:
    """Steps over a value of any type. It is compiled when it first occurs."""

    def __init__(self, compiler: _Compiler, schema: Any) -> None:
        self._compiler = compiler
        self._schema = schema

    def __call__(self, cursors: Cursors, rows: Rows) -> None:
        if self._compiler.depth == MOST_NESTED:
            cursors.fail(rows, "a value is nested in itself too deeply to be skipped")
            return
        self._compiler.depth += 1
        self._step(cursors, rows)
        self._compiler.depth -= 1

    @cached_property
    def _step(self) -> Step:
        schema, skipper = self._schema, self._compiler.skipper
        if isinstance(schema, list):
            branches = [skipper(branch) for branch in schema]
            return lambda cursors, rows: _branch(cursors, rows, branches)
        name = kind_of(schema)
        if name == "record":
            return partial(_read_columns, [("", skipper(field["type"])) for field in schema["fields"]], ())
        if name == "array":
            item = skipper(schema["items"])
            return lambda cursors, rows: _blocks(cursors, rows, item)
        if name == "map":
            value = skipper(schema["values"])

            def entry(cursors: Cursors, rows: Rows) -> None:
                span(cursors, rows)
                value(cursors, rows)

            return lambda cursors, rows: _blocks(cursors, rows, entry)
        if name in ("string", "bytes"):
            return span
        if name in ("int", "long", "enum"):
            return Cursors.varints
        sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
        size = schema["size"] if name == "fixed" else sizes[name]
        return lambda cursors, rows: span(cursors, rows, size)


def _read_columns(
    steps: Sequence[tuple[str, Step]], names: Sequence[str], cursors: Cursors, rows: Rows
) -> list[pa.Array]:
    """Takes all steps in their order. Returns the columns with these names."""
    columns = {name: step(cursors, rows) for name, step in steps}
    return [columns[name] for name in names]


def _read_structs(
    read_columns: Callable[[Cursors, Rows], list[pa.Array]], kind: pa.StructType, cursors: Cursors, rows: Rows
) -> pa.Array:
    return pa.StructArray.from_arrays(read_columns(cursors, rows), fields=list(kind))


def _read_arrays(read_item: Read, kind: pa.ListType, cursors: Cursors, rows: Rows) -> pa.Array:
    parts: list[tuple[Rows, pa.Array]] = []
    lengths = _blocks(
        cursors, rows, lambda cursors, item_rows: parts.append((item_rows, read_item(cursors, item_rows)))
    )
    return pa.ListArray.from_arrays(offsets_after(lengths), _in_order(parts, kind.value_type), type=kind)


def _read_maps(read_value: Read, kind: pa.MapType, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads maps. If a key occurs twice, the last entry counts."""
    keys: list[tuple[Rows, pa.Array]] = []
    values: list[tuple[Rows, pa.Array]] = []

    def entry(cursors: Cursors, entry_rows: Rows) -> None:
        keys.append((entry_rows, cursors.utf8(entry_rows, *span(cursors, entry_rows))))
        values.append((entry_rows, read_value(cursors, entry_rows)))

    lengths = _blocks(cursors, rows, entry)
    return as_map(lengths, _in_order(keys, pa.string()), _in_order(values, kind.item_type), kind)


def _read_unions(branches: Sequence[Read], kind: pa.DataType, cursors: Cursors, rows: Rows) -> pa.Array:
    return scattered(len(rows), _branch(cursors, rows, branches), kind)


def _refuse(kind: pa.DataType, reason: str, cursors: Cursors, rows: Rows) -> pa.Array:
    cursors.fail(rows, reason)
    return pa.nulls(len(rows), kind)


def _branch(cursors: Cursors, rows: Rows, branches: Sequence[Callable[[Cursors, Rows], Any]]) -> list[tuple[Rows, Any]]:
    """Reads each row's branch. Returns the values of each branch with the positions of their rows."""
    chosen = cursors.zigzags(rows)
    cursors.fail_where(
        rows,
        (chosen < 0) | (chosen >= len(branches)),
        f"a union of {len(branches)} branches has none with the number in the record",
    )
    parts = []
    for number, branch in enumerate(branches):
        positions = np.flatnonzero(chosen == number)
        if len(positions):
            parts.append((positions, branch(cursors, rows[positions])))
    return parts


def _blocks(cursors: Cursors, rows: Rows, item: Callable[[Cursors, Rows], Any]) -> npt.NDArray[np.int64]:
    """Reads the items of an array or a map, one of each row at a time. Returns the number of items in each row.

    `item` gets the rows that have another item.
    """
    lengths = np.zeros(len(rows), np.int64)
    awaited = np.zeros(len(rows), np.int64)
    active = np.arange(len(rows))
    while len(active):
        between = active[awaited[active] == 0]
        if len(between):
            awaited[between] = _block_sizes(cursors, rows[between])
        active = active[(awaited[active] > 0) & ~cursors.failed[rows[active]]]
        if len(active):
            item(cursors, rows[active])
            lengths[active] += 1
            awaited[active] -= 1
    return lengths


def _block_sizes(cursors: Cursors, rows: Rows) -> npt.NDArray[np.int64]:
    """Reads the number of items in the next block: 0 at the end. After a negative count comes the block's size."""
    counts = cursors.zigzags(rows)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        cursors.varints(rows[sized])
        counts[sized] = -np.maximum(counts[sized], -LONG_MAX)
    beyond = counts > np.maximum(cursors.bytes_left(rows), 1)
    cursors.fail_where(rows, beyond, "a block claims more items than the record has bytes")
    counts[beyond] = 0
    return counts


def _in_order(parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Sorts items by row; they were read one of each row at a time."""
    if not parts:
        return pa.array([], kind)
    owners = np.concatenate([rows for rows, _ in parts])
    items = joined([values for _, values in parts], kind)
    return items if len(parts) == 1 else items.take(pa.array(np.argsort(owners, kind="stable")))
