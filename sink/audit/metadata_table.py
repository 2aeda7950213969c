"""Reads Hudi's metadata table without Hudi, and compares its list of files with those that the commits name.

Readers that use it see the files that it lists, and skip files by the ranges of values that it has. Guarantee: without
a finding, it lists every file that a reader needs, with its size, and every table partition of these, and no file or
partition that is not on storage. The newest record of a key counts; what belongs to an instant that has not completed
is left out, as readers leave it out. Raises what the store raises.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro
import pyarrow.fs as pafs
from fastavro.schema import SchemaParseException

from sink.audit.files import NamedFile, NamedFiles
from sink.audit.hfile import entries_of, info_of
from sink.audit.hudi_log import HFILE, SCHEMA, blocks_of
from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import AuditedTimeline
from sink.storage.table_files import TableFiles

_PLACE = ".hoodie/metadata"
_FILES, _STATISTICS = "files", "column_stats"
_NAME = re.compile(r"^(?:\.[^._][^_]*_(?P<log>\d+)\.log\.\d+(?:_[\d-]+)?|[^._][^_]*_[^_]+_(?P<base>\d+)\.hfile)$")
_INSTANT = re.compile(r"^(\d+)[_.]")
_COMPLETED = re.compile(r"^(\d+)_\d+\.\w+$")
_DATA_INSTANT = re.compile(r"_(\d+)\.(?:parquet$|log\.)")
_ROOT = "."
"""The name of the partition of a table that has none."""
_FOLDERS = b"__all_partitions__"
"""The key of the list of partitions."""
_FILES_OF_FOLDER = 2
"""The type of a record that lists the files of a partition."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class MetadataTable:
    """The metadata table of a table with this timeline."""

    table: TableFiles
    timeline: AuditedTimeline

    def has(self, part: str) -> bool:
        """Whether the table's properties name the part: then readers use it."""
        return part in self.table.properties.get("hoodie.table.metadata.partitions", "").split(",")

    def records(self, part: str) -> dict[bytes, list[Record]]:
        """Returns the records of each key, oldest first. Raises ValueError for a file that is none of Hudi's."""
        found: dict[bytes, list[Record]] = {}
        for name in self._names(part):
            content = self.table.read(posixpath.join(self.table.root, _PLACE, part, name))
            try:
                for key, record in _log_records(content) if name.startswith(".") else _base_records(content):
                    found.setdefault(key, []).append(record)
            except (ValueError, LookupError, TypeError, EOFError, SchemaParseException) as error:
                raise ValueError(f"{_PLACE}/{part}/{name}: {error}") from error
        return found

    def _names(self, part: str) -> list[str]:
        """Returns the names of files whose instants have completed, by instant; a log file comes after a base file."""
        names = self.table.names(posixpath.join(self.table.root, _PLACE, ".hoodie", "timeline"))
        completed = {match[1] for match in map(_COMPLETED.match, names) if match}
        first = min((match[1] for match in map(_INSTANT.match, names) if match), default="")
        named = []
        for name in self.table.names(posixpath.join(self.table.root, _PLACE, part)):
            match = _NAME.match(name)
            instant = match and (match["log"] or match["base"])
            if not instant or instant in self.timeline.pending:
                continue
            if instant < first or instant in completed:
                named.append((instant, name.startswith("."), name))
        return [name for _, _, name in sorted(named)]

    def shows(self, path: str) -> bool:
        """Whether the instant of a file counts as committed."""
        match = _DATA_INSTANT.search(path)
        if match is None or match[1] in self.timeline.pending:
            return False
        boundary = self.timeline.boundary
        return match[1] in self.timeline.completed or (boundary is not None and match[1] < boundary)


def _base_records(content: bytes) -> Iterator[tuple[bytes, Record]]:
    schema = _schema(info_of(content)[b"schema"])
    for key, value in entries_of(content):
        yield key, _record(value, schema)


def _log_records(content: bytes) -> Iterator[tuple[bytes, Record]]:
    """Records that are deleted are those of files that are deleted, which nobody asks for."""
    for block in blocks_of(content):
        if block.kind == HFILE:
            schema = _schema(block.headers[SCHEMA])
            for key, value in entries_of(block.content):
                yield key, _record(value, schema)


