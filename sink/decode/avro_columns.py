"""Avro records read as columns: a writer's schema and the table's columns give a reader of many values at once.

Guarantee: a column gets what Avro's rules of resolution make of the writer's field of the same name: numbers widen,
text and bytes stand for each other, a decimal keeps its value, a field that the writer has not is null, one that the
table has not is stepped over. Logical types are exact: no float and no calendar of Python lies between. What the
table's column cannot hold fails the row. Raises SchemaMismatch where the two schemas cannot go together, ConfigError
for a writer's schema that is none.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from pyspark.sql import types as T

from coordination.errors import ConfigError
from sink.decode.cursors import Cursors, Rows, joined, scattered
from sink.schema import held_type

Step = Callable[[Cursors, Rows], object]
_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_DECIMAL_BYTES = 16


class SchemaMismatch(Exception):
    """A writer's schema whose records cannot go into the table: `path` has `wrote` there and `wants` here."""

    def __init__(self, path: str, wrote: str, wants: str) -> None:
        super().__init__(f"field {path!r} is written as {wrote}, and the table's column is {wants}")


class Node(ABC):
    """One place in a writer's schema."""

    @abstractmethod
    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        """The next value of each row, as a column of as many values."""

    def skip(self, cursors: Cursors, rows: Rows) -> None:
        """Steps over the next value of each row."""
        self.read(cursors, rows)


class AvroReader:
    """Reads records of one writer's schema into the table's value columns."""

    def __init__(self, writer: str, target: T.StructType, references: Iterable[str] = ()) -> None:
        named: dict[str, Any] = {}
        for text in references:
            _parsed(text, named)
        schema = _parsed(writer, named)
        if _kind(schema) != "record":
            raise SchemaMismatch("", _shown(schema), "a record")
        self._record = _Record(_Compiler(named), schema, target, "")

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        columns = self._record.columns(cursors, rows)
        beyond = cursors.left(rows) > 0
        if beyond.any():
            cursors.fail(rows[beyond], "bytes are left over behind the record: it was written with another schema")
        return columns


def _parsed(text: str, named: dict[str, Any]) -> Any:
    try:
        return parse_schema(json.loads(text), named)
    except (ValueError, TypeError, KeyError, AttributeError, SchemaParseException, UnknownType) as error:
        raise ConfigError(f"the Avro schema cannot be read ({type(error).__name__}: {error}); correct it") from None


