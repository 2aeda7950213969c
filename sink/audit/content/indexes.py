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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sink.audit.content.bloom import SIMPLE, missing_keys
from sink.audit.content.file_columns import column_faults
from sink.audit.files import Group, NamedFile, NamedFiles
from sink.audit.metadata_table import MetadataTable, Record, column_statistics
from sink.audit.report import AuditFindings, FindingKind
from sink.storage.table_files import TableFiles

_KEY = "_hoodie_record_key"
_FILTER, _FILTER_KIND = b"org.apache.hudi.bloomfilter", b"hoodie_bloom_filter_type_code"
_LOWEST, _HIGHEST = b"hoodie_min_record_key", b"hoodie_max_record_key"
_NAME, _AVRO = "_hoodie_file_name", b"parquet.avro.schema"
_BOUNDS = ("minValue", "maxValue")
_DEFINITIONS = "hoodie.table.index.defs.path"
_PLAIN, _DECIMAL, _DATE, _MOMENTS = frozenset(range(2, 8)), 10, 12, {15: 1_000, 16: 1}
"""Numbers of the kinds of values in column statistics: those that are as they are, decimals, dates, and moments with
their microseconds."""
_DIGITS = Context(prec=76)
"""The most digits of a decimal in Arrow; Python keeps 28 unless told otherwise."""
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
        """Whether a bound is of the kind of the values; a moment with a zone and one without are of two."""
        has_zone = getattr(bound, "tzinfo", None) is None, getattr(self.low, "tzinfo", None) is None
        return type(bound) is type(self.low) and has_zone[0] == has_zone[1]

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
    _indexed: Collection[str] = ()

    def run(self, files: NamedFiles, broken: frozenset[str], groups: Collection[Group] | None = None) -> None:
        """Checks the files of these file groups, or of all. `broken` files have a finding already."""
        self._read_statistics(files)
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

    def _read_statistics(self, files: NamedFiles) -> None:
        try:
            found = column_statistics(self.metadata)
        except ValueError as error:
            self.findings.add(FindingKind.STATISTICS, f"{error}: the column statistics cannot be read")
            return
        if found is None:
            return
        self._statistics = found
        if not found and any(entry.file.writes for entry in files.live.values()):
            self.findings.add(FindingKind.STATISTICS, "column_stats is empty, and the table's properties list it")
        elif path := self.table.properties.get(_DEFINITIONS):
            self._indexed = self._defined(path)
        else:
            self._indexed = {column for _, column in found}

    def _defined(self, path: str) -> Collection[str]:
        """Returns the columns that the index is defined for."""
        try:
            definitions = json.loads(self.table.read(posixpath.join(self.table.root, path)))
            return set(definitions["indexDefinitions"]["column_stats"]["sourceFields"])
        except (FileNotFoundError, ValueError, LookupError, TypeError) as error:
            sentence = f"{path} does not say which columns column_stats has: {type(error).__name__}: {error}"
            self.findings.add(FindingKind.STATISTICS, sentence[:300])
            return ()

    def _is_deleted(self, name: str) -> bool:
        return all(record["isDeleted"] for (file, _), record in self._statistics.items() if file == name)

    def _check(self, entry: NamedFile) -> None:
        path = posixpath.join(self.table.root, entry.file.path)
        try:
            with self.table.filesystem.open_input_file(path) as source:
                file = pq.ParquetFile(source)
                for name, fault in column_faults(file.schema_arrow, self.schema, entry.commit.by_others):
                    self.findings.add(FindingKind.COLUMNS, f"{_place(entry, name)} {fault}")
                extents: dict[str, Extent] = {}
                for name, group, extent in self._extents(file):
                    self._hold_footer(entry, file, name, group, extent)
                    extents.setdefault(name, Extent()).add(extent)
                self._hold_keys(entry, file, extents.get(_KEY))
                self._hold_names(entry, file, extents.get(_NAME))
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            self.findings.add(FindingKind.FILE_UNREADABLE, f"{entry.file.path}: {str(error)[:200]}")
            return
        if entry.file.writes:
            self._hold_statistics(entry, extents)

    def _extents(self, file: pq.ParquetFile) -> Iterator[tuple[str, int, Extent]]:
        """Yields name, row group and extent of each flat column whose name is there once."""
        names = file.schema_arrow.names
        flat = [c.name for c in file.schema_arrow if c.type.num_fields == 0 and names.count(c.name) == 1]
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
        if extent is None or not isinstance(extent.low, str):
            return
        if _FILTER not in found:
            if self.changed:
                self.findings.add(FindingKind.FOOTER, f"{place} has no Bloom filter of its record keys in its footer")
            return
        low, high = (found.get(name, b"").decode() for name in (_LOWEST, _HIGHEST))
        if (low, high) != (extent.low, extent.high) and (low, high) != _ends_in_java(file):
            self.findings.add(
                FindingKind.FOOTER,
                f"{place}: its footer says record keys from {low!r} to {high!r}, its rows have {extent.low!r} to"
                f" {extent.high!r}: writers look keys up elsewhere",
            )
        kind = found.get(_FILTER_KIND, SIMPLE.encode()).decode()
        try:
            text = found[_FILTER].decode()
            missing = [key for keys in _keys(file) for key in missing_keys(text, kind, keys)]
        except ValueError as error:
            self.findings.add(FindingKind.FOOTER, f"{place}: {error}")
            return
        if missing:
            self.findings.add(
                FindingKind.FOOTER,
                f"{place}: the Bloom filter in its footer lacks {len(missing):,} of its record keys, as"
                f" {missing[0]!r}: writers look them up elsewhere",
            )

    def _hold_names(self, entry: NamedFile, file: pq.ParquetFile, extent: Extent | None) -> None:
        """Compares the file that its rows name, and the columns that its footer names, with those that they are."""
        name = posixpath.basename(entry.file.path)
        has_names = self.table.properties.get("hoodie.populate.meta.fields", "true") == "true"
        if has_names and extent is not None and extent.low is not None and (extent.low, extent.high) != (name, name):
            self.findings.add(
                FindingKind.CELL,
                f"{_place(entry, _NAME)} goes from {extent.low!r} to {extent.high!r}: Spark SQL changes rows elsewhere",
            )
        text = (file.metadata.metadata or {}).get(_AVRO)
        if text is not None and _names_in(text) != file.schema_arrow.names:
            place = f"{entry.file.path} of commit {entry.commit}"
            self.findings.add(FindingKind.FOOTER, f"{place}: {_AVRO.decode()} in its footer has other columns than it")

    def _hold_statistics(self, entry: NamedFile, extents: Mapping[str, Extent]) -> None:
        """Compares the ranges that the metadata table has of the file."""
        name = posixpath.basename(entry.file.path)
        for column, extent in extents.items():
            record = self._statistics.get((name, column))
            if record is None or record["isDeleted"]:
                if column in self._indexed:
                    self.findings.add(FindingKind.STATISTICS, f"{_place(entry, column)} is not in column_stats")
                continue
            if record["nullCount"] not in (None, extent.nulls):
                self.findings.add(
                    FindingKind.STATISTICS,
                    f"{_place(entry, column)}: column_stats says {record['nullCount']:,} nulls, its rows have"
                    f" {extent.nulls:,}",
                )
            if extent.low is not None and not _bounds_hold(record, extent):
                low, high = (_stored(record, bound) for bound in _BOUNDS)
                self.findings.add(
                    FindingKind.STATISTICS,
                    f"{_place(entry, column)}: column_stats says from {low!r} to {high!r}, its rows go from"
                    f" {extent.low!r} to {extent.high!r}: readers skip rows",
                )


