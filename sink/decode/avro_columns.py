"""Decodes Avro records to columns, many records at once, from a writer's schema to the table's columns.

Guarantee: Avro's schema resolution by field name: numbers widen, string and bytes convert to each other, a decimal
keeps its value, a missing field is null, and a field without a column is skipped. Logical types are exact: no Python
float and no Python calendar is involved. A value that does not fit its column fails the row. Raises SchemaMismatch if
the writer's schema does not fit the columns, ConfigError if it is not an Avro schema.
"""

from __future__ import annotations

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
from sink.schema.bounds import LARGEST, Place, SchemaBounds

_PARSED = "__fastavro_parsed"
_SHOWN = 500
_FEW_BRANCHES = 8
_MOST_BYTES = (1 << 31) - 1
_EMPTY_COST = 10
"""An item without bytes takes as many steps: 10,000 of them are allowed."""
MOST_NESTED = 200
"""A nested value takes up to four Python frames, of a thousand."""
Step = Callable[[Cursors, Rows], object]
"""Moves each row past its next value: reads or skips it."""


class AvroReader:
    """Reads records of one writer's schema into the table's value columns."""

    def __init__(
        self, writer: str, target: T.StructType, references: Iterable[str] = (), bounds: SchemaBounds = LARGEST
    ) -> None:
        schema, named_types = parsed_record(writer, references, bounds)
        place = Place.root(bounds)
        try:
            self._read_columns = _Compiler(named_types).columns_reader(schema, target, place)
        except RecursionError:
            raise place.too_deep() from None

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        columns = self._read_columns(cursors, rows)
        reason = "bytes remain after the record: it was written with another schema"
        cursors.fail_where(rows, cursors.bytes_left(rows) > 0, reason)
        return columns


def parsed_record(writer: str, references: Iterable[str], bounds: SchemaBounds) -> tuple[Any, dict[str, Any]]:
    """Returns the record in `writer` with the named types that it may refer to. Raises SchemaMismatch if it is not a
    record, ConfigError if it is not an Avro schema."""
    named_types: dict[str, Any] = {}
    for reference in references:
        _parsed(reference, named_types, bounds)
    schema = _parsed(writer, named_types, bounds)
    if kind_of(schema) != "record":
        raise SchemaMismatch("", type_label(schema), "a record")
    return schema, named_types


def _parsed(text: str, named_types: dict[str, Any], bounds: SchemaBounds) -> Any:
    try:
        if _PARSED in text:
            # fastavro would take such a schema as it is.
            raise ValueError(f"it has the attribute {_PARSED}")
        schema = parse_schema(bounds.parse_json(text), named_types)
        for kind in named_types.values():
            _check_size(kind)
        return schema
    except RecursionError:
        raise bounds.too_deep("") from None
    except (ValueError, TypeError, KeyError, AttributeError, SchemaParseException, UnknownType) as error:
        reason = f"{type(error).__name__}: {error}"[:_SHOWN]
        raise ConfigError(f"the Avro schema is not valid ({reason}). Correct it.") from None


def _check_size(kind: Any) -> None:
    size = kind.get("size", 0)
    if kind["type"] == "fixed" and not (type(size) is int and 0 <= size <= _MOST_BYTES):
        raise ValueError(f"the size of {kind['name']} is {size!r}")