class _Compiler:
    """Nodes for a writer's types. One that is stepped over is compiled when it is met: it may contain itself."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._skipped: dict[str, Node] = {}

    def resolve(self, schema: Any) -> Any:
        while isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            return self.resolve(schema["type"])
        return schema

    def reader(self, schema: Any, kind: T.DataType, nullable: bool, path: str) -> Node:
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return _Union(self, schema, kind, nullable, path)
        name = _kind(schema)
        if name == "null":
            if not nullable:
                raise SchemaMismatch(path, "null", f"{kind.simpleString()} NOT NULL")
            return _Null(held_type(kind))
        if name == "record" and isinstance(kind, T.StructType):
            return _Record(self, schema, kind, path)
        if name == "array" and isinstance(kind, T.ArrayType):
            item = self.reader(schema["items"], kind.elementType, kind.containsNull, f"{path}[]")
            return _Array(item, kind)
        if name == "map" and isinstance(kind, T.MapType):
            value = self.reader(schema["values"], kind.valueType, kind.valueContainsNull, f"{path}{{}}")
            return _Map(value, kind)
        node = _simple(schema, kind)
        if node is None:
            raise SchemaMismatch(path, _shown(schema), kind.simpleString())
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
        if self._step is None:
            self._step = self._compiled()
        self._step(cursors, rows)

    def _compiled(self) -> Step:
        schema, skipper = self._schema, self._compiler.skipper
        if isinstance(schema, list):
            branches = [skipper(branch).skip for branch in schema]
            return lambda cursors, rows: _branch(cursors, rows, branches)
        name = _kind(schema)
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
                _span(cursors, rows)
                value.skip(cursors, rows)

            return lambda cursors, rows: _blocks(cursors, rows, entry)
        if name in ("string", "bytes"):
            return _span
        if name in ("int", "long", "enum"):
            return Cursors.varints
        sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
        size = schema["size"] if name == "fixed" else sizes[name]
        return lambda cursors, rows: cursors.spans(rows, np.full(len(rows), size, np.int64))


class _Null(Node):
    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:  # noqa: ARG002 - takes no bytes
        return pa.nulls(len(rows), self._kind)


class _Boolean(Node):
    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        found = cursors.fixed(rows, 1)[:, 0]
        wrong = found > 1
        if wrong.any():
            cursors.fail(rows[wrong], "a boolean that is neither 0 nor 1")
        return pa.array(found == 1)


class _Integer(Node):
    """`int` and `long`, into any number that holds all of them, or into a date or a moment."""

    def __init__(self, low: int, high: int, kind: pa.DataType, scale: int = 1) -> None:
        self._low, self._high, self._kind, self._scale = low, high, kind, scale

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        found = cursors.zigzags(rows)
        wrong = (found < self._low) | (found > self._high)
        if wrong.any():
            cursors.fail(rows[wrong], f"a number outside {self._low}..{self._high}")
            found = np.where(wrong, 0, found)
        if pa.types.is_date(self._kind):
            return pa.array(found.astype(np.int32)).cast(self._kind)
        if pa.types.is_timestamp(self._kind):
            return pa.array(found * self._scale).cast(self._kind)
        return pa.array(found.astype(self._kind.to_pandas_dtype()))


class _Float(Node):
    def __init__(self, width: str, kind: pa.DataType) -> None:
        self._width, self._kind = width, kind

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return pa.array(cursors.numbers(rows, self._width).astype(self._kind.to_pandas_dtype()))


class _Text(Node):
    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return cursors.text(rows, *_span(cursors, rows))


class _Binary(Node):
    def __init__(self, size: int | None) -> None:
        self._size = size

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return cursors.binary(*_span(cursors, rows, self._size))


class _Enum(Node):
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        found = cursors.zigzags(rows)
        wrong = (found < 0) | (found >= len(self._symbols))
        if wrong.any():
            cursors.fail(rows[wrong], f"an enum has {len(self._symbols)} symbols, and another is given")
            found = np.where(wrong, 0, found)
        return self._symbols.take(pa.array(found))


class _Decimal(Node):
    """Two's complement, the highest byte first, with the writer's scale."""

    def __init__(self, size: int | None, scale: int, kind: T.DecimalType) -> None:
        self._size, self._kind = size, held_type(kind)
        self._factor = 10 ** (kind.scale - scale)
        self._most = 10**kind.precision - 1
        self._name = kind.simpleString()

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        starts, lengths = _span(cursors, rows, self._size)
        # Little-endian, extended to the width of Arrow's decimals; longer ones one by one.
        place = np.arange(_DECIMAL_BYTES)
        index = (starts + lengths)[:, None] - 1 - place
        inside = place < lengths[:, None]
        found = np.where(inside, cursors.data[np.where(inside, index, 0)], 0).astype(np.uint8)
        negative = np.where(lengths > 0, cursors.data[np.minimum(starts, len(cursors.data) - 1)] >= 0x80, False)
        found[negative[:, None] & ~inside] = 0xFF
        plain = np.flatnonzero(lengths <= _DECIMAL_BYTES)
        column = pa.Array.from_buffers(self._kind, len(rows), [None, pa.py_buffer(np.ascontiguousarray(found))])
        if self._factor == 1 and len(plain) == len(rows):
            try:
                column.validate(full=True)
                return column
            except pa.ArrowInvalid:
                pass
        return self._one_by_one(cursors, rows, starts, lengths)

    def _one_by_one(self, cursors: Cursors, rows: Rows, starts: Rows, lengths: Rows) -> pa.Array:
        """Where a value may not fit the column: the rows that do not are found, and fail."""
        numbers = [
            int.from_bytes(value, "big", signed=True) * self._factor
            for value in cursors.binary(starts, lengths).to_pylist()
        ]
        wrong = np.array([abs(number) > self._most for number in numbers], np.bool_)
        if wrong.any():
            cursors.fail(rows[wrong], f"a number of more digits than {self._name} holds")
        raw = b"".join(
            (0 if bad else number).to_bytes(_DECIMAL_BYTES, "little", signed=True)
            for number, bad in zip(numbers, wrong.tolist(), strict=True)
        )
        return pa.Array.from_buffers(self._kind, len(rows), [None, pa.py_buffer(raw)])


class _Record(Node):
    def __init__(self, compiler: _Compiler, schema: Any, target: T.StructType, path: str) -> None:
        self._target = target
        self._fields: list[tuple[int | None, Node]] = []
        """The writer's, in order: the column that each goes to, and how it is read."""
        wanted = {field.name: number for number, field in enumerate(target.fields)}
        for field in schema["fields"]:
            number = wanted.pop(field["name"], None)
            if number is None:
                self._fields.append((None, compiler.skipper(field["type"])))
            else:
                column = target.fields[number]
                inner = f"{path}.{column.name}".lstrip(".")
                self._fields.append((number, compiler.reader(field["type"], column.dataType, column.nullable, inner)))
        for name in wanted:
            if not target[name].nullable:
                raise SchemaMismatch(
                    f"{path}.{name}".lstrip("."), "nothing", f"{target[name].dataType.simpleString()} NOT NULL"
                )

    def columns(self, cursors: Cursors, rows: Rows) -> list[pa.Array]:
        found: list[pa.Array | None] = [None] * len(self._target.fields)
        for number, node in self._fields:
            if number is None:
                node.skip(cursors, rows)
            else:
                found[number] = node.read(cursors, rows)
        return [
            pa.nulls(len(rows), held_type(field.dataType)) if column is None else column
            for field, column in zip(self._target.fields, found, strict=True)
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
        self._element = pa.field("element", held_type(kind.elementType), kind.containsNull)

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        parts: list[tuple[Rows, pa.Array]] = []
        lengths = _blocks(cursors, rows, lambda at, some: parts.append((some, self._item.read(at, some))))
        items = _in_order(parts, self._element.type)
        return pa.ListArray.from_arrays(_offsets(lengths), items, type=pa.list_(self._element))


class _Map(Node):
    """Of a key that is there twice the last counts."""

    def __init__(self, value: Node, kind: T.MapType) -> None:
        self._value = value
        self._type = held_type(kind)

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        keys: list[tuple[Rows, pa.Array]] = []
        values: list[tuple[Rows, pa.Array]] = []

        def entry(at: Cursors, some: Rows) -> None:
            keys.append((some, at.text(some, *_span(at, some))))
            values.append((some, self._value.read(at, some)))

        lengths = _blocks(cursors, rows, entry)
        names, items = _in_order(keys, pa.string()), _in_order(values, self._type.item_type)
        return as_map(lengths, names, items, self._type)


class _Union(Node):
    """One branch each. One that cannot go into the column fails the rows that chose it."""

    def __init__(self, compiler: _Compiler, schema: list[Any], kind: T.DataType, nullable: bool, path: str) -> None:
        self._type = held_type(kind)
        self._branches: list[Node] = []
        refused: SchemaMismatch | None = None
        fits = False
        for branch in schema:
            try:
                self._branches.append(compiler.reader(branch, kind, nullable, path))
                fits = fits or _kind(compiler.resolve(branch)) != "null"
            except SchemaMismatch as error:
                refused = refused or error
                self._branches.append(_Refused(compiler.skipper(branch), self._type, str(error)))
        if refused is not None and not fits:
            raise refused

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        return scattered(len(rows), _branch(cursors, rows, [branch.read for branch in self._branches]), self._type)


class _Refused(Node):
    def __init__(self, skipper: Node, kind: pa.DataType, reason: str) -> None:
        self._skipper, self._kind, self._reason = skipper, kind, reason

    def read(self, cursors: Cursors, rows: Rows) -> pa.Array:
        if len(rows):
            cursors.fail(rows, self._reason)
        return pa.nulls(len(rows), self._kind)


def _simple(schema: Any, kind: T.DataType) -> Node | None:
    """A node for a type without inner types; None where the column cannot hold it."""
    name, logical = _kind(schema), _logical(schema)
    size = schema["size"] if name == "fixed" else None
    if logical == "decimal" and isinstance(kind, T.DecimalType):
        precision, scale = schema["precision"], schema.get("scale", 0)
        widens = kind.scale >= scale and kind.precision - kind.scale >= precision - scale
        return _Decimal(size, scale, kind) if widens else None
    if name == "boolean" and isinstance(kind, T.BooleanType):
        return _Boolean()
    if name in ("int", "long"):
        return _integer(name, logical, kind)
    if name in ("float", "double") and isinstance(kind, (T.FloatType, T.DoubleType)):
        narrows = name == "double" and isinstance(kind, T.FloatType)
        return None if narrows else _Float("<f4" if name == "float" else "<f8", held_type(kind))
    if name in ("string", "bytes") and isinstance(kind, T.StringType) and logical != "decimal":
        return _Text()
    if name in ("string", "bytes", "fixed") and isinstance(kind, T.BinaryType):
        return _Binary(size)
    if name == "enum" and isinstance(kind, T.StringType):
        return _Enum(schema["symbols"])
    return None


def _integer(name: str, logical: str | None, kind: T.DataType) -> Node | None:
    low, high = (_INT_MIN, _INT_MAX) if name == "int" else (-_LONG_MAX - 1, _LONG_MAX)
    if isinstance(kind, T.DateType):
        return _Integer(low, high, held_type(kind)) if logical == "date" else None
    if isinstance(kind, T.TimestampType):
        scale = {"timestamp-micros": 1, "timestamp-millis": 1000}.get(logical or "")
        most = _LONG_MAX // (scale or 1)
        return None if scale is None else _Integer(-most, most, held_type(kind), scale)
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return _Integer(low, high, held_type(kind))
    bits = _BITS.get(type(kind))
    if bits is None or (name == "long" and bits < 64):
        return None
    # Avro has no 8 and 16 bit integers: its int has to do for them, and a value beyond is refused.
    reach = 1 << (bits - 1)
    held = pa.int64() if bits == 64 else pa.int32()
    return _Integer(max(low, -reach), min(high, reach - 1), held)


def _kind(schema: Any) -> str:
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else str(schema["type"])


def _logical(schema: Any) -> str | None:
    return schema.get("logicalType") if isinstance(schema, dict) else None


def _shown(schema: Any) -> str:
    logical = _logical(schema)
    return f"{_kind(schema)} ({logical})" if logical else _kind(schema)


def _span(cursors: Cursors, rows: Rows, size: int | None = None) -> tuple[Rows, Rows]:
    """A length and so many bytes, or `size` bytes."""
    lengths = cursors.zigzags(rows) if size is None else np.full(len(rows), size, np.int64)
    return cursors.spans(rows, lengths)


def _branch(cursors: Cursors, rows: Rows, branches: Sequence[Callable[[Cursors, Rows], Any]]) -> list[tuple[Rows, Any]]:
    """What the branch that each row chose takes of it, with the positions of those rows."""
    chosen = cursors.zigzags(rows)
    wrong = (chosen < 0) | (chosen >= len(branches))
    if wrong.any():
        cursors.fail(rows[wrong], f"a union of {len(branches)} has no branch of the number given")
    parts = []
    for number, branch in enumerate(branches):
        positions = np.flatnonzero(chosen == number)
        if len(positions):
            parts.append((positions, branch(cursors, rows[positions])))
    return parts


def _blocks(cursors: Cursors, rows: Rows, item: Callable[[Cursors, Rows], Any]) -> npt.NDArray[np.int64]:
    """Reads the items of an array or a map, one of each row at a time; how many each row had.

    `item` gets the rows that have another one. The first numbers are positions in `rows`, to be looked up by it.
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
    """How many items come next: 0 at the end. A negative count is followed by the block's size in bytes."""
    counts = cursors.zigzags(rows)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        cursors.varints(rows[sized])
        counts[sized] = -np.maximum(counts[sized], -_LONG_MAX)
    beyond = counts > np.maximum(cursors.left(rows), 1)
    if beyond.any():
        cursors.fail(rows[beyond], "more items are announced than there are bytes")
        counts[beyond] = 0
    return counts


def _in_order(parts: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Items that were read one of each row at a time, row by row."""
    if not parts:
        return pa.array([], kind)
    owners = np.concatenate([rows for rows, _ in parts])
    items = joined([values for _, values in parts], kind)
    return items if len(parts) == 1 else items.take(pa.array(np.argsort(owners, kind="stable")))


def _offsets(lengths: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def as_map(lengths: npt.NDArray[np.int64], keys: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of maps. Of a key that one has twice the last counts, in the place of the first."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    codes = pc.dictionary_encode(keys)
    names = max(1, len(codes.dictionary))
    entries = owners * names + codes.indices.to_numpy(zero_copy_only=False)
    _, first, inverse = np.unique(entries, return_index=True, return_inverse=True)
    if len(first) < len(entries):
        last = np.zeros(len(first), np.int64)
        last[inverse] = np.arange(len(entries))
        order = np.argsort(first)
        keys, values = keys.take(pa.array(first[order])), values.take(pa.array(last[order]))
        lengths = np.bincount(owners[first], minlength=len(lengths))
    return pa.MapArray.from_arrays(_offsets(lengths), keys, values, type=kind)
