"""Decodes values whose layout a schema gives (Avro, Protobuf), and values that are one column (text, bytes, a number).

Guarantee: that of `sink.decode.records`. In the wire format of a schema registry, each value is read with the schema
whose id it carries; a batch may have many ids. A value is bad if its schema is unknown or does not fit the table. If
the registry or the Protobuf compiler does not answer, or there is no compiler, decoding raises RegistryUnavailable,
Unavailable or MissingCompiler, and marks no value as bad. The wire format is Confluent's: byte 0 and a schema id of 4
bytes, big-endian, or byte 1 and the schema's GUID of 16 bytes. With Protobuf, message indexes follow: the path to the
message in its file. JSON needs no schema, so that its header is only skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from sink.decode.beginnings import LOOKED_AT, way_out
from sink.decode.cursors import Cursors, Flags, Rows, flags, scattered
from sink.decode.fields import Columns
from sink.decode.quoting import quotes
from sink.decode.records import TOMBSTONE, BadValue, Decoded, Decoder, SchemaMismatch
from sink.decode.registry.client import SchemaId, UnknownSchema

_ID, _GUID, _GLUE = 0, 1, 3
"""The first byte of a header: a schema id follows (0), a GUID follows (1), or the header is AWS Glue's (3)."""
_NO_HEADER = "For values without a header, choose a format without -confluent."
_APICURIO = (
    "No registry assigns id 0. Apicurio's serializers write ids of 8 bytes, which begin like this. Have the producer"
    " write 4 bytes (apicurio.registry.as-confluent=true)."
)
_HEADER_BYTES = 5
_MOST_INDEXES = 16
"""The most indexes of a message that are read, which is how deep it may be nested."""
_FEW_KEYS = 8
_MAX_CACHED = 1000
"""The most entries of each cache. Producers can invent ids and indexes without end; a full cache is cleared."""
_Key = tuple[SchemaId, tuple[int, ...]]
_T = TypeVar("_T")


class UnusableSchema(Exception):
    """A registered schema that is invalid, or not of the kind that value.format names."""


class ColumnReader(Protocol):
    """Reads records of one writer's schema into the table's value columns."""

    def read(self, cursors: Cursors, rows: Rows) -> list[pa.Array]: ...


ReaderOf = Callable[[SchemaId, tuple[int, ...]], ColumnReader]
"""Makes a reader from a schema id and the indexes of the message in its file, which are empty except for Protobuf."""


class ColumnDecoder(Decoder):
    """Decodes values of one schema, without a header. With `may_be_empty` a value of no bytes is valid."""

    def __init__(self, columns: Columns, reader: ColumnReader, may_be_empty: bool) -> None:
        self._columns = columns
        self._reader = reader
        self._may_be_empty = may_be_empty

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors, rows = _cursors_of(values, self._may_be_empty)
        decoded = _decoded(cursors, self._reader.read(cursors, rows), self._columns)
        return Decoded(decoded.rows, tuple(_with_way_out(bad_value, values) for bad_value in decoded.bad))


class WireDecoder(Decoder):
    """Decodes values in the wire format: each carries the id of its schema."""

    def __init__(self, columns: Columns, reader_of: ReaderOf, has_message_indexes: bool) -> None:
        self._columns = columns
        self._reader_of = reader_of
        self._has_message_indexes = has_message_indexes
        self._readers: dict[_Key, ColumnReader] = {}
        self._reasons: dict[_Key, str] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors, rows = _cursors_of(values)
        ids, guids = schema_ids(cursors, rows)
        paths, codes = (
            message_paths(cursors, rows) if self._has_message_indexes else ([()], np.zeros(len(rows), np.int64))
        )
        keys = ids * len(paths) + codes
        parts: list[tuple[Rows, list[pa.Array]]] = []
        for key, schema_rows in _by_key(keys, rows[~cursors.failed]):
            number, path = divmod(key, len(paths))
            reader = self._reader(number if number >= 0 else guids[number], paths[path])
            if isinstance(reader, str):
                cursors.fail(schema_rows, reader)
            else:
                parts.append((schema_rows, reader.read(cursors, schema_rows)))
        read_columns = [
            scattered(len(rows), [(schema_rows, columns[number]) for schema_rows, columns in parts], field.type)
            for number, field in enumerate(self._columns.stored_arrow)
        ]
        return _decoded(cursors, read_columns, self._columns)

    def _reader(self, schema_id: SchemaId, message_path: tuple[int, ...]) -> ColumnReader | str:
        """Returns the reader of a schema, or why all records of that schema are bad."""
        key = schema_id, message_path
        known = self._readers.get(key) or self._reasons.get(key)
        if known is not None:
            return known
        try:
            reader = self._reader_of(schema_id, message_path)
        except (SchemaMismatch, UnusableSchema, UnknownSchema) as error:
            if schema_id == 0 and isinstance(error, UnknownSchema):
                return _kept(self._reasons, key, f"its schema id is 0. {_APICURIO}")
            return _kept(self._reasons, key, f"the schema with id {schema_id} cannot be used: {error}")
        return _kept(self._readers, key, reader)