class _Compiler:
    """Makes functions of a writer's types, which read or skip values. A type is skipped by one `_Skip`: it may contain
    itself."""

    def __init__(self, named_types: dict[str, Any]) -> None:
        self._named_types = named_types
        self._skipped: dict[str | int, _Skip] = {}
        self._enums: dict[str, Read] = {}
        self._empty: dict[str, bool] = {}
        self.depth = 0
        """The depth of nested values that are being skipped."""

    def resolve(self, schema: Any) -> Any:
        while isinstance(schema, str) and schema in self._named_types:
            schema = self._named_types[schema]
        if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            return self.resolve(schema["type"])
        return schema

    def columns_reader(
        self, schema: Any, target: T.StructType, place: Place
    ) -> Callable[[Cursors, Rows], list[pa.Array]]:
        """Returns what reads records into the columns of `target`."""
        columns = {column.name: column for column in target.fields}
        steps: list[tuple[str, Step]] = []
        """The writer's fields in their order, with the name of the column; with no name for a field to skip."""
        for field in schema["fields"]:
            column = columns.pop(field["name"], None)
            inner = place.field(field["name"])
            if column is None:
                steps.append(("", self.skipper(field["type"])))
            else:
                steps.append((column.name, self.reader(field["type"], column.dataType, column.nullable, inner)))
        for name, missing in columns.items():
            kind = missing.dataType
            if not missing.nullable:
                raise SchemaMismatch(f"{place}.{name}".lstrip("."), "nothing", f"{kind.simpleString()} NOT NULL")
            steps.append((name, partial(read_nulls, stored_type(kind))))
        return partial(_read_columns, steps, target.names)

    def reader(self, schema: Any, kind: T.DataType, nullable: bool, place: Place) -> Read:
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return self._union_reader(schema, kind, nullable, place)
        name = kind_of(schema)
        if name == "null":
            if not nullable:
                raise SchemaMismatch(place.path, "null", f"{kind.simpleString()} NOT NULL")
            return partial(read_nulls, stored_type(kind))
        if name == "record" and isinstance(kind, T.StructType):
            return partial(_read_structs, self.columns_reader(schema, kind, place), stored_type(kind))
        if name == "array" and isinstance(kind, T.ArrayType):
            item = self.reader(schema["items"], kind.elementType, kind.containsNull, place.element())
            return partial(_read_arrays, item, self.cost_of(schema["items"], kind.elementType), stored_type(kind))
        if name == "map" and isinstance(kind, T.MapType):
            value = self.reader(schema["values"], kind.valueType, kind.valueContainsNull, place.value())
            return partial(_read_maps, value, self.cost_of(schema["values"], kind.valueType), stored_type(kind))
        if name == "enum" and isinstance(kind, T.StringType) and schema["name"] in self._enums:
            return self._enums[schema["name"]]
        simple = simple_reader(schema, kind)
        if simple is None:
            raise SchemaMismatch(place.path, type_label(schema), kind.simpleString())
        if name == "enum":
            self._enums[schema["name"]] = simple
        return simple

    def _union_reader(self, schema: list[Any], kind: T.DataType, nullable: bool, place: Place) -> Read:
        """A branch that does not fit the column fails the rows with that branch."""
        branches: list[Read] = []
        refused: SchemaMismatch | None = None
        fits = False
        for branch in schema:
            try:
                branches.append(self.reader(branch, kind, nullable, place.step()))
                fits = fits or kind_of(self.resolve(branch)) != "null"
            except SchemaMismatch as error:
                refused = refused or error
                branches.append(partial(_refuse, stored_type(kind), str(error)))
        if refused is not None and not fits:
            raise refused
        return partial(_read_unions, branches, stored_type(kind))

    def cost_of(self, schema: Any, kind: T.DataType) -> int:
        """Returns how many steps an item may take of those that a value may have."""
        return _EMPTY_COST if self.is_empty(schema) else _columns_in(kind)

    def is_empty(self, schema: Any) -> bool:
        """Whether all values of a type have no bytes. A walk over them would have no end that the bytes set."""
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return False
        name = kind_of(schema)
        if name != "record":
            return name == "null" or (name == "fixed" and schema["size"] == 0)
        key = schema["name"]
        if key not in self._empty:
            # A record within itself that has no other way out has no value: its bytes fail.
            self._empty[key] = False
            self._empty[key] = all(self.is_empty(field["type"]) for field in schema["fields"])
        return self._empty[key]

    def skipper(self, schema: Any) -> _Skip:
        schema = self.resolve(schema)
        # By identity: thousands of fields can have one type of thousands of parts. A `_Skip` keeps its schema alive.
        key = schema if isinstance(schema, str) else id(schema)
        return self._skipped.setdefault(key, _Skip(self, schema))


