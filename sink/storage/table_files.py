"""Opens a Hudi table's files, read only: its file system, its properties, and where its timeline is.

Raises NoTable for a path without a table, TableError for one before version 8; what a store raises on the way, beside.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pyarrow.fs as pafs

from coordination.errors import TableError
from sink.storage.access import HDFS_SCHEMES, NO_ACCESS, S3_SCHEMES, Access
from sink.storage.files import open_storage

OLDEST_TABLE_VERSION = 8
UPGRADE = "stop its writers and upgrade it in Spark SQL: CALL upgrade_table(table => '...', to_version => 'NINE')"
_FOREIGN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<place>.*)", re.DOTALL)


class NoTable(TableError):
    """No table is at the base path. `reason` says what is there instead."""

    def __init__(self, base_path: str, reason: str) -> None:
        super().__init__(f"{base_path}: {reason}. Check target.base.path.")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The table's files, read only. `root` is the base path in `filesystem`; `uri` is the base path for hudi-rs, empty
    if hudi-rs does not support the store."""

    base_path: str
    filesystem: pafs.FileSystem
    root: str
    uri: str
    properties: Mapping[str, str]
    access: Access = NO_ACCESS

    @property
    def timeline_path(self) -> str:
        return posixpath.join(self.root, ".hoodie", self.properties.get("hoodie.timeline.path", "timeline"))

    @property
    def history_path(self) -> str:
        return posixpath.join(self.timeline_path, self.properties.get("hoodie.timeline.history.path", "history"))

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(path, compression=None) as stream:
            content: bytes = stream.read()
        return content

    def names(self, folder: str) -> list[str]:
        selector = pafs.FileSelector(folder, allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))


def open_table(base_path: str, access: Access = NO_ACCESS) -> TableFiles:
    """Opens the table. Raises `NoTable` if the path has none, `TableError` for an older one."""
    try:
        filesystem, root, uri = _locate(base_path, access)
        if filesystem.get_file_info(root).type is pafs.FileType.NotFound:
            raise NoTable(base_path, "it does not exist")
        table = TableFiles(base_path, filesystem, root, uri, {}, access)
        path = posixpath.join(root, ".hoodie", "hoodie.properties")
        if filesystem.get_file_info(path).type is not pafs.FileType.File:
            raise NoTable(base_path, "not a Hudi table, no .hoodie/hoodie.properties")
        content = table.read(path).decode()
    except OSError as error:
        raise TableError(f"{base_path}: it cannot be read ({error}). Check target.base.path and access.") from error
    except ValueError as error:
        raise TableError(f"{base_path}: not a valid path ({error}). Check target.base.path.") from error
    lines = (line.split("=", 1) for line in content.splitlines() if "=" in line and not line.startswith("#"))
    properties = {name.strip(): value.strip() for name, value in lines}
    version = properties.get("hoodie.table.version", "")
    if not version.isdigit() or int(version) < OLDEST_TABLE_VERSION:
        raise TableError(
            f"{base_path}: table version {version or 'unknown'} keeps its timeline in another layout than"
            f" {OLDEST_TABLE_VERSION} and later. {UPGRADE}"
        )
    return replace(table, properties=properties)


def _locate(base_path: str, access: Access) -> tuple[pafs.FileSystem, str, str]:
    """Returns pyarrow's file system, the path in it, and the URI for hudi-rs.

    Hudi takes `%`, `#` and blanks in a base path literally; a URI escapes them."""
    local = re.sub(r"^file:(?://(?=/))?", "", base_path)
    foreign = _FOREIGN.fullmatch(local)
    if foreign is None:
        root = posixpath.abspath(local)
        return pafs.LocalFileSystem(), root, Path(root).as_uri()
    escaped = quote(foreign["place"], safe="/:@?&=")
    if (scheme := foreign["scheme"].lower()) in S3_SCHEMES | HDFS_SCHEMES:
        storage = open_storage(base_path, access)
        return storage.files, storage.root, f"s3a://{escaped}" if scheme in S3_SCHEMES else ""
    filesystem, root = pafs.FileSystem.from_uri(f"{foreign['scheme']}://{escaped}")
    return filesystem, root, f"{foreign['scheme']}://{escaped}"
