"""Records of binary formats as rows: plain, or behind the header of a schema registry.

Guarantee: that of `sink.decode.records`. Of a registry's wire format each value is read by the schema that it names:
a batch may hold many. A value whose schema is unknown, or cannot go into the table, is bad; a registry that does not
answer is no statement about any value, and raises RegistryUnavailable. The header is Confluent's: a zero byte and
four of the schema's id; with Protobuf the place of the message in its file follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from sink.decode.cursors import Cursors, Rows, scattered
from sink.decode.records import TOMBSTONE, BadValue, Decoded, Decoder, SchemaMismatch
from sink.decode.registry import UnknownSchema
from sink.schema import TableSchema

FIRST_MESSAGE = (0,)
"""The place of most messages in their files."""
_MAGIC = 0
HEADER_BYTES = 5
_MOST_INDEXES = 16


class UnusableSchema(Exception):
    """A registered schema that is none, or of another kind than the format."""


class Reader(Protocol):
    """Reads records of one writer's schema."""

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]: ...


ReaderOf = Callable[[int, tuple[int, ...]], Reader]
"""Makes a reader, by schema id and the message's place in its file, which is empty where a schema is one type."""


class ColumnDecoder:
    """Values of one schema, with nothing before them. `may_be_empty`: no bytes are a value, too."""

    def __init__(self, schema: TableSchema, reader: Reader, may_be_empty: bool) -> None:
        self._schema = schema
        self._reader = reader
        self._may_be_empty = may_be_empty

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors, rows = _begun(values, self._may_be_empty)
        return _decoded(cursors, self._reader.read(cursors, rows), self._schema)


class WireDecoder:
    """Values that name their schema."""

    def __init__(self, schema: TableSchema, reader_of: ReaderOf, message_paths: bool) -> None:
        self._schema = schema
        self._reader_of = reader_of
        self._message_paths = message_paths
        self._readers: dict[tuple[int, tuple[int, ...]], Reader | str] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors, rows = _begun(values)
        ids = schema_ids(cursors, rows)
        paths, codes = message_paths(cursors, rows) if self._message_paths else ([()], np.zeros(len(rows), np.int64))
        named = ids * len(paths) + codes
        parts: list[tuple[Rows, list[pa.Array]]] = []
        for name in np.unique(named[~cursors.failed]).tolist():
            schema_rows = rows[(named == name) & ~cursors.failed]
            reader = self._reader(name // len(paths), paths[name % len(paths)])
            if isinstance(reader, str):
                cursors.fail(schema_rows, reader)
            else:
                parts.append((schema_rows, reader.read(cursors, schema_rows)))
        columns = [
            scattered(len(rows), [(schema_rows, columns[number]) for schema_rows, columns in parts], field.type)
            for number, field in enumerate(self._schema.stored_arrow)
        ]
        return _decoded(cursors, columns, self._schema)

    def _reader(self, schema_id: int, message_path: tuple[int, ...]) -> Reader | str:
        """Or what is wrong with every record of that schema."""
        reader = self._readers.get((schema_id, message_path))
        if reader is None:
            try:
                reader = self._reader_of(schema_id, message_path)
            except (SchemaMismatch, UnusableSchema, UnknownSchema) as error:
                reader = f"its schema, {schema_id} in the registry, cannot be used: {error}"
            self._readers[schema_id, message_path] = reader
        return reader


class Unframed:
    """Values behind a registry's header that need no schema to be read: JSON."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors, rows = _begun(values)
        schema_ids(cursors, rows)
        # What has failed is empty from here on, and bad for any format.
        decoded = self._inner.decode(cursors.binary(*cursors.spans(rows, cursors.bytes_left(rows))))
        return Decoded(
            decoded.rows, tuple(BadValue(b.index, cursors.reasons.get(b.index, b.reason)) for b in decoded.bad)
        )


class RawDecoder:
    """The value itself as the only column, as text or as bytes; a null is one."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._is_text = pa.types.is_string(schema.stored_arrow.field(0).type)
        self._nullable = schema.stored_arrow.field(0).nullable

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors = Cursors(values)
        rows = np.arange(len(values))
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        if nulls.any() and not self._nullable:
            cursors.fail(rows[nulls], "the value is null, and its column NOT NULL")
        starts, lengths = cursors.spans(rows, cursors.bytes_left(rows))
        column = cursors.utf8(rows, starts, lengths) if self._is_text else cursors.binary(starts, lengths)
        if nulls.any():
            column = scattered(len(rows), [(np.flatnonzero(~nulls), column.filter(pa.array(~nulls)))], column.type)
        return _decoded(cursors, [column], self._schema)


def schema_ids(cursors: Cursors, rows: Rows) -> Rows:
    """The ids of the schemas that the values name, each of which then stands behind its header."""
    short = cursors.bytes_left(rows) < HEADER_BYTES
    if short.any():
        cursors.fail(rows[short & ~cursors.failed[rows]], "it is too short for the header of a schema registry")
    header = cursors.fixed(rows, HEADER_BYTES)
    wrong = (header[:, 0] != _MAGIC) & ~cursors.failed[rows]
    for byte in np.unique(header[wrong, 0]).tolist():
        which = rows[wrong & (header[:, 0] == byte)]
        cursors.fail(which, f"its first byte is {byte}, and not the 0 of a schema registry's header")
    ids: Rows = header[:, 1:].astype(np.int64) @ (1 << np.array([24, 16, 8, 0], np.int64))
    return ids


def message_paths(cursors: Cursors, rows: Rows) -> tuple[list[tuple[int, ...]], Rows]:
    """Where in their files the messages stand, each place once, and which of them is each row's. The first message,
    which most are, is written as a single 0."""
    counts = cursors.zigzags(rows)
    wrong = (counts < 0) | (counts > _MOST_INDEXES)
    if wrong.any():
        cursors.fail(rows[wrong], "the list of message indexes in its header cannot be read")
        counts[wrong] = 0
    paths: dict[tuple[int, ...], int] = {FIRST_MESSAGE: 0}
    codes = np.zeros(len(rows), np.int64)
    for count in np.unique(counts[counts > 0]).tolist():
        positions = np.flatnonzero(counts == count)
        indexes = np.column_stack([cursors.zigzags(rows[positions]) for _ in range(count)])
        distinct, inverse = np.unique(indexes, axis=0, return_inverse=True)
        numbers = [paths.setdefault(tuple(path), len(paths)) for path in distinct.tolist()]
        codes[positions] = np.array(numbers, np.int64)[inverse.reshape(-1)]
    return list(paths), codes


def _begun(values: pa.BinaryArray, may_be_empty: bool = False) -> tuple[Cursors, Rows]:
    cursors = Cursors(values)
    rows: Rows = np.arange(len(values))
    if values.null_count:
        cursors.fail(rows[values.is_null().to_numpy(zero_copy_only=False)], TOMBSTONE)
    empty = (cursors.bytes_left(rows) == 0) & ~cursors.failed
    if empty.any() and not may_be_empty:
        cursors.fail(rows[empty], "the value is empty")
    return cursors, rows


def _decoded(cursors: Cursors, columns: list[pa.Array], schema: TableSchema) -> Decoded:
    bad = tuple(BadValue(row, reason) for row, reason in sorted(cursors.reasons.items()))
    if bad:
        good = pa.array(~cursors.failed)
        columns = [column.filter(good) for column in columns]
    return Decoded(pa.RecordBatch.from_arrays(columns, schema=schema.stored_arrow), bad)