def _kept(values: dict[_Key, _T], key: _Key, value: _T) -> _T:
    if len(values) >= _MAX_CACHED:
        values.clear()
    values[key] = value
    return value


class FramedJsonDecoder(Decoder):
    """Decodes JSON in the wire format: it skips the header, because JSON needs no schema."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def nulls(self, values: pa.BinaryArray) -> Flags:
        return super().nulls(values) | self._inner.nulls(_without_header(values)[0])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        contents, reasons = _without_header(values)
        decoded = self._inner.decode(contents)
        return Decoded(decoded.rows, tuple(replace(b, reason=reasons.get(b.index, b.reason)) for b in decoded.bad))


class RawDecoder(Decoder):
    """Takes the value as the only column, as string or binary; a null value is a null."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._is_text = pa.types.is_string(columns.stored_arrow.field(0).type)
        self._nullable = columns.stored_arrow.field(0).nullable

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors = Cursors(values)
        rows = np.arange(len(values))
        nulls = flags(values.is_null())
        if not self._nullable:
            cursors.fail_where(rows, nulls, "the value is null, and its column is NOT NULL")
        starts, lengths = cursors.spans(rows, cursors.bytes_left(rows))
        column = cursors.utf8(rows, starts, lengths) if self._is_text else cursors.binary(starts, lengths)
        if nulls.any():
            column = scattered(len(rows), [(np.flatnonzero(~nulls), column.filter(pa.array(~nulls)))], column.type)
        return _decoded(cursors, [column], self._columns)


class NumberDecoder(Decoder):
    """Decodes the value as a big-endian integer of `size` bytes into the only column, a BIGINT."""

    def __init__(self, columns: Columns, size: int) -> None:
        self._columns = columns
        self._size = size

    def decode(self, values: pa.BinaryArray) -> Decoded:
        cursors, rows = _cursors_of(values)
        other = cursors.bytes_left(rows) != self._size
        for length in np.unique(cursors.bytes_left(rows)[other]).tolist():
            reason = f"it has {length} bytes, and a number of {self._size} is needed"
            cursors.fail_where(rows, cursors.bytes_left(rows) == length, reason)
        numbers = cursors.numbers(rows, f">i{self._size}").astype(np.int64)
        return _decoded(cursors, [pa.array(numbers)], self._columns)


def _without_header(values: pa.BinaryArray) -> tuple[pa.BinaryArray, Mapping[int, str]]:
    """Returns the bytes after each header, and why values failed. A failed value has no bytes, which is never JSON."""
    cursors, rows = _cursors_of(values)
    schema_ids(cursors, rows)
    return cursors.binary(*cursors.spans(rows, cursors.bytes_left(rows))), cursors.reasons


