"""The result of decoding a batch of record values: columns of the schema, and the values that are bad.

Guarantee: what becomes of a value depends on that value alone, never on where batches end. Bad values are returned,
never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

TOMBSTONE = "the value is null (a tombstone), which an append table cannot take"


class SchemaMismatch(Exception):
    """A writer's schema whose records cannot go into the table: `path` has `wrote` there and `wants` here."""

    def __init__(self, path: str, wrote: str, wants: str) -> None:
        super().__init__(f"field {path!r} is written as {wrote}, and the table's column is {wants}")


@dataclass(frozen=True, slots=True)
class BadValue:
    """`index` counts values from the beginning of the batch."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`rows` holds the good values in order. When `bad` is empty, that is one row per value."""

    rows: pa.RecordBatch
    bad: tuple[BadValue, ...]
    """By rising index."""


class Decoder(Protocol):
    """Not to be shared between threads."""

    def decode(self, values: pa.BinaryArray) -> Decoded: ...
