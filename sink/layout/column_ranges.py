"""Column statistics of a Parquet file for Hudi's metadata table, from the footer that the writer has in memory.

Guarantee: the statistics equal those that Hudi 1.2 computes from the footer of the same file; a contract test compares
them. If that is not certain (a type that Hudi refuses, a text that is not UTF-8, values that are too long), there are
none, and Hudi reads the footer itself. The writer reads no file and no row for them. Imports only what every executor
has.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq

KEY = "columnRanges"
"""The member in the JSON of a base file's write stat."""
COLUMNS_MOST = 64
"""Columns that a write stat has statistics for. Hudi indexes the first 32 by default; `cut` marks a wider file."""
_BYTES_MOST = 16_384
"""Bytes of one file's statistics as JSON: a text may have 4,096 bytes, and the status goes through ZooKeeper."""
STATUS_BYTES_MOST = 16 << 20
"""Bytes of all statistics in a write status, before compression to a fifth: 5,000 files of 30 columns."""
_ZEROS: Mapping[str, bool | int | float] = {"BOOLEAN": False, "INT32": 0, "INT64": 0, "FLOAT": 0.0, "DOUBLE": 0.0}
"""For a column of nulls only, Parquet's Java library returns zero as minimum and maximum of these types."""
_PLAIN = {
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
    """The statistics of a column. `kind` is Hudi's `ValueType`, for a decimal followed by `(precision,scale)`. Values
    are numbers, booleans, texts and bytes as in Parquet; a decimal is its unscaled number."""

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


def ranges_of(metadata: pq.FileMetaData) -> dict[str, Any] | None:
    """Returns the statistics for the JSON of the write stat; None if Hudi has to read the footer itself."""
    names = [metadata.schema.column(index).path for index in range(min(metadata.num_columns, COLUMNS_MOST))]
    try:
        rows = [_row(_range(metadata, index, name)) for index, name in enumerate(names)]
    except _Unknown:
        return None
    ranges = {"cut": metadata.num_columns > len(names), "ranges": rows}
    return ranges if len(json.dumps(ranges)) <= _BYTES_MOST else None


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


def _range(metadata: pq.FileMetaData, index: int, name: str) -> ColumnRange:
    """Merges the statistics of all row groups as Hudi does: in the order of Java's values."""
    column_schema = metadata.schema.column(index)
    kind = _kind(column_schema.logical_type.to_json(), column_schema.physical_type)
    key = _ORDER.get(kind, _natural)
    least, greatest, nulls, values, size, uncompressed = None, None, 0, 0, 0, 0
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(index)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            raise _Unknown(name)
        low, high = _ends(statistics, kind, column_schema.physical_type)
        if low is not None:
            least = low if least is None or key(low) < key(least) else least
            greatest = high if greatest is None or key(high) > key(greatest) else greatest
        nulls += statistics.null_count
        values += chunk.num_values
        size += chunk.total_compressed_size
        uncompressed += chunk.total_uncompressed_size
    return ColumnRange(name, kind, least, greatest, nulls, values, size, uncompressed)


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


def _ends(statistics: Any, kind: str, physical: str) -> tuple[Any, Any]:
    if not statistics.has_min_max:
        zero = _ZEROS.get(physical)
        if zero is not None and kind.startswith("DECIMAL"):
            return 0, 0
        return zero, zero
    return _value(statistics.min_raw, kind), _value(statistics.max_raw, kind)


def _value(raw: Any, kind: str) -> Any:
    if kind == "STRING":
        try:
            return bytes(raw).decode()
        except UnicodeDecodeError:
            raise _Unknown(kind) from None
    if kind.startswith("DECIMAL") and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _natural(value: Any) -> Any:
    return value


_ORDER: Mapping[str, Callable[[Any], Any]] = {
    # Java compares texts by UTF-16 units and bytes as signed numbers, and -0.0 is less than 0.0.
    "STRING": lambda text: text.encode("utf-16-be"),
    "BYTES": lambda value: bytes(byte ^ 0x80 for byte in value),
    "FLOAT": lambda value: (value, math.copysign(1, value)),
    "DOUBLE": lambda value: (value, math.copysign(1, value)),
}


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
