"""Compares what base files and the metadata table say of a file's rows with its rows: what readers and writers skip by.

Guarantee: without a finding, no range of values, count of nulls, range of record keys or Bloom filter of a current base
file leaves out one of its rows, and column statistics exist for each file and column that the index has. NaN is in no
range. Ranges of columns inside of structs, lists and maps are not compared, nor those of log files. Memory is bounded:
one row group at a time. Raises what the store raises.
"""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sink.audit.content.bloom import SIMPLE, missing_keys
from sink.audit.files import Group, NamedFile, NamedFiles
from sink.audit.metadata_table import MetadataTable, Record, column_statistics
from sink.audit.report import AuditFindings, FindingKind
from sink.storage.table_files import TableFiles

_HUDIS = "_hoodie_"
_KEY = "_hoodie_record_key"
_FILTER, _FILTER_KIND = b"org.apache.hudi.bloomfilter", b"hoodie_bloom_filter_type_code"
_LOWEST, _HIGHEST = b"hoodie_min_record_key", b"hoodie_max_record_key"
_DEFINITIONS = "hoodie.table.index.defs.path"
_PLAIN, _DECIMAL, _DATE, _MOMENTS = frozenset(range(2, 8)), 10, 12, {15: 1_000, 16: 1}
"""Numbers of the kinds of values in column statistics: those that are as they are, decimals, dates, and moments with
their microseconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass
class Extent:
    """Lowest and highest value of a column, NaN left out as in Parquet's statistics, and the number of its nulls. The
    ends are None if there is no such value."""

    low: Any = None
    high: Any = None
    nulls: int = 0

    def add(self, other: Extent) -> None:
        if other.low is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
            self.high = other.high if self.high is None else max(self.high, other.high)
        self.nulls += other.nulls

    def comparable(self, bound: Any) -> bool:
        return type(bound) is type(self.low)

    def within(self, low: Any, high: Any) -> bool:
        if self.low is None or low is None or high is None:
            return self.low is None
        # Java's NaN is greater than all numbers.
        return not _is_nan(low) and bool(low <= self.low and (_is_nan(high) or self.high <= high))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


@dataclass
class IndexCheck:
    """Checks the files of a table. `schema` has the columns that readers see; `changed`: its rows are changed by key,
    which writers look up."""

    table: TableFiles
    metadata: MetadataTable
    schema: pa.Schema
    changed: bool
    findings: AuditFindings
    _statistics: Mapping[tuple[str, str], Record] = field(default_factory=dict)
    _indexed: Sequence[str] = ()

    def run(self, files: NamedFiles, broken: frozenset[str], groups: Collection[Group] | None = None) -> None:
        """Checks the files of these file groups, or of all. `broken` files have a finding already."""
        self._read_statistics()
        names = {posixpath.basename(path) for path in files.paths}
        for name in sorted({name for name, _ in self._statistics} - names):
            if self.metadata.shows(name) and not self._is_deleted(name):
                self.findings.add(
                    FindingKind.STATISTICS, f"column_stats has ranges of {name}, a file that no commit names"
                )
        for group, entry in files.live.items():
            if groups is not None and group not in groups:
                continue
            if entry.file.path.endswith(".parquet") and entry.file.path not in broken:
                self._check(entry)

    def _read_statistics(self) -> None:
        try:
            self._statistics = column_statistics(self.metadata) or {}
        except ValueError as error:
            self.findings.add(FindingKind.STATISTICS, f"{error}: the column statistics cannot be read")
            return
        path = self.table.properties.get(_DEFINITIONS)
        if self._statistics and path:
            try:
                definitions = json.loads(self.table.read(posixpath.join(self.table.root, path)))
            except (FileNotFoundError, ValueError):
                return
            self._indexed = definitions["indexDefinitions"].get("column_stats", {}).get("sourceFields", ())

    def _is_deleted(self, name: str) -> bool:
        return all(record["isDeleted"] for (file, _), record in self._statistics.items() if file == name)

    def _check(self, entry: NamedFile) -> None:
        path = posixpath.join(self.table.root, entry.file.path)
        try:
            with self.table.filesystem.open_input_file(path) as source:
                file = pq.ParquetFile(source)
                self._hold_columns(entry, file.schema_arrow)
                extents: dict[str, Extent] = {}
                for name, group, extent in self._extents(file):
                    self._hold_footer(entry, file, name, group, extent)
                    extents.setdefault(name, Extent()).add(extent)
                self._hold_keys(entry, file, extents.get(_KEY))
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            self.findings.add(FindingKind.FILE_UNREADABLE, f"{entry.file.path}: {str(error)[:200]}")
            return
        if entry.file.writes:
            self._hold_statistics(entry, extents)

    def _hold_columns(self, entry: NamedFile, found: pa.Schema) -> None:
        """Compares the file's columns with those that readers see."""
        known = {column.name.lower(): column.type for column in self.schema}
        for column in found:
            kind = known.get(column.name.lower())
            place = _place(entry, column.name)
            if column.name.startswith(_HUDIS):
                continue
            if kind is None:
                self.findings.add(FindingKind.COLUMNS, f"{place} is none of the table's: readers leave it out")
            elif not _is_widened(column.type, kind):
                self.findings.add(FindingKind.COLUMNS, f"{place} has type {column.type} there, the table's is {kind}")

    def _extents(self, file: pq.ParquetFile) -> Iterator[tuple[str, int, Extent]]:
        """Yields name, row group and extent of each flat column."""
        flat = [column.name for column in file.schema_arrow if column.type.num_fields == 0]
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=flat)
            for name in flat:
                yield name, group, _extent(rows.column(name))

    def _hold_footer(self, entry: NamedFile, file: pq.ParquetFile, name: str, group: int, extent: Extent) -> None:
        found = file.metadata.row_group(group).column(self._leaf(file, name)).statistics
        if found is None:
            self.findings.add(FindingKind.STATISTICS, f"{_place(entry, name)} has none in the file")
            return
        if found.has_null_count and found.null_count != extent.nulls:
            self.findings.add(
                FindingKind.STATISTICS,
                f"{_place(entry, name)}: the file says {found.null_count:,} nulls, its rows have {extent.nulls:,}",
            )
        if found.has_min_max and extent.comparable(found.min) and not extent.within(found.min, found.max):
            self.findings.add(
                FindingKind.STATISTICS,
                f"{_place(entry, name)}: the file says from {found.min!r} to {found.max!r}, its rows go from"
                f" {extent.low!r} to {extent.high!r}: readers skip rows",
            )

    @staticmethod
    def _leaf(file: pq.ParquetFile, name: str) -> int:
        """Returns the number of a flat column among the leaves, which nested columns have several of."""
        schema = file.metadata.schema
        return next(number for number in range(len(schema)) if schema.column(number).path == name)

    def _hold_keys(self, entry: NamedFile, file: pq.ParquetFile, extent: Extent | None) -> None:
        """Compares the footer's range of record keys and its Bloom filter, by which writers look keys up."""
        found = file.metadata.metadata or {}
        place = f"{entry.file.path} of commit {entry.commit}"
        if extent is None or extent.low is None:
            return
        if _FILTER not in found:
            if self.changed:
                self.findings.add(FindingKind.FOOTER, f"{place} has no Bloom filter of its record keys in its footer")
            return
        low, high = (found.get(name, b"").decode() for name in (_LOWEST, _HIGHEST))
        if (low, high) != (extent.low, extent.high):
            self.findings.add(
                FindingKind.FOOTER,
                f"{place}: its footer says record keys from {low!r} to {high!r}, its rows have {extent.low!r} to"
                f" {extent.high!r}: writers look keys up elsewhere",
            )
        kind = found.get(_FILTER_KIND, SIMPLE.encode()).decode()
        try:
            missing = [
                key
                for batch in file.iter_batches(columns=[_KEY])
                for key in missing_keys(found[_FILTER].decode(), kind, batch.column(0).to_pylist())
            ]
        except ValueError as error:
            self.findings.add(FindingKind.FOOTER, f"{place}: {error}")
            return
        if missing:
            self.findings.add(
                FindingKind.FOOTER,
                f"{place}: the Bloom filter in its footer lacks {len(missing):,} of its record keys, as"
                f" {missing[0]!r}: writers look them up elsewhere",
            )

    def _hold_statistics(self, entry: NamedFile, extents: Mapping[str, Extent]) -> None:
        """Compares the ranges that the metadata table has of the file."""
        name = posixpath.basename(entry.file.path)
        for column, extent in extents.items():
            record = self._statistics.get((name, column))
            if record is None or record["isDeleted"]:
                if column in self._indexed:
                    self.findings.add(FindingKind.STATISTICS, f"{_place(entry, column)} is not in column_stats")
                continue
            low, high = (_stored(record, bound) for bound in ("minValue", "maxValue"))
            if record["nullCount"] not in (None, extent.nulls):
                self.findings.add(
                    FindingKind.STATISTICS,
                    f"{_place(entry, column)}: column_stats says {record['nullCount']:,} nulls, its rows have"
                    f" {extent.nulls:,}",
                )
            if low is not None and high is not None and extent.comparable(low) and not extent.within(low, high):
                self.findings.add(
                    FindingKind.STATISTICS,
                    f"{_place(entry, column)}: column_stats says from {low!r} to {high!r}, its rows go from"
                    f" {extent.low!r} to {extent.high!r}: readers skip rows",
                )


