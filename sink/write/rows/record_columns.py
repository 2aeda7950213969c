"""Decodes a batch of records to rows of the table, with the columns of the value, the key, the headers and the offset.

Guarantee: rows have the columns of the table's schema in its order, whichever engine writes them. A record is bad if
its value, its key, its record key or its table partition is invalid, or its headers cannot be read. The reason depends
on that record alone. Rows hold copies of their columns: a view would keep the whole batch in memory until they are
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from typing_extensions import Self

from sink.decode.cursors import Cursors
from sink.decode.formats import ValueFormat
from sink.decode.header_ids import wire_column
from sink.decode.quoting import quoting
from sink.decode.time_texts import FIRST_MICRO, LAST_MICRO
from sink.layout.partition_paths import Groups, PartitionPaths
from sink.layout.partition_times import BadPartition
from sink.layout.record_keys import RecordKeys
from sink.schema.table_schema import HEADERS, KEY, TableSchema, arrow_type
from sink.write.reading.headers_column import unreadable_headers

_Made = TypeVar("_Made")
Decode = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""Turns a batch of records and the name of their topic into rows, one for each record. Raises BadRows."""
_OTHER_YEAR = (
    "its timestamp, in milliseconds since 1970, is outside of the years 0001 to 9999. Have the producer count"
    " milliseconds, or set message.timestamp.type=LogAppendTime for the topic."
)


class BadRows(Exception):
    """Rows that cannot go into the table, each with its reason. `kind` is the stage that they fail."""

    def __init__(self, kind: str, reasons: Mapping[int, str]) -> None:
        super().__init__(f"{len(reasons)} rows")
        self.kind = kind
        self.reasons = reasons


@dataclass(frozen=True, order=True, slots=True)
class BadRow:
    """A bad record. `row` is its position in the batch; `kind` is the bad part: value, key, headers, timestamp,
    partition or record key."""

    row: int
    kind: str
    reason: str


@dataclass(frozen=True)
class RowSpec:
    """The settings by which records become rows. Spark ships it to the executors, which import this package."""

    schema: TableSchema
    format: ValueFormat
    keys: RecordKeys
    paths: PartitionPaths

    @property
    def columns(self) -> T.StructType:
        """The columns of the rows that `decoder` makes."""
        return self.schema.spark

    def decoder(self) -> Decode:
        """Returns a decoder for rows that go to the JVM. Raises ConfigError for columns that the format cannot fill."""
        return RowDecoder(self).decode_for_java

    def of_schema(self, schema: TableSchema) -> Self:
        """Returns the same settings for another schema of the table."""
        return replace(self, schema=schema, format=replace(self.format, types=schema.types))

    def recording(self, used: dict[str, str]) -> Self:
        """Returns the same settings, whose decoders note in `used` the registered schemas that decode values."""
        return replace(self, format=replace(self.format, used=used))

    def place(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Groups]:
        """Returns the rows with all columns, and their table partitions. Raises BadRows."""
        try:
            rows = self.paths.complete(rows)
            if no_key := self.keys.invalid_keys(rows):
                raise BadRows("record key", no_key)
            return rows, self.paths.group(rows)
        except BadPartition as error:
            raise BadRows("partition", error.reasons) from None


def separate_bad(
    batch: pa.RecordBatch, topic: str, decode: Callable[[pa.RecordBatch, str], _Made]
) -> tuple[pa.RecordBatch, _Made | None, tuple[BadRow, ...]]:
    """Returns the good records of a batch of one topic, the result of `decode` for them, and the bad ones by row.

    A record whose headers cannot be read is bad. Each time `decode` raises BadRows, it removes those rows and calls
    `decode` again for the others.
    """
    row_numbers = np.arange(batch.num_rows)
    bad: list[BadRow] = []
    while batch.num_rows:
        try:
            if unreadable := unreadable_headers(batch):
                raise BadRows("headers", unreadable)
            return batch, decode(batch, topic), tuple(sorted(bad))
        except BadRows as error:
            bad += (BadRow(int(row_numbers[row]), error.kind, reason) for row, reason in error.reasons.items())
            is_good = np.ones(batch.num_rows, np.bool_)
            is_good[list(error.reasons)] = False
            batch, row_numbers = batch.filter(pa.array(is_good)), row_numbers[is_good]
    return batch, None, tuple(sorted(bad))


