"""Chooses the encodings of a Parquet file's columns from its first rows.

Guarantee: the same rows give the same choice. Spark, DuckDB and hudi-rs read every encoding. Raises nothing on purpose.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PAGES = {"write_batch_size": 1 << 14}
"""Values that Arrow encodes at once: its default of 1,024 costs time."""
if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters:
    # Arrow's default of 20,000 makes many small pages. A page's bytes are bounded all the same.
    PAGES["max_rows_per_page"] = 1 << 20
_SAMPLE = 4096
_FEW = 0.05
"""A text or integer column with fewer distinct values than this share of a sample gets a dictionary."""
_DELTA = "DELTA_BINARY_PACKED"
_BLOCK = 128
"""Values in a block of DELTA_BINARY_PACKED, which packs all differences with the bits of the widest one."""
_GAIN = 0.9
"""A column is delta-encoded if that makes it smaller by at least this factor."""


@dataclass(frozen=True, slots=True)
class ParquetLayout:
    """The encodings of the columns: dictionary, delta, or plain."""

    schema: pa.Schema
    dictionary: tuple[str, ...]
    encodings: Mapping[str, str]


def choose_layout(rows: pa.Table, delta: Sequence[str], prefixed: Sequence[str]) -> ParquetLayout:
    """Chooses the layout. `delta` columns rise from row to row; `prefixed` columns have texts with a common beginning.
    Neither gets a dictionary."""
    sample = rows.slice(0, _SAMPLE)
    chosen = []
    encodings = dict.fromkeys(delta, _DELTA) | dict.fromkeys(prefixed, "DELTA_BYTE_ARRAY")
    for field in rows.schema:
        if field.name in encodings:
            continue
        if pa.types.is_dictionary(field.type) or _is_few(sample.column(field.name)):
            chosen.append(field.name)
        elif _is_denser_as_delta(sample.column(field.name)):
            encodings[field.name] = _DELTA
    return ParquetLayout(
        rows.schema,
        tuple(chosen),
        {name: kind for name, kind in encodings.items() if name in rows.schema.names},
    )


def _is_few(column: pa.ChunkedArray) -> bool:
    if not (pa.types.is_string(column.type) or pa.types.is_integer(column.type)):
        return False
    return bool(pc.count_distinct(column).as_py() <= max(1, len(column) * _FEW))


def _is_denser_as_delta(column: pa.ChunkedArray) -> bool:
    """Returns whether packed differences are smaller than the compressed numbers, as with rising identifiers, times
    and numbers of a narrow range. Packing also costs less time than compressing."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return False
    width = kind.bit_width // 8
    present = column.drop_null().combine_chunks()
    numbers = present.view(pa.int64() if width == 8 else pa.int32()).to_numpy().astype(f"<i{width}")
    blocks = len(numbers) // _BLOCK
    if not blocks:
        return False
    # As unsigned numbers: a difference may be larger than the type.
    deltas = np.diff(numbers[: blocks * _BLOCK], prepend=numbers[:1]).reshape(blocks, _BLOCK)
    ranges = (deltas.max(axis=1).astype(f"<u{width}") - deltas.min(axis=1).astype(f"<u{width}")).astype(np.float64)
    packed = float(np.ceil(np.log2(ranges + 1)).mean()) / 8
    plain = len(pa.compress(numbers.tobytes(), "zstd", asbytes=True)) / len(numbers)
    return packed < plain * _GAIN
