"""Column statistics of a Parquet file for Hudi's metadata table, from its footer.

Readers skip a file by the ranges of its columns. Guarantee: each value of a column is within its range, in Spark's
order. Void in two cases: with NaN, a range ends with infinity; a value that begins with 64 times U+10FFFF, or 64 bytes
0xFF, may have no short upper bound. Where Hudi 1.2 computes a range from the same footer, this one is equal, except
that long values are shortened; a contract test compares them. Where equality is not certain (a type that Hudi refuses,
a text that is not UTF-8), the file gets no ranges, and Hudi reads the footer itself. Of files that Hudi's writer made,
the footers are read (`sink.hudi.footers`). The Arrow writer has them in memory: it reads no file for this, and of the
rows only floating-point columns. Imports only what every executor has.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KEY = "columnRanges"
"""The member in the JSON of a base file's write stat."""
COLUMNS_MOST = 64
"""Columns that a write stat has statistics for. Hudi indexes the first 32 by default; `cut` marks a wider file."""
_LENGTH_MOST = 64
"""Characters of a text or bytes in a range: the status goes through ZooKeeper."""
_TOPS: Mapping[str, Any] = {"STRING": "\U0010ffff", "BYTES": b"\xff"}
"""The greatest character or byte, by kind."""
STATUS_BYTES_MOST = 16 << 20
"""Bytes of all statistics in a write status, before compression to a fifth: 5,000 files of 30 columns."""
_ZEROS: Mapping[str, bool | int | float] = {"BOOLEAN": False, "INT32": 0, "INT64": 0, "FLOAT": 0.0, "DOUBLE": 0.0}
"""Parquet's Java library returns zero as both ends of a column chunk with nulls only, for these physical types."""
_PLAIN = {  # Hudi's `ValueType` by Parquet's physical type, for columns without a logical type
    "BOOLEAN": "BOOLEAN",
    "INT32": "INT",
    "INT64": "LONG",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "BYTE_ARRAY": "BYTES",
}
_UNITS = {"milliseconds": "MILLIS", "microseconds": "MICROS", "nanoseconds": "NANOS"}


class _Unknown(Exception):
    """Hudi may compute other statistics for this column, or refuse the file."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The statistics of a column. `kind` is Hudi's `ValueType`, for a decimal followed by `(precision,scale)`. The ends
    are numbers, booleans, texts and bytes as in Parquet; a decimal is its unscaled number. `values` counts nulls, too.
    `size` and `uncompressed` are bytes in the file.
    """

    column: str
    kind: str
    least: Any
    greatest: Any
    nulls: int
    values: int
    size: int
    uncompressed: int

    @property
    def value_type(self) -> str:
        return self.kind.partition("(")[0]

    @property
    def precision_and_scale(self) -> str | None:
        return self.kind.rstrip(")").partition("(")[2] or None


@dataclass(frozen=True, slots=True)
class FileRanges:
    ranges: tuple[ColumnRange, ...]
    cut: bool
    """Whether the file has more columns than these."""


NullCounts = Mapping[tuple[int, int], int]
"""Nulls of column chunks, by row group and column."""


def ranges_of(
    metadata: pq.FileMetaData, with_nan: Collection[int] = (), counted: NullCounts = MappingProxyType({})
) -> dict[str, Any] | None:
    """Returns the statistics for the JSON of the write stat; None if Hudi has to read the footer itself. `with_nan` has
    the columns in which `nan_columns` found NaN, `counted` the nulls of `chunks_without_nulls`."""
    names = [metadata.schema.column(index).path for index in _counted_columns(metadata)]
    try:
        rows = [_row(_range(metadata, index, name, index in with_nan, counted)) for index, name in enumerate(names)]
    except _Unknown:
        return None
    return {"cut": metadata.num_columns > len(names), "ranges": rows}


