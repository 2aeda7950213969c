"""A batch of records as rows of the table: the value decoded, and what else a record has beside it.

Guarantee: the columns of the table's schema in its order, for both engines alike. A record that cannot be one, for its
value, its key, its record key or its place in the table, is the first that `BadRow` names. Copies what is kept, for
rows that wait to be written would otherwise hold the whole batch in memory, the values' bytes too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from sink.decode.cursors import Cursors
from sink.decode.formats import ValueFormat
from sink.schema import HEADERS, KEY, TableSchema, arrow_type
from sink.write.partition_paths import BadPartition, Groups, PartitionPaths
from sink.write.record_keys import RecordKeys


class BadRow(Exception):
    """The first row of a batch that cannot go into the table."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


@dataclass(frozen=True)
class RowShape:
    """What rows are made by; it travels to the executors, which import this package."""

    schema: TableSchema
    format: ValueFormat
    keys: RecordKeys
    paths: PartitionPaths

    def with_columns(self, columns: str) -> RowShape:
        """As `TableSchema.with_columns`."""
        return replace(self, schema=self.schema.with_columns(columns))


def columns_needed(schema: TableSchema) -> list[str]:
    """Of a record, besides its topic: what `Rows` looks at, and the digest."""
    extra = [name for name, wanted in (("key", schema.key), ("headers", schema.headers)) if wanted]
    return ["value", "partition", "offset", "timestamp", "digest", *extra]


class Rows:
    """Not to be shared between threads."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self._decoder = shape.format.decoder(shape.schema)

    def of(self, batch: pa.RecordBatch, topic: str) -> tuple[pa.RecordBatch, Groups]:
        """The rows of a batch of one topic, with a dictionary for its name, and the table partitions they go to."""
        decoded = self._decoder.decode(batch.column("value"))
        if decoded.bad:
            raise BadRow(decoded.bad[0].index, decoded.bad[0].reason)
        added = added_columns(self._shape.schema, batch, topic)
        fields = [*decoded.rows.schema, *(pa.field(name, column.type) for name, column in added.items())]
        rows = pa.RecordBatch.from_arrays([*decoded.rows.columns, *added.values()], schema=pa.schema(fields))
        try:
            rows = self._shape.paths.complete(rows)
            no_key = self._shape.keys.first_bad(rows)
            if no_key is not None:
                raise BadRow(*no_key)
            return rows, self._shape.paths.group(rows)
        except BadPartition as error:
            raise BadRow(error.row, str(error)) from None


def added_columns(schema: TableSchema, batch: pa.RecordBatch, topic: str) -> dict[str, pa.Array]:
    """What the table has of a record besides its value."""
    added: dict[str, pa.Array] = {}
    if schema.provenance:
        zeros = pa.array(np.zeros(batch.num_rows, np.int32))
        added = {
            "_kafka_topic": pa.DictionaryArray.from_arrays(zeros, pa.array([topic])),
            "_kafka_partition": _copied(batch.column("partition")),
            "_kafka_offset": _copied(batch.column("offset")),
            "_kafka_timestamp": _copied(batch.column("timestamp").cast(pa.timestamp("us", "UTC"))),
        }
    if schema.key:
        added[KEY] = _key(batch.column("key"), schema.key)
    if schema.headers:
        added[HEADERS] = _taken(batch.column("headers").cast(arrow_type(schema.added[HEADERS].dataType)))
    return added


def _key(keys: pa.BinaryArray, kind: T.DataType) -> pa.Array:
    if isinstance(kind, T.BinaryType):
        return _taken(keys)
    cursors = Cursors(keys)
    rows = np.arange(len(keys))
    texts = cursors.text(rows, *cursors.spans(rows, cursors.left(rows)))
    if cursors.reasons:
        raise BadRow(min(cursors.reasons), "its key is not UTF-8, and key.format is string")
    return pc.if_else(keys.is_valid(), texts, None) if keys.null_count else texts


def _copied(column: pa.Array) -> pa.Array:
    return pa.array(column.to_numpy(zero_copy_only=False).copy(), column.type)


def _taken(column: pa.Array) -> pa.Array:
    return column.take(pa.array(np.arange(len(column))))
