"""The result of decoding a batch of record values: columns of the schema, and the bad values.

Guarantee: the result for a value depends on that value alone, not on where batches end. Bad values are returned, never
dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import types as T

from sink.decode.cursors import Flags, flags

TOMBSTONE = "the value is null (a tombstone), which an append table cannot take"


class SchemaMismatch(Exception):
    """A writer's schema does not fit the table: field `path` has type `wrote` there, and the column wants `wants`. The
    `way_out` begins with the full stop before it."""

    def __init__(self, path: str, wrote: str, wants: str, way_out: str = "") -> None:
        super().__init__(f"field {path!r} is written as {wrote}, and the table's column is {wants}{way_out}")


class UnfitSchema(SchemaMismatch):
    """A writer's schema does not fit the table, and it is not the type of one field that is in the way."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)


@dataclass(frozen=True, slots=True)
class BadValue:
    """A bad value. `index` is its position in the batch.

    `column` is the path of the column that it does not fit; empty for the value as a whole. `needed` is the type of
    that column, if it was read and the value there is of another type.
    """

    index: int
    reason: str
    column: str = ""
    needed: T.DataType | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """`rows` has one row for each good value, in order."""

    rows: pa.RecordBatch
    bad: tuple[BadValue, ...]
    """By rising index."""


class Decoder(Protocol):
    """Decodes values to rows. Not thread-safe."""

    def nulls(self, values: pa.BinaryArray) -> Flags:
        """Flags the values that are null: tombstones."""
        return flags(values.is_null())

    def decode(self, values: pa.BinaryArray) -> Decoded: ...
