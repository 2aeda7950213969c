"""The table's files as Python sees them: pyarrow's file systems under Hudi's names for places.

Guarantee: a path given to Hudi and the same path given here mean the same file, blanks and odd characters included; a
bucket is reached as `sink.storage.access` has it. No secret is in a `repr` or an error. Raises ConfigError for a file
system that pyarrow does not reach. Imports nothing that an executor need not have.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from coordination.errors import ConfigError, Unavailable
from sink.storage.access import NO_ACCESS, S3_SCHEMES, Access, arrow_arguments, is_own_server, scheme_of
from sink.storage.faults import Fault
from sink.storage.hdfs import HDFS_SCHEMES

_SCHEMES = {**dict.fromkeys(S3_SCHEMES, "s3"), "gs": "gs", "hdfs": "hdfs", "viewfs": "viewfs"}
_SCHEMES |= {"abfs": "abfs", "abfss": "abfss"}
_FOREIGN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 15.0
"""Without a byte. What hangs when the store goes is sent again so long after its return, at the latest."""
_OPTIONAL_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
"""Else Amazon's library ends each upload with a checksum, which other servers may refuse, or keep as data."""


@dataclass(frozen=True)
class Storage:
    """A file system and the table's directory in it. Paths are relative to the table."""

    files: fs.FileSystem
    root: str

    @property
    def has_directories(self) -> bool:
        """Object stores have none; making one leaves an empty object behind."""
        return isinstance(self.files, fs.LocalFileSystem)

    @property
    def is_object_store(self) -> bool:
        """A request takes long there, and many at a time take no longer."""
        return bool(self.files.type_name == "s3")

    @property
    def nearest(self) -> Storage:
        """The directory, or the nearest above it that is there: where it would be made. An object store has none."""
        root = self.root
        while isinstance(self.files, fs.PyFileSystem) and root and not self._is_there(root):
            root = root.rpartition("/")[0]
        return Storage(self.files, root)

    def _is_there(self, path: str) -> bool:
        return bool(self.files.get_file_info(path).type != fs.FileType.NotFound)

    def locate(self, path: str) -> str:
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        return self._is_there(self.locate(path))

    def names(self, directory: str) -> list[str]:
        selector = fs.FileSelector(self.locate(directory), allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(selector)]

    def create(self, path: str) -> pa.NativeFile:
        """An output stream; directories on the way are made."""
        target = self.locate(path)
        if self.has_directories:
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(target)

    def size(self, path: str) -> int:
        return int(self.files.get_file_info(self.locate(path)).size)

    def delete(self, path: str) -> None:
        self.files.delete_file(self.locate(path))


def require_reachable(base_path: str) -> tuple[str, str]:
    """The scheme as pyarrow calls it, `file` for a path, and what comes behind it; asks no server."""
    local = re.sub(r"^file:(?://(?=/))?", "", base_path)
    if local.startswith("/"):
        return "file", local.rstrip("/") or "/"
    match = _FOREIGN.fullmatch(base_path)
    scheme = _SCHEMES.get(match["scheme"].lower()) if match else None
    if match is None or scheme is None:
        raise ConfigError(
            f"target.base.path: write.engine=arrow cannot reach {base_path!r}"
            " (absolute paths, file, s3a, abfs, gs, hdfs can be reached);"
            " use write.engine=hudi"
        )
    return scheme, match["rest"]


_cached: dict[str, tuple[Access, Storage]] = {}


def cached_storage(base_path: str, access: Access = NO_ACCESS) -> Storage:
    """Like `open_storage`, once in a process and again with other keys: a client of an object store keeps its
    connections.
    """
    cached = _cached.get(base_path)
    if cached is None or cached[0] != access:
        cached = _cached[base_path] = access, open_storage(base_path, access)
    return cached[1]


def open_storage(base_path: str, access: Access = NO_ACCESS) -> Storage:
    """`/path`, `file:/path`, `file:///path`, or a URI whose scheme pyarrow knows by this or another name."""
    scheme, rest = require_reachable(base_path)
    if scheme == "file":
        return Storage(fs.LocalFileSystem(), rest)
    if scheme in HDFS_SCHEMES:
        from sink.storage.hdfs_files import open_hdfs

        return Storage(*open_hdfs(base_path, access.hdfs))
    try:
        if scheme == "s3" and (access.s3a or access.process_keys):
            return _open_s3(rest, access)
        files, root = fs.FileSystem.from_uri(f"{scheme}://{quote(rest, safe='/:@?&=')}")
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"target.base.path: {base_path}: {error}; write.engine=hudi may reach it") from error
    return Storage(files, root.rstrip("/"))


def unwritable(directory: Path) -> Fault | None:
    """Why this process cannot write there, or make the directory."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return Fault(f"{existing} is not a directory; name another place", lasts=True)
    if not os.access(existing, os.W_OK | os.X_OK):
        if os.statvfs(existing).f_flag & os.ST_RDONLY:
            return Fault(f"{existing} is on a read-only disk; mount it for writing, or name another place", lasts=False)
        return Fault(f"{existing} cannot be written by this user; change its owner or name another place", lasts=True)
    return None


def require_answer(base_path: str, access: Access = NO_ACCESS) -> None:
    """Raises Unavailable with what the store of the table says, if it lets nobody list there. Of a disk ConfigError,
    where the directory cannot be, and Unavailable where it is read-only for now.

    The question is one whose answer has a text: what a store says to others is a number alone.
    """
    if scheme_of(base_path) in ("", "file"):
        if fault := unwritable(Path(open_storage(base_path).root)):
            raise (ConfigError if fault.lasts else Unavailable)(f"target.base.path: {fault.sentence}")
        return
    if scheme_of(base_path) not in S3_SCHEMES | HDFS_SCHEMES:
        return
    try:
        storage = open_storage(base_path, access)
        storage.names(".hoodie/.sink-asks")
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(f"{base_path}: {error}") from error
    if scheme_of(base_path) in HDFS_SCHEMES:
        return
    with suppress(pa.ArrowException, OSError):
        # Who may list below the table need not be allowed to ask for the bucket.
        if storage.files.get_file_info(storage.root.partition("/")[0]).type is fs.FileType.NotFound:
            raise Unavailable(f"{base_path}: NoSuchBucket")


def ask_store(base_path: str, access: Access = NO_ACCESS) -> None:
    """One small question, over a connection that is kept. Raises Unavailable, or what opening the store raises."""
    try:
        cached_storage(base_path, access).names(".hoodie/.sink-asks")
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(f"{base_path}: {error}") from error


def _open_s3(bucket_path: str, access: Access) -> Storage:
    bucket = bucket_path.partition("/")[0]
    arguments = arrow_arguments(bucket, access)
    if not {"region", "endpoint_override"} & set(arguments):
        # As from_uri does it: a request that goes to another region is turned away.
        arguments["region"] = fs.resolve_s3_region(bucket)
    if is_own_server(bucket, access):
        for name, value in _OPTIONAL_CHECKSUMS.items():
            os.environ.setdefault(name, value)
    files = fs.S3FileSystem(
        **arguments,
        # Opening a file for writing asks nothing and begins no upload in parts before there is a part.
        allow_delayed_open=True,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
    )
    return Storage(files, bucket_path.rstrip("/"))
