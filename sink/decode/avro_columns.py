"""Decodes Avro records to columns, many records at once, from a writer's schema to the table's columns.

Guarantee: Avro's schema resolution by field name: numbers widen, string and bytes convert to each other, a decimal
keeps its value, a missing field is null, and a field without a column is skipped. Logical types are exact: no Python
float and no Python calendar is involved. A value that does not fit its column fails the row. Raises SchemaMismatch if
the writer's schema does not fit the columns, ConfigError if it is not an Avro schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.avro_values import LONG_MAX, Node, Null, kind_of, simple_node, span, type_label
from sink.decode.cursors import Cursors, Rows, as_map, joined, offsets_after, scattered
from sink.decode.records import SchemaMismatch
from sink.schema import stored_type

MOST_NESTED = 200
"""A nested value takes up to four Python frames, of a thousand."""
Step = Callable[[Cursors, Rows], object]


class AvroReader:
    """Reads records of one writer's schema into the table's value columns."""

    def __init__(self, writer: str, target: T.StructType, references: Iterable[str] = ()) -> None:
        named_types: dict[str, Any] = {}
        for reference in references:
            _parsed(reference, named_types)
        schema = _parsed(writer, named_types)
        if kind_of(schema) != "record":
            raise SchemaMismatch("", type_label(schema), "a record")
        self._record = _Record(_Compiler(named_types), schema, target, "")

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        columns = self._record.columns(cursors, rows)
        beyond = cursors.bytes_left(rows) > 0
        if beyond.any():
            cursors.fail(rows[beyond], "bytes remain after the record: it was written with another schema")
        return columns


def _parsed(schema: str, named_types: dict[str, Any]) -> Any:
    try:
        return parse_schema(json.loads(schema), named_types)
    except (ValueError, TypeError, KeyError, AttributeError, SchemaParseException, UnknownType) as error:
        raise ConfigError(f"the Avro schema is not valid ({type(error).__name__}: {error}). Correct it.") from None


class _Compiler:
    """Makes the nodes of a writer's types. A skipped type is compiled when it first occurs: it may contain itself."""

    def __init__(self, named_types: dict[str, Any]) -> None:
        self._named_types = named_types
        self._skipped: dict[str, Node] = {}
        self.depth = 0
        """The depth of nested values that are being skipped."""

    def resolve(self, schema: Any) -> Any:
        while isinstance(schema, str) and schema in self._named_types:
            schema = self._named_types[schema]
        if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            return self.resolve(schema["type"])
        return schema

    def reader(self, schema: Any, kind: T.DataType, nullable: bool, path: str) -> Node:
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return _Union(self, schema, kind, nullable, path)
        name = kind_of(schema)
        if name == "null":
            if not nullable:
                raise SchemaMismatch(path, "null", f"{kind.simpleString()} NOT NULL")
            return Null(stored_type(kind))
        if name == "record" and isinstance(kind, T.StructType):
            return _Record(self, schema, kind, path)
        if name == "array" and isinstance(kind, T.ArrayType):
            item = self.reader(schema["items"], kind.elementType, kind.containsNull, f"{path}[]")
            return _Array(item, kind)
        if name == "map" and isinstance(kind, T.MapType):
            value = self.reader(schema["values"], kind.valueType, kind.valueContainsNull, f"{path}{{}}")
            return _Map(value, kind)
        node = simple_node(schema, kind)
        if node is None:
            raise SchemaMismatch(path, type_label(schema), kind.simpleString())
        return node

    def skipper(self, schema: Any) -> Node:
        schema = self.resolve(schema)
        key = json.dumps(schema, sort_keys=True, default=str)
        node = self._skipped.get(key)
        if node is None:
            node = self._skipped[key] = _Skip(self, schema)
        return node


class _Skip(Node):
    """Steps over a value of any type."""

    def __init__(self, compiler: _Compiler, schema: Any) -> None:
        self._compiler = compiler
        self._schema = schema
        self._step: Step | None = None

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        self.skip(cursors, rows)
        return pa.nulls(len(rows))

    def skip(self, cursors: Cursors, rows: Rows) -> None:
        if not len(rows):
            return
        if self._compiler.depth == MOST_NESTED:
            cursors.fail(rows, "a value is nested in itself too deeply to be skipped")
            return
        if self._step is None:
            self._step = self._compiled()
        self._compiler.depth += 1
        self._step(cursors, rows)
        self._compiler.depth -= 1

    def _compiled(self) -> Step:
        schema, skipper = self._schema, self._compiler.skipper
        if isinstance(schema, list):
            branches = [skipper(branch).skip for branch in schema]
            return lambda cursors, rows: _branch(cursors, rows, branches)
        name = kind_of(schema)
        if name == "record":
            fields = [skipper(field["type"]) for field in schema["fields"]]

            def record(cursors: Cursors, rows: Rows) -> None:
                for field in fields:
                    field.skip(cursors, rows)

            return record
        if name == "array":
            item = skipper(schema["items"])
            return lambda cursors, rows: _blocks(cursors, rows, item.skip)
        if name == "map":
            value = skipper(schema["values"])

            def entry(cursors: Cursors, rows: Rows) -> None:
                span(cursors, rows)
                value.skip(cursors, rows)

            return lambda cursors, rows: _blocks(cursors, rows, entry)
        if name in ("string", "bytes"):
            return span
        if name in ("int", "long", "enum"):
            return Cursors.varints
        sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
        size = schema["size"] if name == "fixed" else sizes[name]
        return lambda cursors, rows: cursors.spans(rows, np.full(len(rows), size, np.int64))