def schema_ids(cursors: Cursors, rows: Rows) -> tuple[Rows, list[str]]:
    """Reads the header of each value. Returns the schema ids, and a list of GUIDs: a negative id is an index in it."""
    too_short = f"it is too short for a schema registry's header, which has {_HEADER_BYTES} bytes or more. {_NO_HEADER}"
    cursors.fail_where(rows, cursors.bytes_left(rows) < _HEADER_BYTES, too_short)
    first_bytes = cursors.fixed(rows, 1)[:, 0]
    invalid = (first_bytes > _GUID) & ~cursors.failed[rows]
    for byte in np.unique(first_bytes[invalid]).tolist():
        invalid_rows = rows[invalid & (first_bytes == byte)]
        # Without a header it is the first byte of the value.
        glue = ", as in AWS Glue's header, which is not read" if byte == _GLUE else ""
        found = f"{byte}{glue}" if quotes() else "neither 0 nor 1"
        begins = "A schema registry's header begins with 0 or 1"
        cursors.fail(invalid_rows, f"its first byte is {found}. {begins}. {_NO_HEADER}")
    ids: Rows = np.zeros(len(rows), np.int64)
    has_id, has_guid = ((first_bytes == kind) & ~cursors.failed[rows] for kind in (_ID, _GUID))
    ids[has_id] = cursors.fixed(rows[has_id], 4).astype(np.int64) @ (1 << np.array([24, 16, 8, 0], np.int64))
    if not has_guid.any():
        return ids, []
    distinct, inverse = np.unique(cursors.fixed(rows[has_guid], 16), axis=0, return_inverse=True)
    ids[has_guid] = inverse.reshape(-1) - len(distinct)
    return ids, [str(UUID(bytes=guid.tobytes())) for guid in distinct]


def message_paths(cursors: Cursors, rows: Rows) -> tuple[list[tuple[int, ...]], Rows]:
    """Reads the message indexes of each value. Returns the distinct ones, and for each row the position of its own.

    A single 0 stands for the first message of a file, `[0]`."""
    counts = cursors.zigzags(rows)
    invalid = (counts < 0) | (counts > _MOST_INDEXES)
    cursors.fail_where(rows, invalid, "the message indexes in its header cannot be read")
    counts[invalid] = 0
    paths: dict[tuple[int, ...], int] = {(0,): 0}
    codes = np.zeros(len(rows), np.int64)
    for count in np.unique(counts[counts > 0]).tolist():
        positions = np.flatnonzero(counts == count)
        indexes = np.column_stack([cursors.zigzags(rows[positions]) for _ in range(count)])
        distinct, inverse = np.unique(indexes, axis=0, return_inverse=True)
        numbers = [paths.setdefault(tuple(path), len(paths)) for path in distinct.tolist()]
        codes[positions] = np.array(numbers, np.int64)[inverse.reshape(-1)]
    return list(paths), codes


def _by_key(keys: Rows, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yields each key with its rows, the key of most rows first: schemas in real use are read before invented ids."""
    distinct, counts = np.unique(keys[rows], return_counts=True)
    if len(distinct) > _FEW_KEYS:
        by_key = np.split(rows[np.argsort(keys[rows], kind="stable")], np.cumsum(counts)[:-1])
    else:
        by_key = [rows[keys[rows] == key] for key in distinct]
    for number in np.argsort(-counts, kind="stable").tolist():
        yield int(distinct[number]), by_key[number]


def _with_way_out(bad: BadValue, values: pa.BinaryArray) -> BadValue:
    value = values[bad.index]
    if bad.column:
        # The reader read its first bytes as a field, so a hint about a header would mislead: many records begin with 0.
        return bad
    beginning = bytes(memoryview(value.as_buffer())[:LOOKED_AT]) if value.is_valid else b""
    return replace(bad, reason=bad.reason + way_out(beginning, is_json=False))


def _cursors_of(values: pa.BinaryArray, may_be_empty: bool = False) -> tuple[Cursors, Rows]:
    cursors = Cursors(values)
    rows: Rows = np.arange(len(values))
    cursors.fail_where(rows, flags(values.is_null()), TOMBSTONE)
    if not may_be_empty:
        cursors.fail_where(rows, cursors.bytes_left(rows) == 0, "the value is empty")
    return cursors, rows


def _decoded(cursors: Cursors, read_columns: list[pa.Array], columns: Columns) -> Decoded:
    bad = tuple(BadValue(row, str(reason), reason.column) for row, reason in sorted(cursors.failures.items()))
    if bad:
        is_good = pa.array(~cursors.failed)
        read_columns = [column.filter(is_good) for column in read_columns]
    return Decoded(pa.RecordBatch.from_arrays(read_columns, schema=columns.stored_arrow), bad)