def chunks_without_nulls(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """Returns row group and column of the chunks whose statistics do not count nulls. Parquet's Java library leaves out
    all statistics of a chunk whose minimum and maximum have more than 4,096 bytes together."""
    return [
        (number, index)
        for number in range(metadata.num_row_groups)
        for index in _counted_columns(metadata)
        if (found := metadata.row_group(number).column(index).statistics) is None or not found.has_null_count
    ]


def _counted_columns(metadata: pq.FileMetaData) -> range:
    return range(min(metadata.num_columns, COLUMNS_MOST))


def nan_columns(rows: pa.Table) -> set[int]:
    """Returns the columns of the file that have NaN in these rows; a column of a nested type is several of them.

    Parquet's minimum and maximum leave NaN out, although Spark counts it as greater than all numbers. Spark's cache, in
    which Hudi's reader holds the ranges, leaves it out, too: a range that ended with NaN would hide the file."""
    leaves = (leaf for column in rows.columns for leaf in _leaves(column))
    return {
        index
        for index, leaf in enumerate(leaves)
        if pa.types.is_floating(leaf.type) and pc.any(pc.is_nan(leaf)).as_py()
    }


def within_bounds(stats: Sequence[str]) -> tuple[str, ...]:
    """Returns the write stats; beyond the limit of a status they lose their column statistics."""
    total, bounded = 0, []
    for stat in stats:
        total += len(stat)
        if total > STATUS_BYTES_MOST and f'"{KEY}"' in stat:
            stat = json.dumps({name: value for name, value in json.loads(stat).items() if name != KEY})
        bounded.append(stat)
    return tuple(bounded)


def decode_ranges(document: Mapping[str, Any]) -> FileRanges:
    return FileRanges(tuple(_decode_range(*row) for row in document["ranges"]), bool(document["cut"]))


def _leaves(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Yields the columns of Parquet that hold this one."""
    kind = column.type
    if pa.types.is_map(kind):
        pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        column, kind = column.cast(pairs), pairs
    if pa.types.is_list(kind):
        yield from _leaves(pc.list_flatten(column))
    elif pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            yield from _leaves(pc.struct_field(column, position))
    else:
        yield column


def _range(metadata: pq.FileMetaData, index: int, name: str, has_nan: bool, counted: NullCounts) -> ColumnRange:
    """Merges the statistics of all row groups in Spark's order, which is that of Python's texts and bytes."""
    column_schema = metadata.schema.column(index)
    kind = _kind(column_schema.logical_type.to_json(), column_schema.physical_type)
    key = _number_order if kind in ("FLOAT", "DOUBLE") else _natural
    chunks = [metadata.row_group(number).column(index) for number in range(metadata.num_row_groups)]
    nulls = [_nulls(chunk.statistics, counted.get((number, index)), name) for number, chunk in enumerate(chunks)]
    ends = [
        _ends(chunk.statistics, kind, column_schema.physical_type, count == chunk.num_values)
        for chunk, count in zip(chunks, nulls, strict=True)
    ]
    least = min((low for low, _ in ends if low is not None), key=key, default=None)
    greatest = max((high for _, high in ends if high is not None), key=key, default=None)
    return ColumnRange(
        name,
        kind,
        least,
        math.inf if has_nan else greatest,
        sum(nulls),
        sum(chunk.num_values for chunk in chunks),
        sum(chunk.total_compressed_size for chunk in chunks),
        sum(chunk.total_uncompressed_size for chunk in chunks),
    )


@lru_cache
def _kind(logical_json: str, physical: str) -> str:
    logical = json.loads(logical_json)
    match logical["Type"]:
        case "None" if physical in _PLAIN:
            return _PLAIN[physical]
        case "String":
            return "STRING"
        case "Date":
            return "DATE"
        case "Decimal":
            return f"DECIMAL({logical['precision']},{logical['scale']})"
        case "Timestamp" if logical["timeUnit"] in _UNITS:
            return f"{'' if logical['isAdjustedToUTC'] else 'LOCAL_'}TIMESTAMP_{_UNITS[logical['timeUnit']]}"
    raise _Unknown(logical_json)


def _nulls(statistics: Any, counted: int | None, name: str) -> int:
    if statistics is not None and statistics.has_null_count:
        return int(statistics.null_count)
    if counted is None:
        raise _Unknown(name)
    return counted


def _ends(statistics: Any, kind: str, physical: str, is_null: bool) -> tuple[Any, Any]:
    """Returns the least and the greatest value of a row group, or bounds of them. `is_null`: all its values are."""
    if statistics is not None and statistics.has_min_max:
        least, greatest = _value(statistics.min_raw, kind), _value(statistics.max_raw, kind)
        return (least[:_LENGTH_MOST], _bound_above(greatest, kind)) if kind in _TOPS else (least, greatest)
    if is_null:
        zero = _ZEROS.get(physical)
        return zero, zero
    if kind in ("FLOAT", "DOUBLE"):
        return math.inf, math.inf
    if kind in _TOPS:
        # Parquet's libraries leave out a minimum and maximum of more than 4,096 bytes. Hudi would skip the file.
        return _TOPS[kind][:0], _TOPS[kind] * _LENGTH_MOST
    raise _Unknown(kind)


def _bound_above(value: Any, kind: str) -> Any:
    """Returns a short value that is not less, in Spark's order: a cut one ends with the next greater character."""
    if len(value) <= _LENGTH_MOST:
        return value
    head = value[:_LENGTH_MOST].rstrip(_TOPS[kind])
    if not head:
        return _TOPS[kind] * _LENGTH_MOST
    code = ord(head[-1:]) + 1
    if isinstance(value, bytes):
        return head[:-1] + bytes([code])
    # UTF-8 has no surrogates.
    return head[:-1] + chr(0xE000 if code == 0xD800 else code)


def _value(raw: Any, kind: str) -> Any:
    if kind == "STRING":
        try:
            return bytes(raw).decode()
        except UnicodeDecodeError:
            raise _Unknown(kind) from None
    if kind.startswith("DECIMAL") and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    # Parquet's Java library takes NaN for a maximum, or for both if there is no other value. See `nan_columns`.
    return math.inf if isinstance(raw, float) and math.isnan(raw) else raw


def _natural(value: Any) -> Any:
    return value


def _number_order(value: float) -> tuple[float, float]:
    """Orders -0.0 before 0.0, as Hudi does."""
    return value, math.copysign(1, value)


def _row(column: ColumnRange) -> list[Any]:
    ends = [_json_value(value) for value in (column.least, column.greatest)]
    return [column.column, column.kind, *ends, column.nulls, column.values, column.size, column.uncompressed]


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    # JSON has no infinity.
    return repr(value) if isinstance(value, float) else value


def _decode_range(column: str, kind: str, least: Any, greatest: Any, *counts: int) -> ColumnRange:
    convert: Callable[[Any], Any] = _READ.get(kind, _natural)
    low, high = (None if value is None else convert(value) for value in (least, greatest))
    return ColumnRange(column, kind, low, high, *counts)


_READ: Mapping[str, Callable[[Any], Any]] = {"BYTES": base64.b64decode, "FLOAT": float, "DOUBLE": float}