def _place(entry: NamedFile, column: str) -> str:
    return f"column {column} of {entry.file.path} of commit {entry.commit}"


def _is_widened(kind: pa.DataType, wider: pa.DataType) -> bool:
    """Whether values of a type may be those of a column of a wider one. Only flat columns are told apart."""
    if kind.num_fields or wider.num_fields:
        return bool(kind.num_fields and wider.num_fields)
    if pa.types.is_string(wider) or pa.types.is_binary(wider):
        return True
    return any(is_one(kind) and is_one(wider) for is_one in _FAMILIES)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_FAMILIES: Sequence[Callable[[pa.DataType], bool]] = (
    _is_number,
    pa.types.is_boolean,
    pa.types.is_temporal,
    pa.types.is_fixed_size_binary,
)


def _extent(column: pa.ChunkedArray) -> Extent:
    try:
        found = pc.min_max(column).as_py()
    except pa.ArrowNotImplementedError:
        return Extent(nulls=column.null_count)
    # Arrow gives NaN if there is no other value.
    low, high = (None if _is_nan(found[end]) else found[end] for end in ("min", "max"))
    return Extent(low, high, column.null_count)


def _stored(record: Record, bound: str) -> Any:
    """Returns a bound as a value of Python; None where it has none, or one of a kind that is not compared."""
    value = (record[bound] or {}).get("value")
    kind = (record["valueType"] or {}).get("typeOrdinal", 0)
    if value is None or kind in _PLAIN:
        return value
    if kind == _DECIMAL:
        scale = int(record["valueType"]["additionalInfo"].partition(",")[2])
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
    if kind == _DATE:
        return value if isinstance(value, date) else _EPOCH.date() + timedelta(days=value)
    if kind in _MOMENTS and isinstance(value, int):
        return _EPOCH + timedelta(microseconds=value * _MOMENTS[kind])
    return None