class RowDecoder:
    """Decodes records to rows. Not thread-safe."""

    def __init__(self, spec: RowSpec) -> None:
        self._spec = spec
        self._decoder = spec.format.decoder(spec.schema.value_struct)

    def decode_for_java(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """Decodes good records, with the types that the JVM takes: no dictionaries."""
        rows, _ = self.decode(batch, topic)
        schema = self._spec.schema.arrow
        columns = [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def decode(self, batch: pa.RecordBatch, topic: str) -> tuple[pa.RecordBatch, Groups]:
        """Returns the rows of good records, and their table partitions. Raises BadRows for the first stage that some
        records fail.
        """
        with quoting(self._spec.format.quotes):
            return self._decode(batch, topic)

    def _decode(self, batch: pa.RecordBatch, topic: str) -> tuple[pa.RecordBatch, Groups]:
        require_shown_times(self._spec.schema, batch)
        decoded = self._decoder.decode(wire_column(batch, "value", self._spec.format))
        if decoded.bad:
            raise BadRows("value", {bad_value.index: bad_value.reason for bad_value in decoded.bad})
        added = added_columns(self._spec.schema, batch, topic)
        fields = [*decoded.rows.schema, *(pa.field(name, column.type) for name, column in added.items())]
        rows = pa.RecordBatch.from_arrays([*decoded.rows.columns, *added.values()], schema=pa.schema(fields))
        return self._spec.place(rows)


def require_shown_times(schema: TableSchema, batch: pa.RecordBatch) -> None:
    """Raises BadRows for timestamps outside the years 0001 to 9999. This comes first, whatever else is bad: the errors
    table has null for such a timestamp, and a replay knows it by the kind of the bad record."""
    counts = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    extremes = pc.min_max(counts).as_py()
    if not schema.provenance or extremes["min"] is None:
        return
    if extremes["min"] < FIRST_MICRO or extremes["max"] > LAST_MICRO:
        is_beyond = pc.or_(pc.less(counts, FIRST_MICRO), pc.greater(counts, LAST_MICRO))
        raise BadRows("timestamp", dict.fromkeys(pc.indices_nonzero(is_beyond).to_pylist(), _OTHER_YEAR))


def added_columns(schema: TableSchema, batch: pa.RecordBatch, topic: str) -> dict[str, pa.Array]:
    """Returns the columns that come from the record, not from its value. Raises BadRows for a key that is not text."""
    added: dict[str, pa.Array] = {}
    if schema.provenance:
        micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC"))
        zeros = pa.array(np.zeros(batch.num_rows, np.int32))
        added = {
            "_kafka_topic": pa.DictionaryArray.from_arrays(zeros, pa.array([topic])),
            "_kafka_partition": _copied(batch.column("partition")),
            "_kafka_offset": _copied(batch.column("offset")),
            "_kafka_timestamp": _compacted(micros) if micros.null_count else _copied(micros),
        }
    if schema.key:
        added[KEY] = _key(batch.column("key"), schema.key)
    if schema.headers:
        added[HEADERS] = _compacted(batch.column("headers").cast(arrow_type(schema.added[HEADERS].dataType)))
    return added


def _key(keys: pa.BinaryArray, kind: T.DataType) -> pa.Array:
    if isinstance(kind, T.BinaryType):
        return _compacted(keys)
    cursors = Cursors(keys)
    rows = np.arange(len(keys))
    texts = cursors.utf8(rows, *cursors.spans(rows, cursors.bytes_left(rows)))
    if cursors.reasons:
        reason = "its key is not UTF-8, and key.format is string"
        raise BadRows("key", dict.fromkeys(cursors.reasons, reason))
    return pc.if_else(keys.is_valid(), texts, None) if keys.null_count else texts


def _copied(column: pa.Array) -> pa.Array:
    return pa.array(column.to_numpy(zero_copy_only=False).copy(), column.type)


def _compacted(column: pa.Array) -> pa.Array:
    return column.take(pa.array(np.arange(len(column))))