@lru_cache(8)
def _schema(text: bytes) -> Any:
    return fastavro.parse_schema(json.loads(text))


def _record(value: bytes, schema: Any) -> Record:
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
    return dict(record)


def check_metadata_table(
    metadata: MetadataTable, files: NamedFiles, stored: Collection[str], findings: AuditFindings
) -> None:
    """Compares the metadata table's list of files, if the table has one. `stored` are the paths of those on storage."""
    if not metadata.has(_FILES):
        return
    try:
        records = metadata.records(_FILES)
    except ValueError as error:
        findings.add(FindingKind.METADATA_TABLE, f"{error}: readers that use the metadata table cannot read the table")
        return
    listed = _listed(records)
    if not listed and files.live:
        findings.add(FindingKind.METADATA_TABLE, "it lists no file, and the table's properties say that it lists all")
        return
    needed = {entry.file.path: entry for entry in files.live.values() if entry.file.writes}
    needed |= {log.file.path: log for logs in files.logs.values() for log in logs}
    for path, entry in sorted(needed.items()):
        size = listed.get(path)
        if size is None:
            if entry.file.is_log:
                findings.add(FindingKind.FILE_UNSEEN, _unseen(path, entry))
        elif size != entry.file.size:
            findings.add(
                FindingKind.METADATA_TABLE,
                f"it says that {path} of commit {entry.commit} has {size:,} bytes, the write stat {entry.file.size:,}",
            )
    for path in sorted(listed.keys() - files.paths):
        if metadata.shows(path) and path not in stored:
            findings.add(
                FindingKind.METADATA_TABLE, f"it lists {path}, which no commit names, and which is not on storage"
            )
    _check_folders(metadata.table, records.get(_FOLDERS, ()), needed, findings)


def _check_folders(
    table: TableFiles, versions: Iterable[Record], needed: Iterable[str], findings: AuditFindings
) -> None:
    """Compares the list of table partitions with those of the files that are needed, and with storage."""
    listed = _listed_folders(versions)
    wanted = {posixpath.dirname(path) for path in needed}
    for folder in sorted(wanted - listed):
        findings.add(
            FindingKind.METADATA_TABLE,
            f"it does not list table partition {folder or '(root)'}: readers that list partitions do not see its rows",
        )
    others = sorted(listed - wanted)
    infos = table.filesystem.get_file_info([posixpath.join(table.root, folder) for folder in others])
    for folder, info in zip(others, infos, strict=True):
        if info.type is pafs.FileType.NotFound:
            findings.add(FindingKind.METADATA_TABLE, f"it lists table partition {folder}, which is not on storage")


def _unseen(path: str, entry: NamedFile) -> str:
    return f"{path} of commit {entry.commit} is not in the metadata table, so that readers which use it do not see it"


def _listed(records: Mapping[bytes, list[Record]]) -> dict[str, int]:
    """Returns the size of each file that is listed, by path."""
    sizes: dict[str, int] = {}
    for key, versions in records.items():
        folder = _folder(key.decode())
        for record in versions:
            if record["type"] != _FILES_OF_FOLDER:
                continue
            for name, entry in (record["filesystemMetadata"] or {}).items():
                path = posixpath.join(folder, name)
                if entry["isDeleted"]:
                    sizes.pop(path, None)
                else:
                    sizes[path] = entry["size"]
    return sizes


def _listed_folders(versions: Iterable[Record]) -> set[str]:
    """Returns the table partitions that are listed."""
    folders: set[str] = set()
    for record in versions:
        for name, entry in (record["filesystemMetadata"] or {}).items():
            (folders.discard if entry["isDeleted"] else folders.add)(_folder(name))
    return folders


def _folder(name: str) -> str:
    return "" if name == _ROOT else name


def column_statistics(metadata: MetadataTable) -> dict[tuple[str, str], Record] | None:
    """Returns the record of each file name and column; None if the table has no such part. Raises ValueError."""
    if not metadata.has(_STATISTICS):
        return None
    newest = (versions[-1]["ColumnStatsMetadata"] for versions in metadata.records(_STATISTICS).values())
    return {(record["fileName"], record["columnName"]): record for record in newest if record}