class _Skip:
    """Steps over a value of any type. It is compiled when it first occurs."""

    def __init__(self, compiler: _Compiler, schema: Any) -> None:
        self._compiler = compiler
        self._schema = schema

    def __call__(self, cursors: Cursors, rows: Rows) -> None:
        if self._compiler.depth:
            if self._compiler.depth == MOST_NESTED:
                cursors.fail(rows, "a value is nested in itself too deeply to be skipped")
                return
            cursors.spend(rows, 1)
            if cursors.reasons:
                # A failed row would step on through bytes of the next one.
                rows = rows[~cursors.failed[rows]]
                if not len(rows):
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
            kinds = [field["type"] for field in schema["fields"] if not self._compiler.is_empty(field["type"])]
            return partial(_read_columns, [("", skipper(kind)) for kind in kinds], ())
        if name == "array":
            item = skipper(schema["items"])
            cost = _EMPTY_COST if self._compiler.is_empty(schema["items"]) else 1
            return lambda cursors, rows: _blocks(cursors, rows, item, cost)
        if name == "map":
            value = skipper(schema["values"])

            def entry(cursors: Cursors, rows: Rows) -> None:
                span(cursors, rows)
                value(cursors, rows)

            return lambda cursors, rows: _blocks(cursors, rows, entry, 1)
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


def _read_arrays(read_item: Read, cost: int, kind: pa.ListType, cursors: Cursors, rows: Rows) -> pa.Array:
    parts: list[tuple[Rows, pa.Array]] = []
    lengths = _blocks(
        cursors, rows, lambda cursors, item_rows: parts.append((item_rows, read_item(cursors, item_rows))), cost
    )
    return pa.ListArray.from_arrays(offsets_after(lengths), _in_order(parts, kind.value_type), type=kind)


def _read_maps(read_value: Read, cost: int, kind: pa.MapType, cursors: Cursors, rows: Rows) -> pa.Array:
    """Reads maps. If a key occurs twice, the last entry counts."""
    keys: list[tuple[Rows, pa.Array]] = []
    values: list[tuple[Rows, pa.Array]] = []

    def entry(cursors: Cursors, entry_rows: Rows) -> None:
        keys.append((entry_rows, cursors.utf8(entry_rows, *span(cursors, entry_rows))))
        values.append((entry_rows, read_value(cursors, entry_rows)))

    lengths = _blocks(cursors, rows, entry, cost)
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
    numbers = range(len(branches)) if len(branches) <= _FEW_BRANCHES else np.unique(chosen).tolist()
    for number in numbers:
        positions = np.flatnonzero(chosen == number)
        if len(positions) and 0 <= number < len(branches):
            parts.append((positions, branches[number](cursors, rows[positions])))
    return parts


def _columns_in(kind: T.DataType) -> int:
    if isinstance(kind, T.StructType):
        return 1 + sum(_columns_in(field.dataType) for field in kind.fields)
    # The items of arrays and maps are counted where they are read.
    return 1


def _blocks(cursors: Cursors, rows: Rows, item: Callable[[Cursors, Rows], Any], cost: int) -> npt.NDArray[np.int64]:
    """Reads the items of an array or a map, one of each row at a time. Returns the number of items in each row.

    `item` gets the rows that have another item. Each item takes `cost` of the steps that a value may have.
    """
    lengths = np.zeros(len(rows), np.int64)
    awaited = np.zeros(len(rows), np.int64)
    active = np.arange(len(rows))
    while len(active):
        between = active[awaited[active] == 0]
        if len(between):
            awaited[between] = _block_sizes(cursors, rows[between], cost)
        active = active[(awaited[active] > 0) & ~cursors.failed[rows[active]]]
        if len(active):
            item(cursors, rows[active])
            lengths[active] += 1
            awaited[active] -= 1
    return lengths


def _block_sizes(cursors: Cursors, rows: Rows, cost: int) -> npt.NDArray[np.int64]:
    """Reads the number of items in the next block: 0 at the end. After a negative count comes the block's size."""
    counts = cursors.zigzags(rows)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        cursors.varints(rows[sized])
        counts[sized] = -np.maximum(counts[sized], -LONG_MAX)
    beyond = counts > np.maximum(cursors.bytes_left(rows), 1)
    cursors.fail_where(rows, beyond, "a block claims more items than the record has bytes")
    counts[beyond] = 0
    cursors.spend(rows, counts * cost)
    return counts


def _in_order(parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Sorts items by row; they were read one of each row at a time."""
    if not parts:
        return pa.array([], kind)
    owners = np.concatenate([rows for rows, _ in parts])
    items = joined([values for _, values in parts], kind)
    return items if len(parts) == 1 else items.take(pa.array(np.argsort(owners, kind="stable")))