def _names_in(schema: bytes) -> list[str]:
    """Returns the names of columns in an Avro schema; none for one that cannot be read."""
    try:
        return [field["name"] for field in json.loads(schema)["fields"]]
    except (ValueError, LookupError, TypeError):
        return []


def _place(entry: NamedFile, column: str) -> str:
    return f"column {column} of {entry.file.path} of commit {entry.commit}"


def _extent(column: pa.ChunkedArray) -> Extent:
    try:
        found = pc.min_max(column).as_py()
    except pa.ArrowNotImplementedError:
        return Extent(nulls=column.null_count)
    # Arrow gives NaN if there is no other value.
    low, high = (None if _is_nan(found[end]) else found[end] for end in ("min", "max"))
    return Extent(low, high, column.null_count)


def _keys(file: pq.ParquetFile) -> Iterator[list[str]]:
    """Yields the record keys of a file, in parts."""
    for batch in file.iter_batches(columns=[_KEY]):
        yield batch.column(0).drop_null().to_pylist()


def _ends_in_java(file: pq.ParquetFile) -> tuple[str, str]:
    """Returns the lowest and highest record key as Java orders texts, by units of UTF-16. Hudi's writers of Avro
    records take that order, those of Spark's rows the order of the bytes."""
    ends = [key for keys in _keys(file) for key in (min(keys, key=_units), max(keys, key=_units))]
    return min(ends, key=_units), max(ends, key=_units)


def _units(text: str) -> bytes:
    return text.encode("utf-16-be")


def _bounds_hold(record: Record, extent: Extent) -> bool:
    """Whether no bound is missing, and both include the values, where they are of a kind that is compared."""
    if any((record[bound] or {}).get("value") is None for bound in _BOUNDS):
        return False
    low, high = (_stored(record, bound) for bound in _BOUNDS)
    return low is None or high is None or not extent.comparable(low) or extent.within(low, high)


def _stored(record: Record, bound: str) -> Any:
    """Returns a bound as a value of Python; None where it has none, or one of a kind that is not compared."""
    value = (record[bound] or {}).get("value")
    kind = (record["valueType"] or {}).get("typeOrdinal", 0)
    if value is None or kind in _PLAIN:
        return value
    if kind == _DECIMAL:
        scale = int(record["valueType"]["additionalInfo"].partition(",")[2])
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _DIGITS)
    if kind == _DATE:
        return value if isinstance(value, date) else _EPOCH.date() + timedelta(days=value)
    if kind in _MOMENTS and isinstance(value, int):
        return _EPOCH + timedelta(microseconds=value * _MOMENTS[kind])
    return None