class _Record(Node):
    def __init__(self, compiler: _Compiler, schema: Any, target: T.StructType, path: str) -> None:
        self._target = target
        self._fields: list[tuple[int | None, Node]] = []
        """The writer's fields in order: the number of the column, or None to skip the field, and its node."""
        column_numbers = {field.name: number for number, field in enumerate(target.fields)}
        for field in schema["fields"]:
            number = column_numbers.pop(field["name"], None)
            if number is None:
                self._fields.append((None, compiler.skipper(field["type"])))
            else:
                column = target.fields[number]
                inner = f"{path}.{column.name}".lstrip(".")
                self._fields.append((number, compiler.reader(field["type"], column.dataType, column.nullable, inner)))
        for name in column_numbers:
            if not target[name].nullable:
                raise SchemaMismatch(
                    f"{path}.{name}".lstrip("."), "nothing", f"{target[name].dataType.simpleString()} NOT NULL"
                )

    def columns(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        columns: list[pa.Array | None] = [None] * len(self._target.fields)
        for number, node in self._fields:
            if number is None:
                node.skip(cursors, rows)
            else:
                columns[number] = node.read(cursors, rows)
        return [
            pa.nulls(len(rows), stored_type(field.dataType)) if column is None else column
            for field, column in zip(self._target.fields, columns, strict=True)
        ]

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        columns = self.columns(cursors, rows)
        fields = [
            pa.field(field.name, column.type, field.nullable)
            for field, column in zip(self._target.fields, columns, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=fields)


class _Array(Node):
    def __init__(self, item: Node, kind: T.ArrayType) -> None:
        self._item = item
        self._element = pa.field("element", stored_type(kind.elementType), kind.containsNull)

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        parts: list[tuple[Rows, pa.Array]] = []
        lengths = _blocks(
            cursors,
            rows,
            lambda item_cursors, item_rows: parts.append((item_rows, self._item.read(item_cursors, item_rows))),
        )
        items = _in_order(parts, self._element.type)
        return pa.ListArray.from_arrays(offsets_after(lengths), items, type=pa.list_(self._element))


class _Map(Node):
    """A map. If a key occurs twice, the last entry counts."""

    def __init__(self, value: Node, kind: T.MapType) -> None:
        self._value = value
        self._type = stored_type(kind)

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        keys: list[tuple[Rows, pa.Array]] = []
        values: list[tuple[Rows, pa.Array]] = []

        def entry(entry_cursors: Cursors, entry_rows: Rows) -> None:
            keys.append((entry_rows, entry_cursors.utf8(entry_rows, *span(entry_cursors, entry_rows))))
            values.append((entry_rows, self._value.read(entry_cursors, entry_rows)))

        lengths = _blocks(cursors, rows, entry)
        names, items = _in_order(keys, pa.string()), _in_order(values, self._type.item_type)
        return as_map(lengths, names, items, self._type)


class _Union(Node):
    """A union. A branch that does not fit the column fails the rows with that branch."""

    def __init__(self, compiler: _Compiler, schema: list[Any], kind: T.DataType, nullable: bool, path: str) -> None:
        self._type = stored_type(kind)
        self._branches: list[Node] = []
        refused: SchemaMismatch | None = None
        fits = False
        for branch in schema:
            try:
                self._branches.append(compiler.reader(branch, kind, nullable, path))
                fits = fits or kind_of(compiler.resolve(branch)) != "null"
            except SchemaMismatch as error:
                refused = refused or error
                self._branches.append(_Refused(self._type, str(error)))
        if refused is not None and not fits:
            raise refused

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return scattered(len(rows), _branch(cursors, rows, [branch.read for branch in self._branches]), self._type)


class _Refused(Node):
    def __init__(self, kind: pa.DataType, reason: str) -> None:
        self._kind, self._reason = kind, reason

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        if len(rows):
            cursors.fail(rows, self._reason)
        return pa.nulls(len(rows), self._kind)


def _branch(cursors: Cursors, rows: Rows, branches: Sequence[Callable[[Cursors, Rows], Any]]) -> list[tuple[Rows, Any]]:
    """Reads each row's branch. Returns the values of each branch with the positions of their rows."""
    chosen = cursors.zigzags(rows)
    invalid = (chosen < 0) | (chosen >= len(branches))
    if invalid.any():
        cursors.fail(rows[invalid], f"a union of {len(branches)} branches has none with the number in the record")
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
    if beyond.any():
        cursors.fail(rows[beyond], "a block claims more items than the record has bytes")
        counts[beyond] = 0
    return counts


def _in_order(parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Sorts items by row; they were read one of each row at a time."""
    if not parts:
        return pa.array([], kind)
    owners = np.concatenate([rows for rows, _ in parts])
    items = joined([values for _, values in parts], kind)
    return items if len(parts) == 1 else items.take(pa.array(np.argsort(owners, kind="stable")))
